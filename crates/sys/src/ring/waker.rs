//! Waking a thread that waits on its ring.
//!
//! ```text
//! sleeper   ASLEEP ─► enter the kernel ─► clear ─► look at what others have left
//! waker     leave it ─► NOTIFIED ─► write the eventfd, only where ASLEEP was set
//! ```
//!
//! While the thread is busy, waking it is one atomic operation and no system call.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustix::event::EventfdFlags;

const NOTIFIED: u32 = 1;
const ASLEEP: u32 = 2;

/// Ends a ring's wait from any thread.
#[derive(Clone)]
pub struct Waker(Arc<Sleeper>);

impl Waker {
    /// Makes the ring's present or next wait return at once. What the caller did before this is
    /// visible to the ring's thread after that wait.
    pub fn wake(&self) {
        let before = self.0.state.fetch_or(NOTIFIED, Ordering::AcqRel);
        if before & (NOTIFIED | ASLEEP) == ASLEEP {
            self.0.signal();
        }
    }

    /// Tells if both wake the same ring.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The sleeper's side.
pub(super) struct Sleeper {
    state: AtomicU32,
    eventfd: OwnedFd,
    /// The ring has a descriptor, which alone makes the eventfd unreadable again.
    is_published: AtomicBool,
}

impl Sleeper {
    pub fn new() -> io::Result<Arc<Self>> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Arc::new(Self {
            state: AtomicU32::new(0),
            eventfd: rustix::event::eventfd(0, flags)?,
            is_published: AtomicBool::new(false),
        }))
    }

    pub fn waker(self: &Arc<Self>) -> Waker {
        Waker(Arc::clone(self))
    }

    /// Becomes readable when somebody wakes a sleeper.
    pub fn eventfd(&self) -> &OwnedFd {
        &self.eventfd
    }

    /// Says that the thread is about to wait; `false` where it must not, because it has been woken.
    pub fn fall_asleep(&self) -> bool {
        self.state.fetch_or(ASLEEP, Ordering::AcqRel) & NOTIFIED == 0
    }

    /// Says that the thread is awake and will now look at everything others have left for it. Whether it was woken.
    pub fn awake(&self) -> bool {
        self.state.load(Ordering::Relaxed) != 0 && self.state.swap(0, Ordering::AcqRel) & NOTIFIED != 0
    }

    /// Says that the thread will now look at everything others have left for it, and that it counts as
    /// asleep all the same: it waits elsewhere, for the eventfd.
    pub fn look(&self) {
        self.state.swap(ASLEEP, Ordering::AcqRel);
    }

    /// Makes the eventfd readable.
    pub fn signal(&self) {
        // It can fail only where the counter is at its limit, and then the eventfd is readable.
        let _ = rustix::io::write(&self.eventfd, &1u64.to_ne_bytes());
    }

    /// Leaves it to the ring's descriptor to make the eventfd unreadable.
    pub fn publish(&self) {
        self.is_published.store(true, Ordering::Relaxed);
    }

    /// Makes the eventfd unreadable after it has ended a wait. Where there is a descriptor this would swallow
    /// what was signalled since the descriptor was lowered.
    pub fn waited(&self) {
        if !self.is_published.load(Ordering::Relaxed) {
            self.clear();
        }
    }

    /// Makes the eventfd unreadable again.
    pub fn clear(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.eventfd, &mut count);
    }
}
