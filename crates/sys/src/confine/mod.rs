//! Giving up rights, on every thread of the process.
//!
//! Linux keeps `no_new_privs`, capabilities and the Landlock domain per thread. A thread that was
//! started earlier keeps what it had, and whoever controls one thread of a process controls all of its
//! memory. So existing threads must be reached too:
//!
//! ```text
//! this thread   applies the restriction, then for each other thread: names it, signals it, waits
//! that thread   handler: is it me? ─► one or a few system calls ─► result
//! ```
//!
//! C libraries apply `setuid` to all threads in the same way. New threads inherit.

mod attempts;
mod foreign;
mod landlock;

pub use attempts::{Attempt, attempts};
pub use foreign::{confined_threads_have_capabilities, on_confined_thread};
pub use landlock::Landlock;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// How long a thread may take to run the handler.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How long to wait for the answer before a look at what keeps the thread from it.
const PAUSE: Duration = Duration::from_micros(200);
/// No result yet; no error number.
const PENDING: i32 = i32::MIN;
/// More capabilities than the kernel's 64-bit sets can hold.
const CAPABILITIES: libc::c_ulong = 64;
/// From linux/capability.h: two words for each set.
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// Something that a thread can give up for good.
#[derive(Clone, Copy, Debug)]
pub enum Restriction<'fd> {
    /// `execve` gives no rights (`PR_SET_NO_NEW_PRIVS`).
    NoNewPrivileges,
    /// Confined by this Landlock ruleset. Needs `NoNewPrivileges` first.
    Landlock(BorrowedFd<'fd>),
    /// No program started from here gets capabilities. Needs `CAP_SETPCAP`.
    EmptyBoundingSet,
    /// Effective, permitted, inheritable and ambient capabilities: none.
    NoCapabilities,
}

/// The version of Landlock that the kernel offers.
///
/// Errors: `Unsupported` where it has none or it is switched off; others where somebody forbids
/// to ask.
pub fn landlock_version() -> io::Result<i64> {
    const VERSION: libc::c_ulong = 1;
    // SAFETY: with this flag the kernel reads no memory: address and size must be null.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0usize, VERSION) };
    match version {
        0.. => Ok(version),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The order to the thread that is signalled; a handler can be given nothing else.
struct ConfineOrder {
    target: AtomicI32,
    what: AtomicI32,
    fd: AtomicI32,
    result: AtomicI32,
}

static ORDER: ConfineOrder = ConfineOrder {
    target: AtomicI32::new(0),
    what: AtomicI32::new(0),
    fd: AtomicI32::new(-1),
    result: AtomicI32::new(PENDING),
};

impl Restriction<'_> {
    /// Applies it to the calling thread, and so to all that it will start.
    pub fn apply_here(self) -> io::Result<()> {
        let (what, fd) = self.encode();
        match apply(what, fd) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Applies it to all other threads of the process, which must not block the highest real-time
    /// signal, unless they were born under restrictions ([`on_confined_thread`]). That signal is ignored from then on.
    ///
    /// Errors: where `/proc` is not mounted, where somebody else handles the signal, where a
    /// thread does not answer, and where one may not give the right up. Some threads may then have
    /// given it up and others not.
    pub fn apply_to_others(self) -> io::Result<()> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _turn = crate::lock(&ONE_AT_A_TIME);
        set_handler(Some(on_signal))?;
        let result = self.signal_others();
        ORDER.target.store(0, Ordering::Release);
        // What is still pending for a thread that blocks it goes away with this.
        set_handler(None).and(result)
    }

    fn signal_others(self) -> io::Result<()> {
        let here = thread_id();
        let mut done = vec![here];
        loop {
            let found = threads()?;
            let new: Vec<_> = found.into_iter().filter(|id| !done.contains(id)).collect();
            if new.is_empty() {
                return Ok(());
            }
            // A thread may start another before its turn: look again afterwards.
            for id in new {
                self.signal(id)?;
                done.push(id);
            }
        }
    }

    fn signal(self, thread: i32) -> io::Result<()> {
        let (what, fd) = self.encode();
        ORDER.what.store(what, Ordering::Relaxed);
        ORDER.fd.store(fd, Ordering::Relaxed);
        ORDER.result.store(PENDING, Ordering::Relaxed);
        ORDER.target.store(thread, Ordering::Release);
        let deadline = Instant::now() + ANSWER_MAX;
        let mut is_there = send(thread, signal_number());
        while is_there {
            match ORDER.result.load(Ordering::Acquire) {
                0 => return Ok(()),
                PENDING if is_answered_within(PAUSE) => continue,
                PENDING => match foreign::Foreign::find(thread) {
                    Some(foreign) if foreign.is_settled(self) => return Ok(()),
                    Some(_) => return Err(no_signals(thread)),
                    None if Instant::now() > deadline => return Err(no_signals(thread)),
                    None => {}
                },
                errno => return Err(io::Error::from_raw_os_error(errno)),
            }
            is_there = send(thread, 0);
        }
        // It has ended.
        Ok(())
    }

    fn encode(self) -> (i32, i32) {
        match self {
            Self::NoNewPrivileges => (0, -1),
            Self::Landlock(fd) => (1, fd.as_raw_fd()),
            Self::EmptyBoundingSet => (2, -1),
            Self::NoCapabilities => (3, -1),
        }
    }
}

fn no_signals(thread: i32) -> io::Error {
    let text = format!("thread {thread} does not take signals");
    io::Error::new(io::ErrorKind::TimedOut, text)
}

/// Runs in signal handlers too: system calls only, no memory but the stack. The error number, or 0.
fn apply(what: i32, fd: i32) -> i32 {
    let prctl = |option: libc::c_int, first: libc::c_ulong, second: libc::c_ulong| {
        let none: libc::c_ulong = 0;
        // SAFETY: the options used below take no pointers, all five arguments are words, and
        // each changes nothing but rights of the calling thread.
        unsafe { libc::syscall(libc::SYS_prctl, option, first, second, none, none) }
    };
    let result = match what {
        0 => prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0),
        // SAFETY: takes a descriptor and flags, no pointer; it fails for one that is no ruleset.
        1 => unsafe { libc::syscall(libc::SYS_landlock_restrict_self, fd, 0) },
        2 => {
            for capability in 0..CAPABILITIES {
                if prctl(libc::PR_CAPBSET_DROP, capability, 0) == 0 {
                    continue;
                }
                return match (last_errno(), capability) {
                    // Beyond the last that this kernel knows.
                    (libc::EINVAL, 1..) => 0,
                    (errno, _) => errno,
                };
            }
            0
        }
        _ => {
            let clear_all = libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong;
            if prctl(libc::PR_CAP_AMBIENT, clear_all, 0) != 0 {
                return last_errno();
            }
            let header = [CAPABILITY_VERSION_3, 0];
            let nothing = [0u32; 6];
            // SAFETY: version 3 reads a header of two words (the second, 0, is the calling thread)
            // and two times three words of sets; both arrays live until the end of the call.
            unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), nothing.as_ptr()) }
        }
    };
    match result {
        0 => 0,
        _ => last_errno(),
    }
}

