//! One thread's I/O: files and sockets on one ring, with buffers that nobody else can touch.
//!
//! ```text
//!   submit(source, mark, Io) ──► slot table ──► kernel
//!                                    │
//!   next_done(source) ◄── inbox ◄────┘   Done { token, note, result, io }: the same Io comes back
//! ```
//!
//! An [`Io`] is a plain value that owns its memory. It is moved in, stays in the slot table while
//! the kernel works on it, and is moved out with its result. So there is no moment at which Rust
//! code could hold a reference to bytes that the kernel is reading or writing.
//!
//! Two engines do the work, and everything above is the same over both:
//!
//! * `uring`: io_uring. Submissions are batched: one system call submits all and waits.
//! * `syscalls`: `preadv2`/`pwritev2` at once, sockets by `poll`. For places that forbid io_uring
//!   (most container seccomp profiles, `kernel.io_uring_disabled`).
//!
//! Tests have a third, `simulated`: files in a simulated kernel.
//!
//! A ring never leaves the thread that made it.
//!
//! Nothing polls a ring: with `IORING_SETUP_DEFER_TASKRUN` a poll on its descriptor can miss a completion for good. A
//! thread waits in [`Ring::wait`], other threads end that wait with a [`Waker`], and loops of others have an eventfd
//! (`descriptor`). A request refused by the kernel for the moment stays in the backlog: a full queue neither loses nor
//! fails an operation, and no wait spins.
//!
//! There is no executor: sockets and files are on the same ring, so a busy connection makes one system call for any
//! number of requests and replies.

mod batch;
mod choice;
mod commands;
mod descriptor;
mod done;
mod message;
mod operation;
mod queues;
mod registered;
mod roaming;
mod room;
mod simulated;
mod stopwatch;
mod syscalls;
mod unbegun;
mod unheard;
mod uring;
mod waker;

pub use batch::SendBatch;
pub use choice::{Backend, BackendChoice};
pub(crate) use done::new_mark;
pub use done::{FileId, Mark, RequestSource, RingDone};
pub use message::ReceiveBatch;
pub use roaming::RoamingRing;
pub use simulated::{HandedOver, NextEvent, SimulatedKernel, Simulation};
pub use stopwatch::Stopwatch;
pub use waker::Waker;

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::Arena;
use descriptor::RingDescriptor;
pub use operation::{Allocate, Io};
use registered::RegisteredArena;
use simulated::Simulated;
use syscalls::Syscalls;
use unbegun::Paused;
use unheard::Unheard;
use uring::Uring;
use waker::Sleeper;

/// An operation in the kernel's hands.
struct InKernel {
    source: RequestSource,
    mark: Mark,
    io: Io,
    /// The first time that the kernel had no thread for it.
    unbegun_since: Option<Instant>,
}

/// How long to wait for something to finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    None,
    For(Duration),
    Endless,
}

impl Patience {
    /// The same, and no longer than `time`.
    fn at_most(self, time: Duration) -> Self {
        match self {
            Self::None => Self::None,
            Self::For(left) => Self::For(left.min(time)),
            Self::Endless => Self::For(time),
        }
    }
}

enum RingEngine {
    Uring(Box<Uring>),
    Syscalls(Syscalls),
    Simulated(Box<Simulated>),
}

/// One thread's ring. It waits in [`wait`](Self::wait), or in a loop of its own for [`descriptor`](Self::descriptor); nobody
/// is given the descriptor of the io_uring below (a poll on it missed completions on Linux 6.18).
pub struct Ring {
    engine: RingEngine,
    files: Vec<Arc<OwnedFd>>,
    /// Those that take commands, with their marks.
    commanded: Vec<(FileId, u64)>,
    /// Operations that can be in flight.
    depth: usize,
    /// As many as were ever in flight: a ring that has little to do touches little memory.
    slots: Vec<Option<InKernel>>,
    free_slots: Vec<u32>,
    inboxes: Vec<VecDeque<RingDone>>,
    registered: Option<RegisteredArena>,
    /// To be registered with the first transfer of its buffers.
    unregistered: Option<Arc<Arena>>,
    transfer_limit: usize,
    /// When the next `wait` must return, if nothing else ends it.
    wake_by: Option<Instant>,
    /// Others may end a `wait`: there is a [`Waker`].
    sleeper: Option<Arc<Sleeper>>,
    descriptor: Option<RingDescriptor>,
    /// The next `wait` must not wait.
    stay_awake: bool,
    serves_several: bool,
    paused: Paused,
    unheard: Unheard,
    stopwatch: Arc<Stopwatch>,
    /// Values that must live until nothing is in flight.
    kept: Vec<Arc<dyn Any + Send + Sync>>,
    /// Scratch space of `wait`.
    finished: Vec<(u32, Result<usize, Errno>)>,
    /// A ring belongs to the thread that made it (`IORING_SETUP_SINGLE_ISSUER`).
    not_send: PhantomData<*const ()>,
}

