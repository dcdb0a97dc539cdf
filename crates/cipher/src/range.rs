//! Ranges that begin and end inside a cipher sector.
//!
//! ```text
//! cipher sectors  ├───────────────┼───────────────┼───────────────┤
//! range                    ├──────┼───────────────┼────┤
//!                            head       whole       tail
//! ```
//!
//! With XTS a 16-byte block depends only on its own plaintext and its place (IEEE 1619-2018, 5.1), so
//! any range of whole blocks can be encrypted without knowing the rest of the cipher sector.

use crate::sector::SectorCipher;

/// Bytes in a sector, always.
const SECTOR_BYTES: u64 = 512;

impl SectorCipher {
    /// Encrypts `data` in place. `offset` is its place on the target in bytes.
    ///
    /// # Panics
    /// If `offset` or the length is not a multiple of [`SectorCipher::granularity`].
    pub fn encrypt_range_in_place(&self, offset: u64, data: &mut [u8]) {
        if self.is_whole(offset, data) {
            return self.encrypt_in_place(offset / SECTOR_BYTES, data);
        }
        let [head, whole, tail] = self.cut(offset, data);
        head.apply(|sector, within, data| self.encrypt_slice(sector, within, data));
        whole.apply(|sector, _, data| self.encrypt_in_place(sector, data));
        tail.apply(|sector, within, data| self.encrypt_slice(sector, within, data));
    }

    /// Decrypts `data` in place. `offset` is its place on the target in bytes.
    ///
    /// # Panics
    /// As [`SectorCipher::encrypt_range_in_place`].
    pub fn decrypt_range_in_place(&self, offset: u64, data: &mut [u8]) {
        if self.is_whole(offset, data) {
            return self.decrypt_in_place(offset / SECTOR_BYTES, data);
        }
        let [head, whole, tail] = self.cut(offset, data);
        head.apply(|sector, within, data| self.decrypt_slice(sector, within, data));
        whole.apply(|sector, _, data| self.decrypt_in_place(sector, data));
        tail.apply(|sector, within, data| self.decrypt_slice(sector, within, data));
    }

    /// Tells if a range is one of whole cipher sectors, as nearly all are.
    #[inline]
    fn is_whole(&self, offset: u64, data: &[u8]) -> bool {
        // A cipher sector is a power of two.
        let mask = u64::from(self.sector_size()) - 1;
        (offset | data.len() as u64) & mask == 0 && !data.is_empty()
    }

    fn cut<'a>(&self, offset: u64, data: &'a mut [u8]) -> [SectorRun<'a>; 3] {
        let unit = u64::from(self.sector_size());
        // A cipher sector is a power of two.
        let mask = unit - 1;
        let to_edge = usize::try_from(offset.wrapping_neg() & mask).unwrap_or(usize::MAX);
        let (head, rest) = data.split_at_mut(to_edge.min(data.len()));
        let whole = rest.len() & !usize::try_from(mask).unwrap_or(usize::MAX);
        let (whole, tail) = rest.split_at_mut(whole);
        let middle = offset + head.len() as u64;
        let end = middle + whole.len() as u64;
        let run = |offset: u64, data| SectorRun {
            sector: (offset & !mask) / SECTOR_BYTES,
            within: usize::try_from(offset & mask).unwrap_or(usize::MAX),
            data,
        };
        [run(offset, head), run(middle, whole), run(end, tail)]
    }
}

/// Bytes in one cipher sector, or whole ones.
struct SectorRun<'a> {
    /// The first cipher sector, in 512-byte sectors.
    sector: u64,
    /// Where the bytes begin inside it.
    within: usize,
    data: &'a mut [u8],
}

impl SectorRun<'_> {
    fn apply(self, work: impl FnOnce(u64, usize, &mut [u8])) {
        if !self.data.is_empty() {
            work(self.sector, self.within, self.data);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{CipherSpec, SectorCipher, SectorOptions};

    fn cipher(word: &str, key: usize, sector_size: u32) -> SectorCipher {
        let key: Vec<u8> = (0..key).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect();
        let options = SectorOptions { sector_size, iv_offset: 8, iv_large_sectors: false };
        SectorCipher::new(&CipherSpec::parse(word).unwrap(), &key, options).unwrap()
    }

    #[test]
    fn every_range_of_blocks_is_what_the_whole_sectors_have_there() {
        let clear: Vec<u8> = (0..3 * 4096_usize).map(|at| u8::try_from(at % 253).unwrap()).collect();
        let base = 5 * 4096;
        for sector_size in [512, 4096] {
            let cipher = cipher("aes-xts-plain64", 64, sector_size);
            let mut whole = clear.clone();
            cipher.encrypt_range_in_place(base, &mut whole);
            let mut sectors = clear.clone();
            cipher.encrypt_in_place(base / 512, &mut sectors);
            assert_eq!(whole, sectors);
            for (from, to) in [(0, 16), (16, 512), (512, 4096), (496, 4112), (4080, 12288)] {
                let mut part = clear[from..to].to_vec();
                cipher.encrypt_range_in_place(base + from as u64, &mut part);
                assert_eq!(part, whole[from..to], "{from}..{to} of {sector_size}");
                cipher.decrypt_range_in_place(base + from as u64, &mut part);
                assert_eq!(part, clear[from..to], "{from}..{to} of {sector_size}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "not whole parts")]
    fn range_that_cuts_a_sector_of_a_chaining_mode_is_refused() {
        let mut data = vec![0; 512];
        cipher("aes-cbc-plain64", 32, 4096).encrypt_range_in_place(512, &mut data);
    }
}
