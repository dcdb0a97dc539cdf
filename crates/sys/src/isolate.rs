//! Programs that get nothing of this process but their standard streams, and do not outlive it.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The first descriptor that is no standard stream.
const FIRST: libc::c_uint = 3;

/// Has `command` run in a process group of its own, or a session without a terminal, without any descriptor but its standard streams, whoever opened it.
/// The kernel sends it SIGTERM when the thread that starts it ends: keep that until the program has ended.
///
/// Starting it fails with `ENOSYS` or `EINVAL` before Linux 5.11, since nothing is known of descriptors then.
pub fn isolate(command: &mut Command, has_terminal: bool) -> &mut Command {
    if has_terminal {
        command.process_group(0);
    }
    // SAFETY: between fork and exec the closure makes up to three system calls, which are safe after a fork of a process with
    // threads; it allocates nothing and takes no lock. Neither call takes a pointer, and with this flag the first one
    // closes nothing before exec: the descriptors of the standard library stay usable until then.
    unsafe {
        command.pre_exec(move || {
            if !has_terminal {
                checked(libc::setsid().into())?;
            }
            let flags = libc::CLOSE_RANGE_CLOEXEC;
            checked(libc::syscall(libc::SYS_close_range, FIRST, u32::MAX, flags))?;
            checked(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM).into())
        })
    }
}

fn checked(done: libc::c_long) -> io::Result<()> {
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::process::Stdio;

    #[test]
    fn program_gets_no_descriptor_that_was_left_open_for_it() {
        let file = std::fs::File::open("/dev/null").unwrap();
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
        let number = file.as_raw_fd();
        let has = |command: &mut Command| {
            let line = format!("test -e /proc/self/fd/{number}");
            command.args(["-c", &line]).stdin(Stdio::null()).status().unwrap().success()
        };
        assert!(has(&mut Command::new("sh")), "the test itself");
        assert!(!has(isolate(&mut Command::new("sh"), true)));
    }
}
