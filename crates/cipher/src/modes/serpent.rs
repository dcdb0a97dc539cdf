//! Serpent (Anderson, Biham, Knudsen, "Serpent: A Proposal for the Advanced Encryption Standard"),
//! bitsliced as it was designed to be: its S-boxes are circuits over words, so each word of a vector
//! may be another block's.
//!
//! ```text
//!   32 blocks ─► 4 x 2 vectors of 16 words ─► 32 rounds ─► 32 blocks      AVX-512
//!   16 blocks ─► 4 x 2 vectors of 8                                       AVX2
//! ```
//!
//! Time depends on the number of blocks only.

#![allow(unsafe_code)]

use aes::Block;
use cryptline_sys::SecretBox;
use zeroize::Zeroizing;

use super::blocks::BlockCipher;
use super::lanes::{BlockWords, CipherRounds, ProvenWidth, groups};
#[cfg(target_arch = "x86_64")]
use super::lanes::{Words256, Words512, filled_up};
use super::parallel::chain;
use super::serpent_boxes as boxes;

const ROUNDS: usize = 32;
/// The fraction of the golden ratio, in the key schedule.
const PHI: u32 = 0x9e37_79b9;

type RoundKeys = [[u32; 4]; ROUNDS + 1];

pub(super) struct Serpent {
    keys: SecretBox<SerpentKeys>,
    width: ProvenWidth,
}

struct SerpentKeys(RoundKeys);

wiped_when_dropped!(SerpentKeys { 0 });

impl Serpent {
    /// `key` has 16 to 32 bytes.
    pub(super) fn new(key: &[u8], width: ProvenWidth) -> Option<Serpent> {
        if !(16..=32).contains(&key.len()) {
            return None;
        }
        let mut keys = SecretBox::new(SerpentKeys([[0; 4]; ROUNDS + 1]));
        expand(key, &mut keys.0);
        Some(Serpent { keys, width })
    }

    fn crypt<const ENCRYPT: bool>(&self, blocks: &mut [Block]) {
        let (keys, blocks) = (&*self.keys, Block::cast_slice_to_core_mut(blocks));
        match self.width {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the proof says that the CPU has AVX-512's foundation and AVX2, all that the
            // function is compiled for.
            ProvenWidth::Words512(cpu) => unsafe { crypt_512::<ENCRYPT>(cpu, keys, blocks) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the proof says that the CPU has AVX2, all that the function is compiled for.
            ProvenWidth::Words256(cpu) => unsafe { crypt_256::<ENCRYPT>(cpu, keys, blocks) },
            _ => {
                groups::<u32, SerpentKeys, ENCRYPT>((), (), keys, blocks);
            }
        }
    }
}

// Never a part of `encrypt_chained`: with two places to go, the compiler would not vectorize the
// portable loop over blocks.
impl BlockCipher for Serpent {
    #[inline(never)]
    fn encrypt(&self, blocks: &mut [Block]) {
        self.crypt::<true>(blocks);
    }

    #[inline(never)]
    fn decrypt(&self, blocks: &mut [Block]) {
        self.crypt::<false>(blocks);
    }

