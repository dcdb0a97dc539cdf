//! The descriptor by which another program's loop drives a ring.
//!
//! ```text
//!         ┌─ eventfd   the kernel has finished something, a waker woke, or the ring was given work
//! epoll ──┼─ timerfd   a moment of `Ring::wake_by` has come
//!         └─ sockets   over system calls: those that an operation waits for
//! ```
//!
//! Readable while there is something to do, and [`Ring::poll`](super::Ring::poll) does it. With
//! `IORING_SETUP_DEFER_TASKRUN` the kernel posts a completion only while the owner is inside it, and a
//! poll on the ring's own descriptor can miss that one is to be posted. A registered eventfd is
//! signalled when the first such piece of work is queued, so it misses none.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::uring::PAUSE;
use super::waker::Sleeper;
use super::{Patience, Ring, RingEngine};

pub(super) struct RingDescriptor {
    epoll: Arc<OwnedFd>,
    timer: OwnedFd,
    sleeper: Arc<Sleeper>,
    /// The eventfd was made readable from this side.
    raised: bool,
    /// The timer is set.
    timed: bool,
}

impl RingDescriptor {
    /// Readable from the start.
    pub fn new(sleeper: &Arc<Sleeper>) -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for source in [sleeper.eventfd(), &timer] {
            let data = epoll::EventData::new_u64(0);
            epoll::add(&epoll, source, data, epoll::EventFlags::IN)?;
        }
        let mut descriptor =
            Self { epoll: Arc::new(epoll), timer, sleeper: Arc::clone(sleeper), raised: false, timed: false };
        descriptor.raise();
        sleeper.publish();
        sleeper.look();
        Ok(descriptor)
    }

    /// The set itself, for an engine that has sockets to add.
    pub fn epoll(&self) -> &Arc<OwnedFd> {
        &self.epoll
    }

    /// Makes it readable: there is something to do.
    pub fn raise(&mut self) {
        if !self.raised {
            self.raised = true;
            self.sleeper.signal();
        }
    }

    /// Makes it unreadable. What has come before this is to be looked at after it.
    pub fn lower(&mut self) {
        self.sleeper.clear();
        self.sleeper.look();
        self.raised = false;
        if std::mem::take(&mut self.timed) {
            self.set_timer(Duration::ZERO);
        }
    }

    /// Makes it readable at `moment`.
    pub fn raise_at(&mut self, moment: Instant) {
        match moment.saturating_duration_since(Instant::now()) {
            Duration::ZERO => self.raise(),
            left => {
                self.timed = true;
                self.set_timer(left);
            }
        }
    }

    /// Zero stops the timer, and makes it unreadable.
    fn set_timer(&mut self, left: Duration) {
        let none = Timespec::default();
        let timer = Itimerspec { it_interval: none, it_value: Timespec::try_from(left).unwrap_or(none) };
        if timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &timer).is_err() {
            self.raise();
        }
    }
}

impl Ring {
    /// Makes the descriptor unreadable, unless there is more to do.
    pub(super) fn settle(&mut self) -> io::Result<()> {
        let Some(descriptor) = &mut self.descriptor else {
            return Ok(());
        };
        descriptor.lower();
        // What has finished until then is taken in here; what finishes from now on raises it again.
        let entered = self.enter_engine(Patience::None);
        if self.is_refused() {
            self.wake_by(Instant::now() + PAUSE);
        }
        if let Some(moment) = self.next_try() {
            self.wake_by(moment);
        }
        entered
    }

    /// Tells if the kernel does not have all that was submitted, and another [`poll`](Self::poll) is needed.
    pub fn is_refused(&mut self) -> bool {
        match &mut self.engine {
            RingEngine::Uring(uring) => uring.is_refused(),
            RingEngine::Syscalls(syscalls) => syscalls.is_unpublished(),
            // Its kernel works only while it is called.
            RingEngine::Simulated(_) => self.slots.len() > self.free_slots.len(),
        }
    }
}

impl AsFd for RingDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
