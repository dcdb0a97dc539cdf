//! The state machine of zones, without I/O: what `null_blk` does, error for error.
//!
//! ```text
//!               write, append                     end of the capacity, finish
//!   EMPTY ─────────────────────► IMPLICIT OPEN ──────────────────────────────► FULL
//!     │  ╲ open                     │ ▲ write       ╲ open                      ▲
//!     │   ╲                   close ▼ │              ▼                          │
//!     │    ╲──────────────────► CLOSED ───────► EXPLICIT OPEN ─── finish ───────┘
//!     └◄──────────────────────── reset ────────────────────────────────────────
//! ```
//!
//! A write is in two halves: [`begin_write`](ZoneTable::begin_write) checks it and opens the zone,
//! [`end_write`](ZoneTable::end_write) moves the write pointer once the data are written. So a
//! write pointer never passes data that are not there. In between the zone is busy, and what else
//! comes for it is refused.
//!
//! **Locks.** Each zone has its own, held for a few instructions and never across I/O. The counts
//! of open and active zones have one too, which only a change of a zone's condition takes: the
//! writes of an open zone do not. Whoever needs both takes the counts' first; two zones' locks are
//! held together only under it.
//!
//! Source: drivers/block/null_blk/zoned.c of Linux 6.1, read and followed in its behaviour.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use cryptline_sys::lock;

use super::{Zone, ZoneCondition as Condition, ZoneLayout, ZoneType};
use crate::Fault;

/// All zones of a device.
pub struct ZoneTable {
    layout: ZoneLayout,
    /// The sequential zones.
    cells: Box<[Mutex<Cell>]>,
    counts: Mutex<ZoneCounts>,
    /// One bit for each zone: it has changed since it was last known to be saved. Changed under
    /// the zone's lock, looked at without.
    dirty: Box<[AtomicU64]>,
}

/// One sequential zone. Positions in bytes from its start.
#[derive(Clone, Copy, Debug)]
struct Cell {
    condition: Condition,
    pointer: u64,
    /// End of what has been written; less than the pointer of a zone that was finished.
    written: u64,
    /// A write or a reset is under way.
    busy: bool,
    /// Counts resets.
    life: u64,
}

/// State of a zone that survives a restart. Positions in bytes from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// Empty, closed, full, read-only or offline.
    pub condition: Condition,
    /// The write pointer.
    pub pointer: u64,
    /// End of what has been written.
    pub written: u64,
    /// Tells what was saved before a reset from what came after.
    pub life: u64,
}

/// Zones that count against the limits.
#[derive(Default)]
struct ZoneCounts {
    implicit: u32,
    explicit: u32,
    closed: u32,
    /// Where to look for the next implicitly open zone to close: a cell's index.
    next: usize,
}

impl ZoneTable {
    /// A table with all sequential zones empty.
    #[must_use]
    pub fn new(layout: ZoneLayout) -> Self {
        let empty = Saved { condition: Condition::Empty, ..Saved::default() };
        Self::load(layout, |_| empty)
    }

