//! The engine for places that forbid io_uring: file I/O by system calls at once, sockets by `poll`.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::net::{RecvFlags, SendFlags};

use super::unheard::is_sync;
use super::waker::Sleeper;
use super::{Allocate, InKernel, Io, Patience};

/// The place of the wake-up among the waiting.
const WOKEN: u32 = u32::MAX;

type FinishedCall = (u32, Result<usize, Errno>);

#[derive(Default)]
pub(super) struct Syscalls {
    /// Slots whose socket was not ready, and what `poll` is asked about each, side by side.
    waiting: Vec<u32>,
    polled: Vec<libc::pollfd>,
    sleeper: Option<Arc<Sleeper>>,
    /// The set of a [`Descriptor`](super::descriptor::Descriptor), which these sockets belong to.
    epoll: Option<Arc<OwnedFd>>,
    /// A socket could not be added to it.
    is_unpublished: bool,
}

impl Syscalls {
    /// Lets `sleeper` end a wait.
    pub fn listen(&mut self, sleeper: Arc<Sleeper>) {
        self.watch(WOKEN, sleeper.eventfd(), libc::POLLIN);
        self.sleeper = Some(sleeper);
    }

    /// Carries the operation out, or notes that its socket must become ready first.
    pub fn start(&mut self, slot: u32, fd: &OwnedFd, io: &mut Io) -> Option<Result<usize, Errno>> {
        match run(fd, io) {
            Err(Errno::AGAIN) if io.waits() => {
                self.watch(slot, fd, io.events());
                None
            }
            result => Some(result),
        }
    }

    fn watch(&mut self, slot: u32, fd: &OwnedFd, events: libc::c_short) {
        self.waiting.push(slot);
        self.polled.push(libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 });
        if slot != WOKEN {
            self.publish(fd.as_raw_fd());
        }
    }

    /// Lets the sockets that are waited for, now and later, make `epoll` readable.
    pub fn publish_in(&mut self, epoll: &Arc<OwnedFd>) {
        self.epoll = Some(Arc::clone(epoll));
        for index in 0..self.waiting.len() {
            if self.waiting[index] != WOKEN {
                self.publish(self.polled[index].fd);
            }
        }
    }

    /// Brings the set up to date on one socket.
    fn publish(&mut self, fd: RawFd) {
        let Some(epoll) = &self.epoll else { return };
        let waiting = self.polled.iter().filter(|polled| polled.fd == fd);
        let events = waiting.fold(0, |all, polled| all | polled.events);
        let mut event = libc::epoll_event { events: u32::from(events.cast_unsigned()), u64: 0 };
        let operations: &[_] =
            if events == 0 { &[libc::EPOLL_CTL_DEL] } else { &[libc::EPOLL_CTL_MOD, libc::EPOLL_CTL_ADD] };
        for &operation in operations {
            // SAFETY: the event lives until the end of this function; both descriptors are kept open,
            // by this engine and by the ring.
            if unsafe { libc::epoll_ctl(epoll.as_raw_fd(), operation, fd, &raw mut event) } == 0 {
                return;
            }
        }
        self.is_unpublished |= events != 0;
    }

    /// Tells if some socket could not be added to the set, so that only trying again shows whether it is ready.
    pub fn is_unpublished(&self) -> bool {
        self.is_unpublished
    }

    /// Tries the waiting sockets that are ready; waits for one as long as `patience` says.
    pub fn poll(
        &mut self,
        files: &[Arc<OwnedFd>],
        slots: &mut [Option<InKernel>],
        patience: Patience,
        finished: &mut Vec<FinishedCall>,
    ) -> io::Result<()> {
        let sockets = self.waiting.len() - usize::from(self.sleeper.is_some());
        let pointless = match patience {
            Patience::None => sockets == 0,
            Patience::For(_) => false,
            Patience::Endless => self.waiting.is_empty(),
        };
        if pointless {
            return Ok(());
        }
        let timeout = timeout(patience);
        let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        let count = self.polled.len() as libc::nfds_t;
        // SAFETY: the pointer and count are those of a live vector of `pollfd`, which the call
        // fills in; the descriptors are kept open by the ring; the time lives until the end of
        // this function or is null, and so is the signal mask, which then stays as it is.
        let ready = unsafe { libc::ppoll(self.polled.as_mut_ptr(), count, timeout, ptr::null()) };
        if ready < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::Interrupted => Ok(()),
                _ => Err(error),
            };
        }
        let mut index = 0;
        while index < self.waiting.len() {
            let slot = self.waiting[index];
            if slot == WOKEN {
                if let (Some(sleeper), true) = (&self.sleeper, self.polled[index].revents != 0) {
                    sleeper.waited();
                }
                index += 1;
                continue;
            }
            let entry = slots[slot as usize].as_mut();
            let result = match entry.filter(|_| self.polled[index].revents != 0) {
                Some(entry) => run(&files[entry.io.file().0 as usize], &mut entry.io),
                None => Err(Errno::AGAIN),
            };
            if result == Err(Errno::AGAIN) {
                index += 1;
            } else {
                self.waiting.swap_remove(index);
                let fd = self.polled.swap_remove(index).fd;
                self.publish(fd);
                finished.push((slot, result));
            }
        }
        Ok(())
    }
}

