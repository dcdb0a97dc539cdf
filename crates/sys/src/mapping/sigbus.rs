//! When a page of a mapping is gone: SIGBUS, caught for our own mappings only.
//!
//! ```text
//! a copy touches a lost page ─► SIGBUS on this thread ─► handler: is the address in a guarded range?
//!                                                        yes: zeros in the page's place, range is lost
//! the copy goes on, sees that the range is lost, fails ◄──────┘
//!                                                        no: whoever handled SIGBUS before
//! ```
//!
//! systemd's journal and libwayland read files that others can truncate in the same way. The handler does only what is
//! async-signal-safe: atomic loads and stores in a fixed table, and one system call. It is installed with the first
//! mapping and stays.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};

use super::Lost;

/// Mappings at a time.
const RANGES: usize = 4096;
const FREE: usize = 0;
const CLAIMED: usize = 1;
/// Pages of a DAX device come in this size, or the base size.
const DAX_PAGE: usize = 2 << 20;

struct GuardedRange {
    /// First address, or FREE or CLAIMED, which are no addresses.
    start: AtomicUsize,
    end: AtomicUsize,
    /// Of which size its pages may be, other than the base size.
    page: AtomicUsize,
    lost: AtomicBool,
}

/// Bounds of a range.
struct Bounds {
    start: usize,
    end: usize,
    page: usize,
}

impl GuardedRange {
    /// Its bounds, if there is a mapping. Another thread may be giving the place to another mapping meanwhile.
    fn bounds(&self) -> Option<Bounds> {
        let start = self.start.load(Ordering::Acquire);
        let end = self.end.load(Ordering::Acquire);
        let page = self.page.load(Ordering::Acquire);
        let is_still_there = self.start.load(Ordering::Relaxed) == start;
        (start > CLAIMED && is_still_there).then_some(Bounds { start, end, page })
    }
}

static TABLE: [GuardedRange; RANGES] = [const {
    GuardedRange {
        start: AtomicUsize::new(FREE),
        end: AtomicUsize::new(0),
        page: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
    }
}; RANGES];

/// Handler of SIGBUS before ours, and the size of a page: the handler can not ask.
static BEFORE: OnceLock<(libc::sigaction, usize)> = OnceLock::new();

/// Watches over one mapping.
pub struct MappingGuard(&'static GuardedRange);

impl MappingGuard {
    /// Watches over `len` bytes from `start`, in pages of the base size or of `page`.
    pub fn new(start: usize, len: usize, page: usize) -> io::Result<Self> {
        install()?;
        let claim = |range: &&GuardedRange| {
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            let claimed = range.start.compare_exchange(FREE, CLAIMED, order.0, order.1);
            claimed.is_ok()
        };
        let range = TABLE.iter().find(claim).ok_or(io::ErrorKind::OutOfMemory)?;
        range.lost.store(false, Ordering::Relaxed);
        // Whoever sees one of these sees that the range was claimed (`GuardedRange::bounds`).
        let end = start.saturating_add(len);
        range.end.store(end, Ordering::Release);
        range.page.store(page, Ordering::Release);
        range.start.store(start, Ordering::Release);
        Ok(Self(range))
    }

    /// Checks that the range is whole. A fault of this thread before this call is seen.
    pub fn check(&self) -> Result<(), Lost> {
        // The handler ran on this thread, between two of its instructions.
        compiler_fence(Ordering::SeqCst);
        if self.0.lost.load(Ordering::Acquire) { Err(Lost) } else { Ok(()) }
    }

    /// Marks the range as lost, as if a page were.
    pub fn lose(&self) {
        self.0.lost.store(true, Ordering::SeqCst);
    }

    /// Stops watching.
    pub fn release(&self) {
        self.0.start.store(FREE, Ordering::Release);
    }
}

fn install() -> io::Result<()> {
    static INSTALLING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one_at_a_time = INSTALLING.lock();
    if BEFORE.get().is_some() {
        return Ok(());
    }
    // SAFETY: `sigaction` is a plain C structure for which all-zero bytes are valid.
    let (mut before, mut ours): (libc::sigaction, libc::sigaction) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: a null new action only asks; the pointer is to a live structure.
    if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Before the handler can run.
    let _ = BEFORE.set((before, crate::page_size()));
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_sigbus;
    ours.sa_sigaction = handler as libc::sighandler_t;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler has the signature that SA_SIGINFO asks for, touches only statics and
    // lost pages of guarded mappings, and keeps errno; the pointer is to a live structure.
    match unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo. A code above zero means that the
    // kernel itself raised the signal, and then the address is there.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code > 0 && replace_page(address) {
        return;
    }
    hand_on(signal, info, context);
}

/// Puts zeros in the place of the lost page at `address`, if that is in a guarded range.
fn replace_page(address: usize) -> bool {
    let inside = |range: &'static GuardedRange| {
        let bounds = range.bounds()?;
        let is_inside = (bounds.start..bounds.end).contains(&address);
        is_inside.then_some((range, bounds))
    };
    let (Some((range, bounds)), Some((_, page))) = (TABLE.iter().find_map(inside), BEFORE.get()) else {
        return false;
    };
    // Before the copy goes on.
    range.lost.store(true, Ordering::SeqCst);
    let start = bounds.start;
    let end = bounds.end.next_multiple_of(*page);
    // SAFETY: glibc's and musl's errno is a thread-local integer.
    let errno = unsafe { *libc::__errno_location() };
    // The smallest that the mapping can be cut by.
    let replaced = [*page, bounds.page, DAX_PAGE].into_iter().any(|size| {
        let first = (address - address % size).max(start);
        let last = (address - address % size + size).min(end);
        // SAFETY: whole pages of a guarded mapping of ours, whose owner only copies bytes in and
        // out by address and is told that they are lost. mmap is a bare system call.
        let mapped = unsafe {
            libc::mmap(
                first as *mut libc::c_void,
                last - first,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        mapped != libc::MAP_FAILED
    });
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    replaced
}

/// Not ours: does what would have happened without us.
fn hand_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let action = BEFORE.get().map(|(action, _)| action);
    match action {
        Some(action) if action.sa_sigaction > libc::SIG_IGN => {
            if action.sa_flags & libc::SA_SIGINFO != 0 {
                // SAFETY: whoever installed it with SA_SIGINFO gave a function of this signature.
                let handler = unsafe {
                    std::mem::transmute::<
                        libc::sighandler_t,
                        extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void),
                    >(action.sa_sigaction)
                };
                handler(signal, info, context);
            } else {
                // SAFETY: whoever installed it without SA_SIGINFO gave a function of this one.
                let handler = unsafe {
                    std::mem::transmute::<libc::sighandler_t, extern "C" fn(libc::c_int)>(action.sa_sigaction)
                };
                handler(signal);
            }
        }
        // The instruction runs again and ends the process, with a core, as it should.
        // SAFETY: `signal` is async-signal-safe and SIG_DFL a valid action.
        _ => unsafe {
            libc::signal(signal, libc::SIG_DFL);
        },
    }
}
