//! Making a table.
//!
//! A sector that was never written is read from the block of its own number, whatever that holds
//! (UEFI and Linux; the kernel's btt.rst says that it reads as zeros). So the blocks are cleared
//! too, and not only the map.
//!
//! Order (UEFI specification, "BTT Theory of Operation"): first the map and the log, then the info
//! blocks from the last arena to the first, each one's copy before it. Until the first arena's copy
//! is there, there is no table; an old one, with its copies, is taken out of the way first.

use super::flog::FlogGroup;
use super::info::InfoBlock;
use super::layout::{ARENA_MAX, ArenaLayout, INFO_SIZE, START_V1, arenas_of_at_most};
use super::medium::BttMedium;
use crate::Fault;

/// Bytes that are cleared between two reports of progress.
const STEP: u64 = 64 << 20;

/// Parameters of a table to be made.
#[derive(Clone, Copy, Debug)]
pub struct NewTable {
    /// Bytes in a sector: 512 or 4096.
    pub sector_size: u32,
    /// Must not be zero.
    pub uuid: [u8; 16],
    /// The medium reads as zeros: nothing needs to be cleared.
    pub is_zero: bool,
}

impl NewTable {
    /// Writes the table and calls `progress` with the bytes that are done. Returns the number of
    /// sectors, 0 where the medium is too small (nothing was written then).
    ///
    /// # Errors
    /// Where the medium fails; there is then no table.
    pub fn write(&self, medium: &impl BttMedium, progress: impl FnMut(u64)) -> Result<u64, Fault> {
        self.write_arenas(ARENA_MAX, medium, progress)
    }

    pub(super) fn write_arenas(
        &self,
        most: u64,
        medium: &impl BttMedium,
        mut progress: impl FnMut(u64),
    ) -> Result<u64, Fault> {
        let arenas = arenas_of_at_most(most, medium.size(), self.sector_size);
        let Some((last, _)) = arenas.last() else {
            return Ok(0);
        };
        if !self.is_zero {
            hide_old_table(medium, &arenas)?;
        }
        for (start, layout) in &arenas {
            if !self.is_zero {
                clear(medium, *start, layout, &mut progress)?;
            }
            let spare = layout.external_nlba;
            for lane in 0..layout.nfree {
                let group = FlogGroup::initial(lane, spare + lane);
                medium.store(start + layout.flog_offset(lane), &group)?;
            }
        }
        medium.persist()?;
        for (start, layout) in arenas.iter().rev() {
            let info = InfoBlock {
                uuid: self.uuid,
                parent_uuid: [0; 16],
                flags: 0,
                version: (1, 1),
                next: if start == last { 0 } else { layout.size },
                layout: *layout,
            };
            for offset in [start + layout.info_copy, *start] {
                medium.store(offset, &info.encode())?;
                medium.persist()?;
            }
        }
        let sectors = arenas.iter().map(|(_, layout)| u64::from(layout.external_nlba));
        Ok(sectors.sum())
    }

    /// Bytes that [`write`](Self::write) will report as done in the end.
    #[must_use]
    pub fn work(&self, size: u64) -> u64 {
        if self.is_zero { 0 } else { size.saturating_sub(START_V1) }
    }
}

/// Clears every place where an info block would be looked for.
fn hide_old_table(medium: &impl BttMedium, arenas: &[(u64, ArenaLayout)]) -> Result<(), Fault> {
    let both = |(start, layout): &(u64, ArenaLayout)| [*start, start + layout.info_copy];
    // And those of a version 2.0 table, which starts at byte 0.
    let whole = medium.size().min(ARENA_MAX);
    let version_2 = [0, whole - whole % INFO_SIZE - INFO_SIZE];
    for offset in version_2.into_iter().chain(arenas.iter().flat_map(both)) {
        medium.store(offset, &[0; 4096])?;
    }
    medium.persist()
}

/// Clears blocks, map, log and the copy of the info block.
fn clear(
    medium: &impl BttMedium,
    start: u64,
    layout: &ArenaLayout,
    progress: &mut impl FnMut(u64),
) -> Result<(), Fault> {
    let (mut at, end) = (start + INFO_SIZE, start + layout.size);
    while at < end {
        let len = STEP.min(end - at);
        medium.clear(at, len)?;
        at += len;
        progress(at - START_V1);
    }
    Ok(())
}
