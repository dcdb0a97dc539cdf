//! A volume's ciphers, each over its range, and what a hole in the ciphertext means.
//!
//! Whoever has data of a volume in hand runs it through here: the queue that took the request, a
//! helper or a worker.

use cryptline_cipher::SectorCipher;
use cryptline_sys::is_zero;

/// Content of the clear disk where the medium holds nothing but zeros.
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

/// A range of the clear disk, and what encrypts it.
pub struct CipherRange {
    /// Bytes in it.
    pub len: u64,
    /// `None` for what lies on the medium in the clear.
    pub cipher: Option<SectorCipher>,
}

/// The ciphers of a volume: each has its range of the clear disk, one behind the other.
pub(crate) struct CipherMap {
    ranges: Box<[PreparedRange]>,
}

/// A range of the clear disk as it is worked with.
pub(crate) struct PreparedRange {
    /// Its first byte on the clear disk, and the one behind its last.
    start: u64,
    end: u64,
    cipher: Option<SectorCipher>,
    /// Bytes of a place that may be a hole; `None` where zeros are decrypted.
    place: Option<usize>,
}

/// The smallest place that is looked at for zeros: a sector.
const PLACE: u32 = 512;

impl CipherMap {
    /// Ranges one behind the other from 0 on, at least one, and no longer than 2^64 bytes in all.
    pub fn new(ranges: Vec<CipherRange>, zeroes: Zeroes) -> Self {
        let mut end = 0;
        let ranges = ranges.into_iter().map(|CipherRange { len, cipher }| {
            let start = end;
            end += len;
            PreparedRange::new(start, end, cipher, zeroes)
        });
        let mut ranges: Box<[PreparedRange]> = ranges.collect();
        if let Some(last) = ranges.last_mut() {
            // The disk may grow, and the gate knows where it ends.
            last.end = u64::MAX;
        }
        Self { ranges }
    }

    /// Tells if nothing is encrypted at all.
    pub fn is_null(&self) -> bool {
        self.ranges.iter().all(PreparedRange::is_null)
    }

    /// The cipher of the first range that has one which encrypts.
    pub fn first(&self) -> Option<&SectorCipher> {
        let encrypted = self.ranges.iter().find(|range| !range.is_null())?;
        encrypted.cipher.as_ref()
    }

    /// Tells if zeros on the medium are zeros in the clear, wherever they are.
    pub fn zeroes_are_zeroes(&self) -> bool {
        self.ranges.iter().all(PreparedRange::zeroes_are_zeroes)
    }

    /// The range that has the byte at `offset`, which is on the disk.
    pub fn find(&self, offset: u64) -> &PreparedRange {
        &self.ranges[self.number_of(offset)]
    }

    /// Encrypts what is to be written at `offset` of the clear disk, in bytes.
    pub fn encrypt(&self, offset: u64, data: &mut [u8]) {
        self.each(offset, data, PreparedRange::encrypt);
    }

    /// Decrypts what was read from `offset` of the clear disk, in bytes.
    pub fn decrypt(&self, offset: u64, data: &mut [u8]) {
        self.each(offset, data, PreparedRange::decrypt);
    }

    /// Runs `run` for the bytes of each range that `data` has any of, with their offset in the range.
    #[inline]
    fn each(&self, offset: u64, data: &mut [u8], run: impl Fn(&PreparedRange, u64, &mut [u8])) {
        // Nearly all volumes have one range.
        if let [only] = &*self.ranges {
            return run(only, offset, data);
        }
        let (mut at, mut rest) = (offset, data);
        for range in &self.ranges[self.number_of(offset)..] {
            let left = usize::try_from(range.end - at).unwrap_or(usize::MAX);
            let mine = rest.split_off_mut(..left.min(rest.len()));
            run(range, at - range.start, mine.unwrap_or_default());
            if rest.is_empty() {
                return;
            }
            at = range.end;
        }
        debug_assert!(false, "the gate lets nothing beyond the disk pass");
    }

    fn number_of(&self, offset: u64) -> usize {
        let after = self.ranges.partition_point(|range| range.start <= offset);
        after - 1
    }
}

