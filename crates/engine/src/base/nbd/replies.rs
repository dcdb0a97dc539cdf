//! Replies of a server: headers into a buffer of the queue's, data into the requests' own.
//!
//! Nothing that comes is believed: a reply must be to a request that waits for one, its data must lie in what was
//! asked for, and no byte may come twice. Anything else ends the connection.

use std::io;

use cryptline_nbd::incoming::{INCOMING_LEN_MAX, Incoming, IncomingContent, parse_incoming};
use cryptline_nbd::reply::OFFSET_DATA_LEN;
use cryptline_nbd::wire::SIMPLE_REPLY_LEN;
use cryptline_sys::{Buffer, Io, Ring};
use rustix::io::Errno;

use super::pending::NbdPending;
use super::queue::{NbdQueue, RECEIVE, RECEIVE_DATA, RECEIVE_SEALED};
use crate::Completion;
use crate::slab::Slab;

/// Bytes received at a time while only short replies are expected.
const SIZE: usize = 64 * 1024;
/// The data of a read of so many bytes is received into its buffer directly. Shorter ones come many at a time, and
/// are copied.
const LARGE: usize = 16 * 1024;

/// Bytes received and not yet taken, and the kind of those that come next.
pub(super) struct ReplyIntake {
    /// In the ring during a receive.
    buffer: Option<Buffer>,
    start: usize,
    end: usize,
    next: NextBytes,
    structured: bool,
    is_receiving: bool,
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
    pub fn new(structured: bool) -> io::Result<Self> {
        Ok(Self {
            buffer: Some(Buffer::alloc(SIZE)?),
            start: 0,
            end: 0,
            next: NextBytes::Header,
            structured,
            is_receiving: false,
            expected: 0,
            large: 0,
        })
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

    /// Tells if nothing is here, or on its way.
    pub fn is_empty(&self) -> bool {
        self.start == self.end && !self.is_receiving && matches!(self.next, NextBytes::Header)
    }

    /// Nothing that was expected comes any more.
    pub fn forget(&mut self) {
        (self.start, self.end) = (0, 0);
        (self.expected, self.large) = (0, 0);
        self.next = NextBytes::Header;
    }

    /// Tells if the ring has something to fill.
    pub fn is_receiving(&self) -> bool {
        self.is_receiving
    }

    fn unread(&self) -> &[u8] {
        let buffer = self.buffer.as_deref();
        buffer.map_or(&[], |bytes| &bytes[self.start..self.end])
    }

    fn consume(&mut self, len: usize) {
        self.start += len;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Where the next bytes belong, if they come one by one: a read's own buffer, or behind what is unread.
    pub fn target<'a>(&'a mut self, pending: &'a mut Slab<NbdPending>) -> Option<&'a mut [u8]> {
        if let NextBytes::Data { index, at, left, .. } = self.next
            && self.start == self.end
        {
            let buffer = pending.get_mut(index)?.buffer.as_deref_mut()?;
            return buffer.get_mut(at..at + left);
        }
        let buffer = self.buffer.as_deref_mut()?;
        buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        Some(&mut buffer[self.end..])
    }

    /// How far the buffer may be filled: not beyond a header where much data can follow it.
    fn limit(&self) -> usize {
        let header = if self.structured { OFFSET_DATA_LEN } else { SIMPLE_REPLY_LEN };
        match self.end {
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
        if self.intake.is_receiving || self.intake.expected == 0 || !self.is_up() {
            return;
        }
        if self.records().is_some() {
            return self.receive_sealed(ring);
        }
        if let NextBytes::Data { index, at, left, .. } = self.intake.next {
            let pending = self.pending.get_mut(index);
            let Some(buffer) = pending.and_then(|pending| pending.buffer.take()) else {
                return;
            };
            return self.start_receive(ring, RECEIVE_DATA, buffer, (at, left));
        }
        let intake = &mut self.intake;
        let Some(mut buffer) = intake.buffer.take() else {
            return;
        };
        buffer.copy_within(intake.start..intake.end, 0);
        (intake.start, intake.end) = (0, intake.end - intake.start);
        let (start, limit) = (intake.end, intake.limit());
        self.start_receive(ring, RECEIVE, buffer, (start, limit - start));
    }

    pub(super) fn start_receive(&mut self, ring: &mut Ring, token: u64, buffer: Buffer, (start, len): (usize, usize)) {
        let io = Io::Receive { file: self.socket, buffer, start, len };
        match ring.submit(self.source, token, io) {
            Ok(()) => self.intake.is_receiving = true,
            // Where the ring has no place, it has one when something else has ended.
            Err(Io::Receive { buffer, .. }) => self.put_back(token, buffer),
            Err(_) => unreachable!("an operation comes back as it was"),
        }
    }

    fn put_back(&mut self, token: u64, buffer: Buffer) {
        if token == RECEIVE {
            self.intake.buffer = Some(buffer);
        } else if token == RECEIVE_SEALED {
            if let Some(records) = self.records() {
                records.put_raw(buffer, 0);
            }
        } else if let NextBytes::Data { index, .. } = self.intake.next
            && let Some(pending) = self.pending.get_mut(index)
        {
            pending.buffer = Some(buffer);
        }
    }

    /// Takes in what was received.
    pub(super) fn received(
        &mut self,
        token: u64,
        buffer: Buffer,
        result: Result<usize, Errno>,
        done: &mut Vec<Completion>,
    ) {
        self.intake.is_receiving = false;
        if token == RECEIVE_SEALED {
            return self.received_sealed(buffer, result, done);
        }
        self.put_back(token, buffer);
        if !self.is_up() {
            return;
        }
        let len = match result {
            Err(Errno::INTR | Errno::AGAIN) => return,
            Ok(0) | Err(_) => return self.hang_up(done),
            Ok(len) => len,
        };
        let taken = match &mut self.intake.next {
            NextBytes::Data { at, left, .. } if token == RECEIVE_DATA => {
                (*at, *left) = (*at + len, left.saturating_sub(len));
                self.data_came(done)
            }
            _ => {
                self.intake.end += len;
                Ok(())
            }
        };
        if taken.and_then(|()| self.take_all(done)).is_err() {
            self.give_up(done);
        }
    }

    /// Takes in what was decrypted into the [target](Intake::target).
    pub(super) fn opened(&mut self, len: usize, done: &mut Vec<Completion>) -> Result<(), BrokenProtocol> {
        match &mut self.intake.next {
            NextBytes::Data { at, left, .. } if self.intake.start == self.intake.end => {
                (*at, *left) = (*at + len, left.saturating_sub(len));
                self.data_came(done)
            }
            _ => {
                self.intake.end += len;
                self.take_all(done)
            }
        }
    }

    /// Takes all messages that are there.
    fn take_all(&mut self, done: &mut Vec<Completion>) -> Result<(), BrokenProtocol> {
        while !self.intake.unread().is_empty() {
            match self.intake.next {
                NextBytes::Header => {
                    let found = parse_incoming(self.intake.unread()).map_err(|_| BrokenProtocol)?;
                    let Some((head, len)) = found else {
                        return Ok(());
                    };
                    self.intake.consume(len);
                    self.take_head(head, done)?;
                }
                NextBytes::Data { .. } => self.copy_data(done)?,
                NextBytes::Text(left) => {
                    let len = left.min(self.intake.unread().len());
                    self.intake.consume(len);
                    self.intake.next = text(left - len);
                }
            }
        }
        Ok(())
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
        self.copy_data(done)
    }

    /// Copies what has come of a read's data together with its header.
    fn copy_data(&mut self, done: &mut Vec<Completion>) -> Result<(), BrokenProtocol> {
        let NextBytes::Data { index, ref mut at, ref mut left, .. } = self.intake.next else {
            return Ok(());
        };
        let bytes = self.intake.buffer.as_deref();
        let unread = bytes.map_or(&[][..], |bytes| &bytes[self.intake.start..self.intake.end]);
        let len = unread.len().min(*left);
        let pending = self.pending.get_mut(index).ok_or(BrokenProtocol)?;
        let target = pending.buffer.as_deref_mut().ok_or(BrokenProtocol)?;
        target[*at..*at + len].copy_from_slice(&unread[..len]);
        (*at, *left) = (*at + len, *left - len);
        self.intake.consume(len);
        self.data_came(done)
    }

    /// Ends a read's data where all of it is there, and its reply where that was the last of it.
    fn data_came(&mut self, done: &mut Vec<Completion>) -> Result<(), BrokenProtocol> {
        match self.intake.next {
            NextBytes::Data { index, left: 0, last, .. } => {
                self.intake.next = NextBytes::Header;
                if last { self.reply_ended(index, done) } else { Ok(()) }
            }
            _ => Ok(()),
        }
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
