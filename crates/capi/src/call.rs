//! The frame of each call: a number for the caller, the text behind it, and no panic past this point.

use std::cell::RefCell;
use std::ffi::{CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use cryptline::{Error, Fault};
use rustix::io::Errno;

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// Why a call failed.
pub(crate) struct CallFailure {
    errno: Errno,
    text: String,
}

impl CallFailure {
    pub fn new(errno: Errno, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { errno, text }
    }

    pub fn invalid(text: impl Into<String>) -> Self {
        Self::new(Errno::INVAL, text)
    }
}

impl From<Error> for CallFailure {
    fn from(error: Error) -> Self {
        Self::new(error.errno(), error.with_next_step())
    }
}

impl From<Fault> for CallFailure {
    fn from(fault: Fault) -> Self {
        Self::new(fault.errno(), fault.to_string())
    }
}

impl From<std::io::Error> for CallFailure {
    fn from(error: std::io::Error) -> Self {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        Self::new(errno, error.to_string())
    }
}

pub(crate) type Outcome<T = ()> = Result<T, CallFailure>;

/// Does the work of a call: 0 or `-errno`, and the text for [`cryptline_last_error`].
pub(crate) fn call(work: impl FnOnce() -> Outcome) -> c_int {
    count(|| work().map(|()| 0))
}

/// The same for calls that give a number.
pub(crate) fn count(work: impl FnOnce() -> Outcome<c_int>) -> c_int {
    // What the work leaves behind halfway is behind locks that notice, or ends with it.
    let outcome = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let text = "a bug in cryptline: see what it wrote to standard error, and report it";
        Err(CallFailure::new(Errno::NOTRECOVERABLE, text))
    });
    match outcome {
        Ok(number) => number,
        Err(failure) => {
            keep(&failure.text);
            -failure.errno.raw_os_error()
        }
    }
}

fn keep(text: &str) {
    let text = text.replace('\0', " ");
    let text = CString::new(text).unwrap_or_default();
    // A thread that is ending has no place for it any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
}

/// Reason of the last failure of a call of this thread, in one line; never null. The text is good until the
/// next call of this thread that fails.
#[unsafe(no_mangle)]
pub extern "C" fn cryptline_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"the thread is ending".as_ptr())
}

/// The version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn cryptline_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// The bytes at `start`.
///
/// # Safety
/// `start` is null, or `len` bytes from it on can be read and are not written during `'a`.
pub(crate) unsafe fn bytes<'a>(start: *const c_void, len: usize, what: &str) -> Outcome<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    check(start, len, what)?;
    // SAFETY: it is not null and no longer than memory can be (both checked); that the bytes can be read and stay as
    // they are is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(start.cast(), len) })
}

/// The bytes at `start`, to be written.
///
/// # Safety
/// `start` is null, or `len` bytes from it on can be written and are used by nobody else during `'a`.
pub(crate) unsafe fn bytes_mut<'a>(start: *mut c_void, len: usize, what: &str) -> Outcome<&'a mut [u8]> {
    if len == 0 {
        return Ok(&mut []);
    }
    check(start, len, what)?;
    // SAFETY: it is not null and no longer than memory can be (both checked); that the bytes are nobody else's is the
    // caller's promise. They may be uninitialised for C, where such bytes have some value: they are only written here.
    Ok(unsafe { std::slice::from_raw_parts_mut(start.cast(), len) })
}

fn check(start: *const c_void, len: usize, what: &str) -> Outcome {
    if start.is_null() {
        return Err(CallFailure::invalid(format!("{what} is null")));
    }
    if isize::try_from(len).is_err() {
        let text = format!("{what}: no memory has {len} bytes");
        return Err(CallFailure::invalid(text));
    }
    Ok(())
}

/// The text at `start`; `None` where it is null or empty.
///
/// # Safety
/// `start` is null, or a text that ends with a zero byte and is not written during `'a`.
pub(crate) unsafe fn optional_text<'a>(start: *const c_char) -> Option<&'a OsStr> {
    if start.is_null() {
        return None;
    }
    // SAFETY: it is not null; that it is a text with its end, which stays as it is, is the caller's promise.
    let text = unsafe { std::ffi::CStr::from_ptr(start) };
    Some(OsStr::from_bytes(text.to_bytes())).filter(|text| !text.is_empty())
}

/// The same of a text that there must be.
///
/// # Safety
/// As [`optional_text`].
pub(crate) unsafe fn text<'a>(start: *const c_char, what: &str) -> Outcome<&'a OsStr> {
    // SAFETY: the caller's promise is the same.
    unsafe { optional_text(start) }.ok_or_else(|| CallFailure::invalid(format!("{what} is null or empty")))
}

/// As UTF-8.
pub(crate) fn utf8<'a>(text: &'a OsStr, what: &str) -> Outcome<&'a str> {
    text.to_str().ok_or_else(|| CallFailure::invalid(format!("{what} is not UTF-8")))
}

/// Where a result goes.
pub(crate) struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    /// # Safety
    /// `place` is null, or a `T` can be written there until the call returns.
    pub unsafe fn new(place: *mut T, what: &str) -> Outcome<Self> {
        // SAFETY: the caller's promise is the same.
        unsafe { Self::optional(place, what) }?.ok_or_else(|| CallFailure::invalid(format!("{what} is null")))
    }

    /// `None` where it is null.
    ///
    /// # Safety
    /// As [`new`](Self::new).
    pub unsafe fn optional(place: *mut T, what: &str) -> Outcome<Option<Self>> {
        match NonNull::new(place) {
            Some(place) if !place.is_aligned() => {
                let bytes = align_of::<T>();
                let text = format!("{what} is not aligned to {bytes} bytes");
                Err(CallFailure::invalid(text))
            }
            place => Ok(place.map(Self)),
        }
    }

    pub fn set(&self, value: T) {
        // SAFETY: it is not null and aligned (checked), and a `T` can be written there as long as this lives, which
        // is within the call: the promise of whoever made this. Nothing is dropped: these are plain values.
        unsafe { self.0.write(value) };
    }
}

/// Puts `text` with a zero byte behind it into the room of the caller, who is told how much it needs.
///
/// # Safety
/// `room` is null, or `len` bytes can be written there; `needed` is null, or a size can be written there.
pub(crate) unsafe fn give_text(text: &str, room: *mut c_char, len: usize, needed: *mut usize) -> Outcome {
    // SAFETY: the caller's promise is the same.
    if let Some(needed) = unsafe { Out::optional(needed, "the place for the size") }? {
        needed.set(text.len() + 1);
    }
    if len <= text.len() {
        let needs = text.len() + 1;
        let text = format!("{needs} bytes are needed, and there is room for {len}");
        return Err(CallFailure::new(Errno::RANGE, text));
    }
    // SAFETY: the caller's promise is the same.
    let room = unsafe { bytes_mut(room.cast(), len, "the room for the text") }?;
    room[..text.len()].copy_from_slice(text.as_bytes());
    room[text.len()] = 0;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_becomes_a_number_and_a_text_and_the_next_call_works() {
        let panics = || -> Outcome { panic!("this test panics") };
        assert_eq!(call(panics), -Errno::NOTRECOVERABLE.raw_os_error());
        // SAFETY: it is a text with its end, good until the next call of this thread that fails.
        let said = unsafe { std::ffi::CStr::from_ptr(cryptline_last_error()) };
        assert!(said.to_str().unwrap().contains("a bug in cryptline"));
        assert_eq!(count(|| Ok(7)), 7);
    }
}
