//! The io_uring engine.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::squeue::Entry;
use io_uring::{IoUring, Probe, opcode, types};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::waker::Bell;
use super::{Io, Patience};
use crate::{Arena, Buffer};

/// Marks the cancel request itself, which has no slot.
const CANCEL: u64 = u64::MAX;
/// Marks the poll on the bell, which has no slot either.
const BELL: u64 = u64::MAX - 1;

pub(super) struct Uring {
    ring: IoUring,
    unsubmitted: bool,
    /// The kernel takes a time limit with the wait itself (5.11).
    pub(super) times_waits: bool,
    bell: Option<Arc<Bell>>,
    /// The kernel watches the bell.
    listening: bool,
}

impl Uring {
    pub fn new(depth: u32) -> io::Result<Self> {
        let entries = depth.next_power_of_two().clamp(8, 4096);
        let ring = build(entries)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::Fsync::CODE,
            opcode::Fallocate::CODE,
            opcode::Recv::CODE,
            opcode::SendMsg::CODE,
            opcode::AsyncCancel::CODE,
        ];
        if !needed.iter().all(|&code| probe.is_supported(code)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Self {
            times_waits: ring.params().is_feature_ext_arg(),
            ring,
            unsubmitted: false,
            bell: None,
            listening: false,
        })
    }

    /// Lets `bell` end a wait.
    pub fn listen(&mut self, bell: Arc<Bell>) {
        self.bell = Some(bell);
    }

    pub fn register(&self, arena: &Arc<Arena>) -> bool {
        let whole = libc::iovec {
            iov_base: arena.start().cast(),
            iov_len: arena.size(),
        };
        // SAFETY: the range is the arena's own mapping. `Ring` keeps the `Arc` for as long as it
        // keeps this engine, so the memory outlives the registration.
        unsafe { self.ring.submitter().register_buffers(&[whole]) }.is_ok()
    }

    /// Queues `io`, which lives in slot `slot` until [`reap`](Self::reap) names that slot.
    pub fn push(
        &mut self,
        slot: u32,
        fd: &OwnedFd,
        io: &mut Io,
        registered: Option<&Arc<Arena>>,
    ) -> Result<(), Errno> {
        let entry = describe(fd, io, registered).user_data(u64::from(slot));
        // SAFETY: everything the entry points to is owned by the `Io` in the slot table, which is
        // neither moved out nor changed before its completion is reaped; `Ring`'s drop waits for
        // the kernel, or leaks the table. The descriptor is kept open by `Ring`.
        unsafe { self.push_entry(&entry) }
    }

    /// Queues an entry, handing the queue to the kernel where it is full.
    ///
    /// # Safety
    /// What the entry points to and its descriptor stay as they are until its completion.
    unsafe fn push_entry(&mut self, entry: &Entry) -> Result<(), Errno> {
        self.unsubmitted = true;
        loop {
            // SAFETY: the caller's promise.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            match self.ring.submit() {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            }
        }
    }

    /// Submits what is queued; waits for one completion as long as `patience` says.
    pub fn enter(&mut self, patience: Patience) -> io::Result<()> {
        // Finished work that the kernel can post only while we are inside it. A caller that always
        // has something else to take must not keep it out.
        let held_back = self.ring.submission().taskrun();
        let wait = patience != Patience::None;
        if wait {
            self.watch_bell()?;
        }
        if !wait && !self.unsubmitted && !held_back {
            return Ok(());
        }
        let ready = !self.ring.completion().is_empty();
        if ready && !self.unsubmitted {
            return Ok(());
        }
        let entered = match patience {
            Patience::For(limit) if !ready => self.wait_for(limit),
            _ => self.ring.submit_and_wait(usize::from(wait && !ready)),
        };
        match entered {
            Ok(_) => self.unsubmitted = false,
            // A full completion queue empties by reaping; a signal or the end of the time changes
            // nothing.
            Err(error)
                if matches!(
                    Errno::from_io_error(&error),
                    Some(Errno::INTR | Errno::AGAIN | Errno::BUSY | Errno::TIME)
                ) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Asks for a completion when the bell rings, once.
    fn watch_bell(&mut self) -> io::Result<()> {
        let Some(bell) = self.bell.as_ref().filter(|_| !self.listening) else {
            return Ok(());
        };
        let event = types::Fd(bell.event().as_raw_fd());
        let flags = u32::from(libc::POLLIN.cast_unsigned());
        let entry = opcode::PollAdd::new(event, flags).build().user_data(BELL);
        // SAFETY: the entry refers to no memory, and `self.bell` keeps the descriptor open.
        unsafe { self.push_entry(&entry) }?;
        self.listening = true;
        Ok(())
    }

    /// Submits what is queued and waits for one completion, but no longer than `limit`.
    fn wait_for(&self, limit: Duration) -> io::Result<usize> {
        if self.times_waits {
            let limit = types::Timespec::from(limit);
            let limit = types::SubmitArgs::new().timespec(&limit);
            return self.ring.submitter().submit_with_args(1, &limit);
        }
        let submitted = self.ring.submit()?;
        // SAFETY: `self.ring` keeps the descriptor open as long as it is borrowed here.
        let ring = unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) };
        let limit = Timespec::try_from(limit).ok();
        rustix::event::poll(&mut [PollFd::new(&ring, PollFlags::IN)], limit.as_ref())?;
        Ok(submitted)
    }

    pub fn reap(&mut self) -> Option<(u32, Result<usize, Errno>)> {
        loop {
            let entry = self.ring.completion().next()?;
            if entry.user_data() == BELL {
                self.listening = false;
                if let Some(bell) = &self.bell {
                    bell.silence();
                }
            }
            let Ok(slot) = u32::try_from(entry.user_data()) else {
                continue; // the bell, or the cancel request
            };
            let result = usize::try_from(entry.result())
                .map_err(|_| Errno::from_raw_os_error(entry.result().saturating_neg()));
            return Some((slot, result));
        }
    }

    /// Cancels everything and waits until the kernel holds none of `in_flight` operations.
    /// `false` where that can not be known.
    pub fn cancel_all(&mut self, mut in_flight: usize) -> bool {
        if in_flight == 0 {
            return true;
        }
        let cancel = opcode::AsyncCancel2::new(types::CancelBuilder::any())
            .build()
            .user_data(CANCEL);
        // SAFETY: the entry refers to no memory.
        if unsafe { self.ring.submission().push(&cancel) }.is_err() {
            return false;
        }
        self.unsubmitted = true;
        while in_flight > 0 {
            if self.enter(Patience::Endless).is_err() {
                return false;
            }
            while self.reap().is_some() {
                in_flight -= 1;
            }
        }
        true
    }
}

