//! Twofish with key-dependent tables (Schneier and others, "Twofish: A 128-Bit Block Cipher", 1998).
//!
//! ```text
//!   key ──► four S-boxes of 256 bytes
//!           g(X) as four tables of 256 words: the S-boxes and the MDS matrix in one
//!           40 subkeys
//!   32 blocks side by side through the S-boxes    AVX-512 with VBMI and GFNI
//!   two blocks side by side through the tables    elsewhere, and a few blocks by themselves
//! ```
//!
//! The lookups in tables are indexed by secret data, so their time may depend on key and text through
//! the processor's caches, as in every implementation with tables. So may that of the key's expansion.

use aes::Block;
use cryptline_sys::SecretBox;
use zeroize::{Zeroize, Zeroizing};

use super::blocks::BlockCipher;
use super::lanes::BlockWords;
use super::parallel::chain;
use crate::cpu::XtsBackend;
use crate::cpu::detection::ByteLookups;

/// The polynomials of the MDS matrix (x^8 + x^6 + x^5 + x^3 + 1) and of the Reed-Solomon code
/// (x^8 + x^6 + x^3 + x^2 + 1).
const MDS: u16 = 0x169;
const RS: u16 = 0x14d;

/// Section 4.3.3: the code that makes the words of the S-boxes' key.
const CODE: [[u8; 8]; 4] = [
    [0x01, 0xa4, 0x55, 0x87, 0x5a, 0x58, 0xdb, 0x9e],
    [0xa4, 0x56, 0x82, 0xf3, 0x1e, 0xc6, 0x68, 0xe5],
    [0x02, 0xa1, 0xfc, 0xc1, 0x47, 0xae, 0x3d, 0x19],
    [0xa4, 0x55, 0x87, 0x5a, 0x58, 0xdb, 0x9e, 0x03],
];

/// Which of the permutations q0 and q1 each byte goes through, the first for 256-bit keys first.
const ORDER: [[usize; 5]; 4] = [[1, 1, 0, 0, 1], [0, 1, 1, 0, 0], [0, 0, 0, 1, 1], [1, 0, 1, 1, 0]];

/// Section 4.3.5: what makes q0 and q1.
const NIBBLES: [[[u8; 16]; 4]; 2] = [
    [
        [8, 1, 7, 13, 6, 15, 3, 2, 0, 11, 5, 9, 14, 12, 10, 4],
        [14, 12, 11, 8, 1, 2, 3, 5, 15, 4, 10, 6, 7, 0, 9, 13],
        [11, 10, 5, 14, 6, 13, 9, 0, 12, 8, 15, 3, 2, 4, 7, 1],
        [13, 7, 15, 4, 1, 2, 6, 14, 9, 11, 3, 0, 8, 5, 12, 10],
    ],
    [
        [2, 8, 11, 13, 15, 7, 6, 14, 3, 1, 9, 4, 0, 10, 12, 5],
        [1, 14, 2, 11, 4, 12, 3, 7, 6, 13, 10, 5, 15, 9, 0, 8],
        [4, 12, 7, 5, 1, 6, 9, 10, 0, 14, 13, 8, 2, 11, 3, 15],
        [11, 9, 5, 1, 12, 3, 13, 14, 6, 4, 7, 15, 2, 0, 8, 10],
    ],
];
const Q: [[u8; 256]; 2] = [permutation(&NIBBLES[0]), permutation(&NIBBLES[1])];

/// Rounds that one pass of the loop below does, and keys of each.
const CYCLES: usize = 8;
const CYCLE_KEYS: usize = 4;

/// Blocks that are through the tables, two at a time, before 32 would be side by side.
#[cfg(target_arch = "x86_64")]
const FEW: usize = 6;

pub(super) struct Twofish {
    schedule: SecretBox<TwofishSchedule>,
    lookups: Option<ByteLookups>,
}

/// The S-boxes begin where cache lines do, so that no vector of theirs crosses one.
#[repr(C, align(64))]
struct TwofishSchedule {
    /// The S-boxes, by the bytes of the argument of the function g.
    boxes: [[u8; 256]; 4],
    /// The function g, by the same.
    tables: [[u32; 256]; 4],
    before: [u32; 4],
    after: [u32; 4],
    rounds: [[u32; CYCLE_KEYS]; CYCLES],
}

wiped_when_dropped!(TwofishSchedule { boxes, tables, before, after, rounds });

