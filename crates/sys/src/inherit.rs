//! Descriptors passed by the process that started this one: sockets (sd_listen_fds(3)), and others by
//! number.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::FdFlags;

/// The first descriptor of the protocol.
const FIRST: RawFd = 3;
/// More than anybody passes; a bound on what we look at.
const COUNT_MAX: RawFd = 64;

static TAKEN: AtomicBool = AtomicBool::new(false);
/// Held from the look at a descriptor until it is marked as taken.
static TAKING: Mutex<()> = Mutex::new(());

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
    let _taking = crate::lock(&TAKING);
    // All are looked at before any is taken: an error leaves everything as it was.
    for fd in FIRST..FIRST + count {
        if !is_inherited(fd) {
            return Err(invalid(format!("LISTEN_FDS names descriptor {fd}, which was not passed")));
        }
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

/// Takes over the descriptor `number`, from 3 up, and makes it close-on-exec.
///
/// Errors: `InvalidInput` where it was not inherited, or has been taken already.
pub fn take_passed_fd(number: u32) -> io::Result<OwnedFd> {
    let _taking = crate::lock(&TAKING);
    let fd = RawFd::try_from(number).ok();
    let fd = fd
        .filter(|&fd| fd >= FIRST && is_inherited(fd))
        .ok_or_else(|| invalid(format!("descriptor {number} was not passed")))?;
    // SAFETY: the descriptor is open and lacks close-on-exec (checked above), which everything opened
    // inside this process has; so it came through exec. No other value in this process owns it: it is
    // none of the standard streams, and what was taken before has close-on-exec since then, which
    // `TAKING` keeps from happening in between.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
    Ok(fd)
}

/// One more descriptor for what `number` is open on, from 3 up; close-on-exec.
///
/// Errors: it is not open.
pub fn duplicate_fd(number: u32) -> io::Result<OwnedFd> {
    let fd = RawFd::try_from(number).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: `F_DUPFD_CLOEXEC` takes no pointer; for a number that is no open descriptor it fails. Whoever owns the
    // descriptor keeps it: nothing is closed, and a number that is closed meanwhile fails, too.
    let made = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, FIRST) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

/// From now on no program that is started gets a descriptor but its standard streams, unless one is made for it.
///
/// Errors: a kernel before 5.11.
pub fn keep_descriptors() -> io::Result<()> {
    let _taking = crate::lock(&TAKING);
    let first = FIRST.unsigned_abs();
    let flags = libc::CLOSE_RANGE_CLOEXEC;
    // SAFETY: takes no pointer, and with this flag closes nothing: whoever owns a descriptor keeps it.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, flags) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Open, and without close-on-exec, which everything that is opened here has.
fn is_inherited(fd: RawFd) -> bool {
    // SAFETY: `F_GETFD` takes no pointer; for a number that is no open descriptor it fails.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    flags >= 0 && flags & libc::FD_CLOEXEC == 0
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
        assert!(!is_inherited(file.as_raw_fd()));
        assert!(!is_inherited(RawFd::MAX));
        assert!(take_passed_fd(file.as_raw_fd().unsigned_abs()).is_err());
    }

    #[test]
    fn a_passed_descriptor_is_taken_once_and_never_passed_on() {
        let file = std::fs::File::open("/dev/null").unwrap();
        rustix::io::fcntl_setfd(&file, FdFlags::empty()).unwrap();
        // As if it had come through exec.
        let number = std::os::fd::IntoRawFd::into_raw_fd(file).unsigned_abs();
        let taken = take_passed_fd(number).unwrap();
        assert_eq!(rustix::io::fcntl_getfd(&taken).unwrap(), FdFlags::CLOEXEC);
        assert!(take_passed_fd(number).is_err());
        assert!(take_passed_fd(u32::MAX).is_err());
        for standard in 0..3 {
            assert!(take_passed_fd(standard).is_err());
        }
    }

    #[test]
    fn nothing_is_taken_without_the_variables() {
        assert!(take_listen_fds().unwrap().is_empty());
    }
}
