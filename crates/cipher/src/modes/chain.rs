//! Chaining modes over batches of cipher sectors: ECB, CBC and CTR. XTS and LRW are in `masked`.
//!
//! ```text
//!   ECB   all blocks at once
//!   CBC   encryption: block n of every sector at once; decryption: all blocks at once
//!   CTR   all counters at once
//! ```

use aes::Block;

use super::blocks::BlockCipher;
use super::{BATCH, GROUP, xor_all};

/// One chaining mode under one key.
pub(super) trait ChainMode: Send + Sync {
    /// Encrypts as many sectors of equal length as there are IVs, at most [`BATCH`](super::BATCH).
    fn encrypt(&self, ivs: &[Block], data: &mut [Block]);
    /// Decrypts as many sectors of equal length as there are IVs, at most [`BATCH`](super::BATCH).
    fn decrypt(&self, ivs: &[Block], data: &mut [Block]);
}

pub(super) struct Ecb(pub(super) Box<dyn BlockCipher>);

impl ChainMode for Ecb {
    fn encrypt(&self, _ivs: &[Block], data: &mut [Block]) {
        self.0.encrypt(data);
    }

    fn decrypt(&self, _ivs: &[Block], data: &mut [Block]) {
        self.0.decrypt(data);
    }
}

pub(super) struct Cbc(pub(super) Box<dyn BlockCipher>);

impl ChainMode for Cbc {
    fn encrypt(&self, ivs: &[Block], data: &mut [Block]) {
        let mut lanes = [Block::default(); BATCH];
        let lanes = &mut lanes[..ivs.len()];
        lanes.copy_from_slice(ivs);
        self.0.encrypt_chained(lanes, data);
    }

    fn decrypt(&self, ivs: &[Block], data: &mut [Block]) {
        self.0.decrypt_chained(ivs, data);
    }
}

pub(super) struct Ctr(pub(super) Box<dyn BlockCipher>);

impl ChainMode for Ctr {
    fn encrypt(&self, ivs: &[Block], data: &mut [Block]) {
        let sector_blocks = data.len() / ivs.len();
        let mut stream = [Block::default(); GROUP];
        // All of a counter is one big-endian number.
        let (mut ivs, mut counter, mut left) = (ivs.iter(), 0, 0);
        for group in data.chunks_mut(GROUP) {
            let stream = &mut stream[..group.len()];
            for block in &mut *stream {
                if left == 0 {
                    counter = ivs.next().map_or(0, |iv| u128::from_be_bytes((*iv).into()));
                    left = sector_blocks;
                }
                *block = counter.to_be_bytes().into();
                counter = counter.wrapping_add(1);
                left -= 1;
            }
            self.0.encrypt(stream);
            xor_all(group, stream);
        }
    }

    fn decrypt(&self, ivs: &[Block], data: &mut [Block]) {
        self.encrypt(ivs, data);
    }
}
