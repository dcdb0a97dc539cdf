//! A map entry: where a sector's data is.
//!
//! | bits 31, 30 | state |
//! |---|---|
//! | 00 | initial: the sector is in the block of its own number |
//! | 01 | error: reading fails |
//! | 10 | zero: reads as zeros |
//! | 11 | normal |
//!
//! Bits 29 to 0 are the block. (The kernel's btt.rst names bits 31 and 30 the other way round; its
//! code, UEFI and PMDK agree with this table.)

/// The bits of a block number.
pub const BLOCK_MASK: u32 = (1 << 30) - 1;
const ZERO: u32 = 1 << 31;
const ERROR: u32 = 1 << 30;

/// Result of reading a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectorState {
    /// The bytes of its block.
    Data,
    /// Zeros. Written by PMDK, never by Linux, which misreads the rest of the page after one.
    Zero,
    /// An error: the medium lost the data.
    Error,
}

/// One decoded entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapEntry {
    /// The block that belongs to the sector, whatever its state (postmap).
    pub block: u32,
    /// Result of a read.
    pub state: SectorState,
}

impl MapEntry {
    /// The entry `raw` of sector `premap`.
    #[must_use]
    pub fn decode(raw: u32, premap: u32) -> Self {
        let block = raw & BLOCK_MASK;
        let (block, state) = match (raw & ZERO != 0, raw & ERROR != 0) {
            (false, false) => (premap, SectorState::Data),
            (true, true) => (block, SectorState::Data),
            (true, false) => (block, SectorState::Zero),
            (false, true) => (block, SectorState::Error),
        };
        Self { block, state }
    }

    /// A normal entry for `block`. The only kind that is ever written here: Linux misreads a
    /// page that begins with a zero entry.
    #[must_use]
    pub fn normal(block: u32) -> u32 {
        block & BLOCK_MASK | ZERO | ERROR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_31_is_zero_and_bit_30_is_error() {
        let decode = |raw| {
            let entry = MapEntry::decode(raw, 7);
            (entry.block, entry.state)
        };
        assert_eq!(decode(0), (7, SectorState::Data));
        assert_eq!(decode(0x8000_0009), (9, SectorState::Zero));
        assert_eq!(decode(0x4000_0009), (9, SectorState::Error));
        assert_eq!(decode(0xc000_0009), (9, SectorState::Data));
        assert_eq!(decode(MapEntry::normal(9)), (9, SectorState::Data));
        assert_eq!(MapEntry::normal(0), 0xc000_0000);
    }
}