    /// A table as `saved` says for the index of each sequential zone. Nothing is open.
    #[must_use]
    pub fn load(layout: ZoneLayout, saved: impl Fn(u32) -> Saved) -> Self {
        let mut counts = ZoneCounts::default();
        let cells = (layout.conventional..layout.count).map(|index| {
            let saved = saved(index);
            counts.closed += u32::from(saved.condition == Condition::Closed);
            Mutex::new(Cell {
                condition: saved.condition,
                pointer: saved.pointer,
                written: saved.written,
                busy: false,
                life: saved.life,
            })
        });
        Self {
            cells: cells.collect(),
            counts: Mutex::new(counts),
            dirty: (0..layout.count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            layout,
        }
    }

    /// How the zones lie.
    #[must_use]
    pub fn layout(&self) -> &ZoneLayout {
        &self.layout
    }

    /// The report of one zone.
    #[must_use]
    pub fn report(&self, index: u32) -> Zone {
        let Ok(cell) = self.cell(index) else {
            return self.layout.conventional_zone(index);
        };
        let cell = *lock(cell);
        let start = self.layout.start_of(index);
        Zone {
            start,
            length: self.layout.zone_size,
            capacity: self.layout.capacity,
            write_pointer: start + cell.pointer,
            kind: ZoneType::SequentialRequired,
            condition: cell.condition,
        }
    }

    /// Returns the state that would survive a restart now: only of writes that have ended.
    #[must_use]
    pub fn saved(&self, index: u32) -> Saved {
        let Ok(cell) = self.cell(index) else {
            return Saved::default();
        };
        let cell = *lock(cell);
        cell.saved()
    }

    /// Calls `found` for each zone that has changed since it was saved.
    pub fn each_unsaved(&self, mut found: impl FnMut(u32, Saved)) {
        for (at, word) in (0u32..).zip(&self.dirty) {
            let mut bits = word.load(Ordering::Acquire);
            while bits != 0 {
                let index = at * 64 + bits.trailing_zeros();
                found(index, self.saved(index));
                bits &= bits - 1;
            }
        }
    }

    /// Notes that `saved` is what a restart would find of a zone.
    pub fn note_saved(&self, index: u32, saved: &Saved) {
        if let Ok(cell) = self.cell(index) {
            let cell = lock(cell);
            if cell.saved() == *saved {
                let (word, bit) = self.dirty_bit(index);
                word.fetch_and(!bit, Ordering::AcqRel);
            }
        }
    }

    /// How many bytes from a zone's start can be read: behind them are zeros.
    ///
    /// Errors: an offline zone.
    pub fn readable(&self, index: u32) -> Result<u64, Fault> {
        let Ok(cell) = self.cell(index) else {
            return Ok(self.layout.zone_size);
        };
        let cell = lock(cell);
        match cell.condition {
            Condition::Offline => Err(Fault::ZoneCondition),
            _ => Ok(cell.written),
        }
    }

    /// Begins a write of `len` bytes at `at` bytes from the zone's start, or an append where that is
    /// `None`; where it goes. The zone is busy until [`end_write`](Self::end_write).
    pub fn begin_write(&self, index: u32, at: Option<u64>, len: u64) -> Result<u64, Fault> {
        let cell = self.cell(index)?;
        {
            let mut cell = lock(cell);
            self.check_write(&cell, at, len)?;
            if cell.condition.is_open() {
                cell.busy = true;
                return Ok(cell.pointer);
            }
        }
        let mut counts = lock(&self.counts);
        let mut cell = lock(cell);
        self.check_write(&cell, at, len)?;
        if !cell.condition.is_open() {
            self.make_room(&mut counts, index, cell.condition)?;
            counts.leave(cell.condition);
            counts.implicit += 1;
            cell.condition = Condition::ImplicitOpen;
        }
        cell.busy = true;
        Ok(cell.pointer)
    }

    /// Ends a write that was begun: `written` bytes of it are there, all or none.
    pub fn end_write(&self, index: u32, written: u64) {
        let Ok(zone) = self.cell(index) else { return };
        let mut cell = lock(zone);
        if cell.pointer + written < self.layout.capacity {
            cell.advance(written);
            self.note_changed(index);
            return;
        }
        // Nobody else changes a busy zone, so it may be let go of for a moment.
        drop(cell);
        let mut counts = lock(&self.counts);
        let mut cell = lock(zone);
        cell.advance(written);
        counts.leave(cell.condition);
        cell.condition = Condition::Full;
        self.note_changed(index);
    }

    /// Opens a zone explicitly.
    pub fn open(&self, index: u32) -> Result<(), Fault> {
        let (mut counts, mut cell) = self.both(index)?;
        match cell.condition {
            Condition::ExplicitOpen => return Ok(()),
            Condition::Empty | Condition::Closed => self.make_room(&mut counts, index, cell.condition)?,
            Condition::ImplicitOpen => {}
            _ => return Err(Fault::ZoneCondition),
        }
        counts.leave(cell.condition);
        counts.explicit += 1;
        cell.condition = Condition::ExplicitOpen;
        Ok(())
    }

    /// Closes a zone.
    pub fn close(&self, index: u32) -> Result<(), Fault> {
        let (mut counts, mut cell) = self.both(index)?;
        match cell.condition {
            Condition::Closed => Ok(()),
            open if open.is_open() => {
                counts.close(&mut cell);
                Ok(())
            }
            _ => Err(Fault::ZoneCondition),
        }
    }

    /// Makes a zone full. Its write pointer is then its end, behind the capacity.
    pub fn finish(&self, index: u32) -> Result<(), Fault> {
        let (mut counts, mut cell) = self.both(index)?;
        match cell.condition {
            Condition::Full => return Ok(()),
            Condition::Empty | Condition::Closed => self.make_room(&mut counts, index, cell.condition)?,
            open if open.is_open() => {}
            _ => return Err(Fault::ZoneCondition),
        }
        counts.leave(cell.condition);
        cell.condition = Condition::Full;
        cell.pointer = self.layout.zone_size;
        self.note_changed(index);
        Ok(())
    }

    /// Begins to make a zone empty; `false` where it was already, and nothing is to be done. Else
    /// it is empty and busy until [`end_reset`](Self::end_reset).
    pub fn begin_reset(&self, index: u32) -> Result<bool, Fault> {
        let (mut counts, mut cell) = self.both(index)?;
        match cell.condition {
            Condition::Empty => return Ok(false),
            Condition::Full => {}
            active if active.is_active() => {}
            _ => return Err(Fault::ZoneCondition),
        }
        counts.leave(cell.condition);
        cell.condition = Condition::Empty;
        (cell.pointer, cell.written) = (0, 0);
        cell.life += 1;
        cell.busy = true;
        self.note_changed(index);
        Ok(true)
    }

    /// Lets writes into a zone that was reset.
    pub fn end_reset(&self, index: u32) {
        if let Ok(cell) = self.cell(index) {
            lock(cell).busy = false;
        }
    }

    /// Puts a zone out of use: read-only or offline.
    pub fn retire(&self, index: u32, condition: Condition) -> Result<(), Fault> {
        let (mut counts, mut cell) = self.both(index)?;
        if !matches!(condition, Condition::ReadOnly | Condition::Offline) {
            return Err(Fault::ZoneCondition);
        }
        counts.leave(cell.condition);
        cell.condition = condition;
        self.note_changed(index);
        Ok(())
    }

    fn check_write(&self, cell: &Cell, at: Option<u64>, len: u64) -> Result<(), Fault> {
        match cell.condition {
            Condition::Full => return Err(Fault::WritePointer),
            Condition::ReadOnly | Condition::Offline => return Err(Fault::ZoneCondition),
            _ => {}
        }
        let is_off = at.is_some_and(|at| at != cell.pointer);
        if is_off || len > self.layout.capacity - cell.pointer {
            return Err(Fault::WritePointer);
        }
        if cell.busy { Err(Fault::ZoneBusy) } else { Ok(()) }
    }

    /// Makes sure that zone `index`, which is empty or closed, can be opened: by closing one that
    /// was opened implicitly where it must be.
    fn make_room(&self, counts: &mut ZoneCounts, index: u32, condition: Condition) -> Result<(), Fault> {
        let opening = self.place_of(index)?;
        let ZoneLayout { max_open, max_active, .. } = self.layout;
        let is_active_full = max_active > 0 && counts.active() >= max_active;
        if condition == Condition::Empty && is_active_full {
            return Err(Fault::TooManyActive);
        }
        if max_open == 0 || counts.open() < max_open {
            return Ok(());
        }
        // The zone that is closed stays active. null_blk looks for room for one more active zone
        // even where the zone to be opened is active already, and so do we.
        if counts.implicit == 0 || is_active_full {
            return Err(Fault::TooManyOpen);
        }
        for step in 0..self.cells.len() {
            let place = (counts.next + step) % self.cells.len();
            if place == opening {
                continue; // Locked by our caller.
            }
            let mut cell = lock(&self.cells[place]);
            if cell.condition == Condition::ImplicitOpen && !cell.busy {
                counts.close(&mut cell);
                counts.next = (place + 1) % self.cells.len();
                return Ok(());
            }
        }
        Err(Fault::TooManyOpen)
    }

    /// The counts and a zone that is not busy, for a change of its condition.
    fn both(&self, index: u32) -> Result<(MutexGuard<'_, ZoneCounts>, MutexGuard<'_, Cell>), Fault> {
        let cell = self.cell(index)?;
        let counts = lock(&self.counts);
        let cell = lock(cell);
        if cell.busy { Err(Fault::ZoneBusy) } else { Ok((counts, cell)) }
    }

    /// A sequential zone.
    fn cell(&self, index: u32) -> Result<&Mutex<Cell>, Fault> {
        let place = self.place_of(index)?;
        self.cells.get(place).ok_or(Fault::ZoneCondition)
    }

    /// To be called under the zone's lock.
    fn note_changed(&self, index: u32) {
        let (word, bit) = self.dirty_bit(index);
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Release);
        }
    }

    fn dirty_bit(&self, index: u32) -> (&AtomicU64, u64) {
        let word = usize::try_from(index / 64).unwrap_or(usize::MAX);
        (&self.dirty[word], 1 << (index % 64))
    }

    fn place_of(&self, index: u32) -> Result<usize, Fault> {
        let place = index.checked_sub(self.layout.conventional);
        let place = place.and_then(|place| usize::try_from(place).ok());
        place.ok_or(Fault::ZoneCondition)
    }
}

