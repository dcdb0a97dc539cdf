//! Operations that io_uring gives back because the kernel could make no thread for them.
//!
//! An operation that cannot be carried out without sleeping, as every sync, waits for a thread of the kernel's, which
//! is made when it is needed. Where that fails four times, all that waits for one comes back as cancelled, as if
//! somebody had asked for that (`create_worker_cont` in io_uring/io-wq.c, with `WORKER_INIT_LIMIT` since 2024; older
//! kernels try for ever). The process has as many threads as it may have then; before Linux 6.19 it may also have been
//! stopped, and gone on, each time. Nobody cancels anything before the ring is dropped; and nothing of it has begun.
//!
//! So the ring makes the system call itself. A ring of several disks, where the others would wait for that medium,
//! tries again for ten seconds, with pauses in which the others are served. A sync is not repeated on a file system
//! that is not known to be local: there, this error number may be the only report of a lost write.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::fs::FileType;
use rustix::io::Errno;

use super::unheard::is_sync;
use super::{Io, Ring, RingEngine};
use crate::file::is_local;

/// How long it is tried again where it must not be carried out by the ring's own thread.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// The shortest pause before that, and the longest: the kernel has just tried four times.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));

/// Operations that are tried again later: the places of their slots, and when. Nothing else of the ring waits for that.
#[derive(Default)]
pub(super) struct Paused(Vec<(u32, Instant)>);

impl Paused {
    /// One more, for which there has been no thread since then. The longer, the longer it waits.
    pub fn add(&mut self, slot: u32, since: Instant) {
        let (shortest, longest) = PAUSES;
        let pause = (since.elapsed() / 4).clamp(shortest, longest);
        self.0.push((slot, Instant::now() + pause));
    }
}

impl Ring {
    /// Gives to the kernel again what has waited for long enough; how long the next one has left.
    pub(super) fn try_again(&mut self) -> Option<Duration> {
        let now = self.next_try().map(|_| Instant::now())?;
        let RingEngine::Uring(uring) = &mut self.engine else {
            return None;
        };
        self.paused.0.retain(|&(slot, moment)| {
            if moment > now {
                return true;
            }
            if let Some(entry) = &mut self.slots[slot as usize] {
                let fd = &self.files[entry.io.file().0 as usize];
                uring.push(slot, fd, &mut entry.io, self.registered.as_ref().map(|it| &it.arena));
            }
            false
        });
        self.next_try().map(|moment| moment.saturating_duration_since(now))
    }

    /// When something is to be tried again.
    pub(super) fn next_try(&self) -> Option<Instant> {
        self.paused.0.iter().map(|&(_, moment)| moment).min()
    }

    /// The ring ends, and what the kernel does not have ends with it.
    pub(super) fn try_no_more(&mut self) {
        for (slot, _) in std::mem::take(&mut self.paused.0) {
            self.finish(slot, Err(Errno::CANCELED));
        }
    }
}

/// True where an operation with this result is to be carried out after all. Not a sync whose result may be the report of a
/// lost write, which comes only once: a file system that is not known to be this kernel's own may choose its number. Nor a
/// send, of which old kernels do not tell what part has gone.
pub(super) fn is_unbegun(result: Result<usize, Errno>, fd: &OwnedFd, io: &Io) -> bool {
    if result != Err(Errno::CANCELED) || io.is_message() || io.ends_with_the_ring() || matches!(io, Io::Send { .. }) {
        return false;
    }
    !is_sync(io) || is_block_device(fd) || is_local(fd)
}

fn is_block_device(fd: &OwnedFd) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice)
}

#[cfg(test)]
#[path = "unbegun_tests.rs"]
mod tests;
