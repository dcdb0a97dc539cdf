//! The same for syncs and questions for holes that are made without a ring, and for how many processors there are.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{off_t, size_t};
use rustix::io::Errno;

use super::os::{real, set_errno};
use super::scheduler::{bypass, chance, is_managed};

/// Whoever knows the files of the simulation; `None` for those that are the system's.
pub trait Files: Sync {
    /// Syncs a file.
    fn sync(&self, file: &File) -> Option<io::Result<()>>;

    /// The next place, from `offset` on, at which a file has a hole, or data.
    fn seek(&self, file: BorrowedFd<'_>, offset: usize, hole: bool) -> Option<Result<usize, Errno>>;
}

static FILES: OnceLock<&'static dyn Files> = OnceLock::new();
/// Processors that threads of the simulation find; 0 for those that there are.
static PROCESSORS: AtomicUsize = AtomicUsize::new(0);

/// Has `files` asked from here on.
pub fn ask_of_files(files: &'static dyn Files) {
    let _ = FILES.set(files);
}

/// Lets code under test find so many processors; as many as there are where that is 0.
pub fn set_processors(count: usize) {
    PROCESSORS.store(count, Ordering::Relaxed);
}

/// The simulated sync of a descriptor; `None` where the system's is meant.
fn sync(fd: c_int) -> Option<c_int> {
    let files = FILES.get().filter(|_| is_managed())?;
    // SAFETY: fsync(2) and fdatasync(2) are given a descriptor that their caller keeps open; one that is not open
    // cannot be doubled, and the system tells of that.
    let file = bypass(|| unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned().ok()).map(File::from)?;
    let synced = files.sync(&file);
    bypass(|| drop(file));
    Some(match synced? {
        Ok(()) => 0,
        Err(error) => {
            set_errno(error.raw_os_error().unwrap_or(libc::EIO));
            -1
        }
    })
}

/// The simulated answer of lseek(2) about holes and data; `None` where the system's is meant.
pub(super) fn seek(fd: c_int, offset: off_t, whence: c_int) -> Option<off_t> {
    let hole = [libc::SEEK_DATA, libc::SEEK_HOLE].iter().position(|known| *known == whence)? == 1;
    let files = FILES.get().filter(|_| is_managed())?;
    // SAFETY: lseek(2) is given a descriptor that its caller keeps open.
    let found = files.seek(unsafe { BorrowedFd::borrow_raw(fd) }, usize::try_from(offset).ok()?, hole)?;
    Some(found.map_or_else(
        |error| {
            set_errno(error.raw_os_error());
            -1
        },
        |at| at as off_t,
    ))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    sync(fd).unwrap_or_else(|| real!(fsync(fd) as fn(c_int) -> c_int))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    sync(fd).unwrap_or_else(|| real!(fdatasync(fd) as fn(c_int) -> c_int))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_getaffinity(thread: libc::pid_t, len: size_t, set: *mut c_void) -> c_int {
    let result = real!(sched_getaffinity(thread, len, set) as fn(libc::pid_t, size_t, *mut c_void) -> c_int);
    let count = PROCESSORS.load(Ordering::Relaxed);
    if result == 0 && count > 0 && is_managed() {
        chance();
        let mask = (1_u64 << count.min(63)) - 1;
        // SAFETY: after success the set has `len` bytes, of which the first hold the first processors.
        unsafe {
            set.cast::<u8>().write_bytes(0, len);
            set.cast::<u8>().copy_from_nonoverlapping(mask.to_ne_bytes().as_ptr(), len.min(8));
        }
    }
    result
}

/// Folders that are not there. A history has nothing on any block device, and a look at each takes a while; how long the system
/// lists a thread that has ended is left to chance.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn opendir(name: *const c_char) -> *mut libc::DIR {
    // SAFETY: a text that ends with a zero byte, as opendir(3) wants it.
    let known = is_managed().then(|| unsafe { CStr::from_ptr(name) }.to_bytes());
    let error = match known {
        Some(b"/proc/self/task") => libc::EACCES,
        Some(b"/sys/block") => libc::ENOENT,
        _ => return real!(opendir(name) as fn(*const c_char) -> *mut libc::DIR),
    };
    set_errno(error);
    std::ptr::null_mut()
}
