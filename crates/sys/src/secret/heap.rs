//! Secret values, many to a page: a volume's expanded keys take a few kilobytes, and often no more
//! than 64 may be locked.
//!
//! ```text
//! chunk of 16 KiB   [ XTS schedules     ][ ESSIV ][     free      ]     units of 64 bytes
//! ```
//!
//! Only opening and closing a volume comes here, so one lock for the whole process is enough.

use std::alloc::{Layout, handle_alloc_error};
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

use zeroize::Zeroize;

use super::SecretBuf;

/// Unit in which places are counted, and the largest alignment.
const UNIT: usize = 64;
/// Bytes of a chunk, unless a value needs more.
const CHUNK: usize = 16 * 1024;

/// All chunks of the process.
static CHUNKS: Mutex<Vec<HeapChunk>> = Mutex::new(Vec::new());

/// A mapping of its own, handed out in units. Nobody makes a slice of all of it.
struct HeapChunk {
    memory: SecretBuf,
    used: Vec<bool>,
}

fn chunks() -> MutexGuard<'static, Vec<HeapChunk>> {
    crate::lock(&CHUNKS)
}

impl HeapChunk {
    fn new(units: usize) -> io::Result<Self> {
        let units = units.max(CHUNK / UNIT);
        let len = units.checked_mul(UNIT).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { memory: SecretBuf::zeroed(len)?, used: vec![false; units] })
    }

    /// The first of so many free units in a row, which are taken.
    fn take(&mut self, units: usize) -> Option<NonNull<u8>> {
        let free = |window: &[bool]| window.iter().all(|used| !used);
        let first = self.used.windows(units).position(free)?;
        self.used[first..first + units].fill(true);
        // SAFETY: the units lie inside the mapping.
        Some(unsafe { self.memory.start.add(first * UNIT) })
    }

    /// The units that begin at `place`, if they are here.
    fn find(&self, place: NonNull<u8>, units: usize) -> Option<Range<usize>> {
        let start = self.memory.start.addr().get();
        let offset = place.addr().get().checked_sub(start)?;
        let first = offset / UNIT;
        (first < self.used.len()).then(|| first..first + units)
    }
}

/// So many free units, wiped.
fn allocate(units: usize) -> io::Result<NonNull<u8>> {
    let mut chunks = chunks();
    if let Some(place) = chunks.iter_mut().find_map(|chunk| chunk.take(units)) {
        return Ok(place);
    }
    let mut chunk = HeapChunk::new(units)?;
    let place = chunk.take(units).ok_or(io::ErrorKind::OutOfMemory)?;
    chunks.push(chunk);
    Ok(place)
}

/// Gives units back, which the caller has wiped. A chunk without any in use is unmapped.
fn free(place: NonNull<u8>, units: usize) {
    let mut chunks = chunks();
    let found = chunks.iter().enumerate().find_map(|(index, chunk)| Some((index, chunk.find(place, units)?)));
    let (index, range) = found.expect("it came from a chunk");
    chunks[index].used[range].fill(false);
    if chunks[index].used.iter().all(|used| !used) {
        chunks.swap_remove(index);
    }
}

/// A value in key memory: as a `Box`, but locked, left out of core dumps, and wiped to the last byte
/// after it is dropped.
///
/// As a `Box` it ends the process when no memory can be had.
pub struct SecretBox<T> {
    value: NonNull<T>,
}

// SAFETY: the box owns its value alone, as a `Box` does; nothing about the memory is tied to a thread.
unsafe impl<T: Send> Send for SecretBox<T> {}
// SAFETY: shared access to the box gives nothing but shared access to the value.
unsafe impl<T: Sync> Sync for SecretBox<T> {}

impl<T> SecretBox<T> {
    const UNITS: usize = {
        assert!(align_of::<T>() <= UNIT && size_of::<T>() > 0);
        size_of::<T>().div_ceil(UNIT)
    };

    /// Moves `value` there. A value that is a secret already leaves copies on the stack: call this on
    /// one that is wiped ([`super::on_secret_stack`]), or box something empty and fill it in place.
    pub fn new(value: T) -> Self {
        let Ok(place) = allocate(Self::UNITS) else {
            handle_alloc_error(Layout::new::<T>());
        };
        let place = place.cast::<T>();
        // SAFETY: the units are `T`'s size, are aligned to 64 bytes, which is enough, and belong to
        // nobody else until `free`.
        unsafe { place.write(value) };
        Self { value: place }
    }
}

impl<T> Deref for SecretBox<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: `new` has put a value there, which lives until `self` is dropped.
        unsafe { self.value.as_ref() }
    }
}

impl<T> DerefMut for SecretBox<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe { self.value.as_mut() }
    }
}

impl<T> Drop for SecretBox<T> {
    fn drop(&mut self) {
        let place = self.value.cast::<u8>();
        // SAFETY: the value is there and nobody uses it again. Then its units hold nothing but bytes,
        // all of them initialised: they were zero at first, and a copy of padding is not read.
        unsafe {
            self.value.drop_in_place();
            let units = Self::UNITS * UNIT;
            std::slice::from_raw_parts_mut(place.cast::<std::mem::MaybeUninit<u8>>().as_ptr(), units).zeroize();
        }
        free(place, Self::UNITS);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn values_are_where_they_were_put_until_they_are_dropped() {
        let mut boxes: Vec<SecretBox<[u8; 100]>> = (0..=255).map(|n| SecretBox::new([n; 100])).collect();
        for n in (0..=255_u8).rev().step_by(2) {
            drop(boxes.swap_remove(usize::from(n)));
        }
        for boxed in &mut boxes {
            boxed[99] = boxed[0];
            assert!(boxed.iter().all(|byte| *byte == boxed[0]));
        }
        let firsts: std::collections::BTreeSet<u8> = boxes.iter().map(|boxed| boxed[0]).collect();
        assert_eq!(firsts.len(), boxes.len());
    }

    #[test]
    fn values_are_dropped_once_and_aligned() {
        struct Counted(Arc<AtomicUsize>, #[allow(dead_code)] Wide);
        #[repr(align(64))]
        struct Wide(#[allow(dead_code)] [u8; 65]);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let count = Arc::new(AtomicUsize::new(0));
        let boxed = SecretBox::new(Counted(Arc::clone(&count), Wide([1; 65])));
        assert_eq!(std::ptr::from_ref(&*boxed).addr() % 64, 0);
        assert_eq!(count.load(Ordering::Relaxed), 0);
        drop(boxed);
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_value_larger_than_a_chunk_has_one_of_its_own() {
        assert!((SecretBox::new([7_u8; 3 * CHUNK])).iter().all(|byte| *byte == 7));
    }

    #[test]
    fn a_dozen_volumes_fit_into_what_old_systems_let_a_user_lock() {
        // The schedules of AES-256-XTS, the largest of all usual ciphers.
        let volumes: Vec<_> = (0..12).map(|_| SecretBox::new([1_u8; 3 * 1024])).collect();
        // Chunks lie at any page, so what is locked is counted in pages.
        let page = crate::page_size();
        let pages = volumes.iter().flat_map(|value| {
            let start = std::ptr::from_ref(&**value).addr();
            start / page..=(start + size_of_val(&**value) - 1) / page
        });
        let pages: std::collections::BTreeSet<usize> = pages.collect();
        assert!(pages.len() * page <= 64 * 1024, "{pages:?}");
    }
}
