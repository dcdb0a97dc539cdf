//! Operations that io_uring gives back because the kernel could make no thread for them.
//!
//! What cannot be carried out without sleeping, as every sync, waits for a thread of the kernel's, which is made when it
//! is needed. Where that fails four times, all that waits for one comes back as cancelled, as if somebody had asked for that
//! (`create_worker_cont` in io_uring/io-wq.c, with `WORKER_INIT_LIMIT` since 2024; older kernels try for ever). The process
//! has as many threads as it may have then; before Linux 6.19 it may also have been stopped, and gone on, each time.
//! Nobody cancels anything before the ring is dropped; and nothing of it has begun.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::FileType;
use rustix::io::Errno;

use super::Io;
use super::unheard::is_sync;
use crate::file::is_local;

/// How long it is tried again where it must not be carried out by the ring's own thread.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

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
