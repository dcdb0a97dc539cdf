//! BTT, the block translation table: sectors that are never torn, on media that tear them.
//!
//! Persistent memory is written in units of eight bytes. A table makes each sector old or new
//! after a crash: it is written to a free block, logged, and only then put into the map.
//! Byte-compatible with Linux's `nd_btt` (version 1.1 of the UEFI specification's "Block
//! Translation Table"); docs/btt.md has the bytes.
//!
//! ```text
//! layout, info, flog, map    bytes and arithmetic, no I/O
//! medium                     ordered stores and persistence points
//! lanes                      who may write which log, who reads which block
//! arena                      a read, a write
//! open, format, check        the table as a whole
//! device                     the table as a device
//! ```
//!
//! The table does not lie over a [`Gate`](crate::Gate): its correctness is the order of four durable stores of 8 to
//! 4096 bytes, which a medium here can express (store, persist) and a request cannot. A recording medium checks every
//! state that a crash can leave. A lane is a token that a request owns until it completes. The map's cache lines have
//! locks, as in Linux: two writes of one sector must take turns.

mod arena;
mod check;
mod device;
pub mod flog;
mod format;
pub mod info;
mod lanes;
pub mod layout;
pub mod map;
mod medium;
mod open;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod damage_tests;
#[cfg(test)]
#[path = "tests/recorder.rs"]
mod recorder;
#[cfg(test)]
#[path = "tests/test_table.rs"]
mod test_table;
#[cfg(test)]
mod trap_tests;

pub use check::{BttDamage, BttProblem, Findings, Repair, check};
pub use device::BttDevice;
pub use format::NewTable;
pub use medium::BttMedium;
pub use open::{BttError, Copies, Located, locate};

use arena::BttArena;

use crate::Fault;

/// An open table: sectors over a medium, read and written by many threads.
pub struct Btt<M> {
    medium: M,
    arenas: Vec<(u64, BttArena)>,
    sector_size: u32,
    size: u64,
    warnings: Vec<InfoBlockLost>,
}

/// One of an arena's two info blocks is bad; a check can write it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InfoBlockLost {
    /// Which arena, from 0.
    pub arena: usize,
    /// Set for the copy at the arena's end.
    pub is_copy: bool,
}

impl std::fmt::Display for InfoBlockLost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = if self.is_copy {
            "the copy of its info block is bad"
        } else {
            "its info block is bad and its copy is used instead"
        };
        write!(f, "BTT arena {}: {what}", self.arena)
    }
}

impl<M: BttMedium> Btt<M> {
    /// Opens the table on `medium`, and completes interrupted writes unless `read_only`.
    ///
    /// # Errors
    /// No table, a damaged one, or one of another kind.
    pub fn open(medium: M, read_only: bool) -> Result<Self, BttError> {
        let located = locate(&medium)?;
        let mut arenas = Vec::with_capacity(located.len());
        let (mut size, mut warnings) = (0, Vec::new());
        for (number, arena) in located.iter().enumerate() {
            warnings.extend(warning(number, arena));
            arenas.push((size, open::open_arena(&medium, number, arena, read_only)?));
            size += arena.info.layout.external_size();
        }
        Ok(Self { medium, sector_size: located[0].info.layout.external_lbasize, arenas, size, warnings })
    }

    /// Bytes that the user sees.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes in a sector.
    #[must_use]
    pub fn sector_size(&self) -> u32 {
        self.sector_size
    }

    /// Returns the damage that does not matter yet.
    #[must_use]
    pub fn warnings(&self) -> &[InfoBlockLost] {
        &self.warnings
    }

    /// Reads whole sectors at `offset`. Threads do well to have different numbers as `home`.
    ///
    /// # Errors
    /// Where the medium fails, or a map entry is damaged.
    pub fn read(&self, home: usize, offset: u64, target: &mut [u8]) -> Result<(), Fault> {
        let (mut offset, mut rest) = (offset, target);
        while !rest.is_empty() {
            let (arena, premap, len) = self.find(offset, rest.len());
            let (piece, later) = rest.split_at_mut(len);
            arena.read(&self.medium, home, premap, piece)?;
            (offset, rest) = (offset + len as u64, later);
        }
        Ok(())
    }

    /// Writes whole sectors at `offset`, durably: each is old or new whatever happens.
    ///
    /// # Errors
    /// Where the medium fails, or a map entry is damaged.
    pub fn write(&self, home: usize, offset: u64, source: &[u8]) -> Result<(), Fault> {
        let (mut offset, mut rest) = (offset, source);
        while !rest.is_empty() {
            let (arena, premap, len) = self.find(offset, rest.len());
            let (piece, later) = rest.split_at(len);
            arena.write(&self.medium, home, premap, piece)?;
            (offset, rest) = (offset + len as u64, later);
        }
        Ok(())
    }

    /// Checks that everything that was written is still there. All of it is durable already.
    ///
    /// # Errors
    /// Where the medium is not what it was.
    pub fn flush(&self) -> Result<(), Fault> {
        self.medium.check()
    }

    /// The arena of byte `offset`, the sector in it, and how many of `len` bytes lie in it.
    fn find(&self, offset: u64, len: usize) -> (&BttArena, u32, usize) {
        let after = self.arenas.partition_point(|(start, _)| *start <= offset);
        let (start, arena) = &self.arenas[after - 1];
        let inside = offset - start;
        let left = arena.layout().external_size() - inside;
        let premap = inside / u64::from(self.sector_size);
        let premap = u32::try_from(premap).expect("a sector's number in an arena has 30 bits");
        (arena, premap, usize::try_from(left).map_or(len, |left| left.min(len)))
    }
}

fn warning(number: usize, arena: &Located) -> Option<InfoBlockLost> {
    (arena.copies != Copies::Both).then_some(InfoBlockLost { arena: number, is_copy: arena.copies == Copies::First })
}
