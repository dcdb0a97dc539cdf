//! Disks in memory that do their work when the test says so, and keep a record of it; devices of which a
//! function answers the requests; and a disk that falls [`Silent`].
//!
//! ```text
//! submit ─► entered in the record ─► held? ─ no ────────────────────► takes effect ─► entered again
//!                                      └ yes ─► … release(), answer() ─┘
//! ```
//!
//! Offsets in rules and records are those of the clear disk: the start of the data is taken off.

mod silent;

use std::sync::{Arc, Mutex, MutexGuard};

use cryptline_engine::{
    Completion, Device, Extent, Fault, Gate, Geometry, OpenError, Queue, Request, Ring, Submitted, Traits,
};
use cryptline_sys::Waker;

pub use cryptline_engine::Op;
pub use silent::{Call, Silent};

/// The behaviour of disks from the start.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Bytes in a logical block.
    pub block: u32,
    /// Set if what is not held has ended when `submit` returns; else it ends in the next `poll`.
    pub at_once: bool,
    /// First byte of the data.
    pub start: u64,
}

/// One end of the record: an operation that was submitted, or one that took effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Submitted: what, where, and how many bytes.
    Begun(Op, u64, u64),
    /// Took effect.
    Ended(Op, u64, u64),
}

/// Place of a write, and the bytes as they lie on the medium.
pub type Written = (u64, Vec<u8>);

/// The director's hold on the disks.
#[derive(Clone)]
pub struct Scripted(Arc<Mutex<State>>);

struct State {
    manner: Manner,
    disks: Vec<Vec<u8>>,
    record: Vec<Entry>,
    written: Vec<Written>,
    /// Operations that are held, of this kind or any, at this place or at any.
    holds: Vec<(Option<Op>, Option<u64>)>,
    /// Operations that fail once.
    faults: Vec<Planned>,
    /// Requests that are taken at a time; `None` for any number.
    room: Option<usize>,
    taken: Vec<Taken>,
    queues: usize,
    wakers: Vec<Waker>,
}

struct Planned {
    op: Op,
    at: u64,
    fault: Fault,
    late: bool,
}

/// A request that has not ended.
struct Taken {
    queue: usize,
    disk: usize,
    request: Request,
    /// The director's answer.
    answer: Option<Result<(), Fault>>,
}

impl Scripted {
    /// An empty disk of so many bytes.
    #[must_use]
    pub fn new(manner: Manner, size: u64) -> Self {
        Self::with(manner, vec![vec![0; at(size)]])
    }

    /// Disks of these bytes.
    #[must_use]
    pub fn with(manner: Manner, disks: Vec<Vec<u8>>) -> Self {
        Self(Arc::new(Mutex::new(State {
            manner,
            disks,
            record: Vec::new(),
            written: Vec::new(),
            holds: Vec::new(),
            faults: Vec::new(),
            room: None,
            taken: Vec::new(),
            queues: 0,
            wakers: Vec::new(),
        })))
    }

    /// The first disk.
    #[must_use]
    pub fn gate(&self) -> Gate {
        self.gate_of(0)
    }

    /// A disk by its number.
    #[must_use]
    pub fn gate_of(&self, disk: usize) -> Gate {
        Gate::new(Disk { script: self.clone(), disk })
    }

    /// Takes no more requests at a time than this.
    pub fn limit(&self, room: Option<usize>) {
        self.state().room = room;
    }

