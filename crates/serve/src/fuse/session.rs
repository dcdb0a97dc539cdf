//! A mount, from the first word of the kernel to the last flush.
//!
//! ```text
//! start  agree ─► one lane for each descriptor, on a thread of its own ─► all of them ready
//! wait   until told to stop, or unmounted ─► lanes finish what they have ─► flush
//! ```

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::time::{Duration, Instant};

use cryptline_engine::{BackendChoice, Gate, OpenError, Ring};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::TRANSFER_MAX;
use super::abi::{self, Body, FuseCall, HEAD, Init, flag};
use super::entries::LaneQueues;
use super::nodes::Nodes;
use super::wire::{FuseStart, FuseWire};
use crate::device::Crew;
use crate::lane::{Lane, Orders, Poll};
use crate::net::{has_hung_up, is_stopped_within};
use crate::stats::ExportStats;
use crate::{Flushed, StopHandle, flush_all};

/// How long the kernel may take to say its first word.
const FIRST_WORD_MAX: Duration = Duration::from_secs(10);

/// How often it is looked whether the kernel has hung up: a lane in a system call to a silent medium does not notice.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Entries of one lane. Each has memory for the longest read or write, of which only what requests need is used.
const ENTRIES_MAX: usize = 64;
/// Entries of all lanes, except that each has one for each queue.
const ENTRIES_OF_ALL: usize = 256;
/// Entries that a lane has for one of the kernel's queues.
const DEPTH_MAX: usize = 16;

/// How to serve.
pub struct FuseOptions {
    /// How lanes do their I/O.
    pub backend: BackendChoice,
    /// Policy by which lanes look out for the next request before they wait.
    pub poll: Poll,
    /// Clear text may stay in the kernel's page cache.
    pub cached: bool,
    /// Where requests are to come through the lanes' rings (Linux 6.14): the kernel's queues, one for each processor
    /// that this machine can have. [`processors`](super::processors) counts them.
    pub queues: Option<usize>,
    /// How long a session that ends finishes the requests that it has taken.
    pub grace: Duration,
    /// Counts what is done: for each disk.
    pub stats: Vec<Arc<ExportStats>>,
    /// Takes a line about each lane that ended badly.
    pub log: Box<dyn Fn(&str) + Send + Sync>,
    /// Called where requests were not done within the grace: whoever waits for them is to be told.
    pub cut_off: Box<dyn Fn() + Send + Sync>,
}

