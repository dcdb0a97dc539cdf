//! AES key schedules (FIPS 197, 5.2 and 5.3.5) for the kernels on AES instructions.
//!
//! ```text
//!   key ──► k_0 k_1 .. k_last                    encryption
//!           k_last InvMixColumns(..) k_0         decryption, the equivalent inverse cipher
//!   first = k_0 ^ k_last for data, k_0 for IVs; middle = k_1 ..; last = k_last
//! ```

#![allow(unsafe_code)]

use std::arch::asm;

use cryptline_sys::SecretBox;
use zeroize::Zeroize;

use super::native::{AesCpu, ROUND_KEY_BYTES, inverse_mix_columns, sub_word};

/// The bytes of a round key in every 128 bits of the widest vector: a narrower load takes what it
/// needs, and a load alone, unlike one that spreads 16 bytes, leaves the vector units alone.
pub(crate) type RoundKey = [u8; ROUND_KEY_BYTES];

/// Round keys of AES-256, the most there are.
const ROUND_KEYS_MAX: usize = 15;
/// Bytes in a column of the state and in a word of the key.
const WORD: usize = 4;

/// The three schedules of XTS. Wiped when dropped.
#[repr(C, align(64))]
pub(super) struct XtsKeys {
    pub(super) encrypt: Schedule,
    pub(super) decrypt: Schedule,
    pub(super) tweak: Schedule,
}

/// Both schedules of AES alone. Wiped when dropped.
#[cfg(target_arch = "x86_64")]
#[repr(C, align(64))]
pub(crate) struct BlockKeys {
    pub(crate) encrypt: Schedule,
    pub(crate) decrypt: Schedule,
}

/// The keys of one direction.
#[repr(C, align(64))]
pub(crate) struct Schedule {
    /// Key that the input is XORed with, in XTS besides the tweak.
    pub(crate) first: RoundKey,
    pub(crate) last: RoundKey,
    middle: [RoundKey; ROUND_KEYS_MAX - 2],
    pub(super) rounds: usize,
}

wiped_when_dropped!(XtsKeys { encrypt, decrypt, tweak });
#[cfg(target_arch = "x86_64")]
wiped_when_dropped!(BlockKeys { encrypt, decrypt });
wiped_when_dropped!(Schedule { first, last, middle, rounds });

impl XtsKeys {
    /// Expands `key`: the data key, then the tweak key, of 16, 24 or 32 bytes each. In its
    /// place before anything secret is in it, so that no copy stays behind where it was made.
    pub(super) fn new(cpu: AesCpu, key: &[u8]) -> SecretBox<XtsKeys> {
        let mut boxed =
            SecretBox::new(XtsKeys { encrypt: Schedule::EMPTY, decrypt: Schedule::EMPTY, tweak: Schedule::EMPTY });
        let keys = &mut *boxed;
        let (data_key, tweak_key) = key.split_at(key.len() / 2);
        keys.encrypt.expand(cpu, data_key);
        keys.decrypt.invert(cpu, &keys.encrypt);
        keys.tweak.expand(cpu, tweak_key);
        keys.encrypt.fold_last();
        keys.decrypt.fold_last();
        boxed
    }
}

#[cfg(target_arch = "x86_64")]
impl BlockKeys {
    /// Expands `key`, of 16, 24 or 32 bytes, in its place, as [`XtsKeys::new`] does.
    pub(crate) fn new(cpu: AesCpu, key: &[u8]) -> SecretBox<BlockKeys> {
        let mut boxed = SecretBox::new(BlockKeys { encrypt: Schedule::EMPTY, decrypt: Schedule::EMPTY });
        let keys = &mut *boxed;
        keys.encrypt.expand(cpu, key);
        keys.decrypt.invert(cpu, &keys.encrypt);
        boxed
    }
}

impl Schedule {
    const EMPTY: Schedule = Schedule {
        first: [0; ROUND_KEY_BYTES],
        last: [0; ROUND_KEY_BYTES],
        middle: [[0; ROUND_KEY_BYTES]; ROUND_KEYS_MAX - 2],
        rounds: 0,
    };

