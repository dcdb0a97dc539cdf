//! Chaining modes over batches of cipher sectors: ECB, CBC and CTR. XTS and LRW are in `masked`.
//!
//! ```text
//!   CBC encrypt   block n of every sector at once: within a sector each waits for the one before
//!   CBC decrypt   all blocks at once
//!   CTR           all counters at once
//! ```

use aes::Block;
use cipher::inout::InOutBuf;

use super::blocks::{Algorithm, BlockCipher};
use super::masked::{Lrw, Xts};
use super::{BATCH, GROUP, xor};

/// One chaining mode under one key.
pub(super) trait Chain: Send + Sync {
    /// Encrypts as many sectors of equal length as there are IVs, at most [`BATCH`].
    fn encrypt(&self, ivs: &[Block], data: InOutBuf<'_, '_, Block>);
    /// Decrypts as many sectors of equal length as there are IVs, at most [`BATCH`].
    fn decrypt(&self, ivs: &[Block], data: InOutBuf<'_, '_, Block>);
}

/// The mode called `name`; nothing if there is none or the key has not its size.
pub(super) fn new(name: &str, algorithm: Algorithm, key: &[u8]) -> Option<Box<dyn Chain>> {
    Some(match name {
        "ecb" => Box::new(Ecb(algorithm.cipher(key)?)),
        "cbc" => Box::new(Cbc(algorithm.cipher(key)?)),
        "ctr" => Box::new(Ctr(algorithm.cipher(key)?)),
        "xts" => Box::new(Xts::new(algorithm, key)?),
        "lrw" => Box::new(Lrw::new(algorithm, key)?),
        _ => return None,
    })
}

struct Ecb(Box<dyn BlockCipher>);

impl Chain for Ecb {
    fn encrypt(&self, _ivs: &[Block], data: InOutBuf<'_, '_, Block>) {
        self.0.encrypt(data.into_out_with_copied_in());
    }

    fn decrypt(&self, _ivs: &[Block], data: InOutBuf<'_, '_, Block>) {
        self.0.decrypt(data.into_out_with_copied_in());
    }
}

struct Cbc(Box<dyn BlockCipher>);

impl Chain for Cbc {
    fn encrypt(&self, ivs: &[Block], mut data: InOutBuf<'_, '_, Block>) {
        let sector_blocks = data.len() / ivs.len();
        let mut lanes = [Block::default(); BATCH];
        let lanes = &mut lanes[..ivs.len()];
        lanes.copy_from_slice(ivs);
        for block in 0..sector_blocks {
            let text = data.get_in()[block..].iter().step_by(sector_blocks);
            for (lane, text) in lanes.iter_mut().zip(text) {
                xor(lane, text);
            }
            self.0.encrypt(lanes);
            let text = data.get_out()[block..].iter_mut().step_by(sector_blocks);
            for (lane, text) in lanes.iter().zip(text) {
                *text = *lane;
            }
        }
    }

    fn decrypt(&self, ivs: &[Block], data: InOutBuf<'_, '_, Block>) {
        let sector_blocks = data.len() / ivs.len();
        let mut saved = [Block::default(); GROUP + 1];
        let mut text = [Block::default(); GROUP];
        let mut rest = data;
        let mut position = 0;
        while !rest.is_empty() {
            let len = rest.len().min(GROUP);
            let (mut group, after) = rest.split_at(len);
            rest = after;
            // The source may be the destination, and the next block needs it.
            saved[1..=len].copy_from_slice(group.get_in());
            text[..len].copy_from_slice(&saved[1..=len]);
            self.0.decrypt(&mut text[..len]);
            for (index, out) in group.get_out().iter_mut().enumerate() {
                let place = position + index;
                let before = match place.is_multiple_of(sector_blocks) {
                    true => &ivs[place / sector_blocks],
                    false => &saved[index],
                };
                xor(&mut text[index], before);
                *out = text[index];
            }
            saved[0] = saved[len];
            position += len;
        }
    }
}

struct Ctr(Box<dyn BlockCipher>);

impl Chain for Ctr {
    fn encrypt(&self, ivs: &[Block], data: InOutBuf<'_, '_, Block>) {
        let sector_blocks = data.len() / ivs.len();
        let mut stream = [Block::default(); GROUP];
        let mut rest = data;
        let mut position = 0;
        while !rest.is_empty() {
            let len = rest.len().min(GROUP);
            let (mut group, after) = rest.split_at(len);
            rest = after;
            let stream = &mut stream[..len];
            for (counter, place) in stream.iter_mut().zip(position..) {
                *counter = counter_after(&ivs[place / sector_blocks], place % sector_blocks);
            }
            self.0.encrypt(stream);
            group.xor_in2out_blocks(stream);
            position += len;
        }
    }

    fn decrypt(&self, ivs: &[Block], data: InOutBuf<'_, '_, Block>) {
        self.encrypt(ivs, data);
    }
}

/// The counter block `blocks` later: all of it is one big-endian number.
fn counter_after(iv: &Block, blocks: usize) -> Block {
    let first = u128::from_be_bytes((*iv).into());
    // At most 4096 / 16.
    let blocks = u128::try_from(blocks).unwrap_or(0);
    first.wrapping_add(blocks).to_be_bytes().into()
}

/// `destination = source ^ stream`.
trait XorBlocks {
    fn xor_in2out_blocks(&mut self, stream: &[Block]);
}

impl XorBlocks for InOutBuf<'_, '_, Block> {
    fn xor_in2out_blocks(&mut self, stream: &[Block]) {
        for (index, mask) in stream.iter().enumerate() {
            let mut block = self.get_in()[index];
            xor(&mut block, mask);
            self.get_out()[index] = block;
        }
    }
}
