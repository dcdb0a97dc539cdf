//! CBC: within a sector each block waits for the one before, so sectors run side by side.
//!
//! ```text
//!   encrypt   block n of every sector at once, all blocks in one call of the cipher's back end
//!   decrypt   all blocks at once
//! ```

use aes::Block;

use super::blocks::BlockCipher;
use super::chain::Chain;
use super::{BATCH, GROUP, xor};

pub(super) struct Cbc(pub(super) Box<dyn BlockCipher>);

impl Chain for Cbc {
    fn encrypt(&self, ivs: &[Block], data: &mut [Block]) {
        let mut lanes = [Block::default(); BATCH];
        let lanes = &mut lanes[..ivs.len()];
        lanes.copy_from_slice(ivs);
        self.0.encrypt_chained(lanes, data);
    }

    fn decrypt(&self, ivs: &[Block], data: &mut [Block]) {
        let sector_blocks = data.len() / ivs.len();
        // The ciphertext of a group, after the last block of the group before it.
        let mut saved = [Block::default(); GROUP + 1];
        for (group, start) in data.chunks_mut(GROUP).zip((0..).step_by(GROUP)) {
            let len = group.len();
            saved[1..=len].copy_from_slice(group);
            self.0.decrypt(group);
            for (index, block) in group.iter_mut().enumerate() {
                let place = start + index;
                let before = if place.is_multiple_of(sector_blocks) {
                    &ivs[place / sector_blocks]
                } else {
                    &saved[index]
                };
                xor(block, before);
            }
            saved[0] = saved[len];
        }
    }
}
