//! Replies out of a stream, checked. Data is handed on in the pieces in which it came.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;

use cryptline_nbd::client::{self, Reply};
use cryptline_nbd::wire::SIMPLE_REPLY_LEN;

use super::connect::describe;
use super::flight::Flight;

/// Bytes received at a time: many small answers, or a piece of a large one that stays in the
/// second-level cache.
const BUFFER: usize = 256 * 1024;

/// Takes what servers answer.
pub trait Sink {
    /// Data of the read in `slot`, which lies at `offset` on the disk.
    ///
    /// # Errors
    /// What is wrong with it.
    fn data(&mut self, slot: usize, offset: u64, bytes: &[u8]) -> Result<(), String>;
    /// The request in `slot` is done.
    fn done(&mut self, flight: &Flight, slot: usize);
}

/// The receiving half of a connection.
#[derive(Debug)]
pub struct Receiver {
    buffer: Vec<u8>,
    /// Received and not yet taken: `buffer[start..end]`, less than a reply's header.
    start: usize,
    end: usize,
    /// The slot whose data is coming, how much of it has come, and how much is to come.
    data: Option<(usize, u64, usize)>,
    /// Data that follows a reply, in bytes.
    length: usize,
}

impl Receiver {
    /// For replies with `length` bytes of data each.
    pub fn new(length: usize) -> Self {
        Self {
            buffer: vec![0; BUFFER],
            start: 0,
            end: 0,
            data: None,
            length,
        }
    }

    /// Waits for more, once.
    ///
    /// # Errors
    /// Nothing came in time, or the connection is closed.
    pub fn receive(&mut self, mut stream: &UnixStream) -> Result<(), String> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        match stream.read(&mut self.buffer[self.end..]) {
            Ok(0) => Err("the server closed the connection".into()),
            Ok(len) => {
                self.end += len;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(describe(&error)),
        }
    }

    /// Hands on all that has been received, except a reply's header that is not whole yet.
    ///
    /// # Errors
    /// What the server did wrong; the connection is of no use then.
    pub fn take(&mut self, flight: &mut Flight, sink: &mut impl Sink) -> Result<(), String> {
        loop {
            if let Some((slot, at, left)) = self.data {
                let len = left.min(self.end - self.start);
                if len == 0 {
                    return Ok(());
                }
                let bytes = &self.buffer[self.start..self.start + len];
                sink.data(slot, flight.slot(slot).offset + at, bytes)?;
                self.start += len;
                self.data = Some((slot, at + len as u64, left - len));
                if len == left {
                    self.data = None;
                    sink.done(flight, slot);
                    flight.land(slot);
                }
            } else if self.end - self.start >= SIMPLE_REPLY_LEN {
                self.header(flight, sink)?;
            } else {
                return Ok(());
            }
        }
    }

    fn header(&mut self, flight: &mut Flight, sink: &mut impl Sink) -> Result<(), String> {
        let header = &self.buffer[self.start..self.start + SIMPLE_REPLY_LEN];
        self.start += SIMPLE_REPLY_LEN;
        // A structured reply's header is longer, so of these bytes alone none can be made.
        let parsed = client::parse_reply(header).map_err(|error| error.to_string())?;
        let Some((Reply::Simple { cookie, outcome }, _)) = parsed else {
            return Err("the server sent a structured reply that was not agreed on".into());
        };
        let slot = flight.find(cookie).ok_or_else(|| {
            format!("the server answered a request that was not sent (cookie {cookie:#x})")
        })?;
        outcome.map_err(|error| {
            let offset = flight.slot(slot).offset;
            format!("the request at byte {offset} failed: {error:?}")
        })?;
        if self.length > 0 {
            self.data = Some((slot, 0, self.length));
        } else {
            sink.done(flight, slot);
            flight.land(slot);
        }
        Ok(())
    }
}
