//! A disk that hangs from some moment on, as a file on dead storage does: no request is answered, and no system call about it
//! returns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cryptline_engine::{
    Completion, Device, Extent, Fault, Gate, Geometry, OpenError, Operation, Queue, Request, Ring, Submitted,
};
use cryptline_testkit::scripted::geometry;
use cryptline_testkit::suite::Fresh;

/// Bytes of it.
pub const SIZE: u64 = 1 << 20;

/// A disk of zeros.
#[derive(Clone, Default)]
pub struct Hung(Arc<Shared>);

#[derive(Default)]
struct Shared {
    is_hung: AtomicBool,
    taken: AtomicUsize,
}

impl Hung {
    /// It, ready to be served.
    pub fn stack(&self) -> Fresh {
        Fresh::new(Gate::new(self.clone()))
    }

    /// From now on nothing is answered.
    pub fn hang(&self) {
        self.0.is_hung.store(true, Ordering::Relaxed);
    }

    /// Requests that it has not answered.
    pub fn taken(&self) -> usize {
        self.0.taken.load(Ordering::Relaxed)
    }

    /// A system call about it. A thread that hangs ends with the test.
    fn call(&self) {
        while self.0.is_hung.load(Ordering::Relaxed) {
            std::thread::park();
        }
    }
}

impl Device for Hung {
    fn geometry(&self) -> Geometry {
        Geometry { cache: false, ..geometry(SIZE) }
    }

    fn grow(&self) -> u64 {
        self.call();
        SIZE
    }

    fn open_queue(&self, ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        ring.waker().map_err(OpenError::Ring)?;
        Ok(Box::new(HungQueue { disk: self.clone(), kept: Vec::new() }))
    }

    fn extent(&self, _offset: u64, len: u64) -> Result<Extent, Fault> {
        self.call();
        Ok(Extent { len, hole: false, zero: false })
    }
}

struct HungQueue {
    disk: Hung,
    kept: Vec<Request>,
}

impl Queue for HungQueue {
    fn submit(&mut self, _ring: &mut Ring, mut request: Request) -> Submitted {
        if self.disk.0.is_hung.load(Ordering::Relaxed) {
            self.disk.0.taken.fetch_add(1, Ordering::Relaxed);
            self.kept.push(request);
            return Submitted::Pending;
        }
        if let Operation::Read(buffer) = &mut request.operation {
            buffer.fill(0);
        }
        Submitted::Done(request.complete(Ok(())))
    }

    fn poll(&mut self, _ring: &mut Ring, _done: &mut Vec<Completion>) {}

    fn measure(&mut self, _on: bool) {}

    fn crypto_time_ns(&self) -> u64 {
        0
    }
}
