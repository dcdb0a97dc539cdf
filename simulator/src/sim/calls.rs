//! The C library's functions that wait, start threads or tell the time, under its names. In a simulation none of them waits
//! in the system; outside of one they are the C library's.
//!
//! Each function has the signature and the contract of its namesake, and so have its callers.

// The functions below are unsafe since their namesakes are; what each asks of its caller is in its manual page.
#![allow(clippy::missing_safety_doc)]

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};

use libc::{clockid_t, off_t, pthread_attr_t, pthread_t, size_t, ssize_t, stat, timespec};

use super::context::{self, Start};
use super::files;
use super::os::{self, real, set_errno};
use super::scheduler::{self, Wait, Woken, is_managed};
use super::sockets;

/// Files about which the system is silent for now, by device and inode.
static HELD: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

/// Whoever waits for one of these files does so for this key.
const HOLD_KEY: usize = 1;

/// A file about which the system says nothing, until this is dropped.
pub struct Held((u64, u64));

/// Makes the system silent about a file: who asks for its size or its holes waits.
pub fn hold(file: (u64, u64)) -> Held {
    held().push(file);
    Held(file)
}

impl Drop for Held {
    fn drop(&mut self) {
        held().retain(|file| *file != self.0);
        scheduler::kick(HOLD_KEY, usize::MAX);
    }
}

fn held() -> std::sync::MutexGuard<'static, Vec<(u64, u64)>> {
    HELD.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Waits while the system is silent about a file.
fn until_told(fd: c_int) {
    if held().is_empty() {
        return;
    }
    loop {
        // SAFETY: all zeros are a stat.
        let mut found: stat = unsafe { std::mem::zeroed() };
        let known = real!(fstat64(fd, (&raw mut found).cast()) as fn(c_int, *mut c_void) -> c_int) == 0;
        if !known || !held().contains(&(found.st_dev, found.st_ino)) {
            return;
        }
        scheduler::block(Wait { key: Some(HOLD_KEY), ..Wait::default() });
    }
}

// ---- time ----

