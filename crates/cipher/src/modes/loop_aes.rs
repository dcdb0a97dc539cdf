//! loop-AES (`lmk`): the IV of a sector is derived from its own plaintext.
//!
//! ```text
//!   [seed, version 3 only] | text[16..512] | LE64(S) cut to 56 bits, its top bit set | 4024 | 0
//!                                     │
//!                   MD5 without its padding: the state is the IV
//! ```
//!
//! So decryption can start with any IV: only the first block needs the right one, which is derived
//! from the others.

use aes::Block;
use cryptline_sys::SecretBox;
use zeroize::Zeroizing;

/// The state before the first block (RFC 1321, 3.3).
const MD5_START: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
/// Bytes of a sector. The mode knows no other size.
const SECTOR_BYTES: usize = 512;
const SEED_BYTES: usize = 16;

/// The seed of version 3, hashed: in version 2 the state that MD5 begins with.
pub(super) struct LoopAes(SecretBox<[u32; 4]>);

impl LoopAes {
    /// `extra` is the 65th key, or nothing.
    pub(super) fn new(extra: &[u8]) -> LoopAes {
        let mut state = SecretBox::new(MD5_START);
        if let Some(seed) = extra.first_chunk::<SEED_BYTES>() {
            let mut block = Zeroizing::new([0; 64]);
            block[..SEED_BYTES].copy_from_slice(seed);
            md5::block_api::compress(&mut state, &[*block]);
        }
        LoopAes(state)
    }

    /// The IV of the sector with this number and this text.
    pub(super) fn iv(&self, number: u64, text: &[Block]) -> Block {
        let mut message = [0; SECTOR_BYTES];
        let (behind_first, end) = message.split_at_mut(SECTOR_BYTES - 16);
        behind_first.copy_from_slice(Block::cast_slice_to_core(&text[1..]).as_flattened());
        let number = number & 0x00ff_ffff_ffff_ffff | 1 << 63;
        end[..8].copy_from_slice(&number.to_le_bytes());
        end[8..12].copy_from_slice(&4024_u32.to_le_bytes());
        let mut state = *self.0;
        md5::block_api::compress(&mut state, message.as_chunks().0);
        let mut iv = Block::default();
        for (bytes, word) in iv.chunks_exact_mut(4).zip(state) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        iv
    }
}
