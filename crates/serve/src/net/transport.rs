//! The bytes of one connection, plain or through TLS, over its lane's ring.
//!
//! ```text
//! plain   socket ─► rx buffer ─► requests         replies ─► sendmsg, payloads not copied
//!         socket ─► the payload's own buffer      (large writes, not copied)
//! TLS     socket ─► raw ─► rustls ─► rx buffer     replies ─► rustls ─► raw ─► socket
//! ```
//!
//! At most one receive and one send are in flight. While a send is, replies collect in the next
//! batch, so a busy connection sends many with one system call.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use cryptline_net::Records;
use cryptline_sys::{Buffer, FileId, Io, RequestSource, Ring, RingDone, SendBatch};
use rustix::io::Errno;
use rustls::Connection;

use super::has_hung_up;

/// Bytes received at a time: many small requests, or a part of a large one.
const RX_SIZE: usize = 256 * 1024;
/// Room for replies: a wire takes no request for whose reply there may be none.
const BATCH_HEADER_BYTES: usize = 640 * 1024;
const BATCH_PARTS: usize = 1000;

const RECEIVE: u64 = 1;
const RECEIVE_DIRECT: u64 = 2;
const SEND: u64 = 3;

/// A connection that has been negotiated.
pub(crate) struct Connected {
    pub socket: Arc<OwnedFd>,
    pub tls: Option<Box<Connection>>,
    /// Plaintext that has arrived already.
    pub leftover: Vec<u8>,
}

pub(crate) struct NetTransport {
    socket: FileId,
    /// The socket itself, to look at it.
    fd: Arc<OwnedFd>,
    source: RequestSource,
    /// Plaintext received and not yet taken: `rx[start..end]`. In the ring during a plain receive.
    rx: Option<Buffer>,
    start: usize,
    end: usize,
    /// Replies collecting for the next send.
    pub filling: Box<SendBatch>,
    /// The batch to collect in while the other is being sent.
    spare: Option<Box<SendBatch>>,
    receiving: bool,
    sending: bool,
    /// Nothing more will come from the peer.
    pub ended: bool,
    /// Nothing more can be sent.
    pub broken: bool,
    tls: Option<Box<Records>>,
}

impl NetTransport {
    pub fn new(ring: &mut Ring, connected: Connected) -> io::Result<Self> {
        let Connected { socket, tls, leftover } = connected;
        let mut rx = Buffer::alloc(RX_SIZE.max(leftover.len()))?;
        rx[..leftover.len()].copy_from_slice(&leftover);
        let tls = tls.map(|tls| Records::new(*tls)).transpose()?.map(Box::new);
        let mut transport = Self {
            socket: ring.add_file(Arc::clone(&socket)),
            fd: socket,
            source: ring.add_source(),
            rx: Some(rx),
            start: 0,
            end: leftover.len(),
            filling: SendBatch::new(BATCH_HEADER_BYTES, BATCH_PARTS),
            spare: Some(SendBatch::new(BATCH_HEADER_BYTES, BATCH_PARTS)),
            receiving: false,
            sending: false,
            ended: false,
            broken: false,
            tls,
        };
        transport.decrypt_more();
        Ok(transport)
    }

    /// Received bytes not yet taken; none while a receive is in flight.
    pub fn unread(&self) -> &[u8] {
        self.rx.as_ref().map_or(&[], |rx| &rx[self.start..self.end])
    }

    /// Takes `len` bytes off the front of [`unread`](Self::unread).
    pub fn consume(&mut self, len: usize) {
        self.start += len;
        debug_assert!(self.start <= self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            self.decrypt_more();
        }
    }

    /// Moves received bytes to `target`; how many.
    pub fn take_into(&mut self, target: &mut [u8]) -> usize {
        let unread = self.unread();
        let len = unread.len().min(target.len());
        target[..len].copy_from_slice(&unread[..len]);
        self.consume(len);
        len
    }

    /// Makes bytes that were taken unread again. Everything else has been taken, and nothing is being received.
    pub fn put_back(&mut self, bytes: &[u8]) {
        debug_assert!(self.start == self.end, "what is unread comes behind");
        let Some(rx) = &mut self.rx else { unreachable!("nothing is being received") };
        rx[..bytes.len()].copy_from_slice(bytes);
        (self.start, self.end) = (0, bytes.len());
    }

    /// Finds out whether the peer is gone for good, so that nothing can be sent to it. A peer that has
    /// only closed its sending half is still there.
    pub fn look_for_peer(&mut self) {
        self.broken |= has_hung_up(&self.fd);
    }

    /// Tells if a receive is in flight.
    pub fn is_receiving(&self) -> bool {
        self.receiving
    }

    /// Tells if a payload can be received straight into its buffer.
    pub fn can_receive_direct(&self) -> bool {
        self.tls.is_none() && !self.receiving && !self.ended && self.unread().is_empty()
    }

