//! CBC: within a sector each block waits for the one before, so sectors run side by side.
//!
//! ```text
//!   encrypt   block n of every sector at once, all blocks in one call of the cipher's back end
//!   decrypt   all blocks at once
//! ```

use aes::Block;

use super::blocks::BlockCipher;
use super::chain::Chain;
use super::{BATCH, GROUP, xor_all};

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
        // What each block of a group is XORed with: the ciphertext before it, or its sector's IV.
        let mut before = [Block::default(); GROUP + 1];
        let mut starts = (0..data.len()).step_by(sector_blocks).zip(ivs).peekable();
        for (group, first) in data.chunks_mut(GROUP).zip((0..).step_by(GROUP)) {
            let len = group.len();
            before[1..=len].copy_from_slice(group);
            let last = before[len];
            while let Some((place, iv)) = starts.next_if(|(place, _)| *place < first + len) {
                before[place - first] = *iv;
            }
            self.0.decrypt(group);
            xor_all(group, &before[..len]);
            before[0] = last;
        }
    }
}
