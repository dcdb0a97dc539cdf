//! The io_uring engine.
//!
//! ```text
//! push ─► the kernel's queue ─► enter ─► reap
//!   └───► backlog, while that is full ──┘
//! ```
//!
//! Pushing never fails. Where the kernel refuses what is queued (EBUSY: too many unread completions;
//! EAGAIN: out of memory), everything stays queued: the caller reads completions and tries again, and
//! where there are none, [`Uring::refused`] pauses in between.
//!
//! Nothing polls the ring's descriptor: see [`Ring`](super::Ring).

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::squeue::{Entry, Flags};
use io_uring::{EnterFlags, Probe, opcode, types};
use rustix::io::Errno;

use super::queues::{RingQueues, Sqe};
use super::waker::Sleeper;
use super::{Io, Patience};
use crate::ublk::{Batch, Part, UblkCommand};
use crate::{Arena, Buffer};

/// Marks the cancel requests, which have no slot.
const CANCEL: u64 = u64::MAX;
/// Marks the poll on the eventfd, which has no slot either.
const WOKEN: u64 = u64::MAX - 1;
/// Marks the end of a wait's time, on kernels that want an entry for it.
const TIMER: u64 = u64::MAX - 2;
/// Mark the operations of a batch, which stand for many slots.
const LIST: u64 = u64::MAX - 3;
const FETCH: u64 = u64::MAX - 4;
/// Marks, together with its slot, the poll that a message waits for.
const READY: u64 = 1 << 32;
/// How long a wait pauses where the kernel takes nothing and nothing has finished.
pub(super) const PAUSE: Duration = Duration::from_millis(1);
/// So many refusals in a row, with a pause after each, and a ring that is dropped gives up.
const REFUSALS: u32 = if cfg!(test) { 20 } else { 2000 };
/// How often a ring that is dropped repeats what it wants cancelled.
const INSIST: Duration = Duration::from_millis(100);

pub(super) struct Uring {
    ring: RingQueues,
    /// Entries that the kernel's queue has no room for, in order.
    backlog: VecDeque<Sqe>,
    /// The kernel takes a time limit with the wait itself (5.11).
    times_waits: bool,
    /// Time limit that the entry of a [`TIMER`] points to; on the heap, as the kernel may read it late.
    limit: Box<types::Timespec>,
    /// Set while that entry is queued, and the kernel has not taken it.
    timer_queued: bool,
    sleeper: Option<Arc<Sleeper>>,
    /// The kernel watches its eventfd.
    watching: bool,
    /// How often in a row the kernel has taken nothing.
    refusals: u32,
    /// A message is queued whose poll ends at once where nothing is in its way. The kernel begins what is linked to it
    /// only while it is asked for completions.
    queued_pair: bool,
    batch: Option<Box<Batch>>,
    /// The process that made it.
    process: u32,
    #[cfg(test)]
    pub(super) faults: VecDeque<Errno>,
}

impl Uring {
    pub fn new(depth: u32) -> io::Result<Self> {
        Self::over(RingQueues::new(depth)?)
    }

    /// The same, for commands that need large entries, too.
    pub fn wide(depth: u32) -> io::Result<Self> {
        Self::over(RingQueues::wide(depth)?)
    }

    /// Tells if it takes commands with large entries.
    pub fn is_wide(&self) -> bool {
        matches!(self.ring, RingQueues::Wide(_))
    }

    fn over(ring: RingQueues) -> io::Result<Self> {
        let times_waits = ring.params().is_feature_ext_arg();
        Self::with(ring, times_waits)
    }

    /// As on a kernel older than 5.11: a plain ring, and a wait has no time limit of its own.
    #[cfg(test)]
    pub fn old(depth: u32) -> io::Result<Self> {
        let ring = io_uring::IoUring::new(depth.next_power_of_two())?;
        Self::with(RingQueues::Plain(ring), false)
    }

