//! SM4 (GB/T 32907-2016) on many blocks side by side: its S-box is an inversion in another field of 256
//! elements between affine maps, and all such fields are the same but for a linear map.
//!
//! ```text
//!   a ^= L(S(b ^ c ^ d ^ key)), and so on round the four words, 32 times
//! ```
//!
//! Time depends on the number of blocks only.

use cryptline_sys::SecretBox;
use zeroize::Zeroize;

use super::bytes::{ByteWords, swapped};
use super::lanes::{BlockWords, CipherRounds};

const ROUNDS: usize = 32;
/// FK.
const START: [u32; 4] = [0xa3b1_bac6, 0x56aa_3350, 0x677d_9197, 0xb270_22dc];
/// The S-box: into AES's field, and back from the inverse.
const INTO: u64 = 0x4c28_7db9_1a22_505d;
const INTO_PLUS: i32 = 0x3e;
const BACK: u64 = 0xf3ab_34a9_74a6_b589;
const BACK_PLUS: i32 = 0xd3;

/// The round keys.
pub(super) struct Sm4Keys([u32; ROUNDS]);

wiped_when_dropped!(Sm4Keys { 0 });

impl Sm4Keys {
    /// `key` has 16 bytes.
    pub(super) fn new(key: &[u8]) -> Option<SecretBox<Sm4Keys>> {
        let key: &[u8; 16] = key.try_into().ok()?;
        let mut keys = SecretBox::new(Sm4Keys([0; ROUNDS]));
        let mut words = swapped(u32::load((), &[*key]));
        for (word, start) in words.iter_mut().zip(START) {
            *word ^= start;
        }
        for (key, number) in keys.0.iter_mut().zip((0..).step_by(4)) {
            let [a, b, c, d] = words;
            let mixed = sbox(b ^ c ^ d ^ constant(number), ());
            *key = a ^ mixed ^ mixed.rotate_left(13) ^ mixed.rotate_left(23);
            words = [b, c, d, *key];
        }
        words.zeroize();
        Some(keys)
    }
}

/// CK: the multiples of 7 from that of `number` on.
fn constant(number: u8) -> u32 {
    let bytes = [0, 1, 2, 3].map(|byte| (number + byte).wrapping_mul(7));
    u32::from_be_bytes(bytes)
}

impl<W: ByteWords> CipherRounds<W> for Sm4Keys {
    type More = W::Gfni;

    #[inline(always)]
    fn crypt<const ENCRYPT: bool>(&self, cpu: W::Cpu, gfni: W::Gfni, text: [W; 4]) -> [W; 4] {
        let [mut a, mut b, mut c, mut d] = swapped(text);
        for at in (0..ROUNDS).step_by(4) {
            let key = |more| self.0[if ENCRYPT { at + more } else { ROUNDS - 1 - at - more }];
            a = round(cpu, gfni, key(0), [a, b, c, d]);
            b = round(cpu, gfni, key(1), [b, c, d, a]);
            c = round(cpu, gfni, key(2), [c, d, a, b]);
            d = round(cpu, gfni, key(3), [d, a, b, c]);
        }
        swapped([d, c, b, a])
    }
}

#[inline(always)]
fn round<W: ByteWords>(cpu: W::Cpu, gfni: W::Gfni, key: u32, [a, b, c, d]: [W; 4]) -> W {
    let mixed = sbox(b.xor(c).xor(d).xor(W::splat(cpu, key)), gfni);
    // Rotated by 0, 2, 10, 18 and 24: by whole bytes first, which are moves.
    let by_two = mixed.xor(mixed.rotate::<8, 24>()).xor(mixed.rotate::<16, 16>()).rotate::<2, 30>();
    a.xor(mixed).xor(by_two).xor(mixed.rotate::<24, 8>())
}

#[inline(always)]
fn sbox<W: ByteWords>(word: W, gfni: W::Gfni) -> W {
    word.affine::<INTO_PLUS>(gfni, INTO).affine_inverse::<BACK_PLUS>(gfni, BACK)
}
