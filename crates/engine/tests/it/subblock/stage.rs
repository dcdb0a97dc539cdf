//! A disk in memory that does its work when the test says so, and keeps a record of it.
//!
//! ```text
//! submit ─► entered in the record ─► held? ─ no ──► takes effect ─► entered again
//!                                      └ yes ─► … release() ─┘
//! ```
//!
//! Offsets in rules and records are those of the clear disk: the start of the data is taken off.

use std::sync::{Arc, Mutex, MutexGuard};

use cryptline_engine::{
    Completion, Device, Extent, Fault, Gate, Geometry, OpenError, Operation, Queue, Request, Ring, Submitted,
};
use cryptline_sys::Waker;
use cryptline_testkit::suite::devices::SIZE;

use super::SECTOR;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Read,
    Write,
    DurableWrite,
    Flush,
    Discard,
    Zero,
    Cache,
}

use Op::*;

impl Op {
    fn of(request: &Request) -> Self {
        match request.operation {
            Operation::Read(_) => Read,
            Operation::Write { durable: false, .. } => Write,
            Operation::Write { durable: true, .. } => DurableWrite,
            Operation::Flush => Flush,
            Operation::Discard { .. } => Discard,
            Operation::WriteZeroes { .. } => Zero,
            Operation::Cache { .. } => Cache,
            Operation::ZoneAppend { .. } | Operation::Zone(_) => panic!("no zones here"),
        }
    }
}

/// How a stage behaves from the start.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Bytes in a logical block.
    pub block: u32,
    /// What is not held has ended when `submit` returns; else it ends in the next `poll`.
    pub at_once: bool,
    /// First byte of the data.
    pub start: u64,
}

/// One end of the record: an operation that was submitted, or one that took effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    Begun(Op, u64, u64),
    Ended(Op, u64, u64),
}

/// What was written: where, and the bytes as they lie on the medium.
pub type Written = (u64, Vec<u8>);

/// The director's hold on the disk.
#[derive(Clone)]
pub struct Stage(Arc<Mutex<State>>);

struct State {
    manner: Manner,
    bytes: Vec<u8>,
    record: Vec<Entry>,
    written: Vec<Written>,
    /// Operations that are held, at this place or at any.
    holds: Vec<(Op, Option<u64>)>,
    /// Operations that fail once.
    faults: Vec<Planned>,
    wakers: Vec<Waker>,
}

struct Planned {
    op: Op,
    at: u64,
    fault: Fault,
    late: bool,
}

impl Stage {
    /// An empty disk of [`SIZE`] bytes.
    pub fn new(manner: Manner) -> Self {
        let size = usize::try_from(SIZE).expect("a size in memory");
        Self::with(manner, vec![0; size])
    }

    /// An empty one with room for 16 sectors of data.
    pub fn small(manner: Manner) -> Self {
        let size = usize::try_from(manner.start + 16 * SECTOR).expect("a size in memory");
        Self::with(manner, vec![0; size])
    }

    /// A disk of these bytes.
    pub fn with(manner: Manner, bytes: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(State {
            manner,
            bytes,
            record: Vec::new(),
            written: Vec::new(),
            holds: Vec::new(),
            faults: Vec::new(),
            wakers: Vec::new(),
        })))
    }

    /// The disk.
    pub fn gate(&self) -> Gate {
        Gate::new(StageDevice(self.clone()))
    }

    /// Holds operations of a kind that begin in the sector at `at`, or any, until they are released.
    pub fn hold(&self, op: Op, at: impl Into<Option<u64>>) {
        self.state().holds.push((op, at.into()));
    }

    /// Holds nothing any more.
    pub fn release(&self) {
        let mut state = self.state();
        state.holds.clear();
        state.wakers.iter().for_each(Waker::wake);
    }

    /// Holds nothing of this kind any more.
    pub fn unhold(&self, op: Op) {
        let mut state = self.state();
        state.holds.retain(|hold| hold.0 != op);
        state.wakers.iter().for_each(Waker::wake);
    }

    /// Lets the next operation of this kind that begins at `at` fail: on submission, or when it comes
    /// back.
    pub fn fail(&self, op: Op, at: u64, fault: Fault, late: bool) {
        let planned = Planned { op, at, fault, late };
        self.state().faults.push(planned);
    }

    /// Faults that have not struck.
    pub fn faults_left(&self) -> usize {
        self.state().faults.len()
    }

    /// Starts the record anew.
    pub fn forget(&self) {
        let mut state = self.state();
        state.record.clear();
        state.written.clear();
    }

    /// Everything since then.
    pub fn record(&self) -> Vec<Entry> {
        self.state().record.clone()
    }

    /// What has been submitted since then.
    pub fn begun(&self) -> Vec<(Op, u64, u64)> {
        let begun = self.record().into_iter().filter_map(|entry| match entry {
            Entry::Begun(op, at, len) => Some((op, at, len)),
            Entry::Ended(..) => None,
        });
        begun.collect()
    }

    /// How many operations of a kind have been submitted since then.
    pub fn count(&self, op: Op) -> usize {
        self.begun().iter().filter(|begun| begun.0 == op).count()
    }

    /// What has been written since then, in the order of taking effect. Offsets on the medium.
    pub fn written(&self) -> Vec<Written> {
        self.state().written.clone()
    }

    /// What lies on the medium.
    pub fn bytes(&self) -> Vec<u8> {
        self.state().bytes.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panics on stage")
    }
}

