//! `file`: a regular file or a block device, by O_DIRECT where that is possible.
//!
//! A transfer may come back short (a signal, a limit, a full disk); the rest is submitted again,
//! so that above this file a request is done or failed, never half. Reaching the end of the file
//! inside the announced size means that somebody cut it short: from then on every request fails
//! ([`Fault::Truncated`]), because a hole in the ciphertext would decrypt to noise.
//!
//! The rules that make a flush or a durable write believable are told in [`syncs`](super::syncs).
//!
//! **Writes to the page cache are made at once.** Such a write is a copy, for which most file systems would have
//! io_uring hand it to a worker thread. On tmpfs it would hand off every read as well, so reads are made at once there,
//! too.
//!
//! **Discarding and zeroing a block device** use the kept open file, which has claimed the device: any other gets
//! `EBUSY` while cached pages wait to be written. Partial blocks, and unmapping that the device has no command for, are
//! refused without asking, because the kernel drops such pages before it refuses. A real kernel judges this in
//! `cli/tests/oracle/kernel_oracle/block.rs`.

mod questions;
mod queue;
mod shared;
mod transfer;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use cryptline_sys::Ring;
use rustix::fs::{CWD, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use super::descriptors::Descriptors;
use super::host_zones;
use crate::zone::Zone;
use crate::{Device, Extent, Fault, Geometry, OpenError, Queue, Traits};
use queue::FileQueue;
pub(super) use shared::BlockDevice;
use shared::FileShared;

/// A file or block device as a device.
pub struct FileDevice {
    descriptors: Descriptors,
    geometry: Geometry,
    grows: bool,
    shared: Arc<FileShared>,
}

impl FileDevice {
    /// A device over an open file; `alignment` is O_DIRECT's, where that is switched on. The open
    /// file is the device's alone from here on, and nobody else may sync it.
    pub(super) fn new(
        file: OwnedFd,
        geometry: Geometry,
        block_device: Option<BlockDevice>,
        alignment: Option<u32>,
    ) -> Self {
        let shared = FileShared::new(file, &geometry, block_device, alignment);
        Self { descriptors: Descriptors::default(), geometry, grows: false, shared: Arc::new(shared) }
    }

    /// The device grows with its file; it keeps the size that it was opened with otherwise. Zones never do.
    #[must_use]
    pub fn growing(self) -> Self {
        let grows = self.geometry.zones.is_none();
        Self { grows, ..self }
    }

    /// Tells if O_DIRECT is in use.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.shared.alignment.is_some()
    }

    fn keeper(&self) -> &Arc<OwnedFd> {
        self.shared.keeper.file()
    }

    /// Another open file for one queue; `None` where there is no `/proc`, no permission any more, or
    /// no descriptor left.
    fn reopen(&self) -> Option<Arc<OwnedFd>> {
        self.descriptors.take(|| self.open_again()).ok()
    }

    fn open_again(&self) -> Result<OwnedFd, Errno> {
        let path = format!("/proc/self/fd/{}", self.keeper().as_raw_fd());
        let kept = OFlags::RWMODE | OFlags::DIRECT;
        let flags = (rustix::fs::fcntl_getfl(self.keeper())? & kept) | OFlags::CLOEXEC;
        // A sandbox may allow this call alone, of all that open files.
        rustix::fs::openat(CWD, path, flags, Mode::empty())
    }
}

impl Device for FileDevice {
    fn traits(&self) -> Traits {
        Traits::base(self.geometry)
    }

    fn grow(&self) -> u64 {
        if !self.grows {
            return self.geometry.size;
        }
        self.shared.grow(self.geometry.logical_block)
    }

    fn open_queue(&self, ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        let own = self.reopen();
        Ok(Box::new(FileQueue::new(&self.shared, ring, own)))
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.keeper().as_fd())
    }

    fn reserve_files(&self, queues: usize) -> Result<(), OpenError> {
        match self.descriptors.reserve(queues, || self.open_again()) {
            // Each of them is short of as much as one more would be.
            Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => Err(OpenError::Ring(errno.into())),
            // Queues go without files of their own where there can be none.
            _ => Ok(()),
        }
    }

    fn close_spare(&self) {
        self.descriptors.close_spare();
    }

    fn extent(&self, offset: u64, len: u64) -> Result<Extent, Fault> {
        let end = offset + len;
        let data = Extent { len, hole: false, zero: false };
        if self.shared.block_device.is_some() {
            // It knows of no holes, and refuses SEEK_DATA.
            return Ok(data);
        }
        let found = |result: Result<u64, Errno>| match result {
            Ok(position) => Ok(Some(position.min(end))),
            // No data up to the end of the file; which must not have come nearer.
            Err(Errno::NXIO) => self.shared.check_size(self.keeper()).map(|()| None),
            Err(error) => Err(error.into()),
        };
        let begins = match rustix::fs::seek(self.keeper(), SeekFrom::Data(offset)) {
            // A file system that does not know its holes: all of it may be data.
            Err(Errno::INVAL | Errno::NOTTY | Errno::NOTSUP | Errno::NOSYS) => return Ok(data),
            begins => found(begins)?.unwrap_or(end),
        };
        if begins > offset {
            return Ok(Extent { len: begins - offset, hole: true, zero: true });
        }
        let hole = found(rustix::fs::seek(self.keeper(), SeekFrom::Hole(offset)))?.unwrap_or(end);
        Ok(Extent { len: hole.max(offset + 1) - offset, ..data })
    }

    fn report_zones(&self, offset: u64, zones: &mut [Zone]) -> Result<usize, Fault> {
        host_zones::report(&**self.keeper(), offset, zones)
    }
}
