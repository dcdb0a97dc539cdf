//! Threads of libraries that take no signals: nobody can have them give up a right once they run.
//!
//! So they are started from a thread that has given up most already, and inherit that. What it keeps is what a client of
//! a cluster cannot do without: to read files, to connect, and (the C library changes the user on all threads, and ends
//! the process where one cannot) to change the user.
//!
//! A thread that does not answer is passed over only if it was born so; any other that blocks signals is about to take
//! them.

use std::io;
use std::os::fd::AsFd;
use std::sync::Mutex;

use super::{CAPABILITY_VERSION_3, Landlock, Restriction, last_errno, signal_number};

/// From linux/capability.h: to read any file, and to change the user.
const KEPT: u32 = 1 << 2 | 1 << 6 | 1 << 7;
/// Rights that such work must not have: all but to read files, and to connect.
const FORBIDDEN: Landlock = Landlock {
    files: Landlock::ALL.files & !(Landlock::READ_FILE | Landlock::READ_FOLDER | Landlock::RESOLVE_UNIX),
    network: Landlock::ALL.network & !Landlock::CONNECT_TCP,
    scopes: 0,
};

/// All that came with such work.
static BORN: Mutex<Vec<Born>> = Mutex::new(Vec::new());

/// A thread that was there behind such work and not before.
#[derive(PartialEq, Eq)]
struct Born {
    id: i32,
    /// When it was started, since ids are used again.
    start: u64,
    /// Landlock was in force where it was started.
    under_landlock: bool,
}

/// Does `work` on a thread of its own that may only read and connect, as far as this system can forbid the rest.
/// The threads that it starts inherit that.
///
/// Errors: no thread can be started.
pub fn on_confined_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let before = super::threads();
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("confined".to_owned());
        let thread = builder.spawn_scoped(scope, || {
            // What cannot be given up is said when the process gives up its own rights.
            let restricted = Restriction::NoNewPrivileges.apply_here().and_then(|()| restrict_files());
            let _ = keep_capabilities(KEPT);
            let result = work();
            if let Ok(before) = &before {
                note_born(before, restricted.is_ok());
            }
            result
        })?;
        thread.join().map_err(|_| io::Error::other("a thread has panicked"))
    })
}

/// Tells if a thread that was born confined still has a capability.
#[must_use]
pub fn confined_threads_have_capabilities() -> bool {
    let ids: Vec<i32> = crate::lock(&BORN).iter().map(|born| born.id).collect();
    let has = |id| Foreign::find(id).and_then(|thread| thread.word("CapPrm:")).is_some_and(|has| has != 0);
    ids.into_iter().any(has)
}

/// Remembers the threads that there are now and were not `before`. One that others have started meanwhile does no harm
/// there: it takes signals.
fn note_born(before: &[i32], under_landlock: bool) {
    let new = super::threads().unwrap_or_default();
    let new = new.into_iter().filter(|id| !before.contains(id));
    let born = new.filter_map(|id| {
        let start = start_of(id)?;
        Some(Born { id, start, under_landlock })
    });
    let mut all = crate::lock(&BORN);
    // Those that have ended are forgotten.
    all.retain(|born| start_of(born.id) == Some(born.start));
    all.extend(born);
}

/// When a thread was started, in the kernel's ticks.
fn start_of(thread: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    // Behind the name, which can have any bytes, comes field 3; the start is field 22.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Landlock without any exception to what it forbids.
fn restrict_files() -> io::Result<()> {
    let ruleset = FORBIDDEN.ruleset(&[])?;
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

/// A thread that was born confined and blocks our signal, as the kernel describes it.
pub(super) struct Foreign {
    status: String,
    under_landlock: bool,
}

impl Foreign {
    /// `None` where `thread` was born otherwise, takes the signal, or is gone. An ordinary thread blocks all signals for a
    /// moment while it starts, so that alone says nothing.
    pub fn find(thread: i32) -> Option<Self> {
        let start = start_of(thread)?;
        let under_landlock = {
            let all = crate::lock(&BORN);
            let mut born = all.iter().filter(|born| (born.id, born.start) == (thread, start));
            born.next()?.under_landlock
        };
        let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).ok()?;
        let foreign = Self { status, under_landlock };
        let bit = u32::try_from(signal_number() - 1).ok()?;
        let blocked = foreign.word("SigBlk:")?;
        (blocked.checked_shr(bit)? & 1 == 1).then_some(foreign)
    }

    /// Tells if it has given up what `restriction` takes from others, but for what it was left.
    pub fn is_settled(&self, restriction: Restriction<'_>) -> bool {
        match restriction {
            Restriction::NoNewPrivileges => self.word("NoNewPrivs:") == Some(1),
            Restriction::Landlock(_) => self.under_landlock,
            // It cannot start programs once it has no new privileges.
            Restriction::EmptyBoundingSet => true,
            Restriction::NoCapabilities => self.word("CapPrm:").is_some_and(|has| has & !u64::from(KEPT) == 0),
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
            let (ready, is_ready) = channel();
            let thread = std::thread::spawn(move || {
                block_all(libc::SIG_BLOCK);
                say.send(super::super::thread_id()).unwrap();
                ready.send(()).unwrap();
                let _ = ended.recv();
            });
            is_ready.recv().unwrap();
            thread
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

    #[test]
    fn ordinary_thread_that_blocks_signals_for_a_moment_is_no_born_one() {
        let (say, said) = channel();
        let (go, gone) = channel::<()>();
        let thread = std::thread::spawn(move || {
            // As one that has no new privileges already: where the whole process has none.
            Restriction::NoNewPrivileges.apply_here().unwrap();
            block_all(libc::SIG_BLOCK);
            say.send(super::super::thread_id()).unwrap();
            gone.recv().unwrap();
            block_all(libc::SIG_UNBLOCK);
            // Until the restriction has come, or the sender is gone.
            let _ = gone.recv();
        });
        let id = said.recv().unwrap();
        assert!(Foreign::find(id).is_none());
        go.send(()).unwrap();
        Restriction::NoNewPrivileges.apply_to_others().unwrap();
        drop(go);
        thread.join().unwrap();
    }

    fn block_all(how: libc::c_int) {
        // SAFETY: all-zero bytes are a valid set, which is then filled and read; both live through the calls.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(how, &raw const all, std::ptr::null_mut());
        }
    }
}