extern "C" fn on_signal(_signal: libc::c_int) {
    // SAFETY: the location of this thread's errno is valid for as long as the thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above; nobody else writes to this thread's errno.
    let before = unsafe { *errno };
    if ORDER.target.load(Ordering::Acquire) == thread_id() {
        let (what, fd) = (&ORDER.what, &ORDER.fd);
        let result = apply(what.load(Ordering::Relaxed), fd.load(Ordering::Relaxed));
        // Once: a signal that comes late finds nothing to do.
        ORDER.target.store(0, Ordering::Relaxed);
        ORDER.result.store(result, Ordering::Release);
        // SAFETY: the address is that of a static; a wake-up reads and writes nothing there.
        unsafe {
            libc::syscall(libc::SYS_futex, ORDER.result.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1)
        };
    }
    // SAFETY: as above.
    unsafe { *errno = before };
}

/// Waits for the answer of the thread that was signalled. `false` after `pause` without one; it may have come just then.
fn is_answered_within(pause: Duration) -> bool {
    let pause = libc::timespec { tv_sec: 0, tv_nsec: pause.subsec_nanos().into() };
    let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the address is that of a static word, and the time lives until the end of the call.
    unsafe { libc::syscall(libc::SYS_futex, ORDER.result.as_ptr(), wait, PENDING, &raw const pause) };
    ORDER.result.load(Ordering::Acquire) != PENDING
}