impl State {
    fn place(&self, request: &Request) -> (Op, u64, u64) {
        let op = Op::of(request);
        let at = match op {
            Flush => 0,
            _ => request.offset.saturating_sub(self.manner.start),
        };
        (op, at, request.len())
    }

    fn is_held(&self, request: &Request) -> bool {
        let (op, at, _) = self.place(request);
        let is_this = |hold: &(Op, Option<u64>)| hold.0 == op && hold.1.is_none_or(|of| of == at);
        self.holds.iter().any(is_this)
    }

    fn strike(&mut self, request: &Request, late: bool) -> Option<Fault> {
        let (op, at, _) = self.place(request);
        let is_this = |it: &Planned| (it.op, it.at, it.late) == (op, at, late);
        let found = self.faults.iter().position(is_this)?;
        Some(self.faults.swap_remove(found).fault)
    }

    fn take_effect(&mut self, mut request: Request) -> Completion {
        let (op, at, len) = self.place(&request);
        self.record.push(Entry::Ended(op, at, len));
        if let Some(fault) = self.strike(&request, true) {
            return request.complete(Err(fault));
        }
        let from = usize::try_from(request.offset).expect("a place in memory");
        let range = from..from + usize::try_from(len).expect("a length in memory");
        match &mut request.operation {
            Operation::Read(buffer) => buffer.copy_from_slice(&self.bytes[range]),
            Operation::Write { data, .. } => {
                self.bytes[range].copy_from_slice(data);
                self.written.push((request.offset, data.to_vec()));
            }
            Operation::Discard { .. } | Operation::WriteZeroes { .. } => self.bytes[range].fill(0),
            _ => {}
        }
        request.complete(Ok(()))
    }
}

struct StageDevice(Stage);

impl Device for StageDevice {
    fn geometry(&self) -> Geometry {
        let state = self.0.state();
        Geometry {
            size: state.bytes.len() as u64,
            logical_block: state.manner.block,
            preferred_block: 4096,
            read_only: false,
            rotational: false,
            discard: true,
            write_zeroes: true,
            cache: true,
            answers_at_once: false,
            zones: None,
        }
    }

    fn open_queue(&self, ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        let waker = ring.waker().map_err(OpenError::Ring)?;
        self.0.state().wakers.push(waker);
        Ok(Box::new(StageQueue { stage: self.0.clone(), held: Vec::new() }))
    }

    /// Runs of blocks of zeros are holes.
    fn extent(&self, offset: u64, len: u64) -> Result<Extent, Fault> {
        let state = self.0.state();
        let from = usize::try_from(offset).expect("a place in memory");
        let range = &state.bytes[from..from + usize::try_from(len).expect("a length in memory")];
        let mut blocks = range.chunks(512).map(|block| block.iter().all(|&byte| byte == 0));
        let hole = blocks.next().expect("a range");
        let run = 1 + blocks.take_while(|&other| other == hole).count();
        Ok(Extent { len: (run as u64 * 512).min(len), hole, zero: hole })
    }
}

struct StageQueue {
    stage: Stage,
    held: Vec<Request>,
}

impl Queue for StageQueue {
    fn submit(&mut self, ring: &mut Ring, request: Request) -> Submitted {
        let mut state = self.stage.state();
        let (op, at, len) = state.place(&request);
        state.record.push(Entry::Begun(op, at, len));
        if let Some(fault) = state.strike(&request, false) {
            return Submitted::Done(request.complete(Err(fault)));
        }
        if state.manner.at_once && !state.is_held(&request) {
            return Submitted::Done(state.take_effect(request));
        }
        self.held.push(request);
        ring.stay_awake();
        Submitted::Pending
    }

    fn poll(&mut self, _ring: &mut Ring, done: &mut Vec<Completion>) {
        let mut state = self.stage.state();
        for request in std::mem::take(&mut self.held) {
            if state.is_held(&request) { self.held.push(request) } else { done.push(state.take_effect(request)) }
        }
    }

    fn measure(&mut self, _on: bool) {}

    fn crypto_time_ns(&self) -> u64 {
        0
    }
}
