//! The flog ("free list and log"): for each lane the last two map changes made on it.
//!
//! ```text
//! group of a lane, 64 bytes
//! ├─ slot 0 ─────┼─ slot 1 ─────┼─ slot 2 ─────┼─ slot 3 ─────┤
//! │ lba old new seq                                           │  four u32 each
//! ```
//!
//! Two slots are in use: 0 and 1, or 0 and 2 in tables of kernels before 4.15. They are written in
//! turn, and `seq` runs 1 → 2 → 3 → 1, so of two the newer is known. `old` of the newer one is the
//! lane's free block. Where `new` is not yet in the map, the write was interrupted after its
//! commit point and is completed at the next opening (UEFI rolls forward; the kernel's btt.rst
//! tells it the other way round, its code does not).

use super::map::BLOCK_MASK;

/// Bytes in a group.
pub const GROUP_LEN: usize = 64;
/// Bytes in a slot.
pub const SLOT_LEN: usize = 16;
const SLOTS: usize = GROUP_LEN / SLOT_LEN;

/// One slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlogEntry {
    /// The sector that was written (premap).
    pub lba: u32,
    /// The block it had: free since.
    pub old: u32,
    /// The block it has.
    pub new: u32,
    /// 1, 2 or 3; 0 where nothing was ever written.
    pub seq: u32,
}

impl FlogEntry {
    /// The first eight bytes, as one little-endian word.
    #[must_use]
    pub fn low_half(&self) -> u64 {
        u64::from(self.old) << 32 | u64::from(self.lba)
    }

    /// The last eight bytes, whose arrival is the commit point of a write.
    #[must_use]
    pub fn high_half(&self) -> u64 {
        u64::from(self.seq) << 32 | u64::from(self.new)
    }

    /// Tells if a write was logged here; the initial entry logs none.
    #[must_use]
    pub fn is_write(&self) -> bool {
        self.old != self.new
    }
}

/// The four slots of a lane. `old` and `new` come without the flag bits that PMDK puts there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlogGroup([FlogEntry; SLOTS]);

impl FlogGroup {
    /// Reads a group; every 64 bytes are one.
    #[must_use]
    pub fn parse(bytes: &[u8; GROUP_LEN]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(word)
        };
        let entry = |slot: usize| FlogEntry {
            lba: word(slot * SLOT_LEN),
            old: word(slot * SLOT_LEN + 4) & BLOCK_MASK,
            new: word(slot * SLOT_LEN + 8) & BLOCK_MASK,
            seq: word(slot * SLOT_LEN + 12),
        };
        Self([entry(0), entry(1), entry(2), entry(3)])
    }

    /// Returns the entries of a new table for `lane`, whose free block is `block`.
    #[must_use]
    pub fn initial(lane: u32, block: u32) -> [u8; GROUP_LEN] {
        let first = FlogEntry { lba: lane, old: block, new: block, seq: 1 };
        let mut bytes = [0; GROUP_LEN];
        bytes[..8].copy_from_slice(&first.low_half().to_le_bytes());
        bytes[8..16].copy_from_slice(&first.high_half().to_le_bytes());
        bytes
    }

    /// Tells if anything was ever written to `slot`.
    fn is_used(&self, slot: usize) -> bool {
        self.0[slot] != FlogEntry::default()
    }
}

/// Which two slots of every group are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slots {
    /// 0 and 1: UEFI, PMDK, Linux since 4.15.
    ZeroOne,
    /// 0 and 2: Linux before 4.15, where the padding was in the wrong place.
    ZeroTwo,
}

/// Why a flog makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlogError {
    /// Slots are used that never are.
    #[error("lanes use different slots of their log")]
    Slots,
    /// The two entries can not be put in order.
    #[error("sequence numbers {0} and {1} do not follow each other")]
    Sequence(u32, u32),
}

