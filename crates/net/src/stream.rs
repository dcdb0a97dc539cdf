//! A connection without a ring: blocking, with a deadline, in the clear or through TLS.
//!
//! The deadline is set before every system call: a peer that sends or reads a byte now and then, in the clear or inside
//! the TLS handshake, does not make it last longer.

use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg};
use rustix::process::Pid;
use rustls::Connection;

use crate::send;

/// A connection that somebody waits for.
pub struct TimedStream {
    socket: TimedSocket,
    tls: Option<Box<Connection>>,
}

/// The socket itself.
struct TimedSocket {
    socket: Arc<OwnedFd>,
    /// Without one, nothing is waited for.
    deadline: Option<Instant>,
    /// Bytes that were read before TLS began, and belong to it.
    early: Vec<u8>,
    /// Where that is asked for.
    sender: Option<Sender>,
}

/// The process that sent what came last, as far as the kernel tells.
#[derive(Default)]
struct Sender(Option<Pid>);

impl TimedStream {
    /// A connection on which nothing is waited for yet.
    #[must_use]
    pub fn new(socket: Arc<OwnedFd>) -> Self {
        Self { socket: TimedSocket { socket, deadline: None, early: Vec::new(), sender: None }, tls: None }
    }

    /// The connection for use before `deadline`. After that everything fails, however it is spread.
    pub fn until(&mut self, deadline: Instant) -> &mut Self {
        self.socket.deadline = Some(deadline);
        self
    }

    /// The connection for what can be done without waiting.
    pub fn at_once(&mut self) -> &mut Self {
        self.socket.deadline = None;
        self
    }

    /// Sends and receives all that follows through TLS, whose first bytes may have been read already. Its handshake comes
    /// with the first word.
    pub fn secure(&mut self, tls: impl Into<Connection>, early: Vec<u8>) {
        self.socket.early = early;
        self.tls = Some(Box::new(tls.into()));
    }

    /// Does the handshake of TLS.
    ///
    /// # Errors
    /// Those of rustls are inside.
    pub fn shake_hands(&mut self) -> io::Result<()> {
        self.tls.as_mut().map_or(Ok(()), |tls| tls.complete_io(&mut self.socket).map(drop))
    }

    /// Says that nothing more is sent, where TLS has words for that.
    pub fn end_tls(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let _ = tls.write_tls(&mut self.socket);
        }
    }

    /// Tells if the data that came through TLS says that nothing more does. Waits for nothing.
    pub fn has_ended_tls(&mut self) -> bool {
        use io::ErrorKind as Kind;
        let heard = self.tls.is_some().then(|| self.at_once().read(&mut [0]).map_err(|error| error.kind()));
        !matches!(heard, None | Some(Ok(1..) | Err(Kind::WouldBlock | Kind::Interrupted)))
    }

    /// Has the kernel say from now on which process sends what comes, on a Unix socket.
    ///
    /// # Errors
    /// The socket is none.
    pub fn ask_sender(&mut self) -> io::Result<()> {
        sockopt::set_socket_passcred(&self.socket.socket, true)?;
        self.socket.sender = Some(Sender::default());
        Ok(())
    }

    /// The process that sent what came last.
    #[must_use]
    pub fn sender(&self) -> Option<Pid> {
        self.socket.sender.as_ref()?.0
    }

    /// The socket itself, to look at it.
    #[must_use]
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.socket.as_fd()
    }

    /// The connection for a ring, which has no deadline.
    ///
    /// # Errors
    /// As `setsockopt`.
    pub fn into_parts(self) -> io::Result<(Arc<OwnedFd>, Option<Box<Connection>>)> {
        let socket = self.socket.socket;
        sockopt::set_socket_timeout(&socket, Timeout::Recv, None)?;
        sockopt::set_socket_timeout(&socket, Timeout::Send, None)?;
        Ok((socket, self.tls))
    }
}

impl Read for TimedStream {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let socket = &mut self.socket;
        match self.tls.as_deref_mut() {
            None => socket.read(target),
            Some(Connection::Client(tls)) => rustls::Stream::new(tls, socket).read(target),
            Some(Connection::Server(tls)) => rustls::Stream::new(tls, socket).read(target),
        }
    }
}

impl Write for TimedStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let socket = &mut self.socket;
        match self.tls.as_deref_mut() {
            None => socket.write(bytes),
            Some(Connection::Client(tls)) => rustls::Stream::new(tls, socket).write(bytes),
            Some(Connection::Server(tls)) => rustls::Stream::new(tls, socket).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let socket = &mut self.socket;
        match self.tls.as_deref_mut() {
            None => Ok(()),
            Some(Connection::Client(tls)) => rustls::Stream::new(tls, socket).flush(),
            Some(Connection::Server(tls)) => rustls::Stream::new(tls, socket).flush(),
        }
    }
}

impl TimedSocket {
    /// The result of a call that waits no longer than the deadline. A socket with a timeout says that it was interrupted
    /// when the process was merely stopped and goes on (signal(7)).
    fn uninterrupted(
        &mut self,
        direction: Timeout,
        mut call: impl FnMut(&mut Self) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            if let Some(deadline) = self.deadline {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                sockopt::set_socket_timeout(&self.socket, direction, Some(left))?;
            }
            match call(self) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

impl Read for TimedSocket {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        if !self.early.is_empty() {
            let len = self.early.len().min(target.len());
            target[..len].copy_from_slice(&self.early[..len]);
            self.early.drain(..len);
            return Ok(len);
        }
        let flags = if self.deadline.is_some() { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        self.uninterrupted(Timeout::Recv, |this| match &mut this.sender {
            None => Ok(rustix::net::recv(&this.socket, &mut *target, flags)?.0),
            Some(sender) => sender.receive(this.socket.as_fd(), target, flags),
        })
    }
}

impl Sender {
    /// Bytes of one process, and which one.
    fn receive(&mut self, socket: BorrowedFd<'_>, target: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [io::IoSliceMut::new(target)];
        let received = recvmsg(socket, &mut parts, &mut ancillary, flags | RecvFlags::CMSG_CLOEXEC)?;
        self.0 = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmCredentials(sender) => Some(sender.pid),
            _ => None,
        });
        Ok(received.bytes)
    }
}

impl Write for TimedSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let flags = if self.deadline.is_some() { SendFlags::empty() } else { SendFlags::DONTWAIT };
        self.uninterrupted(Timeout::Send, |this| send(&this.socket, bytes, flags))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
