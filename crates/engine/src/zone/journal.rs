//! The journal: write pointers that survive a crash.
//!
//! ```text
//! flush   note the pointers ─► make the data durable ─► commit the noted pointers ─► done
//! reset   commit the empty zone ─► free its data ─► let writes in
//!
//! commit  copy 0 of each changed block ─► durable ─► copy 1 of them ─► durable
//! ```
//!
//! A pointer is saved after the data before it, so it never says more than is there. A reset is
//! saved before the first byte of the next life can reach the data, so data of two lives are never
//! mixed under one pointer. At every moment at least one copy of each block is whole; once a commit
//! is over both are, and equal: so either can be damaged without any doubt about what it said.
//!
//! The journal's lock is the one lock that is held across I/O: only flushes, durable writes and resets take it, and
//! they would wait for that I/O anyway. The journal is a file of its own, so the data file is byte for byte the disk.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use super::state::{self, BLOCK, Block, RECORDS};
use super::{Saved, ZoneCondition as Condition, ZoneLayout, ZoneTable};
use crate::Fault;

/// Where the state is kept.
pub trait StateStore: Send {
    /// Fills `block` from `offset`.
    fn read(&self, offset: u64, block: &mut Block) -> std::io::Result<()>;
    /// Writes a block at `offset`; durable only after [`sync`](Self::sync).
    fn write(&self, offset: u64, block: &Block) -> std::io::Result<()>;
    /// Makes what was written durable.
    fn sync(&self) -> std::io::Result<()>;
}

impl StateStore for File {
    fn read(&self, offset: u64, block: &mut Block) -> std::io::Result<()> {
        self.read_exact_at(block, offset)
    }

    fn write(&self, offset: u64, block: &Block) -> std::io::Result<()> {
        self.write_all_at(block, offset)
    }

    fn sync(&self) -> std::io::Result<()> {
        cryptline_sys::sync_data(self)
    }
}

/// The state of all zones, as it is saved.
pub struct ZoneJournal {
    state: Mutex<ZoneRecord>,
    /// A commit failed: what is saved is not known any more.
    failed: AtomicBool,
}

struct ZoneRecord {
    store: Box<dyn StateStore>,
    layout: ZoneLayout,
    blocks: Vec<JournalImage>,
    /// Resets of each zone since it was opened.
    lives: Vec<u64>,
}

struct JournalImage {
    bytes: Box<Block>,
    changed: bool,
}

/// Content of a state file, and what was wrong with it.
pub struct LoadedJournal {
    /// The layout.
    pub layout: ZoneLayout,
    /// One record for each zone.
    pub saved: Vec<Saved>,
    /// Zones whose records were lost in both copies, as ranges of indices.
    pub lost: Vec<std::ops::Range<u32>>,
    /// One copy of this many blocks was damaged or older, as a crash leaves it.
    pub to_repair: u32,
    images: Vec<Block>,
}

impl LoadedJournal {
    /// The state of a new device, all zones empty.
    #[must_use]
    pub fn new(layout: ZoneLayout) -> Self {
        let images: Vec<Block> = (0..state::blocks(&layout)).map(|number| state::new_block(&layout, number)).collect();
        let of_block = |(number, block): (u32, &Block)| {
            let first = number * RECORDS;
            let zones = first..layout.count.min(first + RECORDS);
            let block = *block;
            zones.map(move |index| state::record(&block, index))
        };
        Self { layout, saved: (0..).zip(&images).flat_map(of_block).collect(), lost: Vec::new(), to_repair: 0, images }
    }
}

/// Why a state can not be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The state could not be read or written.
    #[error("{0}")]
    System(#[from] std::io::Error),
    /// Neither copy of the header is whole.
    #[error("its header is damaged in both copies; restore it from a backup (the data are untouched)")]
    NoHeader,
    /// The state is whole and can not be used.
    #[error("{0}")]
    Unusable(String),
}

/// Writes the state of a new device to `store`, all zones empty.
pub fn create(store: &dyn StateStore, layout: &ZoneLayout) -> std::io::Result<()> {
    for copy in 0..2 {
        for number in 0..state::blocks(layout) {
            let offset = state::offset_of(layout, copy, number + 1);
            store.write(offset, &state::new_block(layout, number))?;
        }
        let offset = state::offset_of(layout, copy, 0);
        store.write(offset, &state::encode_header(layout))?;
    }
    store.sync()
}

/// Reads a state of at most `len` bytes, changing nothing.
pub fn load(store: &dyn StateStore, len: u64) -> Result<LoadedJournal, StateError> {
    let layout = load_header(store, len)?;
    let mut loaded = LoadedJournal { layout, saved: Vec::new(), lost: Vec::new(), to_repair: 0, images: Vec::new() };
    for number in 0..state::blocks(&layout) {
        let copies = [0, 1].map(|copy| {
            let mut block = [0; BLOCK];
            let offset = state::offset_of(&layout, copy, number + 1);
            let read = store.read(offset, &mut block);
            (read.is_ok() && state::is_sound(&block, &layout, number)).then_some(block)
        });
        let first = number * RECORDS;
        let zones = first..layout.count.min(first + RECORDS);
        let differ = copies[0] != copies[1];
        let newest = copies.into_iter().flatten().max_by_key(state::generation);
        let block = newest.unwrap_or_else(|| {
            loaded.lost.push(zones.clone());
            state::new_block(&layout, number)
        });
        loaded.to_repair += u32::from(differ);
        let is_lost = newest.is_none();
        loaded.saved.extend(zones.map(|index| {
            if is_lost && layout.is_sequential(index) { lost_zone(&layout) } else { state::record(&block, index) }
        }));
        loaded.images.push(block);
    }
    let header = state::encode_header(&layout);
    let is_there = |copy| holds(store, state::offset_of(&layout, copy, 0), &header);
    loaded.to_repair += u32::from(!is_there(0) || !is_there(1));
    Ok(loaded)
}

