//! Where everything lies in an arena: pure arithmetic (UEFI specification, "BTT Layout").
//!
//! ```text
//! 0          4096                    map           flog        info copy    size
//! ├─ info ───┼─ internal blocks ─────┼─ map ───────┼─ flog ────┼─ info ─────┤
//! │          │ external + nfree      │ 4 bytes per │ 64 bytes  │ the same   │
//! │          │                       │ external    │ per lane  │            │
//! ```
//!
//! All offsets are bytes from the start of the arena.

/// Bytes in an info block; also the unit in which an arena is laid out.
pub const INFO_SIZE: u64 = 4096;
/// Largest arena in bytes: the next one starts exactly here.
pub const ARENA_MAX: u64 = 512 << 30;
/// Smallest arena in bytes; a rest that is shorter stays unused.
pub const ARENA_MIN: u64 = 16 << 20;
/// Spare blocks, and so lanes, of an arena that we make.
pub const NFREE: u32 = 256;
/// Bytes in the flog group of one lane: four slots, of which two are used.
pub const FLOG_GROUP: u64 = 64;
/// Bytes in a map entry.
pub const MAP_ENTRY: u64 = 4;
/// Where the first arena of a version 1.1 table starts on its medium.
pub const START_V1: u64 = 4096;

/// Alignment of internal blocks in bytes.
const BLOCK_ALIGN: u64 = 64;
/// A map entry has 30 bits for a block number.
const BLOCKS_MAX: u64 = 1 << 30;

/// One arena's geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaLayout {
    /// Bytes from the first info block to the end of its copy.
    pub size: u64,
    /// Bytes in a sector as the user sees it.
    pub external_lbasize: u32,
    /// Sectors that the user sees.
    pub external_nlba: u32,
    /// Bytes in a block on the medium.
    pub internal_lbasize: u32,
    /// Blocks on the medium: those in use and `nfree` spare ones.
    pub internal_nlba: u32,
    /// Spare blocks; one for each lane.
    pub nfree: u32,
    /// First byte of the blocks.
    pub data: u64,
    /// First byte of the map.
    pub map: u64,
    /// First byte of the flog.
    pub flog: u64,
    /// First byte of the info block's copy.
    pub info_copy: u64,
}

impl ArenaLayout {
    /// The layout of an arena of at most `size` bytes with sectors of `external_lbasize` bytes.
    /// `None` where such an arena can not be: smaller than [`ARENA_MIN`], larger than
    /// [`ARENA_MAX`], or with a sector that is neither 512 nor 4096 bytes.
    #[must_use]
    pub fn new(size: u64, external_lbasize: u32) -> Option<Self> {
        let size = size - size % INFO_SIZE;
        if !(ARENA_MIN..=ARENA_MAX).contains(&size) || !is_sector_size(external_lbasize) {
            return None;
        }
        let block = u64::from(external_lbasize).next_multiple_of(BLOCK_ALIGN);
        let flog_len = (u64::from(NFREE) * FLOG_GROUP).next_multiple_of(INFO_SIZE);
        let available = size - 2 * INFO_SIZE - flog_len;
        // One unit is kept back for rounding the map up.
        let internal = (available - INFO_SIZE) / (block + MAP_ENTRY);
        let external = internal.checked_sub(u64::from(NFREE))?;
        if internal > BLOCKS_MAX {
            return None;
        }
        let map_len = (external * MAP_ENTRY).next_multiple_of(INFO_SIZE);
        let map = INFO_SIZE + available - map_len;
        Some(Self {
            size,
            external_lbasize,
            external_nlba: u32::try_from(external).ok()?,
            internal_lbasize: u32::try_from(block).ok()?,
            internal_nlba: u32::try_from(internal).ok()?,
            nfree: NFREE,
            data: INFO_SIZE,
            map,
            flog: map + map_len,
            info_copy: map + map_len + flog_len,
        })
    }

    /// Bytes that the user sees.
    #[must_use]
    pub fn external_size(&self) -> u64 {
        u64::from(self.external_nlba) * u64::from(self.external_lbasize)
    }

