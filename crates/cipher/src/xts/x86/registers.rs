//! Code that the kernels of x86 have in common, for registers of any width.

/// Loads, stores and the like of a module's `Vector` of `$bytes` bytes, and the last round of its tweaks.
macro_rules! registers {
    ($features:literal, $bytes:literal, $load:ident, $store:ident, $xor:ident, $enc_last:ident) => {
        #[inline]
        #[target_feature(enable = $features)]
        fn end_ivs<const N: usize>(keys: &Schedule, mut state: [Vector; N]) -> [Vector; N] {
            let last = round_key(&keys.last);
            for state in &mut state {
                *state = $enc_last(*state, last);
            }
            state
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn xor(a: Vector, b: Vector) -> Vector {
            $xor(a, b)
        }

        /// A round key.
        #[inline]
        #[target_feature(enable = $features)]
        fn round_key(key: &RoundKey) -> Vector {
            load(key.first_chunk().expect("a key is as long as the widest register"))
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn load(source: &[u8; $bytes]) -> Vector {
            // SAFETY: `source` has the bytes of a register to read; this load needs no alignment.
            unsafe { $load(source.as_ptr().cast()) }
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn store(destination: &mut [u8; $bytes], value: Vector) {
            // SAFETY: `destination` has the bytes of a register to write, borrowed by nobody else; this store needs
            // no alignment.
            unsafe { $store(destination.as_mut_ptr().cast(), value) }
        }
    };
}

/// The first tweaks of sectors, and a unit on its way through the rounds, in registers of several blocks. Uses of the
/// module, beside what [`registers`] makes:
///
/// ```text
///   LANES, WORKS     blocks in a register; parts of other work in the rounds of a unit
///   lanes(ivs)       0, one step, two steps and so on: a block's IV less the first one
///   Rounds::order    keeps the compiler from moving work across it
/// ```
macro_rules! wide_registers {
    ($features:literal, $set1:ident, $zero:ident, $broadcast:ident, $add:ident, $shuffle:ident, $srl:ident,
     $enc:ident, $enc_last:ident, $dec:ident, $dec_last:ident,
     [$($products:ident)?], order($($nothing:expr),*)) => {
        /// A unit on its way through the rounds. Other work goes between them in [`WORKS`] parts, each of a few
        /// instructions.
        ///
        /// The compiler would do all of that together, which then waits for the ports that the AES units leave, and
        /// the AES units for it. And Zen 4 deals instructions to its ports before they are ready: dealt one by one,
        /// rounds and other work leave one of the AES units idle now and then.
        struct Rounds<'a, $(const $products: bool,)? const ENCRYPT: bool, const MIDDLE: usize> {
            keys: &'a Schedule,
            state: [Vector; 8],
        }

        impl<$(const $products: bool,)? const ENCRYPT: bool, const MIDDLE: usize>
            Rounds<'_, $($products,)? ENCRYPT, MIDDLE>
        {
            /// Rounds on pairs of registers after each part of the work: there are four in each round.
            const PAIRS: usize = 4 * MIDDLE / WORKS;

            #[inline]
            #[target_feature(enable = $features)]
            fn pairs(&mut self, first: usize, count: usize) {
                for pair in first..first + count {
                    let key = round_key(&self.keys.middle_keys::<MIDDLE>()[pair / 4]);
                    for at in [pair % 4 * 2, pair % 4 * 2 + 1] {
                        self.state[at] = if ENCRYPT { $enc(self.state[at], key) } else { $dec(self.state[at], key) };
                    }
                }
            }

            /// The rounds that are left, and the last one. Stores go in pairs: in another order they take
            /// time from the rounds of the next unit on Zen 4.
            #[inline]
            #[target_feature(enable = $features)]
            fn end(mut self, masks: Masks, destination: &mut [u8; UNIT]) {
                self.pairs(WORKS * Self::PAIRS, 4 * MIDDLE - WORKS * Self::PAIRS);
                let (destination, _) = destination.as_chunks_mut();
                for pair in [0, 2, 4, 6] {
                    for at in [pair, pair + 1] {
                        self.state[at] = if ENCRYPT {
                            $enc_last(self.state[at], masks[at])
                        } else {
                            $dec_last(self.state[at], masks[at])
                        };
                    }
                    self.order($($nothing),*);
                    for at in [pair, pair + 1] {
                        store(&mut destination[at], self.state[at]);
                    }
                }
            }
        }

        /// The tweak of the first sector alone.
        #[inline]
        #[target_feature(enable = $features)]
        fn first_iv<const MIDDLE: usize>(keys: &Schedule, ivs: &mut IvSequence) -> Spread {
            let mut first = [whiten(keys, ivs, $set1(ivs.next.cast_signed()))];
            for key in keys.middle_keys::<MIDDLE>() {
                first = iv_round(first, key);
            }
            let [first] = end_ivs(keys, first);
            first
        }

        /// The tweaks of the next sectors, and the first one's in every 128 bits.
        #[inline]
        #[target_feature(enable = $features)]
        fn first_ivs<const MIDDLE: usize>(keys: &Schedule, ivs: &mut IvSequence) -> ([Vector; FIRST], Spread) {
            // A register more, since shuffling the first tweak out of the others is time that all waits.
            let mut first = [whiten(keys, ivs, $set1(ivs.next.cast_signed()))];
            let mut state = whitened_ivs(keys, ivs);
            for key in keys.middle_keys::<MIDDLE>() {
                first = iv_round(first, key);
                state = iv_round(state, key);
            }
            let [first] = end_ivs(keys, first);
            (end_ivs(keys, state), first)
        }

        /// The next IVs with the first round key.
        #[inline]
        #[target_feature(enable = $features)]
        fn whitened_ivs<const N: usize>(keys: &Schedule, ivs: &mut IvSequence) -> [Vector; N] {
            let mut next = $add($set1(ivs.next.cast_signed()), lanes(ivs));
            let step = $set1(ivs.step.wrapping_mul(LANES).cast_signed());
            let mut state = [zero(); N];
            // No closure: the compiler would make a call of it, with everything in memory.
            for state in &mut state {
                *state = whiten(keys, ivs, next);
                next = $add(next, step);
                ivs.next = ivs.after(LANES);
            }
            state
        }

        /// The IVs from sector numbers, with the first round key.
        #[inline]
        #[target_feature(enable = $features)]
        fn whiten(keys: &Schedule, ivs: &IvSequence, numbers: Vector) -> Vector {
            let places = spread(ivs.layout.byte_places());
            let shift = _mm_cvtsi64_si128(i64::from(ivs.shift));
            let iv = $shuffle($srl(numbers, shift), places);
            xor(iv, round_key(&keys.first))
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn spread(block: &[u8; 16]) -> Spread {
            // SAFETY: `block` is 16 bytes to read; this load needs no alignment.
            let block = unsafe { _mm_loadu_si128(block.as_ptr().cast()) };
            $broadcast(block)
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn zero() -> Vector {
            $zero()
        }
    };
}

pub(super) use {registers, wide_registers};
