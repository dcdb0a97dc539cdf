//! The two media of emulated zones for tests: they record what reaches them, and fail when told to.

use std::sync::{Arc, Mutex};

use cryptline_sys::{BackendChoice, Ring};

use super::*;
use crate::queue::Immediate;
use crate::zone::journal::{self, StateStore};
use crate::zone::state::{self, BLOCK, Block};
use crate::{Op, Request};

pub const K: u64 = 4096;
pub const ZONE: u64 = 4 * K;
pub const ZONES: u32 = 5;

/// Events of the media, in order. `After` is what a user knew at that moment.
#[derive(Clone)]
pub enum Event {
    Data(usize, Vec<u8>),
    DataSync,
    State(usize, Vec<u8>),
    StateSync,
    After(Vec<Known>),
}

/// Promises about a zone, and what may be there.
#[derive(Clone, Copy, Default)]
pub struct Known {
    /// Life and pointer at least.
    pub promised: (u64, u64),
    /// Life and pointer at most.
    pub latest: (u64, u64),
    /// Pointer that the life before had come to.
    pub before: u64,
}

/// Both media, and what happened to them.
#[derive(Clone)]
pub struct World(pub Arc<Mutex<Media>>);

pub struct Media {
    pub data: Vec<u8>,
    pub state: Vec<u8>,
    pub events: Vec<Event>,
    /// Operations of the state file, or of the disk below, until all of them fail.
    pub state_left: Option<u64>,
    pub data_left: Option<u64>,
}

/// Counts an operation; whether it fails.
pub fn fails(left: &mut Option<u64>) -> bool {
    match left {
        None => false,
        Some(0) => true,
        Some(count) => {
            *count -= 1;
            false
        }
    }
}

impl World {
    pub fn new(data: Vec<u8>, state: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(Media { data, state, events: Vec::new(), state_left: None, data_left: None })))
    }

    pub fn fresh() -> Self {
        let layout = layout();
        let len = usize::try_from(state::file_len(&layout)).unwrap();
        let world = Self::new(vec![0; at(layout.size())], vec![0; len]);
        journal::create(&world, &layout).unwrap();
        world.0.lock().unwrap().events.clear();
        world
    }

    pub fn open(&self) -> Blocking {
        let len = self.0.lock().unwrap().state.len() as u64;
        let loaded = journal::load(self, len).unwrap();
        assert!(loaded.lost.is_empty(), "a crash lost {:?}", loaded.lost);
        let journal = ZoneJournal::open(Box::new(self.clone()), &loaded).unwrap();
        let table = ZoneTable::load(loaded.layout, |index| loaded.saved[index as usize]);
        let device = ZonedDevice::new(Gate::new(self.clone()), table, Some(journal)).unwrap();
        Blocking::new(&Gate::new(device), BackendChoice::Syscalls).unwrap()
    }

    pub fn note(&self, event: Event) {
        self.0.lock().unwrap().events.push(event);
    }
}

impl StateStore for World {
    fn read(&self, offset: u64, block: &mut Block) -> std::io::Result<()> {
        block.copy_from_slice(&self.0.lock().unwrap().state[at(offset)..][..BLOCK]);
        Ok(())
    }

    fn write(&self, offset: u64, block: &Block) -> std::io::Result<()> {
        if fails(&mut self.0.lock().unwrap().state_left) {
            return Err(std::io::Error::other("the state file is gone"));
        }
        self.0.lock().unwrap().state[at(offset)..][..BLOCK].copy_from_slice(block);
        self.note(Event::State(at(offset), block.to_vec()));
        Ok(())
    }

    fn sync(&self) -> std::io::Result<()> {
        if fails(&mut self.0.lock().unwrap().state_left) {
            return Err(std::io::Error::other("the state file is gone"));
        }
        self.note(Event::StateSync);
        Ok(())
    }
}

impl Device for World {
    fn traits(&self) -> Traits {
        let plain = Geometry::plain(layout().size(), 512);
        Traits::base(Geometry {
            preferred_block: 4096,
            discard: true,
            write_zeroes: true,
            answers_at_once: true,
            ..plain
        })
    }

    fn open_queue(&self, _ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        Ok(Box::new(self.clone()))
    }

    fn extent(&self, _offset: u64, len: u64) -> Result<Extent, Fault> {
        let (hole, zero) = (false, false);
        Ok(Extent { len, hole, zero })
    }
}

impl Immediate for World {
    fn answer(&mut self, request: &mut Request) -> Result<(), Fault> {
        let start = at(request.offset);
        let mut media = self.0.lock().unwrap();
        let is_read = request.op == Op::Read;
        if !is_read && fails(&mut media.data_left) {
            return Err(Fault::Io(rustix::io::Errno::IO));
        }
        let event = match (request.op, &mut request.data) {
            (Op::Read, Some(buffer)) => {
                let len = buffer.len();
                buffer.copy_from_slice(&media.data[start..][..len]);
                None
            }
            (Op::Write, Some(data)) => Some(Event::Data(start, data.to_vec())),
            (Op::Discard, _) => Some(Event::Data(start, vec![0; at(request.len)])),
            (Op::Flush, _) => Some(Event::DataSync),
            other => panic!("{other:?} below"),
        };
        if let Some(Event::Data(start, bytes)) = &event {
            media.data[*start..][..bytes.len()].copy_from_slice(bytes);
        }
        media.events.extend(event);
        Ok(())
    }
}

pub fn layout() -> ZoneLayout {
    let mut layout = ZoneLayout::new(u64::from(ZONES) * ZONE, ZONE).unwrap();
    layout.capacity = 3 * K;
    layout.conventional = 1;
    layout.write_granularity = 512;
    layout.check().unwrap()
}

pub fn at(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}
