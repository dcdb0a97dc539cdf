//! State common to all queues of one file: what kind of file it is, and whether it is still whole.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cryptline_sys::Io;
use rustix::fs::{FsWord, SeekFrom};

use super::questions::SyncQuestion;
use crate::asker::Asker;
use crate::base::syncs::Keeper;
use crate::zone::ZoneModel;
use crate::{Fault, Geometry, Op, Request};

/// State common to all queues of one file.
pub(super) struct FileShared {
    pub keeper: Keeper,
    pub asker: Asker<SyncQuestion>,
    /// Bytes that were announced.
    size: AtomicU64,
    pub block_device: Option<BlockDevice>,
    pub truncated: AtomicBool,
    /// O_DIRECT's alignment of offsets in bytes; `None` through the page cache.
    pub alignment: Option<u32>,
    /// The file system is memory, so every transfer is a copy.
    pub in_memory: bool,
    /// A plain write without room is refused, and never tells of earlier ones.
    pub refuses_first: bool,
    pub zones: Option<ZoneModel>,
}

/// Abilities of a block device to zero.
#[derive(Clone, Copy)]
pub(in crate::base) struct BlockDevice {
    /// Bytes of its logical block: only whole ones.
    pub block: u32,
    /// By a command of its own, as unmapping needs it.
    pub zeroes: bool,
}

impl FileShared {
    pub fn new(file: OwnedFd, geometry: &Geometry, block_device: Option<BlockDevice>, alignment: Option<u32>) -> Self {
        Self {
            in_memory: lies_in(&file, &IN_MEMORY),
            refuses_first: block_device.is_some() || lies_in(&file, &REFUSES_FIRST),
            keeper: Keeper::new(file),
            asker: Asker::new("asker"),
            size: AtomicU64::new(geometry.size),
            block_device,
            truncated: AtomicBool::new(false),
            alignment,
            zones: geometry.zones,
        }
    }

    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// Announces the blocks that the file has by now. A size that cannot be had says nothing.
    pub fn grow(&self, block: u32) -> u64 {
        let file = self.keeper.file();
        let found = match self.block_device {
            // Its size in stat(2) is 0.
            Some(_) => rustix::fs::seek(file, SeekFrom::End(0)),
            None => rustix::fs::fstat(file).map(|stat| u64::try_from(stat.st_size).unwrap_or(0)),
        };
        let found = found.unwrap_or(0);
        let size = found - found % u64::from(block);
        self.size.fetch_max(size, Ordering::Relaxed).max(size)
    }

    /// Notes that the file ended before its announced size.
    pub fn cut_short(&self) -> Fault {
        self.truncated.store(true, Ordering::Relaxed);
        Fault::Truncated
    }

    /// Tells if the kernel would refuse this discarding or zeroing of a block device. It must not be asked: it may drop
    /// cached pages that are still to be written before it finds out.
    pub fn cannot_zero(&self, request: &Request) -> bool {
        let Some(device) = self.block_device else {
            return false;
        };
        if !matches!(request.op, Op::Discard | Op::Zero | Op::ZeroUnmap) {
            return false;
        }
        let unmaps = request.op != Op::Zero;
        let is_whole = (request.offset | request.len).is_multiple_of(u64::from(device.block));
        !is_whole || (unmaps && !device.zeroes)
    }

    /// A short direct read that stopped off the grid stopped at the end of the file.
    pub fn is_off_grid(&self, done: usize) -> bool {
        self.alignment.is_some_and(|align| !(done as u64).is_multiple_of(u64::from(align)))
    }

    /// A write into the page cache is a copy. Most file systems make io_uring give it to a worker
    /// thread, which costs more than the copy; so it is made here. A durable write goes on to
    /// sleep for the medium and is left to the ring. Where the file system is memory, which knows
    /// no transfer that does not block, io_uring would give even reads away, direct or not.
    pub fn copies_at_once(&self, io: &Io) -> bool {
        let buffered = self.alignment.is_none() && self.block_device.is_none();
        match io {
            Io::Read { .. } | Io::Write { .. } if self.in_memory => true,
            Io::Write { durable: false, .. } => buffered,
            _ => false,
        }
    }

    /// A failed sync leaves nothing durable, unless it was refused before anything was synced. A durable write for which
    /// there was no room was, where that is known.
    pub fn note_failed_sync(&self, fault: Fault) {
        if !fault.is_refusal() && fault != Fault::NoSpace {
            self.keeper.lose(fault.errno());
        }
    }

    /// A flush also makes sure that what it promises to keep is still there.
    pub fn check_size(&self, fd: &OwnedFd) -> Result<(), Fault> {
        if self.block_device.is_some() {
            return Ok(());
        }
        // Before the file's: what is announced meanwhile was there.
        let announced = self.size();
        let size = rustix::fs::fstat(fd.as_fd())?.st_size;
        match u64::try_from(size) {
            Ok(size) if size >= announced => Ok(()),
            _ => Err(self.cut_short()),
        }
    }
}

const TMPFS: FsWord = 0x0102_1994;
const RAMFS: FsWord = 0x8584_58f6;
const EXT: FsWord = 0xef53;
const XFS: FsWord = 0x5846_5342;
const BTRFS: FsWord = 0x9123_683e;

const IN_MEMORY: [FsWord; 2] = [TMPFS, RAMFS];
/// File systems that reserve the room before they copy, and tell of what was lost by a sync only.
const REFUSES_FIRST: [FsWord; 5] = [TMPFS, RAMFS, EXT, XFS, BTRFS];

/// Tells if `file` lies in one of these kinds of file systems (statfs(2)).
fn lies_in(file: &OwnedFd, kinds: &[FsWord]) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|stat| kinds.contains(&stat.f_type))
}
