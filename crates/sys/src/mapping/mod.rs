//! A file or DAX device mapped into memory: what `pmem` and `btt` read and write.
//!
//! ```text
//! where the file is persistent memory (MAP_SYNC)    stores that bypass or leave the caches, sfence
//! elsewhere                                         ordinary stores, msync
//! ```
//!
//! Anybody can truncate the file while it is mapped, a hole can meet a full disk, a memory cell can
//! fail. The kernel then raises SIGBUS in the middle of a copy. [`sigbus`] maps a page of zeros in place
//! of the lost one, so that the copy ends, and records the loss: the copy and everything after it
//! report [`Lost`]. Checking the size first would not do: it can change between the check and the copy.
//!
//! A mapping that lost something stays lost, whatever becomes of the file: acknowledged stores may be
//! gone. The same holds after a failed msync, which the kernel reports once.
//!
//! As in [`SharedMemory`](crate::SharedMemory), no reference into the mapping ever exists, and copies
//! may race. A copy that the handler has interrupted resumes at the instruction that failed.
//!
//! Nor would sealing do, which only anonymous files have, or copying by a system call, which costs more than the copy.
//! The mark costs a request one look. A mapping is one open file, which is told of a loss once, so its syncs take
//! turns.

mod persist;
pub(crate) mod sigbus;

use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

use crate::racing;
use crate::{InTurn, Simulation};
use persist::Flush;

/// A page of the mapping is gone: the file was cut short, its disk is full, or the medium failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

/// How stores become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Domain {
    /// In the processor's hands: the mapping is the medium.
    Processor(Flush),
    /// By msync: the mapping is the page cache.
    PageCache,
}

/// A file in memory, read and written by many threads at once.
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
    writable: bool,
    domain: Domain,
    guard: sigbus::MappingGuard,
    file: File,
    /// The kernel reports a lost write to one sync of this open file only: the next must not run
    /// until the first one's failure is noted.
    syncing: InTurn<Result<(), Errno>>,
    /// Syncs in place of Linux.
    simulation: Option<Simulation>,
}

