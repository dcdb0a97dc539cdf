//! Stacks of threads that handle keys.
//!
//! ```text
//! on_secret_thread  one piece of work on a thread with a stack of its own, which is wiped and unmapped after it: from the
//!                   passphrase to the volume key
//! on_secret_stack   the same on the caller's thread: from the volume key to the cipher
//! SecretThread      the same for a thread that somebody else runs (Argon2's lanes)
//! StackGuard        a thread that uses ciphers: compilers put round keys on its stack when registers
//!                   run out, so it is locked while the thread lives, and wiped when it ends
//! ```

use std::ffi::c_void;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{NonNull, null_mut};

use corosensei::stack::StackPointer;
use corosensei::stack::valgrind::ValgrindStackRegistration;
use rustix::mm::MprotectFlags;
use zeroize::Zeroize;

use super::registers::clear_registers;
use super::{guard_when_used, map};

/// Bytes of a stack: what the standard library gives a thread.
const STACK: usize = 2 << 20;
/// Bytes that a guarded thread's ciphers may use, from where its guard was made: many times what
/// they do.
const USED: usize = 64 * 1024;
/// Bytes left alone between the wiping function's own variables and what it wipes.
const RED_ZONE: usize = 1024;

/// A stack in memory of its own; wiped and unmapped when dropped.
struct Stack {
    start: NonNull<u8>,
    /// The lowest page of the mapping: nobody may touch it.
    fence: usize,
    len: usize,
    /// Pages are locked from their first use on, so those that are not there were never used.
    is_locked: bool,
}

impl Stack {
    fn new() -> io::Result<Self> {
        let fence = crate::page_size();
        let len = STACK + fence;
        let mut stack = Self { start: map(len)?, fence, len, is_locked: false };
        // SAFETY: the first page of the mapping, which nothing has touched or will.
        unsafe {
            rustix::mm::mprotect(stack.start.as_ptr().cast(), fence, MprotectFlags::empty())?;
        }
        // Not locked where RLIMIT_MEMLOCK has no room for it: it is needed for a moment only.
        // SAFETY: the rest of the mapping.
        stack.is_locked = unsafe { guard_when_used(stack.low().as_ptr().cast(), STACK) };
        Ok(stack)
    }

    /// For each page, lowest first, whether anything may have been written to it.
    fn used(&self) -> Vec<bool> {
        let pages = STACK / crate::page_size();
        let mut there = vec![0_u8; pages];
        // SAFETY: the pages are mapped, whole, and this stack's own; the kernel writes a byte for each of them, for which
        // the vector has room.
        let known =
            self.is_locked && unsafe { libc::mincore(self.low().as_ptr().cast(), STACK, there.as_mut_ptr()) } == 0;
        there.iter().map(|page| !known || page & 1 == 1).collect()
    }