impl Twofish {
    /// `key` has 16, 24 or 32 bytes.
    pub(super) fn new(key: &[u8], backend: XtsBackend) -> Option<Twofish> {
        if ![16, 24, 32].contains(&key.len()) {
            return None;
        }
        let mut schedule = SecretBox::new(TwofishSchedule {
            boxes: [[0; 256]; 4],
            tables: [[0; 256]; 4],
            before: [0; 4],
            after: [0; 4],
            rounds: [[0; CYCLE_KEYS]; CYCLES],
        });
        schedule.expand(key);
        Some(Twofish { schedule, lookups: lookups(backend) })
    }

    fn crypt<const ENCRYPT: bool>(&self, blocks: &mut [Block]) {
        let blocks = Block::cast_slice_to_core_mut(blocks);
        match self.lookups {
            #[cfg(target_arch = "x86_64")]
            Some(cpu) if blocks.len() > FEW => return x86::crypt::<ENCRYPT>(cpu, &self.schedule, blocks),
            _ => {}
        }
        let (pairs, rest) = blocks.as_chunks_mut::<2>();
        for pair in pairs {
            self.schedule.crypt::<2, ENCRYPT>(pair);
        }
        if let [one] = rest {
            self.schedule.crypt::<1, ENCRYPT>(std::array::from_mut(one));
        }
    }
}

impl BlockCipher for Twofish {
    fn encrypt(&self, blocks: &mut [Block]) {
        self.crypt::<true>(blocks);
    }

    fn decrypt(&self, blocks: &mut [Block]) {
        self.crypt::<false>(blocks);
    }

    fn encrypt_chained(&self, lanes: &mut [Block], sectors: &mut [Block]) {
        chain(lanes, sectors, |row| self.encrypt(row));
    }
}

/// Proves that the CPU has what the S-boxes take, if `backend` goes with vectors so wide.
fn lookups(backend: XtsBackend) -> Option<ByteLookups> {
    if backend == XtsBackend::Avx512 { ByteLookups::detect() } else { None }
}

/// Name of the implementation, for people.
pub(super) fn name(backend: XtsBackend) -> &'static str {
    match lookups(backend) {
        Some(_) => "twofish (gfni, avx512; few blocks: tables)",
        None => "twofish (tables)",
    }
}

impl TwofishSchedule {
    fn expand(&mut self, key: &[u8]) {
        let (parts, _) = key.as_chunks::<8>();
        let mut code = Zeroizing::new([[0; 4]; 4]);
        for (word, part) in code.iter_mut().zip(parts) {
            for (byte, row) in word.iter_mut().zip(CODE) {
                *byte = row.iter().zip(part).fold(0, |sum, (&factor, &of)| sum ^ product(factor, of, RS));
            }
        }
        let code = &code[..parts.len()];
        for (column, table) in self.tables.iter_mut().enumerate() {
            for ((entry, own), byte) in table.iter_mut().zip(&mut self.boxes[column]).zip(0..=255) {
                *own = sbox(column, byte, code.iter().copied());
                *entry = spread(column, *own);
            }
        }
        // Even and odd words of the key, the last ones first.
        let halves = |odd: usize| {
            let words = parts.iter().rev();
            words.map(move |part| part[4 * odd..].first_chunk().copied().unwrap_or_default())
        };
        let h = |column, number, odd| spread(column, sbox(column, number, halves(odd)));
        let word = |number: u8, odd| (0..4).fold(0, |sum, column| sum ^ h(column, number, odd));
        let (before, after, rounds) = (&mut self.before, &mut self.after, &mut self.rounds);
        let keys = before.iter_mut().chain(after).chain(rounds.as_flattened_mut());
        let mut last = 0_u32;
        for (key, number) in keys.zip(0..) {
            *key = if number % 2 == 0 {
                let even = word(number, 0);
                last = word(number + 1, 1).rotate_left(8);
                even.wrapping_add(last)
            } else {
                let even = word(number - 1, 0);
                last.wrapping_mul(2).wrapping_add(even).rotate_left(9)
            };
        }
        last.zeroize();
    }

    #[inline(always)]
    fn g(&self, [a, b, c, d]: [u8; 4]) -> u32 {
        let [first, second, third, fourth] = &self.tables;
        first[usize::from(a)] ^ second[usize::from(b)] ^ third[usize::from(c)] ^ fourth[usize::from(d)]
    }

    /// The function F.
    #[inline(always)]
    fn f(&self, a: u32, b: u32, keys: [u32; 2]) -> [u32; 2] {
        let [p, q, r, s] = b.to_le_bytes();
        let (a, b) = (self.g(a.to_le_bytes()), self.g([s, p, q, r]));
        let sum = a.wrapping_add(b);
        [sum.wrapping_add(keys[0]), sum.wrapping_add(b).wrapping_add(keys[1])]
    }

