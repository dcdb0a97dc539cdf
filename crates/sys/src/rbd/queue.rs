//! One thread's requests to an image.
//!
//! ```text
//! submit   place in the table ─► completion ─► librbd
//! librbd's thread   result into the place ─► its number onto the list ─► wake
//! next_done   list ─► place ─► whoever submitted it
//! ```
//!
//! A request under way holds a reference to the table, so its memory stays where it is even if the queue goes. The list
//! is a stack that is taken as a whole, so nothing is locked and no number is seen twice.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use rustix::io::Errno;

use super::image::{RbdImage, UnderWay};
use super::library::Handle;
use crate::{Buffer, Waker};

/// From librados.h: the write is to be where no cache can lose it.
const FLAG_FUA: c_int = 0x80;
/// From librbd.h: zeros that take space.
const FLAG_THICK: c_int = 1;
/// No place.
const NONE: u32 = u32::MAX;

/// Operations on an image. Bytes.
#[derive(Debug)]
pub enum RbdIo {
    /// Fill the buffer.
    Read {
        /// From where.
        offset: u64,
        /// With as many bytes.
        buffer: Buffer,
    },
    /// Write the buffer.
    Write {
        /// To where.
        offset: u64,
        /// Bytes to write.
        buffer: Buffer,
        /// Durable when it ends.
        durable: bool,
    },
    /// All that was written before is durable when it ends.
    Flush,
    /// A range is not needed.
    Discard {
        /// Its first byte.
        offset: u64,
        /// Bytes in it.
        len: u64,
    },
    /// A range is to read as zeros.
    Zero {
        /// Its first byte.
        offset: u64,
        /// Bytes in it.
        len: usize,
        /// And to have space.
        thick: bool,
    },
}

impl RbdIo {
    /// Tells if it changes the image.
    #[must_use]
    pub fn is_change(&self) -> bool {
        !matches!(self, Self::Read { .. } | Self::Flush)
    }
}

/// An operation that has ended.
#[derive(Debug)]
pub struct RbdDone {
    /// As it was submitted.
    pub io: RbdIo,
    /// The submitter's mark.
    pub token: u64,
    /// Bytes that were read; 0 for all others.
    pub result: Result<usize, Errno>,
}

/// One thread's requests to an image.
pub struct RbdQueue {
    table: Arc<RbdTable>,
    free: Vec<u32>,
    /// First of the places that were taken from the list and not looked at yet.
    taken: u32,
    // Behind the table: the image goes when it waits for nothing of ours.
    image: RbdImage,
}

/// Where requests lie while the library has them.
struct RbdTable {
    places: Box<[RbdSlot]>,
    /// The first of the places that have ended.
    ended: AtomicU32,
    waker: Waker,
    under_way: Arc<UnderWay>,
    end: Arc<TableEnd>,
}

/// Remains of a table.
#[derive(Default)]
struct TableEnd {
    table: UnderWay,
    /// A change has failed, and nobody has taken its result.
    failed: AtomicBool,
}

struct RbdSlot {
    index: u32,
    /// The next one that has ended.
    next: AtomicU32,
    result: AtomicI64,
    /// While the library has the request: a reference to the table. It goes with the callback.
    table: UnsafeCell<*const RbdTable>,
    /// The queue's, and nobody's between submission and end.
    request: UnsafeCell<Option<(RbdIo, u64)>>,
}

// SAFETY: a place's cells are touched by the queue's thread before the library gets the request and after its number
// was on the list (release by the callback, acquire by the taker), and `table` by the callback in between. Where the
// queue is gone, they are dropped by whoever has the last reference, behind the count's own ordering. What lies in them
// may be sent to other threads: a `Buffer`, numbers, and an address of a `RbdTable` that is counted.
unsafe impl Send for RbdTable {}
// SAFETY: as above.
unsafe impl Sync for RbdTable {}

impl RbdQueue {
    /// Room for `depth` requests at a time; `waker` is called when one has ended.
    #[must_use]
    pub fn new(image: &RbdImage, depth: usize, waker: Waker) -> Self {
        let count = u32::try_from(depth).unwrap_or(NONE - 1).min(NONE - 1);
        let place = |index| RbdSlot {
            index,
            next: AtomicU32::new(NONE),
            result: AtomicI64::new(0),
            table: UnsafeCell::new(ptr::null()),
            request: UnsafeCell::new(None),
        };
        let under_way = Arc::clone(&image.0.under_way);
        under_way.add();
        let end = Arc::<TableEnd>::default();
        end.table.add();
        Self {
            table: Arc::new(RbdTable {
                places: (0..count).map(place).collect(),
                ended: AtomicU32::new(NONE),
                waker,
                under_way,
                end,
            }),
            free: (0..count).rev().collect(),
            taken: NONE,
            image: image.clone(),
        }
    }

