//! Twofish on 32 blocks side by side, twice, by the VBMI and GFNI of x86-64.
//!
//! ```text
//!   two words of each block ─► bytes apart ─► S-boxes ──► MDS matrix ────► words
//!                                             VPERMI2B    GF2P8AFFINEQB
//! ```
//!
//! An S-box is read as a whole for each lookup: time depends on the number of blocks only. 32 blocks
//! alone would wait for each other's bytes, so another 32 go beside them.

#![allow(unsafe_code)]

use super::{MDS, TwofishSchedule, product};
use crate::cpu::detection::{Avx512, ByteLookups};
use crate::modes::bytes::ByteWords;
use crate::modes::lanes::{
    BlockWords, CipherRounds, Words512, bytes_apart, bytes_together, filled_up, groups, looked_up,
};

/// Products with the elements of the MDS matrix besides 1.
const TIMES_5B: u64 = matrix(0x5b);
const TIMES_EF: u64 = matrix(0xef);

pub(super) fn crypt<const ENCRYPT: bool>(cpu: ByteLookups, keys: &TwofishSchedule, blocks: &mut [[u8; 16]]) {
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
    fn compiled<const ENCRYPT: bool>(cpu: ByteLookups, keys: &TwofishSchedule, blocks: &mut [[u8; 16]]) {
        let rest = groups::<[[Words512; 2]; 2], TwofishSchedule, ENCRYPT>(cpu.words(), cpu, keys, blocks);
        let rest = groups::<[Words512; 2], TwofishSchedule, ENCRYPT>(cpu.words(), cpu, keys, rest);
        filled_up::<[Words512; 2], TwofishSchedule, ENCRYPT>(cpu.words(), cpu, keys, rest);
    }
    // SAFETY: the proof says that the CPU has all that the function is compiled for.
    unsafe { compiled::<ENCRYPT>(cpu, keys, blocks) }
}

/// Words of twice the blocks that a vector has, or of more.
trait WordPairs: BlockWords<Cpu = Avx512> {
    /// The function g of `a`, and of `b` rotated to the left by a byte.
    fn g(cpu: ByteLookups, keys: &TwofishSchedule, a: Self, b: Self) -> [Self; 2];
    /// The sums modulo 2^32.
    fn add(self, other: Self) -> Self;
}

impl WordPairs for [Words512; 2] {
    #[inline(always)]
    fn g(cpu: ByteLookups, keys: &TwofishSchedule, a: Self, b: Self) -> [Self; 2] {
        let [a, b, c, d] = bytes_apart([a[0], a[1], b[0], b[1]]);
        let (a, b) = (looked_up(cpu, &keys.boxes[0], a), looked_up(cpu, &keys.boxes[1], b));
        let (c, d) = (looked_up(cpu, &keys.boxes[2], c), looked_up(cpu, &keys.boxes[3], d));
        let [a, b, c, d] = bytes_together([
            a.xor(times_ef(cpu, b)).xor(times_5b(cpu, c.xor(d))),
            times_5b(cpu, a).xor(times_ef(cpu, b.xor(c))).xor(d),
            times_ef(cpu, a.xor(d)).xor(times_5b(cpu, b)).xor(c),
            times_ef(cpu, a.xor(c)).xor(b).xor(times_5b(cpu, d)),
        ]);
        [[a, b], [c, d]]
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        [self[0].add(other[0]), self[1].add(other[1])]
    }
}

impl<W: WordPairs> WordPairs for [W; 2] {
    #[inline(always)]
    fn g(cpu: ByteLookups, keys: &TwofishSchedule, [a0, a1]: Self, [b0, b1]: Self) -> [Self; 2] {
        let ([a0, b0], [a1, b1]) = (W::g(cpu, keys, a0, b0), W::g(cpu, keys, a1, b1));
        [[a0, a1], [b0, b1]]
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        [self[0].add(other[0]), self[1].add(other[1])]
    }
}

impl<W: WordPairs> CipherRounds<W> for TwofishSchedule {
    type More = ByteLookups;

    #[inline(always)]
    fn crypt<const ENCRYPT: bool>(&self, words: Avx512, cpu: ByteLookups, text: [W; 4]) -> [W; 4] {
        if ENCRYPT {
            let mut text = with_key(words, self.before, text);
            for &[k0, k1, k2, k3] in &self.rounds {
                let [a, b, c, d] = text;
                let [x, y] = f(cpu, self, a, b, [k0, k1]);
                let (c, d) = (c.xor(x).rotate::<31, 1>(), d.rotate::<1, 31>().xor(y));
                let [x, y] = f(cpu, self, c, d, [k2, k3]);
                text = [a.xor(x).rotate::<31, 1>(), b.rotate::<1, 31>().xor(y), c, d];
            }
            let [a, b, c, d] = text;
            with_key(words, self.after, [c, d, a, b])
        } else {
            let [c, d, a, b] = with_key(words, self.after, text);
            let mut text = [a, b, c, d];
            for &[k0, k1, k2, k3] in self.rounds.iter().rev() {
                let [a, b, c, d] = text;
                let [x, y] = f(cpu, self, c, d, [k2, k3]);
                let (a, b) = (a.rotate::<1, 31>().xor(x), b.xor(y).rotate::<31, 1>());
                let [x, y] = f(cpu, self, a, b, [k0, k1]);
                text = [a, b, c.rotate::<1, 31>().xor(x), d.xor(y).rotate::<31, 1>()];
            }
            with_key(words, self.before, text)
        }
    }
}

/// The function F.
#[inline(always)]
fn f<W: WordPairs>(cpu: ByteLookups, keys: &TwofishSchedule, a: W, b: W, [k0, k1]: [u32; 2]) -> [W; 2] {
    // The S-boxes would fill half of the registers.
    let [a, b] = W::g(cpu, W::opaque(keys), a, b);
    let sum = a.add(b);
    [sum.add(W::splat(cpu.words(), k0)), sum.add(b).add(W::splat(cpu.words(), k1))]
}

#[inline(always)]
fn times_5b(cpu: ByteLookups, bytes: Words512) -> Words512 {
    bytes.affine::<0>(cpu.gfni(), TIMES_5B)
}

#[inline(always)]
fn times_ef(cpu: ByteLookups, bytes: Words512) -> Words512 {
    bytes.affine::<0>(cpu.gfni(), TIMES_EF)
}

#[inline(always)]
fn with_key<W: WordPairs>(cpu: Avx512, keys: [u32; 4], [a, b, c, d]: [W; 4]) -> [W; 4] {
    [
        a.xor(W::splat(cpu, keys[0])),
        b.xor(W::splat(cpu, keys[1])),
        c.xor(W::splat(cpu, keys[2])),
        d.xor(W::splat(cpu, keys[3])),
    ]
}

/// The product with `factor` as a matrix over bits, of the kind that [`ByteWords`] has.
const fn matrix(factor: u8) -> u64 {
    let mut matrix = 0;
    let mut bit = 0;
    while bit < 8 {
        let column = product(factor, 1 << bit, MDS) as u64;
        let mut row = 0;
        while row < 8 {
            matrix |= (column >> row & 1) << (8 * (7 - row) + bit);
            row += 1;
        }
        bit += 1;
    }
    matrix
}
