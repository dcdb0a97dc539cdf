//! Waiting for a descriptor, up to a moment.

use std::os::fd::AsFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Waits until `what`, an error or the other side's end has come to `descriptor`, or `until`; returns what has come, which
/// is nothing where the time is over.
///
/// # Errors
/// Those of poll(2), but for an interruption.
pub fn wait_for(descriptor: impl AsFd, what: PollFlags, until: Option<Instant>) -> Result<PollFlags, Errno> {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let mut watched = [PollFd::new(&descriptor, what)];
        match poll(&mut watched, left.as_ref()) {
            Ok(_) => return Ok(watched[0].revents()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}