impl Slots {
    /// The slots that these groups use. A table that was never written uses slot 0 only, and may
    /// then use what we like.
    pub fn detect<'a>(groups: impl IntoIterator<Item = &'a FlogGroup>) -> Result<Self, FlogError> {
        let (mut one, mut two) = (false, false);
        for group in groups {
            one |= group.is_used(1);
            two |= group.is_used(2);
            if !group.is_used(0) || group.is_used(3) {
                return Err(FlogError::Slots);
            }
        }
        match (one, two) {
            (_, false) => Ok(Self::ZeroOne),
            (false, true) => Ok(Self::ZeroTwo),
            (true, true) => Err(FlogError::Slots),
        }
    }

    /// The number of the slot that is the first or second of the pair.
    #[must_use]
    pub fn number(self, second: bool) -> usize {
        match (second, self) {
            (false, _) => 0,
            (true, Self::ZeroOne) => 1,
            (true, Self::ZeroTwo) => 2,
        }
    }

    /// The newer entry of a group, and whether it is the second of the pair.
    pub fn newer(self, group: &FlogGroup) -> Result<(FlogEntry, bool), FlogError> {
        let pair = [false, true].map(|second| group.0[self.number(second)]);
        let [first, second] = pair.map(|entry| entry.seq);
        let is_second = match (first, second) {
            (1..=3, 0) => false,
            (0, 1..=3) => true,
            (1..=3, 1..=3) if second == next_seq(first) => true,
            (1..=3, 1..=3) if first == next_seq(second) => false,
            _ => return Err(FlogError::Sequence(first, second)),
        };
        Ok((pair[usize::from(is_second)], is_second))
    }
}

/// 1 → 2 → 3 → 1.
#[must_use]
pub fn next_seq(seq: u32) -> u32 {
    seq % 3 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(slots: [(usize, u32); 2]) -> FlogGroup {
        let mut group = FlogGroup::default();
        for (slot, seq) in slots {
            group.0[slot] = FlogEntry { lba: 9, old: 100 + seq, new: 200 + seq, seq };
        }
        group
    }

    #[test]
    fn newer_entry_is_found_by_cyclic_order() {
        let newer = |first, second| {
            let found = Slots::ZeroOne.newer(&group([(0, first), (1, second)]));
            found.map(|(entry, is_second)| (entry.seq, is_second))
        };
        assert_eq!(newer(1, 0), Ok((1, false)));
        assert_eq!(newer(0, 1), Ok((1, true)));
        for (older, later) in [(1, 2), (2, 3), (3, 1)] {
            assert_eq!(newer(older, later), Ok((later, true)));
            assert_eq!(newer(later, older), Ok((later, false)));
        }
        for (first, second) in [(0, 0), (1, 1), (3, 3), (4, 1), (1, 4), (0, 4), (4, 0)] {
            assert_eq!(newer(first, second), Err(FlogError::Sequence(first, second)));
        }
    }

    #[test]
    fn slots_of_old_kernels_are_recognised() {
        let fresh = FlogGroup::parse(&FlogGroup::initial(3, 77));
        let new_style = group([(0, 2), (1, 1)]);
        let old_style = group([(0, 2), (2, 3)]);
        let detect = |groups: &[FlogGroup]| Slots::detect(groups);
        assert_eq!(detect(&[fresh, fresh]), Ok(Slots::ZeroOne));
        assert_eq!(detect(&[fresh, new_style]), Ok(Slots::ZeroOne));
        assert_eq!(detect(&[fresh, old_style]), Ok(Slots::ZeroTwo));
        assert_eq!(detect(&[old_style, new_style]), Err(FlogError::Slots));
        assert_eq!(detect(&[fresh, FlogGroup::default()]), Err(FlogError::Slots));
        assert_eq!(detect(&[group([(0, 1), (3, 1)])]), Err(FlogError::Slots));
        let (newest, is_second) = Slots::ZeroTwo.newer(&old_style).unwrap();
        assert_eq!((newest.seq, is_second), (3, true));
        assert_eq!(Slots::ZeroTwo.number(true), 2);
    }

    /// PMDK writes NORMAL (bits 31 and 30) with the numbers, and ZERO at first.
    #[test]
    fn flag_bits_in_the_log_are_ignored() {
        let mut bytes = FlogGroup::initial(0, 5);
        bytes[7] |= 0x80;
        bytes[11] |= 0xc0;
        let (entry, _) = Slots::ZeroOne.newer(&FlogGroup::parse(&bytes)).unwrap();
        assert_eq!((entry.old, entry.new), (5, 5));
        assert!(!entry.is_write());
    }

    #[test]
    fn halves_are_the_bytes_on_the_medium() {
        let entry = FlogEntry { lba: 1, old: 2, new: 3, seq: 2 };
        let mut bytes = [0; GROUP_LEN];
        bytes[..8].copy_from_slice(&entry.low_half().to_le_bytes());
        bytes[8..16].copy_from_slice(&entry.high_half().to_le_bytes());
        assert_eq!(FlogGroup::parse(&bytes).0[0], entry);
        assert_eq!([1, 2, 3].map(next_seq), [2, 3, 1]);
    }
}