    /// Tells if replies wait or are being sent.
    pub fn has_unsent(&self) -> bool {
        !self.broken
            && (self.sending
                || self.filling.remaining() > 0
                || self.spare.as_ref().is_some_and(|batch| batch.remaining() > 0)
                || self.tls.as_ref().is_some_and(|tls| tls.wants_to_send()))
    }

    /// Receives more behind what is unread, if nothing is being received.
    pub fn receive(&mut self, ring: &mut Ring) {
        if self.receiving || self.ended {
            return;
        }
        if let Some(tls) = &mut self.tls {
            if let Some(buffer) = tls.take_raw() {
                self.start_receive(ring, RECEIVE, buffer, 0);
            }
        } else if let Some(mut buffer) = self.rx.take() {
            buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            self.start_receive(ring, RECEIVE, buffer, self.end);
        }
    }

    /// Receives the rest of a payload straight into its buffer.
    pub fn receive_direct(&mut self, ring: &mut Ring, buffer: Buffer, start: usize) {
        debug_assert!(self.can_receive_direct());
        self.start_receive(ring, RECEIVE_DIRECT, buffer, start);
    }

    fn start_receive(&mut self, ring: &mut Ring, token: u64, buffer: Buffer, start: usize) {
        self.receiving = true;
        let io = Io::Receive { file: self.socket, len: buffer.len() - start, buffer, start };
        if ring.submit(self.source, token, io).is_err() {
            // The ring is made with room for the socket; without it the connection cannot go on.
            (self.receiving, self.ended) = (false, true);
        }
    }

    /// Sends what has collected, unless a send is in flight. Drops it where nothing more can be
    /// sent, with the buffers that what is still in flight may wait for.
    pub fn send(&mut self, ring: &mut Ring) {
        if self.broken {
            return self.filling.clear();
        }
        if self.sending {
            return;
        }
        let batch = match &mut self.tls {
            Some(tls) => tls.seal(&mut self.filling, |plain, len| {
                plain.advance(len);
            }),
            None if self.filling.remaining() == 0 => None,
            None => self.spare.take().map(|empty| std::mem::replace(&mut self.filling, empty)),
        };
        if let Some(batch) = batch {
            self.start_send(ring, batch);
        }
    }

    fn start_send(&mut self, ring: &mut Ring, batch: Box<SendBatch>) {
        self.sending = true;
        let io = Io::Send { file: self.socket, batch };
        if ring.submit(self.source, SEND, io).is_err() {
            (self.sending, self.broken) = (false, true);
        }
    }

    /// Takes in what the ring has for this connection: a payload's own buffer, where that was received
    /// into, and how many bytes came.
    pub fn reap(&mut self, ring: &mut Ring) -> Option<(Buffer, usize)> {
        let mut payload = None;
        while let Some(done) = ring.next_done(self.source) {
            match done.token {
                SEND => self.sent(ring, done),
                token => payload = self.received(token, done).or(payload),
            }
        }
        payload
    }

    fn received(&mut self, token: u64, done: RingDone) -> Option<(Buffer, usize)> {
        self.receiving = false;
        let Io::Receive { buffer, .. } = done.io else {
            return None;
        };
        // An interrupted receive has brought nothing, and is not the end.
        let is_interrupted = matches!(done.result, Err(Errno::INTR | Errno::AGAIN));
        let len = done.result.unwrap_or(0);
        self.ended |= len == 0 && !is_interrupted;
        if let Some(tls) = &mut self.tls {
            tls.put_raw(buffer, len);
            self.decrypt_more();
        } else if token == RECEIVE_DIRECT {
            return Some((buffer, len));
        } else {
            self.rx = Some(buffer);
            self.end += len;
        }
        None
    }

    fn sent(&mut self, ring: &mut Ring, done: RingDone) {
        self.sending = false;
        let Io::Send { mut batch, .. } = done.io else {
            return;
        };
        match done.result {
            Ok(len) => {
                if !batch.advance(len) {
                    return self.start_send(ring, batch);
                }
            }
            Err(Errno::INTR | Errno::AGAIN) => return self.start_send(ring, batch),
            Err(_) => {
                self.broken = true;
                batch.clear();
            }
        }
        match &mut self.tls {
            Some(tls) => tls.put_out(batch),
            None => self.spare = Some(batch),
        }
    }

    /// Decrypts what fits into `rx`. Nothing to do on a plain connection.
    fn decrypt_more(&mut self) {
        let (Some(tls), Some(rx)) = (&mut self.tls, &mut self.rx) else {
            return;
        };
        while self.end < rx.len() {
            match tls.open(&mut rx[self.end..]) {
                Ok(Some(len @ 1..)) => self.end += len,
                Ok(None) => return,
                // close_notify, or an end without one
                Ok(Some(_)) | Err(_) => return self.ended = true,
            }
        }
    }

    /// Decrypts more behind the unread bytes; whether there are now more of them. `false` on a
    /// plain connection: more has to be received.
    pub fn refill(&mut self) -> bool {
        if self.tls.is_none() {
            return false;
        }
        let before = self.unread().len();
        if let Some(rx) = &mut self.rx {
            rx.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        self.decrypt_more();
        self.unread().len() > before
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
