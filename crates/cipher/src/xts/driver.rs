//! Code common to the kernels on AES instructions: cutting requests into sectors and sectors into units, and the tails
//! that do not fill a unit.

#![allow(unsafe_code)]

use std::arch::asm;

use crate::iv::IvSequence;

/// Sectors whose IVs are encrypted first, side by side: all that small requests have.
pub(super) const FIRST_SECTORS: usize = 8;

/// Registers that go through the rounds together, of data or of IVs: with fewer the AES units
/// would wait for each round's latency.
pub(super) const REGISTERS: usize = 8;

/// Aligned so that a load of a tweak never crosses what was stored in one piece.
#[repr(align(64))]
pub(super) struct Aligned<T>(pub(super) T);

/// Where units take their tweaks from.
pub(super) enum Tweaked<'a> {
    /// These are whole sectors of so many units each.
    Sectors(&'a IvSequence, usize),
    /// These are all in one sector, and this is the first one's.
    From(&'a [u8; 16]),
}

/// A copy whose counters are loaded one by one, since everything waits for the first IV.
///
/// The caller has just stored them one by one. A load of both at once would wait until both are in
/// the cache, which is after all that the CPU still has to do of an earlier request.
#[inline(always)]
pub(super) fn field_by_field(ivs: &IvSequence) -> IvSequence {
    let IvSequence { mut next, mut step, .. } = *ivs;
    if !cfg!(miri) {
        // SAFETY: no instruction at all.
        unsafe {
            asm!("/* {} {} */", inout(reg) next, inout(reg) step, options(pure, nomem, nostack, preserves_flags));
        }
    }
    IvSequence { next, step, ..*ivs }
}

/// An array of what `$value` is at each place, written out: closures that `map` takes, and zipped
/// iterators, may become calls with all registers in memory where a program is built without
/// link-time optimization.
#[cfg(target_arch = "x86_64")]
macro_rules! each {
    ([$($place:literal)+] $at:ident => $value:expr) => {
        [$({
            const $at: usize = $place;
            $value
        }),+]
    };
}

/// The IVs of a module's width, and the tweaks that become of them: what [`xts_kernel`] takes, of which a module may have
/// several. `$aes_round` is a round of encryption on a vector. Uses of the module:
///
/// ```text
///   Vector
///   Spread        a tweak as its first unit takes it
///   first_ivs, whitened_ivs, end_ivs, round_key, store
/// ```
macro_rules! xts_ivs {
    ($features:literal, $aes_round:ident) => {
        /// The tweaks of sectors, one after the other: their IVs are encrypted a few at first, so
        /// that work can begin, and then many together.
        struct Tweaks<'a> {
            group: &'a mut [[u8; 16]],
            /// The next one's place in `group`, and how many are there.
            next: usize,
            ready: usize,
            ivs: IvSequence,
            /// Units of sectors whose IVs are not encrypted yet.
            units_after: usize,
            sector_units: usize,
            /// Units of the present sector, the one being made ready included.
            units: usize,
        }

        /// IVs in a full group.
        const SECTORS: usize = size_of::<[Vector; REGISTERS]>() / BLOCK_BYTES;
        /// Registers for the first group.
        const FIRST: usize = FIRST_SECTORS * BLOCK_BYTES / size_of::<Vector>();

        impl<'a> Tweaks<'a> {
            /// For units that are all in one sector.
            #[inline]
            #[target_feature(enable = $features)]
            fn none() -> Tweaks<'a> {
                Tweaks {
                    group: &mut [],
                    next: 0,
                    ready: 0,
                    ivs: IvSequence::NONE,
                    units_after: 0,
                    sector_units: usize::MAX,
                    units: usize::MAX,
                }
            }

            /// The first tweak is apart. `ENCRYPT` says nothing here, but gives each copy of this
            /// one caller, which compilers then make it a part of: all waits for the first tweak.
            #[inline]
            #[target_feature(enable = $features)]
            fn new<const ENCRYPT: bool, const MIDDLE: usize>(
                keys: &Schedule,
                group: &'a mut [[u8; 16]],
                ivs: &IvSequence,
                sector_units: usize,
                len: usize,
            ) -> (Tweaks<'a>, Spread) {
                let mut ivs = field_by_field(ivs);
                let (state, first) = first_ivs::<MIDDLE>(keys, &mut ivs);
                store_ivs(state, group);
                let tweaks = Tweaks {
                    group,
                    next: 1,
                    ready: FIRST_SECTORS,
                    ivs,
                    units_after: len.saturating_sub(FIRST_SECTORS * sector_units),
                    sector_units,
                    units: sector_units,
                };
                (tweaks, first)
            }

            /// The tweak of the next unit, if it begins a sector.
            #[inline]
            #[target_feature(enable = $features)]
            fn next<const MIDDLE: usize>(&mut self, keys: &Schedule) -> Option<&[u8; 16]> {
                self.units -= 1;
                if self.units > 0 {
                    return None;
                }
                self.units = self.sector_units;
                if self.next == self.ready {
                    if self.units_after == 0 {
                        return None;
                    }
                    let few = self.units_after <= FIRST_SECTORS * self.sector_units;
                    self.ready = if few { FIRST_SECTORS } else { SECTORS };
                    self.next = 0;
                    refill::<MIDDLE>(keys, self.group, &mut self.ivs, few);
                    self.units_after = self.units_after.saturating_sub(self.ready * self.sector_units);
                }
                let tweak = self.group.get(self.next);
                self.next += 1;
                tweak
            }
        }

        #[inline(never)]
        #[target_feature(enable = $features)]
        fn refill<const MIDDLE: usize>(keys: &Schedule, group: &mut [[u8; 16]], ivs: &mut IvSequence, few: bool) {
            if few {
                store_ivs(encrypt_ivs::<MIDDLE, FIRST>(keys, ivs), group);
            } else {
                store_ivs(encrypt_ivs::<MIDDLE, REGISTERS>(keys, ivs), group);
            }
        }

        /// The next sectors' tweaks, in `N` registers.
        #[inline]
        #[target_feature(enable = $features)]
        fn encrypt_ivs<const MIDDLE: usize, const N: usize>(keys: &Schedule, ivs: &mut IvSequence) -> [Vector; N] {
            let mut state = whitened_ivs::<N>(keys, ivs);
            for key in keys.middle_keys::<MIDDLE>() {
                state = iv_round(state, key);
            }
            end_ivs(keys, state)
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn iv_round<const N: usize>(mut state: [Vector; N], key: &RoundKey) -> [Vector; N] {
            let key = round_key(key);
            for state in &mut state {
                *state = $aes_round(*state, key);
            }
            state
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn store_ivs<const N: usize>(state: [Vector; N], tweaks: &mut [[u8; 16]]) {
            let (out, _) = tweaks.as_flattened_mut().as_chunks_mut();
            let out: &mut [_; N] = out.first_chunk_mut().expect("room for all tweaks");
            for at in 0..N {
                store(&mut out[at], state[at]);
            }
        }
    };
}

/// Makes a kernel out of a module's width. `$features` are what every function of it is compiled
/// for and what `$cpu` proves, `$middle128` and so on the `MIDDLE` below for each size of the key: how
/// many round keys the module wants in a loop. Uses of the module, beside what [`xts_ivs`] makes:
///
/// ```text
///   UNIT          the bytes of 8 registers
///   Masks         of a unit's blocks: each tweak XORed with the last round key
///   Powers        what the next unit's masks are made from, if no sector begins there
///   spread, first_iv, first_masks, crypt_unit
/// ```
macro_rules! xts_kernel {
    ($(#[$doc:meta])* $kernel:ident, $cpu:ty, $features:literal, $name:literal,
     [$middle128:literal, $middle192:literal, $middle256:literal]) => {
        $(#[$doc])*
        pub(in crate::xts) struct $kernel {
            keys: cryptline_sys::SecretBox<XtsKeys>,
            /// Proves that the functions below may run here.
            _cpu: $cpu,
        }

        impl $kernel {
            /// Nothing where the CPU lacks a feature.
            pub(in crate::xts) fn new(key: &[u8]) -> Option<$kernel> {
                let cpu = <$cpu>::detect()?;
                let keys = XtsKeys::new(cpu.aes(), key);
                Some($kernel { keys, _cpu: cpu })
            }

            #[inline(always)]
            fn crypt<const ENCRYPT: bool>(&self, ivs: &IvSequence, sector_bytes: usize, data: &mut [u8]) {
                let tweaks = Tweaked::Sectors(ivs, sector_bytes / UNIT);
                let (units, odd) = data.as_chunks_mut();
                assert!(odd.is_empty(), "whole sectors");
                // SAFETY: `self._cpu` proves that the CPU has every feature that the function is
                // compiled for.
                unsafe {
                    match self.keys.encrypt.rounds {
                        10 => crypt_units::<ENCRYPT, $middle128>(&self.keys, tweaks, units),
                        12 => crypt_units::<ENCRYPT, $middle192>(&self.keys, tweaks, units),
                        _ => crypt_units::<ENCRYPT, $middle256>(&self.keys, tweaks, units),
                    }
                }
            }

            #[inline(always)]
            fn crypt_part<const ENCRYPT: bool>(&self, ivs: IvSequence, before: usize, data: &mut [u8]) {
                // SAFETY: as in `crypt`.
                unsafe {
                    match self.keys.encrypt.rounds {
                        10 => crypt_slice::<ENCRYPT, $middle128>(&self.keys, ivs, before, data),
                        12 => crypt_slice::<ENCRYPT, $middle192>(&self.keys, ivs, before, data),
                        _ => crypt_slice::<ENCRYPT, $middle256>(&self.keys, ivs, before, data),
                    }
                }
            }
        }

        impl XtsKernel for $kernel {
            fn encrypt(&self, ivs: IvSequence, sector_bytes: usize, data: &mut [u8]) {
                self.crypt::<true>(&ivs, sector_bytes, data);
            }

            fn decrypt(&self, ivs: IvSequence, sector_bytes: usize, data: &mut [u8]) {
                self.crypt::<false>(&ivs, sector_bytes, data);
            }

            fn encrypt_slice(&self, ivs: IvSequence, before: usize, data: &mut [u8]) {
                self.crypt_part::<true>(ivs, before, data);
            }

            fn decrypt_slice(&self, ivs: IvSequence, before: usize, data: &mut [u8]) {
                self.crypt_part::<false>(ivs, before, data);
            }

            fn name(&self) -> &'static str {
                $name
            }
        }

        /// While a unit is in its rounds, the masks of the next are made.
        #[target_feature(enable = $features)]
        fn crypt_units<const ENCRYPT: bool, const MIDDLE: usize>(
            keys: &XtsKeys,
            tweaks: Tweaked<'_>,
            units: &mut [[u8; UNIT]],
        ) {
            let len = units.len();
            if len == 0 {
                return;
            }
            let schedule = if ENCRYPT { &keys.encrypt } else { &keys.decrypt };
            // A small request does not wait for room for a large one to be cleared.
            let (mut few, mut many);
            let (mut tweaks, first) = match tweaks {
                // The other IVs would take time from the AES units.
                Tweaked::Sectors(ivs, sector_units) if len <= sector_units => {
                    let first = first_iv::<MIDDLE>(&keys.tweak, &mut field_by_field(ivs));
                    (Tweaks::none(), first)
                }
                Tweaked::Sectors(ivs, sector_units) => {
                    let group = if len > FIRST_SECTORS * sector_units {
                        many = Aligned([[0; 16]; SECTORS]);
                        &mut many.0[..]
                    } else {
                        few = Aligned([[0; 16]; FIRST_SECTORS]);
                        &mut few.0[..]
                    };
                    Tweaks::new::<ENCRYPT, MIDDLE>(&keys.tweak, group, ivs, sector_units, len)
                }
                Tweaked::From(tweak) => (Tweaks::none(), spread(tweak)),
            };
            let (mut masks, mut powers) = first_masks(schedule, first);
            for unit in units {
                let start = tweaks.next::<MIDDLE>(&keys.tweak);
                crypt_unit::<ENCRYPT, MIDDLE>(schedule, &mut masks, &mut powers, start, unit);
            }
        }

        /// The end that fills no unit goes through a unit of its own: blocks do not depend on
        /// each other, so those past the end may hold anything.
        #[target_feature(enable = $features)]
        fn crypt_slice<const ENCRYPT: bool, const MIDDLE: usize>(
            keys: &XtsKeys,
            mut ivs: IvSequence,
            blocks_before: usize,
            data: &mut [u8],
        ) {
            let mut tweaks = [[0; 16]; FIRST_SECTORS];
            store_ivs(encrypt_ivs::<MIDDLE, FIRST>(&keys.tweak, &mut ivs), &mut tweaks);
            let first = from_bytes(tweaks[0]);
            let tweak_at = |blocks| to_bytes(advance(first, blocks_before + blocks));
            let (units, tail) = data.as_chunks_mut();
            let whole = units.len();
            crypt_units::<ENCRYPT, MIDDLE>(keys, Tweaked::From(&tweak_at(0)), units);
            let len = tail.len();
            if len > 0 {
                assert!(len.is_multiple_of(BLOCK_BYTES), "whole blocks");
                let tweak = tweak_at(whole * UNIT / BLOCK_BYTES);
                let mut unit = [[0; UNIT]];
                unit[0][..len].copy_from_slice(tail);
                crypt_units::<ENCRYPT, MIDDLE>(keys, Tweaked::From(&tweak), &mut unit);
                tail.copy_from_slice(&unit[0][..len]);
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
pub(super) use each;
pub(super) use {xts_ivs, xts_kernel};
