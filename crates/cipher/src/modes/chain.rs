//! Chaining modes over batches of cipher sectors: ECB and CTR. CBC is in `cbc`, XTS and LRW are
//! in `masked`.
//!
//! ```text
//!   ECB   all blocks at once
//!   CTR   all counters at once
//! ```

use aes::Block;

use super::blocks::BlockCipher;
use super::{GROUP, xor};

/// One chaining mode under one key.
pub(super) trait Chain: Send + Sync {
    /// Encrypts as many sectors of equal length as there are IVs, at most [`BATCH`](super::BATCH).
    fn encrypt(&self, ivs: &[Block], data: &mut [Block]);
    /// Decrypts as many sectors of equal length as there are IVs, at most [`BATCH`](super::BATCH).
    fn decrypt(&self, ivs: &[Block], data: &mut [Block]);
}

pub(super) struct Ecb(pub(super) Box<dyn BlockCipher>);

impl Chain for Ecb {
    fn encrypt(&self, _ivs: &[Block], data: &mut [Block]) {
        self.0.encrypt(data);
    }

    fn decrypt(&self, _ivs: &[Block], data: &mut [Block]) {
        self.0.decrypt(data);
    }
}

pub(super) struct Ctr(pub(super) Box<dyn BlockCipher>);

impl Chain for Ctr {
    fn encrypt(&self, ivs: &[Block], data: &mut [Block]) {
        let sector_blocks = data.len() / ivs.len();
        let mut stream = [Block::default(); GROUP];
        for (group, start) in data.chunks_mut(GROUP).zip((0..).step_by(GROUP)) {
            let stream = &mut stream[..group.len()];
            for (counter, place) in stream.iter_mut().zip(start..) {
                *counter = counter_after(&ivs[place / sector_blocks], place % sector_blocks);
            }
            self.0.encrypt(stream);
            for (block, mask) in group.iter_mut().zip(stream) {
                xor(block, mask);
            }
        }
    }

    fn decrypt(&self, ivs: &[Block], data: &mut [Block]) {
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