impl Ring {
    /// A ring for at most `depth` operations in flight.
    pub fn new(choice: BackendChoice, depth: u32) -> io::Result<Self> {
        let engine = match choice {
            BackendChoice::Syscalls => RingEngine::Syscalls(Syscalls::default()),
            BackendChoice::Simulated(kernel) => RingEngine::Simulated(Box::new(Simulated::new(kernel))),
            BackendChoice::IoUring => RingEngine::Uring(Box::new(Uring::new(depth)?)),
            BackendChoice::WideIoUring => RingEngine::Uring(Box::new(Uring::wide(depth)?)),
            BackendChoice::Auto => Uring::new(depth)
                .map_or_else(|_| RingEngine::Syscalls(Syscalls::default()), |uring| RingEngine::Uring(Box::new(uring))),
        };
        Ok(Self {
            engine,
            files: Vec::new(),
            commanded: Vec::new(),
            depth: depth as usize,
            slots: Vec::new(),
            free_slots: Vec::new(),
            inboxes: Vec::new(),
            registered: None,
            unregistered: None,
            finished: Vec::new(),
            transfer_limit: usize::MAX,
            wake_by: None,
            sleeper: None,
            descriptor: None,
            stay_awake: false,
            serves_several: false,
            paused: Paused::default(),
            kept: Vec::new(),
            unheard: Unheard::default(),
            stopwatch: Arc::default(),
            not_send: PhantomData,
        })
    }

    /// Which engine is in use.
    #[must_use]
    pub fn backend(&self) -> Backend {
        match &self.engine {
            RingEngine::Uring(_) => Backend::IoUring { fixed_buffers: self.registered.is_some() },
            RingEngine::Syscalls(_) => Backend::Syscalls,
            RingEngine::Simulated(simulated) => Backend::Simulated(simulated.simulation),
        }
    }

    /// Makes a file or socket known; it stays open as long as the ring.
    pub fn add_file(&mut self, file: Arc<OwnedFd>) -> FileId {
        let id = FileId(u32::try_from(self.files.len()).expect("fewer than 2^32 files"));
        if let RingEngine::Simulated(simulated) = &self.engine {
            simulated.opened(&file);
        }
        self.files.push(file);
        id
    }

    /// Puts another file in the place of one, which is closed unless others have it. `false` while an operation on the
    /// old one is in flight; nothing has changed then.
    pub fn replace_file(&mut self, id: FileId, file: Arc<OwnedFd>) -> bool {
        let mut in_flight = self.slots.iter().flatten();
        if in_flight.any(|entry| entry.io.file() == id) {
            return false;
        }
        if let RingEngine::Simulated(simulated) = &self.engine {
            simulated.opened(&file);
        }
        self.files[id.0 as usize] = file;
        true
    }

    /// Makes file reads and writes longer than `bytes` come back short, as a signal, a limit or a
    /// nearly full disk would. For tests of what is above; O_DIRECT wants whole blocks here too.
    pub fn limit_transfer(&mut self, bytes: usize) {
        self.transfer_limit = bytes.max(1);
    }

    /// A new inbox for completions.
    pub fn add_source(&mut self) -> RequestSource {
        let id = RequestSource(u16::try_from(self.inboxes.len()).expect("fewer than 2^16 sources"));
        self.inboxes.push(VecDeque::new());
        id
    }

