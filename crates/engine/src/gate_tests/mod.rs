//! The gate in front of a device that answers as the test says, and that is seen to be asked.

mod checks;
mod latch;

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use cryptline_sys::{BackendChoice, Buffer};

use super::*;
use crate::Connections;
use crate::zone::ZoneModel;

const BLOCK: usize = 512;
const SIZE: u64 = 64 * 1024;
const ZONE: u64 = 16 * 1024;
const EIO: Fault = Fault::Io(Errno::IO);
const NO_ROOM: Fault = Fault::Io(Errno::NOSPC);

/// By which way a device answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    AtOnce,
    InSubmit,
    InPoll,
}

const WAYS: [Way; 3] = [Way::AtOnce, Way::InSubmit, Way::InPoll];

type Verdict = Result<(), Fault>;

/// State of the device below the gate, and the answers that it gives.
struct Below {
    geometry: Geometry,
    way: Way,
    /// Fault of the next requests, each once; after them all is well.
    faults: Mutex<Vec<Fault>>,
    asked: AtomicUsize,
    size: AtomicU64,
    spare_closed: AtomicUsize,
    /// A device below it.
    under: Vec<Gate>,
    /// Each request comes back so many times.
    times: usize,
}

struct Stub(Arc<Below>);

struct StubQueue {
    below: Arc<Below>,
    done: Vec<Completion>,
}

impl Below {
    fn new(geometry: Geometry, way: Way) -> Self {
        Self {
            geometry,
            way,
            faults: Mutex::default(),
            asked: AtomicUsize::new(0),
            size: AtomicU64::new(geometry.size),
            spare_closed: AtomicUsize::new(0),
            under: Vec::new(),
            times: 1,
        }
    }

    fn verdict(&self) -> Verdict {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.faults.lock().unwrap().pop().map_or(Ok(()), Err)
    }

    fn fail(&self, fault: Fault) {
        self.faults.lock().unwrap().push(fault);
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Device for Stub {
    fn traits(&self) -> Traits {
        let is_many = self.0.times > 1;
        Traits {
            at_once: if self.0.way == Way::AtOnce { AtOnce::All } else { AtOnce::None },
            queues: 7,
            awaits_reads: is_many,
            sends_messages: is_many,
            connects: Connections { tcp: true, ..Connections::default() },
            ..Traits::base(self.0.geometry)
        }
    }

    fn grow(&self) -> u64 {
        self.0.size.load(Ordering::Relaxed)
    }

    fn open_queue(&self, _ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        Ok(Box::new(StubQueue { below: Arc::clone(&self.0), done: Vec::new() }))
    }

    fn extent(&self, _offset: u64, len: u64) -> Result<Extent, Fault> {
        Ok(Extent { len, hole: true, zero: false })
    }

    fn below(&self) -> &[Gate] {
        &self.0.under
    }

    fn close_spare(&self) {
        self.0.spare_closed.fetch_add(1, Ordering::Relaxed);
    }

    fn report_zones(&self, _offset: u64, zones: &mut [Zone]) -> Result<usize, Fault> {
        Ok(zones.len())
    }
}

impl Queue for StubQueue {
    fn submit(&mut self, _ring: &mut Ring, request: Request) -> Submitted {
        if self.below.way != Way::InPoll {
            let verdict = self.below.verdict();
            return Submitted::Done(request.complete(verdict));
        }
        for _ in 1..self.below.times {
            self.done.push(Request::flush(request.token).complete(Ok(())));
        }
        let verdict = self.below.verdict();
        self.done.push(request.complete(verdict));
        Submitted::Pending
    }

    fn answer_at_once(&mut self, _request: &mut Request) -> Option<Verdict> {
        assert_eq!(self.below.way, Way::AtOnce, "not asked where it never does");
        Some(self.below.verdict())
    }

    fn poll(&mut self, _ring: &mut Ring, done: &mut Vec<Completion>) {
        done.append(&mut self.done);
    }
}

/// A gate, its device and a queue into it.
struct Bench {
    below: Arc<Below>,
    gate: Gate,
    ring: Ring,
    queue: GatedQueue,
}

impl Bench {
    fn new(geometry: Geometry, way: Way) -> Self {
        Self::over(Below::new(geometry, way))
    }

    fn over(below: Below) -> Self {
        let below = Arc::new(below);
        let gate = Gate::new(Stub(Arc::clone(&below)));
        Self::at(gate, below)
    }

    fn at(gate: Gate, below: Arc<Below>) -> Self {
        let mut ring = Ring::new(BackendChoice::Syscalls, 4).unwrap();
        let queue = gate.open_queue(&mut ring).unwrap();
        Self { below, gate, ring, queue }
    }

    /// A further queue, into a clone of the gate.
    fn another(&self) -> Self {
        Self::at(self.gate.clone(), Arc::clone(&self.below))
    }

    /// Submits, and waits for the end.
    fn run(&mut self, request: Request) -> Verdict {
        match self.queue.submit(&mut self.ring, request) {
            Submitted::Done(completion) => completion.result,
            Submitted::Pending => {
                let mut done = Vec::new();
                self.queue.poll(&mut self.ring, &mut done);
                assert_eq!((done.len(), self.queue.in_flight()), (1, 0));
                done.remove(0).result
            }
        }
    }

    /// The result, and whether the device was asked.
    fn see(&mut self, request: Request) -> (Verdict, bool) {
        let before = self.below.asked();
        let result = self.run(request);
        (result, self.below.asked() > before)
    }
}

/// A device that offers everything.
fn able() -> Geometry {
    Geometry { discard: true, write_zeroes: true, cache: true, ..Geometry::plain(SIZE, 512) }
}

fn zoned() -> Geometry {
    let (max_open, max_active) = (0, 0);
    let zones = ZoneModel { zone_size: ZONE, max_open, max_active, append_limit: 4096, write_granularity: 512 };
    Geometry { zones: Some(zones), ..able() }
}

fn read(offset: u64, len: usize) -> Request {
    Request::read(offset, buffer(len), 0)
}

fn write(offset: u64, len: usize, durable: bool) -> Request {
    Request::write(offset, buffer(len), durable, 0)
}

fn append(offset: u64, len: usize) -> Request {
    Request::zone_append(offset, buffer(len), false, 0)
}

fn buffer(len: usize) -> Buffer {
    let mut buffer = Buffer::alloc(len.max(1)).unwrap();
    buffer.set_len(len);
    buffer
}

fn discard(len: u64) -> Request {
    Request::new(Op::Discard, 0, len, 0)
}

fn zeroes(len: u64) -> Request {
    Request::new(Op::ZeroUnmap, 0, len, 0)
}

fn hint(len: u64) -> Request {
    Request::new(Op::Cache, 0, len, 0)
}
