//! A connection before a lane serves it: blocking, with a deadline, TLS where it has been started.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection};

use super::Socket;
use super::tls::why_refused;

/// Bytes read at a time.
const PIECE: usize = 4096;

/// A connection that is being negotiated. It ends at its deadline, whatever the peer does.
pub(crate) struct TimedStream {
    timed: DeadlineSocket,
    tls: Option<ServerConnection>,
}

/// A connection that has been negotiated.
pub(crate) struct Connected {
    pub socket: Socket,
    pub tls: Option<ServerConnection>,
    /// Plaintext that has arrived already.
    pub leftover: Vec<u8>,
}

impl TimedStream {
    pub fn new(socket: Socket, timeout: Duration) -> Self {
        let timed = DeadlineSocket { socket, early: Vec::new(), deadline: Instant::now() + timeout };
        Self { timed, tls: None }
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) => {
                let mut stream = rustls::Stream::new(tls, &mut self.timed);
                stream.write_all(bytes)?;
                stream.flush()
            }
            None => self.timed.write_all(bytes),
        }
    }

    /// Reads what is there behind `input`, and waits where there is nothing. 0 at the end.
    pub fn read_some(&mut self, input: &mut Vec<u8>) -> io::Result<usize> {
        let before = input.len();
        // Not on the stack: the lane that follows would keep those pages.
        input.resize(before + PIECE, 0);
        let piece = &mut input[before..];
        let read = match &mut self.tls {
            Some(tls) => rustls::Stream::new(tls, &mut self.timed).read(piece),
            None => self.timed.read(piece),
        };
        input.truncate(before + read.as_ref().unwrap_or(&0));
        read
    }

    /// Goes over to TLS, whose first bytes may have been read already.
    pub fn start_tls(&mut self, config: &Arc<ServerConfig>, early: Vec<u8>) -> io::Result<()> {
        self.timed.early = early;
        let tls = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        let tls = self.tls.insert(tls);
        tls.complete_io(&mut self.timed).map_err(why_refused)?;
        Ok(())
    }

    /// The connection, without a deadline.
    pub fn into_connected(self, leftover: Vec<u8>) -> io::Result<Connected> {
        self.timed.socket.set_timeouts(None)?;
        Ok(Connected { socket: self.timed.socket, tls: self.tls, leftover })
    }
}

/// A socket with a deadline, and bytes that were read from it too early.
///
/// The deadline is set before every system call: a client that sends or reads a byte now and then, in
/// clear or inside the TLS handshake, does not stay for longer.
struct DeadlineSocket {
    socket: Socket,
    early: Vec<u8>,
    deadline: Instant,
}

impl DeadlineSocket {
    /// The result of a call that waits no longer than the deadline. A socket with a timeout says that it was interrupted
    /// when the process was merely stopped and goes on (signal(7)).
    fn uninterrupted(&mut self, mut call: impl FnMut(&mut Socket) -> io::Result<usize>) -> io::Result<usize> {
        loop {
            self.socket.set_deadline(self.deadline)?;
            match call(&mut self.socket) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

impl Read for DeadlineSocket {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        if self.early.is_empty() {
            return self.uninterrupted(|socket| socket.read(target));
        }
        let len = self.early.len().min(target.len());
        target[..len].copy_from_slice(&self.early[..len]);
        self.early.drain(..len);
        Ok(len)
    }
}

impl Write for DeadlineSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.uninterrupted(|socket| socket.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
