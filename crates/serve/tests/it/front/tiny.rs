//! The smallest wire there is: its requests come from a vector and its answers go to another.
//!
//! The wire brings and takes bytes in the three ways that fronts do:
//!
//! * copied between the lane's buffers and memory that others own, as for a virtqueue,
//! * moved in and out in buffers of its own, a read in one piece, as for ublk and FUSE,
//! * brought later than asked for, as from a file that has to be read first.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cryptline_engine::blocking::Blocking;
use cryptline_engine::{Buffer, Fault, Gate, Geometry, Op, Ring};
use cryptline_serve::lane::{Brought, Lane, LaneRoom, Orders, Wire, WireInput, WireRequest, WriteChunk};
use cryptline_sys::{Waker, lock};
use cryptline_testkit::suite::{Fresh, Watchdog};
use rustix::io::Errno;

use crate::common::wait_until;
use crate::front::client::{Ask, Client, How, Outcome, Server};

/// How bytes come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Copied,
    Moved,
    Later,
}

/// Bytes are copied.
pub fn copied(over: Fresh, how: How) -> Box<dyn Server> {
    Box::new(Tiny::start(over, how, Manner::Copied))
}

/// Buffers are moved.
pub fn moved(over: Fresh, how: How) -> Box<dyn Server> {
    Box::new(Tiny::start(over, how, Manner::Moved))
}

/// Bytes of writes are put off.
pub fn later(over: Fresh, how: How) -> Box<dyn Server> {
    Box::new(Tiny::start(over, how, Manner::Later))
}