/// Why a session did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The kernel did not say its first word, or could not be answered.
    #[error("the kernel does not answer on /dev/fuse: {0}")]
    Kernel(io::Error),
    /// Its protocol is another or too old.
    #[error("the kernel speaks FUSE {0}.{1}, and at least 7.31 is needed (Linux 5.4)")]
    Version(u32, u32),
    /// The device has no blocks that a file can have.
    #[error("a zoned volume cannot be a file: its zones are written in order only")]
    Zoned,
    /// Requests do not come through the lanes' rings.
    #[error("FUSE over io_uring is not available here")]
    NoRing,
    /// A lane has no queue.
    #[error("{0}")]
    Lane(#[from] OpenError),
    /// There is no thread for a lane.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// Volumes that are served as files.
pub struct FuseSession {
    nodes: Arc<Nodes>,
    options: Arc<FuseOptions>,
    crew: Crew,
    /// Used when the mount has ended, or a lane.
    over: StopHandle,
    /// The kernel's end of the first lane, for as long as a lane has it.
    kernel: Weak<OwnedFd>,
    failure: Arc<OnceLock<Errno>>,
}

impl FuseOptions {
    /// The kernel's queues as each lane serves them. All lanes serve all: whoever uses a disk from one processor would
    /// otherwise have one lane only. `None` where all is to come as messages.
    fn entries(&self, lanes: usize) -> Result<Option<LaneQueues>, StartError> {
        let Some(processors) = self.queues else {
            return Ok(None);
        };
        let count = u16::try_from(processors).map_err(|_| StartError::NoRing)?;
        let depth = depth(processors, lanes);
        let may = !matches!(self.backend, BackendChoice::Syscalls | BackendChoice::Simulated(_));
        // The kernel makes everybody wait for queues that it was promised, so the ring is tried first.
        if !may || depth == 0 || Ring::new(BackendChoice::WideIoUring, 8).is_err() {
            return Err(StartError::NoRing);
        }
        let numbers = (0..count).collect();
        Ok(Some(LaneQueues { numbers, depth }))
    }
}

/// Entries of one lane for each queue; none where there are too many queues.
fn depth(queues: usize, lanes: usize) -> usize {
    let own = ENTRIES_MAX / queues.max(1);
    let share = ENTRIES_OF_ALL / queues.max(1) / lanes.max(1);
    own.min(share.max(1)).min(DEPTH_MAX)
}

impl FuseSession {
    /// Agrees with the kernel over the first of `descriptors`, and starts a lane for each. They are all of
    /// one mount.
    pub fn start(nodes: &Arc<Nodes>, descriptors: Vec<OwnedFd>, options: FuseOptions) -> Result<Self, StartError> {
        let disks = nodes.disks().iter();
        if disks.into_iter().any(|disk| disk.gate.geometry().zones.is_some()) {
            return Err(StartError::Zoned);
        }
        for descriptor in &descriptors {
            set_nonblocking(descriptor).map_err(StartError::Kernel)?;
        }
        let queues = options.entries(descriptors.len())?;
        if let Some(first) = descriptors.first()
            && !agree(first, queues.is_some())?
            && queues.is_some()
        {
            return Err(StartError::NoRing);
        }
        let queues = queues.unwrap_or_default();
        let over = StopHandle::new().map_err(StartError::Thread)?;
        let mut session = Self {
            nodes: Arc::clone(nodes),
            options: Arc::new(options),
            crew: Crew::new(over.clone()),
            over,
            kernel: Weak::new(),
            failure: Arc::default(),
        };
        for (index, descriptor) in descriptors.into_iter().enumerate() {
            let descriptor = Arc::new(descriptor);
            if index == 0 {
                session.kernel = Arc::downgrade(&descriptor);
            }
            let start = FuseStart {
                descriptor,
                nodes: Arc::clone(nodes),
                cached: session.options.cached,
                queues: queues.clone(),
                failure: Arc::clone(&session.failure),
                over: session.over.clone(),
            };
            if let Err(error) = session.start_lane(index, start) {
                session.end_lanes(Duration::ZERO);
                return Err(error);
            }
        }
        Ok(session)
    }

    /// Starts a lane; returns when it is ready.
    fn start_lane(&mut self, index: usize, start: FuseStart) -> Result<(), StartError> {
        let disks = self.nodes.disks().iter();
        let gates: Vec<Gate> = disks.map(|disk| disk.gate.clone()).collect();
        let options = Arc::clone(&self.options);
        let failure = Arc::clone(&self.failure);
        let (ready, is_ready) = mpsc::channel();
        let work = move |ordered: Arc<Orders>| {
            let stats = options.stats.iter();
            let meters: Vec<_> = stats.filter_map(|it| it.connect()).collect();
            let backend = if start.queues.numbers.is_empty() { options.backend } else { BackendChoice::WideIoUring };
            let lane_meters = meters.clone();
            let (first, others) = (&gates[0], &gates[1..]);
            let lane = Lane::over(first, others, backend, ordered, lane_meters, |ring| FuseWire::new(ring, start));
            match lane {
                Ok(lane) => {
                    let mut lane = lane.looking_out(options.poll);
                    // Where nobody waits for this, the session is being ended already.
                    let _ = ready.send(Ok(()));
                    if let Err(error) = lane.run() {
                        (options.log)(&error.to_string());
                        let _ = failure.set(Errno::from_io_error(&error).unwrap_or(Errno::IO));
                    }
                }
                Err(error) => drop(ready.send(Err(error))),
            }
            for (stats, meter) in options.stats.iter().zip(&meters) {
                stats.disconnect(meter);
            }
            Ok(())
        };
        let over = self.over.clone();
        self.crew.start(format!("fuse-{index}"), move || over.stop(), work).map_err(StartError::Thread)?;
        let no_word = |_| StartError::Thread(io::ErrorKind::BrokenPipe.into());
        Ok(is_ready.recv().map_err(no_word)??)
    }

    /// Tells if it has been unmounted, or has failed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        is_stopped_within(&self.over, Some(Duration::ZERO))
    }

    /// Serves until `stop` is used or the file system is unmounted. An error where it could not be served on.
    pub fn wait(&self, stop: &StopHandle) -> io::Result<()> {
        self.wait_for_end(stop)?;
        match self.failure.get() {
            Some(&error) => Err(error.into()),
            None => Ok(()),
        }
    }

    fn wait_for_end(&self, stop: &StopHandle) -> io::Result<()> {
        loop {
            let watched = [stop.as_fd(), self.over.as_fd()];
            let mut watched = watched.map(|it| PollFd::from_borrowed_fd(it, PollFlags::IN));
            match rustix::event::poll(&mut watched, Some(&LOOK)) {
                Ok(0) if self.kernel.upgrade().is_some_and(has_hung_up) => return Ok(()),
                Ok(0) => {}
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Finishes the requests that were taken, within the grace, and flushes the volumes. What was not taken is
    /// answered by the kernel, with an error, once it has no server any more.
    pub fn finish(self) -> Flushed {
        let (nodes, backend, grace) = (Arc::clone(&self.nodes), self.options.backend, self.options.grace);
        self.end_lanes(grace);
        flush_all(nodes.disks().iter().map(|disk| (disk.name.as_str(), &disk.gate)), backend, grace)
    }

    fn end_lanes(self, grace: Duration) {
        for trouble in self.crew.end(grace, &*self.options.cut_off) {
            (self.options.log)(&trouble);
        }
    }
}

fn set_nonblocking(descriptor: &OwnedFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(descriptor)?;
    rustix::fs::fcntl_setfl(descriptor, flags | OFlags::NONBLOCK)?;
    Ok(())
}

/// Answers the kernel's first word. Whether requests are going to come through rings, which is up to the kernel where
/// that `can` be.
fn agree(descriptor: &OwnedFd, can: bool) -> Result<bool, StartError> {
    let ring = if can { flag::OVER_IO_URING } else { 0 };
    let mut message = vec![0; HEAD + TRANSFER_MAX as usize];
    loop {
        let len = first_word(descriptor, &mut message).map_err(StartError::Kernel)?;
        let parsed = abi::parse(&message[..HEAD], &message[HEAD..], len);
        let Some((header, Ok(FuseCall::Init(init)))) = parsed else {
            let error = io::Error::from(io::ErrorKind::InvalidData);
            return Err(StartError::Kernel(error));
        };
        let mut body = Body::new();
        if init.major > abi::MAJOR {
            // It will say it again in our version.
            body.word(abi::MAJOR);
            body.push(&[0; 60]);
        } else if is_old(&init) {
            answer(descriptor, header.unique, Err(Errno::PROTO), &[])?;
            return Err(StartError::Version(init.major, init.minor));
        } else {
            let pages = TRANSFER_MAX as usize / cryptline_sys::page_size();
            let pages = u16::try_from(pages).unwrap_or(u16::MAX);
            body.init(&init, flag::ALL | ring, TRANSFER_MAX, pages);
        }
        answer(descriptor, header.unique, Ok(()), body.as_bytes())?;
        if init.major <= abi::MAJOR {
            return Ok(init.flags & ring != 0);
        }
    }
}

fn is_old(init: &Init) -> bool {
    init.major < abi::MAJOR || init.minor < abi::MINOR_MIN
}

fn first_word(descriptor: &OwnedFd, message: &mut [u8]) -> io::Result<usize> {
    let deadline = Instant::now() + FIRST_WORD_MAX;
    loop {
        match rustix::io::read(descriptor, &mut *message) {
            Err(Errno::AGAIN | Errno::INTR | Errno::NOENT) => {}
            read => return Ok(read?),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut watched = [PollFd::from_borrowed_fd(descriptor.as_fd(), PollFlags::IN)];
        let left = Timespec::try_from(left).ok();
        let _ = rustix::event::poll(&mut watched, left.as_ref());
    }
}

fn answer(descriptor: &OwnedFd, unique: u64, result: Result<(), Errno>, body: &[u8]) -> Result<(), StartError> {
    let header = abi::out_header(unique, result, body.len());
    let answer = [&header[..], body].concat();
    let written = rustix::io::write(descriptor, &answer);
    written.map(drop).map_err(|error| StartError::Kernel(error.into()))
}

/// How many processors this machine can have, which is how many queues the kernel has for a mount. A sandbox may hide
/// it.
#[must_use]
pub fn processors() -> Option<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
    count(&text)
}

/// How many numbers a list like `0-3,8` has.
fn count(list: &str) -> Option<usize> {
    let mut ranges = list.trim().split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    });
    ranges.try_fold(0_usize, |sum, range| sum.checked_add(range?))
}

#[cfg(test)]
mod tests {
    use super::{count, depth};

    #[test]
    fn more_lanes_have_fewer_entries_each_but_one_for_each_queue() {
        assert_eq!((depth(2, 2), depth(4, 4), depth(1, 64)), (16, 16, 4));
        assert_eq!((depth(8, 4), depth(8, 64), depth(64, 64)), (8, 1, 1));
        assert_eq!((depth(65, 1), depth(usize::MAX, 1)), (0, 0));
    }

    #[test]
    fn processors_of_a_list_are_counted() {
        assert_eq!(count("0\n"), Some(1));
        assert_eq!(count("0-1\n"), Some(2));
        assert_eq!(count("0-3,8,10-11"), Some(7));
        for odd in ["", "x", "3-1", "0-18446744073709551615"] {
            assert_eq!(count(odd), None, "{odd}");
        }
    }
}
