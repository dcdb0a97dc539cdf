//! One connection over a ring, plain or through TLS, for whoever batches what is sent.
//!
//! ```text
//! plain   socket ─► received bytes ─► whoever reads        batch ─► sendmsg, payloads not copied
//!         socket ─► a payload's own buffer
//! TLS     socket ─► raw ─► rustls ─► either of them        batch ─► rustls ─► raw ─► socket
//! ```
//!
//! At most one receive and one send are in flight. While a send is, the owner collects what is sent next, so a busy
//! connection sends much with one system call. What the ring has no place for is tried again when the owner comes next:
//! by then something else has ended.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use cryptline_sys::{Buffer, FileId, Io, RequestSource, Ring, SendBatch};
use rustix::io::Errno;

use crate::Records;

const RECEIVE: u64 = 1;
const RECEIVE_DIRECT: u64 = 2;
const SEND: u64 = 3;

/// A connection in transmission.
pub struct BatchedConnection {
    file: FileId,
    source: RequestSource,
    /// The socket itself, to look at it.
    socket: Arc<OwnedFd>,
    records: Option<Box<Records>>,
    /// Received and not yet taken: `received[start..end]`. In the ring during a plain receive.
    received: Option<Buffer>,
    start: usize,
    end: usize,
    is_receiving: bool,
    /// To be sent, or with TLS to be encrypted. In the ring during a plain send.
    batch: Option<Box<SendBatch>>,
    /// Nothing more comes from the peer.
    pub ended: bool,
    /// Set where bytes that came through TLS were not sent by the peer.
    pub is_forged: bool,
    /// Nothing more can be sent.
    pub is_broken: bool,
}

/// An operation that has ended.
#[derive(Debug)]
pub enum ConnectionEvent {
    /// A send, of all or some.
    Sent,
    /// A receive behind what is unread. Through TLS it is [still encrypted](BatchedConnection::refill).
    Received,
    /// A receive into a buffer of the owner's, and how many bytes came.
    ReceivedDirect(Buffer, usize),
}

impl BatchedConnection {
    /// A connection that receives into `received`, whose first bytes have come already, and sends from `batch`.
    pub fn new(
        ring: &mut Ring,
        (socket, records): (Arc<OwnedFd>, Option<Box<Records>>),
        (received, unread): (Buffer, usize),
        batch: Box<SendBatch>,
    ) -> Self {
        Self {
            file: ring.add_file(Arc::clone(&socket)),
            source: ring.add_source(),
            socket,
            records,
            received: Some(received),
            start: 0,
            end: unread,
            is_receiving: false,
            batch: Some(batch),
            ended: false,
            is_forged: false,
            is_broken: false,
        }
    }

    /// Takes another socket in place of one of which the ring has nothing. `false` where the ring refuses it.
    pub fn replace(&mut self, ring: &mut Ring, socket: Arc<OwnedFd>, records: Option<Box<Records>>) -> bool {
        if !ring.replace_file(self.file, Arc::clone(&socket)) {
            return false;
        }
        (self.start, self.end) = (0, 0);
        (self.ended, self.is_forged, self.is_broken) = (false, false, false);
        (self.socket, self.records) = (socket, records);
        true
    }

