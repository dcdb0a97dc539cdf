//! Memory for keys: locked in RAM, left out of core dumps, wiped before it is given back.
//!
//! ```text
//! SecretBuf        bytes, in pages of their own: passphrases, keys on their way
//! heap::SecretBox  a value among others in a few shared pages: expanded keys
//! stack            stacks of threads that handle keys
//! ```
//!
//! The types have neither `Debug` nor `Clone`, so a key cannot slip into a log or be copied without a
//! visible call.

mod heap;
mod registers;
mod stack;

use std::ffi::c_void;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::mm::{Advice, MapFlags, MlockFlags, ProtFlags};
use zeroize::Zeroize;

pub use heap::SecretBox;
pub use stack::{GUARDED_STACK, NotStarted, SecretThread, StackGuard, on_secret_stack, on_secret_thread};

/// Set if some key memory could not be locked.
static UNLOCKED: AtomicBool = AtomicBool::new(false);

/// Tells if all key memory of this process could be locked so far, its threads' stacks aside.
#[must_use]
pub fn key_memory_is_locked() -> bool {
    !UNLOCKED.load(Ordering::Relaxed)
}

/// Maps `len` zero bytes, whole pages.
fn map(len: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: a new anonymous private mapping: it aliases nothing and the kernel picks the address.
    let address = unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    }?;
    NonNull::new(address.cast::<u8>()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Locks pages, and keeps them out of core dumps. Says whether locking worked.
///
/// # Safety
/// The range is mapped.
unsafe fn guard(start: *mut c_void, len: usize) -> bool {
    if cfg!(miri) {
        return true;
    }
    // SAFETY: the caller says that the range is mapped. The calls only change how the kernel treats
    // its pages; failing is allowed.
    unsafe {
        let _ = rustix::mm::madvise(start, len, Advice::LinuxDontDump);
        rustix::mm::mlock(start, len).is_ok()
    }
}

/// The same for pages that are locked when they are first used.
///
/// # Safety
/// The range is mapped.
unsafe fn guard_when_used(start: *mut c_void, len: usize) -> bool {
    if cfg!(miri) {
        return false;
    }
    // SAFETY: as in `guard`.
    unsafe {
        let _ = rustix::mm::madvise(start, len, Advice::LinuxDontDump);
        rustix::mm::mlock_with(start, len, MlockFlags::ONFAULT).is_ok()
    }
}

/// A byte string that holds a secret.
///
/// Its pages are its own (nothing else shares them). Locking can fail where `RLIMIT_MEMLOCK`
/// is exhausted ([`key_memory_is_locked`] tells); the secret is then still left out of dumps and
/// wiped, as cryptsetup does.
pub struct SecretBuf {
    start: NonNull<u8>,
    len: usize,
    mapped: usize,
}

// SAFETY: the buffer exclusively owns its mapping; nothing about it is tied to a thread.
unsafe impl Send for SecretBuf {}
// SAFETY: shared access is only through `&[u8]`.
unsafe impl Sync for SecretBuf {}

impl SecretBuf {
    /// `len` zero bytes. Fails with `OutOfMemory` where the pages can not be mapped.
    pub fn zeroed(len: usize) -> io::Result<Self> {
        let page = crate::page_size();
        let mapped = len.max(1).checked_next_multiple_of(page).ok_or(io::ErrorKind::OutOfMemory)?;
        let start = map(mapped)?;
        // SAFETY: the range is exactly the mapping made above.
        if !unsafe { guard(start.as_ptr().cast(), mapped) } {
            UNLOCKED.store(true, Ordering::Relaxed);
        }
        Ok(Self { start, len, mapped })
    }

    /// A copy of `bytes`; the original is the caller's to wipe.
    pub fn copy_of(bytes: &[u8]) -> io::Result<Self> {
        let mut secret = Self::zeroed(bytes.len())?;
        secret.copy_from_slice(bytes);
        Ok(secret)
    }

    /// `len` bytes from the kernel's random number generator.
    pub fn random(len: usize) -> io::Result<Self> {
        let mut secret = Self::zeroed(len)?;
        let mut filled = 0;
        while filled < len {
            let flags = rustix::rand::GetRandomFlags::empty();
            filled += rustix::rand::getrandom(&mut secret[filled..], flags)?;
        }
        Ok(secret)
    }
}

impl Deref for SecretBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len <= mapped` bytes from `start` are mapped, initialised (anonymous pages
        // are zero) and owned by `self`, which is borrowed for the slice's life.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for SecretBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for SecretBuf {
    fn drop(&mut self) {
        self.zeroize();
        // SAFETY: `start` and `mapped` are the mapping made in `zeroed`; no slice into it can
        // outlive `self`. Unmapping also unlocks.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_starts_zeroed_and_keeps_what_is_written() {
        let mut secret = SecretBuf::zeroed(5000).unwrap();
        assert!(secret.iter().all(|&byte| byte == 0));
        secret[4999] = 7;
        assert_eq!(secret[4999], 7);
        assert_eq!(&*SecretBuf::copy_of(b"key").unwrap(), b"key");
    }

    #[test]
    fn empty_secret_is_allowed() {
        assert!(SecretBuf::zeroed(0).unwrap().is_empty());
    }

    #[test]
    fn two_random_secrets_differ() {
        let one = SecretBuf::random(32).unwrap();
        assert_ne!(*one, *SecretBuf::random(32).unwrap());
    }
}
