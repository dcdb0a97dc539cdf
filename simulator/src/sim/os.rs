//! The system below the simulation: the C library's functions that this program has taken the names of, and the kernel.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// A function of the C library behind the one of the same name here.
pub struct Real(&'static CStr, AtomicPtr<c_void>);

impl Real {
    pub const fn new(name: &'static CStr) -> Self {
        Self(name, AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Its address, looked up once.
    pub fn get(&self) -> *mut c_void {
        let known = self.1.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name ends with a zero byte and lives for good; RTLD_NEXT looks behind this program.
        let found = unsafe { real_dlsym(libc::RTLD_NEXT, self.0.as_ptr()) };
        assert!(!found.is_null(), "the C library has no {:?}", self.0);
        self.1.store(found, Ordering::Relaxed);
        found
    }
}

/// Calls the C library's function of this name, as it is declared here.
macro_rules! real {
    ($name:ident($($value:expr),* $(,)?) as fn($($kind:ty),*) -> $result:ty) => {{
        static REAL: $crate::sim::os::Real = {
            const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(
                concat!(stringify!($name), "\0").as_bytes(),
            ) {
                Ok(name) => name,
                Err(_) => panic!(),
            };
            $crate::sim::os::Real::new(NAME)
        };
        // SAFETY: the C library's function of this name has this signature; the caller passes on what it was given, for
        // which whoever called it answers.
        unsafe {
            let function: extern "C" fn($($kind),*) -> $result = std::mem::transmute(REAL.get());
            function($($value),*)
        }
    }};
}
pub(crate) use real;

unsafe extern "C" {
    /// Of the GNU C library: dlsym(3) of a version.
    fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
}

/// The first version of the C library on this architecture.
#[cfg(target_arch = "x86_64")]
const FIRST: &CStr = c"GLIBC_2.2.5";
#[cfg(target_arch = "aarch64")]
const FIRST: &CStr = c"GLIBC_2.17";

/// The C library's dlsym(3), whose name this program has taken.
///
/// # Safety
/// As dlsym(3) wants its arguments to be.
pub unsafe fn real_dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let mut found = FOUND.load(Ordering::Relaxed);
    if found.is_null() {
        // SAFETY: both texts end with a zero byte and live for good; RTLD_NEXT looks behind this program.
        found = unsafe { dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), FIRST.as_ptr()) };
        assert!(!found.is_null(), "the C library has no dlsym");
        FOUND.store(found, Ordering::Relaxed);
    }
    // SAFETY: the C library's function of this name has this signature; the caller answers for the arguments.
    unsafe {
        let function: extern "C" fn(*mut c_void, *const c_char) -> *mut c_void = std::mem::transmute(found);
        function(handle, name)
    }
}

/// A system call as the kernel answers it: a negative error number on failure.
///
/// # Safety
/// As the call wants its arguments to be.
#[cfg(target_arch = "x86_64")]
pub unsafe fn raw(number: c_long, args: [c_long; 6]) -> c_long {
    let result: c_long;
    // SAFETY: the registers are those of the kernel's calling convention, and what it overwrites is told; the caller
    // answers for the arguments.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// The same on ARM.
///
/// # Safety
/// As the call wants its arguments to be.
#[cfg(target_arch = "aarch64")]
pub unsafe fn raw(number: c_long, args: [c_long; 6]) -> c_long {
    let result: c_long;
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] => result,
            in("x1") args[1],
            in("x2") args[2],
            in("x3") args[3],
            in("x4") args[4],
            in("x5") args[5],
            options(nostack),
        );
    }
    result
}

/// Waits for a futex, or wakes one who does, in the system.
pub fn futex(word: &AtomicU32, operation: c_int, value: c_long) {
    let args = [word.as_ptr().addr().cast_signed() as c_long, c_long::from(operation), value, 0, 0, 0];
    // SAFETY: the word is alive for the call; the time is null, which both operations allow.
    unsafe { raw(libc::SYS_futex, args) };
}

pub fn set_errno(number: c_int) {
    // SAFETY: the C library gives each thread a place of its own, which lives as long as the thread.
    unsafe { *libc::__errno_location() = number };
}

pub fn errno() -> c_int {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}

/// Ends the process by a signal after so many seconds on a real clock, unless it is called again.
pub fn ring_after(seconds: u32) {
    // SAFETY: it has no preconditions.
    unsafe { libc::alarm(seconds) };
}

/// Lets the allocator keep what is freed, for the next history, in one heap for all threads: one of them runs at a time.
pub fn keep_memory() {
    const MOST: c_int = 32 << 20;
    for (parameter, value) in
        [(libc::M_ARENA_MAX, 1), (libc::M_MMAP_THRESHOLD, MOST), (libc::M_TRIM_THRESHOLD, c_int::MAX)]
    {
        // SAFETY: it has no preconditions; a value that it does not take changes nothing.
        unsafe { libc::mallopt(parameter, value) };
    }
}
