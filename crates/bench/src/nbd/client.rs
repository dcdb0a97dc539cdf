//! One connection as a [`Transport`]: requests sent in batches, replies out of a stream, each checked.
//!
//! A cookie is a slot's number and how often that slot was used before, so an answer that comes twice
//! or too late is not taken for another's.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use cryptline_nbd::client::{self, Reply};
use cryptline_nbd::request::RequestHeader;
use cryptline_nbd::wire::{REQUEST_LEN, SIMPLE_REPLY_LEN, cmd};

use super::connect::{Connection, describe};
use crate::Error;
use crate::contents::Contents;
use crate::load::Transport;
use crate::report::{Direction, Shape};

/// Pieces of memory in one send.
const PIECES: usize = 64;
/// Bytes received at a time: many small answers, or a piece of a large one that stays in the
/// second-level cache.
const BUFFER: usize = 256 * 1024;
/// Bits of a cookie that hold the slot.
const SLOT_BITS: u32 = 32;
/// What is written.
const PAYLOAD: u64 = 0x7772_6974_7465_6e21;

/// A connection in use. `take` is given what reads give: an offset, and bytes that lie there.
pub struct Client<F> {
    connection: Connection,
    command: u16,
    block: u32,
    slots: Vec<Slot>,
    /// Of requests that have not been sent. Room for all slots, so it is never reallocated.
    headers: Vec<u8>,
    /// What each write carries.
    payload: Vec<u8>,
    buffer: Vec<u8>,
    /// Received and not yet taken: `buffer[start..end]`, less than a reply's header.
    start: usize,
    end: usize,
    /// The slot whose data is coming, how much of it has come, and how much is to come.
    data: Option<(usize, u64, usize)>,
    /// When to give up.
    late: Instant,
    take: F,
}

/// One request in flight, or room for one.
#[derive(Clone, Copy, Default)]
struct Slot {
    offset: u64,
    generation: u32,
    in_flight: bool,
}

impl<F: FnMut(u64, &[u8]) -> Result<(), String>> Client<F> {
    /// For requests of this shape, until it is too late.
    pub fn new(connection: Connection, shape: Shape, late: Instant, take: F) -> Self {
        let depth = shape.depth as usize;
        let (command, payload) = match shape.direction {
            Direction::Read => (cmd::READ, 0),
            Direction::Write => (cmd::WRITE, shape.block as usize),
        };
        let mut client = Self {
            connection,
            command,
            block: shape.block,
            slots: vec![Slot::default(); depth],
            headers: Vec::with_capacity(depth * REQUEST_LEN),
            payload: vec![0; payload],
            buffer: vec![0; BUFFER],
            start: 0,
            end: 0,
            data: None,
            late,
            take,
        };
        Contents::new(PAYLOAD).fill(0, &mut client.payload);
        client
    }

    /// Changes the length of later reads; nothing may be in flight.
    pub fn set_block(&mut self, block: u32) {
        self.block = block;
    }

    /// Sends what was put aside, each header with the payload behind it.
    fn send(&mut self) -> Result<(), String> {
        let mut stream = &self.connection.stream;
        let sent = if self.payload.is_empty() {
            stream.write_all(&self.headers)
        } else {
            let mut batches = self.headers.chunks(REQUEST_LEN * PIECES / 2);
            batches.try_for_each(|batch| {
                let mut pieces = [IoSlice::new(&[]); PIECES];
                for (pair, header) in pieces.chunks_mut(2).zip(batch.chunks(REQUEST_LEN)) {
                    pair[0] = IoSlice::new(header);
                    pair[1] = IoSlice::new(&self.payload);
                }
                let count = batch.len() / REQUEST_LEN * 2;
                write_all_vectored(stream, &mut pieces[..count])
            })
        };
        self.headers.clear();
        sent.map_err(|error| describe(&error))
    }

    /// Waits for more, once.
    fn receive(&mut self) -> Result<(), String> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        match (&self.connection.stream).read(&mut self.buffer[self.end..]) {
            Ok(0) => Err("the server closed the connection".into()),
            Ok(len) => {
                self.end += len;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(describe(&error)),
        }
    }

