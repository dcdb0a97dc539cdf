//! Operations that io_uring gives back because the kernel could make no thread for them.
//!
//! What cannot be carried out without sleeping, as every sync, waits for a thread of the kernel's, which is made when it
//! is needed. Where that fails more than three times (the process has as many threads as it may have, or is stopped and
//! goes on each time), all that waits for one comes back as cancelled, as if somebody had asked for that
//! (`create_worker_cont` in the kernel's io_uring/io-wq.c). Nobody has, before the ring is dropped; and nothing of it has
//! begun.

use std::os::fd::OwnedFd;

use rustix::fs::FileType;
use rustix::io::Errno;

use super::Io;
use super::unheard::is_sync;
use crate::file::is_local;

/// Whether an operation with this result is to be carried out after all. Not a sync whose result may be the report of a
/// lost write, which comes only once, and with a number of its own choice from a file system whose errors are a server's.
pub(super) fn is_unbegun(result: Result<usize, Errno>, fd: &OwnedFd, io: &Io) -> bool {
    if result != Err(Errno::CANCELED) || io.is_message() || io.ends_with_the_ring() {
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