    /// The socket itself.
    #[must_use]
    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Tells if the connection is one through TLS.
    #[inline]
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.records.is_some()
    }

    /// The records, for one who uses the socket afterwards.
    pub fn take_records(&mut self) -> Option<Box<Records>> {
        self.records.take()
    }

    /// Received bytes not yet taken; none while a plain receive is in flight.
    #[inline]
    #[must_use]
    pub fn unread(&self) -> &[u8] {
        self.received.as_ref().map_or(&[], |received| &received[self.start..self.end])
    }

    /// Takes `len` bytes off the front of [`unread`](Self::unread).
    #[inline]
    pub fn consume(&mut self, len: usize) {
        self.start += len;
        debug_assert!(self.start <= self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Moves received bytes to `target`; how many. Where none are unread, decrypts what has come straight into it.
    #[inline]
    pub fn take_into(&mut self, target: &mut [u8]) -> usize {
        let unread = self.unread();
        if unread.is_empty() {
            return self.open(target);
        }
        let len = unread.len().min(target.len());
        target[..len].copy_from_slice(&unread[..len]);
        self.consume(len);
        len
    }

    /// Makes bytes that were taken unread again. Everything else has been taken, and nothing is being received.
    pub fn put_back(&mut self, bytes: &[u8]) {
        debug_assert!(self.start == self.end, "what is unread comes behind");
        let Some(received) = &mut self.received else { unreachable!("nothing is being received") };
        received[..bytes.len()].copy_from_slice(bytes);
        (self.start, self.end) = (0, bytes.len());
    }

    /// Decrypts some more behind the unread bytes; whether there are now more of them. `false` on a plain connection:
    /// more has to be received.
    #[inline]
    pub fn refill(&mut self) -> bool {
        self.is_secure() && self.decrypt()
    }

    fn decrypt(&mut self) -> bool {
        let Some(mut received) = self.received.take() else {
            return false;
        };
        self.make_room(&mut received);
        let len = self.open(&mut received[self.end..]);
        self.end += len;
        self.received = Some(received);
        len > 0
    }

    /// Decrypts what has come into `target`; 0 where there is no more for now, or ever.
    fn open(&mut self, target: &mut [u8]) -> usize {
        let Some(records) = self.records.as_deref_mut().filter(|_| !target.is_empty()) else {
            return 0;
        };
        match records.open(target) {
            Ok(Some(0)) => self.ended = true,
            Ok(len) => return len.unwrap_or(0),
            Err(_) => (self.ended, self.is_forged) = (true, true),
        }
        0
    }

    /// Moves what is unread to the front.
    fn make_room(&mut self, received: &mut Buffer) {
        if self.start > 0 {
            received.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
    }

    /// Tells if a receive is in flight.
    #[inline]
    #[must_use]
    pub fn is_receiving(&self) -> bool {
        self.is_receiving
    }

    /// Receives more behind what is unread, until there are at most `limit` bytes, if nothing is being received. All that
    /// has come through TLS is decrypted already.
    pub fn receive(&mut self, ring: &mut Ring, limit: usize) {
        if self.is_receiving || self.ended {
            return;
        }
        let back = if let Some(records) = &mut self.records {
            let Some(raw) = records.take_raw() else { return };
            let len = raw.len();
            self.start_receive(ring, RECEIVE, raw, (0, len))
        } else {
            let Some(mut received) = self.received.take() else { return };
            self.make_room(&mut received);
            let place = (self.end, limit.min(received.len()) - self.end);
            self.start_receive(ring, RECEIVE, received, place)
        };
        if let Some(buffer) = back {
            self.put_received(buffer, 0);
        }
    }

    /// Receives straight into a buffer of the owner's: from which byte on, and at most how many. Nothing is unread, nothing
    /// is being received, and there is no TLS. The buffer comes back where the ring has no place.
    #[must_use]
    pub fn receive_direct(&mut self, ring: &mut Ring, buffer: Buffer, place: (usize, usize)) -> Option<Buffer> {
        debug_assert!(!self.is_secure() && !self.is_receiving && self.unread().is_empty());
        self.start_receive(ring, RECEIVE_DIRECT, buffer, place)
    }

    fn start_receive(
        &mut self,
        ring: &mut Ring,
        token: u64,
        buffer: Buffer,
        (start, len): (usize, usize),
    ) -> Option<Buffer> {
        let io = Io::Receive { file: self.file, buffer, start, len };
        match ring.submit(self.source, token, io) {
            Ok(()) => {
                self.is_receiving = true;
                None
            }
            Err(Io::Receive { buffer, .. }) => Some(buffer),
            Err(_) => unreachable!("an operation comes back as it was"),
        }
    }

    /// The buffer that was received into, with `len` more bytes.
    fn put_received(&mut self, buffer: Buffer, len: usize) {
        match &mut self.records {
            Some(records) => records.put_raw(buffer, len),
            None => {
                self.received = Some(buffer);
                self.end += len;
            }
        }
    }

    /// Receives what has come through TLS, without waiting and without the ring. `false` where nothing has.
    pub fn receive_now(&mut self) -> bool {
        let received = self.records.as_mut().and_then(|records| records.receive_now(&self.socket));
        match received {
            None | Some(Err(Errno::AGAIN | Errno::INTR)) => return false,
            Some(Ok(1..)) => {}
            Some(_) => self.ended = true,
        }
        true
    }

    /// Tells if a send is in flight.
    #[inline]
    #[must_use]
    pub fn is_sending(&self) -> bool {
        self.batch.is_none() || self.records.as_ref().is_some_and(|records| records.is_sending())
    }

    /// Tells if something is being sent, or waits for it.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.is_sending()
            || self.batch.as_ref().is_some_and(|batch| batch.remaining() > 0)
            || self.records.as_ref().is_some_and(|records| records.has_unsent())
    }

    /// The batch, with what is left to be sent, unless something is being sent. To be given to [`send`](Self::send); bytes
    /// are added only where nothing is left, and payloads that were sent have been taken out.
    #[inline]
    #[must_use]
    pub fn take_batch(&mut self) -> Option<Box<SendBatch>> {
        if self.is_sending() { None } else { self.batch.take() }
    }

    /// Sends `batch`, or as much of it as TLS takes at a time.
    pub fn send(&mut self, ring: &mut Ring, mut batch: Box<SendBatch>) {
        let out = match &mut self.records {
            Some(records) => {
                let sealed = records.seal(&mut batch);
                self.batch = Some(batch);
                sealed
            }
            None if batch.remaining() > 0 => Some(batch),
            None => {
                self.batch = Some(batch);
                None
            }
        };
        let Some(batch) = out else { return };
        if let Err(Io::Send { batch, .. }) = ring.submit(self.source, SEND, Io::Send { file: self.file, batch }) {
            self.put_out(batch);
        }
    }

    /// The batch, where it is here: its payloads are needed no more once [nothing of it](SendBatch::remaining) remains.
    #[inline]
    pub fn batch(&mut self) -> Option<&mut SendBatch> {
        self.batch.as_deref_mut()
    }

    fn put_out(&mut self, batch: Box<SendBatch>) {
        match &mut self.records {
            Some(records) => records.put_out(batch),
            None => self.batch = Some(batch),
        }
    }

    /// Takes in one operation of this connection that the ring has ended.
    pub fn reap(&mut self, ring: &mut Ring) -> Option<ConnectionEvent> {
        let done = ring.next_done(self.source)?;
        match done.io {
            Io::Receive { buffer, .. } => Some(self.note_received(done.token, buffer, done.result)),
            Io::Send { batch, .. } => {
                self.note_sent(batch, done.result);
                Some(ConnectionEvent::Sent)
            }
            _ => unreachable!("an operation comes back as it was"),
        }
    }

    fn note_received(&mut self, token: u64, buffer: Buffer, result: Result<usize, Errno>) -> ConnectionEvent {
        self.is_receiving = false;
        // An interrupted receive has brought nothing, and is not the end.
        let is_interrupted = matches!(result, Err(Errno::INTR | Errno::AGAIN));
        let len = result.unwrap_or(0);
        self.ended |= len == 0 && !is_interrupted;
        if token == RECEIVE_DIRECT {
            return ConnectionEvent::ReceivedDirect(buffer, len);
        }
        self.put_received(buffer, len);
        ConnectionEvent::Received
    }

    fn note_sent(&mut self, mut batch: Box<SendBatch>, result: Result<usize, Errno>) {
        match result {
            Ok(len) => {
                batch.note_sent(len);
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => self.is_broken = true,
        }
        self.put_out(batch);
    }

    /// Tells if nothing is in flight, unread or unsent. All that has come must have been decrypted.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let is_empty = self.unread().is_empty() && self.records.as_ref().is_none_or(|records| records.is_empty());
        is_empty && !self.is_receiving && !self.has_unsent()
    }
}
