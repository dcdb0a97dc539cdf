//! The end of a process that has loaded Ceph's libraries.
//!
//! ```text
//! our program:  all is done ─► exit ─► nothing else runs
//! a host's:     exit ─► our threads leave the libraries, and none enters any more ─► the libraries' destructors
//! ```
//!
//! C++ destroys the global objects of a library while the process exits. A thread that is in the library meanwhile finds
//! them gone: it throws what nobody can catch, waits for ever, or crashes, and a program whose work was done ends by a
//! signal.
//!
//! So a device waits for its own threads, and our program's exit runs no destructors once the libraries are loaded.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, Once, PoisonError};
use std::time::Duration;

use crate::lock;

/// How long the exit of a host waits: a question to a cluster that does not answer has no end.
const LEAVE_MAX: Duration = Duration::from_secs(2);

/// Of this process.
static VISITS: Visits = Visits::new();
/// The process that has loaded the libraries; 0 for none. A child of it has none of its threads.
static LOADED_BY: AtomicU32 = AtomicU32::new(0);

/// Threads of our own that are in the libraries.
struct Visits {
    state: Mutex<EndState>,
    fewer: Condvar,
}

struct EndState {
    count: usize,
    is_over: bool,
}

impl Visits {
    const fn new() -> Self {
        Self { state: Mutex::new(EndState { count: 0, is_over: false }), fewer: Condvar::new() }
    }

    /// One more; `None` once nobody may enter any more.
    fn begin(&self) -> Option<EndVisit<'_>> {
        let mut state = lock(&self.state);
        if state.is_over {
            return None;
        }
        state.count += 1;
        Some(EndVisit(self))
    }

    /// Lets nobody in, and waits for those who are. Whether all have left before the time is over.
    fn end(&self, limit: Duration) -> bool {
        let mut state = lock(&self.state);
        // Those who did not leave the first time are not waited for twice.
        let limit = if std::mem::replace(&mut state.is_over, true) { Duration::ZERO } else { limit };
        let waited = self.fewer.wait_timeout_while(state, limit, |state| state.count > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.count == 0
    }
}

struct EndVisit<'a>(&'a Visits);

impl Drop for EndVisit<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).count -= 1;
        self.0.fewer.notify_all();
    }
}

/// Does what a thread in the background has to do in Ceph's libraries. Once the process exits it does not return: such a
/// thread has nothing left to do.
pub fn visit_ceph<T>(work: impl FnOnce() -> T) -> T {
    let Some(_visit) = VISITS.begin() else {
        loop {
            std::thread::park();
        }
    };
    work()
}

/// Arranges the end of a process that is not ours. Functions that are registered later run earlier, so this comes after
/// what registers those of the libraries: when they are loaded, and again when one has made what it makes once.
pub(super) fn arrange_end() {
    LOADED_BY.store(std::process::id(), Ordering::Relaxed);
    // SAFETY: the function takes nothing, does not unwind, and is there until the process ends. Where it cannot be registered
    // the process ends as it would without it.
    let _ = unsafe { libc::atexit(leave) };
}

/// The same for what the first open image has made.
pub(super) fn arrange_end_once_opened() {
    static OPENED: Once = Once::new();
    OPENED.call_once(arrange_end);
}

extern "C" fn leave() {
    if LOADED_BY.load(Ordering::Relaxed) == std::process::id() {
        // Those who do not leave wait for a cluster, and touch nothing meanwhile.
        let _late = VISITS.end(LEAVE_MAX);
    }
}

/// Has the exit that comes next, of a process that is ours, leave out all destructors, if Ceph's libraries are loaded. Only
/// for a process that has nothing left to do, and right before it exits: what is registered last runs first.
pub fn exit_without_destructors() {
    if LOADED_BY.load(Ordering::Relaxed) == std::process::id() {
        // SAFETY: as for `atexit`; the argument is not looked at.
        #[cfg(target_env = "gnu")]
        let _ = unsafe { on_exit(end, std::ptr::null_mut()) };
    }
}

#[cfg(target_env = "gnu")]
unsafe extern "C" {
    /// Of the GNU C library: like `atexit`, and the function learns with what status.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Rust's own standard output is flushed before the C library exits, and nobody here writes through the C library's.
#[cfg(target_env = "gnu")]
extern "C" fn end(status: c_int, _: *mut c_void) {
    // SAFETY: ends the process and runs nothing in it.
    unsafe { libc::_exit(status) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_waits_for_those_inside_and_lets_nobody_in() {
        let visits = Visits::new();
        let visit = visits.begin().expect("not over");
        assert!(!visits.end(Duration::ZERO), "one is inside");
        assert!(visits.begin().is_none());
        assert!(!visits.end(Duration::from_secs(3600)), "it is waited for once");
        drop(visit);
        let visits = Visits::new();
        let visit = visits.begin().expect("not over");
        std::thread::scope(|scope| {
            let end = scope.spawn(|| visits.end(Duration::from_secs(60)));
            drop(visit);
            assert!(end.join().expect("no panic"));
        });
    }
}