/// The cheapest ring this kernel offers: completions run when we ask for them (6.1), else without
/// interrupting the thread (5.19), else as ever (5.6).
fn build(entries: u32) -> io::Result<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(entries)
        .or_else(|_| {
            IoUring::builder()
                .setup_coop_taskrun()
                .setup_taskrun_flag()
                .build(entries)
        })
        .or_else(|_| IoUring::builder().build(entries))
}

fn describe(fd: &OwnedFd, io: &mut Io, registered: Option<&Arc<Arena>>) -> Entry {
    let fd = types::Fd(fd.as_raw_fd());
    match io {
        Io::Read {
            buffer,
            start,
            len,
            offset,
            ..
        } => {
            let fixed = is_fixed(buffer, registered);
            let target = buffer[*start..].as_mut_ptr();
            let len = clamp(*len);
            match fixed {
                true => opcode::ReadFixed::new(fd, target, len, 0)
                    .offset(*offset)
                    .build(),
                false => opcode::Read::new(fd, target, len).offset(*offset).build(),
            }
        }
        Io::Write {
            buffer,
            start,
            len,
            offset,
            durable,
            ..
        } => {
            let source = buffer[*start..].as_ptr();
            let len = clamp(*len);
            let flags = if *durable { libc::RWF_DSYNC } else { 0 };
            match is_fixed(buffer, registered) {
                true => opcode::WriteFixed::new(fd, source, len, 0)
                    .offset(*offset)
                    .rw_flags(flags)
                    .build(),
                false => opcode::Write::new(fd, source, len)
                    .offset(*offset)
                    .rw_flags(flags)
                    .build(),
            }
        }
        Io::Sync { .. } => opcode::Fsync::new(fd)
            .flags(types::FsyncFlags::DATASYNC)
            .build(),
        Io::Allocate {
            what, offset, len, ..
        } => opcode::Fallocate::new(fd, *len)
            .offset(*offset)
            .mode(what.mode())
            .build(),
        Io::Receive {
            buffer, start, len, ..
        } => opcode::Recv::new(fd, buffer[*start..].as_mut_ptr(), clamp(*len)).build(),
        Io::Send { batch, .. } => {
            let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
            opcode::SendMsg::new(fd, batch.prepare())
                .flags(flags.cast_unsigned())
                .build()
        }
    }
}

fn is_fixed(buffer: &Buffer, registered: Option<&Arc<Arena>>) -> bool {
    registered.is_some_and(|arena| buffer.belongs_to(arena))
}

/// The kernel moves at most 2 GiB less a page at a time; a short result is carried on above.
fn clamp(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX).min(0x7fff_f000)
}