/// `None` is for ever.
fn timeout(patience: Patience) -> Option<libc::timespec> {
    let left = match patience {
        Patience::None => Duration::ZERO,
        Patience::For(left) => left,
        Patience::Endless => return None,
    };
    Some(libc::timespec { tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: left.subsec_nanos().into() })
}

/// Carries an operation out, as often as it is interrupted. Not a sync: the report of a lost write can have
/// that number, and who asked must know.
pub(super) fn run(fd: &OwnedFd, io: &mut Io) -> Result<usize, Errno> {
    loop {
        match once(fd, io) {
            Err(Errno::INTR) if !is_sync(io) => {}
            result => return result,
        }
    }
}

fn once(fd: &OwnedFd, io: &mut Io) -> Result<usize, Errno> {
    match io {
        Io::Read { buffer, start, len, offset, .. } => {
            let target = IoSliceMut::new(&mut buffer[*start..*start + *len]);
            rustix::io::preadv2(fd, &mut [target], *offset, ReadWriteFlags::empty())
        }
        Io::Write { buffer, start, len, offset, durable, .. } => {
            let source = IoSlice::new(&buffer[*start..*start + *len]);
            let flags = if *durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
            rustix::io::pwritev2(fd, &[source], *offset, flags)
        }
        Io::Sync { .. } => rustix::fs::fdatasync(fd).map(|()| 0),
        Io::Allocate { what, offset, len, .. } => {
            use rustix::fs::FallocateFlags as Flags;
            let mode = match what {
                Allocate::PunchHole => Flags::PUNCH_HOLE,
                Allocate::ZeroRange => Flags::ZERO_RANGE,
            };
            rustix::fs::fallocate(fd, mode | Flags::KEEP_SIZE, *offset, *len).map(|()| 0)
        }
        Io::Receive { buffer, start, len, .. } => {
            let target = &mut buffer[*start..*start + *len];
            rustix::net::recv(fd, target, RecvFlags::DONTWAIT).map(|(len, _)| len)
        }
        Io::Send { batch, .. } => {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let message = batch.prepare();
            let bits = flags.bits().cast_signed();
            // SAFETY: the descriptor is open, and `prepare` gave a message whose vectors point
            // into the batch, which is borrowed for the call.
            moved(unsafe { libc::sendmsg(fd.as_raw_fd(), message, bits) })
        }
        Io::ReadMessage { batch, .. } => {
            if let Some(target) = batch.event() {
                return read_event(fd, target);
            }
            let vectors = batch.prepare();
            let count = libc::c_int::try_from(vectors.len()).unwrap_or(libc::c_int::MAX);
            // SAFETY: the descriptor is open; the vectors, of which there are at most 1024, point to memory
            // of the batch alone, which is borrowed mutably for the call.
            moved(unsafe { libc::readv(fd.as_raw_fd(), vectors.as_ptr(), count) })
        }
        Io::WriteMessage { batch, .. } => {
            let vectors = batch.vectors();
            let count = libc::c_int::try_from(vectors.len()).unwrap_or(libc::c_int::MAX);
            // SAFETY: the descriptor is open; the vectors, of which there are at most 1024, point into the
            // batch, which is borrowed for the call.
            moved(unsafe { libc::writev(fd.as_raw_fd(), vectors.as_ptr(), count) })
        }
        // There is no system call for them.
        Io::Command(_) | Io::Fuse(_) => Err(Errno::OPNOTSUPP),
    }
}

