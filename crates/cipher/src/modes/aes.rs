//! AES by the processor's AES instructions, and CBC on top of it.
//!
//! ```text
//!   blocks        8 registers of blocks in flight
//!   CBC encrypts  a cache line of up to 16 sectors: turned, so that a register has block n of four
//!                 sectors; four times all rounds; turned back
//!   CBC decrypts  all blocks of a sector, from its end, where nothing has been overwritten that is
//!                 still needed
//! ```
//!
//! A line at a time, since sectors are often so far apart that their lines evict each other from the
//! cache. Time depends on lengths only.

#![allow(unsafe_code)]

use aes::Block;
use cryptline_sys::SecretBox;

use super::blocks::BlockCipher;
use super::four::{Four, FourBlocks, Xmm, Ymm, Zmm};
use super::parallel::{chain, chain_back};
use crate::cpu::{XtsBackend, detection};
use crate::xts::{BlockKeys, Schedule};

/// Blocks in a [`FourBlocks`].
const LINE: usize = 4;
/// Sectors whose chains run side by side: their lines and states fit the registers of AVX-512.
const SECTORS_MAX: usize = 16;

/// AES on registers of a width.
struct Aes<V: WideFour> {
    keys: SecretBox<BlockKeys>,
    cpu: V::Cpu,
}

/// AES under `key` as `backend` has it; nothing if that is no x86 one or the key has a wrong size.
pub(super) fn new(key: &[u8], backend: XtsBackend) -> Option<Box<dyn BlockCipher>> {
    match backend {
        XtsBackend::Avx512 => boxed::<Zmm>(key, detection::Avx512::detect()?),
        XtsBackend::Avx2 => boxed::<Ymm>(key, detection::Avx2::detect()?),
        XtsBackend::AesNi => boxed::<Xmm>(key, detection::AesNi::detect()?),
        XtsBackend::Armv8 | XtsBackend::Portable => None,
    }
}

/// Name of the implementation, for people.
pub(super) fn name(backend: XtsBackend) -> Option<&'static str> {
    match backend {
        XtsBackend::Avx512 => Some("aes (vaes, avx512)"),
        XtsBackend::Avx2 => Some("aes (vaes, avx2)"),
        XtsBackend::AesNi => Some("aes (aesni)"),
        XtsBackend::Armv8 | XtsBackend::Portable => None,
    }
}

fn boxed<V: WideFour + 'static>(key: &[u8], cpu: V::Cpu) -> Option<Box<dyn BlockCipher>> {
    if ![16, 24, 32].contains(&key.len()) {
        return None;
    }
    let keys = BlockKeys::new(V::aes(cpu), key);
    Some(Box::new(Aes::<V> { keys, cpu }))
}

impl<V: WideFour> BlockCipher for Aes<V> {
    fn encrypt(&self, blocks: &mut [Block]) {
        self.run(WideWork::Encrypt(Block::cast_slice_to_core_mut(blocks)));
    }

    fn decrypt(&self, blocks: &mut [Block]) {
        self.run(WideWork::Decrypt(Block::cast_slice_to_core_mut(blocks)));
    }

    fn encrypt_chained(&self, lanes: &mut [Block], sectors: &mut [Block]) {
        // An IV that is encrypted is a sector of one block.
        if !sectors.len().is_multiple_of(lanes.len() * LINE) {
            return chain(lanes, sectors, |row| self.encrypt(row));
        }
        let (lines, _) = Block::cast_slice_to_core_mut(sectors).as_chunks_mut();
        self.run(WideWork::Chain(Block::cast_slice_to_core(lanes), lines));
    }

    fn decrypt_chained(&self, ivs: &[Block], sectors: &mut [Block]) {
        if !sectors.len().is_multiple_of(ivs.len() * V::UNIT) {
            return chain_back(ivs, sectors, |group| self.decrypt(group));
        }
        let blocks = Block::cast_slice_to_core_mut(sectors);
        self.run(WideWork::Unchain(Block::cast_slice_to_core(ivs), blocks));
    }
}

impl<V: WideFour> Aes<V> {
    #[inline]
    fn run(&self, work: WideWork<'_>) {
        V::run(self.cpu, &self.keys, work);
    }
}

