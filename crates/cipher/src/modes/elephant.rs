//! BitLocker's Elephant diffuser: mixes a whole sector before CBC, under a key of its own.
//!
//! ```text
//!   text ─► XOR with a key stream of the sector's place ─► diffuser A ─► diffuser B ─► CBC
//! ```
//!
//! Source: Ferguson, "AES-CBC + Elephant diffuser" (2006). The paper's forward direction is
//! decryption, `undo_*` here.

use aes::Block;

use super::blocks::{BlockCipher, ServedCipher};
use crate::cpu::XtsBackend;

/// Words in the largest cipher sector.
const WORDS: usize = 4096 / 4;

/// The diffuser with its key.
pub(super) struct Elephant {
    cipher: Box<dyn BlockCipher>,
    sector_size: u64,
}

impl Elephant {
    /// `extra` is a key of AES.
    pub(super) fn new(extra: &[u8], sector_size: u32, backend: XtsBackend) -> Option<Elephant> {
        Some(Elephant { cipher: ServedCipher::Aes.cipher(extra, backend)?, sector_size: sector_size.into() })
    }

    /// Step before encryption.
    pub(super) fn diffuse(&self, number: u64, sector: &mut [Block]) {
        self.mask(number, sector);
        with_words(sector, |words| {
            diffuse_a(words);
            diffuse_b(words);
        });
    }

    /// Step after decryption.
    pub(super) fn undo(&self, number: u64, sector: &mut [Block]) {
        with_words(sector, |words| {
            undo_b(words);
            undo_a(words);
        });
        self.mask(number, sector);
    }

    /// XORs the 32 bytes of key stream over the sector.
    fn mask(&self, number: u64, sector: &mut [Block]) {
        let offset = u128::from(number.wrapping_mul(self.sector_size));
        let marked = offset | 0x80 << 120;
        let mut stream: [Block; 2] = [offset.to_le_bytes().into(), marked.to_le_bytes().into()];
        self.cipher.encrypt(&mut stream);
        for pair in sector.chunks_exact_mut(2) {
            for (block, mask) in pair.iter_mut().zip(&stream) {
                super::xor(block, mask);
            }
        }
    }
}

/// Lends the sector as little-endian words.
fn with_words(sector: &mut [Block], work: impl Fn(&mut [u32])) {
    let bytes = Block::cast_slice_to_core_mut(sector).as_flattened_mut();
    let (bytes, _) = bytes.as_chunks_mut();
    let mut words = [0; WORDS];
    let words = &mut words[..bytes.len()];
    for (word, bytes) in words.iter_mut().zip(bytes.iter()) {
        *word = u32::from_le_bytes(*bytes);
    }
    work(words);
    for (word, bytes) in words.iter().zip(bytes) {
        *bytes = word.to_le_bytes();
    }
}

fn undo_a(words: &mut [u32]) {
    for _ in 0..5 {
        for index in 0..words.len() {
            words[index] = words[index].wrapping_add(mixed_a(words, index));
        }
    }
}

fn diffuse_a(words: &mut [u32]) {
    for _ in 0..5 {
        for index in (0..words.len()).rev() {
            words[index] = words[index].wrapping_sub(mixed_a(words, index));
        }
    }
}

fn undo_b(words: &mut [u32]) {
    for _ in 0..3 {
        for index in 0..words.len() {
            words[index] = words[index].wrapping_add(mixed_b(words, index));
        }
    }
}

fn diffuse_b(words: &mut [u32]) {
    for _ in 0..3 {
        for index in (0..words.len()).rev() {
            words[index] = words[index].wrapping_sub(mixed_b(words, index));
        }
    }
}

fn mixed_a(words: &[u32], index: usize) -> u32 {
    let before = |distance| words[(index + words.len() - distance) % words.len()];
    before(2) ^ before(5).rotate_left([9, 0, 13, 0][index % 4])
}

fn mixed_b(words: &[u32], index: usize) -> u32 {
    let after = |distance| words[(index + distance) % words.len()];
    after(2) ^ after(5).rotate_left([0, 10, 0, 25][index % 4])
}