    /// The lowest byte that can be used.
    fn low(&self) -> NonNull<u8> {
        // SAFETY: inside the mapping.
        unsafe { self.start.add(self.fence) }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        let page = crate::page_size();
        for (number, _) in self.used().iter().enumerate().filter(|(_, used)| **used) {
            // SAFETY: nothing runs on it any more: whoever started a thread has joined it, and a call has returned. The page
            // lies inside the mapping, which is this stack's own.
            let page = unsafe {
                let start = self.low().add(number * page).cast::<MaybeUninit<u8>>();
                std::slice::from_raw_parts_mut(start.as_ptr(), page)
            };
            page.zeroize();
        }
        // SAFETY: the whole mapping, of which nothing is used after.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

// SAFETY: `limit` and `base` are the ends of a mapping that lives as long as this and that nothing else uses; both are ends of
// pages. Its lowest page is a fence that nobody may touch, and above it are `STACK` bytes.
unsafe impl corosensei::stack::Stack for Stack {
    fn base(&self) -> StackPointer {
        self.limit().saturating_add(self.len)
    }

    fn limit(&self) -> StackPointer {
        self.start.addr()
    }
}

/// Why there is no thread with a stack of its own.
#[derive(Debug)]
pub enum NotStarted {
    /// There is no memory for the stack.
    Memory(io::Error),
    /// A limit of threads is reached.
    Thread(io::Error),
}

impl From<NotStarted> for io::Error {
    fn from(why: NotStarted) -> Self {
        match why {
            NotStarted::Memory(error) | NotStarted::Thread(error) => error,
        }
    }
}

/// Function that a POSIX thread begins with.
type ThreadEntry = extern "C" fn(*mut c_void) -> *mut c_void;

/// A thread on a [`Stack`]. Joined before the stack goes.
struct StackThread {
    thread: libc::pthread_t,
    _stack: Stack,
}

impl StackThread {
    /// # Safety
    /// `entry` may be called once with `argument` on another thread, and does not unwind.
    unsafe fn start(entry: ThreadEntry, argument: *mut c_void) -> Result<Self, NotStarted> {
        let stack = Stack::new().map_err(NotStarted::Memory)?;
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
        // SAFETY: `attributes` is initialised before it is used and destroyed after. The stack is
        // mapped, is used by this thread alone and, by `Drop`, outlives it. The caller answers for
        // `entry`.
        let code = unsafe {
            libc::pthread_attr_init(attributes.as_mut_ptr());
            let low = stack.low().as_ptr().cast();
            let mut code = libc::pthread_attr_setstack(attributes.as_mut_ptr(), low, STACK);
            if code == 0 {
                let attributes = attributes.as_ptr();
                code = libc::pthread_create(thread.as_mut_ptr(), attributes, entry, argument);
            }
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            code
        };
        match code {
            0 => Ok(Self {
                // SAFETY: written by `pthread_create`, which succeeded.
                thread: unsafe { thread.assume_init() },
                _stack: stack,
            }),
            code => Err(NotStarted::Thread(io::Error::from_raw_os_error(code))),
        }
    }
}

impl Drop for StackThread {
    fn drop(&mut self) {
        // SAFETY: the thread was started here, is not detached, and is joined nowhere else. Fields
        // are dropped after this, so the stack is wiped when nothing runs on it.
        unsafe { libc::pthread_join(self.thread, null_mut()) };
    }
}

/// Does `work` on a thread with a stack of its own, which is wiped and unmapped afterwards, and
/// returns what it returns; waits for it. Whatever of a key the work has put on its stack is gone then,
/// copies that compilers and libraries made included. What it returns is moved to the caller's stack, so
/// secrets in it must be in key memory.
///
/// The stack is locked where `RLIMIT_MEMLOCK` has room for its 2 MiB. The work may call code of others, such as an
/// interpreter's.
///
/// # Errors
/// Where there is no memory or no thread to be had.
pub fn on_secret_thread<R: Send>(work: impl FnOnce() -> R + Send) -> Result<R, NotStarted> {
    struct StackJob<F, R> {
        work: Option<F>,
        result: Option<std::thread::Result<R>>,
    }
    extern "C" fn run<F: FnOnce() -> R, R>(job: *mut c_void) -> *mut c_void {
        // SAFETY: the job of the function around this one, which waits and does not look at it.
        let job = unsafe { &mut *job.cast::<StackJob<F, R>>() };
        if let Some(work) = job.work.take() {
            job.result = Some(catch_unwind(AssertUnwindSafe(work)));
        }
        null_mut()
    }
    fn entry<F: FnOnce() -> R, R>(_: &StackJob<F, R>) -> ThreadEntry {
        run::<F, R>
    }
    let mut job = StackJob { work: Some(work), result: None };
    let entry = entry(&job);
    // SAFETY: `job` is of the type that `entry` expects, may be used on another thread since both the
    // work and its result are `Send`, and is not touched until the thread is joined, which `drop`
    // does. Unwinding is caught.
    drop(unsafe { StackThread::start(entry, (&raw mut job).cast()) }?);
    match job.result {
        Some(Ok(result)) => Ok(result),
        Some(Err(panic)) => resume_unwind(panic),
        None => Err(NotStarted::Thread(io::Error::other("the thread for keys did not run"))),
    }
}

/// The same on the caller's thread, which waits for no other. What `work` left in registers is wiped as well, and signals wait
/// for its end, since their frames hold all registers. It must call no code of others, panic hooks excepted: an interpreter that
/// finds itself on a stack it does not know believes that its own has overflowed.
///
/// # Errors
/// Where there is no memory.
pub fn on_secret_stack<R>(work: impl FnOnce() -> R) -> io::Result<R> {
    let _held = HeldSignals::hold();
    let mut stack = Stack::new()?;
    let for_valgrind = ValgrindStackRegistration::new(stack.low().as_ptr(), STACK);
    let result = corosensei::on_stack(&mut stack, || {
        let result = catch_unwind(AssertUnwindSafe(work));
        clear_registers();
        result
    });
    drop(for_valgrind);
    drop(stack);
    result.map_or_else(|panic| resume_unwind(panic), Ok)
}

/// Signals that wait until this is dropped: all but those that tell of a fault of this thread.
struct HeldSignals(libc::sigset_t);

impl HeldSignals {
    fn hold() -> Self {
        let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];
        let (mut held, mut before) = (MaybeUninit::uninit(), MaybeUninit::zeroed());
        // SAFETY: the first call fills `held`, which the others change and read; the last one writes `before`, which no bytes
        // are invalid for. They do nothing but that, and set this thread's mask.
        unsafe {
            libc::sigfillset(held.as_mut_ptr());
            for fault in faults {
                libc::sigdelset(held.as_mut_ptr(), fault);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, held.as_ptr(), before.as_mut_ptr());
            Self(before.assume_init())
        }
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        // SAFETY: sets this thread's mask to what it was; nothing is written.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, null_mut()) };
    }
}

/// A thread on a stack of its own, which is wiped and unmapped when this is dropped; dropping waits
/// for the thread to end.
pub struct SecretThread(#[allow(dead_code, reason = "dropping it joins")] StackThread);

impl SecretThread {
    /// Starts `work`. A panic in it ends the thread, quietly.
    ///
    /// # Errors
    /// Where there is no memory or no thread to be had.
    pub fn spawn(work: impl FnOnce() + Send + 'static) -> Result<Self, NotStarted> {
        type Work = Box<dyn FnOnce() + Send>;
        extern "C" fn run(work: *mut c_void) -> *mut c_void {
            // SAFETY: made by `into_raw` below, of this type, and taken back only here.
            let work = unsafe { Box::from_raw(work.cast::<Work>()) };
            let _ = catch_unwind(AssertUnwindSafe(*work));
            null_mut()
        }
        let work: Box<Work> = Box::new(Box::new(work));
        let argument = Box::into_raw(work);
        // SAFETY: `run` takes the work, which is `Send` and borrows nothing, and catches its panics.
        match unsafe { StackThread::start(run, argument.cast()) } {
            Ok(running) => Ok(Self(running)),
            Err(error) => {
                // SAFETY: no thread was started, so the work is still ours.
                drop(unsafe { Box::from_raw(argument) });
                Err(error)
            }
        }
    }
}

/// Bytes of stack for a thread that has a [`StackGuard`], whatever the environment says.
pub const GUARDED_STACK: usize = 2 << 20;

/// Guards what the calling thread puts on its stack from here on: locked and left out of core dumps
/// while this lives, wiped when it is dropped. To be made at a thread's start, not on the main thread.
///
/// Locking is as far as `RLIMIT_MEMLOCK` goes: a stack holds pieces of keys for moments only.
pub struct StackGuard {
    /// The guarded pages.
    low: usize,
    len: usize,
    /// Bound to the thread that made it.
    _thread: PhantomData<*const ()>,
}

impl StackGuard {
    /// Guards the stack below the caller.
    #[must_use]
    #[inline(never)]
    pub fn new() -> Self {
        let here = 0_u8;
        let page = crate::page_size();
        let top = (&raw const here).addr().next_multiple_of(page);
        // Somebody may have given the thread a smaller one; of one that is not known nothing is guarded.
        let bottom = stack_bottom().map_or(top, |bottom| bottom.next_multiple_of(page));
        let low = (top - USED).max(bottom).min(top);
        let len = top - low;
        // SAFETY: whole pages of the calling thread's own stack, between its bottom and here.
        let _ = unsafe { guard_when_used(std::ptr::with_exposed_provenance_mut(low), len) };
        Self { low, len, _thread: PhantomData }
    }
}

/// The lowest address of the calling thread's stack, its guard page aside.
fn stack_bottom() -> Option<usize> {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: the thread is the calling one, which runs; the attributes are written by this call, and
    // read and destroyed only where it has succeeded.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let (mut bottom, mut size, mut fence) = (std::ptr::null_mut(), 0, 0);
        let found = libc::pthread_attr_getstack(attributes.as_ptr(), &mut bottom, &mut size);
        let fenced = libc::pthread_attr_getguardsize(attributes.as_ptr(), &mut fence);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        (found == 0 && fenced == 0).then(|| bottom.addr() + fence)
    }
}

impl Default for StackGuard {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for StackGuard {
    #[inline(never)]
    fn drop(&mut self) {
        burn(self.low);
        burn_deeper(self.low);
        // SAFETY: as in `new`.
        unsafe {
            let start = std::ptr::with_exposed_provenance_mut(self.low);
            let _ = rustix::mm::munlock(start, self.len);
        }
    }
}

/// The same from farther down, so that what the first call had to leave alone is wiped too; no farther than that, and a
/// few times as far as the first call may have gone by itself.
#[inline(never)]
fn burn_deeper(low: usize) {
    let mut near = [0_u8; 3 * RED_ZONE];
    near.zeroize();
    burn(low.max((&raw const near).addr().saturating_sub(16 * RED_ZONE)));
    std::hint::black_box(&near);
}

/// Wipes the stack below this call down to `low`, a [`RED_ZONE`] below its own variables excepted.
#[inline(never)]
fn burn(low: usize) {
    // What lies near is wiped by being used for something else.
    let mut near = [0_u8; 4 * RED_ZONE];
    near.zeroize();
    let mut at = (&raw const near).addr().wrapping_sub(RED_ZONE) & !7;
    while at > low {
        at -= 8;
        // SAFETY: mapped memory of this thread's own stack (`StackGuard::new`), below everything that
        // is in use: this function calls nothing that needs more than `RED_ZONE` bytes. No Rust object
        // lives there. Volatile, so that the stores are made.
        unsafe { std::ptr::with_exposed_provenance_mut::<u64>(at).write_volatile(0) };
    }
    std::hint::black_box(&near);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Puts a pattern on the stack and says where.
    #[inline(never)]
    fn leave_a_key(depth: usize) -> usize {
        let mut key = [0xa5_u8; 2048];
        std::hint::black_box(&mut key);
        match depth {
            0 => (&raw const key).addr(),
            _ => leave_a_key(depth - 1),
        }
    }

    #[test]
    fn work_borrows_and_returns_as_if_it_were_done_here() {
        let word = "borrowed".to_owned();
        assert_eq!(on_secret_stack(|| word.len()).unwrap(), word.len());
        assert_eq!(on_secret_thread(|| word.len()).unwrap(), word.len());
    }

    #[test]
    fn work_is_done_on_another_stack_that_is_gone_afterwards() {
        no_stack_has(on_secret_stack(|| leave_a_key(10)).unwrap());
        no_stack_has(on_secret_thread(|| leave_a_key(10)).unwrap());
    }

    fn no_stack_has(place: usize) {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let is_mapped = maps.lines().any(|line| {
            let (start, rest) = line.split_once('-').unwrap();
            let hex = |text: &str| usize::from_str_radix(text, 16).unwrap();
            let range = hex(start)..hex(rest.split_once(' ').unwrap().0);
            // Others may have mapped something there since, but no stack.
            range.contains(&place) && range.len() >= STACK
        });
        assert!(!is_mapped, "{place:x} in {maps}");
    }

    #[test]
    fn pages_that_were_never_used_are_not_wiped_and_all_others_are() {
        let stack = Stack::new().unwrap();
        let (page, low) = (crate::page_size(), stack.low());
        for number in [3, 7] {
            // SAFETY: inside the mapping, which nothing else uses.
            unsafe { low.add(number * page + 5).as_ptr().write_volatile(0xa5) };
        }
        let used = stack.used();
        assert!(used[3] && used[7]);
        // Where it cannot be locked, all are.
        let count = used.iter().filter(|used| **used).count();
        assert!(if stack.is_locked { count < used.len() / 2 } else { count == used.len() }, "{count}");
    }

    #[test]
    fn panics_of_the_work_are_panics_of_the_caller() {
        let here = catch_unwind(|| on_secret_stack(|| panic!("of the work")).map_err(drop));
        let elsewhere = catch_unwind(|| on_secret_thread(|| panic!("of the work")).map_err(drop));
        for caught in [here, elsewhere] {
            let message = caught.err().and_then(|panic| panic.downcast::<&str>().ok());
            assert_eq!(message.as_deref(), Some(&"of the work"));
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn registers_are_wiped_before_the_caller_goes_on() {
        use std::arch::asm;
        let pattern = 0xa5a5_a5a5_a5a5_a5a5_u64;
        let look = || {
            let (vector, word): (u64, u64);
            // SAFETY: reads registers.
            unsafe {
                asm!("movq {0}, xmm15", "mov {1}, r10", out(reg) vector, out(reg) word, options(nomem, nostack));
            };
            [vector, word]
        };
        let leave = || {
            // SAFETY: writes registers that it declares.
            unsafe {
                asm!("movq xmm15, {0}", "mov r10, {0}", in(reg) pattern, out("xmm15") _, out("r10") _, options(nomem, nostack));
            }
            look()
        };
        assert_eq!(on_secret_stack(leave).unwrap(), [pattern; 2]);
        let left = on_secret_stack(leave).map(|_| look());
        assert!(left.unwrap().iter().all(|&left| left != pattern));
        let panics = catch_unwind(|| on_secret_stack(|| panic!("{}", leave()[0])).map_err(drop));
        assert!(panics.is_err() && look()[0] != pattern);
    }

    #[test]
    fn signals_wait_until_the_stack_is_gone() {
        let blocked = || {
            let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
            // SAFETY: the mask of this thread is written to `mask`, and read from there.
            unsafe {
                libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr());
                [libc::SIGUSR1, libc::SIGSEGV].map(|signal| libc::sigismember(mask.as_ptr(), signal) == 1)
            }
        };
        assert_eq!(on_secret_stack(blocked).unwrap(), [true, false]);
        assert_eq!(blocked(), [false, false]);
    }

    #[test]
    fn a_spawned_thread_has_ended_when_it_is_dropped() {
        let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let there = std::sync::Arc::clone(&done);
        let thread = SecretThread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(10));
            there.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        drop(thread.unwrap());
        assert!(done.load(std::sync::atomic::Ordering::Relaxed));
    }

    #[test]
    fn a_guarded_stack_is_wiped_when_the_guard_is_dropped() {
        let thread = std::thread::spawn(|| {
            let guard = StackGuard::new();
            let place = leave_a_key(10);
            // SAFETY: memory of this thread's stack, below all that is in use.
            let look = || unsafe { std::ptr::with_exposed_provenance::<u64>((place + 64) & !7).read_volatile() };
            let before = look();
            drop(guard);
            (before, look())
        });
        assert_eq!(thread.join().unwrap(), (0xa5a5_a5a5_a5a5_a5a5, 0));
    }
}
