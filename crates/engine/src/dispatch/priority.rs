//! Threads of a higher priority, as `high_priority` asks for.

use std::io;

/// The priority that `high_priority` asks for.
const HIGHEST_NICE: i32 = -20;

/// Raises the calling thread's priority as far as it goes.
pub(super) fn raise_priority() -> io::Result<()> {
    Ok(rustix::process::setpriority_process(None, HIGHEST_NICE)?)
}

/// Tells if threads of this process may run at the priority that `high_priority` asks for.
#[must_use]
pub fn may_raise_priority() -> bool {
    let tried = std::thread::Builder::new().spawn(raise_priority);
    // Without a thread to try it on, those that are started do without.
    tried.is_ok_and(|thread| thread.join().is_ok_and(|raised| raised.is_ok()))
}
