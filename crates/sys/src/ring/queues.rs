//! The kernel's two queues, whose entries may be twice as large.
//!
//! Most operations fit into entries of 64 bytes. Some commands to drivers do not, and a ring that is to take those has
//! 128 bytes for every entry.

use io_uring::squeue::{Entry, Entry128, EntryMarker, PushError, SubmissionQueue};
use io_uring::{Builder, CompletionQueue, IoUring, Parameters, Submitter, cqueue};

/// An operation as the kernel has it.
#[derive(Clone)]
pub(super) enum Sqe {
    Plain(Entry),
    /// For a wide ring only.
    Wide(Entry128),
}

pub(super) enum RingQueues {
    Plain(IoUring),
    Wide(IoUring<Entry128>),
}

/// The same for either size.
macro_rules! of_either {
    ($queues:expr, $ring:ident => $what:expr) => {
        match $queues {
            RingQueues::Plain($ring) => $what,
            RingQueues::Wide($ring) => $what,
        }
    };
}

impl Sqe {
    pub fn user_data(self, user_data: u64) -> Self {
        match self {
            Self::Plain(entry) => Self::Plain(entry.user_data(user_data)),
            Self::Wide(entry) => Self::Wide(entry.user_data(user_data)),
        }
    }

    pub fn get_user_data(&self) -> u64 {
        match self {
            Self::Plain(entry) => entry.get_user_data(),
            Self::Wide(entry) => entry.get_user_data(),
        }
    }
}

impl From<Entry> for Sqe {
    fn from(entry: Entry) -> Self {
        Self::Plain(entry)
    }
}

impl RingQueues {
    /// The cheapest ring this kernel offers: completions run when we ask for them (6.1), else without
    /// interrupting the thread (5.19), else as ever (5.6).
    pub fn new(depth: u32) -> std::io::Result<Self> {
        build(depth).map(Self::Plain)
    }

    /// With entries of 128 bytes (5.19).
    pub fn wide(depth: u32) -> std::io::Result<Self> {
        build(depth).map(Self::Wide)
    }

    pub fn params(&self) -> &Parameters {
        of_either!(self, ring => ring.params())
    }

    pub fn submitter(&self) -> Submitter<'_> {
        of_either!(self, ring => ring.submitter())
    }

    pub fn completion(&mut self) -> CompletionQueue<'_> {
        of_either!(self, ring => ring.completion())
    }

    /// Entries that the kernel has not taken.
    pub fn queued(&mut self) -> usize {
        of_either!(self, ring => ring.submission().len())
    }

    /// Entries for which there is room.
    pub fn room(&mut self) -> usize {
        fn room<E: EntryMarker>(queue: &SubmissionQueue<'_, E>) -> usize {
            queue.capacity() - queue.len()
        }
        of_either!(self, ring => room(&ring.submission()))
    }

    /// Tells if there is finished work that the kernel can post only while we are inside it.
    pub fn is_held_back(&mut self) -> bool {
        fn is_held_back<E: EntryMarker>(queue: &SubmissionQueue<'_, E>) -> bool {
            queue.taskrun() || queue.cq_overflow()
        }
        of_either!(self, ring => is_held_back(&ring.submission()))
    }

    /// RingQueues an entry, unless the queue is full.
    ///
    /// # Safety
    /// The memory that the entry points to and its descriptor stay as they are until its completion.
    pub unsafe fn push(&mut self, entry: &Sqe) -> Result<(), PushError> {
        // SAFETY: the caller's promise.
        unsafe {
            match (self, entry) {
                (Self::Plain(ring), Sqe::Plain(entry)) => ring.submission().push(entry),
                (Self::Wide(ring), Sqe::Wide(entry)) => ring.submission().push(entry),
                (Self::Wide(ring), Sqe::Plain(entry)) => ring.submission().push(&entry.clone().into()),
                (Self::Plain(_), Sqe::Wide(_)) => unreachable!("only a wide ring is asked for it"),
            }
        }
    }

    /// RingQueues both or none.
    ///
    /// # Safety
    /// As for [`push`](Self::push), for both.
    pub unsafe fn push_pair(&mut self, pair: &[Entry; 2]) -> Result<(), PushError> {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Plain(ring) => ring.submission().push_multiple(pair),
                Self::Wide(ring) => {
                    let pair = pair.clone().map(Entry128::from);
                    ring.submission().push_multiple(&pair)
                }
            }
        }
    }
}

/// Most entries of the queue to the kernel. It is emptied with each call. The queue of completions has room for as many
/// operations as were asked for; beyond that, the kernel keeps them. Both are locked memory, which an idle client has, too.
const TO_KERNEL_MAX: u32 = 128;

fn build<E: EntryMarker>(depth: u32) -> std::io::Result<IoUring<E>> {
    let completions = depth.next_power_of_two().clamp(16, 8192);
    let entries = (completions / 2).min(TO_KERNEL_MAX);
    let builder = || {
        let mut builder: Builder<E, cqueue::Entry> = IoUring::builder();
        builder.setup_cqsize(completions);
        builder
    };
    builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(entries)
        .or_else(|_| builder().setup_coop_taskrun().setup_taskrun_flag().build(entries))
        .or_else(|_| builder().build(entries))
}
