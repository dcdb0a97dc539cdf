//! The memory of a RAM disk: many threads read and write it at once, in any overlap.
//!
//! Two overlapping requests on a disk have no order, and here they have none either: their
//! bytes may mix. So the memory is treated as the kernel treats a device's: no reference into it
//! ever exists, bytes are only copied in and out through raw pointers.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Sparse zero-filled memory of a fixed size, with a bit for each page that was written.
pub struct SharedMemory {
    start: NonNull<u8>,
    len: usize,
    page: usize,
    written: WrittenPages,
}

// SAFETY: the mapping lives as long as the value; all access is by bounded copies (see `copy_in`).
unsafe impl Send for SharedMemory {}
// SAFETY: as above. Concurrent copies of the same bytes may mix them, which the contract allows.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Reserves address space for `len` bytes; pages are used once written.
    pub fn new(len: usize) -> io::Result<Self> {
        let page = crate::page_size();
        let mapped = len.max(1);
        // SAFETY: a new anonymous private mapping: it aliases nothing.
        let address = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let start = NonNull::new(address.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the range is the new mapping; both calls are hints. What a RAM disk holds is
        // ciphertext, but there may be gigabytes of it: keep it out of core dumps.
        let _ = unsafe { rustix::mm::madvise(address, mapped, Advice::LinuxDontDump) };
        let written = WrittenPages::new(mapped.div_ceil(page))?;
        Ok(Self {
            start,
            len,
            page,
            written,
        })
    }

    /// Size in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the size is zero.
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
            std::ptr::copy_nonoverlapping(
                self.start.as_ptr().add(offset).cast_const(),
                target.as_mut_ptr(),
                target.len(),
            );
        }
    }

    /// Copies `source` in at `offset`.
    ///
    /// # Panics
    /// Where the range leaves the memory.
    pub fn write(&self, offset: usize, source: &[u8]) {
        self.check(offset, source.len());
        self.written.mark(self.pages(offset, source.len()));
        // SAFETY: as in `read`, with source and target exchanged.
        unsafe {
            std::ptr::copy_nonoverlapping(
                source.as_ptr(),
                self.start.as_ptr().add(offset),
                source.len(),
            );
        }
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
        self.written.mark(self.pages(offset, size_of::<u32>()));
        // SAFETY: as in `load32`.
        let word = unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(offset).cast()) };
        word.store(value, Ordering::Release);
    }

    /// As [`store32`](Self::store32), eight bytes.
    ///
    /// # Panics
    /// Where it leaves the memory or is not aligned.
    pub fn store64(&self, offset: usize, value: u64) {
        self.check_word(offset, size_of::<u64>());
        self.written.mark(self.pages(offset, size_of::<u64>()));
        // SAFETY: as in `load32`.
        let word = unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) };
        word.store(value, Ordering::Release);
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
            // SAFETY: whole pages inside the mapping. Dropping private anonymous pages makes
            // them read as zeros; concurrent copies see old bytes or zeros.
            let freed = unsafe {
                rustix::mm::madvise(
                    self.start.as_ptr().add(first_page).cast(),
                    last_page - first_page,
                    Advice::LinuxDontNeed,
                )
            };
            match freed {
                Ok(()) => self
                    .written
                    .forget(first_page / self.page..last_page / self.page),
                // Locked memory can not be dropped; zeros are still owed.
                Err(_) => self.zero(first_page, last_page - first_page),
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
        unsafe { std::ptr::write_bytes(self.start.as_ptr().add(offset), 0, len) };
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

/// One bit a page, set by the first write.
struct WrittenPages(Vec<AtomicU64>);

impl WrittenPages {
    fn new(pages: usize) -> io::Result<Self> {
        let mut words = Vec::new();
        words
            .try_reserve_exact(pages.div_ceil(64))
            .map_err(|_| io::ErrorKind::OutOfMemory)?;
        words.resize_with(pages.div_ceil(64), AtomicU64::default);
        Ok(Self(words))
    }

    fn is_marked(&self, page: usize) -> bool {
        self.0[page / 64].load(Ordering::Relaxed) & (1 << (page % 64)) != 0
    }

    fn mark(&self, pages: std::ops::Range<usize>) {
        for page in pages {
            // Overwrites are the common case: look before taking the cache line for writing.
            if !self.is_marked(page) {
                self.0[page / 64].fetch_or(1 << (page % 64), Ordering::Relaxed);
            }
        }
    }

    fn forget(&self, pages: std::ops::Range<usize>) {
        for page in pages {
            self.0[page / 64].fetch_and(!(1 << (page % 64)), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleared_bytes_read_as_zeros_and_neighbours_stay() {
        let page = crate::page_size();
        let memory = SharedMemory::new(8 * page).unwrap();
        memory.write(0, &vec![0xaa; 8 * page]);
        memory.clear(page - 100, 3 * page);
        let mut all = vec![0; 8 * page];
        memory.read(0, &mut all);
        let zeroed = page - 100..4 * page - 100;
        for (index, byte) in all.iter().enumerate() {
            assert_eq!(*byte == 0, zeroed.contains(&index), "byte {index}");
        }
    }

    #[test]
    fn written_pages_are_known_and_forgotten() {
        let page = crate::page_size();
        let memory = SharedMemory::new(100 * page).unwrap();
        memory.write(10 * page + 5, &[1]);
        assert_eq!(memory.run(0, 100 * page), (false, 10 * page));
        assert_eq!(memory.run(10 * page, 100 * page), (true, 11 * page));
        memory.clear(0, 100 * page);
        assert_eq!(memory.run(0, 100 * page), (false, 100 * page));
    }

    #[test]
    #[should_panic(expected = "range outside RAM")]
    fn a_range_past_the_end_is_refused() {
        SharedMemory::new(4096).unwrap().write(4095, &[0; 2]);
    }
}
