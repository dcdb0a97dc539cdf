//! Work for the cipher that may be done by another thread, and the slots through which it is shared.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crossbeam_queue::ArrayQueue;
use cryptline_sys::{Buffer, Waker};
use rustix::io::Errno;

use crate::Fault;
use crate::cipher_map::CipherMap;

/// Which way the cipher goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobDirection {
    Decrypt,
    /// And then write it to the medium.
    Encrypt {
        durable: bool,
    },
}

/// One piece of data under the cipher. Owns the bytes.
pub(crate) struct CipherJob {
    pub cipher_map: Arc<CipherMap>,
    pub direction: JobDirection,
    /// Where it lies on the clear disk, in bytes.
    pub offset: u64,
    /// `None` only while the medium has it.
    pub data: Option<Buffer>,
    /// Whose piece it is: an index into the queue's table of requests in pieces, and which.
    pub split: usize,
    pub part: usize,
    /// Set where the piece has come to its end: the cipher broke, or the write was made.
    pub result: Option<Result<(), Fault>>,
    /// Set if it was offered to whoever came first.
    pub lent: bool,
    /// Set if the time is wanted; `took_ns` is then how long the cipher took, in nanoseconds.
    pub measured: bool,
    pub took_ns: u64,
}

impl CipherJob {
    /// Runs the cipher, on whichever thread this is.
    pub fn run(&mut self) {
        let started = self.measured.then(Instant::now);
        let Some(data) = &mut self.data else { return };
        let (cipher_map, offset) = (&self.cipher_map, self.offset);
        // Somebody waits for this piece: it must come back even from a defect.
        let outcome = catch_unwind(AssertUnwindSafe(|| match self.direction {
            JobDirection::Decrypt => cipher_map.decrypt(offset, data),
            JobDirection::Encrypt { .. } => cipher_map.encrypt(offset, data),
        }));
        if outcome.is_err() {
            self.result = Some(Err(Fault::Io(Errno::IO)));
        }
        if let Some(started) = started {
            self.took_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        }
    }
}

/// A job and the slots it goes back to.
pub(super) struct JobOrder {
    pub job: CipherJob,
    pub slots: Arc<SharedSlots>,
}

/// Where one queue and the threads that work for it exchange jobs. Fixed in size; no locks.
pub(crate) struct SharedSlots {
    most: usize,
    /// Made with the first job: most queues never have one, and these are large.
    lists: OnceLock<Lists>,
    /// More will be offered in a moment.
    more_comes: AtomicBool,
    waker: Waker,
    /// Memory that the ring keeps and that must outlive jobs still with a worker when the ring is gone: their writes
    /// reach the medium all the same.
    _kept: Vec<Arc<dyn Any + Send + Sync>>,
}

struct Lists {
    /// Jobs that anybody may take.
    todo: ArrayQueue<CipherJob>,
    /// Jobs that have come back.
    done: ArrayQueue<CipherJob>,
}

impl SharedSlots {
    /// Slots for at most `most` jobs at a time. Their queue is woken by `waker`, and its ring has kept
    /// `kept`.
    pub fn new(most: usize, waker: Waker, kept: Vec<Arc<dyn Any + Send + Sync>>) -> Self {
        Self { _kept: kept, most, lists: OnceLock::new(), more_comes: AtomicBool::new(false), waker }
    }

    fn lists(&self) -> &Lists {
        self.lists.get_or_init(|| Lists { todo: ArrayQueue::new(self.most), done: ArrayQueue::new(self.most) })
    }

    /// Offers a job to whoever comes first; gives it back where all slots are taken.
    pub fn offer(&self, job: CipherJob) -> Result<(), CipherJob> {
        self.lists().todo.push(job)
    }

    /// Takes a job to do.
    pub fn take(&self) -> Option<CipherJob> {
        self.lists.get()?.todo.pop()
    }

    /// Says whether more will be offered in a moment, so that a helper that has done the last job need
    /// not be woken again. Only advice: nothing depends on it.
    pub fn announce_more(&self, more: bool) {
        self.more_comes.store(more, Ordering::Relaxed);
    }

    /// Tells if more will be offered in a moment.
    pub fn more_comes(&self) -> bool {
        self.more_comes.load(Ordering::Relaxed)
    }

    /// Jobs that nobody has taken.
    pub fn waiting(&self) -> usize {
        self.lists.get().map_or(0, |lists| lists.todo.len())
    }

    /// Gives a job back and wakes its queue.
    pub fn give_back(&self, job: CipherJob) {
        let full = self.lists().done.push(job).is_err();
        debug_assert!(!full, "more jobs came back than there are slots for");
        self.waker.wake();
    }

    /// A job that another thread has given back.
    pub fn collect(&self) -> Option<CipherJob> {
        self.lists.get()?.done.pop()
    }
}
