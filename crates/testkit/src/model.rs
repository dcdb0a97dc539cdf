//! The model disk: what a device must hold, in the plainest code that can say it.
//!
//! * What was written is read back, until it is overwritten.
//! * A zeroed range reads as zeros.
//! * A discarded range, and all of a fresh disk, may read as anything: it is unknown.

use std::ops::Range;

/// Bytes in the unit in which the model knows or does not know.
const SECTOR: usize = 512;

/// A disk as a plain vector, and which of its sectors have a promised content.
#[derive(Clone)]
pub struct ModelDisk {
    bytes: Vec<u8>,
    known: Vec<bool>,
}

impl ModelDisk {
    /// A disk of `size` bytes, a multiple of 512, of which nothing is known.
    #[must_use]
    pub fn new(size: u64) -> Self {
        let size = usize::try_from(size).expect("a model disk fits in memory");
        assert_eq!(size % SECTOR, 0, "a disk is whole sectors");
        Self { bytes: vec![0; size], known: vec![false; size / SECTOR] }
    }

    /// Size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Writes `data` at `offset`.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let range = self.range(offset, data.len());
        self.know(&range, true);
        self.bytes[range].copy_from_slice(data);
    }

    /// Makes a range read as zeros.
    pub fn zero(&mut self, offset: u64, len: u64) {
        let range = self.range(offset, to_usize(len));
        self.know(&range, true);
        self.bytes[range].fill(0);
    }

    /// Forgets the content of a range.
    pub fn discard(&mut self, offset: u64, len: u64) {
        let range = self.range(offset, to_usize(len));
        self.know(&range, false);
    }

    /// Compares what was read at `offset` with what was promised. The error names the first
    /// wrong byte.
    pub fn check(&self, offset: u64, read: &[u8]) -> Result<(), String> {
        let range = self.range(offset, read.len());
        let wrong = (range.clone()).find(|&at| self.known[at / SECTOR] && self.bytes[at] != read[at - range.start]);
        let Some(at) = wrong else { return Ok(()) };
        Err(format!(
            "byte {at} (sector {}, byte {} of it) reads {:#04x} and must be {:#04x}",
            at / SECTOR,
            at % SECTOR,
            read[at - range.start],
            self.bytes[at]
        ))
    }

    fn know(&mut self, range: &Range<usize>, known: bool) {
        self.known[range.start / SECTOR..range.end / SECTOR].fill(known);
    }

    fn range(&self, offset: u64, len: usize) -> Range<usize> {
        let start = to_usize(offset);
        let range = start..start + len;
        assert!(range.end <= self.bytes.len(), "{range:?} leaves the model");
        assert_eq!((start % SECTOR, len % SECTOR), (0, 0), "not whole sectors");
        range
    }
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).expect("inside a model disk")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_is_named_and_unknown_ones_are_not_judged() {
        let mut model = ModelDisk::new(2048);
        model.check(0, &[9; 2048]).unwrap();
        model.write(512, &[7; 512]);
        model.zero(1024, 512);
        let mut read = vec![9; 2048];
        read[512..1024].fill(7);
        read[1024..1536].fill(0);
        model.check(0, &read).unwrap();
        read[1535] = 1;
        let error = model.check(0, &read).unwrap_err();
        assert!(error.starts_with("byte 1535 (sector 2, byte 511 of it)"), "{error}");
        model.discard(1024, 512);
        model.check(0, &read).unwrap();
    }
}