/// WideWork to do, in one call of the code that is compiled for a width.
enum WideWork<'a> {
    Encrypt(&'a mut [[u8; 16]]),
    Decrypt(&'a mut [[u8; 16]]),
    /// CBC encryption: IVs, and the lines of their sectors.
    Chain(&'a [[u8; 16]], &'a mut [FourBlocks]),
    /// CBC decryption: IVs, and the blocks of their sectors.
    Unchain(&'a [[u8; 16]], &'a mut [[u8; 16]]),
}

/// A [`Four`] with code that is compiled for it.
trait WideFour: Four<Cpu: Send + Sync> {
    /// Blocks in eight registers.
    const UNIT: usize;
    fn aes(cpu: Self::Cpu) -> detection::AesNi;
    fn run(cpu: Self::Cpu, keys: &BlockKeys, work: WideWork<'_>);
}

/// `$fours` of them fill eight registers.
macro_rules! width {
    ($four:ident, $cpu:ty, $features:literal, $fours:literal) => {
        impl WideFour for $four {
            const UNIT: usize = $fours * LINE;

            fn aes(cpu: $cpu) -> detection::AesNi {
                cpu.aes()
            }

            fn run(cpu: $cpu, keys: &BlockKeys, work: WideWork<'_>) {
                #[target_feature(enable = $features)]
                fn compiled(cpu: $cpu, keys: &BlockKeys, work: WideWork<'_>) {
                    work.run::<$four, $fours>(cpu, keys);
                }
                // SAFETY: the proof says that the CPU has all that the function is compiled for.
                unsafe { compiled(cpu, keys, work) }
            }
        }
    };
}

width!(Zmm, detection::Avx512, "avx512f,vaes", 8);
width!(Ymm, detection::Avx2, "avx2,vaes", 4);
width!(Xmm, detection::AesNi, "aes", 2);

impl WideWork<'_> {
    #[inline(always)]
    fn run<V: Four, const FOURS: usize>(self, cpu: V::Cpu, keys: &BlockKeys) {
        match self {
            WideWork::Encrypt(blocks) => crypt::<V, FOURS, true>(cpu, &keys.encrypt, blocks),
            WideWork::Decrypt(blocks) => crypt::<V, FOURS, false>(cpu, &keys.decrypt, blocks),
            WideWork::Chain(ivs, lines) => encrypt_cbc::<V, FOURS>(cpu, &keys.encrypt, ivs, lines),
            WideWork::Unchain(ivs, blocks) => {
                decrypt_cbc::<V, FOURS>(cpu, &keys.decrypt, ivs, blocks);
            }
        }
    }
}

/// Each block by itself.
#[inline(always)]
fn crypt<V: Four, const FOURS: usize, const ENCRYPT: bool>(cpu: V::Cpu, keys: &Schedule, blocks: &mut [[u8; 16]]) {
    let (lines, rest) = blocks.as_chunks_mut::<LINE>();
    let (units, lines) = lines.as_chunks_mut::<FOURS>();
    for unit in units {
        crypt_lines::<V, FOURS, ENCRYPT>(cpu, keys, unit);
    }
    for line in lines {
        crypt_lines::<V, 1, ENCRYPT>(cpu, keys, std::array::from_mut(line));
    }
    if !rest.is_empty() {
        // The others are for nothing.
        let mut line = [[[0; 16]; LINE]];
        line[0][..rest.len()].copy_from_slice(rest);
        crypt_lines::<V, 1, ENCRYPT>(cpu, keys, &mut line);
        rest.copy_from_slice(&line[0][..rest.len()]);
    }
}

#[inline(always)]
fn crypt_lines<V: Four, const N: usize, const ENCRYPT: bool>(
    cpu: V::Cpu,
    keys: &Schedule,
    lines: &mut [FourBlocks; N],
) {
    let mut state = [V::load(cpu, &lines[0]); N];
    for (state, line) in state.iter_mut().zip(&*lines) {
        *state = V::load(cpu, line);
    }
    if ENCRYPT {
        encrypt_all(cpu, keys, &mut state);
    } else {
        decrypt_but_last(cpu, keys, &mut state);
        // The last round takes a key for each block.
        let last = four_keys::<V>(cpu, &keys.last);
        for state in &mut state {
            *state = state.decrypt_last(last);
        }
    }
    for (state, line) in state.iter().zip(lines) {
        state.store(line);
    }
}

/// CBC encryption of as many sectors of equal length as there are IVs.
#[inline(always)]
fn encrypt_cbc<V: Four, const FOURS: usize>(cpu: V::Cpu, keys: &Schedule, ivs: &[[u8; 16]], lines: &mut [FourBlocks]) {
    let sector_lines = lines.len() / ivs.len();
    let most = SECTORS_MAX.min(FOURS * LINE);
    for (ivs, lines) in ivs.chunks(most).zip(lines.chunks_mut(most * sector_lines)) {
        match ivs.len().div_ceil(LINE) {
            1 => encrypt_sectors::<V, 1>(cpu, keys, ivs, lines),
            2 => encrypt_sectors::<V, 2>(cpu, keys, ivs, lines),
            _ => encrypt_sectors::<V, 4>(cpu, keys, ivs, lines),
        }
    }
}

/// At most `N` times four sectors. Where there are fewer, the last one takes the places that are left:
/// its blocks are read before they are written, and written with the same bytes each time.
#[inline(always)]
fn encrypt_sectors<V: Four, const N: usize>(cpu: V::Cpu, keys: &Schedule, ivs: &[[u8; 16]], lines: &mut [FourBlocks]) {
    let sector_lines = lines.len() / ivs.len();
    let mut first_ivs = [[[0; 16]; LINE]; N];
    let mut starts = [[0; LINE]; N];
    for (at, (iv, start)) in first_ivs.as_flattened_mut().iter_mut().zip(starts.as_flattened_mut()).enumerate() {
        let sector = at.min(ivs.len() - 1);
        *iv = ivs[sector];
        *start = sector * sector_lines;
    }
    let mut state = [V::load(cpu, &first_ivs[0]); N];
    for (state, ivs) in state.iter_mut().zip(&first_ivs) {
        *state = V::load(cpu, ivs);
    }
    for line in 0..sector_lines {
        let mut tile = [[state[0]; LINE]; N];
        for (rows, starts) in tile.iter_mut().zip(&starts) {
            for (row, start) in rows.iter_mut().zip(starts) {
                *row = V::load(cpu, &lines[start + line]);
            }
            *rows = V::transposed(*rows);
        }
        for row in 0..LINE {
            for (state, rows) in state.iter_mut().zip(&tile) {
                *state = state.xor(rows[row]);
            }
            encrypt_all(cpu, keys, &mut state);
            for (state, rows) in state.iter().zip(&mut tile) {
                rows[row] = *state;
            }
        }
        // From the last one: of lines that evict each other, those read last are still in the cache.
        for (rows, starts) in tile.iter().zip(&starts).rev() {
            for (row, start) in V::transposed(*rows).iter().zip(starts).rev() {
                row.store(&mut lines[start + line]);
            }
        }
    }
}

/// CBC decryption of as many sectors of equal length as there are IVs: whole units of `FOURS` lines.
#[inline(always)]
fn decrypt_cbc<V: Four, const FOURS: usize>(cpu: V::Cpu, keys: &Schedule, ivs: &[[u8; 16]], blocks: &mut [[u8; 16]]) {
    let sector_blocks = blocks.len() / ivs.len();
    for (iv, sector) in ivs.iter().zip(blocks.chunks_mut(sector_blocks)) {
        let units = (0..sector_blocks).step_by(FOURS * LINE);
        for start in units.rev() {
            decrypt_unit::<V, FOURS>(cpu, keys, iv, sector, start);
        }
    }
}

/// The unit that begins at block `start` of a sector.
#[inline(always)]
fn decrypt_unit<V: Four, const FOURS: usize>(
    cpu: V::Cpu,
    keys: &Schedule,
    iv: &[u8; 16],
    sector: &mut [[u8; 16]],
    start: usize,
) {
    let mut state = [V::load(cpu, line(sector, start)); FOURS];
    for (state, at) in state.iter_mut().zip((start..).step_by(LINE)) {
        *state = V::load(cpu, line(sector, at));
    }
    decrypt_but_last(cpu, keys, &mut state);
    let last = four_keys::<V>(cpu, &keys.last);
    // From the end, where the text before is still encrypted.
    for number in (0..FOURS).rev() {
        let at = start + number * LINE;
        let before = match at.checked_sub(1) {
            Some(before) => V::load(cpu, line(sector, before)),
            None => V::load(cpu, line(sector, 0)).behind(V::load(cpu, &[*iv; LINE])),
        };
        let (to, _) = sector[at..].split_first_chunk_mut().expect("whole lines");
        state[number].decrypt_last(before.xor(last)).store(to);
    }
}

#[inline(always)]
fn line(sector: &[[u8; 16]], at: usize) -> &FourBlocks {
    sector[at..].first_chunk().expect("whole lines")
}

/// A round key as four blocks.
#[inline(always)]
fn four_keys<V: Four>(cpu: V::Cpu, key: &crate::xts::RoundKey) -> V {
    let (blocks, _) = key.as_chunks();
    V::load(cpu, line(blocks, 0))
}

#[inline(always)]
fn encrypt_all<V: Four, const N: usize>(cpu: V::Cpu, keys: &Schedule, state: &mut [V; N]) {
    let first = V::key(cpu, &keys.first);
    for state in &mut *state {
        *state = state.xor_key(first);
    }
    for key in keys.middle() {
        let key = V::key(cpu, key);
        for state in &mut *state {
            *state = state.encrypt(key);
        }
    }
    let last = V::key(cpu, &keys.last);
    for state in state {
        *state = state.encrypt_last(last);
    }
}

#[inline(always)]
fn decrypt_but_last<V: Four, const N: usize>(cpu: V::Cpu, keys: &Schedule, state: &mut [V; N]) {
    let first = V::key(cpu, &keys.first);
    for state in &mut *state {
        *state = state.xor_key(first);
    }
    for key in keys.middle() {
        let key = V::key(cpu, key);
        for state in &mut *state {
            *state = state.decrypt(key);
        }
    }
}

#[cfg(test)]
#[path = "aes_tests.rs"]
mod tests;
