//! What the kernels have in common: requests into sectors, sectors into units, and the ends that
//! fill no unit.

/// Sectors whose IVs are encrypted ahead.
pub(super) const IV_BATCH: usize = 64;
/// Sectors whose IVs are encrypted side by side: fewer would wait for each round's latency.
pub(super) const IV_GROUP: usize = 8;

/// What `encrypt_ivs` makes in one step.
pub(super) type IvGroup = [[u8; 16]; IV_GROUP];

/// The first tweaks of sectors.
#[repr(align(64))]
pub(super) struct SectorTweaks(pub(super) [[u8; 16]; IV_BATCH]);

/// Makes a kernel out of a module's width. `$features` are what every function of it is compiled
/// for and what `$cpu` proves. Uses of the module: `Unit` (the length of a unit as a type),
/// `Powers` (what a unit's tweaks are made from), `first_powers`, `next_powers`, `crypt_unit`
/// and `encrypt_ivs`.
macro_rules! xts_kernel {
    ($(#[$doc:meta])* $kernel:ident, $cpu:ty, $features:literal, $name:literal) => {
        $(#[$doc])*
        pub(in crate::xts) struct $kernel {
            keys: Box<Keys>,
            /// Proves that the functions below may run here.
            _cpu: $cpu,
        }

        impl $kernel {
            /// Nothing where the CPU lacks a feature.
            pub(in crate::xts) fn new(key: &[u8]) -> Option<$kernel> {
                let cpu = <$cpu>::detect()?;
                let keys = Keys::new(cpu.aes(), key);
                Some($kernel { keys, _cpu: cpu })
            }
        }

        impl XtsKernel for $kernel {
            fn encrypt(&self, ivs: IvSequence, sector_bytes: usize, data: InOutBuf<'_, '_, u8>) {
                // SAFETY: `self._cpu` proves that the CPU has every feature that the function is
                // compiled for; it asks for nothing else.
                unsafe { crypt_sectors::<true>(&self.keys, ivs, sector_bytes, data) }
            }

            fn decrypt(&self, ivs: IvSequence, sector_bytes: usize, data: InOutBuf<'_, '_, u8>) {
                // SAFETY: as above.
                unsafe { crypt_sectors::<false>(&self.keys, ivs, sector_bytes, data) }
            }

            fn encrypt_slice(&self, ivs: IvSequence, before: usize, data: InOutBuf<'_, '_, u8>) {
                // SAFETY: as above.
                unsafe { crypt_slice::<true>(&self.keys, ivs, before, data) }
            }

            fn decrypt_slice(&self, ivs: IvSequence, before: usize, data: InOutBuf<'_, '_, u8>) {
                // SAFETY: as above.
                unsafe { crypt_slice::<false>(&self.keys, ivs, before, data) }
            }

            fn name(&self) -> &'static str {
                $name
            }
        }

        #[target_feature(enable = $features)]
        fn crypt_sectors<const ENCRYPT: bool>(
            keys: &Keys,
            mut ivs: IvSequence,
            sector_bytes: usize,
            data: InOutBuf<'_, '_, u8>,
        ) {
            let schedule = if ENCRYPT { &keys.encrypt } else { &keys.decrypt };
            let mut tweaks = SectorTweaks([[0; 16]; IV_BATCH]);
            let mut rest = data;
            while !rest.is_empty() {
                let len = rest.len().min(IV_BATCH * sector_bytes);
                let (mut batch, after) = rest.split_at(len);
                rest = after;
                let sectors = len / sector_bytes;
                let groups = sectors.div_ceil(IV_GROUP);
                encrypt_ivs(&keys.tweak, &mut ivs, &mut tweaks.0.as_chunks_mut().0[..groups]);
                for tweak in &tweaks.0[..sectors] {
                    let (sector, others) = batch.split_at(sector_bytes);
                    batch = others;
                    crypt_sector::<ENCRYPT>(schedule, tweak, sector);
                }
                // A request that is no whole number of sectors would lose its end.
                assert!(batch.is_empty(), "whole sectors");
            }
        }

        #[target_feature(enable = $features)]
        fn crypt_slice<const ENCRYPT: bool>(
            keys: &Keys,
            mut ivs: IvSequence,
            blocks_before: usize,
            data: InOutBuf<'_, '_, u8>,
        ) {
            let schedule = if ENCRYPT { &keys.encrypt } else { &keys.decrypt };
            let mut tweaks = [[0; 16]; IV_GROUP];
            encrypt_ivs(&keys.tweak, &mut ivs, std::slice::from_mut(&mut tweaks));
            let first = to_bytes(advance(from_bytes(tweaks[0]), blocks_before));
            crypt_sector::<ENCRYPT>(schedule, &first, data);
        }

        /// All blocks of `data`, whose first one has the tweak `tweak`.
        #[inline]
        #[target_feature(enable = $features)]
        fn crypt_sector<const ENCRYPT: bool>(
            schedule: &Schedule,
            tweak: &[u8; 16],
            data: InOutBuf<'_, '_, u8>,
        ) {
            let mut powers = first_powers(tweak);
            let (units, mut tail) = data.into_chunks::<Unit>();
            for unit in units {
                let now = powers;
                powers = next_powers(now);
                crypt_unit::<ENCRYPT>(schedule, now, unit);
            }
            if !tail.is_empty() {
                // The end of a slice. Blocks do not depend on each other, so those past it may
                // hold anything.
                let len = tail.len();
                assert!(len.is_multiple_of(16), "whole blocks");
                let mut unit = Array::<u8, Unit>::default();
                unit[..len].copy_from_slice(tail.get_in());
                crypt_unit::<ENCRYPT>(schedule, powers, InOut::from(&mut unit));
                tail.get_out().copy_from_slice(&unit[..len]);
            }
        }
    };
}

pub(super) use xts_kernel;
