//! Sockets to accept clients on, until the server is to stop.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

use super::Socket;

/// A socket to accept clients on.
pub enum Listener {
    /// A Unix socket.
    Unix(UnixListener),
    /// A TCP socket.
    Tcp(TcpListener),
}

impl Listener {
    pub(crate) fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Unix(listener) => Ok(Socket::unix(listener.accept()?.0)),
            Self::Tcp(listener) => Socket::tcp(listener.accept()?.0),
        }
    }

    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Unix(listener) => listener.set_nonblocking(true),
            Self::Tcp(listener) => listener.set_nonblocking(true),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

/// Stops a server from any thread.
#[derive(Clone)]
pub struct StopHandle(Arc<OwnedFd>);

impl StopHandle {
    /// A handle that has not been used.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(Arc::new(rustix::event::eventfd(0, flags)?)))
    }

    /// Asks the server to stop. This cannot be taken back.
    pub fn stop(&self) {
        // A full counter is readable too.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

/// Readable once the server is to stop, and from then on.
impl AsFd for StopHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until a client can be accepted; `false` when the server is to stop.
pub(crate) fn wait_for_client(listeners: &[impl AsFd], stop: &StopHandle) -> io::Result<bool> {
    let mut polled: Vec<_> = listeners
        .iter()
        .map(|listener| PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN))
        .chain([PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)])
        .collect();
    match rustix::event::poll(&mut polled, None) {
        Ok(_) => Ok(polled.last().is_none_or(|stop| stop.revents().is_empty())),
        Err(rustix::io::Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Tells if a server that accepts nobody is to stop; waits for that, for as long as `limit` says.
pub(crate) fn is_stopped_within(stop: &StopHandle, limit: Option<Duration>) -> bool {
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    let mut polled = [PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
    match rustix::event::poll(&mut polled, limit.as_ref()) {
        Ok(count) => count > 0,
        Err(rustix::io::Errno::INTR) => false,
        // Where it cannot be waited for, the server stops.
        Err(_) => true,
    }
}

/// Tells if a socket's peer accepts no more data, or a mount is gone. A TCP peer that has closed shows it when it
/// refuses what is sent next, or a keepalive probe; others show it at once.
pub(crate) fn has_hung_up(socket: impl AsFd) -> bool {
    // Hang-up and error are reported even where no event is asked for.
    let mut polled = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::empty())];
    rustix::event::poll(&mut polled, Some(&Timespec::default())).is_ok_and(|found| found > 0)
}
