//! Devices that take commands through a ring.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::{FileId, Ring, RingEngine};
use crate::ublk::Batch;

impl Ring {
    /// Makes a device known, and that commands with its mark are meant for it.
    pub(crate) fn add_commanded(&mut self, file: Arc<OwnedFd>, mark: u64) -> FileId {
        let id = self.add_file(file);
        self.commanded.push((id, mark));
        id
    }

    /// Lets the commands of a queue go to the kernel together.
    pub(crate) fn add_batch(&mut self, batch: Batch) -> io::Result<()> {
        match &mut self.engine {
            RingEngine::Uring(uring) => uring.add_batch(batch),
            RingEngine::Syscalls(_) | RingEngine::Simulated(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Tells if the kernel has every command that was submitted for a queue whose commands go there together. If not, a
    /// [`wait`](Self::wait) ends when it has.
    pub fn confirm_commands(&mut self) -> bool {
        match &mut self.engine {
            RingEngine::Uring(uring) => uring.confirm_commands(),
            RingEngine::Syscalls(_) | RingEngine::Simulated(_) => true,
        }
    }

    /// Tells if it takes [`Io::Fuse`].
    pub(crate) fn is_wide(&self) -> bool {
        matches!(&self.engine, RingEngine::Uring(uring) if uring.is_wide())
    }
}
