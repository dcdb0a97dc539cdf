//! Camellia (RFC 3713) on many blocks side by side: its first S-box is an inversion in another field of 256
//! elements between affine maps, and the others are rotations of it, so each is two affine maps.
//!
//! ```text
//!   left, right ─► whitening ─► 6 rounds ─► FL ─► 6 rounds ─► .. ─► whitening ─► right, left
//!                               right ^= F(left), left ^= F(right), ..
//! ```
//!
//! Time depends on the number of blocks and the size of the key only.

use cryptline_sys::SecretBox;
use zeroize::Zeroizing;

use super::bytes::{ByteWords, swapped};
use super::lanes::CipherRounds;

/// Subkeys of a key of 16 bytes, and of a longer one.
const SUBKEYS: usize = 26;
const SUBKEYS_MAX: usize = 34;
/// Subkeys of six rounds, and of the FL before them.
const STEP: usize = 8;
/// Six constants for the key schedule.
const SIGMA: [u64; 6] = [
    0xa09e_667f_3bcc_908b,
    0xb67a_e858_4caa_73b2,
    0xc6ef_372f_e94f_82be,
    0x54ff_53a5_f1d3_6f1c,
    0x10e5_27fa_de68_2d1d,
    0xb056_88c2_b3e6_c1fd,
];
/// The first S-box: into AES's field, and back from the inverse.
const INTO: u64 = 0x3e8a_d8b5_2d81_a4c5;
const INTO_PLUS: i32 = 0x0b;
const BACK: u64 = 0xc0ba_5f8c_8dfc_1e04;
const BACK_PLUS: i32 = 0x6e;
/// The second and third: its results rotated to the left and to the right.
const BACK_LEFT: u64 = 0x04c0_ba5f_8c8d_fc1e;
const BACK_LEFT_PLUS: i32 = 0xdc;
const BACK_RIGHT: u64 = 0xba5f_8c8d_fc1e_04c0;
const BACK_RIGHT_PLUS: i32 = 0x37;
/// The fourth: its operands rotated to the left.
const INTO_LEFT: u64 = 0x1f45_6cda_96c0_52e2;

/// Half of a block.
type Half<W> = [W; 2];

/// The subkeys in the order of encryption.
pub(super) struct CamelliaKeys {
    subkeys: [[u32; 2]; SUBKEYS_MAX],
    count: usize,
}

wiped_when_dropped!(CamelliaKeys { subkeys, count });

impl CamelliaKeys {
    /// `key` has 16, 24 or 32 bytes.
    pub(super) fn new(key: &[u8]) -> Option<SecretBox<CamelliaKeys>> {
        if ![16, 24, 32].contains(&key.len()) {
            return None;
        }
        let mut keys = SecretBox::new(CamelliaKeys {
            subkeys: [[0; 2]; SUBKEYS_MAX],
            count: if key.len() == 16 { SUBKEYS } else { SUBKEYS_MAX },
        });
        keys.expand(key);
        Some(keys)
    }

    fn expand(&mut self, key: &[u8]) {
        let mut padded = Zeroizing::new([0; 32]);
        padded[..key.len()].copy_from_slice(key);
        if key.len() == 24 {
            for at in 24..32 {
                padded[at] = !padded[at - 8];
            }
        }
        let (halves, _) = padded.as_chunks::<16>();
        let left = Zeroizing::new(u128::from_be_bytes(halves[0]));
        let right = Zeroizing::new(u128::from_be_bytes(halves[1]));
        let mixed = Zeroizing::new(two_rounds(*left ^ *right, 0) ^ *left);
        let a = Zeroizing::new(two_rounds(*mixed, 2));
        let b = Zeroizing::new(two_rounds(*a ^ *right, 4));
        let (left, right, a, b): (&u128, &u128, &u128, &u128) = (&left, &right, &a, &b);
        if key.len() == 16 {
            self.set(&[
                (left, 0),
                (a, 0),
                (left, 15),
                (a, 15),
                (a, 30),
                (left, 45),
                (a, 45),
                (a, 60),
                (left, 77),
                (left, 94),
                (a, 94),
                (left, 111),
                (a, 111),
            ]);
            // The one pair that is of two kinds.
            self.subkeys[13] = halves_of(left.rotate_left(60))[1];
        } else {
            self.set(&[
                (left, 0),
                (b, 0),
                (right, 15),
                (a, 15),
                (right, 30),
                (b, 30),
                (left, 45),
                (a, 45),
                (left, 60),
                (right, 60),
                (b, 60),
                (left, 77),
                (a, 77),
                (right, 94),
                (a, 94),
                (left, 111),
                (b, 111),
            ]);
        }
    }

    /// Each pair of subkeys is one of the keys, rotated.
    fn set(&mut self, rotated: &[(&u128, u32)]) {
        let (pairs, _) = self.subkeys.as_chunks_mut::<2>();
        for (pair, (key, by)) in pairs.iter_mut().zip(rotated) {
            *pair = halves_of(key.rotate_left(*by));
        }
    }

