//! A disk that takes requests and never answers, as storage behind a network can.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cryptline_engine::{
    Completion, Device, Extent, Fault, Gate, Geometry, OpenError, Operation, Queue, Request, Ring,
    Submitted,
};
use cryptline_testkit::suite::Fresh;

use super::stack::{data, geometry};

/// A disk that answers flushes and nothing else.
#[derive(Clone, Default)]
pub struct Silent {
    taken: Arc<AtomicUsize>,
}

impl Silent {
    /// It, ready to be served.
    pub fn stack(&self) -> Fresh {
        Fresh::new(Gate::new(self.clone()))
    }

    /// Requests that it was asked for so far.
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
        Ok(Box::new(SilentQueue {
            taken: Arc::clone(&self.taken),
            kept: Vec::new(),
        }))
    }

    fn extent(&self, _offset: u64, len: u64) -> Result<Extent, Fault> {
        Ok(data(len))
    }
}

struct SilentQueue {
    taken: Arc<AtomicUsize>,
    kept: Vec<Request>,
}

impl Queue for SilentQueue {
    fn submit(&mut self, _ring: &mut Ring, request: Request) -> Submitted {
        if matches!(request.operation, Operation::Flush) {
            return Submitted::Done(request.complete(Ok(())));
        }
        self.kept.push(request);
        self.taken.fetch_add(1, Ordering::Relaxed);
        Submitted::Pending
    }

    fn poll(&mut self, _ring: &mut Ring, _done: &mut Vec<Completion>) {}

    fn measure(&mut self, _on: bool) {}

    fn crypto_time_ns(&self) -> u64 {
        0
    }
}