    /// Checks that the parts follow one another inside the arena and have room for what they hold.
    ///
    /// # Errors
    /// The rule that is broken, for a message.
    pub fn check(&self) -> Result<(), &'static str> {
        let blocks = u64::from(self.internal_nlba) * u64::from(self.internal_lbasize);
        let map_len = u64::from(self.external_nlba) * MAP_ENTRY;
        let flog_len = u64::from(self.nfree) * FLOG_GROUP;
        let room = |from: u64, to: u64, needed: u64| to.checked_sub(from).is_some_and(|room| room >= needed);
        let rules = [
            (is_sector_size(self.external_lbasize), "its sectors have neither 512 nor 4096 bytes"),
            (self.internal_lbasize >= self.external_lbasize, "its blocks are smaller than its sectors"),
            ((1..=4096).contains(&self.nfree), "it has no spare blocks, or more than 4096"),
            (
                u64::from(self.external_nlba) + u64::from(self.nfree) == u64::from(self.internal_nlba)
                    && self.external_nlba > 0
                    && u64::from(self.internal_nlba) <= BLOCKS_MAX,
                "its numbers of blocks contradict each other",
            ),
            (
                [self.data, self.map, self.flog, self.info_copy]
                    .iter()
                    .all(|offset| offset.is_multiple_of(BLOCK_ALIGN)),
                "its parts are not aligned",
            ),
            (
                self.data >= INFO_SIZE
                    && room(self.data, self.map, blocks)
                    && room(self.map, self.flog, map_len)
                    && room(self.flog, self.info_copy, flog_len)
                    && room(self.info_copy, self.size, INFO_SIZE),
                "its parts overlap",
            ),
            ((ARENA_MIN..=ARENA_MAX).contains(&self.size), "it is smaller than 16 MiB or larger than 512 GiB"),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, why)) => Err(why),
            None => Ok(()),
        }
    }

    /// First byte of internal block `block`.
    #[must_use]
    pub fn block_offset(&self, block: u32) -> u64 {
        self.data + u64::from(block) * u64::from(self.internal_lbasize)
    }

    /// First byte of the map entry of sector `premap`.
    #[must_use]
    pub fn map_offset(&self, premap: u32) -> u64 {
        self.map + u64::from(premap) * MAP_ENTRY
    }

    /// First byte of the flog group of `lane`.
    #[must_use]
    pub fn flog_offset(&self, lane: u32) -> u64 {
        self.flog + u64::from(lane) * FLOG_GROUP
    }
}

/// The arenas of a medium of `size` bytes whose table starts at [`START_V1`], as offsets on the
/// medium; none where the medium is too small.
#[must_use]
pub fn arenas(size: u64, external_lbasize: u32) -> Vec<(u64, ArenaLayout)> {
    arenas_of_at_most(ARENA_MAX, size, external_lbasize)
}

/// As [`arenas`], with another largest arena: tests have no terabytes.
pub(super) fn arenas_of_at_most(most: u64, size: u64, external_lbasize: u32) -> Vec<(u64, ArenaLayout)> {
    let mut found = Vec::new();
    let mut start = START_V1;
    while let Some(rest) = size.checked_sub(start) {
        let Some(layout) = ArenaLayout::new(rest.min(most), external_lbasize) else {
            break;
        };
        found.push((start, layout));
        start += layout.size;
    }
    found
}

/// Tells if sectors can have this many bytes. Those with integrity metadata (520, 4104 and so on) are not for disks
/// that a cipher lies over.
#[must_use]
pub fn is_sector_size(bytes: u32) -> bool {
    matches!(bytes, 512 | 4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that the Linux driver computes for the same arenas.
    #[test]
    fn layouts_are_those_of_linux() {
        let layout = |size, sector| ArenaLayout::new(size, sector).unwrap();
        let small = layout(16 << 20, 512);
        assert_eq!((small.internal_nlba, small.external_nlba), (32458, 32202));
        assert_eq!((small.map, small.flog, small.info_copy), (16_625_664, 16_756_736, 16_773_120));
        let small = layout(16 << 20, 4096);
        assert_eq!((small.internal_nlba, small.external_nlba), (4085, 3829));
        assert_eq!(small.map, 16_740_352);
        let middle = layout(1 << 30, 4096);
        assert_eq!((middle.internal_nlba, middle.external_nlba), (261_881, 261_625));
        assert_eq!(middle.map, 1_072_672_768);
        let largest = layout(512 << 30, 512);
        assert_eq!((largest.internal_nlba, largest.external_nlba), (1_065_418_188, 1_065_417_932));
        assert_eq!(largest.map, 545_494_118_400);
    }

    #[test]
    fn every_layout_passes_its_own_check() {
        for sector in [512, 4096] {
            for size in (0..400).map(|step| ARENA_MIN + step * 52_345) {
                let layout = ArenaLayout::new(size, sector).unwrap();
                assert_eq!(layout.check(), Ok(()));
                assert_eq!(layout.size, size - size % 4096);
                assert_eq!(layout.info_copy + INFO_SIZE, layout.size);
            }
        }
    }

    #[test]
    fn arenas_fill_the_medium_and_a_short_rest_is_left() {
        let most = 16 << 20;
        let two_and_a_bit = START_V1 + 2 * most + ARENA_MIN - 1;
        let found = arenas_of_at_most(most, two_and_a_bit, 512);
        let starts: Vec<u64> = found.iter().map(|(start, _)| *start).collect();
        assert_eq!(starts, [4096, 4096 + most]);
        assert_eq!(arenas_of_at_most(most, two_and_a_bit + 1, 512).len(), 3);
        assert!(arenas(ARENA_MIN, 512).is_empty());
        assert!(arenas(0, 512).is_empty());
        let huge = arenas((512 << 30) + (20 << 20), 4096);
        assert_eq!((huge.len(), huge[1].0), (2, START_V1 + ARENA_MAX));
    }

    #[test]
    fn sectors_with_integrity_metadata_are_refused() {
        for sector in [0, 256, 520, 528, 1024, 4104, 4160, 4224, 8192] {
            assert_eq!(ArenaLayout::new(ARENA_MIN, sector), None);
        }
    }
}
