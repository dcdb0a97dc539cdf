//! The connection of one client, over its lane's ring: [`BatchedConnection`] with the batch in which replies collect.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use cryptline_net::{BatchedConnection, ConnectionEvent, Records};
use cryptline_sys::{Buffer, Ring, SendBatch};
use rustls::Connection;

use super::has_hung_up;

/// Bytes received at a time: many small requests, or a part of a large one.
const RX_SIZE: usize = 256 * 1024;
/// Room for replies: a wire takes no request for whose reply there may be none.
const BATCH_HEADER_BYTES: usize = 640 * 1024;
const BATCH_PARTS: usize = 1000;

/// A connection that has been negotiated.
pub(crate) struct Connected {
    pub socket: Arc<OwnedFd>,
    pub tls: Option<Box<Connection>>,
    /// Plaintext that has arrived already.
    pub leftover: Vec<u8>,
}

/// A connection that is served.
pub(crate) struct NetTransport {
    pub connection: BatchedConnection,
    /// Replies collecting for the next send.
    pub filling: Box<SendBatch>,
}

impl NetTransport {
    pub fn new(ring: &mut Ring, connected: Connected) -> io::Result<Self> {
        let Connected { socket, tls, leftover } = connected;
        let mut received = Buffer::alloc(RX_SIZE.max(leftover.len()))?;
        received[..leftover.len()].copy_from_slice(&leftover);
        let records = tls.map(|tls| Records::new(*tls)).transpose()?;
        let batch = || SendBatch::new(BATCH_HEADER_BYTES, BATCH_PARTS);
        let connection = BatchedConnection::new(ring, (socket, records), (received, leftover.len()), batch());
        let mut transport = Self { connection, filling: batch() };
        transport.refill();
        Ok(transport)
    }

    /// Takes `len` bytes off the front of what is unread.
    pub fn consume(&mut self, len: usize) {
        self.connection.consume(len);
        self.show_more();
    }

    /// Moves received bytes to `target`; how many.
    pub fn take_into(&mut self, target: &mut [u8]) -> usize {
        let len = self.connection.take_into(target);
        self.show_more();
        len
    }

    /// Decrypts more once nothing is unread: by that is seen whether there is something to do.
    fn show_more(&mut self) {
        if self.connection.unread().is_empty() {
            self.refill();
        }
    }

    /// Decrypts what has come and fits behind the unread bytes; whether there are now more of them.
    pub fn refill(&mut self) -> bool {
        let mut has_more = false;
        while self.connection.refill() {
            has_more = true;
        }
        has_more
    }

    /// Finds out whether the peer is gone for good, so that nothing can be sent to it. A peer that has
    /// only closed its sending half is still there.
    pub fn look_for_peer(&mut self) {
        self.connection.is_broken |= has_hung_up(self.connection.socket());
    }

    /// Tells if a payload can be received straight into its buffer.
    pub fn can_receive_direct(&self) -> bool {
        let Self { connection, .. } = self;
        !connection.is_secure() && !connection.is_receiving() && !connection.ended && connection.unread().is_empty()
    }

    /// Tells if replies wait or are being sent.
    pub fn has_unsent(&self) -> bool {
        !self.connection.is_broken && (self.filling.remaining() > 0 || self.connection.has_unsent())
    }

    /// Sends what has collected, unless a send is in flight. Drops it where nothing more can be
    /// sent, with the buffers that what is still in flight may wait for.
    pub fn send(&mut self, ring: &mut Ring) {
        if self.connection.is_broken {
            self.filling.clear();
        } else if let Some(mut batch) = self.connection.take_batch() {
            if batch.remaining() == 0 {
                std::mem::swap(&mut batch, &mut self.filling);
            }
            self.connection.send(ring, batch);
        }
        self.drop_sent();
    }

    /// Drops what has been sent, or never will be.
    fn drop_sent(&mut self) {
        let is_broken = self.connection.is_broken;
        if let Some(batch) = self.connection.batch().filter(|batch| is_broken || batch.remaining() == 0) {
            batch.clear();
        }
    }

    /// Takes in what the ring has for this connection: a payload's own buffer, where that was received
    /// into, and how many bytes came.
    pub fn reap(&mut self, ring: &mut Ring) -> Option<(Buffer, usize)> {
        let mut payload = None;
        while let Some(event) = self.connection.reap(ring) {
            match event {
                ConnectionEvent::Sent => self.drop_sent(),
                ConnectionEvent::Received => _ = self.refill(),
                ConnectionEvent::ReceivedDirect(buffer, len) => payload = Some((buffer, len)),
            }
        }
        payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    #[test]
    fn peer_that_only_stops_sending_is_there_and_one_that_has_closed_is_gone() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let ours = OwnedFd::from(ours);
        assert!(!has_hung_up(&ours));
        theirs.shutdown(Shutdown::Write).unwrap();
        assert!(!has_hung_up(&ours));
        drop(theirs);
        assert!(has_hung_up(&ours));
    }

    #[test]
    fn tcp_peer_is_gone_when_it_refuses_what_it_is_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut ours = listener.accept().unwrap().0;
        let watched = OwnedFd::from(ours.try_clone().unwrap());
        theirs.shutdown(Shutdown::Write).unwrap();
        ours.write_all(b"read on").unwrap();
        assert!(!has_hung_up(&watched));
        // With something unread it goes with a reset.
        drop(theirs);
        while !has_hung_up(&watched) {
            std::thread::yield_now();
        }
    }
}
