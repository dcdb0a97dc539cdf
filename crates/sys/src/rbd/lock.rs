//! Owner of the exclusive lock of an image, and whether that client is still there.
//!
//! The library's own way to a lock asks whoever has it to give it up, and most clients do. So we look before.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::time::Duration;

use super::cluster::text;
use super::image::RbdImage;
use super::library::Watcher;
use super::{RbdCall, RbdError};

/// From librbd.h.
const RBD_LOCK_MODE_EXCLUSIVE: c_int = 0;
/// An exclusive lock has one owner. Watchers: clients that have the image open.
const OWNERS_MAX: usize = 1;
const WATCHERS_MAX: usize = 64;
/// How often there may be more watchers than there were a moment ago.
const TRIES: usize = 8;

/// A client that has the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RbdOwner {
    /// Its address, with a number that no other client at that address has.
    pub address: String,
    /// `None` once the cluster has given it up.
    pub watch: Option<RbdWatch>,
}

/// A client's watch of an image: the cluster keeps it for a while after the client has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RbdWatch {
    /// The number of the client.
    pub client: u64,
    cookie: u64,
}

impl RbdImage {
    /// Becomes its only writer, until it is closed. Another client that has the lock **is asked to give it up**; a lock
    /// that a client has left behind is taken from it.
    pub fn acquire_lock(&self) -> Result<(), RbdError> {
        // SAFETY: the image is open, and the mode is one of the library's.
        let code = unsafe { (self.0.library.rbd_lock_acquire)(self.0.handle, RBD_LOCK_MODE_EXCLUSIVE) };
        RbdError::check(RbdCall::Lock, code).map(|_| ())
    }

    /// Returns the client that has the lock. Asks the cluster.
    ///
    /// Errors: EBUSY where the lock was not taken by a client that writes, but by hand.
    pub fn lock_owner(&self) -> Result<Option<RbdOwner>, RbdError> {
        let Some(address) = self.owner_address()? else {
            return Ok(None);
        };
        let watch = self.watch_of(&address)?;
        Ok(Some(RbdOwner { address, watch }))
    }

    fn owner_address(&self) -> Result<Option<String>, RbdError> {
        let (library, image) = (self.0.library, self.0.handle);
        let mut mode: c_int = 0;
        let mut owners: [*mut c_char; OWNERS_MAX] = [ptr::null_mut(); OWNERS_MAX];
        let mut count = owners.len();
        // SAFETY: the image is open; `count` says how many owners there is room for, and all places live through the
        // call.
        let code = unsafe { (library.rbd_lock_get_owners)(image, &raw mut mode, owners.as_mut_ptr(), &raw mut count) };
        if code == -libc::ENOENT {
            return Ok(None);
        }
        RbdError::check(RbdCall::Lock, code)?;
        let count = count.min(owners.len());
        let first = owners.iter().take(count).find(|owner| !owner.is_null());
        // SAFETY: the library has filled in `count` texts that end with a zero, which live until they are released
        // below, once.
        unsafe {
            let address = first.map(|owner| CStr::from_ptr(*owner).to_string_lossy().into_owned());
            (library.rbd_lock_get_owners_cleanup)(owners.as_mut_ptr(), count);
            Ok(address)
        }
    }

    /// The watch of the client at `address`.
    fn watch_of(&self, address: &str) -> Result<Option<RbdWatch>, RbdError> {
        let (library, image) = (self.0.library, self.0.handle);
        let none = Watcher { address: ptr::null_mut(), id: 0, cookie: 0 };
        let mut watchers = vec![none; WATCHERS_MAX];
        for _ in 0..TRIES {
            let mut count = watchers.len();
            // SAFETY: the image is open; `count` says how many watchers there is room for, and its place and theirs live
            // through the call.
            let code = unsafe { (library.rbd_watchers_list)(image, watchers.as_mut_ptr(), &raw mut count) };
            if code == -libc::ERANGE {
                watchers.resize(count, none);
                continue;
            }
            RbdError::check(RbdCall::Lock, code)?;
            let count = count.min(watchers.len());
            let is_it = |watcher: &&Watcher| {
                // SAFETY: the library has filled in the address with a text that ends with a zero, which lives until the
                // list is released.
                !watcher.address.is_null()
                    && unsafe { CStr::from_ptr(watcher.address) }.to_bytes() == address.as_bytes()
            };
            let found = watchers.iter().take(count).find(is_it);
            let found = found.map(|watcher| RbdWatch { client: watcher.id.cast_unsigned(), cookie: watcher.cookie });
            // SAFETY: the first `count` were filled in by the library, and are released once: here.
            unsafe { (library.rbd_watchers_list_cleanup)(watchers.as_mut_ptr(), count) };
            return Ok(found);
        }
        Err(RbdError::of(RbdCall::Lock, -libc::ERANGE))
    }

