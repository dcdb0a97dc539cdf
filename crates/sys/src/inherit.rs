//! Descriptors handed over by whoever started this process (sd_listen_fds(3)).

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::FdFlags;

/// The first descriptor of the protocol.
const FIRST: RawFd = 3;
/// More than anybody passes; a bound on what we look at.
const COUNT_MAX: RawFd = 64;

static TAKEN: AtomicBool = AtomicBool::new(false);

/// Takes over the descriptors that `LISTEN_PID` and `LISTEN_FDS` name, and makes them
/// close-on-exec. Empty where there are none, where they are meant for another process, and on
/// every later call.
///
/// The variables stay in the environment (changing it is not safe beside other threads): they
/// name this process by its id, so a child does not mistake them for its own.
///
/// Errors: `InvalidInput` where the variables are malformed or name a descriptor that was not
/// inherited.
pub fn take_listen_fds() -> io::Result<Vec<OwnedFd>> {
    let variable = |name| std::env::var(name).ok();
    let Some(pid) = variable("LISTEN_PID") else {
        return Ok(Vec::new());
    };
    if pid != std::process::id().to_string() || TAKEN.swap(true, Ordering::SeqCst) {
        return Ok(Vec::new());
    }
    let count: RawFd = variable("LISTEN_FDS")
        .and_then(|count| count.parse().ok())
        .filter(|count| (1..=COUNT_MAX).contains(count))
        .ok_or_else(|| invalid(format!("LISTEN_FDS must be from 1 to {COUNT_MAX}")))?;
    // All are looked at before any is taken: an error leaves everything as it was.
    for fd in FIRST..FIRST + count {
        check_inherited(fd)?;
    }
    (FIRST..FIRST + count)
        .map(|fd| {
            // SAFETY: the descriptor is open and lacks close-on-exec (checked above), which
            // everything opened inside this process has; so it came through exec and no other
            // value in this process owns it. `TAKEN` lets this line be reached once.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
            Ok(fd)
        })
        .collect()
}

fn check_inherited(fd: RawFd) -> io::Result<()> {
    // SAFETY: `F_GETFD` takes no pointer; for a number that is no open descriptor it fails.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    if flags >= 0 && flags & libc::FD_CLOEXEC == 0 {
        return Ok(());
    }
    Err(invalid(format!(
        "LISTEN_FDS names descriptor {fd}, which was not passed"
    )))
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_descriptor_opened_here_is_never_taken_for_an_inherited_one() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(check_inherited(file.as_raw_fd()).is_err());
        assert!(check_inherited(RawFd::MAX).is_err());
    }

    #[test]
    fn nothing_is_taken_without_the_variables() {
        assert!(take_listen_fds().unwrap().is_empty());
    }
}
