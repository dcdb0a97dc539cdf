//! A disk that at some moment begins to be asked and never answer, as storage behind a network can, and a file on it:
//! no request comes back, or no system call about it returns.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cryptline_engine::{
    Completion, Device, Extent, Fault, Gate, Geometry, Op, OpenError, Queue, Request, Ring, Submitted, Traits,
};

use super::geometry;

/// Kind of request to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Any request but a flush.
    Transfer,
    /// A flush.
    Flush,
    /// Query of its allocation. Whoever asks is held up.
    Extent,
    /// Its size. Whoever asks is held up.
    Grow,
}

impl Call {
    /// All there are.
    pub const ALL: [Self; 4] = [Self::Transfer, Self::Flush, Self::Extent, Self::Grow];
}

/// A disk of zeros that keeps nothing.
#[derive(Clone)]
pub struct Silent {
    size: u64,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    silent: Mutex<Vec<Call>>,
    taken: AtomicUsize,
}

impl Silent {
    /// A disk of `size` bytes, which answers at first.
    #[must_use]
    pub fn new(size: u64) -> Self {
        Self { size, shared: Arc::default() }
    }

    /// Returns the disk, ready to be served.
    #[must_use]
    pub fn gate(&self) -> Gate {
        Gate::new(self.clone())
    }

    /// From now on these are not answered; the others are.
    pub fn fall_silent(&self, calls: &[Call]) {
        let mut silent = self.shared.silent.lock().unwrap_or_else(PoisonError::into_inner);
        *silent = calls.to_vec();
    }

    /// Requests that it has not answered so far.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.shared.taken.load(Ordering::Relaxed)
    }

    fn is_silent_in(&self, call: Call) -> bool {
        self.shared.silent.lock().unwrap_or_else(PoisonError::into_inner).contains(&call)
    }

    /// A system call about it. A thread that it holds up ends with the test.
    fn call(&self, call: Call) {
        while self.is_silent_in(call) {
            std::thread::park();
        }
    }
}

impl Device for Silent {
    fn traits(&self) -> Traits {
        Traits::base(Geometry { cache: false, ..geometry(self.size) })
    }

    fn grow(&self) -> u64 {
        self.call(Call::Grow);
        self.size
    }

    fn open_queue(&self, ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        // As for a library's threads: the ring waits for this, too, and it never comes.
        ring.waker().map_err(OpenError::Ring)?;
        Ok(Box::new(SilentQueue { disk: self.clone(), kept: Vec::new() }))
    }

    fn extent(&self, _offset: u64, len: u64) -> Result<Extent, Fault> {
        self.call(Call::Extent);
        Ok(Extent { len, hole: false, zero: false })
    }
}

struct SilentQueue {
    disk: Silent,
    kept: Vec<Request>,
}

impl Queue for SilentQueue {
    fn submit(&mut self, _ring: &mut Ring, mut request: Request) -> Submitted {
        let call = if request.op == Op::Flush { Call::Flush } else { Call::Transfer };
        if self.disk.is_silent_in(call) {
            self.disk.shared.taken.fetch_add(1, Ordering::Relaxed);
            self.kept.push(request);
            return Submitted::Pending;
        }
        if let (Op::Read, Some(buffer)) = (request.op, &mut request.data) {
            buffer.fill(0);
        }
        Submitted::Done(request.complete(Ok(())))
    }

    fn poll(&mut self, _ring: &mut Ring, _done: &mut Vec<Completion>) {}
}
