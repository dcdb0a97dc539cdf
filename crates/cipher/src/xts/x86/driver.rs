//! What the kernels have in common: requests into sectors, sectors into units, and the ends that
//! fill no unit.

use std::arch::asm;

use cipher::inout::InOutBuf;

use crate::iv::IvSequence;

/// Sectors whose IVs are encrypted side by side: fewer would wait for each round's latency.
pub(super) const IV_GROUP: usize = 8;

/// The first tweaks of sectors: encrypted IVs.
pub(super) type IvGroup = [[u8; 16]; IV_GROUP];

/// Aligned so that a load of a tweak never crosses what was stored in one piece.
#[repr(align(64))]
pub(super) struct Aligned<T>(pub(super) T);

/// For every unit in turn its first tweak, if it begins a sector.
pub(super) struct Starts<'a> {
    tweaks: std::slice::Iter<'a, [u8; 16]>,
    sector_units: usize,
    /// Units up to the next beginning.
    left: usize,
}

impl<'a> Starts<'a> {
    #[inline(always)]
    pub(super) fn new(groups: &'a [IvGroup], sector_units: usize) -> Starts<'a> {
        let tweaks = groups.as_flattened().iter();
        Starts {
            tweaks,
            sector_units,
            left: 0,
        }
    }

    /// Nothing after the last tweak, too.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Option<&'a [u8; 16]> {
        if self.left > 0 {
            self.left -= 1;
            return None;
        }
        self.left = self.sector_units - 1;
        self.tweaks.next()
    }
}

/// A request: whole sectors, the first IV and the step.
pub(super) struct Sectors<'ivs, 'inp, 'out> {
    pub(super) ivs: &'ivs IvSequence,
    pub(super) sector_bytes: usize,
    pub(super) data: InOutBuf<'inp, 'out, u8>,
}

