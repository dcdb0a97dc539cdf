//! Work for the cipher that may be done by another thread, and the slots through which it is shared.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use crossbeam_queue::ArrayQueue;
use cryptline_sys::{Buffer, Waker};
use rustix::io::Errno;

use crate::cipher_map::CipherMap;
use crate::gate::GatedQueue;
use crate::{Fault, Operation, Request};

/// Which way the cipher goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Decrypt,
    /// And then write it to the medium.
    Encrypt {
        durable: bool,
    },
}

/// One piece of data under the cipher. Owns the bytes.
pub(crate) struct Job {
    pub cipher_map: Arc<CipherMap>,
    pub direction: Direction,
    /// Where it lies on the clear disk, in bytes.
    pub offset: u64,
    /// Where it lies on the device below, if that answers at once: whoever runs the job then moves the
    /// bytes as well, while they are in the cache of his core.
    pub place: Option<u64>,
    /// `None` only while the medium has it.
    pub data: Option<Buffer>,
    /// Whose piece it is: an index into the queue's table of requests in pieces, and which.
    pub split: usize,
    pub part: usize,
    /// Set where the piece has come to its end: the cipher broke, or the bytes were moved.
    pub result: Option<Result<(), Fault>>,
    /// It was offered to whoever came first.
    pub lent: bool,
    /// Whether the time is wanted, and then how long the cipher took, in nanoseconds.
    pub measured: bool,
    pub took_ns: u64,
}

impl Job {
    /// Runs the cipher, on whichever thread this is; and before or after that moves the bytes over
    /// `lower`, a queue of this thread, where that is part of the job.
    pub fn run(&mut self, lower: Option<&mut GatedQueue>) {
        let done = match self.direction {
            Direction::Decrypt => self.move_bytes(lower).and_then(|()| self.run_cipher()),
            Direction::Encrypt { .. } => self.run_cipher().and_then(|()| self.move_bytes(lower)),
        };
        if self.place.is_some() || done.is_err() {
            self.result = Some(done);
        }
    }

    fn run_cipher(&mut self) -> Result<(), Fault> {
        let Some(data) = &mut self.data else {
            return Ok(());
        };
        let started = self.measured.then(Instant::now);
        let (cipher_map, offset) = (&self.cipher_map, self.offset);
        let outcome = guarded(|| {
            match self.direction {
                Direction::Decrypt => cipher_map.decrypt(offset, data),
                Direction::Encrypt { .. } => cipher_map.encrypt(offset, data),
            }
            Ok(())
        });
        if let Some(started) = started {
            self.took_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        }
        outcome
    }

    fn move_bytes(&mut self, lower: Option<&mut GatedQueue>) -> Result<(), Fault> {
        let Some(place) = self.place else {
            return Ok(());
        };
        // One without the other would be a defect, and no reason for the request never to end.
        let Some(lower) = lower else {
            return Err(Fault::Io(Errno::IO));
        };
        let Some(data) = self.data.take() else {
            return Err(Fault::Io(Errno::IO));
        };
        let mut request = match self.direction {
            Direction::Decrypt => Request::read(place, data, 0),
            Direction::Encrypt { durable } => Request::write(place, data, durable, 0),
        };
        let outcome = guarded(|| {
            let answer = lower.answer_at_once(&mut request);
            answer.expect("a device that answers all requests at once")
        });
        if let Operation::Read(data) | Operation::Write { data, .. } = request.operation {
            self.data = Some(data);
        }
        outcome
    }
}

/// Somebody waits for the piece: it must come back even from a defect.
fn guarded(work: impl FnOnce() -> Result<(), Fault>) -> Result<(), Fault> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(Fault::Io(Errno::IO)))
}

/// A job and the slots it goes back to.
pub(super) struct Order {
    pub job: Job,
    pub slots: Arc<SharedSlots>,
}

/// Where one queue and the threads that work for it exchange jobs. Fixed in size; no locks.
pub(crate) struct SharedSlots {
    /// What anybody may take.
    todo: ArrayQueue<Job>,
    /// What has come back.
    done: ArrayQueue<Job>,
    /// Queues into the device below, one for each helper, where that answers at once.
    lowers: ArrayQueue<Box<GatedQueue>>,
    waker: Waker,
    /// What the ring keeps must outlive jobs that are still with a worker when the ring is gone:
    /// their writes reach the medium all the same.
    _kept: Vec<Arc<dyn Any + Send + Sync>>,
}

impl SharedSlots {
    /// Slots for at most `jobs` jobs at a time. Their queue is woken by `waker`, and its ring has kept
    /// `kept`. Jobs that are to move their bytes need `lowers`: as many as helpers may come.
    pub fn new(
        jobs: usize,
        waker: Waker,
        kept: Vec<Arc<dyn Any + Send + Sync>>,
        lowers: Vec<GatedQueue>,
    ) -> Self {
        let shared = Self {
            _kept: kept,
            todo: ArrayQueue::new(jobs),
            done: ArrayQueue::new(jobs),
            lowers: ArrayQueue::new(lowers.len().max(1)),
            waker,
        };
        lowers
            .into_iter()
            .for_each(|lower| shared.return_lower(Some(Box::new(lower))));
        shared
    }

    /// A queue into the device below for a helper, until he returns it; `None` where no job moves its
    /// bytes.
    pub fn borrow_lower(&self) -> Option<Box<GatedQueue>> {
        self.lowers.pop()
    }

    /// Takes a queue back.
    pub fn return_lower(&self, lower: Option<Box<GatedQueue>>) {
        let full = lower.is_some_and(|lower| self.lowers.push(lower).is_err());
        debug_assert!(!full, "more queues came back than were borrowed");
    }

    /// Offers a job to whoever comes first; gives it back where all slots are taken.
    pub fn offer(&self, job: Job) -> Result<(), Job> {
        self.todo.push(job)
    }

    /// Whether one more job can be offered.
    pub fn has_room(&self) -> bool {
        !self.todo.is_full()
    }

    /// Takes a job to do.
    pub fn take(&self) -> Option<Job> {
        self.todo.pop()
    }

    /// Jobs that nobody has taken.
    pub fn waiting(&self) -> usize {
        self.todo.len()
    }

    /// Gives a job back and wakes its queue.
    pub fn give_back(&self, job: Job) {
        let full = self.done.push(job).is_err();
        debug_assert!(!full, "more jobs came back than there are slots for");
        self.waker.wake();
    }

    /// A job that another thread has given back.
    pub fn collect(&self) -> Option<Job> {
        self.done.pop()
    }
}

#[cfg(test)]
#[path = "job_tests.rs"]
mod tests;
