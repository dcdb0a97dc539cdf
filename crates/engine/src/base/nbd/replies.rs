//! Replies of a server: headers into a buffer of the connection's, data into the requests' own.
//!
//! Nothing that comes is believed: a reply must be to a request that waits for one, its data must lie in what was
//! asked for, and no byte may come twice. Anything else ends the connection.

use cryptline_nbd::incoming::{INCOMING_LEN_MAX, Incoming, IncomingContent, parse_incoming};
use cryptline_nbd::reply::OFFSET_DATA_LEN;
use cryptline_nbd::wire::SIMPLE_REPLY_LEN;
use cryptline_sys::{Buffer, Ring};

use super::pending::NbdPending;
use super::queue::NbdQueue;
use crate::Completion;

/// Bytes received at a time while only short replies are expected.
pub(super) const SIZE: usize = 64 * 1024;
/// The data of a read of so many bytes is received into its buffer directly. Shorter ones come many at a time, and
/// are copied.
const LARGE: usize = 16 * 1024;

/// Kind of the bytes that come next, and what is expected.
pub(super) struct ReplyIntake {
    next: NextBytes,
    structured: bool,
    /// Parts that wait for an answer, and those of them with much data.
    expected: usize,
    large: usize,
}

/// Kind of the next bytes.
#[derive(Clone, Copy)]
enum NextBytes {
    Header,
    /// Data of a read, for its buffer from `at` on; `last` where its reply ends with it.
    Data {
        index: usize,
        at: usize,
        left: usize,
        last: bool,
    },
    /// Text that nobody reads.
    Text(usize),
}

/// The server broke the protocol.
pub(super) struct BrokenProtocol;

impl ReplyIntake {
    pub fn new(structured: bool) -> Self {
        Self { next: NextBytes::Header, structured, expected: 0, large: 0 }
    }

    /// Notes that the part of a request that begins is to be answered.
    pub fn expect_answer(&mut self, pending: &NbdPending) {
        self.expected += 1;
        self.large += usize::from(is_large(pending));
    }

    /// Notes that it is.
    pub fn take_answer(&mut self, pending: &NbdPending) {
        self.expected -= 1;
        self.large -= usize::from(is_large(pending));
    }

    /// Tells if all that was sent has been answered.
    pub fn is_answered(&self) -> bool {
        self.expected == 0
    }

    /// Tells if no message has come in part.
    pub fn expects_header(&self) -> bool {
        matches!(self.next, NextBytes::Header)
    }

    /// Nothing that was expected comes any more.
    pub fn forget(&mut self) {
        (self.expected, self.large) = (0, 0);
        self.next = NextBytes::Header;
    }

    /// How far a buffer with `unread` bytes may be filled: not beyond a header where much data can follow it.
    fn limit(&self, unread: usize) -> usize {
        let header = if self.structured { OFFSET_DATA_LEN } else { SIMPLE_REPLY_LEN };
        match unread {
            _ if self.large == 0 => SIZE,
            end if end < header => header,
            end => INCOMING_LEN_MAX.max(end + 1),
        }
    }
}

fn is_large(pending: &NbdPending) -> bool {
    pending.is_read() && pending.part() >= LARGE
}

impl NbdQueue {
    /// Receives more, while an answer is expected and nothing is being received.
    pub(super) fn receive(&mut self, ring: &mut Ring) {
        if self.connection.is_receiving() || self.intake.expected == 0 || !self.is_up() {
            return;
        }
        if let NextBytes::Data { index, at, left, .. } = self.intake.next
            && !self.connection.is_secure()
        {
            let pending = self.pending.get_mut(index);
            if let Some(buffer) = pending.and_then(|pending| pending.buffer.take())
                && let Some(buffer) = self.connection.receive_direct(ring, buffer, (at, left))
            {
                self.put_back(buffer);
            }
        } else {
            let limit = self.intake.limit(self.connection.unread().len());
            self.connection.receive(ring, limit);
        }
    }

    /// Gives the buffer of the read whose data comes back to it.
    fn put_back(&mut self, buffer: Buffer) {
        if let NextBytes::Data { index, .. } = self.intake.next
            && let Some(pending) = self.pending.get_mut(index)
        {
            pending.buffer = Some(buffer);
        }
    }

    /// Takes in a read's data that was received into its buffer.
    pub(super) fn received_direct(&mut self, buffer: Buffer, len: usize, done: &mut Vec<Completion>) {
        self.put_back(buffer);
        if self.is_up() && self.data_came(len, done).is_err() {
            self.give_up(done);
        }
        self.take_in(done);
    }

    /// Takes in what was received.
    pub(super) fn take_in(&mut self, done: &mut Vec<Completion>) {
        if !self.is_up() {
            return;
        }
        let taken = self.take_all(done);
        if taken.is_err() || self.connection.is_forged {
            self.give_up(done);
        } else if self.connection.ended {
            self.hang_up(done);
        }
    }

    /// Takes in what has come, though nothing is under way.
    pub(super) fn take_unasked(&mut self) {
        while self.is_up() && self.connection.receive_now() {
            self.take_in(&mut Vec::new());
        }
    }

