//! TrueCrypt before 4.1 (`tcw`): a secret IV seed, and whitening of the ciphertext.

use aes::Block;
use cryptline_sys::SecretBox;

use crate::iv::IvSequence;

/// The secrets behind the cipher keys.
pub(super) struct TrueCrypt(SecretBox<WhiteningKeys>);

struct WhiteningKeys {
    iv_start: [u8; 16],
    whitening: [u8; 16],
}

impl TrueCrypt {
    /// `extra` is the start of the IV and the whitening, 16 bytes each.
    pub(super) fn new(extra: &[u8]) -> Option<TrueCrypt> {
        let (iv_start, whitening) = extra.split_first_chunk()?;
        Some(TrueCrypt(SecretBox::new(WhiteningKeys { iv_start: *iv_start, whitening: *whitening.first_chunk()? })))
    }

    pub(super) fn fill_ivs(&self, numbers: IvSequence, ivs: &mut [Block]) {
        for (iv, number) in ivs.iter_mut().zip(numbers) {
            *iv = with_number(&self.0.iv_start, number).into();
        }
    }

    /// Puts the mask on the ciphertext of sectors, or takes it off.
    pub(super) fn whiten(&self, numbers: IvSequence, sector_blocks: usize, text: &mut [Block]) {
        for (number, sector) in numbers.zip(text.chunks_mut(sector_blocks)) {
            let mask = self.mask(number);
            for half in sector.iter_mut().flat_map(|block| block.chunks_exact_mut(8)) {
                for (byte, mask) in half.iter_mut().zip(mask) {
                    *byte ^= mask;
                }
            }
        }
    }

    /// The eight bytes that are repeated over a sector.
    fn mask(&self, number: u64) -> [u8; 8] {
        let mut words = [0; 4];
        let mixed = with_number(&self.0.whitening, number);
        for (word, bytes) in words.iter_mut().zip(mixed.as_chunks().0) {
            *word = crc32(u32::from_le_bytes(*bytes));
        }
        let low = u64::from(words[0] ^ words[3]);
        let high = u64::from(words[1] ^ words[2]);
        (low | high << 32).to_le_bytes()
    }
}

/// Both halves XORed with the sector number.
fn with_number(secret: &[u8; 16], number: u64) -> [u8; 16] {
    let number = u128::from(number);
    (u128::from_le_bytes(*secret) ^ (number | number << 64)).to_le_bytes()
}

/// CRC-32 of four bytes from 0 and without the last inversion; bit by bit, since a table would
/// tell of the secret.
fn crc32(word: u32) -> u32 {
    (0..32).fold(word, |crc, _| crc >> 1 ^ (crc & 1).wrapping_neg() & 0xedb8_8320)
}