/// State that a client and its lane share.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    asked: VecDeque<(u64, Ask)>,
    answers: VecDeque<(u64, Outcome)>,
    /// Ends the lane's wait. There once the lane is.
    waker: Option<Waker>,
    /// The client is gone.
    is_gone: bool,
    /// Nobody will answer any more.
    is_cut_off: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        if let Some(waker) = &state.waker {
            waker.wake();
        }
        self.changed.notify_all();
    }

    fn wait_for<T>(&self, mut found: impl FnMut(&mut State) -> Option<T>) -> T {
        let mut state = self.lock();
        loop {
            if let Some(value) = found(&mut state) {
                return value;
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

struct TinyWire {
    shared: Arc<Shared>,
    manner: Manner,
    geometry: Geometry,
    /// Requests that the lane has; a tag is a place here.
    taken: Vec<Option<Started>>,
    /// Chunks of writes that were put off.
    wanted: VecDeque<(usize, WriteChunk)>,
    is_gone: bool,
    is_stopped: bool,
}

struct Started {
    mark: u64,
    ask: Ask,
    parts: Vec<(u64, Buffer)>,
}

impl TinyWire {
    /// Returns what the lane is to do, or why not.
    fn judge(&self, ask: &Ask) -> Result<WireRequest<()>, Errno> {
        let (range, block) = (ask.range(), self.geometry.logical_block);
        let end = range.offset.checked_add(range.len.into());
        let is_inside = end.is_some_and(|end| end <= self.geometry.size);
        let is_aligned = range.offset.is_multiple_of(block.into()) && range.len.is_multiple_of(block);
        let is_empty = range.len == 0 && !matches!(ask, Ask::Flush);
        let only_reads = matches!(ask, Ask::Read(_) | Ask::Cache(_) | Ask::Flush);
        if self.geometry.read_only && !only_reads {
            return Err(Errno::PERM);
        }
        if !is_inside || !is_aligned || is_empty {
            return Err(Errno::INVAL);
        }
        let of = |op| WireRequest::new(op, range.offset, range.len.into());
        Ok(match ask {
            Ask::Read(_) => WireRequest { whole: self.manner == Manner::Moved, ..of(Op::Read) },
            Ask::Cache(_) => of(Op::Cache),
            Ask::Write { durable, .. } => of(Op::write(*durable)),
            Ask::Zero(_, how) => WireRequest { durable: how.durable, fast: how.fast, ..of(Op::zero(how.may_unmap)) },
            Ask::Discard { durable, .. } => WireRequest { durable: *durable, ..of(Op::Discard) },
            Ask::Flush => of(Op::Flush),
        })
    }

    fn bytes(&self, tag: usize, chunk: WriteChunk) -> &[u8] {
        let Some(Started { ask: Ask::Write { data, .. }, .. }) = &self.taken[tag] else { panic!("no write") };
        let start = usize::try_from(chunk.at).expect("inside");
        &data[start..start + chunk.len]
    }

    fn copy(&self, tag: usize, chunk: WriteChunk, room: &LaneRoom) -> Option<Buffer> {
        let mut buffer = room.buffer(chunk.len)?;
        buffer.copy_from_slice(self.bytes(tag, chunk));
        Some(buffer)
    }

    fn answer(&self, mark: u64, outcome: Outcome) {
        self.shared.lock().answers.push_back((mark, outcome));
        self.shared.changed.notify_all();
    }
}

impl Wire for TinyWire {
    type Tag = usize;

    fn take(&mut self, room: &LaneRoom) -> Option<WireInput<usize>> {
        self.look_for_peer();
        if let Some((tag, chunk)) = self.wanted.front().copied() {
            if self.is_gone {
                self.wanted.pop_front();
                return Some(WireInput::Bytes(chunk.job, None));
            }
            if let Some(data) = self.copy(tag, chunk, room) {
                self.wanted.pop_front();
                return Some(WireInput::Bytes(chunk.job, Some(data)));
            }
        }
        while !self.is_stopped && !self.is_gone && room.has_job() {
            let (mark, ask) = self.shared.lock().asked.pop_front()?;
            match self.judge(&ask) {
                Err(error) => self.answer(mark, Err(error)),
                Ok(asked) => {
                    let free = self.taken.iter().position(Option::is_none);
                    let tag = free.unwrap_or(self.taken.len());
                    self.taken.resize_with(self.taken.len().max(tag + 1), || None);
                    self.taken[tag] = Some(Started { mark, ask, parts: Vec::new() });
                    return Some(WireInput::Asked(asked.tagged(tag)));
                }
            }
        }
        None
    }

    fn bring(&mut self, tag: usize, chunk: WriteChunk, room: &LaneRoom) -> Brought {
        if self.is_gone {
            return Brought::Never;
        }
        match self.manner {
            Manner::Copied => {
                let copied = self.copy(tag, chunk, room);
                copied.map_or(Brought::NoRoom, Brought::Now)
            }
            Manner::Moved => {
                let mut own = Buffer::alloc(chunk.len).expect("memory");
                own.set_len(chunk.len);
                own.copy_from_slice(self.bytes(tag, chunk));
                Brought::Now(own)
            }
            Manner::Later => {
                self.wanted.push_back((tag, chunk));
                Brought::Later
            }
        }
    }

    fn give(&mut self, tag: usize, at: u64, data: Buffer, _last: bool) {
        let started = self.taken[tag].as_mut().expect("it was taken");
        let data = match self.manner {
            Manner::Moved => data,
            // The lane's buffer is free again at once.
            _ => {
                let mut copy = Buffer::alloc(data.len()).expect("memory");
                copy.set_len(data.len());
                copy.copy_from_slice(&data);
                copy
            }
        };
        started.parts.push((at, data));
    }

    fn end(&mut self, tag: usize, result: Result<(), Fault>) {
        let mut started = self.taken[tag].take().expect("it was taken");
        let is_read = matches!(started.ask, Ask::Read(_));
        started.parts.sort_by_key(|(at, _)| *at);
        let mut data = Vec::new();
        for (_, part) in started.parts.drain(..) {
            data.extend_from_slice(&part);
        }
        if is_read && result.is_ok() {
            assert_eq!(data.len(), started.ask.range().len as usize, "not all of it");
        }
        self.answer(started.mark, result.map(|()| data).map_err(Fault::errno));
    }

    fn arm(&mut self, _ring: &mut Ring, room: &LaneRoom) -> bool {
        let can_bring = !self.wanted.is_empty() && (self.is_gone || room.has_buffer());
        let can_take = !self.is_stopped && !self.is_gone && room.has_job();
        can_bring || can_take && !self.shared.lock().asked.is_empty()
    }

    fn stop(&mut self) {
        self.is_stopped = true;
    }

    fn is_over(&self) -> bool {
        self.is_stopped || self.is_gone
    }

    fn look_for_peer(&mut self) {
        self.is_gone |= self.shared.lock().is_gone;
    }

    fn is_gone(&self) -> bool {
        self.is_gone
    }
}

struct TinyClient {
    shared: Arc<Shared>,
    marks: u64,
}

impl Client for TinyClient {
    fn send(&mut self, asks: &[Ask]) -> Vec<u64> {
        let first = self.marks;
        self.marks += asks.len() as u64;
        let marks = first..self.marks;
        let marked = marks.clone().zip(asks.iter().cloned());
        self.shared.change(|state| state.asked.extend(marked));
        marks.collect()
    }

    fn answer(&mut self) -> (u64, Outcome) {
        self.shared.wait_for(|state| state.answers.pop_front())
    }

    fn wait_until_cut_off(&mut self) {
        self.shared.wait_for(|state| state.is_cut_off.then_some(()));
    }
}

impl Drop for TinyClient {
    fn drop(&mut self) {
        self.shared.change(|state| state.is_gone = true);
    }
}

/// One client's lane.
struct Served {
    orders: Arc<Orders>,
    shared: Arc<Shared>,
    thread: JoinHandle<io::Result<()>>,
}

type Lanes = Arc<Mutex<Vec<Served>>>;
type Log = Arc<Mutex<Vec<String>>>;

struct Tiny {
    gate: Gate,
    how: How,
    manner: Manner,
    lanes: Lanes,
    log: Log,
    is_stopping: AtomicBool,
    ending: Mutex<Option<JoinHandle<Result<(), Fault>>>>,
    _keep: Vec<Box<dyn std::any::Any>>,
    _watchdog: Watchdog,
}

impl Tiny {
    fn start(over: Fresh, how: How, manner: Manner) -> Self {
        Self {
            gate: over.gate,
            how,
            manner,
            lanes: Lanes::default(),
            log: Log::default(),
            is_stopping: AtomicBool::new(false),
            ending: Mutex::default(),
            _keep: over.keep,
            _watchdog: Watchdog::start(Duration::from_secs(180)),
        }
    }
}

impl Server for Tiny {
    fn connect(&self) -> Box<dyn Client> {
        let (shared, orders) = (Arc::<Shared>::default(), Arc::<Orders>::default());
        let (theirs, ordered) = (Arc::clone(&shared), Arc::clone(&orders));
        let (gate, how, manner) = (self.gate.clone(), self.how, self.manner);
        let serve = move || {
            let open = |ring: &mut Ring| {
                let waker = ring.waker()?;
                theirs.change(|state| state.waker = Some(waker));
                Ok(TinyWire {
                    shared: theirs,
                    manner,
                    geometry: *gate.geometry(),
                    taken: Vec::new(),
                    wanted: VecDeque::new(),
                    is_gone: false,
                    is_stopped: false,
                })
            };
            let lane = Lane::new(&gate, how.backend, ordered, None, open);
            lane.expect("a lane").run()
        };
        let thread = std::thread::Builder::new().name("tiny".to_owned());
        let thread = thread.spawn(serve).expect("a thread");
        shared.wait_for(|state| state.waker.is_some().then_some(()));
        lock(&self.lanes).push(Served { orders, shared: Arc::clone(&shared), thread });
        Box::new(TinyClient { shared, marks: 0 })
    }

    fn connections(&self) -> usize {
        let lanes = lock(&self.lanes);
        lanes.iter().filter(|lane| !lane.thread.is_finished()).count()
    }

    fn stop(&self) {
        if self.is_stopping.swap(true, Ordering::Relaxed) {
            return;
        }
        let (lanes, log) = (Arc::clone(&self.lanes), Arc::clone(&self.log));
        let (gate, how) = (self.gate.clone(), self.how);
        let mut ending = lock(&self.ending);
        *ending = Some(std::thread::spawn(move || {
            dismiss(&lanes, how.grace, &log);
            if gate.geometry().read_only {
                return Ok(());
            }
            Blocking::new(&gate, how.backend).expect("a queue").flush()
        }));
    }

    fn is_over(&self) -> bool {
        let ending = lock(&self.ending);
        ending.as_ref().is_some_and(JoinHandle::is_finished)
    }

    fn log(&self) -> Vec<String> {
        lock(&self.log).clone()
    }

    fn end(self: Box<Self>) -> Result<(), Fault> {
        self.stop();
        wait_until("it has stopped", || self.is_over());
        let ending = lock(&self.ending).take();
        ending.expect("stopped").join().expect("no panic")
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
    }
}

/// Ends all lanes: no more requests at once, nothing more at all after `grace`.
fn dismiss(lanes: &Lanes, grace: Duration, log: &Log) {
    let mut lanes = lock(lanes);
    for lane in lanes.iter() {
        lane.orders.stop();
        lane.shared.change(|_| ());
    }
    let deadline = Instant::now() + grace;
    let are_over = |lanes: &[Served]| lanes.iter().all(|lane| lane.thread.is_finished());
    while !are_over(&lanes) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    for lane in lanes.iter() {
        lane.orders.abandon();
        lane.shared.change(|state| state.is_cut_off = true);
    }
    for lane in lanes.drain(..) {
        if let Err(error) = lane.thread.join().expect("a lane does not panic") {
            lock(log).push(error.to_string());
        }
    }
}
