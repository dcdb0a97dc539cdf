//! A disk that at some moment begins to take requests and never answer, as storage behind a network can.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cryptline_engine::{
    Completion, Device, Extent, Fault, Gate, Geometry, OpenError, Operation, Queue, Request, Ring, Submitted,
};
use cryptline_testkit::suite::Fresh;

use super::stack::{data, geometry};

/// A disk of zeros that from some moment on answers flushes and nothing else.
#[derive(Clone, Default)]
pub struct Silent {
    is_silent: Arc<AtomicBool>,
    taken: Arc<AtomicUsize>,
}

impl Silent {
    /// It, ready to be served.
    pub fn stack(&self) -> Fresh {
        Fresh::new(Gate::new(self.clone()))
    }

    /// From now on it answers flushes and nothing else.
    pub fn fall_silent(&self) {
        self.is_silent.store(true, Ordering::Relaxed);
    }

    /// Requests that it has not answered so far.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Device for Silent {
    fn geometry(&self) -> Geometry {
        geometry(1 << 30, false)
    }

    fn open_queue(&self, ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        // As for a library's threads: the ring waits for this, too, and it never comes.
        ring.waker().map_err(OpenError::Ring)?;
        Ok(Box::new(SilentQueue { disk: self.clone(), kept: Vec::new() }))
    }

    fn extent(&self, _offset: u64, len: u64) -> Result<Extent, Fault> {
        Ok(data(len))
    }
}

struct SilentQueue {
    disk: Silent,
    kept: Vec<Request>,
}

impl Queue for SilentQueue {
    fn submit(&mut self, _ring: &mut Ring, mut request: Request) -> Submitted {
        let is_silent = self.disk.is_silent.load(Ordering::Relaxed);
        match &mut request.operation {
            Operation::Flush => return Submitted::Done(request.complete(Ok(()))),
            Operation::Read(buffer) if !is_silent => {
                buffer.fill(0);
                return Submitted::Done(request.complete(Ok(())));
            }
            _ => {}
        }
        self.kept.push(request);
        self.disk.taken.fetch_add(1, Ordering::Relaxed);
        Submitted::Pending
    }

    fn poll(&mut self, _ring: &mut Ring, _done: &mut Vec<Completion>) {}

    fn measure(&mut self, _on: bool) {}

    fn crypto_time_ns(&self) -> u64 {
        0
    }
}