    fn encrypt_chained(&self, lanes: &mut [Block], sectors: &mut [Block]) {
        chain(lanes, sectors, |row| self.encrypt(row));
    }
}

/// Name of the implementation, for people.
pub(super) fn name(width: ProvenWidth) -> &'static str {
    match width {
        ProvenWidth::Words512(_) => "serpent (avx512)",
        ProvenWidth::Words256(_) => "serpent (avx2)",
        ProvenWidth::Portable => "serpent (portable)",
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx2")]
fn crypt_512<const ENCRYPT: bool>(cpu: crate::cpu::detection::Avx512, keys: &SerpentKeys, blocks: &mut [[u8; 16]]) {
    let rest = groups::<[Words512; 2], SerpentKeys, ENCRYPT>(cpu, (), keys, blocks);
    let rest = groups::<Words512, SerpentKeys, ENCRYPT>(cpu, (), keys, rest);
    filled_up::<Words512, SerpentKeys, ENCRYPT>(cpu, (), keys, rest);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn crypt_256<const ENCRYPT: bool>(cpu: crate::cpu::detection::Words256, keys: &SerpentKeys, blocks: &mut [[u8; 16]]) {
    let rest = groups::<[Words256; 2], SerpentKeys, ENCRYPT>(cpu, (), keys, blocks);
    let rest = groups::<Words256, SerpentKeys, ENCRYPT>(cpu, (), keys, rest);
    filled_up::<Words256, SerpentKeys, ENCRYPT>(cpu, (), keys, rest);
}

impl<W: BlockWords> CipherRounds<W> for SerpentKeys {
    type More = ();

    #[inline(always)]
    fn crypt<const ENCRYPT: bool>(&self, cpu: W::Cpu, (): (), text: [W; 4]) -> [W; 4] {
        let keys = &W::opaque(self).0;
        if ENCRYPT { encrypted(cpu, keys, text) } else { decrypted(cpu, keys, text) }
    }
}

/// `$text` through rounds, whose loop is written out: the compiler makes vectors of the portable loop
/// over blocks only if there is no other in it. And a macro, since an S-box that is given to a
/// function may be called from there with all vectors in memory.
macro_rules! rounds {
    ($text:ident, $cpu:ident, $keys:ident, $($number:literal $sbox:ident)*) => {
        $($text = mixed(boxes::$sbox(with_key($cpu, &$keys[$number], $text)));)*
    };
}

macro_rules! rounds_back {
    ($text:ident, $cpu:ident, $keys:ident, $($number:literal $sbox:ident)*) => {
        $($text = with_key($cpu, &$keys[$number], boxes::$sbox(mixed_back($text)));)*
    };
}

#[inline(always)]
fn encrypted<W: BlockWords>(cpu: W::Cpu, keys: &RoundKeys, mut text: [W; 4]) -> [W; 4] {
    rounds! { text, cpu, keys,
    0 s0 1 s1 2 s2 3 s3 4 s4 5 s5 6 s6 7 s7
    8 s0 9 s1 10 s2 11 s3 12 s4 13 s5 14 s6 15 s7
    16 s0 17 s1 18 s2 19 s3 20 s4 21 s5 22 s6 23 s7
    24 s0 25 s1 26 s2 27 s3 28 s4 29 s5 30 s6 }
    let last = boxes::s7(with_key(cpu, &keys[ROUNDS - 1], text));
    with_key(cpu, &keys[ROUNDS], last)
}

#[inline(always)]
fn decrypted<W: BlockWords>(cpu: W::Cpu, keys: &RoundKeys, text: [W; 4]) -> [W; 4] {
    let last = boxes::i7(with_key(cpu, &keys[ROUNDS], text));
    let mut text = with_key(cpu, &keys[ROUNDS - 1], last);
    rounds_back! { text, cpu, keys,
    30 i6 29 i5 28 i4 27 i3 26 i2 25 i1 24 i0
    23 i7 22 i6 21 i5 20 i4 19 i3 18 i2 17 i1 16 i0
    15 i7 14 i6 13 i5 12 i4 11 i3 10 i2 9 i1 8 i0
    7 i7 6 i6 5 i5 4 i4 3 i3 2 i2 1 i1 0 i0 }
    text
}

/// The linear transformation.
#[inline(always)]
fn mixed<W: BlockWords>([a, b, c, d]: [W; 4]) -> [W; 4] {
    let (a, c) = (a.rotate::<13, 19>(), c.rotate::<3, 29>());
    let b = b.xor(a).xor(c).rotate::<1, 31>();
    let d = d.xor(c).xor(a.shift_left::<3>()).rotate::<7, 25>();
    let a = a.xor(b).xor(d).rotate::<5, 27>();
    let c = c.xor(d).xor(b.shift_left::<7>()).rotate::<22, 10>();
    [a, b, c, d]
}

#[inline(always)]
fn mixed_back<W: BlockWords>([a, b, c, d]: [W; 4]) -> [W; 4] {
    let c = c.rotate::<10, 22>().xor(d).xor(b.shift_left::<7>());
    let a = a.rotate::<27, 5>().xor(b).xor(d);
    let d = d.rotate::<25, 7>().xor(c).xor(a.shift_left::<3>());
    let b = b.rotate::<31, 1>().xor(a).xor(c);
    [a.rotate::<19, 13>(), b, c.rotate::<29, 3>(), d]
}

#[inline(always)]
fn with_key<W: BlockWords>(cpu: W::Cpu, key: &[u32; 4], [a, b, c, d]: [W; 4]) -> [W; 4] {
    [
        a.xor(W::splat(cpu, key[0])),
        b.xor(W::splat(cpu, key[1])),
        c.xor(W::splat(cpu, key[2])),
        d.xor(W::splat(cpu, key[3])),
    ]
}

fn expand(key: &[u8], keys: &mut RoundKeys) {
    let mut padded = Zeroizing::new([0; 32]);
    padded[..key.len()].copy_from_slice(key);
    // Shorter keys end with a one.
    if let Some(end) = padded.get_mut(key.len()) {
        *end = 1;
    }
    let mut before = Zeroizing::new([0; 8]);
    for (word, bytes) in before.iter_mut().zip(padded.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    for (word, number) in keys.as_flattened_mut().iter_mut().zip(0..) {
        let sum = before[0] ^ before[3] ^ before[5] ^ before[7] ^ PHI ^ number;
        *word = sum.rotate_left(11);
        before.rotate_left(1);
        before[7] = *word;
    }
    let boxes = [boxes::s3, boxes::s2, boxes::s1, boxes::s0, boxes::s7, boxes::s6, boxes::s5, boxes::s4];
    for (key, sbox) in keys.iter_mut().zip(boxes.iter().cycle()) {
        *key = sbox(*key);
    }
}

#[cfg(test)]
#[path = "serpent_tests.rs"]
mod tests;
