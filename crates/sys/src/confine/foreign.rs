//! Threads of libraries that take no signals: nobody can have them give up a right once they run.
//!
//! So they are started from a thread that has given up most already, and inherit that. What it keeps is what a client of
//! a cluster cannot do without: to read files, to connect, and (the C library changes the user on all threads, and ends
//! the process where one cannot) to change the user.

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use super::{CAPABILITY_VERSION_3, Restriction, landlock_version, last_errno, signal_number};

/// From linux/capability.h: to read any file, and to change the user.
const KEPT: u32 = 1 << 2 | 1 << 6 | 1 << 7;
/// From linux/landlock.h: all that version 1 knows but to read files and folders; later ones add the next bits.
const FILES: u64 = 0x1fff & !(1 << 2 | 1 << 3);
const BIND_TCP: u64 = 1;

/// All such threads so far were started under Landlock.
static UNDER_LANDLOCK: AtomicBool = AtomicBool::new(true);

/// Does `work` on a thread of its own that may only read and connect, as far as this system can forbid the rest.
/// The threads that it starts inherit that.
///
/// Errors: no thread can be started.
pub fn on_confined_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("confined".to_owned());
        let thread = builder.spawn_scoped(scope, || {
            // What cannot be given up is said when the process gives up its own rights.
            if Restriction::NoNewPrivileges.apply_here().is_err() || restrict_files().is_err() {
                UNDER_LANDLOCK.store(false, Ordering::Release);
            }
            let _ = keep_capabilities(KEPT);
            work()
        })?;
        thread
            .join()
            .map_err(|_| io::Error::other("a thread has panicked"))
    })
}

/// Landlock without any exception to what it forbids.
fn restrict_files() -> io::Result<()> {
    let version = landlock_version()?;
    let files = match version {
        1 => FILES,
        2 => FILES | 1 << 13,
        3 | 4 => FILES | 3 << 13,
        _ => FILES | 7 << 13,
    };
    let attributes = [files, if version >= 4 { BIND_TCP } else { 0 }];
    let len = if version >= 4 { 16 } else { 8 };
    // SAFETY: the kernel reads `len` bytes, which the array has and which lives until the end of the call.
    let made = unsafe {
        let attributes = attributes.as_ptr();
        libc::syscall(libc::SYS_landlock_create_ruleset, attributes, len, 0)
    };
    let made = i32::try_from(made).unwrap_or(-1);
    if made < 0 {
        return Err(io::Error::from_raw_os_error(last_errno()));
    }
    // SAFETY: the kernel has just made this descriptor, so nobody else has it.
    let ruleset = unsafe { OwnedFd::from_raw_fd(made) };
    Restriction::Landlock(ruleset.as_fd()).apply_here()
}

/// Gives up all capabilities of this thread but those of `kept` that it has.
fn keep_capabilities(kept: u32) -> io::Result<()> {
    let header = [CAPABILITY_VERSION_3, 0];
    let mut sets = [0u32; 6];
    // SAFETY: version 3 reads a header of two words (the second, 0, is the calling thread) and reads or writes two times
    // three words of sets; both arrays live until the end of the calls.
    unsafe {
        if libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) != 0 {
            return Err(io::Error::from_raw_os_error(last_errno()));
        }
        // Effective and permitted; none is inheritable.
        let sets = [sets[0] & kept, sets[1] & kept, 0, 0, 0, 0];
        if libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) != 0 {
            return Err(io::Error::from_raw_os_error(last_errno()));
        }
    }
    Ok(())
}

/// A thread that blocks our signal, as the kernel describes it.
pub(super) struct Foreign {
    status: String,
}

impl Foreign {
    /// `None` where `thread` takes the signal, or is gone.
    pub fn find(thread: i32) -> Option<Self> {
        let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).ok()?;
        let foreign = Self { status };
        let bit = u32::try_from(signal_number() - 1).ok()?;
        let blocked = foreign.word("SigBlk:")?;
        (blocked.checked_shr(bit)? & 1 == 1).then_some(foreign)
    }

    /// Whether it has given up what `restriction` takes from others, but for what it was left.
    pub fn is_settled(&self, restriction: Restriction<'_>) -> bool {
        match restriction {
            Restriction::NoNewPrivileges => self.word("NoNewPrivs:") == Some(1),
            Restriction::Landlock(_) => UNDER_LANDLOCK.load(Ordering::Acquire),
            // It cannot start programs once it has no new privileges.
            Restriction::EmptyBoundingSet => true,
            Restriction::NoCapabilities => self
                .word("CapPrm:")
                .is_some_and(|has| has & !u64::from(KEPT) == 0),
        }
    }

    fn word(&self, key: &str) -> Option<u64> {
        let mut lines = self.status.lines();
        let value = lines.find_map(|line| line.strip_prefix(key))?;
        u64::from_str_radix(value.trim(), 16).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn threads_that_take_no_signals_are_known_by_what_they_were_born_with() {
        let (end, ended) = channel::<()>();
        let (say, said) = channel();
        let thread = on_confined_thread(move || {
            std::thread::spawn(move || {
                // SAFETY: all-zero bytes are a valid set, which is then filled and read; both live through the calls.
                unsafe {
                    let mut all: libc::sigset_t = std::mem::zeroed();
                    libc::sigfillset(&raw mut all);
                    libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
                }
                say.send(super::super::thread_id()).unwrap();
                let _ = ended.recv();
            })
        });
        let id = said.recv().unwrap();
        let foreign = Foreign::find(id).unwrap();
        assert!(foreign.is_settled(Restriction::NoNewPrivileges));
        assert!(foreign.is_settled(Restriction::NoCapabilities));
        assert!(Foreign::find(super::super::thread_id()).is_none());
        Restriction::NoNewPrivileges.apply_to_others().unwrap();
        drop(end);
        thread.unwrap().join().unwrap();
    }
}