    /// Tells if a client that watches the image still answers, in whole seconds. All who watch it are told that it may
    /// have changed, which is what an empty notification says, and asks no more of them than a look.
    pub fn does_answer(&self, watch: RbdWatch, limit: Duration) -> Result<bool, RbdError> {
        let Some(pool) = &self.0.pool else {
            return Ok(false);
        };
        let (library, header) = (self.0.library, self.header()?);
        let limit = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let mut answers: *mut c_char = ptr::null_mut();
        let mut len = 0;
        // SAFETY: the pool is open as long as the image; the name ends with a zero; there are no bytes to send; the places
        // of the answers live through the call.
        let code = unsafe {
            (library.rados_notify2)(pool.handle, header.as_ptr(), ptr::null(), 0, limit, &raw mut answers, &raw mut len)
        };
        // Some watcher did not answer. The list has those that did.
        if code != -libc::ETIMEDOUT {
            RbdError::check(RbdCall::Lock, code)?;
        }
        if answers.is_null() {
            return Ok(false);
        }
        // SAFETY: the library has allocated `len` bytes there and filled them in. Nobody else knows of them, so they stay as
        // they are until they are released, once, below.
        unsafe {
            let answers_bytes = std::slice::from_raw_parts(answers.cast::<u8>(), len);
            let found = has_answer(answers_bytes, watch);
            (library.rados_buffer_free)(answers);
            Ok(found)
        }
    }

    /// The name of the object that is watched.
    fn header(&self) -> Result<std::ffi::CString, RbdError> {
        text(&format!("rbd_header.{}", self.id()?.to_string_lossy()))
    }
}

/// Tells if `watch` is among those who have answered a notification: a count, then for each the client, its cookie, and
/// what it says with the length before, all in little endian.
fn has_answer(mut answers: &[u8], watch: RbdWatch) -> bool {
    let Some(count) = take(&mut answers).map(u32::from_le_bytes) else {
        return false;
    };
    (0..count).map_while(|_| answer(&mut answers)).any(|found| found == watch)
}

fn answer(answers: &mut &[u8]) -> Option<RbdWatch> {
    let client = u64::from_le_bytes(take(answers)?);
    let cookie = u64::from_le_bytes(take(answers)?);
    let len = u32::from_le_bytes(take(answers)?);
    *answers = answers.get(usize::try_from(len).ok()?..)?;
    Some(RbdWatch { client, cookie })
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_is_found_among_those_that_have_answered_only() {
        let watch = |client, cookie| RbdWatch { client, cookie };
        let mut answers = 2u32.to_le_bytes().to_vec();
        for (one, said) in [(watch(7, 1), &b"yes"[..]), (watch(9, 2), b"")] {
            answers.extend(one.client.to_le_bytes());
            answers.extend(one.cookie.to_le_bytes());
            answers.extend(u32::try_from(said.len()).expect("short").to_le_bytes());
            answers.extend(said);
        }
        // Behind them: those that have not.
        answers.extend(1u32.to_le_bytes());
        answers.extend(5u64.to_le_bytes());
        answers.extend(6u64.to_le_bytes());
        for (asked, expected) in [(watch(7, 1), true), (watch(9, 2), true), (watch(9, 1), false), (watch(5, 6), false)]
        {
            assert_eq!(has_answer(&answers, asked), expected, "{asked:?}");
        }
        for len in 0..answers.len() {
            has_answer(&answers[..len], watch(5, 6));
        }
        assert!(!has_answer(&answers[..40], watch(9, 2)), "cut short");
    }
}
