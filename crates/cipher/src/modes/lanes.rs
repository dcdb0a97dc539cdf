//! Vectors of 32-bit words for ciphers that work on as many blocks side by side as a register has
//! words: one source of each cipher for every width.
//!
//! ```text
//!   trait Words ─┬ u32        one block, on every machine; compilers make vectors of the loop around
//!                ├ Words256   8 blocks, AVX2
//!                ├ Words512   16 blocks, AVX-512
//!                └ [W; 2]     two of them, so that one computes while the other waits
//! ```

use crate::cpu::XtsBackend;
use crate::cpu::detection;

/// Blocks in two of the widest vectors.
#[cfg(target_arch = "x86_64")]
const WIDEST: usize = 32;

/// Which width a cipher runs at, with the proof that the CPU has it.
#[derive(Clone, Copy)]
pub(super) enum ProvenWidth {
    Words512(detection::Avx512),
    Words256(detection::Words256),
    Portable,
}

impl ProvenWidth {
    /// The widest that goes with `backend`: what slows the CPU down there does so here.
    pub(super) fn of(backend: XtsBackend) -> ProvenWidth {
        let wide = match backend {
            XtsBackend::Avx512 => detection::Avx512::detect().map(ProvenWidth::Words512),
            XtsBackend::Avx2 | XtsBackend::AesNi => detection::Words256::detect().map(ProvenWidth::Words256),
            XtsBackend::Armv8 | XtsBackend::Portable => None,
        };
        wide.unwrap_or(ProvenWidth::Portable)
    }
}

/// A word of each of some blocks.
pub(super) trait BlockWords: Copy {
    /// Proves that this CPU has what the operations take.
    type Cpu: Copy;
    /// How many blocks.
    const BLOCKS: usize;
    /// The four words of `BLOCKS` blocks, in an order of the blocks that `store` undoes.
    fn load(cpu: Self::Cpu, blocks: &[[u8; 16]]) -> [Self; 4];
    fn store(words: [Self; 4], blocks: &mut [[u8; 16]]);
    fn splat(cpu: Self::Cpu, word: u32) -> Self;
    /// The same cipher, of which the compiler knows nothing where there are vectors: it would spread
    /// every round key before the loop over blocks, and keep all of them in memory.
    #[inline(always)]
    fn opaque<C>(cipher: &C) -> &C {
        cipher
    }
    fn xor(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    /// `other` where `self` has zeros.
    fn not_and(self, other: Self) -> Self;
    fn not(self) -> Self;
    /// Each word rotated to the left by `LEFT`; `RIGHT` is 32 - `LEFT`.
    fn rotate<const LEFT: i32, const RIGHT: i32>(self) -> Self;
    fn shift_left<const BITS: i32>(self) -> Self;
}

impl BlockWords for u32 {
    type Cpu = ();
    const BLOCKS: usize = 1;

    #[inline(always)]
    fn load((): (), blocks: &[[u8; 16]]) -> [u32; 4] {
        let (words, _) = blocks[0].as_chunks::<4>();
        let word = |at: usize| u32::from_le_bytes(words[at]);
        [word(0), word(1), word(2), word(3)]
    }

    #[inline(always)]
    fn store(words: [u32; 4], blocks: &mut [[u8; 16]]) {
        let (out, _) = blocks[0].as_chunks_mut::<4>();
        for (out, word) in out.iter_mut().zip(words) {
            *out = word.to_le_bytes();
        }
    }

    #[inline(always)]
    fn splat((): (), word: u32) -> u32 {
        word
    }

    #[inline(always)]
    fn xor(self, other: u32) -> u32 {
        self ^ other
    }

    #[inline(always)]
    fn and(self, other: u32) -> u32 {
        self & other
    }

    #[inline(always)]
    fn or(self, other: u32) -> u32 {
        self | other
    }

    #[inline(always)]
    fn not_and(self, other: u32) -> u32 {
        !self & other
    }

    #[inline(always)]
    fn not(self) -> u32 {
        !self
    }

    #[inline(always)]
    fn rotate<const LEFT: i32, const RIGHT: i32>(self) -> u32 {
        self.rotate_left(LEFT.cast_unsigned())
    }