    #[inline(always)]
    fn crypt<const N: usize, const ENCRYPT: bool>(&self, blocks: &mut [[u8; 16]; N]) {
        let text = blocks.map(|block| u32::load((), &[block]));
        let text = if ENCRYPT { self.encrypted(text) } else { self.decrypted(text) };
        for (block, words) in blocks.iter_mut().zip(text) {
            u32::store(words, std::slice::from_mut(block));
        }
    }

    #[inline(always)]
    fn encrypted<const N: usize>(&self, text: [[u32; 4]; N]) -> [[u32; 4]; N] {
        let mut text = text.map(|block| xor(block, self.before));
        for &[k0, k1, k2, k3] in &self.rounds {
            text = text.map(|[a, b, mut c, mut d]| {
                let [x, y] = self.f(a, b, [k0, k1]);
                c = (c ^ x).rotate_right(1);
                d = d.rotate_left(1) ^ y;
                let [x, y] = self.f(c, d, [k2, k3]);
                [(a ^ x).rotate_right(1), b.rotate_left(1) ^ y, c, d]
            });
        }
        text.map(|[a, b, c, d]| xor([c, d, a, b], self.after))
    }

    #[inline(always)]
    fn decrypted<const N: usize>(&self, text: [[u32; 4]; N]) -> [[u32; 4]; N] {
        let mut text = text.map(|block| {
            let [c, d, a, b] = xor(block, self.after);
            [a, b, c, d]
        });
        for &[k0, k1, k2, k3] in self.rounds.iter().rev() {
            text = text.map(|[mut a, mut b, c, d]| {
                let [x, y] = self.f(c, d, [k2, k3]);
                a = a.rotate_left(1) ^ x;
                b = (b ^ y).rotate_right(1);
                let [x, y] = self.f(a, b, [k0, k1]);
                [a, b, c.rotate_left(1) ^ x, (d ^ y).rotate_right(1)]
            });
        }
        text.map(|block| xor(block, self.before))
    }
}

/// The S-box of one byte in the function h. `keys` are its words in the order in which they are used.
fn sbox(column: usize, byte: u8, keys: impl ExactSizeIterator<Item = [u8; 4]>) -> u8 {
    let skipped = 4 - keys.len();
    let [first, rest @ ..] = &ORDER[column][skipped..] else {
        unreachable!("at most four words of a key");
    };
    let mut byte = Q[*first][usize::from(byte)];
    for (&order, key) in rest.iter().zip(keys) {
        byte = Q[order][usize::from(byte ^ key[column])];
    }
    byte
}

/// The MDS matrix times what that S-box says.
fn spread(column: usize, byte: u8) -> u32 {
    let (one, five, e) = (byte, product(0x5b, byte, MDS), product(0xef, byte, MDS));
    u32::from_le_bytes(match column {
        0 => [one, five, e, e],
        1 => [e, e, five, one],
        2 => [five, e, one, e],
        _ => [five, one, e, five],
    })
}

/// The product of polynomials, of which `factor` is no secret.
const fn product(factor: u8, of: u8, modulus: u16) -> u8 {
    let (mut sum, mut power) = (0, of as u16);
    let mut bit = 0;
    while bit < 8 {
        if factor >> bit & 1 == 1 {
            sum ^= power;
        }
        power = power << 1 ^ (power >> 7).wrapping_neg() & modulus;
        bit += 1;
    }
    sum.to_le_bytes()[0]
}

const fn permutation(nibbles: &[[u8; 16]; 4]) -> [u8; 256] {
    let mut all = [0; 256];
    let mut at: u8 = 0;
    loop {
        let (mut a, mut b) = mixed(at >> 4, at & 15);
        (a, b) = mixed(nibbles[0][a as usize], nibbles[1][b as usize]);
        all[at as usize] = nibbles[3][b as usize] << 4 | nibbles[2][a as usize];
        if at == 255 {
            return all;
        }
        at += 1;
    }
}

const fn mixed(a: u8, b: u8) -> (u8, u8) {
    (a ^ b, (a ^ (b >> 1 | b << 3) ^ a << 3) & 15)
}

#[inline(always)]
fn xor(block: [u32; 4], keys: [u32; 4]) -> [u32; 4] {
    [0, 1, 2, 3].map(|at| block[at] ^ keys[at])
}

#[cfg(target_arch = "x86_64")]
#[path = "twofish_x86.rs"]
mod x86;

#[cfg(test)]
#[path = "twofish_tests.rs"]
mod tests;