    /// Takes all that was received, except a reply's header that is not whole yet.
    fn take_replies(&mut self, ended: &mut Vec<usize>) -> Result<(), String> {
        loop {
            let slot = if let Some((slot, at, left)) = self.data {
                let len = left.min(self.end - self.start);
                let bytes = &self.buffer[self.start..self.start + len];
                (self.take)(self.slots[slot].offset + at, bytes)?;
                self.start += len;
                if len < left {
                    self.data = Some((slot, at + len as u64, left - len));
                    return Ok(());
                }
                self.data = None;
                slot
            } else if self.end - self.start >= SIMPLE_REPLY_LEN {
                let slot = self.take_header()?;
                if self.command == cmd::READ {
                    self.data = Some((slot, 0, self.block as usize));
                    continue;
                }
                slot
            } else {
                return Ok(());
            };
            let landed = &mut self.slots[slot];
            landed.in_flight = false;
            landed.generation = landed.generation.wrapping_add(1);
            ended.push(slot);
        }
    }

    /// The slot whose request a reply says has succeeded.
    fn take_header(&mut self) -> Result<usize, String> {
        let header = &self.buffer[self.start..self.start + SIMPLE_REPLY_LEN];
        self.start += SIMPLE_REPLY_LEN;
        // A structured reply's header is longer, so of these bytes alone none can be made.
        let parsed = client::parse_reply(header).map_err(|error| error.to_string())?;
        let Some((Reply::Simple { cookie, outcome }, _)) = parsed else {
            return Err("the server sent a structured reply that was not agreed on".into());
        };
        let slot = self
            .find(cookie)
            .ok_or_else(|| format!("the server answered a request that was not sent (cookie {cookie:#x})"))?;
        outcome.map_err(|error| {
            let offset = self.slots[slot].offset;
            format!("the request at byte {offset} failed: {error:?}")
        })?;
        Ok(slot)
    }

    /// The slot that waits for `cookie`.
    fn find(&self, cookie: u64) -> Option<usize> {
        let index = usize::try_from(cookie & ((1 << SLOT_BITS) - 1)).ok()?;
        let slot = self.slots.get(index)?;
        let is_asked = slot.in_flight && u64::from(slot.generation) == cookie >> SLOT_BITS;
        is_asked.then_some(index)
    }

    fn exchange(&mut self, ended: &mut Vec<usize>) -> Result<(), String> {
        self.send()?;
        self.receive()?;
        self.take_replies(ended)?;
        if Instant::now() > self.late {
            return Err("the server is too slow to be measured".into());
        }
        Ok(())
    }
}

impl<F: FnMut(u64, &[u8]) -> Result<(), String>> Transport for Client<F> {
    fn size(&self) -> u64 {
        self.connection.size
    }

    fn submit(&mut self, slot: usize, offset: u64) -> Result<bool, Error> {
        let asked = &mut self.slots[slot];
        asked.offset = offset;
        asked.in_flight = true;
        let header = RequestHeader {
            flags: 0,
            command: self.command,
            cookie: u64::from(asked.generation) << SLOT_BITS | slot as u64,
            offset,
            length: self.block,
        };
        self.headers.extend_from_slice(&client::request(&header));
        Ok(false)
    }

    fn collect(&mut self, wait: bool, ended: &mut Vec<usize>) -> Result<(), Error> {
        // What has been put aside goes out when no more is to come, in one send.
        if wait {
            let exchanged = self.exchange(ended);
            let name = &self.connection.name;
            return exchanged.map_err(|why| Error::device(format!("{name}: {why}")));
        }
        Ok(())
    }
}

/// Sends all pieces.
pub fn write_all_vectored(mut stream: &UnixStream, mut pieces: &mut [IoSlice<'_>]) -> std::io::Result<()> {
    while !pieces.is_empty() {
        match stream.write_vectored(pieces) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(len) => IoSlice::advance_slices(&mut pieces, len),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