    /// Tells if there is no place for one more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// How many are under way, or have ended and were not taken.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.table.places.len() - self.free.len()
    }

    /// Hands a request to the library. Given back where it does not take it.
    pub fn submit(&mut self, io: RbdIo, token: u64) -> Result<(), (RbdIo, Errno)> {
        let Some(index) = self.free.pop() else {
            return Err((io, Errno::AGAIN));
        };
        let place = &self.table.places[index as usize];
        let library = self.image.0.library;
        let mut completion: Handle = ptr::null_mut();
        // SAFETY: the callback has the library's type; the argument is a place of the table, which stays where it is as long
        // as the reference lives that is stored below, before the library can call; the completion's place lives through
        // the call.
        let made = unsafe {
            let argument = ptr::from_ref(place).cast_mut().cast::<c_void>();
            (library.rbd_aio_create_completion)(argument, on_end, &raw mut completion)
        };
        if made < 0 {
            self.free.push(index);
            return Err((io, errno(made.into())));
        }
        // SAFETY: the place is free, so only this thread touches it.
        let io = unsafe {
            *place.table.get() = Arc::into_raw(Arc::clone(&self.table));
            &mut (*place.request.get()).insert((io, token)).0
        };
        // SAFETY: `start` has the same conditions: the image is open as long as the queue, which holds a clone, or as
        // long as requests are under way; the completion is new; and the request stays in its place, which the
        // reference just stored keeps.
        let code = unsafe { self.start(io, completion) };
        if code >= 0 {
            return Ok(());
        }
        // SAFETY: the library has not taken the request and will not call back: the completion is ours to release,
        // the place and the reference ours again.
        let request = unsafe {
            (library.rbd_aio_release)(completion);
            drop(Arc::from_raw(*place.table.get()));
            (*place.request.get()).take()
        };
        self.free.push(index);
        let (io, _) = request.expect("it was just put there");
        Err((io, errno(code.into())))
    }

    /// SAFETY: `completion` is a new one whose argument is the place that has `io` until its callback; no reference to
    /// the buffer's bytes is used meanwhile (nobody takes the request out of its place before it has ended).
    unsafe fn start(&self, io: &mut RbdIo, completion: Handle) -> c_int {
        let (library, image) = (self.image.0.library, self.image.0.handle);
        // SAFETY: by the conditions above; lengths are those of the buffers, whose bytes stay put until the callback.
        unsafe {
            match io {
                RbdIo::Read { offset, buffer } => {
                    let (start, len) = (buffer.as_mut_ptr().cast(), buffer.len());
                    (library.rbd_aio_read)(image, *offset, len, start, completion)
                }
                RbdIo::Write { offset, buffer, durable } => {
                    let flags = if *durable { FLAG_FUA } else { 0 };
                    let (start, len) = (buffer.as_ptr().cast(), buffer.len());
                    (library.rbd_aio_write2)(image, *offset, len, start, completion, flags)
                }
                RbdIo::Flush => (library.rbd_aio_flush)(image, completion),
                RbdIo::Discard { offset, len } => (library.rbd_aio_discard)(image, *offset, *len, completion),
                RbdIo::Zero { offset, len, thick } => {
                    let flags = if *thick { FLAG_THICK } else { 0 };
                    (library.rbd_aio_write_zeroes)(image, *offset, *len, completion, flags, 0)
                }
            }
        }
    }

    /// Something that has ended; `None` where nothing more has.
    pub fn next_done(&mut self) -> Option<RbdDone> {
        if self.taken == NONE {
            // Acquire: what the callbacks have stored in their places.
            let ended = self.table.ended.swap(NONE, Ordering::Acquire);
            self.taken = self.reversed(ended);
        }
        let place = self.table.places.get(self.taken as usize)?;
        // SAFETY: its number was on the list, so the library is done with it, and numbers are taken by this thread only.
        let request = unsafe { (*place.request.get()).take() };
        let result = place.result.load(Ordering::Relaxed);
        self.free.push(place.index);
        self.taken = place.next.load(Ordering::Relaxed);
        let (io, token) = request.expect("a place is on the list once for each request");
        let result = usize::try_from(result).map_err(|_| errno(result));
        Some(RbdDone { io, token, result })
    }

    /// Waits for what is under way, whose results are nobody's any more. Whether all of it has ended before the time is
    /// over, and all changes well.
    #[must_use]
    pub fn finish(self, limit: Duration) -> bool {
        let end = Arc::clone(&self.table.end);
        // The image stays until then.
        let Self { table, image, .. } = self;
        drop(table);
        let ended = end.table.wait(limit);
        drop(image);
        ended && !end.failed.load(Ordering::Relaxed)
    }

    /// The list in the order in which requests have ended.
    fn reversed(&self, mut at: u32) -> u32 {
        let mut before = NONE;
        while let Some(place) = self.table.places.get(at as usize) {
            let next = place.next.swap(before, Ordering::Relaxed);
            before = at;
            at = next;
        }
        before
    }
}

