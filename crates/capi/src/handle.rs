//! Handles: what the caller holds looks like a pointer, is a number in a table, and is never followed. So one that is
//! null, closed, or from somewhere else gives an error and touches nothing.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustix::io::Errno;

use crate::call::{CallFailure, Outcome};

// A handle is a number of 64 bits.
const _: () = assert!(size_of::<*const ()>() == 8);

/// No address has this bit in user space, so no handle is equal to a pointer.
const MARK: u64 = 1 << 63;

/// A number that was never given to anybody before, as a pointer.
pub(crate) fn new<H>() -> *mut H {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // In steps of 64, so that what is added to a handle by mistake gives no other.
    let number = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(64) | MARK;
    std::ptr::without_provenance_mut(usize::try_from(number).unwrap_or(usize::MAX))
}

/// The number of a handle.
pub(crate) fn number<H>(handle: *const H, what: &str) -> Outcome<u64> {
    match handle.addr() as u64 {
        0 => Err(CallFailure::invalid(format!("the {what} is null"))),
        number => Ok(number),
    }
}

/// Failure of a call with a handle that stands for nothing.
pub(crate) fn unknown(what: &str) -> CallFailure {
    let text = format!("this is no {what} that is open");
    CallFailure::new(Errno::BADF, text)
}

/// Objects behind the handles of one kind. Calls look them up under a lock that only opening and closing take alone.
pub(crate) struct HandleTable<T: 'static> {
    what: &'static str,
    open: RwLock<Option<HashMap<u64, Arc<T>>>>,
    /// Threads that close something and wait for calls under way.
    closers: AtomicUsize,
    /// They look again each time that a call has ended.
    alone: Mutex<()>,
    ended: Condvar,
}

/// Object behind a handle, while a call uses it.
pub(crate) struct HandleUse<T: 'static> {
    /// Until it is dropped.
    value: Option<Arc<T>>,
    table: &'static HandleTable<T>,
}

impl<T> Deref for HandleUse<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("it is not dropped yet")
    }
}

impl<T> Drop for HandleUse<T> {
    fn drop(&mut self) {
        drop(self.value.take());
        // Either this sees the closer, or the closer sees that this is over: see `wait_for_calls`.
        fence(Ordering::SeqCst);
        if self.table.closers.load(Ordering::Relaxed) > 0 {
            // A closer that has looked, and does not wait yet, has this lock.
            drop(cryptline_sys::lock(&self.table.alone));
            self.table.ended.notify_all();
        }
    }
}

impl<T> HandleTable<T> {
    pub const fn new(what: &'static str) -> Self {
        Self {
            what,
            open: RwLock::new(None),
            closers: AtomicUsize::new(0),
            alone: Mutex::new(()),
            ended: Condvar::new(),
        }
    }

    /// A handle for `value`.
    pub fn add<H>(&self, value: T) -> *mut H {
        let handle = new::<H>();
        let number = handle.addr() as u64;
        self.write().get_or_insert_default().insert(number, Arc::new(value));
        handle
    }

    /// Object behind `handle`, which lives as long as it is used, even if it is closed meanwhile.
    pub fn get<H>(&'static self, handle: *const H) -> Outcome<HandleUse<T>> {
        let number = number(handle, self.what)?;
        let open = self.read();
        let found = open.as_ref().and_then(|open| open.get(&number));
        let value = Some(found.cloned().ok_or_else(|| unknown(self.what))?);
        let table = self;
        Ok(HandleUse { value, table })
    }

    /// The same, and the handle stands for nothing from now on. Calls under way have ended then: nobody else has it.
    pub fn take<H>(&self, handle: *const H) -> Outcome<Arc<T>> {
        let number = number(handle, self.what)?;
        let taken = self.write().as_mut().and_then(|open| open.remove(&number));
        let taken = taken.ok_or_else(|| unknown(self.what))?;
        self.wait_for_calls(&taken);
        Ok(taken)
    }

    fn wait_for_calls(&self, taken: &Arc<T>) {
        self.closers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let mut alone = cryptline_sys::lock(&self.alone);
        // It is in no table any more, so nobody new gets it.
        while Arc::strong_count(taken) > 1 {
            alone = self.ended.wait(alone).unwrap_or_else(PoisonError::into_inner);
        }
        drop(alone);
        self.closers.fetch_sub(1, Ordering::Relaxed);
    }

    // The table is whole at any moment, so one that was left in a panic is as good.
    fn read(&self) -> RwLockReadGuard<'_, Option<HashMap<u64, Arc<T>>>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Option<HashMap<u64, Arc<T>>>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::c_void;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    #[test]
    fn handle_that_is_null_closed_or_foreign_stands_for_nothing() {
        static TABLE: HandleTable<u32> = HandleTable::new("number");
        let handle = TABLE.add::<c_void>(7);
        assert_eq!(TABLE.get(handle).ok().as_deref(), Some(&7));
        let foreign = [
            std::ptr::null_mut(),
            std::ptr::from_ref(&TABLE).cast::<c_void>().cast_mut(),
            handle.wrapping_byte_add(1),
            std::ptr::without_provenance_mut(usize::MAX),
        ];
        for foreign in foreign {
            assert!(TABLE.get(foreign).is_err() && TABLE.take(foreign).is_err());
        }
        assert_eq!(TABLE.take(handle).ok().as_deref(), Some(&7));
        assert!(TABLE.get(handle).is_err() && TABLE.take(handle).is_err());
        assert_ne!(TABLE.add::<c_void>(8), handle);
    }

    #[test]
    fn closing_waits_for_the_calls_under_way() {
        static TABLE: HandleTable<u32> = HandleTable::new("number");
        let number = TABLE.add::<c_void>(7).addr();
        let handle = || std::ptr::without_provenance_mut::<c_void>(number);
        let calls = [TABLE.get(handle()).ok(), TABLE.get(handle()).ok()];
        let is_closed = AtomicBool::new(false);
        thread::scope(|scope| {
            let closer = scope.spawn(|| {
                let taken = TABLE.take(handle()).ok().unwrap();
                assert_eq!(Arc::strong_count(&taken), 1);
                is_closed.store(true, Ordering::Relaxed);
            });
            // New calls are refused before those under way have ended.
            while TABLE.get(handle()).is_ok() {
                thread::yield_now();
            }
            for call in calls {
                assert!(!is_closed.load(Ordering::Relaxed));
                assert_eq!(call.as_deref(), Some(&7));
                drop(call);
            }
            closer.join().unwrap();
        });
        assert!(is_closed.load(Ordering::Relaxed));
    }
}
