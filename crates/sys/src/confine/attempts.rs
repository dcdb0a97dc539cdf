//! Attempts at what a sandboxed thread must not be able to do: the proof that the sandbox holds.
//!
//! Each attempt is harmless where it succeeds: it opens and closes something, or names what does not
//! exist.

use std::io;
use std::ptr;

use io_uring::{IoUring, opcode, types};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};

/// Something that was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Name of the operation, in a word or two.
    pub name: &'static str,
    /// Outcome of the attempt.
    pub result: Result<(), Errno>,
}

impl Attempt {
    /// Tells if somebody forbade it. What failed for another reason was allowed.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self.result, Err(Errno::PERM | Errno::ACCESS | Errno::NOSYS))
    }
}

/// Tries one thing.
type AttemptFn = fn() -> Result<(), Errno>;

/// Tries everything on the calling thread.
#[must_use]
pub fn attempts() -> Vec<Attempt> {
    let tried: [(&'static str, AttemptFn); 14] = [
        ("open", || open("/etc/passwd", OFlags::RDONLY)),
        ("open-directory", || open("/", OFlags::DIRECTORY)),
        ("open-for-writing", || open("/dev/null", OFlags::WRONLY)),
        ("open-own-memory", || open("/proc/self/mem", OFlags::RDWR)),
        ("execve", execve),
        ("fork", fork),
        ("socket-tcp", || socket(AddressFamily::INET)),
        ("socket-unix", || socket(AddressFamily::UNIX)),
        ("ptrace", ptrace),
        ("unshare", unshare),
        ("kill", kill),
        ("executable-memory", executable_memory),
        ("io_uring-open", uring_open),
        ("io_uring-connect", uring_connect),
    ];
    let attempt = |(name, run): (&'static str, AttemptFn)| Attempt { name, result: run() };
    tried.into_iter().map(attempt).collect()
}

fn open(path: &str, flags: OFlags) -> Result<(), Errno> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).map(drop)
}

fn socket(family: AddressFamily) -> Result<(), Errno> {
    rustix::net::socket(family, SocketType::STREAM, None).map(drop)
}

/// Of a program that does not exist: where it is allowed, the process goes on all the same.
fn execve() -> Result<(), Errno> {
    let nothing = [ptr::null::<libc::c_char>()];
    // SAFETY: the path is a C string, and both lists consist of their closing null. There is no
    // such file (its folder is a file), so the call always returns.
    let result = unsafe { libc::execve(c"/proc/self/status/none".as_ptr(), nothing.as_ptr(), nothing.as_ptr()) };
    outcome(result.into())
}

fn fork() -> Result<(), Errno> {
    let (flags, none): (libc::c_long, libc::c_long) = (libc::SIGCHLD.into(), 0);
    // SAFETY: without CLONE_VM the child has its own memory, and without a stack of its own it goes on
    // on a copy of this one. It makes one system call and is gone.
    unsafe {
        let child = libc::syscall(libc::SYS_clone, flags, none, none, none, none);
        if child == 0 {
            libc::syscall(libc::SYS_exit_group, 0);
        }
        if child > 0 {
            let child = libc::pid_t::try_from(child).unwrap_or(-1);
            libc::waitpid(child, ptr::null_mut(), 0);
        }
        outcome(child.min(0))
    }
}

/// Of a process that does not exist.
fn ptrace() -> Result<(), Errno> {
    // SAFETY: attaches to nothing: no process has this number. No memory is named.
    let result = unsafe { libc::syscall(libc::SYS_ptrace, libc::PTRACE_SEIZE, libc::pid_t::MAX, 0usize, 0usize) };
    outcome(result)
}

/// From nothing at all.
fn unshare() -> Result<(), Errno> {
    // SAFETY: takes flags only, and none is given.
    outcome(unsafe { libc::unshare(0) }.into())
}

/// Asks whether our parent could be signalled; it is not.
fn kill() -> Result<(), Errno> {
    // SAFETY: takes numbers only; signal 0 is none.
    outcome(unsafe { libc::kill(libc::getppid(), 0) }.into())
}

fn executable_memory() -> Result<(), Errno> {
    let protection = libc::PROT_READ | libc::PROT_EXEC;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping where the kernel finds room; nobody refers to it, and it is removed
    // at once, by the address and length that it was made with.
    unsafe {
        let place = libc::mmap(ptr::null_mut(), 4096, protection, flags, -1, 0);
        if place == libc::MAP_FAILED {
            return outcome(-1);
        }
        libc::munmap(place, 4096);
    }
    Ok(())
}

/// io_uring is no system call to a seccomp filter.
fn uring_open() -> Result<(), Errno> {
    let path = c"/etc/passwd";
    let here = types::Fd(libc::AT_FDCWD);
    let entry = opcode::OpenAt::new(here, path.as_ptr()).flags(libc::O_CLOEXEC);
    // SAFETY: the path is static.
    unsafe { uring_run(&entry.build()) }.map(close)
}

fn uring_connect() -> Result<(), Errno> {
    let entry = opcode::Socket::new(libc::AF_INET, libc::SOCK_STREAM, 0).build();
    // SAFETY: the entry refers to no memory.
    let socket = unsafe { uring_run(&entry) }?;
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET.try_into().unwrap_or_default(),
        // "discard", where nobody listens.
        sin_port: 9u16.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
        sin_zero: [0; 8],
    };
    let len = libc::socklen_t::try_from(size_of_val(&address)).unwrap_or_default();
    let entry = opcode::Connect::new(types::Fd(socket), ptr::from_ref(&address).cast(), len);
    // SAFETY: the address lives until `uring_run` has returned.
    let connected = unsafe { uring_run(&entry.build()) };
    close(socket);
    connected.map(drop)
}

/// Runs one operation over a ring of its own.
///
/// # Safety
/// All that the entry refers to must live until this returns.
unsafe fn uring_run(entry: &io_uring::squeue::Entry) -> Result<i32, Errno> {
    let errno = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let mut ring = IoUring::new(2).map_err(errno)?;
    // SAFETY: the caller's promise; an error of the wait below leaves nothing in flight that
    // outlives the ring, whose drop ends it.
    unsafe { ring.submission().push(entry) }.map_err(|_| Errno::AGAIN)?;
    ring.submit_and_wait(1).map_err(errno)?;
    let done = ring.completion().next().ok_or(Errno::IO)?;
    match done.result() {
        result @ 0.. => Ok(result),
        error => Err(Errno::from_raw_os_error(error.saturating_neg())),
    }
}

fn close(fd: i32) {
    // SAFETY: the descriptor was made for this module a moment ago, and nobody else knows it.
    unsafe { libc::close(fd) };
}

fn outcome(result: libc::c_long) -> Result<(), Errno> {
    match result {
        -1 => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where nothing forbids anything, so that a refusal in a sandbox is the sandbox's.
    #[test]
    fn attempts_are_harmless_and_mostly_allowed_outside() {
        for attempt in attempts() {
            let may_be_forbidden = ["io_uring-open", "io_uring-connect", "open-own-memory"];
            if !may_be_forbidden.contains(&attempt.name) {
                assert!(!attempt.is_refused(), "{attempt:?}");
            }
        }
    }
}