    /// Starts an operation. With io_uring it reaches the kernel at the next [`wait`](Self::wait).
    ///
    /// Gives the operation back where `depth` operations are in flight already.
    pub fn submit(&mut self, source: RequestSource, mark: impl Into<Mark>, mut io: Io) -> Result<(), Io> {
        let mark = mark.into();
        io.check(self.transfer_limit);
        if let Some(mark) = io.mark() {
            let known = self.commanded.contains(&(io.file(), mark));
            assert!(known, "a command for a device of this ring");
        }
        let fd = &self.files[io.file().0 as usize];
        let slot = match self.free_slots.pop() {
            Some(slot) => slot,
            None if self.slots.len() < self.depth => {
                self.slots.push(None);
                u32::try_from(self.slots.len() - 1).expect("a depth was a u32")
            }
            None => return Err(io),
        };
        let entry = self.slots[slot as usize].insert(InKernel { source, mark, io, unbegun_since: None });
        let at_once = match &mut self.engine {
            RingEngine::Uring(uring) => {
                if let Some(arena) = self.unregistered.take_if(|arena| entry.io.transfers(arena)) {
                    self.registered = RegisteredArena::register(&arena, uring);
                }
                uring.push(slot, fd, &mut entry.io, self.registered.as_ref().map(|it| &it.arena));
                None
            }
            RingEngine::Syscalls(syscalls) => syscalls.start(slot, fd, &mut entry.io),
            RingEngine::Simulated(simulated) => simulated.start(slot, fd, &mut entry.io),
        };
        if let Some(result) = at_once {
            self.finish(slot, result);
        }
        self.raise();
        Ok(())
    }

    /// Carries a file operation out at once, by a system call, whichever the engine: for what
    /// io_uring would only hand to a worker thread. It is among the completions when this returns.
    pub fn submit_at_once(&mut self, source: RequestSource, mark: impl Into<Mark>, mut io: Io) {
        let mark = mark.into();
        io.check(self.transfer_limit);
        let file = &self.files[io.file().0 as usize];
        let result = match &self.engine {
            RingEngine::Simulated(simulated) => simulated.run(file, &mut io),
            _ => syscalls::run(file, &mut io),
        };
        self.inboxes[usize::from(source.0)].push_back(RingDone::new(mark, result, io));
        self.raise();
    }

    /// The queues on this ring are into several devices, none of which may wait for another's medium.
    pub fn serve_several(&mut self) {
        self.serves_several = true;
    }

    /// Tells if [`serve_several`](Self::serve_several) was called.
    #[must_use]
    pub fn serves_several(&self) -> bool {
        self.serves_several
    }

    /// Makes the next [`wait`](Self::wait) return at `moment`, should nothing have finished by
    /// then. The earliest of several moments counts. It is forgotten after that wait, so who has
    /// timed work says so again in each `submit` and `poll`.
    pub fn wake_by(&mut self, moment: Instant) {
        let moment = self.wake_by.map_or(moment, |earlier| earlier.min(moment));
        self.wake_by = Some(moment);
        if let Some(descriptor) = &mut self.descriptor {
            descriptor.raise_at(moment);
        }
    }

    /// Lets the next [`wait`](Self::wait) hand over and take in, but not wait: for a queue that has
    /// more to give than it gave in this `poll`.
    pub fn stay_awake(&mut self) {
        self.stay_awake = true;
        self.raise();
    }

    /// Returns a handle that ends a wait of this ring from another thread.
    pub fn waker(&mut self) -> io::Result<Waker> {
        Ok(self.sleeper()?.waker())
    }