    /// Requests that wait to be released or answered.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.state().waiting().count()
    }

    /// Looks at a request that waits, and at which disk.
    pub fn look<R>(&self, index: usize, look: impl FnOnce(usize, &Request) -> R) -> R {
        let mut state = self.state();
        let taken = state.waiting().nth(index).expect("a request that waits");
        look(taken.disk, &taken.request)
    }

    /// Answers one that waits, whatever holds it; a failure takes no effect.
    pub fn answer(&self, index: usize, result: Result<(), Fault>) {
        let mut state = self.state();
        state.waiting().nth(index).expect("a request that waits").answer = Some(result);
        state.wake();
    }

    /// Holds everything until it is released or answered.
    pub fn hold_all(&self) {
        self.state().holds.push((None, None));
    }

    /// Holds operations of a kind that begin in the sector at `at`, or any, until they are released.
    pub fn hold(&self, op: Op, at: impl Into<Option<u64>>) {
        self.state().holds.push((Some(op), at.into()));
    }

    /// Holds nothing any more.
    pub fn release(&self) {
        let mut state = self.state();
        state.holds.clear();
        state.wake();
    }

    /// Holds nothing of this kind any more.
    pub fn unhold(&self, op: Op) {
        let mut state = self.state();
        state.holds.retain(|hold| hold.0 != Some(op));
        state.wake();
    }

    /// Lets the next operation of this kind that begins at `at` fail: on submission, or when it comes
    /// back.
    pub fn fail(&self, op: Op, at: u64, fault: Fault, late: bool) {
        let planned = Planned { op, at, fault, late };
        self.state().faults.push(planned);
    }

    /// Faults that have not struck.
    #[must_use]
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
    #[must_use]
    pub fn record(&self) -> Vec<Entry> {
        self.state().record.clone()
    }

    /// Returns what has been submitted since then.
    #[must_use]
    pub fn begun(&self) -> Vec<(Op, u64, u64)> {
        let begun = self.record().into_iter().filter_map(|entry| match entry {
            Entry::Begun(op, at, len) => Some((op, at, len)),
            Entry::Ended(..) => None,
        });
        begun.collect()
    }

    /// How many operations of a kind have been submitted since then.
    #[must_use]
    pub fn count(&self, op: Op) -> usize {
        self.begun().iter().filter(|begun| begun.0 == op).count()
    }

    /// Returns what has been written since then, in the order of taking effect. Offsets on the medium.
    #[must_use]
    pub fn written(&self) -> Vec<Written> {
        self.state().written.clone()
    }

    /// Returns what lies on the first disk.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.state().disks[0].clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panics in a script")
    }
}

impl State {
    fn waiting(&mut self) -> impl Iterator<Item = &mut Taken> {
        self.taken.iter_mut().filter(|taken| taken.answer.is_none())
    }

    fn wake(&self) {
        self.wakers.iter().for_each(Waker::wake);
    }

    fn place(&self, request: &Request) -> (Op, u64, u64) {
        // Whether a zeroing may make holes makes no difference here.
        let op = if request.op == Op::ZeroUnmap { Op::Zero } else { request.op };
        let at = match op {
            Op::Flush => 0,
            _ => request.offset.saturating_sub(self.manner.start),
        };
        (op, at, request.len)
    }

    fn is_held(&self, request: &Request) -> bool {
        let (op, at, _) = self.place(request);
        let is_this =
            |hold: &(Option<Op>, Option<u64>)| hold.0.is_none_or(|of| of == op) && hold.1.is_none_or(|of| of == at);
        self.holds.iter().any(is_this)
    }

    fn strike(&mut self, request: &Request, late: bool) -> Option<Fault> {
        let (op, at, _) = self.place(request);
        let is_this = |it: &Planned| (it.op, it.at, it.late) == (op, at, late);
        let found = self.faults.iter().position(is_this)?;
        Some(self.faults.swap_remove(found).fault)
    }

    fn take_effect(&mut self, disk: usize, mut request: Request) -> Completion {
        let (op, place, len) = self.place(&request);
        self.record.push(Entry::Ended(op, place, len));
        if let Some(fault) = self.strike(&request, true) {
            return request.complete(Err(fault));
        }
        let bytes = &mut self.disks[disk];
        let range = at(request.offset)..at(request.offset + len);
        match (request.op, &mut request.data) {
            (Op::Read, Some(buffer)) => buffer.copy_from_slice(&bytes[range]),
            (_, Some(data)) => {
                bytes[range].copy_from_slice(data);
                self.written.push((request.offset, data.to_vec()));
            }
            (Op::Discard | Op::Zero | Op::ZeroUnmap, _) => bytes[range].fill(0),
            _ => {}
        }
        request.complete(Ok(()))
    }
}

fn at(offset: u64) -> usize {
    usize::try_from(offset).expect("a place in memory")
}

/// Of a disk of `size` bytes that can do everything.
#[must_use]
pub fn geometry(size: u64) -> Geometry {
    let plain = Geometry::plain(size, 512);
    Geometry { preferred_block: 4096, discard: true, write_zeroes: true, cache: true, ..plain }
}

struct Disk {
    script: Scripted,
    disk: usize,
}