/// Reads the count of an eventfd, and waits for it under no circumstances: whoever else holds it can take `O_NONBLOCK`
/// from it at any moment.
fn read_event(fd: &OwnedFd, target: &mut [u8]) -> Result<usize, Errno> {
    // As `read` does it: from where the descriptor is.
    const HERE: u64 = u64::MAX;
    let parts = &mut [IoSliceMut::new(target)];
    match rustix::io::preadv2(fd, parts, HERE, ReadWriteFlags::NOWAIT) {
        // Not every kernel can, nor every descriptor.
        Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {
            let mut polled = [PollFd::new(fd, PollFlags::IN)];
            match rustix::event::poll(&mut polled, Some(&Timespec::default()))? {
                0 => Err(Errno::AGAIN),
                _ => rustix::io::read(fd, target),
            }
        }
        read => read,
    }
}

/// Result of a call that moves bytes.
fn moved(bytes: isize) -> Result<usize, Errno> {
    usize::try_from(bytes).map_err(|_| {
        let error = io::Error::last_os_error();
        Errno::from_io_error(&error).unwrap_or(Errno::IO)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::fs::inotify;

    use super::super::{BackendChoice, ReceiveBatch, Ring};
    use super::*;

    /// Whoever else holds it has made it so.
    #[test]
    fn eventfd_that_blocks_is_not_waited_for() {
        let event = Arc::new(eventfd(0, EventfdFlags::empty()).unwrap());
        let mut ring = Ring::new(BackendChoice::Syscalls, 4).unwrap();
        let (file, source) = (ring.add_file(Arc::clone(&event)), ring.add_source());
        // Ends a wait that must not be.
        let (done, is_done) = mpsc::channel::<()>();
        let other = Arc::clone(&event);
        let rescue = std::thread::spawn(move || {
            if is_done.recv_timeout(Duration::from_secs(10)).is_err() {
                rustix::io::write(&other, &[1; 8]).unwrap();
            }
        });
        for round in 1..=10u64 {
            let batch = ReceiveBatch::for_event();
            let submitted = ring.submit(source, round, Io::ReadMessage { file, batch });
            assert!(submitted.is_ok());
            ring.poll().unwrap();
            assert!(ring.next_done(source).is_none(), "it has waited");
            rustix::io::write(&event, &round.to_ne_bytes()).unwrap();
            ring.wait().unwrap();
            let done = ring.next_done(source).unwrap();
            assert_eq!(done.result, Ok(8));
            let Io::ReadMessage { batch, .. } = done.io else { panic!("another operation came back") };
            assert_eq!(batch.head(), round.to_ne_bytes());
        }
        done.send(()).unwrap();
        rescue.join().unwrap();
    }

    #[test]
    fn descriptor_that_can_not_be_read_without_waiting_is_looked_at_first() {
        let folder = tempfile::tempdir().unwrap();
        let watch = inotify::init(inotify::CreateFlags::empty()).unwrap();
        inotify::add_watch(&watch, folder.path(), inotify::WatchFlags::CREATE).unwrap();
        let mut event = [0; 64];
        let parts = &mut [IoSliceMut::new(&mut event)];
        let refused = rustix::io::preadv2(&watch, parts, u64::MAX, ReadWriteFlags::NOWAIT);
        assert_eq!(refused, Err(Errno::OPNOTSUPP), "it is of no use here");
        assert_eq!(read_event(&watch, &mut event), Err(Errno::AGAIN));
        std::fs::write(folder.path().join("file"), []).unwrap();
        assert!(read_event(&watch, &mut event).is_ok_and(|len| len > 16));
        assert_eq!(read_event(&watch, &mut event), Err(Errno::AGAIN));
    }
}