/// The layout in the header. Copy 1 lies where only the layout can tell, so it is looked for in
/// the middle of the file.
fn load_header(store: &dyn StateStore, len: u64) -> Result<ZoneLayout, StateError> {
    let mut block = [0; BLOCK];
    let middle = len / 2;
    let mut unusable = None;
    for offset in [0, middle - middle % BLOCK as u64] {
        if store.read(offset, &mut block).is_err() {
            continue;
        }
        match state::decode_header(&block) {
            Some(Ok(layout)) if state::file_len(&layout) == len => return Ok(layout),
            Some(Ok(layout)) => {
                let whole = state::file_len(&layout);
                let what = format!(
                    "it has {len} bytes and must have {whole}; restore it from a backup (the data are untouched)"
                );
                unusable = Some(what);
            }
            Some(Err(error)) => unusable = Some(error.0),
            None => {}
        }
    }
    Err(unusable.map_or(StateError::NoHeader, StateError::Unusable))
}

fn holds(store: &dyn StateStore, offset: u64, block: &Block) -> bool {
    let mut there = [0; BLOCK];
    store.read(offset, &mut there).is_ok() && there == *block
}

/// A zone of which nothing is known can be read as far as it goes, and not be written.
fn lost_zone(layout: &ZoneLayout) -> Saved {
    Saved { condition: Condition::ReadOnly, pointer: layout.zone_size, written: layout.capacity, life: 0 }
}

impl ZoneJournal {
    /// A journal over what was loaded, whose copies are made equal again.
    pub fn open(store: Box<dyn StateStore>, loaded: &LoadedJournal) -> Result<Self, StateError> {
        let layout = loaded.layout;
        if loaded.to_repair > 0 {
            // One copy after the other: if this is interrupted, the other is as good as before.
            let header = state::encode_header(&layout);
            for copy in [0, 1] {
                let all = std::iter::once(&header).chain(&loaded.images);
                for (number, block) in (0..).zip(all) {
                    let offset = state::offset_of(&layout, copy, number);
                    if !holds(&*store, offset, block) {
                        store.write(offset, block)?;
                    }
                }
                store.sync()?;
            }
        }
        let image = |block: &Block| JournalImage { bytes: Box::new(*block), changed: false };
        Ok(Self {
            state: Mutex::new(ZoneRecord {
                store,
                layout,
                blocks: loaded.images.iter().map(image).collect(),
                lives: loaded.saved.iter().map(|_| 0).collect(),
            }),
            failed: AtomicBool::new(false),
        })
    }

    /// Tells if a commit has failed. Nothing must be written to the zones any more then: what is saved might be of
    /// before a reset.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Saves the state of some zones of `table` and makes it durable. States older than what is
    /// saved already are passed over.
    ///
    /// The lock is held across the state's I/O: only a flush, a durable write and a reset come
    /// here, and what each waits for is this very I/O.
    pub fn commit(&self, zones: &[(u32, Saved)], table: &ZoneTable) -> Result<(), Fault> {
        let mut state = cryptline_sys::lock(&self.state);
        if self.has_failed() {
            return Err(Fault::Latched);
        }
        for (index, saved) in zones {
            state.put(*index, saved);
        }
        if let Err(error) = state.write() {
            self.failed.store(true, Ordering::Relaxed);
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            return Err(Fault::Io(errno));
        }
        for (index, saved) in zones {
            table.note_saved(*index, saved);
        }
        Ok(())
    }
}

impl ZoneRecord {
    fn put(&mut self, index: u32, saved: &Saved) {
        let (Ok(zone), Ok(block)) = (usize::try_from(index), usize::try_from(index / RECORDS)) else {
            return;
        };
        let (Some(life), Some(image)) = (self.lives.get_mut(zone), self.blocks.get_mut(block)) else {
            return;
        };
        let before = state::record(&image.bytes, index);
        // Within one life a zone only grows: empty, closed further and further, full.
        let rank = |saved: &Saved| (saved.condition.code(), saved.pointer);
        let is_newer = saved.life > *life || (saved.life == *life && rank(saved) > rank(&before));
        if is_newer {
            *life = saved.life;
            state::set_record(&mut image.bytes, index, saved);
            image.changed = true;
        }
    }

    fn write(&mut self) -> std::io::Result<()> {
        if !self.blocks.iter().any(|image| image.changed) {
            return Ok(());
        }
        for image in self.blocks.iter_mut().filter(|image| image.changed) {
            let next = state::generation(&image.bytes).saturating_add(1);
            state::finish(&mut image.bytes, next);
        }
        for copy in [0, 1] {
            for (number, image) in (1..).zip(&self.blocks) {
                if image.changed {
                    let offset = state::offset_of(&self.layout, copy, number);
                    self.store.write(offset, &image.bytes)?;
                }
            }
            self.store.sync()?;
        }
        self.blocks.iter_mut().for_each(|image| image.changed = false);
        Ok(())
    }
}
