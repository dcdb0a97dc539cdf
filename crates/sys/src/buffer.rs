//! I/O memory: arenas of page-aligned slots and the buffers that own one slot each.
//!
//! ```text
//! Arena   [slot 0][slot 1][slot 2] ...      one mapping, touched only when used
//!            |
//! Buffer ----+   owns its slot: moved into a request, down to the ring, and back up;
//!                dropping it, wherever that happens, frees the slot
//! ```
//!
//! A buffer can be cut into pieces that go separate ways and are joined again; the slot is free when
//! the last piece is gone.
//!
//! Ownership is the whole safety argument: while the kernel reads or writes a slot, the
//! [`Buffer`] sits inside the ring, so nobody can hold a slice of it. Taking and freeing a slot
//! is one atomic operation on a bitmap, never an allocation.

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use rustix::mm::{MapFlags, ProtFlags};

/// One mapping cut into equal, page-aligned slots.
pub struct Arena {
    start: NonNull<u8>,
    slot_size: usize,
    slot_count: usize,
    /// One bit a slot, set while it is free.
    free: Box<[AtomicU64]>,
    /// For each slot whose buffer has been cut: how many pieces there are.
    pieces: Box<[AtomicU32]>,
}

// SAFETY: the mapping belongs to the arena alone, and a byte of it is reached only through the one
// `Buffer` that owns it; the bitmap and the counts are atomic.
unsafe impl Send for Arena {}
// SAFETY: as above; `&Arena` offers no access to the memory itself.
unsafe impl Sync for Arena {}

/// Maps `len` bytes of zeros, of which memory is used only once they are written.
pub(crate) fn reserve(len: usize) -> io::Result<NonNull<u8>> {
    // Miri does not know memory that is set aside only when it is used.
    let unreserved = if cfg!(miri) { MapFlags::empty() } else { MapFlags::NORESERVE };
    // SAFETY: a new anonymous private mapping: it aliases nothing.
    let address = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | unreserved,
        )
    }?;
    NonNull::new(address.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

impl Arena {
    /// Maps `slot_count` slots of `slot_size` bytes (rounded up to whole pages). Memory is used
    /// only once a slot is written.
    pub fn new(slot_size: usize, slot_count: usize) -> io::Result<Arc<Self>> {
        let slot_size =
            slot_size.max(1).checked_next_multiple_of(crate::page_size()).ok_or(io::ErrorKind::OutOfMemory)?;
        let slot_count = slot_count.max(1);
        // What a buffer knows of its place it has in 32 bits.
        u32::try_from(slot_size.max(slot_count)).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let len = slot_size.checked_mul(slot_count).ok_or(io::ErrorKind::OutOfMemory)?;
        let start = reserve(len)?;
        let free = (0..slot_count.div_ceil(64))
            .map(|word| match slot_count - word * 64 {
                64.. => AtomicU64::new(u64::MAX),
                last => AtomicU64::new((1 << last) - 1),
            })
            .collect();
        Ok(Arc::new(Self {
            start,
            slot_size,
            slot_count,
            free,
            pieces: (0..slot_count).map(|_| AtomicU32::new(0)).collect(),
        }))
    }

    /// The lowest free slot (low slots stay warm in the caches), or `None` when all are taken.
    /// The buffer's length is the whole slot; its contents are whatever was there before.
    #[must_use]
    pub fn take(self: &Arc<Self>) -> Option<Buffer> {
        for (word, bits) in self.free.iter().enumerate() {
            let mut seen = bits.load(Ordering::Relaxed);
            while seen != 0 {
                let bit = seen.trailing_zeros();
                let taken = seen & !(1 << bit);
                match bits.compare_exchange_weak(seen, taken, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => {
                        let whole = u32::try_from(self.slot_size).expect("checked by `new`");
                        let first = u32::try_from(word * 64).expect("checked by `new`");
                        return Some(Buffer {
                            arena: Arc::clone(self),
                            slot: first + bit,
                            start: 0,
                            capacity: whole,
                            len: whole,
                        });
                    }
                    Err(now) => seen = now,
                }
            }
        }
        None
    }

    /// How many slots are free right now.
    #[must_use]
    pub fn available(&self) -> usize {
        let ones = |word: &AtomicU64| word.load(Ordering::Relaxed).count_ones();
        usize::try_from(self.free.iter().map(ones).sum::<u32>()).unwrap_or(0)
    }

    /// Bytes in one slot.
    #[must_use]
    pub fn slot_size(&self) -> usize {
        self.slot_size
    }

    /// Bytes in all slots.
    #[must_use]
    pub fn size(&self) -> usize {
        self.slot_size * self.slot_count
    }

    /// The first byte of the mapping, for registration with a ring.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: every `Buffer` keeps its arena alive, so no slot is in use; the range is the
        // mapping made in `new`.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.size()) };
    }
}

