//! Chaining modes over batches of cipher sectors: ECB and CTR. CBC is in `cbc`, XTS and LRW are
//! in `masked`.
//!
//! ```text
//!   ECB   all blocks at once
//!   CTR   all counters at once
//! ```

use aes::Block;
use cipher::inout::InOutBuf;

use super::blocks::{Algorithm, BlockCipher};
use super::cbc::Cbc;
use super::masked::{Lrw, Xts};
use super::{GROUP, xor};

/// One chaining mode under one key.
pub(super) trait Chain: Send + Sync {
    /// Encrypts as many sectors of equal length as there are IVs, at most [`BATCH`](super::BATCH).
    fn encrypt(&self, ivs: &[Block], data: InOutBuf<'_, '_, Block>);
    /// Decrypts as many sectors of equal length as there are IVs, at most [`BATCH`](super::BATCH).
    fn decrypt(&self, ivs: &[Block], data: InOutBuf<'_, '_, Block>);
}

/// The mode called `name`; nothing if there is none or the key has not its size.
pub(super) fn new(name: &str, algorithm: Algorithm, key: &[u8]) -> Option<Box<dyn Chain>> {
    Some(match name {
        "ecb" => Box::new(Ecb(algorithm.cipher(key)?)),
        "cbc" => Box::new(Cbc::new(algorithm, key)?),
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
