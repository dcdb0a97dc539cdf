//! The memory of a RAM disk: many threads read and write it at once, in any overlap.
//!
//! Two overlapping requests on a disk have no order, and here they have none either: their
//! bytes may mix. So the memory is treated as the kernel treats a device's: no reference into it
//! ever exists, bytes are only copied in and out through raw pointers, by copies that may race
//! ([`racing`]).

mod barrier;
mod marks;
#[cfg(test)]
mod marks_loom_tests;

/// The atomics of the marks; `marks_loom_tests.rs` has them checked with its own.
mod sync {
    pub use std::sync::atomic::{AtomicU64, Ordering};
}

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::mm::Advice;

use crate::racing;
use barrier::Barrier;
use marks::PageMarks;

/// Sparse zero-filled memory of a fixed size, with a bit for each page that was written.
pub struct SharedMemory {
    start: NonNull<u8>,
    len: usize,
    page: usize,
    written: PageMarks,
}

// SAFETY: the mapping lives as long as the value; all access is by bounded copies (see `copy_in`).
unsafe impl Send for SharedMemory {}
// SAFETY: as above. Concurrent copies of the same bytes may mix them, which the contract allows.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Reserves address space for `len` bytes; pages are used once written.
    pub fn new(len: usize) -> io::Result<Self> {
        Self::with(len, Barrier::new())
    }

    fn with(len: usize, barrier: Barrier) -> io::Result<Self> {
        let page = crate::page_size();
        let mapped = len.max(1);
        let start = crate::buffer::reserve(mapped)?;
        let address = start.as_ptr();
        // SAFETY: the range is the new mapping; the call is a hint. What a RAM disk holds is
        // ciphertext, but there may be gigabytes of it: keep it out of core dumps.
        let _ = unsafe { advise(address, mapped, Advice::LinuxDontDump) };
        let written = PageMarks::new(mapped.div_ceil(page), barrier);
        let Some(written) = written else {
            // SAFETY: the mapping made above, which nobody else knows.
            let _ = unsafe { rustix::mm::munmap(address.cast(), mapped) };
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        Ok(Self { start, len, page, written })
    }

    /// Size in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Tells if the size is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies out `target.len()` bytes from `offset`.
    ///
    /// # Panics
    /// Where the range leaves the memory: the gate above must not let that happen.
    pub fn read(&self, offset: usize, target: &mut [u8]) {
        self.check(offset, target.len());
        // SAFETY: the source range was checked to lie in the mapping, the target is exclusively
        // borrowed, and the two can not overlap because no reference into the mapping is ever
        // given out. Bytes another thread is writing come out old, new or mixed, as on a disk.
        unsafe {
            let from = self.start.as_ptr().add(offset).cast_const();
            racing::copy_out(from, target);
        }
    }

    /// Copies `source` in at `offset`.
    ///
    /// # Panics
    /// Where the range leaves the memory.
    pub fn write(&self, offset: usize, source: &[u8]) {
        self.check(offset, source.len());
        // SAFETY: as in `read`, with source and target exchanged.
        unsafe {
            let to = self.start.as_ptr().add(offset);
            racing::copy_in(source, to);
        }
        self.written.after_copy(self.pages(offset, source.len()));
    }

    /// The word at `offset`, in one piece, before all later reads.
    ///
    /// # Panics
    /// Where it leaves the memory or is not aligned.
    #[must_use]
    pub fn load32(&self, offset: usize) -> u32 {
        self.check_word(offset, size_of::<u32>());
        // SAFETY: inside the mapping, which lives as long as `self`, and aligned. Words that are
        // accessed so are not written by the copies above at the same time: that is the
        // contract of whoever keeps words in this memory.
        let word = unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(offset).cast()) };
        word.load(Ordering::Acquire)
    }

    /// Stores a word at `offset` in one piece, after all earlier writes.
    ///
    /// # Panics
    /// Where it leaves the memory or is not aligned.
    pub fn store32(&self, offset: usize, value: u32) {
        self.check_word(offset, size_of::<u32>());
        // SAFETY: as in `load32`.
        let word = unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(offset).cast()) };
        word.store(value, Ordering::Release);
        let pages = self.pages(offset, size_of::<u32>());
        self.written.after_copy(pages);
    }

    /// As [`store32`](Self::store32), eight bytes.
    ///
    /// # Panics
    /// Where it leaves the memory or is not aligned.
    pub fn store64(&self, offset: usize, value: u64) {
        self.check_word(offset, size_of::<u64>());
        // SAFETY: as in `load32`.
        let word = unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) };
        word.store(value, Ordering::Release);
        let pages = self.pages(offset, size_of::<u64>());
        self.written.after_copy(pages);
    }

    /// Makes `len` bytes from `offset` read as zeros and gives whole pages back to the system.
    ///
    /// # Panics
    /// Where the range leaves the memory.
    pub fn clear(&self, offset: usize, len: usize) {
        self.check(offset, len);
        let end = offset + len;
        let first_page = offset.next_multiple_of(self.page).min(end);
        let last_page = (end - end % self.page).max(first_page);
        self.zero(offset, first_page - offset);
        self.zero(last_page, end - last_page);
        if first_page < last_page {
            let pages = first_page / self.page..last_page / self.page;
            let len = last_page - first_page;
            self.written.before_drop(pages.clone());
            // SAFETY: whole pages inside the mapping. Dropping private anonymous pages makes
            // them read as zeros; concurrent copies see old bytes or zeros.
            let dropped = unsafe {
                let start = self.start.as_ptr().add(first_page);
                advise(start, len, Advice::LinuxDontNeed)
            };
            if dropped.is_err() {
                // Locked memory can not be dropped; zeros are still owed.
                self.written.not_dropped(pages);
                self.zero(first_page, len);
            }
        }
    }

    /// The end of the run of pages, starting with the one at `offset`, that are all written or
    /// all untouched; and which of the two. `end` bounds the search. Bytes.
    #[must_use]
    pub fn run(&self, offset: usize, end: usize) -> (bool, usize) {
        let state = self.written.is_marked(offset / self.page);
        let mut page = offset / self.page + 1;
        while page * self.page < end && self.written.is_marked(page) == state {
            page += 1;
        }
        (state, (page * self.page).min(end))
    }

    fn zero(&self, offset: usize, len: usize) {
        if len == 0 {
            return;
        }
        // SAFETY: the callers checked the range to lie in the mapping.
        unsafe { racing::zero(self.start.as_ptr().add(offset), len) };
    }

    fn check(&self, offset: usize, len: usize) {
        let end = offset.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.len), "range outside RAM");
    }

    fn check_word(&self, offset: usize, len: usize) {
        self.check(offset, len);
        assert!(offset.is_multiple_of(len), "word not aligned");
    }

    fn pages(&self, offset: usize, len: usize) -> std::ops::Range<usize> {
        offset / self.page..(offset + len).div_ceil(self.page)
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; `&mut self` proves that nobody copies any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len.max(1)) };
    }
}

/// madvise, which Miri does not know.
///
/// # Safety
/// As madvise's.
unsafe fn advise(start: *mut u8, len: usize, advice: Advice) -> rustix::io::Result<()> {
    if cfg!(miri) {
        return Err(rustix::io::Errno::NOSYS);
    }
    // SAFETY: the caller's promise.
    unsafe { rustix::mm::madvise(start.cast(), len, advice) }
}

#[cfg(test)]
#[path = "../shared_tests.rs"]
mod tests;
