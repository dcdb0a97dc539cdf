//! One bit per page: whether it may hold anything but zeros.
//!
//! ```text
//! writer    copy bytes in ─► look at the bit ─► set it where it is clear
//! clearer   clear the bit ─► barrier ─► drop the bytes
//! ```
//!
//! Bytes that outlive the drop were copied in after it, and so after the bit was cleared: their writer
//! must see that. Its look at the bit must not come before its copy, which the processor is free to
//! do unless a barrier forbids it. Most writers overwrite and most systems never trim, so the clearer
//! pays for it ([`Barrier`]). `marks_loom_tests.rs` looks at every interleaving.

use std::ops::Range;

use super::barrier::Barrier;
use super::sync::{AtomicU64, Ordering};

/// The pages of a memory.
pub struct PageMarks {
    words: Vec<AtomicU64>,
    barrier: Barrier,
}

impl PageMarks {
    /// No page is marked. `None` where there is no memory for so many.
    pub fn new(pages: usize, barrier: Barrier) -> Option<Self> {
        let mut words = Vec::new();
        words.try_reserve_exact(pages.div_ceil(64)).ok()?;
        words.resize_with(pages.div_ceil(64), || AtomicU64::new(0));
        Some(Self { words, barrier })
    }

    /// Tells if a page may hold anything but zeros.
    pub fn is_marked(&self, page: usize) -> bool {
        self.words[page / 64].load(Ordering::Relaxed) & (1 << (page % 64)) != 0
    }

    /// To be called after bytes were copied into `pages`.
    pub fn after_copy(&self, pages: Range<usize>) {
        self.barrier.of_writer();
        for page in pages {
            // Overwrites are the common case: look before taking the cache line for writing.
            if !self.is_marked(page) {
                self.mark(page);
            }
        }
    }

    /// To be called before the bytes of `pages` are dropped.
    pub fn before_drop(&self, pages: Range<usize>) {
        for page in pages.clone() {
            self.words[page / 64].fetch_and(!(1 << (page % 64)), Ordering::Relaxed);
        }
        if !self.barrier.of_clearer() {
            // A writer may not see it. They stay marked, which costs reads and lies to nobody.
            self.not_dropped(pages);
        }
    }

    /// To be called where the bytes of `pages` could not be dropped after all.
    pub fn not_dropped(&self, pages: Range<usize>) {
        pages.for_each(|page| self.mark(page));
    }

    fn mark(&self, page: usize) {
        self.words[page / 64].fetch_or(1 << (page % 64), Ordering::Relaxed);
    }
}