// SAFETY: the mapping lives as long as the value; all access is by bounded copies and atomic words.
unsafe impl Send for Mapping {}
// SAFETY: as above. Concurrent copies of the same bytes may mix them, which the contract allows.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of `file`. `must_be_memory` refuses the page cache, which a DAX
    /// character device does not have.
    ///
    /// Errors: what mmap says; `OutOfMemory` for no bytes at all or for too many mappings.
    pub fn new(file: File, len: usize, writable: bool, must_be_memory: bool) -> io::Result<Self> {
        if len == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let map = |flags| {
            // SAFETY: a new mapping at a place of the kernel's choice: it aliases nothing in this
            // process. Other processes may change its bytes, so no reference is ever made to them.
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, flags, &file, 0) }
        };
        let memory = map(MapFlags::SHARED_VALIDATE | MapFlags::SYNC);
        let flush = Flush::detect();
        let (address, domain) = match (memory, flush) {
            (Ok(address), Some(flush)) => (address, Domain::Processor(flush)),
            (Ok(address), None) => (address, Domain::PageCache),
            (Err(error), _) if must_be_memory => return Err(error.into()),
            (Err(_), _) => (map(MapFlags::SHARED)?, Domain::PageCache),
        };
        let start = NonNull::new(address.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let guard = sigbus::MappingGuard::new(start.as_ptr() as usize, len, crate::page_size());
        let guard = guard.inspect_err(|_| {
            // SAFETY: the mapping made above, which nobody else knows yet.
            let _ = unsafe { rustix::mm::munmap(address, len) };
        })?;
        Ok(Self { start, len, writable, domain, guard, file, syncing: InTurn::new(Ok(())), simulation: None })
    }

    /// Lets a kernel of a test's making carry out what makes the page cache durable.
    #[must_use]
    pub fn simulate(mut self, simulation: Simulation) -> Self {
        simulation.kernel().mapped(&self.file);
        self.simulation = Some(simulation);
        self
    }

    /// Size in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: nothing can not be mapped.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the instruction that empties caches into the medium; `None` if the mapping is not the medium itself.
    #[must_use]
    pub fn persistent_memory(&self) -> Option<&'static str> {
        match self.domain {
            Domain::Processor(flush) => Some(flush.name()),
            Domain::PageCache => None,
        }
    }

    /// Copies out `target.len()` bytes from `offset`.
    ///
    /// # Panics
    /// Where the range leaves the mapping: the gate above must not let that happen.
    pub fn read(&self, offset: usize, target: &mut [u8]) -> Result<(), Lost> {
        self.check(offset, target.len());
        // SAFETY: the source range was checked to lie in the mapping, the target is exclusively
        // borrowed, and the two can not overlap because no reference into the mapping is ever
        // given out. Bytes that others are writing come out old, new or mixed, as on a disk; a
        // lost page comes out as zeros.
        unsafe {
            let from = self.at(offset).cast_const();
            racing::copy_out(from, target);
        }
        self.guard.check()
    }

    /// Copies `source` in at `offset`. Durable, and ordered before later stores, only after
    /// [`fence`](Self::fence) or a sync.
    ///
    /// # Panics
    /// Where the range leaves the mapping, or it is read-only.
    pub fn store(&self, offset: usize, source: &[u8]) -> Result<(), Lost> {
        self.check_store(offset, source.len());
        // SAFETY: the target range was checked to lie in the mapping, which is writable; the
        // source is a borrowed slice outside it.
        unsafe {
            match self.domain {
                Domain::Processor(flush) => flush.store(self.at(offset), source),
                Domain::PageCache => racing::copy_in(source, self.at(offset)),
            }
        }
        self.guard.check()
    }

    /// The word at `offset`, in one piece, before all later reads.
    ///
    /// # Panics
    /// Where it leaves the mapping or is not aligned.
    pub fn load32(&self, offset: usize) -> Result<u32, Lost> {
        self.check_word(offset, size_of::<u32>());
        // SAFETY: inside the mapping and aligned. Words are not written by `store` at the same
        // time: that is the contract of whoever keeps words in this memory.
        let word = unsafe { AtomicU32::from_ptr(self.at(offset).cast()) }.load(Ordering::Acquire);
        self.guard.check()?;
        Ok(word)
    }

    /// Stores a word at `offset` in one piece, after all earlier ordinary stores.
    ///
    /// # Panics
    /// Where it leaves the mapping or is not aligned, or the mapping is read-only.
    pub fn store32(&self, offset: usize, value: u32) -> Result<(), Lost> {
        self.check_store(offset, size_of::<u32>());
        self.check_word(offset, size_of::<u32>());
        // SAFETY: as in `load32`; the mapping is writable.
        unsafe { AtomicU32::from_ptr(self.at(offset).cast()) }.store(value, Ordering::Release);
        self.empty_line(offset);
        self.guard.check()
    }

    /// As [`store32`](Self::store32), eight bytes.
    ///
    /// # Panics
    /// Where it leaves the mapping or is not aligned, or the mapping is read-only.
    pub fn store64(&self, offset: usize, value: u64) -> Result<(), Lost> {
        self.check_store(offset, size_of::<u64>());
        self.check_word(offset, size_of::<u64>());
        // SAFETY: as in `load32`; the mapping is writable.
        unsafe { AtomicU64::from_ptr(self.at(offset).cast()) }.store(value, Ordering::Release);
        self.empty_line(offset);
        self.guard.check()
    }

    /// Orders all stores of this thread before its later ones, for other threads and, where the
    /// mapping is persistent memory, for the medium.
    pub fn fence(&self) {
        if let Domain::Processor(flush) = self.domain {
            flush.fence();
        }
    }

    /// Checks that nothing was lost so far.
    pub fn check_whole(&self) -> Result<(), Lost> {
        self.guard.check()
    }

    /// Gives the mapping up: for who finds out in another way that something is lost.
    pub fn lose(&self) {
        self.guard.lose();
    }

    /// Makes everything stored durable.
    ///
    /// Errors: that of the msync, now or ever before; `EIO` where a page is lost.
    pub fn sync(&self) -> io::Result<()> {
        self.sync_range(0, self.len)
    }

    /// Makes everything stored in a range durable. Errors: as [`sync`](Self::sync).
    ///
    /// # Panics
    /// Where the range leaves the mapping.
    pub fn sync_range(&self, offset: usize, len: usize) -> io::Result<()> {
        self.check(offset, len);
        if let Domain::Processor(flush) = self.domain {
            flush.fence();
            return self.guard.check().map_err(|Lost| Errno::IO.into());
        }
        let start = offset - offset % crate::page_size();
        let end = offset + len;
        self.sync_by(|| self.msync(start, end - start))
    }

    /// Syncs the open file by `sync`, alone, and gives the mapping up where that fails.
    fn sync_by(&self, sync: impl FnOnce() -> Result<(), Errno>) -> io::Result<()> {
        self.syncing.with(|last| {
            (*last)?;
            if let Err(errno) = sync() {
                *last = Err(errno);
                self.guard.lose();
            }
            *last
        })?;
        // Zeros that stand for a lost page are in no file.
        self.guard.check().map_err(|Lost| Errno::IO.into())
    }

    /// Makes a range read as zeros by giving its space back, durably. `Unsupported` where the
    /// file can not do that; nothing has changed then.
    pub fn punch(&self, offset: usize, len: usize) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, flags, offset as u64, len as u64) {
            Ok(()) => self.sync_by(|| self.fsync()),
            Err(Errno::OPNOTSUPP | Errno::NODEV) => Err(io::ErrorKind::Unsupported.into()),
            Err(error) => Err(error.into()),
        }
    }

    fn msync(&self, start: usize, len: usize) -> Result<(), Errno> {
        if let Some(simulation) = self.simulation {
            return simulation.kernel().msync(&self.file, start, len);
        }
        // SAFETY: a range of whole pages inside the mapping; msync reads and changes none of it.
        unsafe { rustix::mm::msync(self.at(start).cast(), len, MsyncFlags::SYNC) }
    }

    fn fsync(&self) -> Result<(), Errno> {
        match self.simulation {
            Some(simulation) => simulation.kernel().msync(&self.file, 0, self.len),
            None => rustix::fs::fsync(&self.file),
        }
    }

    fn empty_line(&self, offset: usize) {
        if let Domain::Processor(flush) = self.domain {
            // SAFETY: an address inside the mapping.
            unsafe { flush.line(self.at(offset)) };
        }
    }

    fn at(&self, offset: usize) -> *mut u8 {
        // SAFETY: every caller has checked that the range starting here lies in the mapping.
        unsafe { self.start.as_ptr().add(offset) }
    }

    fn check(&self, offset: usize, len: usize) {
        let end = offset.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.len), "range outside the mapping");
    }

    fn check_store(&self, offset: usize, len: usize) {
        assert!(self.writable, "store to a read-only mapping");
        self.check(offset, len);
    }

    fn check_word(&self, offset: usize, len: usize) {
        self.check(offset, len);
        assert!(offset.is_multiple_of(len), "word not aligned");
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // From here a fault in this range is somebody else's.
        self.guard.release();
        // SAFETY: the mapping made in `new`; `&mut self` proves that nobody copies any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
#[path = "../mapping_tests.rs"]
mod tests;