/// Owned I/O memory: a whole slot, page-aligned, or a piece of one.
pub struct Buffer {
    arena: Arc<Arena>,
    slot: u32,
    /// First byte in the slot, and how many belong to this buffer. No two buffers of one slot
    /// overlap. One that has all of them is the slot's only piece, and its count is not kept.
    start: u32,
    capacity: u32,
    /// At most `capacity`.
    len: u32,
}

// A request is moved several times on its way: it should fit into a cache line.
const _: () = assert!(size_of::<Buffer>() == 24);

impl Buffer {
    /// A buffer of its own, outside any pool. Allocates: for control paths and library callers
    /// that keep the buffer, not for one request.
    pub fn alloc(len: usize) -> io::Result<Self> {
        let mut buffer = Arena::new(len, 1)?.take().ok_or(io::ErrorKind::OutOfMemory)?;
        buffer.set_len(len);
        Ok(buffer)
    }

    /// Bytes the buffer can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Sets the length in bytes.
    ///
    /// # Panics
    /// Where `len` is more than the capacity: a caller's bug.
    pub fn set_len(&mut self, len: usize) {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        assert!(len <= self.capacity, "buffer length over capacity");
        self.len = len;
    }

    /// Cuts the buffer in two: this one keeps the bytes before `at`, the new one has the rest.
    ///
    /// # Panics
    /// Where either would be empty: a caller's bug.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> Self {
        // No empty pieces: `join` tells from the bytes alone that no other piece is left.
        let at = u32::try_from(at).unwrap_or(u32::MAX);
        assert!(0 < at && at < self.len, "buffer cut outside its bytes");
        let count = &self.arena.pieces[self.slot as usize];
        if self.is_whole() {
            count.store(2, Ordering::Relaxed);
        } else {
            // Relaxed: this piece keeps the count above zero.
            count.fetch_add(1, Ordering::Relaxed);
        }
        let rest = Self {
            arena: Arc::clone(&self.arena),
            slot: self.slot,
            start: self.start + at,
            capacity: self.capacity - at,
            len: self.len - at,
        };
        (self.capacity, self.len) = (at, at);
        rest
    }

    /// Joins a buffer with the piece that was cut off right behind it.
    ///
    /// # Panics
    /// Where `rest` is another's piece, or there is a gap between the two: a caller's bug.
    pub fn join(&mut self, rest: Self) {
        let adjacent = Arc::ptr_eq(&self.arena, &rest.arena)
            && self.slot == rest.slot
            && self.start + self.capacity == rest.start
            && self.len == self.capacity;
        assert!(adjacent, "buffers joined that were not one");
        let (capacity, len) = (self.capacity + rest.capacity, self.len + rest.len);
        // Before this is the whole slot, perhaps, whose count is not kept.
        drop(rest);
        self.capacity = capacity;
        self.len = len;
    }

    /// Tells if the buffer is a slot of `arena`.
    pub(crate) fn belongs_to(&self, arena: &Arc<Arena>) -> bool {
        Arc::ptr_eq(&self.arena, arena)
    }

    /// All bytes of the slot in one piece: there is no other.
    fn is_whole(&self) -> bool {
        self.capacity as usize == self.arena.slot_size
    }

    fn start(&self) -> *mut u8 {
        let slot = self.slot as usize * self.arena.slot_size;
        // SAFETY: `slot < slot_count` (set by `Arena::take`) and `start <= slot_size` (set by
        // `split_off`), so the offset stays in the mapping.
        unsafe { self.arena.start.as_ptr().add(slot + self.start as usize) }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start..start + len` of the slot is mapped, initialised (anonymous pages start as
        // zeros) and owned by this buffer alone: `take` hands out whole slots, `split_off` cuts.
        unsafe { std::slice::from_raw_parts(self.start(), self.len as usize) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len as usize) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let slot = self.slot as usize;
        if !self.is_whole() {
            // Release, and acquire by the last: what was done to any piece happens before the
            // slot is free.
            if self.arena.pieces[slot].fetch_sub(1, Ordering::Release) > 1 {
                return;
            }
            fence(Ordering::Acquire);
        }
        let bit = 1 << (slot % 64);
        // Release: what was done to the slot happens before the next owner's acquire.
        let before = self.arena.free[slot / 64].fetch_or(bit, Ordering::Release);
        debug_assert_eq!(before & bit, 0, "slot freed twice");
    }
}

impl std::fmt::Debug for Buffer {
    /// The shape only: buffers hold plaintext.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer(slot {}, {} bytes)", self.slot, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_run_out_and_come_back() {
        let arena = Arena::new(4096, 70).unwrap();
        let mut taken: Vec<_> = std::iter::from_fn(|| arena.take()).collect();
        assert_eq!(taken.len(), 70);
        assert_eq!(arena.available(), 0);
        taken.truncate(3);
        assert_eq!(arena.available(), 67);
    }

    #[test]
    fn no_two_buffers_share_memory() {
        let arena = Arena::new(1, 130).unwrap();
        let mut taken: Vec<_> = std::iter::from_fn(|| arena.take()).collect();
        for (index, buffer) in taken.iter_mut().enumerate() {
            buffer.fill(u8::try_from(index).unwrap());
        }
        for (index, buffer) in taken.iter().enumerate() {
            assert!(buffer.iter().all(|&byte| usize::from(byte) == index));
        }
    }

    #[test]
    fn buffers_are_page_aligned() {
        let buffer = Buffer::alloc(513).unwrap();
        assert_eq!(buffer.as_ptr().addr() % crate::page_size(), 0);
        assert_eq!(buffer.len(), 513);
    }

    #[test]
    fn pieces_are_disjoint_and_join_to_the_whole() {
        let arena = Arena::new(8192, 1).unwrap();
        let mut head = arena.take().unwrap();
        head.set_len(6000);
        let mut tail = head.split_off(1000);
        let mut middle = tail.split_off(2000);
        std::mem::swap(&mut middle, &mut tail);
        assert_eq!((head.len(), middle.len(), tail.len()), (1000, 2000, 3000));
        head.fill(1);
        middle.fill(2);
        tail.fill(3);
        head.join(middle);
        head.join(tail);
        assert_eq!((head.len(), head.capacity()), (6000, 8192));
        let expected = [vec![1; 1000], vec![2; 2000], vec![3; 3000]].concat();
        assert_eq!(&head[..], expected);
        assert_eq!(arena.available(), 0);
        drop(head);
        assert_eq!(arena.available(), 1);
    }

    #[test]
    fn slot_is_free_when_its_last_piece_is_gone_wherever_that_is() {
        let arena = Arena::new(4096, 1).unwrap();
        for _ in 0..if cfg!(miri) { 10 } else { 200 } {
            let mut head = arena.take().unwrap();
            let mut tail = head.split_off(1024);
            let last = tail.split_off(1024);
            let threads = [head, tail].map(|piece| std::thread::spawn(move || drop(piece)));
            assert_eq!(arena.available(), 0);
            drop(last);
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(arena.available(), 1);
        }
    }

    #[test]
    #[should_panic(expected = "not one")]
    fn buffers_that_were_never_one_do_not_join() {
        let arena = Arena::new(4096, 2).unwrap();
        let (mut one, two) = (arena.take().unwrap(), arena.take().unwrap());
        one.join(two);
    }

    #[test]
    #[should_panic(expected = "not one")]
    fn pieces_with_a_gap_between_them_do_not_join() {
        let mut head = Buffer::alloc(4096).unwrap();
        let mut rest = head.split_off(1000);
        let tail = rest.split_off(1000);
        head.join(tail);
    }

    #[test]
    fn slots_are_freed_from_other_threads() {
        let arena = Arena::new(4096, 2).unwrap();
        let buffer = arena.take().unwrap();
        std::thread::spawn(move || drop(buffer)).join().unwrap();
        assert_eq!(arena.available(), 2);
    }
}