    /// Takes all messages that are there.
    fn take_all(&mut self, done: &mut Vec<Completion>) -> Result<(), BrokenProtocol> {
        loop {
            let has_more = match self.intake.next {
                NextBytes::Header => {
                    let found = parse_incoming(self.connection.unread()).map_err(|_| BrokenProtocol)?;
                    if let Some((head, len)) = found {
                        self.connection.consume(len);
                        self.take_head(head, done)?;
                    }
                    found.is_some() || self.connection.refill()
                }
                NextBytes::Data { index, at, left, .. } => {
                    let pending = self.pending.get_mut(index).ok_or(BrokenProtocol)?;
                    let buffer = pending.buffer.as_deref_mut().ok_or(BrokenProtocol)?;
                    let len = self.connection.take_into(&mut buffer[at..at + left]);
                    self.data_came(len, done)?;
                    len > 0
                }
                NextBytes::Text(left) => {
                    let len = left.min(self.connection.unread().len());
                    self.connection.consume(len);
                    self.intake.next = text(left - len);
                    len > 0 || self.connection.refill()
                }
            };
            if !has_more {
                return Ok(());
            }
        }
    }

    fn take_head(&mut self, head: Incoming, done: &mut Vec<Completion>) -> Result<(), BrokenProtocol> {
        match head {
            Incoming::Simple { cookie, outcome } => {
                let index = self.find(cookie)?;
                let structured = self.intake.structured;
                let pending = self.pending.get_mut(index).ok_or(BrokenProtocol)?;
                match outcome {
                    Ok(()) if pending.is_read() && structured => Err(BrokenProtocol),
                    Ok(()) if pending.is_read() => {
                        let at = pending.place_all().ok_or(BrokenProtocol)?;
                        let left = pending.part();
                        self.expect_data(index, at, left, true, done)
                    }
                    Ok(()) => self.reply_ended(index, done),
                    Err(error) => {
                        pending.fail(error);
                        self.reply_ended(index, done)
                    }
                }
            }
            Incoming::Chunk { cookie, done: last, content } if self.intake.structured => {
                let index = self.find(cookie)?;
                self.take_chunk(index, content, last, done)
            }
            Incoming::Chunk { .. } => Err(BrokenProtocol),
        }
    }

    fn take_chunk(
        &mut self,
        index: usize,
        content: IncomingContent,
        last: bool,
        done: &mut Vec<Completion>,
    ) -> Result<(), BrokenProtocol> {
        let pending = self.pending.get_mut(index).ok_or(BrokenProtocol)?;
        match content {
            // It is there to end a reply.
            IncomingContent::None if !last => return Err(BrokenProtocol),
            IncomingContent::None => {}
            IncomingContent::Data { offset, length } => {
                let at = pending.place(offset, length).ok_or(BrokenProtocol)?;
                return self.expect_data(index, at, length as usize, last, done);
            }
            IncomingContent::Hole { offset, length } => {
                let at = pending.place(offset, length).ok_or(BrokenProtocol)?;
                let buffer = pending.buffer.as_deref_mut().ok_or(BrokenProtocol)?;
                buffer[at..at + length as usize].fill(0);
            }
            IncomingContent::Error { error, text: len } => {
                if !pending.fail(error) {
                    return Err(BrokenProtocol);
                }
                self.intake.next = text(len as usize);
            }
        }
        if last { self.reply_ended(index, done) } else { Ok(()) }
    }

    fn expect_data(
        &mut self,
        index: usize,
        at: usize,
        left: usize,
        last: bool,
        done: &mut Vec<Completion>,
    ) -> Result<(), BrokenProtocol> {
        self.intake.next = NextBytes::Data { index, at, left, last };
        self.data_came(0, done)
    }

    /// Notes that `len` bytes of a read's data have come. Ends it where all of it is there, and its reply where that was
    /// the last of it.
    fn data_came(&mut self, len: usize, done: &mut Vec<Completion>) -> Result<(), BrokenProtocol> {
        let NextBytes::Data { index, at, left, last } = &mut self.intake.next else {
            return Ok(());
        };
        (*at, *left) = (*at + len, left.saturating_sub(len));
        if *left > 0 {
            return Ok(());
        }
        let (index, last) = (*index, *last);
        self.intake.next = NextBytes::Header;
        if last { self.reply_ended(index, done) } else { Ok(()) }
    }

    fn reply_ended(&mut self, index: usize, done: &mut Vec<Completion>) -> Result<(), BrokenProtocol> {
        let pending = self.pending.get(index).ok_or(BrokenProtocol)?;
        let outcome = pending.outcome().ok_or(BrokenProtocol)?;
        self.answered(index, outcome, done);
        Ok(())
    }

    /// The request that waits for a reply with this cookie.
    fn find(&self, cookie: u64) -> Result<usize, BrokenProtocol> {
        let index = usize::try_from(cookie & u64::from(u32::MAX)).map_err(|_| BrokenProtocol)?;
        match self.pending.get(index) {
            Some(pending) if pending.cookie == Some(cookie) => Ok(index),
            _ => Err(BrokenProtocol),
        }
    }
}

fn text(left: usize) -> NextBytes {
    if left == 0 { NextBytes::Header } else { NextBytes::Text(left) }
}
