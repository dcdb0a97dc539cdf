//! One arena at work: a sector is read where the map says, and written to a free block first.
//!
//! ```text
//! write of n sectors, on n lanes          what a crash after it leaves
//! ───────────────────────────────         ────────────────────────────
//! data → the lanes' free blocks           old
//! persist
//!   lock the map's cache lines
//!   flog {lba, old}                       old: the entry's sequence number is still an old one
//!   persist
//!   flog {new, seq}                       new, once it is there: the commit point
//!   persist
//!   map = new                             new: from here by the map, before by the next opening
//!   persist
//!   unlock
//! the old blocks are the lanes' free blocks
//! ```

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use rustix::io::Errno;

use super::flog::{FlogEntry, SLOT_LEN, Slots};
use super::lanes::{BATCH, FreeBlock, LanePool, Lanes};
use super::layout::{ArenaLayout, MAP_ENTRY};
use super::map::{MapEntry, SectorState};
use super::medium::BttMedium;
use crate::Fault;

/// Map entries in a cache line, which one lock covers.
const ENTRIES_OF_A_LINE: u32 = 16;
const LOCKS: usize = 256;
/// Cache lines that the entries of one batch can touch.
const LINES_OF_A_BATCH: usize = BATCH / ENTRIES_OF_A_LINE as usize + 1;

/// Properties of an arena, as opening has found them out.
pub struct ArenaFacts {
    /// First byte on the medium.
    pub start: u64,
    /// Its geometry.
    pub layout: ArenaLayout,
    /// The slots of its flog.
    pub slots: Slots,
    /// For each lane.
    pub free: Vec<FreeBlock>,
    /// Interrupted writes that could not be completed because the medium is read-only: sector
    /// and map entry, by sector.
    pub pending: Vec<(u32, u32)>,
}

/// An open arena.
pub struct BttArena {
    start: u64,
    layout: ArenaLayout,
    slots: Slots,
    lanes: LanePool,
    map_locks: Box<[Mutex<()>]>,
    pending: Box<[(u32, u32)]>,
    /// A write failed between its log and its map entry: what the lanes know is not what the
    /// medium holds.
    broken: AtomicBool,
}

impl BttArena {
    /// Opens what was found.
    pub fn new(found: ArenaFacts) -> Self {
        Self {
            start: found.start,
            layout: found.layout,
            slots: found.slots,
            lanes: LanePool::new(&found.free),
            map_locks: (0..LOCKS).map(|_| Mutex::new(())).collect(),
            pending: found.pending.into(),
            broken: AtomicBool::new(false),
        }
    }

    /// Its geometry.
    pub fn layout(&self) -> &ArenaLayout {
        &self.layout
    }

    /// Reads whole sectors from sector `premap` on; the range lies in the arena. `home` is the
    /// caller's number (see [`LanePool::take`]).
    pub fn read(&self, medium: &impl BttMedium, home: usize, premap: u32, target: &mut [u8]) -> Result<(), Fault> {
        let lane = self.lanes.take(home, 1);
        for (premap, sector) in (premap..).zip(target.chunks_mut(self.sector())) {
            match self.settle(medium, &lane, premap)? {
                MapEntry { state: SectorState::Zero, .. } => sector.fill(0),
                MapEntry { state: SectorState::Error, .. } => return Err(Fault::Io(Errno::IO)),
                MapEntry { block, .. } => {
                    medium.read(self.start + self.layout.block_offset(block), sector)?;
                }
            }
        }
        Ok(())
    }

    /// Writes whole sectors from sector `premap` on; durable on return. Each is old or new after
    /// a crash, never a mix.
    pub fn write(&self, medium: &impl BttMedium, home: usize, premap: u32, source: &[u8]) -> Result<(), Fault> {
        let (mut premap, mut rest) = (premap, source);
        while !rest.is_empty() {
            if self.broken.load(Ordering::Relaxed) {
                return Err(Fault::Io(Errno::IO));
            }
            let lanes = self.lanes.take(home, rest.len() / self.sector());
            let (batch, later) = rest.split_at(lanes.count() * self.sector());
            self.write_batch(medium, &lanes, premap, batch)?;
            premap += count(&lanes);
            rest = later;
        }
        Ok(())
    }