/// A copy, each word loaded alone. The caller has just written them one by one, and a load of two
/// at once would wait until both are in the cache, while everything else waits for the first IV.
#[inline(always)]
pub(super) fn word_by_word(ivs: &IvSequence) -> IvSequence {
    let IvSequence {
        mut next, mut step, ..
    } = *ivs;
    // SAFETY: no instruction at all.
    unsafe {
        asm!("/* {} {} */", inout(reg) next, inout(reg) step, options(pure, nomem, nostack, preserves_flags));
    }
    IvSequence { next, step, ..*ivs }
}

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
                let sectors = Sectors { ivs: &ivs, sector_bytes, data };
                match self.keys.encrypt.rounds {
                    // SAFETY: `self._cpu` proves that the CPU has every feature that the function
                    // is compiled for; it asks for nothing else.
                    10 => unsafe { crypt_sectors::<true, 9>(&self.keys, sectors) },
                    // SAFETY: as above.
                    12 => unsafe { crypt_sectors::<true, 11>(&self.keys, sectors) },
                    // SAFETY: as above.
                    _ => unsafe { crypt_sectors::<true, 13>(&self.keys, sectors) },
                }
            }

            fn decrypt(&self, ivs: IvSequence, sector_bytes: usize, data: InOutBuf<'_, '_, u8>) {
                let sectors = Sectors { ivs: &ivs, sector_bytes, data };
                match self.keys.encrypt.rounds {
                    // SAFETY: as in `encrypt`.
                    10 => unsafe { crypt_sectors::<false, 9>(&self.keys, sectors) },
                    // SAFETY: as in `encrypt`.
                    12 => unsafe { crypt_sectors::<false, 11>(&self.keys, sectors) },
                    // SAFETY: as in `encrypt`.
                    _ => unsafe { crypt_sectors::<false, 13>(&self.keys, sectors) },
                }
            }

            fn encrypt_slice(&self, ivs: IvSequence, before: usize, data: InOutBuf<'_, '_, u8>) {
                match self.keys.encrypt.rounds {
                    // SAFETY: as in `encrypt`.
                    10 => unsafe { crypt_slice::<true, 9>(&self.keys, ivs, before, data) },
                    // SAFETY: as in `encrypt`.
                    12 => unsafe { crypt_slice::<true, 11>(&self.keys, ivs, before, data) },
                    // SAFETY: as in `encrypt`.
                    _ => unsafe { crypt_slice::<true, 13>(&self.keys, ivs, before, data) },
                }
            }

            fn decrypt_slice(&self, ivs: IvSequence, before: usize, data: InOutBuf<'_, '_, u8>) {
                match self.keys.encrypt.rounds {
                    // SAFETY: as in `encrypt`.
                    10 => unsafe { crypt_slice::<false, 9>(&self.keys, ivs, before, data) },
                    // SAFETY: as in `encrypt`.
                    12 => unsafe { crypt_slice::<false, 11>(&self.keys, ivs, before, data) },
                    // SAFETY: as in `encrypt`.
                    _ => unsafe { crypt_slice::<false, 13>(&self.keys, ivs, before, data) },
                }
            }

            fn name(&self) -> &'static str {
                $name
            }
        }

        /// `MIDDLE` is the number of round keys between the first and the last one.
        #[target_feature(enable = $features)]
        fn crypt_sectors<const ENCRYPT: bool, const MIDDLE: usize>(
            keys: &Keys,
            Sectors { ivs, sector_bytes, data }: Sectors<'_, '_, '_>,
        ) {
            // A small request does not wait for room for a large one to be cleared.
            if data.len() <= IV_GROUP * sector_bytes {
                crypt_batches::<ENCRYPT, MIDDLE, 1>(keys, ivs, sector_bytes, data);
            } else {
                crypt_batches::<ENCRYPT, MIDDLE, 8>(keys, ivs, sector_bytes, data);
            }
        }

        /// `GROUPS` is how many groups of IVs are encrypted ahead.
        #[inline]
        #[target_feature(enable = $features)]
        fn crypt_batches<const ENCRYPT: bool, const MIDDLE: usize, const GROUPS: usize>(
            keys: &Keys,
            ivs: &IvSequence,
            sector_bytes: usize,
            data: InOutBuf<'_, '_, u8>,
        ) {
            let schedule = if ENCRYPT { &keys.encrypt } else { &keys.decrypt };
            let mut ivs = word_by_word(ivs);
            let mut tweaks = Aligned([[[0; 16]; IV_GROUP]; GROUPS]);
            let (mut units, tail) = data.into_chunks::<Unit>();
            let sector_units = sector_bytes / Unit::USIZE;
            assert!(tail.is_empty(), "whole sectors");
            while !units.is_empty() {
                let len = units.len().min(GROUPS * IV_GROUP * sector_units);
                let (batch, after) = units.split_at(len);
                units = after;
                let groups = &mut tweaks.0[..len.div_ceil(IV_GROUP * sector_units)];
                encrypt_ivs::<MIDDLE>(&keys.tweak, &mut ivs, groups);
                crypt_units::<ENCRYPT, MIDDLE>(schedule, groups, sector_units, batch);
            }
        }

        /// The end that fills no unit goes through a unit of its own: blocks do not depend on
        /// each other, so those past the end may hold anything.
        #[target_feature(enable = $features)]
        fn crypt_slice<const ENCRYPT: bool, const MIDDLE: usize>(
            keys: &Keys,
            mut ivs: IvSequence,
            blocks_before: usize,
            data: InOutBuf<'_, '_, u8>,
        ) {
            let schedule = if ENCRYPT { &keys.encrypt } else { &keys.decrypt };
            let mut tweaks = [[[0; 16]; IV_GROUP]];
            encrypt_ivs::<MIDDLE>(&keys.tweak, &mut ivs, &mut tweaks);
            let first = from_bytes(tweaks[0][0]);
            let tweak_at = |blocks| {
                let tweak = to_bytes(advance(first, blocks_before + blocks));
                [[tweak; IV_GROUP]]
            };
            let (units, mut tail) = data.into_chunks::<Unit>();
            let whole = units.len();
            if whole > 0 {
                crypt_units::<ENCRYPT, MIDDLE>(schedule, &tweak_at(0), whole, units);
            }
            let len = tail.len();
            if len > 0 {
                assert!(len.is_multiple_of(BLOCK_BYTES), "whole blocks");
                let tweak = tweak_at(whole * Unit::USIZE / BLOCK_BYTES);
                let mut unit = Array::<u8, Unit>::default();
                unit[..len].copy_from_slice(tail.get_in());
                let one = InOutBuf::from_mut(&mut unit);
                crypt_units::<ENCRYPT, MIDDLE>(schedule, &tweak, 1, one);
                tail.get_out().copy_from_slice(&unit[..len]);
            }
        }

        /// Units of sectors that have `sector_units` each and begin with `tweaks`.
        ///
        /// While a unit is in its rounds, the masks of the next are made, and what those of the
        /// one after it begin with.
        #[inline(never)]
        #[target_feature(enable = $features)]
        fn crypt_units<const ENCRYPT: bool, const MIDDLE: usize>(
            schedule: &Schedule,
            tweaks: &[IvGroup],
            sector_units: usize,
            units: InOutBuf<'_, '_, Array<u8, Unit>>,
        ) {
            let mut starts = Starts::new(tweaks, sector_units);
            let powers = first_powers(starts.next().expect("a tweak for the first unit"));
            let mut masks = masks(schedule, powers);
            let mut next = match starts.next() {
                Some(tweak) => first_powers(tweak),
                None => next_powers(powers),
            };
            for unit in units {
                let start = starts.next();
                (masks, next) = crypt_unit::<ENCRYPT, MIDDLE>(schedule, masks, next, start, unit);
            }
        }
    };
}

pub(super) use xts_kernel;
