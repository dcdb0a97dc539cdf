//! A volume's cipher, and what a hole in the ciphertext means.
//!
//! Whoever has data of a volume in hand runs it through here: the queue that took the request, a
//! helper or a worker.

use cryptline_cipher::SectorCipher;

/// What the clear disk shows where the medium holds nothing but zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Zeroes {
    /// Their decryption, which is noise: as dm-crypt does it.
    #[default]
    Decrypt,
    /// Zeros: such a place was never written, or was discarded.
    ///
    /// A place is 512 bytes of a cipher that can be cut that finely (XTS), else a cipher sector. That
    /// data encrypts to zeros all over such a place by chance does not happen (once in 2^4096 for 512
    /// bytes). What it costs is secrecy and integrity that a disk without tags has little of anyway:
    /// who can write to the medium can make chosen places read as zeros instead of as noise.
    Detect,
}

impl std::str::FromStr for Zeroes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "decrypt" => Ok(Self::Decrypt),
            "detect" => Ok(Self::Detect),
            other => Err(format!("{other:?} is neither decrypt nor detect")),
        }
    }
}

/// The cipher as a volume uses it.
pub(crate) struct CipherMap {
    pub cipher: SectorCipher,
    /// Bytes of a place that may be a hole; `None` where zeros are decrypted.
    place: Option<usize>,
}

/// The smallest place that is looked at for zeros: a sector.
const PLACE: u32 = 512;

impl CipherMap {
    pub fn new(cipher: SectorCipher, zeroes: Zeroes) -> Self {
        let place = match zeroes {
            Zeroes::Detect if !cipher.is_null() => Some(cipher.granularity().max(PLACE)),
            _ => None,
        };
        Self {
            cipher,
            place: place.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
        }
    }

    /// Whether zeros on the medium are zeros in the clear.
    pub fn zeroes_are_zeroes(&self) -> bool {
        self.place.is_some() || self.cipher.is_null()
    }

    /// Bytes of a place that is looked at for zeros; `None` where none is.
    pub fn place(&self) -> Option<u64> {
        self.place.map(|bytes| bytes as u64)
    }

    /// Encrypts what is to be written at `offset` of the clear disk, in bytes.
    pub fn encrypt(&self, offset: u64, data: &mut [u8]) {
        self.cipher.encrypt_range_in_place(offset, data);
    }

    /// Decrypts what was read from `offset` of the clear disk, in bytes.
    pub fn decrypt(&self, offset: u64, data: &mut [u8]) {
        match self.place {
            None => self.cipher.decrypt_range_in_place(offset, data),
            Some(place) => self.decrypt_written(offset, data, place),
        }
    }

    /// Decrypts run after run of places that are not zero.
    fn decrypt_written(&self, offset: u64, data: &mut [u8], place: usize) {
        let mut from = 0;
        while from < data.len() {
            let is_written = |at: usize| !is_zero(&data[at..data.len().min(at + place)]);
            let mut to = from;
            while to < data.len() && is_written(to) {
                to += place;
            }
            let to = to.min(data.len());
            if to > from {
                self.cipher
                    .decrypt_range_in_place(offset + from as u64, &mut data[from..to]);
            }
            // What ended the run is zero, or the end.
            from = to + place;
        }
    }
}

/// Ciphertext shows in its first bytes that it is none.
fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use cryptline_cipher::{CipherSpec, SectorOptions};

    use super::*;

    fn cipher_map(word: &str, key: usize, zeroes: Zeroes) -> CipherMap {
        let options = SectorOptions {
            sector_size: 4096,
            iv_offset: 0,
            iv_large_sectors: false,
        };
        let spec = CipherSpec::parse(word).unwrap();
        let key: Vec<u8> = (0..key).map(|at| u8::try_from(at).unwrap()).collect();
        CipherMap::new(SectorCipher::new(&spec, &key, options).unwrap(), zeroes)
    }

    #[test]
    fn places_never_written_read_as_zeros_and_all_others_as_they_were() {
        for (word, key, place) in [
            ("aes-xts-plain64", 64, 512),
            ("aes-cbc-essiv:sha256", 32, 4096),
        ] {
            let cipher_map = cipher_map(word, key, Zeroes::Detect);
            let clear: Vec<u8> = (0..16 * 4096_u32)
                .map(|at| u8::try_from(at % 251).unwrap())
                .collect();
            let mut disk = clear.clone();
            cipher_map.encrypt(1 << 20, &mut disk);
            let mut expected = clear;
            // Holes at the start, at the end, alone and next to each other.
            for hole in [0, 3, 4, 7, 15] {
                disk[hole * place..][..place].fill(0);
                expected[hole * place..][..place].fill(0);
            }
            let end = disk.len() - place;
            disk[end..].fill(0);
            expected[end..].fill(0);
            cipher_map.decrypt(1 << 20, &mut disk);
            assert!(disk == expected, "{word}");
        }
    }

    #[test]
    fn zeros_are_decrypted_unless_asked_for_and_data_that_is_zero_is_no_hole() {
        let decrypts = cipher_map("aes-xts-plain64", 64, Zeroes::Decrypt);
        let mut hole = vec![0; 4096];
        decrypts.decrypt(0, &mut hole);
        assert!(!is_zero(&hole));
        let detects = cipher_map("aes-xts-plain64", 64, Zeroes::Detect);
        let mut data = vec![0; 4096];
        detects.encrypt(0, &mut data);
        assert!(!is_zero(&data), "zeros are written as ciphertext");
        detects.decrypt(0, &mut data);
        assert!(is_zero(&data));
    }
}