/// Installs a handler for our signal; `None` ignores it from now on.
fn set_handler(handler: Option<extern "C" fn(libc::c_int)>) -> io::Result<()> {
    // SAFETY: `sigaction` is a plain C structure for which all-zero bytes are valid.
    let (mut before, mut ours): (libc::sigaction, libc::sigaction) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: a null new action only asks; the pointer is to a live structure.
    if unsafe { libc::sigaction(signal_number(), std::ptr::null(), &raw mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let ours_already = on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
    if ![libc::SIG_DFL, libc::SIG_IGN, ours_already].contains(&before.sa_sigaction) {
        return Err(io::Error::other("somebody else uses the signal for this"));
    }
    ours.sa_sigaction = handler.map_or(libc::SIG_IGN, |handler| handler as libc::sighandler_t);
    // Not on the threads' signal stacks: Rust's have room for one frame with AVX-512 state, and not
    // for another signal's inside it. For the same reason no other signal comes meanwhile.
    ours.sa_flags = libc::SA_RESTART;
    // SAFETY: the pointer is to the live mask of the structure that is being filled.
    unsafe { libc::sigfillset(&raw mut ours.sa_mask) };
    // SAFETY: the handler has the signature of one without SA_SIGINFO, touches only statics and
    // the stack, makes system calls only, and keeps errno; the pointer is to a live structure.
    match unsafe { libc::sigaction(signal_number(), &raw const ours, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn signal_number() -> libc::c_int {
    libc::SIGRTMAX()
}

/// `false` where there is no such thread (any more).
fn send(thread: i32, signal: libc::c_int) -> bool {
    // SAFETY: takes numbers only. The thread group is our own, so no other process is meant, and
    // the signal is none or the one that is handled.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) == 0 }
}

pub(crate) fn thread_id() -> i32 {
    // SAFETY: takes nothing and cannot fail.
    let id = unsafe { libc::syscall(libc::SYS_gettid) };
    i32::try_from(id).unwrap_or(0)
}

pub(crate) fn threads() -> io::Result<Vec<i32>> {
    let entry = |entry: io::Result<std::fs::DirEntry>| {
        let name = entry?.file_name();
        let id = name.to_str().and_then(|name| name.parse().ok());
        id.ok_or_else(|| io::ErrorKind::InvalidData.into())
    };
    std::fs::read_dir("/proc/self/task")?.map(entry).collect()
}

fn last_errno() -> i32 {
    // SAFETY: the location of this thread's errno is valid for as long as the thread.
    unsafe { *libc::__errno_location() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// Returns a field of the kernel's status of the calling thread.
    fn own_status(key: &str) -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap().trim().to_owned()
    }

    #[test]
    fn threads_that_run_wait_and_start_threads_are_reached() {
        // Every thread answers to a wish for its status; half of them are busy meanwhile.
        let busy = std::sync::atomic::AtomicBool::new(true);
        let busy = &busy;
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|index| {
                    let (ask, asked) = channel::<()>();
                    let (say, said) = channel();
                    scope.spawn(move || {
                        while index % 2 == 0 && busy.load(Ordering::Relaxed) {
                            scope.spawn(|| ()).join().unwrap();
                        }
                        asked.recv().unwrap();
                        say.send(own_status("NoNewPrivs:")).unwrap();
                    });
                    (ask, said)
                })
                .collect();
            let restriction = Restriction::NoNewPrivileges;
            restriction.apply_to_others().unwrap();
            assert_eq!(own_status("NoNewPrivs:"), "0", "this thread is not one of the others");
            restriction.apply_here().unwrap();
            // Again, as every further restriction does.
            restriction.apply_to_others().unwrap();
            busy.store(false, Ordering::Relaxed);
            for (ask, said) in threads {
                ask.send(()).unwrap();
                assert_eq!(said.recv().unwrap(), "1");
            }
        });
        assert_eq!(own_status("NoNewPrivs:"), "1");
    }

    extern "C" fn on_other_signal(_signal: libc::c_int) {
        // As much as a handler may well need; beside a frame it does not fit on a signal stack.
        std::hint::black_box([0u8; 6144]);
    }

    #[test]
    fn other_signals_at_the_same_time_overflow_no_signal_stack() {
        // SAFETY: `sigaction` is a plain C structure for which all-zero bytes are valid; the handler
        // touches its stack only.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(libc::c_int) = on_other_signal;
            action.sa_sigaction = handler as libc::sighandler_t;
            action.sa_flags = libc::SA_RESTART;
            assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
        }
        let go_on = std::sync::atomic::AtomicBool::new(true);
        let go_on = &go_on;
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| while go_on.load(Ordering::Relaxed) {});
            }
            scope.spawn(|| {
                while go_on.load(Ordering::Relaxed) {
                    threads().unwrap().into_iter().for_each(|id| _ = send(id, libc::SIGUSR1));
                }
            });
            for _ in 0..30 {
                Restriction::NoNewPrivileges.apply_to_others().unwrap();
            }
            go_on.store(false, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_thread_without_capabilities_cannot_empty_what_it_has_not() {
        std::thread::spawn(|| {
            Restriction::NoCapabilities.apply_here().unwrap();
            assert_eq!(u64::from_str_radix(&own_status("CapEff:"), 16), Ok(0));
            assert_eq!(u64::from_str_radix(&own_status("CapPrm:"), 16), Ok(0));
            let error = Restriction::EmptyBoundingSet.apply_here().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn what_is_no_ruleset_confines_nobody() {
        let file = std::fs::File::open("/dev/null").unwrap();
        use std::os::fd::AsFd;
        assert!(Restriction::Landlock(file.as_fd()).apply_here().is_err());
        std::fs::File::open("/dev/null").unwrap();
    }
}