pub(super) fn ns_of(time: *const timespec) -> Option<u64> {
    // SAFETY: null or a live timespec, as the manual pages of all callers have it.
    let time = unsafe { time.as_ref() }?;
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Some(seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    if !is_managed() {
        return real!(clock_gettime(clock, time) as fn(clockid_t, *mut timespec) -> c_int);
    }
    let now = scheduler::ask_time();
    let parts = timespec { tv_sec: (now / 1_000_000_000) as i64, tv_nsec: (now % 1_000_000_000) as i64 };
    // SAFETY: clock_gettime(2) wants a place for a timespec.
    unsafe { time.write(parts) };
    0
}

fn sleep_until(until: u64) {
    while scheduler::block(Wait { until: Some(until), ..Wait::default() }) != Woken::Late {}
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nanosleep(time: *const timespec, left: *mut timespec) -> c_int {
    if !is_managed() {
        return real!(nanosleep(time, left) as fn(*const timespec, *mut timespec) -> c_int);
    }
    sleep_until(scheduler::now().saturating_add(ns_of(time).unwrap_or(0)));
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    time: *const timespec,
    left: *mut timespec,
) -> c_int {
    if !is_managed() {
        return real!(
            clock_nanosleep(clock, flags, time, left) as fn(clockid_t, c_int, *const timespec, *mut timespec) -> c_int
        );
    }
    let base = if flags & libc::TIMER_ABSTIME == 0 { scheduler::now() } else { 0 };
    sleep_until(base.saturating_add(ns_of(time).unwrap_or(0)));
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_yield() -> c_int {
    if !is_managed() {
        return real!(sched_yield() as fn() -> c_int);
    }
    scheduler::give_way();
    0
}

// ---- threads ----

/// Base of the numbers by which threads are joined. The system's own belong to threads that are used again as soon as
/// they have ended.
const NUMBERS: usize = 1 << 48;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    if !is_managed() {
        return real!(pthread_create(thread, attributes, start, argument)
            as fn(*mut pthread_t, *const pthread_attr_t, Start, *mut c_void) -> c_int);
    }
    match scheduler::admit(start, argument) {
        Ok(number) => {
            // SAFETY: pthread_create(3) wants a place for the thread.
            unsafe { thread.write((NUMBERS + number) as pthread_t) };
            scheduler::chance();
            0
        }
        Err(error) => error,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_join(thread: pthread_t, value: *mut *mut c_void) -> c_int {
    if !is_managed() {
        return real!(pthread_join(thread, value) as fn(pthread_t, *mut *mut c_void) -> c_int);
    }
    scheduler::join(thread as usize - NUMBERS);
    // SAFETY: null or a place for the value, which is null for every thread of Rust.
    if let Some(value) = unsafe { value.as_mut() } {
        *value = std::ptr::null_mut();
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_detach(thread: pthread_t) -> c_int {
    if !is_managed() {
        return real!(pthread_detach(thread) as fn(pthread_t) -> c_int);
    }
    // Who has ended is used again in any case.
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setname_np(thread: pthread_t, name: *const c_char) -> c_int {
    if !is_managed() {
        return real!(pthread_setname_np(thread, name) as fn(pthread_t, *const c_char) -> c_int);
    }
    // SAFETY: a name that ends with a zero byte, as the manual page wants it; threads of Rust name themselves.
    scheduler::call(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned());
    0
}

/// Place of its stack, as the system has told it when it was first asked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_getattr_np(thread: pthread_t, attributes: *mut pthread_attr_t) -> c_int {
    let ask = move || real!(pthread_getattr_np(thread, attributes) as fn(pthread_t, *mut pthread_attr_t) -> c_int);
    if !is_managed() {
        return ask();
    }
    // SAFETY: pthread_getattr_np(3) wants a place for attributes, and makes them.
    unsafe { context::own_stack(thread, attributes, ask) }
}

/// The system's only thread that runs has a stack for signals, or needs none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int {
    if !is_managed() {
        return real!(sigaltstack(new, old) as fn(*const libc::stack_t, *mut libc::stack_t) -> c_int);
    }
    if !old.is_null() {
        // SAFETY: sigaltstack(2) wants a place then; all zeros are a stack, and one that is not switched off.
        unsafe { old.write(std::mem::zeroed()) };
    }
    0
}

/// The number of the system's only thread that runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gettid() -> libc::pid_t {
    static KNOWN: AtomicI32 = AtomicI32::new(0);
    let known = KNOWN.load(Ordering::Relaxed);
    if known != 0 && is_managed() {
        return known;
    }
    let found = real!(gettid() as fn() -> libc::pid_t);
    if is_managed() {
        KNOWN.store(found, Ordering::Relaxed);
    }
    found
}

/// Calls by which a thread gives up rights: of the system's threads there is only one.
const RIGHTS: [c_long; 5] = [
    libc::SYS_prctl,
    libc::SYS_capset,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_restrict_self,
];

/// Futexes, and what else is called by number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    if number == libc::SYS_futex && is_managed() {
        // SAFETY: as futex(2) has it.
        return unsafe { futex(a as usize as *const u32, b as c_int, c, d as usize as *const timespec) };
    }
    if RIGHTS.contains(&number) && is_managed() {
        set_errno(libc::ENOSYS);
        return -1;
    }
    // SAFETY: the caller answers for the arguments.
    let result = unsafe { os::raw(number, [a, b, c, d, e, f]) };
    if number == libc::SYS_eventfd2 && result >= 0 && is_managed() {
        sockets::opened_event(result as c_int, a as u64, b as c_int & libc::EFD_NONBLOCK == 0);
    }
    if (-4095..0).contains(&result) {
        set_errno(i32::try_from(-result).unwrap_or(libc::EIO));
        return -1;
    }
    result
}

unsafe fn futex(word: *const u32, operation: c_int, value: c_long, time: *const timespec) -> c_long {
    let command = operation & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    match command {
        libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET => {
            let woken = scheduler::kick(word.addr(), usize::try_from(value).unwrap_or(usize::MAX));
            scheduler::chance();
            woken as c_long
        }
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => {
            // SAFETY: the word is alive as long as somebody waits for it.
            let found = unsafe { std::sync::atomic::AtomicU32::from_ptr(word.cast_mut()) };
            if found.load(std::sync::atomic::Ordering::SeqCst) != value as u32 {
                set_errno(libc::EAGAIN);
                return -1;
            }
            let base = if command == libc::FUTEX_WAIT { scheduler::now() } else { 0 };
            let until = ns_of(time).map(|time| base.saturating_add(time));
            let woken = scheduler::block(Wait { until, key: Some(word.addr()), ..Wait::default() });
            if woken == Woken::Late {
                set_errno(libc::ETIMEDOUT);
                return -1;
            }
            0
        }
        _ => super::super::die(&format!("futex operation {operation} is not simulated")),
    }
}

// ---- files ----

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstat64(fd: c_int, found: *mut c_void) -> c_int {
    if is_managed() {
        until_told(fd);
    }
    real!(fstat64(fd, found) as fn(c_int, *mut c_void) -> c_int)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstat(fd: c_int, found: *mut c_void) -> c_int {
    // SAFETY: the same function on 64 bits.
    unsafe { fstat64(fd, found) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lseek64(fd: c_int, offset: off_t, whence: c_int) -> off_t {
    if is_managed() {
        until_told(fd);
    }
    if let Some(found) = files::seek(fd, offset, whence) {
        return found;
    }
    real!(lseek64(fd, offset, whence) as fn(c_int, off_t, c_int) -> off_t)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t {
    // SAFETY: the same function on 64 bits.
    unsafe { lseek64(fd, offset, whence) }
}

// ---- chance ----

/// Numbers of the seed. Those by which a thread hashes, which are so many bytes once for all histories, are always the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(buffer: *mut c_void, len: size_t, flags: c_uint) -> ssize_t {
    const OF_HASHES: usize = 16;
    if !is_managed() {
        return real!(getrandom(buffer, len, flags) as fn(*mut c_void, size_t, c_uint) -> ssize_t);
    }
    // SAFETY: getrandom(2) wants so many bytes.
    unsafe { buffer.cast::<u8>().write_bytes(0x5a, len) };
    if len > OF_HASHES {
        // SAFETY: as above, and they were just written.
        scheduler::fill(unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), len) });
    }
    len as ssize_t
}