impl Device for Disk {
    fn traits(&self) -> Traits {
        let state = self.script.state();
        let size = state.disks[self.disk].len() as u64;
        Traits::base(Geometry { logical_block: state.manner.block, ..geometry(size) })
    }

    fn open_queue(&self, ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        let waker = ring.waker().map_err(OpenError::Ring)?;
        let mut state = self.script.state();
        state.wakers.push(waker);
        state.queues += 1;
        Ok(Box::new(DiskQueue { script: self.script.clone(), disk: self.disk, number: state.queues }))
    }

    /// Runs of blocks of zeros are holes.
    fn extent(&self, offset: u64, len: u64) -> Result<Extent, Fault> {
        let state = self.script.state();
        let range = &state.disks[self.disk][at(offset)..at(offset + len)];
        let mut blocks = range.chunks(512).map(|block| block.iter().all(|&byte| byte == 0));
        let hole = blocks.next().expect("a range");
        let run = 1 + blocks.take_while(|&other| other == hole).count();
        Ok(Extent { len: (run as u64 * 512).min(len), hole, zero: hole })
    }
}

struct DiskQueue {
    script: Scripted,
    disk: usize,
    number: usize,
}

impl Queue for DiskQueue {
    fn submit(&mut self, ring: &mut Ring, request: Request) -> Submitted {
        let mut state = self.script.state();
        let (op, at, len) = state.place(&request);
        state.record.push(Entry::Begun(op, at, len));
        if let Some(fault) = state.strike(&request, false) {
            return Submitted::Done(request.complete(Err(fault)));
        }
        if state.room.is_some_and(|room| state.taken.len() >= room) {
            return Submitted::Done(request.complete(Err(Fault::Busy)));
        }
        if state.manner.at_once && !state.is_held(&request) {
            return Submitted::Done(state.take_effect(self.disk, request));
        }
        state.taken.push(Taken { queue: self.number, disk: self.disk, request, answer: None });
        ring.stay_awake();
        Submitted::Pending
    }

    fn poll(&mut self, _ring: &mut Ring, done: &mut Vec<Completion>) {
        let mut state = self.script.state();
        for taken in std::mem::take(&mut state.taken) {
            match taken.answer {
                _ if taken.queue != self.number => state.taken.push(taken),
                Some(Err(fault)) => done.push(taken.request.complete(Err(fault))),
                None if state.is_held(&taken.request) => state.taken.push(taken),
                _ => done.push(state.take_effect(taken.disk, taken.request)),
            }
        }
    }
}

impl Drop for DiskQueue {
    fn drop(&mut self) {
        self.script.state().taken.retain(|taken| taken.queue != self.number);
    }
}

/// Reply of a function to a request; nothing for one that is kept and never answered.
pub type Answer = Option<Result<(), Fault>>;

/// A device of which `answer` carries out the requests, when they are submitted and on the thread that does so.
pub fn answering(geometry: Geometry, answer: impl Fn(&mut Request) -> Answer + Send + Sync + 'static) -> Gate {
    Gate::new(Answering { geometry, answer: Arc::new(answer), kept: Vec::new() })
}

struct Answering {
    geometry: Geometry,
    answer: Arc<dyn Fn(&mut Request) -> Answer + Send + Sync>,
    kept: Vec<Request>,
}

impl Device for Answering {
    fn traits(&self) -> Traits {
        Traits::base(self.geometry)
    }

    fn open_queue(&self, ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        if !self.geometry.answers_at_once {
            // As for a library's threads: the ring waits for this, too, and it never comes.
            ring.waker().map_err(OpenError::Ring)?;
        }
        Ok(Box::new(Self { geometry: self.geometry, answer: Arc::clone(&self.answer), kept: Vec::new() }))
    }

    fn extent(&self, _offset: u64, len: u64) -> Result<Extent, Fault> {
        Ok(Extent { len, hole: false, zero: false })
    }
}

impl Queue for Answering {
    fn submit(&mut self, _ring: &mut Ring, mut request: Request) -> Submitted {
        match (self.answer)(&mut request) {
            Some(result) => Submitted::Done(request.complete(result)),
            None => {
                self.kept.push(request);
                Submitted::Pending
            }
        }
    }

    fn poll(&mut self, _ring: &mut Ring, _done: &mut Vec<Completion>) {}
}