    /// The keys between the first and the last one.
    #[inline(always)]
    pub(crate) fn middle(&self) -> &[RoundKey] {
        &self.middle[..self.rounds - 1]
    }

    /// The same for code that knows how many there are, which is `MIDDLE`.
    #[inline(always)]
    pub(super) fn middle_keys<const MIDDLE: usize>(&self) -> &[RoundKey; MIDDLE] {
        const { assert!(MIDDLE <= ROUND_KEYS_MAX - 2) };
        self.middle.first_chunk().expect("asserted above")
    }

    /// The last of [`Schedule::middle`].
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub(super) fn last_middle_key(&self) -> &RoundKey {
        &self.middle[self.rounds - 2]
    }

    /// KeyExpansion (FIPS 197, algorithm 2).
    fn expand(&mut self, cpu: AesCpu, key: &[u8]) {
        let key_words = key.len() / WORD;
        self.rounds = key_words + 6;
        let mut words = [[0; WORD]; 4 * ROUND_KEYS_MAX];
        let words = &mut words[..4 * (self.rounds + 1)];
        for (word, bytes) in words.iter_mut().zip(key.as_chunks::<WORD>().0) {
            *word = *bytes;
        }
        let mut round_constant = 1_u8;
        for at in key_words..words.len() {
            let mut word = words[at - 1];
            if at % key_words == 0 {
                word.rotate_left(1);
                word = sub_word(cpu, word);
                word[0] ^= round_constant;
                // AES-128 comes to 0x80 and then 0x1b: a public number, so a branch is no leak.
                round_constant = match round_constant {
                    0x80 => 0x1b,
                    other => other << 1,
                };
            } else if key_words > 6 && at % key_words == 4 {
                word = sub_word(cpu, word);
            }
            for (byte, before) in word.iter_mut().zip(words[at - key_words]) {
                *byte ^= before;
            }
            words[at] = word;
        }
        let (round_keys, _) = words.as_flattened().as_chunks::<16>();
        spread(&round_keys[0], &mut self.first);
        for (key, wide) in round_keys[1..self.rounds].iter().zip(&mut self.middle) {
            spread(key, wide);
        }
        spread(&round_keys[self.rounds], &mut self.last);
        words.as_flattened_mut().zeroize();
    }

    /// The equivalent inverse cipher of `encrypt`.
    fn invert(&mut self, cpu: AesCpu, encrypt: &Schedule) {
        self.rounds = encrypt.rounds;
        self.first = encrypt.last;
        self.last = encrypt.first;
        let keys = encrypt.middle().iter().rev();
        for (key, of_encrypt) in self.middle.iter_mut().zip(keys) {
            let of_encrypt = of_encrypt.first_chunk().expect("16 at least");
            spread(&inverse_mix_columns(cpu, of_encrypt), key);
        }
    }

    /// Puts the last key into the first one too: the kernels have it in the tweak.
    fn fold_last(&mut self) {
        for (first, last) in self.first.iter_mut().zip(self.last) {
            *first ^= last;
        }
    }
}

/// The same schedule, of which the compiler knows nothing: it would move the loads of round keys
/// out of the loops around, and has no registers to keep them in.
// The pointer is not followed there, so the assembly has no business with memory.
#[allow(clippy::pointers_in_nomem_asm_block)]
#[inline(always)]
pub(crate) fn opaque<T>(schedule: &T) -> &T {
    if cfg!(miri) {
        return schedule;
    }
    let mut pointer: *const T = schedule;
    // SAFETY: no instruction at all, so the pointer is the one that was made from `schedule`, with
    // its lifetime.
    unsafe {
        asm!("/* {} */", inout(reg) pointer, options(nomem, nostack, preserves_flags));
        &*pointer
    }
}

/// The block as often as there is room for it.
fn spread(block: &[u8; 16], wide: &mut RoundKey) {
    for part in wide.as_chunks_mut().0 {
        *part = *block;
    }
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
