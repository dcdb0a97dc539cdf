//! Ciphers whose S-boxes are inversions in AES's field between affine maps, on many blocks side by side.
//!
//! ```text
//!   byte ─► matrix · byte + constant ─► inverse ─► matrix · byte + constant      two instructions
//!           GF2P8AFFINEQB               GF2P8AFFINEINVQB                         of GFNI
//! ```
//!
//! Without GFNI the same sources run word by word, for key schedules and tests: in constant time, but
//! slowly.

use ::aes::Block;
use cryptline_sys::SecretBox;

use super::blocks::BlockCipher;
use super::lanes::{BlockWords, CipherRounds};
use super::parallel::chain;

/// [`BlockWords`] whose bytes can be taken for elements of AES's field.
///
/// A matrix has its rows from the most significant byte on: bit n of a product is the parity of the
/// byte and byte 7 - n of the matrix.
pub(super) trait ByteWords: BlockWords {
    /// Proves that this CPU has GFNI.
    type Gfni: Copy;
    /// Each word with its bytes in the other order.
    fn swapped(self) -> Self;
    /// Each byte times `matrix`, plus `PLUS`.
    fn affine<const PLUS: i32>(self, gfni: Self::Gfni, matrix: u64) -> Self;
    /// Each byte's inverse times `matrix`, plus `PLUS`.
    fn affine_inverse<const PLUS: i32>(self, gfni: Self::Gfni, matrix: u64) -> Self;
    /// With byte `PLACE` of each word from `other`; 0 is the least significant one.
    fn with_byte<const PLACE: i32>(self, other: Self) -> Self;
}

impl ByteWords for u32 {
    type Gfni = ();

    #[inline(always)]
    fn swapped(self) -> u32 {
        self.swap_bytes()
    }

    fn affine<const PLUS: i32>(self, (): (), matrix: u64) -> u32 {
        u32::from_le_bytes(self.to_le_bytes().map(|byte| affine(byte, matrix, PLUS)))
    }

    fn affine_inverse<const PLUS: i32>(self, (): (), matrix: u64) -> u32 {
        let bytes = self.to_le_bytes();
        u32::from_le_bytes(bytes.map(|byte| affine(inverse(byte), matrix, PLUS)))
    }

    #[inline(always)]
    fn with_byte<const PLACE: i32>(self, other: u32) -> u32 {
        let mask = 0xff << (8 * PLACE);
        self & !mask | other & mask
    }
}

fn affine(byte: u8, matrix: u64, plus: i32) -> u8 {
    let rows = matrix.to_be_bytes().into_iter().enumerate();
    let product = rows.fold(0, |product, (bit, row)| product | u8::from((row & byte).count_ones() & 1 == 1) << bit);
    product ^ plus.to_le_bytes()[0]
}

/// The 254th power.
fn inverse(byte: u8) -> u8 {
    let (mut power, mut product) = (byte, 1);
    for _ in 0..7 {
        power = times(power, power);
        product = times(product, power);
    }
    product
}

/// Modulo x^8 + x^4 + x^3 + x + 1.
fn times(a: u8, b: u8) -> u8 {
    (0..8).rev().fold(0_u8, |product, bit| {
        let doubled = product << 1 ^ (product >> 7).wrapping_neg() & 0x1b;
        doubled ^ (b >> bit & 1).wrapping_neg() & a
    })
}

impl<W: ByteWords> ByteWords for [W; 2] {
    type Gfni = W::Gfni;

    #[inline(always)]
    fn swapped(self) -> Self {
        [self[0].swapped(), self[1].swapped()]
    }

    #[inline(always)]
    fn affine<const PLUS: i32>(self, gfni: W::Gfni, matrix: u64) -> Self {
        let [a, b] = self;
        [a.affine::<PLUS>(gfni, matrix), b.affine::<PLUS>(gfni, matrix)]
    }

    #[inline(always)]
    fn affine_inverse<const PLUS: i32>(self, gfni: W::Gfni, matrix: u64) -> Self {
        let [a, b] = self;
        [a.affine_inverse::<PLUS>(gfni, matrix), b.affine_inverse::<PLUS>(gfni, matrix)]
    }

    #[inline(always)]
    fn with_byte<const PLACE: i32>(self, other: Self) -> Self {
        let ([a, b], [c, d]) = (self, other);
        [a.with_byte::<PLACE>(c), b.with_byte::<PLACE>(d)]
    }
}

/// Each word with its bytes in the other order, for ciphers whose words are big-endian.
#[inline(always)]
pub(super) fn swapped<W: ByteWords>([a, b, c, d]: [W; 4]) -> [W; 4] {
    [a.swapped(), b.swapped(), c.swapped(), d.swapped()]
}

/// A cipher with its keys, on vectors of a width.
pub(super) struct Sliced<W: Compiled, K> {
    keys: SecretBox<K>,
    cpu: W::Cpu,
    gfni: W::Gfni,
}

/// [`ByteWords`] with code that is compiled for them.
pub(super) trait Compiled: ByteWords<Cpu: Send + Sync, Gfni: Send + Sync> {
    fn crypt<C, const ENCRYPT: bool>(cpu: Self::Cpu, gfni: Self::Gfni, cipher: &C, blocks: &mut [[u8; 16]])
    where
        C: CipherRounds<Self, More = Self::Gfni> + CipherRounds<[Self; 2], More = Self::Gfni>;
}

impl<W: Compiled, K> Sliced<W, K> {
    pub(super) fn new(keys: SecretBox<K>, cpu: W::Cpu, gfni: W::Gfni) -> Sliced<W, K> {
        Sliced { keys, cpu, gfni }
    }
}

impl<W, K> BlockCipher for Sliced<W, K>
where
    W: Compiled,
    K: CipherRounds<W, More = W::Gfni> + CipherRounds<[W; 2], More = W::Gfni> + Send + Sync,
{
    fn encrypt(&self, blocks: &mut [Block]) {
        let blocks = Block::cast_slice_to_core_mut(blocks);
        W::crypt::<K, true>(self.cpu, self.gfni, &self.keys, blocks);
    }

    fn decrypt(&self, blocks: &mut [Block]) {
        let blocks = Block::cast_slice_to_core_mut(blocks);
        W::crypt::<K, false>(self.cpu, self.gfni, &self.keys, blocks);
    }

    fn encrypt_chained(&self, lanes: &mut [Block], sectors: &mut [Block]) {
        chain(lanes, sectors, |row| self.encrypt(row));
    }
}

#[cfg(test)]
#[path = "bytes_tests.rs"]
mod tests;