impl Cell {
    /// Returns the state that a restart leaves.
    fn saved(&self) -> Saved {
        let condition = match self.condition {
            Condition::ImplicitOpen | Condition::ExplicitOpen if self.pointer == 0 => Condition::Empty,
            open if open.is_open() => Condition::Closed,
            other => other,
        };
        Saved { condition, pointer: self.pointer, written: self.written, life: self.life }
    }

    fn advance(&mut self, bytes: u64) {
        self.pointer += bytes;
        self.written = self.pointer;
        self.busy = false;
    }
}

impl ZoneCounts {
    fn open(&self) -> u32 {
        self.implicit + self.explicit
    }

    fn active(&self) -> u32 {
        self.open() + self.closed
    }

    /// A zone leaves its condition.
    fn leave(&mut self, condition: Condition) {
        match condition {
            Condition::ImplicitOpen => self.implicit -= 1,
            Condition::ExplicitOpen => self.explicit -= 1,
            Condition::Closed => self.closed -= 1,
            _ => {}
        }
    }

    /// Closes an open zone.
    fn close(&mut self, cell: &mut Cell) {
        self.leave(cell.condition);
        cell.condition = match cell.pointer {
            0 => Condition::Empty,
            _ => {
                self.closed += 1;
                Condition::Closed
            }
        };
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