impl PreparedRange {
    fn new(start: u64, end: u64, cipher: Option<SectorCipher>, zeroes: Zeroes) -> Self {
        let encrypts = cipher.as_ref().filter(|cipher| !cipher.is_null());
        let place = encrypts.filter(|_| zeroes == Zeroes::Detect);
        let place = place.map(|cipher| cipher.granularity().max(PLACE));
        Self { start, end, place: place.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)), cipher }
    }

    /// The byte behind its last, on the clear disk.
    pub fn end(&self) -> u64 {
        self.end
    }

    fn is_null(&self) -> bool {
        self.cipher.as_ref().is_none_or(SectorCipher::is_null)
    }

    /// Tells if zeros on the medium are zeros in the clear.
    pub fn zeroes_are_zeroes(&self) -> bool {
        self.place.is_some() || self.is_null()
    }

    /// Bytes of a place that is looked at for zeros; `None` where none is.
    pub fn place(&self) -> Option<u64> {
        self.place.map(|bytes| bytes as u64)
    }

    fn encrypt(&self, offset: u64, data: &mut [u8]) {
        if let Some(cipher) = &self.cipher {
            cipher.encrypt_range_in_place(offset, data);
        }
    }

    fn decrypt(&self, offset: u64, data: &mut [u8]) {
        match (&self.cipher, self.place) {
            (None, _) => {}
            (Some(cipher), None) => cipher.decrypt_range_in_place(offset, data),
            (Some(cipher), Some(place)) => decrypt_written(cipher, offset, data, place),
        }
    }
}

/// Decrypts run after run of places that are not zero.
fn decrypt_written(cipher: &SectorCipher, offset: u64, data: &mut [u8], place: usize) {
    let mut from = 0;
    while from < data.len() {
        let is_written = |at: usize| !is_zero(&data[at..data.len().min(at + place)]);
        let mut to = from;
        while to < data.len() && is_written(to) {
            to += place;
        }
        let to = to.min(data.len());
        if to > from {
            cipher.decrypt_range_in_place(offset + from as u64, &mut data[from..to]);
        }
        // What ended the run is zero, or the end.
        from = to + place;
    }
}

#[cfg(test)]
mod tests {
    use cryptline_cipher::{CipherSpec, SectorOptions};

    use super::*;

    fn cipher(word: &str, key: usize) -> SectorCipher {
        let options = SectorOptions { sector_size: 4096, iv_offset: 0, iv_large_sectors: false };
        let spec = CipherSpec::parse(word).unwrap();
        let key: Vec<u8> = (0..key).map(|at| u8::try_from(at).unwrap()).collect();
        SectorCipher::new(&spec, &key, options).unwrap()
    }

    fn cipher_map(word: &str, key: usize, zeroes: Zeroes) -> CipherMap {
        let whole = CipherRange { len: 1 << 30, cipher: Some(cipher(word, key)) };
        CipherMap::new(vec![whole], zeroes)
    }

    #[test]
    fn each_range_is_under_its_own_cipher_from_its_own_start() {
        const UNIT: usize = 8192;
        let words = [("aes-xts-plain64", 64), ("", 0), ("aes-cbc-essiv:sha256", 32)];
        let ranges = words
            .iter()
            .map(|&(word, key)| CipherRange { len: UNIT as u64, cipher: (key > 0).then(|| cipher(word, key)) });
        let cipher_map = CipherMap::new(ranges.collect(), Zeroes::Decrypt);
        let clear: Vec<u8> = (0..3 * UNIT).map(|at| u8::try_from(at / 16 % 251).unwrap()).collect();
        let mut expected = clear.clone();
        for (at, &(word, key)) in words.iter().enumerate() {
            if key > 0 {
                let range = &mut expected[at * UNIT..][..UNIT];
                cipher(word, key).encrypt_range_in_place(0, range);
            }
        }
        // Inside a range, up to a border, over one and over both.
        for (first, last) in [(0, 4096), (4096, 8192), (4096, 12288), (4096, 20480), (0, 24576)] {
            let mut data = clear[first..last].to_vec();
            cipher_map.encrypt(first as u64, &mut data);
            assert!(data == expected[first..last], "{first}..{last}");
            cipher_map.decrypt(first as u64, &mut data);
            assert!(data == clear[first..last], "{first}..{last}");
        }
        assert!(!cipher_map.is_null() && !cipher_map.zeroes_are_zeroes());
        assert!(cipher_map.find(UNIT as u64).zeroes_are_zeroes());
        assert!(cipher_map.first().is_some());
    }

    #[test]
    fn places_never_written_read_as_zeros_and_all_others_as_they_were() {
        for (word, key, place) in [("aes-xts-plain64", 64, 512), ("aes-cbc-essiv:sha256", 32, 4096)] {
            let cipher_map = cipher_map(word, key, Zeroes::Detect);
            let clear: Vec<u8> = (0..16 * 4096_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
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