    /// The subkey of this place on the way.
    #[inline(always)]
    fn get<W: ByteWords, const ENCRYPT: bool>(&self, cpu: W::Cpu, at: usize) -> Half<W> {
        let at = if ENCRYPT { at } else { self.count - 1 - at };
        splat(cpu, self.subkeys[at])
    }

    /// XORs a block with the subkeys at its beginning or end.
    #[inline(always)]
    fn whiten<W: ByteWords>(&self, cpu: W::Cpu, at: usize, left: &mut Half<W>, right: &mut Half<W>) {
        *left = xor(*left, splat(cpu, self.subkeys[at]));
        *right = xor(*right, splat(cpu, self.subkeys[at + 1]));
    }
}

/// The halves of a number, of two words each.
fn halves_of(number: u128) -> [[u32; 2]; 2] {
    let bytes = number.to_be_bytes();
    let (words, _) = bytes.as_chunks::<4>();
    let word = |at: usize| u32::from_be_bytes(words[at]);
    [[word(0), word(1)], [word(2), word(3)]]
}

/// Two rounds under the constants from `sigma` on.
fn two_rounds(block: u128, sigma: usize) -> u128 {
    let constant = |at: usize| halves_of(u128::from(SIGMA[at]))[1];
    let [mut left, mut right] = halves_of(block);
    right = xor(right, f(xor(left, constant(sigma)), ()));
    left = xor(left, f(xor(right, constant(sigma + 1)), ()));
    let words = [left, right];
    let words = words.as_flattened().iter();
    words.fold(0, |number, word| number << 32 | u128::from(*word))
}

impl<W: ByteWords> CipherRounds<W> for CamelliaKeys {
    type More = W::Gfni;

    #[inline(always)]
    fn crypt<const ENCRYPT: bool>(&self, cpu: W::Cpu, gfni: W::Gfni, text: [W; 4]) -> [W; 4] {
        let [a, b, c, d] = swapped(text);
        let (mut left, mut right) = ([a, b], [c, d]);
        let last = self.count - 2;
        let (first, last) = if ENCRYPT { (0, last) } else { (last, 0) };
        self.whiten(cpu, first, &mut left, &mut right);
        for step in (2..self.count - 2).step_by(STEP) {
            if step > 2 {
                left = fl(left, self.get::<W, ENCRYPT>(cpu, step - 2));
                right = fl_back(right, self.get::<W, ENCRYPT>(cpu, step - 1));
            }
            for round in (step..step + 6).step_by(2) {
                let key = self.get::<W, ENCRYPT>(cpu, round);
                right = xor(right, f(xor(left, key), gfni));
                let key = self.get::<W, ENCRYPT>(cpu, round + 1);
                left = xor(left, f(xor(right, key), gfni));
            }
        }
        self.whiten(cpu, last, &mut right, &mut left);
        swapped([right[0], right[1], left[0], left[1]])
    }
}

/// F without its key.
#[inline(always)]
fn f<W: ByteWords>([left, right]: Half<W>, gfni: W::Gfni) -> Half<W> {
    // The S-boxes of the bytes are 1 2 3 4, 2 3 4 1, and byte 0 of a word is its last.
    let left = sboxes::<W, 2, 1, 0>(left, gfni);
    let right = sboxes::<W, 3, 2, 1>(right, gfni);
    // P, by words.
    let left = left.xor(right.rotate::<8, 24>());
    let right = right.xor(left.rotate::<16, 16>());
    let left = left.xor(right.rotate::<24, 8>());
    let right = right.xor(left.rotate::<24, 8>());
    [right, left]
}

/// The second, third and fourth S-box on the bytes of these places, and the first on the fourth byte.
#[inline(always)]
fn sboxes<W: ByteWords, const SECOND: i32, const THIRD: i32, const FOURTH: i32>(word: W, gfni: W::Gfni) -> W {
    let into = word.affine::<INTO_PLUS>(gfni, INTO).with_byte::<FOURTH>(word.affine::<INTO_PLUS>(gfni, INTO_LEFT));
    into.affine_inverse::<BACK_PLUS>(gfni, BACK)
        .with_byte::<SECOND>(into.affine_inverse::<BACK_LEFT_PLUS>(gfni, BACK_LEFT))
        .with_byte::<THIRD>(into.affine_inverse::<BACK_RIGHT_PLUS>(gfni, BACK_RIGHT))
}

#[inline(always)]
fn fl<W: ByteWords>([left, right]: Half<W>, key: Half<W>) -> Half<W> {
    let right = right.xor(left.and(key[0]).rotate::<1, 31>());
    [left.xor(right.or(key[1])), right]
}

/// Undoes [`fl`].
#[inline(always)]
fn fl_back<W: ByteWords>([left, right]: Half<W>, key: Half<W>) -> Half<W> {
    let left = left.xor(right.or(key[1]));
    [left, right.xor(left.and(key[0]).rotate::<1, 31>())]
}

#[inline(always)]
fn splat<W: ByteWords>(cpu: W::Cpu, [left, right]: [u32; 2]) -> Half<W> {
    [W::splat(cpu, left), W::splat(cpu, right)]
}

#[inline(always)]
fn xor<W: ByteWords>(a: Half<W>, b: Half<W>) -> Half<W> {
    [a[0].xor(b[0]), a[1].xor(b[1])]
}