    /// A descriptor that is readable while [`poll`](Self::poll) has something to do: to hand over what
    /// was submitted, or to take in what has finished. It stays the same; each loop can wait for it.
    pub fn descriptor(&mut self) -> io::Result<BorrowedFd<'_>> {
        let descriptor = match self.descriptor.take() {
            Some(descriptor) => descriptor,
            None => {
                let descriptor = RingDescriptor::new(self.sleeper()?)?;
                match &mut self.engine {
                    RingEngine::Uring(uring) => uring.register_eventfd()?,
                    RingEngine::Syscalls(syscalls) => syscalls.publish_in(descriptor.epoll()),
                    RingEngine::Simulated(simulated) => {
                        simulated.sockets.publish_in(descriptor.epoll());
                    }
                }
                descriptor
            }
        };
        let descriptor: &RingDescriptor = self.descriptor.insert(descriptor);
        Ok(descriptor.as_fd())
    }

    fn sleeper(&mut self) -> io::Result<&Arc<Sleeper>> {
        let sleeper = match self.sleeper.take() {
            Some(sleeper) => sleeper,
            None => {
                let sleeper = Sleeper::new()?;
                match &mut self.engine {
                    RingEngine::Uring(uring) => uring.listen(Arc::clone(&sleeper)),
                    RingEngine::Syscalls(syscalls) => syscalls.listen(Arc::clone(&sleeper)),
                    RingEngine::Simulated(simulated) => simulated.sockets.listen(Arc::clone(&sleeper)),
                }
                sleeper
            }
        };
        Ok(self.sleeper.insert(sleeper))
    }

    /// Makes the descriptor readable, where there is one.
    fn raise(&mut self) {
        if let Some(descriptor) = &mut self.descriptor {
            descriptor.raise();
        }
    }

    /// Keeps a value until the ring is dropped and nothing it had in flight can touch memory or files
    /// any more: for who promised others to be done first.
    pub fn keep(&mut self, value: Arc<dyn Any + Send + Sync>) {
        self.kept.push(value);
    }

    /// Returns the values kept so far: for who hands a part of this ring's work to another thread, where it may end
    /// after the ring.
    #[must_use]
    pub fn kept(&self) -> &[Arc<dyn Any + Send + Sync>] {
        &self.kept
    }

    /// Sets `lost` when the ring is dropped before the result of a failed sync of `source` was taken, or
    /// while one is under way of which nobody will know.
    pub fn tell_of_lost(&mut self, source: RequestSource, lost: Arc<AtomicBool>) {
        self.unheard.add(source, lost);
    }

    /// Hands everything submitted to the kernel and, unless a completion is already there to be
    /// taken, waits for one, for a [`Waker`], or for the moment of [`wake_by`](Self::wake_by).
    pub fn wait(&mut self) -> io::Result<()> {
        self.enter(true)
    }

    /// Hands everything submitted to the kernel and takes in what has finished, without waiting.
    pub fn poll(&mut self) -> io::Result<()> {
        self.enter(false)
    }

    /// The same, for a thread that looks again and again before it waits. Whether there is something to do now: to
    /// take a completion, or to look at what those have left who woke it.
    pub fn look(&mut self) -> io::Result<bool> {
        if self.descriptor.is_some() {
            return self.poll().map(|()| true);
        }
        let entered = self.enter_engine(Patience::None);
        let is_woken = self.sleeper.as_ref().is_some_and(|it| it.awake());
        entered?;
        let is_empty = self.inboxes.iter().all(VecDeque::is_empty);
        // Told once: the caller looks at everything now.
        Ok(is_woken | std::mem::take(&mut self.stay_awake) | !is_empty)
    }

    fn enter(&mut self, wait: bool) -> io::Result<()> {
        let mut patience = self.patience(wait);
        if patience != Patience::None && !self.may_wait() {
            patience = Patience::None;
        }
        let entered = self.enter_engine(patience);
        if self.descriptor.is_some() {
            return entered.and(self.settle());
        }
        if let Some(sleeper) = &self.sleeper {
            sleeper.awake();
        }
        entered
    }

    fn enter_engine(&mut self, mut patience: Patience) -> io::Result<()> {
        if let Some(pause) = self.try_again() {
            patience = patience.at_most(pause);
        }
        match &mut self.engine {
            RingEngine::Uring(uring) => {
                uring.enter(patience)?;
                while let Some((slot, mut result)) = uring.reap() {
                    if let (Err(_), Some(entry)) = (result, &mut self.slots[slot as usize]) {
                        let fd = &self.files[entry.io.file().0 as usize];
                        if unbegun::is_unbegun(result, fd, &entry.io) {
                            let since = *entry.unbegun_since.get_or_insert_with(Instant::now);
                            if !self.serves_several {
                                result = syscalls::run(fd, &mut entry.io);
                            } else if since.elapsed() < unbegun::PATIENCE {
                                // None of the others waits for its medium here.
                                self.paused.add(slot, since);
                                continue;
                            }
                        }
                        if result == Err(Errno::AGAIN) && entry.io.waits() {
                            // It is not ready, or another reader of a descriptor was faster.
                            uring.push(slot, fd, &mut entry.io, self.registered.as_ref().map(|it| &it.arena));
                            continue;
                        }
                    }
                    Self::deliver(&mut self.slots, &mut self.free_slots, &mut self.inboxes, slot, result);
                }
            }
            RingEngine::Syscalls(syscalls) => {
                let finished = &mut self.finished;
                syscalls.poll(&self.files, &mut self.slots, patience, finished)?;
                for (slot, result) in finished.drain(..) {
                    Self::deliver(&mut self.slots, &mut self.free_slots, &mut self.inboxes, slot, result);
                }
            }
            RingEngine::Simulated(simulated) => {
                let (files, finished) = (&self.files, &mut self.finished);
                let patience = simulated.advance(files, &mut self.slots, patience, finished);
                (simulated.sockets).poll(files, &mut self.slots, patience, finished)?;
                for (slot, result) in finished.drain(..) {
                    Self::deliver(&mut self.slots, &mut self.free_slots, &mut self.inboxes, slot, result);
                }
            }
        }
        Ok(())
    }

    /// Tells if nothing is there to be taken: no completion, no word from a queue or a waker.
    fn may_wait(&mut self) -> bool {
        !std::mem::take(&mut self.stay_awake)
            && self.inboxes.iter().all(VecDeque::is_empty)
            && (self.sleeper.as_ref()).is_none_or(|sleeper| sleeper.fall_asleep())
    }

    /// How long a `wait` may take; takes the moment of `wake_by` with it.
    fn patience(&mut self, wait: bool) -> Patience {
        if !wait {
            if self.descriptor.is_some() {
                self.wake_by = None;
            }
            return Patience::None;
        }
        let Some(moment) = self.wake_by.take() else {
            let nothing_can_end_it = self.in_flight() == 0 && self.sleeper.is_none();
            return if nothing_can_end_it { Patience::None } else { Patience::Endless };
        };
        match moment.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Patience::None,
            left => Patience::For(left),
        }
    }

    /// The next finished operation of one source.
    pub fn next_done(&mut self, source: RequestSource) -> Option<RingDone> {
        self.inboxes[usize::from(source.0)].pop_front()
    }

    fn finish(&mut self, slot: u32, result: Result<usize, Errno>) {
        Self::deliver(&mut self.slots, &mut self.free_slots, &mut self.inboxes, slot, result);
    }

    fn deliver(
        slots: &mut [Option<InKernel>],
        free_slots: &mut Vec<u32>,
        inboxes: &mut [VecDeque<RingDone>],
        slot: u32,
        result: Result<usize, Errno>,
    ) {
        let Some(InKernel { source, mark, io, .. }) = slots[slot as usize].take() else {
            debug_assert!(false, "completion for an empty slot");
            return;
        };
        free_slots.push(slot);
        inboxes[usize::from(source.0)].push_back(RingDone::new(mark, result, io));
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.try_no_more();
        let in_flight = (0u32..).zip(&self.slots);
        let in_flight = in_flight.filter_map(|(slot, entry)| match entry {
            Some(entry) if !entry.io.ends_with_the_ring() => Some(slot),
            _ => None,
        });
        let mut ended = Vec::new();
        let all_ended = match &mut self.engine {
            RingEngine::Uring(uring) => uring.cancel_all(in_flight.collect(), &mut ended),
            RingEngine::Simulated(simulated) => {
                simulated.abandon(&self.files, &mut self.slots, &mut ended);
                true
            }
            RingEngine::Syscalls(_) => true,
        };
        for (slot, result) in ended {
            self.finish(slot, result);
        }
        let held: &[_] = if all_ended { &[] } else { &self.slots };
        self.unheard.tell(&self.inboxes, held);
        if !all_ended {
            // The kernel may still write to these buffers and sync these files: they must never be
            // reused.
            std::mem::forget(std::mem::take(&mut self.slots));
            std::mem::forget(std::mem::take(&mut self.kept));
            std::mem::forget(std::mem::take(&mut self.files));
        }
        // Until the ring is closed, which happens next, the kernel may write to what these point to. It may be on its
        // way there, so that memory is never used again.
        let of_ring =
            |entry: &&mut Option<InKernel>| (entry.as_ref()).is_some_and(|entry| entry.io.ends_with_the_ring());
        for entry in self.slots.iter_mut().filter(of_ring) {
            std::mem::forget(entry.take());
        }
    }
}

#[cfg(test)]
#[path = "descriptor_tests.rs"]
mod descriptor_tests;
#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