    fn with(ring: RingQueues, times_waits: bool) -> io::Result<Self> {
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::Fsync::CODE,
            opcode::Fallocate::CODE,
            opcode::Recv::CODE,
            opcode::SendMsg::CODE,
            opcode::Readv::CODE,
            opcode::Writev::CODE,
            opcode::PollAdd::CODE,
            opcode::Timeout::CODE,
            opcode::AsyncCancel::CODE,
        ];
        if !needed.iter().all(|&code| probe.is_supported(code)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Self {
            ring,
            backlog: VecDeque::new(),
            times_waits,
            limit: Box::default(),
            timer_queued: false,
            sleeper: None,
            watching: false,
            refusals: 0,
            queued_pair: false,
            batch: None,
            process: std::process::id(),
            #[cfg(test)]
            faults: VecDeque::new(),
        })
    }

    /// Lets `sleeper` end a wait.
    pub fn listen(&mut self, sleeper: Arc<Sleeper>) {
        self.sleeper = Some(sleeper);
    }

    /// Lets the kernel signal the sleeper's eventfd: whenever it posts completions, and when it first has
    /// some to post that it will post only while the owner is inside it.
    pub fn register_eventfd(&self) -> io::Result<()> {
        let sleeper = self.sleeper.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let event = sleeper.eventfd().as_raw_fd();
        self.ring.submitter().register_eventfd(event)
    }

    /// Tells if operations wait for the kernel to take them.
    pub fn is_refused(&mut self) -> bool {
        let has_batch = self.batch.as_ref().is_some_and(|batch| batch.has_next());
        has_batch || !self.backlog.is_empty() || self.ring.queued() > 0
    }

    pub fn add_batch(&mut self, batch: Batch) -> io::Result<()> {
        if self.batch.is_some() {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        batch.register(&self.ring.submitter())?;
        self.batch = Some(Box::new(batch));
        Ok(())
    }

    pub fn confirm_commands(&mut self) -> bool {
        self.batch.as_mut().is_none_or(|batch| batch.confirm())
    }

    /// Tells if buffers can be registered while operations are in flight: before Linux 5.13 that waited for their ends
    /// (io_uring_register(2)).
    pub fn registers_at_work(&self) -> bool {
        self.ring.params().is_feature_resource_tagging()
    }

    pub fn register(&self, arena: &Arc<Arena>) -> bool {
        let whole = libc::iovec { iov_base: arena.start().cast(), iov_len: arena.size() };
        // SAFETY: the range is the arena's own mapping. `Ring` keeps the `Arc` for as long as it
        // keeps this engine, so the memory outlives the registration.
        unsafe { self.ring.submitter().register_buffers(&[whole]) }.is_ok()
    }

    /// Queues `io`, which lives in slot `slot` until [`reap`](Self::reap) names that slot.
    pub fn push(&mut self, slot: u32, fd: &OwnedFd, io: &mut Io, registered: Option<&Arc<Arena>>) {
        if let (Io::Command(command), Some(batch)) = (&mut *io, &mut self.batch)
            && command.is_batched()
        {
            return batch.add(slot, command);
        }
        let ready = io.is_message().then(|| {
            // Of several rings that wait for one message, one is enough.
            let one = if matches!(io, Io::ReadMessage { .. }) { libc::EPOLLEXCLUSIVE.cast_unsigned() } else { 0 };
            let ready = opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), u32::from(io.events().cast_unsigned()) | one);
            ready.build().flags(Flags::IO_LINK).user_data(READY | u64::from(slot))
        });
        let entry = match io {
            Io::Fuse(entry) => Sqe::Wide(entry.describe(fd)),
            io => describe(fd, io, registered).into(),
        };
        let entry = entry.user_data(u64::from(slot));
        // SAFETY: everything the entry points to is owned by the `Io` in the slot table, which is
        // neither moved out nor changed before its completion is reaped; `Ring`'s drop waits for
        // the kernel, or leaks the table. It is memory of an arena or a box: where the table grows, it
        // stays where it is. The poll refers to no memory. The descriptor is kept open by `Ring`.
        unsafe {
            match (ready, entry) {
                (Some(ready), Sqe::Plain(entry)) => self.push_pair([ready, entry]),
                (_, entry) => self.push_entry(entry),
            }
        }
    }

    /// Queues a message's poll and what is linked to it, together: the end of the queue would cut the link.
    /// A poll alone would take a wake-up and pass it on to nobody.
    ///
    /// # Safety
    /// As for [`push_entry`](Self::push_entry), for both.
    unsafe fn push_pair(&mut self, pair: [Entry; 2]) {
        self.queued_pair = true;
        if self.backlog.is_empty() {
            // SAFETY: the caller's promise.
            if unsafe { self.ring.push_pair(&pair) }.is_ok() {
                return;
            }
            // Where the kernel does not take it, `enter` sees that again, and says why.
            let _ = self.call(Patience::None);
        }
        self.backlog.extend(pair.map(Sqe::from));
        self.refill();
    }

    /// Queues an entry, handing the queue to the kernel where it is full.
    ///
    /// # Safety
    /// The memory that the entry points to and its descriptor stay as they are until its completion.
    unsafe fn push_entry(&mut self, entry: impl Into<Sqe>) {
        let entry = entry.into();
        if self.backlog.is_empty() {
            // SAFETY: the caller's promise.
            if unsafe { self.ring.push(&entry) }.is_ok() {
                return;
            }
            // Where the kernel does not take it, `enter` sees that again, and says why.
            let _ = self.call(Patience::None);
        }
        self.backlog.push_back(entry);
        self.refill();
    }

    /// Moves what fits from the backlog to the kernel's queue, pairs whole.
    fn refill(&mut self) {
        while let Some(entry) = self.backlog.front() {
            let is_poll_of_message = entry.get_user_data() & !u64::from(u32::MAX) == READY;
            if is_poll_of_message && self.ring.room() < 2 {
                return;
            }
            // SAFETY: whoever called `push_entry` has promised what the entry needs.
            if unsafe { self.ring.push(entry) }.is_err() {
                return;
            }
            self.backlog.pop_front();
        }
    }

    /// Queues what a batch has for the kernel.
    fn push_batch(&mut self) {
        while let Some((part, entry)) = self.batch.as_mut().and_then(|batch| batch.next_operation()) {
            let mark = match part {
                Part::List => LIST,
                Part::Fetch => FETCH,
            };
            // SAFETY: what it points to is the batch's, which changes it when it has its completion, and leaks it if this
            // is dropped before. The memory that the elements name is that of the slots of their tags: as in `push`.
            unsafe { self.push_entry(entry.user_data(mark)) };
        }
    }

    /// Submits what is queued; waits for one completion as long as `patience` says. May return
    /// early, as for a signal.
    pub fn enter(&mut self, patience: Patience) -> io::Result<()> {
        self.push_batch();
        let ready = !self.ring.completion().is_empty();
        if patience != Patience::None {
            self.watch_eventfd();
        }
        let patience = if ready { Patience::None } else { patience };
        if let Patience::For(limit) = patience
            && !self.times_waits
        {
            self.set_timer(limit);
        }
        while !self.backlog.is_empty() {
            if !self.call(Patience::None)? {
                return self.refused(patience);
            }
            self.refill();
        }
        // A caller that always has something else to take must not keep it out.
        let held_back = !ready && self.ring.is_held_back();
        let pointless = self.ring.queued() == 0 && patience == Patience::None && !held_back;
        if pointless || self.call(patience)? {
            return Ok(());
        }
        self.refused(patience)
    }

    /// The one call into the kernel: hands it the queue and waits as long as `patience` says.
    /// `false` where it took nothing of the queue for now.
    fn call(&mut self, patience: Patience) -> io::Result<bool> {
        let queued = self.ring.queued();
        #[cfg(test)]
        if let Some(errno) = self.faults.pop_front() {
            return self.judge(queued, Err(errno.into()));
        }
        let begins_linked = std::mem::take(&mut self.queued_pair);
        let wanted = 1 + self.batch.as_ref().map_or(0, |batch| batch.to_expect());
        let entered = match patience {
            Patience::None if begins_linked => {
                let queued = u32::try_from(queued).unwrap_or(u32::MAX);
                let flags = EnterFlags::GETEVENTS.bits();
                // SAFETY: the entries were promised to be good when they were queued, and there is no argument.
                unsafe { self.ring.submitter().enter::<()>(queued, 0, flags, None) }
            }
            Patience::None => self.ring.submitter().submit(),
            Patience::For(limit) if self.times_waits => {
                let limit = types::Timespec::from(limit);
                let limit = types::SubmitArgs::new().timespec(&limit);
                self.ring.submitter().submit_with_args(wanted, &limit)
            }
            // Where the wait has a limit, its timer is among what is queued.
            Patience::For(_) | Patience::Endless => self.ring.submitter().submit_and_wait(wanted),
        };
        self.judge(queued, entered)
    }

    /// Judges the result of a call that had `queued` entries to hand over.
    fn judge(&mut self, queued: usize, entered: io::Result<usize>) -> io::Result<bool> {
        let left = self.ring.queued();
        // It may have been among what was taken. One too many does no harm.
        self.timer_queued &= left == queued;
        let stuck = queued > 0 && left == queued;
        // What is queued still may have such a pair in it.
        self.queued_pair |= left > 0;
        let errno = match &entered {
            Ok(_) => None,
            Err(error) => Errno::from_io_error(error),
        };
        let refused = match (entered, errno) {
            // A signal or the end of the time changes nothing.
            (Ok(_), _) | (_, Some(Errno::INTR | Errno::TIME)) => stuck,
            (_, Some(Errno::AGAIN | Errno::BUSY)) => stuck || queued == 0,
            (Err(error), _) => return Err(error),
        };
        self.refusals = if refused { self.refusals + 1 } else { 0 };
        Ok(!refused)
    }

    /// The kernel takes nothing for now. The caller takes in the completions that are there, which
    /// makes room. Where there are none, a wait does not wait for one, because it might be that of an
    /// entry which was refused; nor does it return at once, because the caller would spin.
    fn refused(&mut self, patience: Patience) -> io::Result<()> {
        if self.ring.completion().is_empty() {
            let flags = EnterFlags::GETEVENTS.bits();
            // Completions for which there was no room come in. An error is that of the next call too.
            // SAFETY: nothing is handed over, and there is no argument.
            let _ = unsafe { self.ring.submitter().enter::<()>(0, 0, flags, None) };
        }
        let pause = match patience {
            Patience::None => return Ok(()),
            Patience::For(limit) => limit.min(PAUSE),
            Patience::Endless => PAUSE,
        };
        if self.ring.completion().is_empty() {
            std::thread::sleep(pause);
        }
        Ok(())
    }

    /// Asks for a completion when it is signalled, once.
    fn watch_eventfd(&mut self) {
        let Some(sleeper) = self.sleeper.as_ref().filter(|_| !self.watching) else {
            return;
        };
        let event = types::Fd(sleeper.eventfd().as_raw_fd());
        let flags = u32::from(libc::POLLIN.cast_unsigned());
        let entry = opcode::PollAdd::new(event, flags).build().user_data(WOKEN);
        // SAFETY: the entry refers to no memory, and `self.sleeper` keeps the descriptor open.
        unsafe { self.push_entry(entry) };
        self.watching = true;
    }

    /// Asks for a completion after `limit`, or as soon as another has come: so no timer is left
    /// behind by a wait that ends earlier.
    fn set_timer(&mut self, limit: Duration) {
        *self.limit = types::Timespec::from(limit);
        if self.timer_queued {
            return;
        }
        let limit = &raw const *self.limit;
        let entry = opcode::Timeout::new(limit).count(1).build();
        // SAFETY: the kernel reads the limit when it takes the entry; its place on the heap stays
        // until after the ring is closed.
        unsafe { self.push_entry(entry.user_data(TIMER)) };
        self.timer_queued = true;
    }

    pub fn reap(&mut self) -> Option<(u32, Result<usize, Errno>)> {
        loop {
            if let Some(ended) = self.batch.as_mut().and_then(|batch| batch.next_ended()) {
                return Some(ended);
            }
            let entry = self.ring.completion().next()?;
            if let (Some(batch), LIST | FETCH) = (&mut self.batch, entry.user_data()) {
                let part = if entry.user_data() == LIST { Part::List } else { Part::Fetch };
                batch.complete(part, entry.result(), entry.flags());
                continue;
            }
            if entry.user_data() == WOKEN {
                self.watching = false;
                if let Some(sleeper) = &self.sleeper {
                    sleeper.waited();
                }
            }
            let Ok(slot) = u32::try_from(entry.user_data()) else {
                continue; // the eventfd, a timer, a message's poll, or a cancel request
            };
            let result =
                usize::try_from(entry.result()).map_err(|_| Errno::from_raw_os_error(entry.result().saturating_neg()));
            return Some((slot, result));
        }
    }

    /// Cancels the operations `in_flight` and waits until the kernel holds none of them; what became of
    /// each goes to `ended`. `false` where that can not be known, as in a forked process: the kernel's queue is its
    /// parent's, who goes on with it.
    pub fn cancel_all(&mut self, mut in_flight: Vec<u32>, ended: &mut Vec<(u32, Result<usize, Errno>)>) -> bool {
        if self.process != std::process::id() {
            return in_flight.is_empty();
        }
        while !in_flight.is_empty() {
            for &slot in &in_flight {
                let cancel = opcode::AsyncCancel::new(u64::from(slot)).build();
                let ready = opcode::AsyncCancel::new(READY | u64::from(slot)).build();
                for cancel in [cancel, ready] {
                    // SAFETY: the entry refers to no memory.
                    unsafe { self.push_entry(cancel.user_data(CANCEL)) };
                }
            }
            // One by one, which every kernel can. What is just being tried again may escape its
            // request: hence more of them.
            let again = Instant::now() + INSIST;
            while !in_flight.is_empty() {
                let left = again.saturating_duration_since(Instant::now());
                if left.is_zero() && self.backlog.is_empty() {
                    break;
                }
                if self.enter(Patience::For(left)).is_err() || self.refusals > REFUSALS {
                    return false;
                }
                while let Some((slot, result)) = self.reap() {
                    in_flight.retain(|&known| known != slot);
                    ended.push((slot, result));
                }
            }
        }
        true
    }
}

