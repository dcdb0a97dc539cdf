//! A connection without a ring: blocking, with a deadline, in the clear or through TLS.
//!
//! The handshake, the witness and block status wait for their answers, so they share this one. Certificates are read
//! once, when the device is opened.

use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Instant;

use cryptline_nbd::RequestHeader;
use cryptline_nbd::client::request;
use cryptline_nbd::wire::{REQUEST_LEN, cmd};
use cryptline_tls::Records;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg};
use rustix::process::Pid;
use rustls::ClientConnection;

/// A connection that somebody waits for.
pub(super) struct NbdLine {
    socket: OwnedFd,
    tls: Option<Box<ClientConnection>>,
    sender: Option<Sender>,
}

/// The process that sent what came last, as far as the kernel tells.
#[derive(Default)]
struct Sender(Option<Pid>);

impl NbdLine {
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket, tls: None, sender: None }
    }

    /// Has the kernel say from now on which process sends what comes, on a Unix socket.
    pub fn ask_sender(&mut self) -> io::Result<()> {
        sockopt::set_socket_passcred(&self.socket, true)?;
        self.sender = Some(Sender::default());
        Ok(())
    }

    /// The process that sent what came last.
    pub fn sender(&self) -> Option<Pid> {
        self.sender.as_ref()?.0
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends all that follows through TLS; its handshake comes with the first word.
    pub fn secure(&mut self, connection: ClientConnection) {
        self.tls = Some(Box::new(connection));
    }

    /// Returns the line for use before `deadline`. After that everything fails, however it is spread.
    pub fn until(&mut self, deadline: Instant) -> TimedLine<'_> {
        self.timed(Some(deadline))
    }

    /// Tells the server that nothing more comes. A courtesy, so it waits for nothing.
    pub fn say_goodbye(&mut self) {
        let mut timed = self.timed(None);
        let _ = timed.write_all(&goodbye());
        if let Some(tls) = timed.tls {
            tls.send_close_notify();
            let _ = tls.write_tls(&mut timed.plain);
        }
    }

    /// Tells if the data that came through TLS says that nothing more does. Waits for nothing.
    pub fn has_ended_tls(&mut self) -> bool {
        use io::ErrorKind as Kind;
        let mut timed = self.timed(None);
        let heard = timed.tls.is_some().then(|| timed.read(&mut [0]).map_err(|error| error.kind()));
        !matches!(heard, None | Some(Ok(1..) | Err(Kind::WouldBlock | Kind::Interrupted)))
    }

    /// The connection for a ring, which has no deadline.
    pub fn into_parts(self) -> io::Result<(OwnedFd, Option<Box<ClientConnection>>)> {
        sockopt::set_socket_timeout(&self.socket, Timeout::Recv, None)?;
        sockopt::set_socket_timeout(&self.socket, Timeout::Send, None)?;
        Ok((self.socket, self.tls))
    }

    fn timed(&mut self, deadline: Option<Instant>) -> TimedLine<'_> {
        let plain = PlainSocket { socket: self.socket.as_fd(), deadline, sender: self.sender.as_mut() };
        TimedLine { plain, tls: self.tls.as_deref_mut() }
    }
}

/// The same on a socket that a ring may still have.
pub(super) fn say_goodbye(socket: BorrowedFd<'_>, records: Option<&mut Records>) {
    let bye = goodbye();
    let sealed = records.map(|records| records.farewell(&bye));
    let _ = send(socket, sealed.as_deref().unwrap_or(&bye), SendFlags::DONTWAIT);
}

fn goodbye() -> [u8; REQUEST_LEN] {
    request(&RequestHeader { flags: 0, command: cmd::DISC, cookie: 0, offset: 0, length: 0 })
}

/// A [`NbdLine`] until its deadline.
pub(super) struct TimedLine<'a> {
    plain: PlainSocket<'a>,
    tls: Option<&'a mut ClientConnection>,
}

impl Read for TimedLine<'_> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(tls) => rustls::Stream::new(*tls, &mut self.plain).read(target),
            None => self.plain.read(target),
        }
    }
}

impl Write for TimedLine<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(tls) => rustls::Stream::new(*tls, &mut self.plain).write(bytes),
            None => self.plain.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The socket itself. Without a deadline nothing is waited for.
struct PlainSocket<'a> {
    socket: BorrowedFd<'a>,
    deadline: Option<Instant>,
    /// Where that is asked for.
    sender: Option<&'a mut Sender>,
}

impl PlainSocket<'_> {
    /// The result of a call. A socket with a timeout says that it was interrupted when the process was merely stopped and
    /// goes on (signal(7)).
    fn uninterrupted(
        &mut self,
        direction: Timeout,
        mut call: impl FnMut(&mut Self) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            self.hurry(direction)?;
            match call(self) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Lets the next call last no longer than there is time.
    fn hurry(&self, call: Timeout) -> io::Result<()> {
        let Some(deadline) = self.deadline else {
            return Ok(());
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(sockopt::set_socket_timeout(self.socket, call, Some(left))?)
    }
}

impl Read for PlainSocket<'_> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let flags = match self.deadline {
            Some(_) => RecvFlags::empty(),
            None => RecvFlags::DONTWAIT,
        };
        self.uninterrupted(Timeout::Recv, |plain| match &mut plain.sender {
            None => Ok(rustix::net::recv(plain.socket, &mut *target, flags)?.0),
            Some(sender) => sender.receive(plain.socket, target, flags),
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

impl Write for PlainSocket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let flags = match self.deadline {
            Some(_) => SendFlags::empty(),
            None => SendFlags::DONTWAIT,
        };
        self.uninterrupted(Timeout::Send, |plain| send(plain.socket, bytes, flags))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A library must not count on a program that ignores `SIGPIPE`. By `sendmsg`, the one call for sending that a server
/// keeps when it gives up its rights.
fn send(socket: BorrowedFd<'_>, bytes: &[u8], flags: SendFlags) -> io::Result<usize> {
    let nothing = &mut SendAncillaryBuffer::default();
    let pieces = [io::IoSlice::new(bytes)];
    Ok(rustix::net::sendmsg(socket, &pieces, nothing, flags | SendFlags::NOSIGNAL)?)
}
