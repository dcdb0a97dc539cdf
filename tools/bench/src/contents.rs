//! Bytes that depend on their offset alone, so that any read can be checked without a copy of the disk.

use cryptline_engine::blocking::Blocking;
use cryptline_engine::{BackendChoice, Fault, Gate};
use sha2::{Digest, Sha256};

use crate::error::{Of as _, Result};

/// Bytes that look random to a cipher and a file system and are known for every offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestPattern {
    seed: u64,
}

/// Bytes of a word.
const WORD: u64 = 8;
/// Bytes that are compared at a time.
const PIECE: usize = 4096;

impl TestPattern {
    /// One of many.
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Fills `bytes` with what belongs at `offset`.
    pub fn fill(self, offset: u64, bytes: &mut [u8]) {
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let word = self.word(at / WORD);
            // Below 8.
            let skip = (at % WORD) as usize;
            let len = rest.len().min(word.len() - skip);
            let (now, later) = rest.split_at_mut(len);
            now.copy_from_slice(&word[skip..skip + len]);
            at += len as u64;
            rest = later;
        }
    }

    /// The first offset at which `bytes`, read at `offset`, are not these contents.
    pub fn first_difference(self, offset: u64, bytes: &[u8]) -> Option<u64> {
        let mut expected = [0; PIECE];
        for (start, piece) in (offset..).step_by(PIECE).zip(bytes.chunks(PIECE)) {
            let expected = &mut expected[..piece.len()];
            self.fill(start, expected);
            let differs = |(found, expected)| found != expected;
            if let Some(at) = piece.iter().zip(expected.iter()).position(differs) {
                return Some(start + at as u64);
            }
        }
        None
    }

    /// Writes them to all of a volume, `piece` bytes in a request. Their SHA-256 in hexadecimal digits.
    pub fn write_to(self, gate: &Gate, piece: usize) -> Result<String> {
        self.write_to_each(&[gate], piece)
    }

    /// The same to several volumes of one size, each piece to all of them in turn: so none has the better places. In
    /// memory, what is written first is scattered over what others have left, and slower to read by a fifth.
    pub fn write_to_each(self, gates: &[&Gate], piece: usize) -> Result<String> {
        let mut sum = Sha256::new();
        let writers = gates.iter().map(|gate| Blocking::new(gate, BackendChoice::Auto));
        let mut writers = writers.collect::<Result<Vec<_>, _>>()?;
        let Some(first) = gates.first() else {
            return Ok(base16ct::lower::encode_string(&sum.finalize()));
        };
        each_piece(first, piece, "write", |offset, bytes| {
            self.fill(offset, bytes);
            sum.update(&*bytes);
            let mut writers = writers.iter_mut();
            writers.try_for_each(|writer| writer.write_at(offset, bytes, false))
        })?;
        writers.iter_mut().try_for_each(Blocking::flush).of("cannot flush the medium")?;
        Ok(base16ct::lower::encode_string(&sum.finalize()))
    }

    /// Tells if a volume begins with them.
    pub fn is_at_start_of(self, gate: &Gate) -> Result<bool> {
        let mut found = [0; 4096];
        let mut reader = Blocking::new(gate, BackendChoice::Auto)?;
        reader.read_at(0, &mut found).of("cannot read the medium")?;
        Ok(self.first_difference(0, &found).is_none())
    }

    fn word(self, index: u64) -> [u8; 8] {
        random(self.seed, index).to_le_bytes()
    }
}

/// The number at `index`: the output of splitmix64 for a state that is the index.
///
/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
pub fn random(seed: u64, index: u64) -> u64 {
    let mut word = seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Reads all of a volume, `piece` bytes in a request; its SHA-256 in hexadecimal digits.
pub fn sha256_of(gate: &Gate, piece: usize) -> Result<String> {
    let mut sum = Sha256::new();
    let mut reader = Blocking::new(gate, BackendChoice::Auto)?;
    each_piece(gate, piece, "read", |offset, bytes| {
        reader.read_at(offset, bytes)?;
        sum.update(bytes);
        Ok(())
    })?;
    Ok(base16ct::lower::encode_string(&sum.finalize()))
}

/// Goes through a volume from its first byte to its last.
fn each_piece(
    gate: &Gate,
    piece: usize,
    verb: &str,
    mut with: impl FnMut(u64, &mut [u8]) -> Result<(), Fault>,
) -> Result<()> {
    let mut bytes = vec![0; piece];
    let (mut offset, size) = (0, gate.geometry().size);
    while offset < size {
        let left = usize::try_from(size - offset).unwrap_or(piece);
        let bytes = &mut bytes[..left.min(piece)];
        with(offset, bytes).of(format_args!("cannot {verb} at byte {offset}"))?;
        offset += bytes.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_what_the_whole_has_there() {
        let contents = TestPattern::new(7);
        let mut whole = [0; 100];
        contents.fill(1000, &mut whole);
        for (start, end) in [(0, 100), (1, 2), (3, 50), (8, 16), (99, 100)] {
            let mut piece = vec![0; end - start];
            contents.fill(1000 + start as u64, &mut piece);
            assert_eq!(piece, whole[start..end]);
            assert_eq!(contents.first_difference(1000 + start as u64, &piece), None);
        }
    }

    #[test]
    fn one_wrong_bit_and_a_wrong_place_are_found() {
        let contents = TestPattern::new(7);
        let mut bytes = [0; 64];
        contents.fill(3, &mut bytes);
        bytes[41] ^= 1;
        assert_eq!(contents.first_difference(3, &bytes), Some(44));
        bytes[41] ^= 1;
        assert!(contents.first_difference(3 + 4096, &bytes).is_some());
        assert!(TestPattern::new(8).first_difference(3, &bytes).is_some());
    }
}
