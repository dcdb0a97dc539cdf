//! A global allocator that counts, to prove that a path does not allocate.
//!
//! ```text
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator = CountingAllocator;
//!
//! let before = alloc::calls();
//! path_under_test();
//! assert_eq!(alloc::calls(), before);
//! ```
//!
//! Counts over the whole process: an allocation that a helper thread makes counts as well.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

static CALLS: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, with a count of every call that may hand out or give back memory.
pub struct CountingAllocator;

/// How many times the process has allocated, reallocated or freed heap memory so far. Stays 0
/// where the program has not made [`CountingAllocator`] its global allocator.
#[must_use]
pub fn calls() -> u64 {
    CALLS.load(Ordering::Relaxed)
}

/// Fails unless the counter can count.
///
/// # Panics
/// Where it can not.
pub fn assert_counted() {
    let before = calls();
    drop(black_box(Box::new(black_box(7))));
    assert_eq!(calls() - before, 2, "one allocation, one free");
}

fn count() {
    CALLS.fetch_add(1, Ordering::Relaxed);
}

// SAFETY: every method passes its arguments unchanged to `System`, which upholds the contract of
// `GlobalAlloc`, and returns its answer unchanged. Counting touches one static atomic: it neither
// allocates nor panics.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc` (a layout of non-zero size).
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller got `block` from here with `layout`, so from `System`, and
        // `new_size` keeps the contract.
        unsafe { System.realloc(block, layout, new_size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller got `block` from here with `layout`, so from `System`.
        unsafe { System.dealloc(block, layout) }
    }
}
