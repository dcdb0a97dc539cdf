//! The handshake of one connection, on a blocking socket with a deadline.
//!
//! It happens once a connection and is no part of the data path, so it is written plainly: read
//! some bytes, feed the codec, send what it says, start TLS when it says so.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection};

use super::clients::{Member, NoPlace};
use super::socket::Socket;
use super::tls::why_refused;
use cryptline_nbd::{Handshake, Negotiated, ProtocolError, ServerOffer, Step};

/// Why a handshake did not lead to transmission.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    #[error("{0}")]
    Protocol(#[from] ProtocolError),
    #[error("client left or stalled during the handshake: {0}")]
    Io(#[from] io::Error),
    #[error("TLS handshake failed: {0}")]
    Tls(io::Error),
    #[error("{0}")]
    NoPlace(#[from] NoPlace),
}

/// A client ready to send requests.
pub(super) struct Accepted {
    pub negotiated: Negotiated,
    pub socket: Socket,
    pub tls: Option<ServerConnection>,
    /// Plaintext that arrived behind the handshake.
    pub leftover: Vec<u8>,
}

/// A socket with a deadline, and bytes that were read from it too early.
///
/// The deadline is set before every system call: a client may neither send nor read a byte now
/// and then, in clear or inside the TLS handshake, to stay for longer.
struct Early {
    socket: Socket,
    bytes: Vec<u8>,
    deadline: Instant,
}

impl Read for Early {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        if self.bytes.is_empty() {
            self.socket.set_deadline(self.deadline)?;
            return self.socket.read(target);
        }
        let len = self.bytes.len().min(target.len());
        target[..len].copy_from_slice(&self.bytes[..len]);
        self.bytes.drain(..len);
        Ok(len)
    }
}

impl Write for Early {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_deadline(self.deadline)?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs the handshake; `None` where the client ended it by its own wish. At its end the client has a
/// place in transmission, or is told nothing more.
pub(super) fn negotiate(
    socket: Socket,
    member: &Member,
    offer: &Arc<ServerOffer>,
    tls_config: Option<&Arc<ServerConfig>>,
    timeout: Duration,
) -> Result<Option<Accepted>, HandshakeError> {
    let mut state = Handshake::new(Arc::clone(offer));
    let mut channel = Channel {
        io: Early {
            socket,
            bytes: Vec::new(),
            deadline: Instant::now() + timeout,
        },
        tls: None,
    };
    match haggle(&mut state, &mut channel, member, tls_config) {
        Ok(Some((negotiated, leftover))) => {
            channel.io.socket.set_timeouts(None)?;
            Ok(Some(channel.accepted(negotiated, leftover)))
        }
        // It went; after a refusal that somebody at the server can do something about.
        Ok(None) | Err(HandshakeError::Io(_)) if state.block_size_refused() => {
            Err(ProtocolError::BlockSizeRequired.into())
        }
        Ok(None) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Until transmission begins, with what came behind the handshake, or the client ends it.
fn haggle(
    state: &mut Handshake,
    channel: &mut Channel,
    member: &Member,
    tls_config: Option<&Arc<ServerConfig>>,
) -> Result<Option<(Negotiated, Vec<u8>)>, HandshakeError> {
    channel.write(&state.greeting())?;
    let (mut input, mut output) = (Vec::new(), Vec::new());
    loop {
        let progress = state.feed(&input, &mut output)?;
        input.drain(..progress.consumed);
        if let Step::Transmission(_) = progress.step {
            member.begin_transmission()?;
        }
        channel.write(&output)?;
        output.clear();
        match progress.step {
            Step::NeedMore if progress.consumed > 0 && !input.is_empty() => {}
            Step::NeedMore => {
                if channel.read_some(&mut input)? == 0 {
                    return Ok(None);
                }
            }
            Step::StartTls => {
                channel.io.bytes = std::mem::take(&mut input);
                channel.start_tls(tls_config)?;
            }
            Step::Close => return Ok(None),
            Step::Transmission(negotiated) => return Ok(Some((negotiated, input))),
        }
    }
}

struct Channel {
    io: Early,
    tls: Option<ServerConnection>,
}

impl Channel {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) => {
                let mut stream = rustls::Stream::new(tls, &mut self.io);
                stream.write_all(bytes)?;
                stream.flush()
            }
            None => self.io.write_all(bytes),
        }
    }

    fn read_some(&mut self, input: &mut Vec<u8>) -> io::Result<usize> {
        let mut piece = [0; 4096];
        let len = match &mut self.tls {
            Some(tls) => rustls::Stream::new(tls, &mut self.io).read(&mut piece)?,
            None => self.io.read(&mut piece)?,
        };
        input.extend_from_slice(&piece[..len]);
        Ok(len)
    }

    fn start_tls(&mut self, config: Option<&Arc<ServerConfig>>) -> Result<(), HandshakeError> {
        let config =
            config.ok_or_else(|| HandshakeError::Tls(io::ErrorKind::Unsupported.into()))?;
        let mut tls = ServerConnection::new(Arc::clone(config))
            .map_err(|error| HandshakeError::Tls(io::Error::other(error)))?;
        tls.complete_io(&mut self.io)
            .map_err(|error| HandshakeError::Tls(why_refused(error)))?;
        self.tls = Some(tls);
        Ok(())
    }

    fn accepted(self, negotiated: Negotiated, leftover: Vec<u8>) -> Accepted {
        Accepted {
            negotiated,
            socket: self.io.socket,
            tls: self.tls,
            leftover,
        }
    }
}