impl RbdSlot {
    /// Once everything has ended.
    fn holds_failed_change(&mut self) -> bool {
        let request = self.request.get_mut();
        request.as_ref().is_some_and(|(io, _)| io.is_change()) && *self.result.get_mut() < 0
    }
}

impl Drop for RbdTable {
    fn drop(&mut self) {
        if self.places.iter_mut().any(RbdSlot::holds_failed_change) {
            self.end.failed.store(true, Ordering::Relaxed);
        }
        // Last of all, so that the image is not closed before.
        self.under_way.remove();
        self.end.table.remove();
    }
}

/// Called by the library's threads, once for each request.
unsafe extern "C" fn on_end(completion: Handle, place: *mut c_void) {
    // SAFETY: the argument is the place that the completion was made with. Its table lives: the place has a reference to
    // it, which is taken over here and given up at the end of this function, and nobody else touches `table` until then.
    let (place, table) = unsafe {
        let place = &*place.cast::<RbdSlot>();
        (place, Arc::from_raw(*place.table.get()))
    };
    // A library that gave us a completion is loaded.
    let Ok(library) = super::library::Library::get() else {
        return;
    };
    // SAFETY: the completion is the library's, has ended, and is released once: here.
    let result = unsafe {
        let result = (library.rbd_aio_get_return_value)(completion);
        (library.rbd_aio_release)(completion);
        result
    };
    place.result.store(result as i64, Ordering::Relaxed);
    let mut first = table.ended.load(Ordering::Relaxed);
    loop {
        place.next.store(first, Ordering::Relaxed);
        // Release: the result, and all that the library has stored in the buffer.
        let exchanged = table.ended.compare_exchange_weak(first, place.index, Ordering::Release, Ordering::Relaxed);
        match exchanged {
            Ok(_) => break,
            Err(other) => first = other,
        }
    }
    table.waker.wake();
}

/// Of a negative return value.
fn errno(code: i64) -> Errno {
    Errno::from_raw_os_error(i32::try_from(code.saturating_neg()).unwrap_or(libc::EIO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BackendChoice, Ring};

    /// A table at its end, with what nobody has taken.
    fn end_of(left: Vec<(Option<RbdIo>, i64)>) -> bool {
        let mut ring = Ring::new(BackendChoice::Auto, 8).expect("a ring");
        let end = Arc::<TableEnd>::default();
        let under_way = Arc::<UnderWay>::default();
        under_way.add();
        end.table.add();
        let place = |(index, (io, result)): (usize, (Option<RbdIo>, i64))| RbdSlot {
            index: u32::try_from(index).expect("few"),
            next: AtomicU32::new(NONE),
            result: AtomicI64::new(result),
            table: UnsafeCell::new(ptr::null()),
            request: UnsafeCell::new(io.map(|io| (io, 0))),
        };
        drop(RbdTable {
            places: left.into_iter().enumerate().map(place).collect(),
            ended: AtomicU32::new(NONE),
            waker: ring.waker().expect("a waker"),
            under_way,
            end: Arc::clone(&end),
        });
        assert!(end.table.wait(Duration::ZERO));
        end.failed.load(Ordering::Relaxed)
    }

    #[test]
    fn only_failed_changes_that_nobody_was_told_of_count_at_the_end() {
        let failed = i64::from(-libc::EIO);
        let discard = || Some(RbdIo::Discard { offset: 0, len: 512 });
        assert!(!end_of(vec![(discard(), 0), (Some(RbdIo::Flush), failed)]));
        // A result that was taken is its submitter's.
        assert!(!end_of(vec![(None, failed), (discard(), 0)]));
        assert!(end_of(vec![(discard(), 0), (discard(), failed)]));
    }
}