    /// The entry of a sector, whose block is published as being read and stays as it is until
    /// the lane reads another one.
    fn settle(&self, medium: &impl BttMedium, lane: &Lanes<'_>, premap: u32) -> Result<MapEntry, Fault> {
        let mut raw = self.load_map(medium, premap)?;
        loop {
            let entry = self.decode(raw, premap)?;
            lane.start_reading(entry.block);
            let again = self.load_map(medium, premap)?;
            if again == raw {
                return Ok(entry);
            }
            raw = again;
        }
    }

    fn write_batch(&self, medium: &impl BttMedium, lanes: &Lanes<'_>, premap: u32, source: &[u8]) -> Result<(), Fault> {
        for (index, sector) in source.chunks(self.sector()).enumerate() {
            let block = lanes.free(index).block;
            self.lanes.wait_until_unread(block);
            medium.store(self.start + self.layout.block_offset(block), sector)?;
        }
        medium.persist()?;
        let _locks = self.lock(premap..premap + count(lanes));
        let mut old = [0; BATCH];
        let old = &mut old[..lanes.count()];
        for (premap, old) in (premap..).zip(old.iter_mut()) {
            *old = self.decode(self.load_map(medium, premap)?, premap)?.block;
        }
        // From here the medium is ahead of what the lanes know, until all is done.
        let committed = self.commit(medium, lanes, premap, old);
        if committed.is_err() {
            self.broken.store(true, Ordering::Relaxed);
            return committed;
        }
        for (index, old) in old.iter().enumerate() {
            lanes.freed(index, *old);
        }
        Ok(())
    }

    /// Log and map, in order. The map's lines are locked.
    fn commit(&self, medium: &impl BttMedium, lanes: &Lanes<'_>, premap: u32, old: &[u32]) -> Result<(), Fault> {
        let entries = || {
            (premap..).zip(old).enumerate().map(|(index, (lba, &old))| {
                let FreeBlock { block, second, seq } = lanes.free(index);
                let slot = self.slots.number(second) * SLOT_LEN;
                let group = self.layout.flog_offset(lanes.number(index));
                let entry = FlogEntry { lba, old, new: block, seq };
                (self.start + group + slot as u64, entry)
            })
        };
        for (offset, entry) in entries() {
            medium.store64(offset, entry.low_half())?;
        }
        medium.persist()?;
        for (offset, entry) in entries() {
            medium.store64(offset + 8, entry.high_half())?;
        }
        medium.persist()?;
        for (_, entry) in entries() {
            let offset = self.start + self.layout.map_offset(entry.lba);
            medium.store32(offset, MapEntry::normal(entry.new))?;
        }
        medium.persist()
    }

    /// Locks the cache lines of these map entries, in one order for all.
    fn lock(&self, premap: Range<u32>) -> [Option<MutexGuard<'_, ()>>; LINES_OF_A_BATCH] {
        let first = premap.start / ENTRIES_OF_A_LINE;
        let last = (premap.end - 1) / ENTRIES_OF_A_LINE;
        let mut numbers = [usize::MAX; LINES_OF_A_BATCH];
        for (number, line) in numbers.iter_mut().zip(first..=last) {
            *number = line as usize % LOCKS;
        }
        numbers.sort_unstable();
        numbers.map(|number| {
            let lock = self.map_locks.get(number)?;
            Some(cryptline_sys::lock(lock))
        })
    }

    fn load_map(&self, medium: &impl BttMedium, premap: u32) -> Result<u32, Fault> {
        if !self.pending.is_empty()
            && let Ok(found) = self.pending.binary_search_by_key(&premap, |entry| entry.0)
        {
            return Ok(self.pending[found].1);
        }
        medium.load32(self.start + self.layout.map + u64::from(premap) * MAP_ENTRY)
    }

    /// A block outside the arena would be somebody else's bytes.
    fn decode(&self, raw: u32, premap: u32) -> Result<MapEntry, Fault> {
        let entry = MapEntry::decode(raw, premap);
        if entry.block < self.layout.internal_nlba { Ok(entry) } else { Err(Fault::Io(Errno::UCLEAN)) }
    }

    /// Bytes in a sector.
    fn sector(&self) -> usize {
        self.layout.external_lbasize as usize
    }
}

fn count(lanes: &Lanes<'_>) -> u32 {
    u32::try_from(lanes.count()).expect("a batch is small")
}
