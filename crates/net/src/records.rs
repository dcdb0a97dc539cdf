//! TLS between a ring and whoever reads and sends on a connection, as a server or as a client.
//!
//! ```text
//! socket ─► raw ─► rustls ─► whoever reads        batch ─► rustls ─► raw ─► socket
//! ```
//!
//! The handshake comes before, on a blocking stream.

use std::io::{self, Read as _, Write as _};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use cryptline_sys::{Arena, Buffer, SendBatch};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustls::crypto::CryptoProvider;
use rustls::{Connection, SupportedCipherSuite};

/// Ciphertext received at a time, bytes.
const IN_SIZE: usize = 256 * 1024;
/// Ciphertext sent at a time, bytes.
const OUT_SIZE: usize = 256 * 1024;

/// The cryptography of all connections.
///
/// Without AES-GCM in TLS 1.2: there a key is good for 2^24 records, and there is no other for the same connection, so
/// it would end in the middle of a large disk. TLS 1.3 makes new keys.
#[must_use]
pub fn provider() -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    let lasts = |suite: &SupportedCipherSuite| match suite {
        SupportedCipherSuite::Tls12(suite) => suite.common.confidentiality_limit > 1 << 40,
        SupportedCipherSuite::Tls13(_) => true,
    };
    provider.cipher_suites.retain(lasts);
    provider
}

/// The records of one connection. At most one receive and one send are in flight.
pub struct Records {
    connection: Connection,
    /// Ciphertext from the socket; in the ring during a receive.
    raw: Option<Buffer>,
    /// The part of `raw` that rustls has not seen yet.
    pending: Range<usize>,
    /// Ciphertext to the socket; in the ring during a send.
    out: Option<Box<SendBatch>>,
    out_memory: Arc<Arena>,
}

impl Records {
    /// The records of a connection after its handshake.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn new(mut connection: Connection) -> io::Result<Box<Self>> {
        // What is encrypted at a time is bounded here; with a limit of its own, rustls would refuse the rest of a
        // message of which it has taken the start.
        connection.set_buffer_limit(None);
        Ok(Box::new(Self {
            connection,
            raw: Some(Buffer::alloc(IN_SIZE)?),
            pending: 0..0,
            out: Some(SendBatch::new(0, 1)),
            out_memory: Arena::new(OUT_SIZE, 1)?,
        }))
    }

    /// Receives what has come, without waiting and without the ring. `None` while the buffer is there.
    pub fn receive_now(&mut self, socket: &OwnedFd) -> Option<Result<usize, Errno>> {
        let mut buffer = self.take_raw()?;
        let received = rustix::net::recv(socket, &mut buffer[..], RecvFlags::DONTWAIT).map(|(len, _)| len);
        self.put_raw(buffer, *received.as_ref().unwrap_or(&0));
        Some(received)
    }

    /// The buffer to receive into; `None` while it is in the ring.
    pub(crate) fn take_raw(&mut self) -> Option<Buffer> {
        debug_assert!(self.pending.is_empty(), "received bytes not taken yet");
        self.raw.take()
    }

    /// The buffer again, with `len` bytes that have come.
    pub(crate) fn put_raw(&mut self, buffer: Buffer, len: usize) {
        self.raw = Some(buffer);
        self.pending = 0..len;
    }

    /// Decrypts what has come into `target`. `None` where more has to be received first; 0 where the peer has said
    /// that there is no more.
    ///
    /// # Errors
    /// The bytes that came are not those that the peer has sent.
    pub fn open(&mut self, target: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match self.connection.reader().read(target) {
                Ok(len) => return Ok(Some(len)),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                Err(_) => {}
            }
            if !self.take_in()? {
                return Ok(None);
            }
        }
    }

    /// Feeds rustls some of the received ciphertext; `false` where there is none left.
    fn take_in(&mut self) -> io::Result<bool> {
        let Some(raw) = self.raw.as_ref().filter(|_| !self.pending.is_empty()) else {
            return Ok(false);
        };
        let mut bytes = &raw[self.pending.clone()];
        let taken = self.connection.read_tls(&mut bytes)?;
        self.pending.start += taken;
        let state = self.connection.process_new_packets();
        state.map_err(io::Error::other)?;
        Ok(taken > 0)
    }

    /// Tells if a send is in flight.
    pub(crate) fn is_sending(&self) -> bool {
        self.out.is_none()
    }

    /// Tells if there is something to send, or on its way, besides what callers give.
    pub(crate) fn has_unsent(&self) -> bool {
        self.out.as_ref().is_none_or(|batch| batch.remaining() > 0) || self.connection.wants_write()
    }

    /// Tells if nothing has come that was not taken. All must have been decrypted.
    pub(crate) fn is_empty(&self) -> bool {
        self.raw.is_some() && self.pending.is_empty()
    }

    /// Encrypts as much of `plain` as one send takes, and notes it there as sent. Gives what is to be sent; `None` while a
    /// send is in flight, and where there is nothing.
    pub(crate) fn seal(&mut self, plain: &mut SendBatch) -> Option<Box<SendBatch>> {
        let mut batch = self.out.take()?;
        if batch.remaining() == 0 && !self.fill(&mut batch, plain) {
            self.out = Some(batch);
            return None;
        }
        Some(batch)
    }

    fn fill(&mut self, batch: &mut SendBatch, plain: &mut SendBatch) -> bool {
        // Free again once the batch is sent.
        let Some(mut buffer) = self.out_memory.take() else {
            return false;
        };
        let mut taken = 0;
        for piece in plain.pieces() {
            // Half of the buffer: each record of 16 KiB grows by its header and tag.
            let room = (OUT_SIZE / 2).saturating_sub(taken);
            let piece = &piece[..piece.len().min(room)];
            if piece.is_empty() {
                break;
            }
            if self.connection.writer().write_all(piece).is_err() {
                // After an error nothing can be encrypted any more; what waits would keep the connection for ever.
                taken = plain.remaining();
                break;
            }
            taken += piece.len();
        }
        plain.note_sent(taken);
        let mut len = 0;
        while self.connection.wants_write() && len < buffer.len() {
            let mut room = &mut buffer[len..];
            match self.connection.write_tls(&mut room) {
                Ok(more) => len += more,
                Err(_) => break,
            }
        }
        if len > 0 {
            batch.push_payload(buffer, 0, len);
        }
        len > 0
    }

    /// `last` and the end of the connection, for a peer to whom nothing is on its way.
    pub fn farewell(&mut self, last: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let _ = self.connection.writer().write_all(last);
        self.connection.send_close_notify();
        while self.connection.wants_write() && self.connection.write_tls(&mut bytes).is_ok() {}
        bytes
    }

    /// The batch again, sent or to be sent on.
    pub(crate) fn put_out(&mut self, mut batch: Box<SendBatch>) {
        if batch.remaining() == 0 {
            batch.clear();
        }
        self.out = Some(batch);
    }
}
