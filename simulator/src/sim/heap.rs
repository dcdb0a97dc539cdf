//! The heap of a process that simulates: blocks that are given back are taken again, last one first, by what needs as many
//! bytes. The C library's has locks, and looks for neighbours; one thread runs here, and a history takes the same blocks
//! as the last.
//!
//! ```text
//! ├─ 16 ─┼─ 16 ─┼──── 48 ────┼─ 16 ─┼── ... ── end ├── set aside ──┤
//!     └──────────────────────────┘ free blocks of a class are a list through their first words
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ptr::null_mut;

use super::sockets::is_active;

/// Unit of sizes, and alignment of all blocks.
const UNIT: usize = 16;
/// Bytes up to which there is a class for each unit.
const FINE: usize = 1 << 10;
/// Classes up to [`FINE`], and of each power of two behind that.
const FINES: usize = FINE / UNIT;
const STEPS: usize = 4;
/// Bytes of the largest.
const MOST: usize = 64 << 10;
const CLASSES: usize = FINES + STEPS * (MOST / FINE).ilog2() as usize;
/// Bytes that are set aside. What does not fit is the C library's.
const ALL: usize = 16 << 30;

/// The heap; the C library's until a simulation begins, and for large blocks.
pub struct Heap(UnsafeCell<Blocks>);

struct Blocks {
    start: usize,
    /// The first byte that was never used, and the end of all.
    next: usize,
    end: usize,
    free: [*mut u8; CLASSES],
}

// SAFETY: what is inside is used once a simulation has begun; from then on one thread of the system runs.
unsafe impl Sync for Heap {}

/// The class of a size, of which there is one, and its bytes.
#[inline]
fn class_of(size: usize) -> (usize, usize) {
    if size <= FINE {
        let units = size.div_ceil(UNIT).max(1);
        return (units - 1, units * UNIT);
    }
    // Above 2^power, up to 2^(power + 1).
    let power = (size - 1).ilog2();
    let step = (1 << power) / STEPS;
    let steps = (size - (1 << power)).div_ceil(step);
    let before = FINES + STEPS * (power - FINE.ilog2()) as usize;
    (before + steps - 1, (1 << power) + steps * step)
}

impl Heap {
    pub const fn new() -> Self {
        Self(UnsafeCell::new(Blocks { start: 0, next: 0, end: 0, free: [null_mut(); CLASSES] }))
    }

    /// Tells if a block is one of these.
    fn has(&self, block: *mut u8) -> bool {
        // SAFETY: nobody changes these but the thread that runs.
        let Blocks { start, end, .. } = unsafe { &*self.0.get() };
        (*start..*end).contains(&block.addr())
    }
}

impl Blocks {
    /// A block for so many bytes; null where there is no room.
    fn take(&mut self, size: usize) -> *mut u8 {
        let (class, bytes) = class_of(size);
        let first = self.free[class];
        if !first.is_null() {
            // SAFETY: a free block, whose first word `give` has written.
            self.free[class] = unsafe { *first.cast::<*mut u8>() };
            return first;
        }
        if self.start == 0 {
            self.set_aside();
        }
        if bytes > self.end - self.next {
            return null_mut();
        }
        let block = std::ptr::with_exposed_provenance_mut(self.next);
        self.next += bytes;
        block
    }

    #[cold]
    fn set_aside(&mut self) {
        // `MAP_STACK`: or the mapping would be one of those that are kept (`memory`), whose table is on this heap.
        // SAFETY: a new mapping, which aliases nothing.
        let start = unsafe {
            libc::mmap(
                null_mut(),
                ALL,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            // Tried once only.
            (self.start, self.next, self.end) = (1, 1, 1);
            return;
        }
        // SAFETY: the mapping just made. It is larger than all that a process ever needs, and what it needs is used again
        // and again.
        unsafe { libc::madvise(start, ALL, libc::MADV_HUGEPAGE) };
        self.start = start.expose_provenance();
        (self.next, self.end) = (self.start, self.start + ALL);
    }

    /// # Safety
    /// `take` has returned the block for so many bytes, and nobody uses it any more.
    unsafe fn give(&mut self, block: *mut u8, size: usize) {
        let (class, _) = class_of(size);
        // SAFETY: the block has a word at least, and is aligned for it; it is nobody's now.
        unsafe { *block.cast::<*mut u8>() = self.free[class] };
        self.free[class] = block;
    }
}

// SAFETY: a block has as many bytes as its class, which are as many as are asked for at least, begins at a multiple of 16
// as all classes are, and is handed out once until it is given back; blocks that are not of the region are the C library's.
// Nothing here allocates, and nothing panics: sizes are looked at before they are counted with.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_active() && layout.size() <= MOST && layout.align() <= UNIT {
            // SAFETY: one thread runs, and no borrow of what is inside outlives its function.
            let block = unsafe { &mut *self.0.get() }.take(layout.size());
            if !block.is_null() {
                return block;
            }
        }
        // SAFETY: as the caller has it.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !is_active() || layout.size() > MOST {
            // SAFETY: as the caller has it.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: as the caller has it; a block has so many bytes.
        unsafe {
            let block = self.alloc(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if self.has(block) {
            // SAFETY: `take` has returned it for this layout, as the caller says; as in `alloc`.
            unsafe { (*self.0.get()).give(block, layout.size()) };
        } else {
            // SAFETY: the C library's, as the caller has it.
            unsafe { System.dealloc(block, layout) };
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let is_own = self.has(block);
        if is_own && size <= MOST && class_of(size) == class_of(layout.size()) {
            return block;
        }
        if !is_own && size > MOST {
            // SAFETY: as the caller has it.
            return unsafe { System.realloc(block, layout, size) };
        }
        // SAFETY: the new size is valid for this alignment, as the caller has it; both blocks have as many bytes as are
        // copied, and are not the same.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                new.copy_from_nonoverlapping(block, layout.size().min(size));
                self.dealloc(block, layout);
            }
            new
        }
    }
}
