//! `zoned`: a host-managed zoned device, emulated over a file or RAM.
//!
//! ```text
//! request ─► state machine (zone/table.rs): may it be written, and where?
//!               │
//!               ▼
//!            lower device: the bytes, each at its own offset
//!               │
//!               ▼
//!            write pointer moves ─► on flush: journal (zone/journal.rs) ─► state file
//! ```
//!
//! Each offset of the file holds what the device has there, so a conventional zone can hold a header that any tool
//! reads. The write pointers are in a file beside it, `PATH.zones`, and are saved by flushes, durable writes and
//! resets; docs/zoned.md says what a crash leaves.
//!
//! One write to each zone may be under way at a time; while it is, another at its end is off the
//! write pointer. A medium that answers at once is never under way. `layer/zoned` keeps writes in
//! order above it.

mod create;
mod queue;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
#[path = "tests/test_world.rs"]
mod test_world;

use std::sync::Arc;

use cryptline_sys::{BackendChoice, Ring};

pub use self::create::{ZoneOptions, ZonedFile};
use crate::blocking::Blocking;
use crate::gate::Gate;
use crate::zone::journal::ZoneJournal;
use crate::zone::{Zone, ZoneLayout, ZoneTable};
use crate::{Device, Extent, Fault, Geometry, OpenError, Queue, Traits};

/// An emulated zoned device.
pub struct ZonedDevice {
    shared: Arc<ZonedShared>,
    geometry: Geometry,
}

/// State common to all queues of one device.
struct ZonedShared {
    lower: Gate,
    table: Arc<ZoneTable>,
    /// `None` where the zones do not outlive the process.
    journal: Option<ZoneJournal>,
}

impl ZonedDevice {
    /// Zones over a device that forgets, all empty.
    ///
    /// Errors: `lower` does not have the size of the layout, or has blocks larger than its write
    /// granularity.
    pub fn in_memory(lower: Gate, layout: ZoneLayout) -> Result<Self, OpenError> {
        Self::new(lower, ZoneTable::new(layout), None)
    }

    /// Zones over `lower`, in the state of `table`, which `journal` keeps.
    ///
    /// Errors: as [`in_memory`](Self::in_memory).
    pub fn new(lower: Gate, table: ZoneTable, journal: Option<ZoneJournal>) -> Result<Self, OpenError> {
        let (below, layout) = (*lower.geometry(), *table.layout());
        if below.size != layout.size() || below.zones.is_some() {
            return Err(OpenError::Geometry(format!(
                "{} zones of {} bytes do not fit a device of {} bytes",
                layout.count, layout.zone_size, below.size
            )));
        }
        if below.logical_block > layout.write_granularity {
            return Err(OpenError::Blocks(format!(
                "zones written in units of {} bytes do not fit the device's {}-byte blocks",
                layout.write_granularity, below.logical_block
            )));
        }
        let geometry = Geometry {
            preferred_block: below.preferred_block.max(layout.write_granularity),
            // A sequential zone is reset instead.
            discard: below.discard && layout.conventional > 0,
            zones: Some(layout.model()),
            ..below
        };
        Ok(Self { shared: Arc::new(ZonedShared { lower, table: Arc::new(table), journal }), geometry })
    }
}

impl Device for ZonedDevice {
    fn traits(&self) -> Traits {
        Traits { geometry: self.geometry, ..Traits::over(self.below()) }
    }

    fn below(&self) -> &[Gate] {
        std::slice::from_ref(&self.shared.lower)
    }

    fn open_queue(&self, ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        Ok(Box::new(queue::open(Arc::clone(&self.shared), ring)?))
    }

    fn extent(&self, offset: u64, len: u64) -> Result<Extent, Fault> {
        let (index, in_zone) = self.shared.place_of(offset);
        let len = len.min(self.shared.table.layout().zone_size - in_zone);
        let readable = self.shared.table.readable(index)?;
        if in_zone >= readable {
            return Ok(Extent { len, hole: true, zero: true });
        }
        self.shared.lower.extent(offset, len.min(readable - in_zone))
    }

    fn report_zones(&self, offset: u64, zones: &mut [Zone]) -> Result<usize, Fault> {
        let table = &self.shared.table;
        let first = self.shared.place_of(offset).0;
        let mut count = 0;
        for (place, index) in zones.iter_mut().zip(first..table.layout().count) {
            *place = table.report(index);
            count += 1;
        }
        Ok(count)
    }
}

impl ZonedShared {
    /// The zone that holds `offset`, and how far into it that is.
    fn place_of(&self, offset: u64) -> (u32, u64) {
        let zone_size = self.table.layout().zone_size;
        // A layout has fewer zones than 2^32, and the gate has checked the range.
        let index = u32::try_from(offset / zone_size).unwrap_or(u32::MAX);
        (index, offset % zone_size)
    }

    /// Checks that writes may still be made: not after the journal has failed.
    fn may_write(&self) -> Result<(), Fault> {
        match &self.journal {
            Some(journal) if journal.has_failed() => Err(Fault::Latched),
            _ => Ok(()),
        }
    }

    fn flush_and_save(&self) -> Result<(), Fault> {
        let Some(journal) = &self.journal else {
            return Ok(());
        };
        let mut unsaved = Vec::new();
        self.table.each_unsaved(|index, saved| unsaved.push((index, saved)));
        if unsaved.is_empty() {
            return Ok(());
        }
        let lower = Blocking::new(&self.lower, BackendChoice::Syscalls);
        lower.map_err(|_| Fault::Io(rustix::io::Errno::IO))?.flush()?;
        journal.commit(&unsaved, &self.table)
    }
}

/// A disk that is switched off in good order keeps what was written, flushed or not. Nobody can be
/// told where that fails; only what was not flushed is lost then.
impl Drop for ZonedShared {
    fn drop(&mut self) {
        let _ = self.flush_and_save();
    }
}
