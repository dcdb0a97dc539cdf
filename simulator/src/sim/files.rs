//! The same for syncs and questions for holes that are made without a ring, for how many processors there are, and for folders;
//! and the names of files.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{off_t, size_t};
use rustix::io::Errno;

use super::os::{real, set_errno};
use super::scheduler::{bypass, chance, is_managed};
use super::sockets::is_active;

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

/// Names of files by descriptor, once somebody has asked.
struct Names(RefCell<Vec<Option<(u64, u64)>>>);

// SAFETY: it is used once a simulation has begun; from then on one thread of the system runs.
unsafe impl Sync for Names {}

static NAMES: Names = Names(RefCell::new(Vec::new()));

/// The device and the inode of an open file. The system is asked once, until a descriptor is closed.
///
/// # Panics
/// Where the system does not know it.
pub fn name_of(file: impl AsFd) -> (u64, u64) {
    let place = usize::try_from(file.as_fd().as_raw_fd()).expect("an open file has a number");
    if let Some(Some(known)) = NAMES.0.borrow().get(place).filter(|_| is_active()) {
        return *known;
    }
    let stat = bypass(|| rustix::fs::fstat(file)).expect("an open file has a number");
    let name = (stat.st_dev, stat.st_ino);
    if is_active() {
        let names = &mut *NAMES.0.borrow_mut();
        names.resize(names.len().max(place + 1), None);
        names[place] = Some(name);
    }
    name
}

/// Tells if somebody has asked for the name of what this descriptor is for.
pub(super) fn is_known(fd: c_int) -> bool {
    is_active() && usize::try_from(fd).is_ok_and(|place| matches!(NAMES.0.borrow().get(place), Some(Some(_))))
}

/// A descriptor is closed.
pub(super) fn closed(fd: c_int) {
    let Some(place) = usize::try_from(fd).ok().filter(|_| is_active()) else { return };
    let names = &mut *NAMES.0.borrow_mut();
    names.resize(names.len().max(place + 1), None);
    names[place] = None;
}

/// Count of descriptors that this process has open. A new one gets the lowest number that is free, so none is far behind the
/// largest that was ever closed.
pub fn descriptors() -> usize {
    const MORE: usize = 64;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let most = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let numbers = 0..(NAMES.0.borrow().len() + MORE).min(most);
    let look = |fd| libc::pollfd { fd: fd as c_int, events: 0, revents: 0 };
    let mut polled: Vec<_> = numbers.map(look).collect();
    let count = polled.len() as libc::nfds_t;
    let looked = real!(poll(polled.as_mut_ptr(), count, 0) as fn(*mut libc::pollfd, libc::nfds_t, c_int) -> c_int);
    assert!(looked >= 0, "descriptors can be looked at");
    polled.iter().filter(|polled| polled.revents & libc::POLLNVAL == 0).count()
}

/// The simulated sync of a descriptor; `None` where the system's is meant.
fn sync(fd: c_int) -> Option<c_int> {
    let files = FILES.get().filter(|_| is_managed())?;
    // SAFETY: fsync(2) and fdatasync(2) are given a descriptor that their caller keeps open; it is not closed here.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
    let synced = files.sync(&file);
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
    let count = PROCESSORS.load(Ordering::Relaxed);
    if count == 0 || thread != 0 || !is_managed() {
        return real!(sched_getaffinity(thread, len, set) as fn(libc::pid_t, size_t, *mut c_void) -> c_int);
    }
    chance();
    let mask = (1_u64 << count.min(63)) - 1;
    // SAFETY: sched_getaffinity(2) wants a place of `len` bytes, of which the first hold the first processors.
    unsafe {
        set.cast::<u8>().write_bytes(0, len);
        set.cast::<u8>().copy_from_nonoverlapping(mask.to_ne_bytes().as_ptr(), len.min(8));
    }
    0
}

/// A file that is not there: nothing of a history is swap space.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(name: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: a text that ends with a zero byte, as open(2) wants it.
    if is_active() && unsafe { CStr::from_ptr(name) } == c"/proc/swaps" {
        set_errno(libc::ENOENT);
        return -1;
    }
    real!(open64(name, flags, mode) as fn(*const c_char, c_int, libc::mode_t) -> c_int)
}

/// Folders that are not there. A history has nothing on any block device, and a look at each takes a while; how long the system
/// lists a thread that has ended is left to chance.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn opendir(name: *const c_char) -> *mut libc::DIR {
    // SAFETY: a text that ends with a zero byte, as opendir(3) wants it.
    let known = is_active().then(|| unsafe { CStr::from_ptr(name) }.to_bytes());
    let error = match known {
        Some(b"/proc/self/task") => libc::EACCES,
        Some(b"/sys/block") => libc::ENOENT,
        _ => return real!(opendir(name) as fn(*const c_char) -> *mut libc::DIR),
    };
    set_errno(error);
    std::ptr::null_mut()
}