fn describe(fd: &OwnedFd, io: &mut Io, registered: Option<&Arc<Arena>>) -> Entry {
    let fd = types::Fd(fd.as_raw_fd());
    match io {
        Io::Read { buffer, start, len, offset, .. } => {
            let fixed = is_fixed(buffer, registered);
            let (target, len) = (buffer[*start..].as_mut_ptr(), clamp(*len));
            if fixed {
                opcode::ReadFixed::new(fd, target, len, 0).offset(*offset).build()
            } else {
                opcode::Read::new(fd, target, len).offset(*offset).build()
            }
        }
        Io::Write { buffer, start, len, offset, durable, .. } => {
            let (source, len) = (buffer[*start..].as_ptr(), clamp(*len));
            let flags = if *durable { libc::RWF_DSYNC } else { 0 };
            if is_fixed(buffer, registered) {
                opcode::WriteFixed::new(fd, source, len, 0).offset(*offset).rw_flags(flags).build()
            } else {
                opcode::Write::new(fd, source, len).offset(*offset).rw_flags(flags).build()
            }
        }
        Io::Sync { .. } => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
        Io::Allocate { what, offset, len, .. } => {
            opcode::Fallocate::new(fd, *len).offset(*offset).mode(what.mode()).build()
        }
        Io::Receive { buffer, start, len, .. } => {
            opcode::Recv::new(fd, buffer[*start..].as_mut_ptr(), clamp(*len)).build()
        }
        Io::Send { batch, .. } => {
            let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
            opcode::SendMsg::new(fd, batch.prepare()).flags(flags.cast_unsigned()).build()
        }
        Io::ReadMessage { batch, .. } => {
            let vectors = batch.prepare();
            opcode::Readv::new(fd, vectors.as_ptr(), clamp(vectors.len())).build()
        }
        Io::WriteMessage { batch, .. } => {
            let vectors = batch.vectors();
            opcode::Writev::new(fd, vectors.as_ptr(), clamp(vectors.len())).build()
        }
        Io::Command(command) => describe_command(fd, command),
        Io::Fuse(_) => unreachable!("described by itself: its entry is larger"),
    }
}

fn describe_command(fd: types::Fd, command: &mut UblkCommand) -> Entry {
    let entry = opcode::UringCmd16::new(fd, command.code);
    entry.cmd(command.bytes()).build()
}

fn is_fixed(buffer: &Buffer, registered: Option<&Arc<Arena>>) -> bool {
    registered.is_some_and(|arena| buffer.belongs_to(arena))
}

/// The kernel moves at most 2 GiB less a page at a time; a short result is carried on above.
fn clamp(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX).min(0x7fff_f000)
}

#[cfg(test)]
#[path = "uring_tests.rs"]
mod tests;