    #[inline(always)]
    fn shift_left<const BITS: i32>(self) -> u32 {
        self << BITS
    }
}

impl<W: BlockWords> BlockWords for [W; 2] {
    type Cpu = W::Cpu;
    const BLOCKS: usize = 2 * W::BLOCKS;

    #[inline(always)]
    fn load(cpu: W::Cpu, blocks: &[[u8; 16]]) -> [Self; 4] {
        let (a, b) = blocks.split_at(W::BLOCKS);
        let ([a0, a1, a2, a3], [b0, b1, b2, b3]) = (W::load(cpu, a), W::load(cpu, b));
        [[a0, b0], [a1, b1], [a2, b2], [a3, b3]]
    }

    #[inline(always)]
    fn store(words: [Self; 4], blocks: &mut [[u8; 16]]) {
        let (a, b) = blocks.split_at_mut(W::BLOCKS);
        let [[a0, b0], [a1, b1], [a2, b2], [a3, b3]] = words;
        W::store([a0, a1, a2, a3], a);
        W::store([b0, b1, b2, b3], b);
    }

    #[inline(always)]
    fn splat(cpu: W::Cpu, word: u32) -> Self {
        [W::splat(cpu, word); 2]
    }

    #[inline(always)]
    fn opaque<C>(cipher: &C) -> &C {
        W::opaque(cipher)
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        [self[0].xor(other[0]), self[1].xor(other[1])]
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        [self[0].and(other[0]), self[1].and(other[1])]
    }

    #[inline(always)]
    fn or(self, other: Self) -> Self {
        [self[0].or(other[0]), self[1].or(other[1])]
    }

    #[inline(always)]
    fn not_and(self, other: Self) -> Self {
        [self[0].not_and(other[0]), self[1].not_and(other[1])]
    }

    #[inline(always)]
    fn not(self) -> Self {
        [self[0].not(), self[1].not()]
    }

    #[inline(always)]
    fn rotate<const LEFT: i32, const RIGHT: i32>(self) -> Self {
        let [a, b] = self;
        [a.rotate::<LEFT, RIGHT>(), b.rotate::<LEFT, RIGHT>()]
    }

    #[inline(always)]
    fn shift_left<const BITS: i32>(self) -> Self {
        let [a, b] = self;
        [a.shift_left::<BITS>(), b.shift_left::<BITS>()]
    }
}

/// A cipher's rounds over the words of some blocks.
pub(super) trait CipherRounds<W: BlockWords> {
    /// Input of the rounds besides [`BlockWords::Cpu`].
    type More: Copy;
    fn crypt<const ENCRYPT: bool>(&self, cpu: W::Cpu, more: Self::More, text: [W; 4]) -> [W; 4];
}

/// Whole groups of as many blocks as `W` has. Gives back the rest.
#[inline(always)]
pub(super) fn groups<'a, W: BlockWords, C: CipherRounds<W>, const ENCRYPT: bool>(
    cpu: W::Cpu,
    more: C::More,
    cipher: &C,
    blocks: &'a mut [[u8; 16]],
) -> &'a mut [[u8; 16]] {
    let mut groups = blocks.chunks_exact_mut(W::BLOCKS);
    for group in &mut groups {
        let text = cipher.crypt::<ENCRYPT>(cpu, more, W::load(cpu, group));
        W::store(text, group);
    }
    groups.into_remainder()
}

/// Fewer blocks than `W` has: the others are for nothing.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn filled_up<W: BlockWords, C: CipherRounds<W>, const ENCRYPT: bool>(
    cpu: W::Cpu,
    more: C::More,
    cipher: &C,
    blocks: &mut [[u8; 16]],
) {
    if !blocks.is_empty() {
        let mut group = [[0; 16]; WIDEST];
        group[..blocks.len()].copy_from_slice(blocks);
        groups::<W, C, ENCRYPT>(cpu, more, cipher, &mut group[..W::BLOCKS]);
        blocks.copy_from_slice(&group[..blocks.len()]);
    }
}

#[cfg(target_arch = "x86_64")]
#[path = "lanes_x86.rs"]
mod x86;

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Words256, Words512, bytes_apart, bytes_together, looked_up, sliced, sliced_name};
