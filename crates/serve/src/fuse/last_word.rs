//! The server's last word: whether its last flush worked, for those who unmount. A server in the background has no
//! other way to tell.
//!
//! ```text
//! who unmounts   ioctl: the socket's name ─► connect ─► unmount ─────────► its word ─► its end
//! server         (serve) ──────────────────────────► unmounted, flushed ─► word ─────► exit
//! ```
//!
//! The name is random and known only through the mount: nobody else can have bound it, and nobody who may not use
//! the mount can ask. Until its end, the server does not look at the socket.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{IntoRawFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use cryptline_sys::FUSE_ASK_LEN;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::rand::{GetRandomFlags, getrandom};

/// The request of ioctl(2) that asks for the socket's name: reads as many bytes as that has.
pub const COMMAND: u32 = cryptline_sys::FUSE_ASK;
/// Messages of the server.
const FLUSHED: u8 = b'f';
const LOST: u8 = b'l';
/// More than so many who wait are not told.
const WAITERS_MAX: usize = 128;
/// Askers who have given up since are in the socket's queue even so. That has room for fewer.
const ASKED_MAX: usize = 8192;

/// The name of the socket.
pub type SocketName = [u8; FUSE_ASK_LEN];

/// Those who wait for the last word. They see the end of a server that says none.
pub struct LastWord {
    listener: UnixListener,
    name: SocketName,
}

impl LastWord {
    /// For a server that begins.
    pub fn new() -> io::Result<Self> {
        let mut name = SocketName::default();
        // Never interrupted or cut short for so few bytes.
        getrandom(&mut name, GetRandomFlags::empty())?;
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
        Ok(Self { listener, name })
    }

    /// For the files of the mount, which tell it to those who ask.
    #[must_use]
    pub fn name(&self) -> SocketName {
        self.name
    }

    /// Tells all who wait. They see this process's end, too: its last descriptors are theirs.
    pub fn say(self, is_flushed: bool) {
        let word = if is_flushed { FLUSHED } else { LOST };
        let _ = self.listener.set_nonblocking(true);
        let mut told = 0;
        for _ in 0..ASKED_MAX {
            let Ok((mut waiter, _)) = self.listener.accept() else {
                return;
            };
            // A new socket takes a byte at once. Whoever has gone needs to know nothing.
            if told < WAITERS_MAX && waiter.write_all(&[word]).is_ok() {
                told += 1;
                // Closed by the end of the process.
                let _ = OwnedFd::from(waiter).into_raw_fd();
            }
        }
    }
}

/// Result of the last flush of a server that has ended, as far as it is known.
#[derive(Debug)]
pub enum LastFlush {
    /// Everything is durable.
    Worked,
    /// Data that was written since the flush before it may be lost.
    Failed,
    /// The server ended without a word, or not in time.
    Unknown(io::Error),
}

/// One who waits.
pub struct Waiter(UnixStream);

impl Waiter {
    /// Begins to wait for the server of the mount that `file` is in. To be called before it is unmounted.
    pub fn new(file: &File) -> io::Result<Self> {
        let name = SocketAddrUnix::new_abstract_name(&cryptline_sys::ask_fuse(file)?)?;
        // Where too many wait already, there is no place in its queue, which is no reason to wait for one.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &name)?;
        let socket = UnixStream::from(socket);
        socket.set_nonblocking(false)?;
        Ok(Self(socket))
    }

    /// Waits for the server's word, and then for its end, each no longer than `limit`.
    #[must_use]
    pub fn wait(mut self, limit: Duration) -> LastFlush {
        let mut word = [0];
        let heard = self.0.set_read_timeout(Some(limit)).and_then(|()| self.0.read_exact(&mut word));
        if let Err(error) = heard {
            return LastFlush::Unknown(match error.kind() {
                io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
                _ => io::Error::other("its server ended without a word"),
            });
        }
        // What it says is true before it has ended, too.
        while self.0.read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::Interrupted) {}
        match word[0] {
            FLUSHED => LastFlush::Worked,
            _ => LastFlush::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(server: &LastWord) -> Waiter {
        let name = SocketAddr::from_abstract_name(server.name()).unwrap();
        Waiter(UnixStream::connect_addr(&name).unwrap())
    }

    #[test]
    fn all_who_wait_hear_how_the_last_flush_went() {
        for (is_flushed, expected) in [(true, "Worked"), (false, "Failed")] {
            let server = LastWord::new().unwrap();
            let waiters = [waiter(&server), waiter(&server)];
            server.say(is_flushed);
            for waiter in waiters {
                // This process, which is the server, does not end.
                let heard = waiter.wait(Duration::from_millis(1));
                assert_eq!(format!("{heard:?}"), expected);
            }
        }
    }

    #[test]
    fn who_has_given_up_takes_nobody_s_place() {
        let server = LastWord::new().unwrap();
        for _ in 0..2 * WAITERS_MAX {
            drop(waiter(&server));
        }
        let last = waiter(&server);
        server.say(true);
        let heard = last.wait(Duration::from_millis(1));
        assert!(matches!(heard, LastFlush::Worked), "{heard:?}");
    }

    #[test]
    fn server_that_ends_or_hangs_without_a_word_has_flushed_nothing_for_sure() {
        let server = LastWord::new().unwrap();
        let heard = waiter(&server).wait(Duration::from_millis(1));
        assert!(matches!(heard, LastFlush::Unknown(error)
            if error.kind() == io::ErrorKind::TimedOut));
        let left = waiter(&server);
        drop(server);
        let heard = left.wait(Duration::from_secs(60));
        assert!(matches!(heard, LastFlush::Unknown(error)
            if error.kind() == io::ErrorKind::Other));
    }
}
