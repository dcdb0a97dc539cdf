//! NBD's transmission phase as a lane sees it.
//!
//! ```text
//! socket ─► Transport ─► header ─► take ─► lane        intake
//!                    └─► payload ─► bring ─► lane
//! socket ◄─ Transport ◄─ replies ◄─ give, end ◄─ lane  answer
//! ```
//!
//! A client that does not read its replies is not read from: a request is taken only while the reply
//! batch has room for all that the requests taken so far can add.

mod answer;
mod intake;

use std::io;
use std::sync::Arc;

use cryptline_engine::{Buffer, Fault, Gate, Ring};
use cryptline_nbd::{ExportLimits, NbdError};

use crate::lane::{Brought, JobId, LaneRoom, Wire, WireInput, WriteChunk};
use crate::net::{Connected, NetTransport};
use crate::stats::LaneMeter;

/// Room in the reply batch kept for the requests already taken: as many largest reads as a lane has
/// jobs, all holes.
const REPLY_HEADER_RESERVE: usize = 300 * 1024;
const REPLY_PARTS_RESERVE: usize = 480;

/// Agreements for a connection in transmission, and the meter that counts.
pub(crate) struct Terms {
    pub gate: Gate,
    pub limits: ExportLimits,
    /// The number of the metadata context `base:allocation`.
    pub context: u32,
    pub meter: Option<Arc<LaneMeter>>,
}

/// One connection in transmission.
pub(crate) struct NbdWire {
    transport: NetTransport,
    terms: Terms,
    /// Bytes whose multiples a payload is cut at: no block or page of the device is written in two pieces.
    block: u64,
    expect: Expect,
    /// Reads taken so far: their numbers, since clients may use a cookie twice.
    reads: u64,
    /// Chunks of reads that have to be sent behind one header.
    parts: Vec<WaitingChunk>,
    /// No more requests are taken: the client said goodbye, is gone, or made no sense.
    closing: bool,
    breach: Option<String>,
}

/// Kind of the next bytes from the client.
enum Expect {
    Header,
    /// The payload of a write.
    Payload {
        /// End of the write on the disk.
        end: u64,
        /// Bytes that the lane does not have yet.
        left: u64,
        /// A chunk is begun when enough of it has arrived.
        may_begin_early: bool,
        wanted: Option<WantedChunk>,
    },
    /// The payload of a write that was refused.
    Drain {
        left: usize,
        cookie: u64,
        error: NbdError,
    },
}

/// A chunk of a payload that the lane waits for.
struct WantedChunk {
    job: JobId,
    len: usize,
    /// Away while it is received into.
    buffer: Option<Buffer>,
    filled: usize,
}

/// Data that a request's reply is made from.
#[derive(Clone, Copy)]
pub(crate) struct NbdTag {
    cookie: u64,
    form: NbdReplyForm,
}

#[derive(Clone, Copy)]
enum NbdReplyForm {
    /// Success or an error, and no data.
    Plain,
    /// The same; `ENOTSUP` is an answer that the client has asked for.
    FastZero,
    /// Data in structured chunks, each sent as it comes.
    Chunks { offset: u64 },
    /// All data behind one header: for clients without structured replies.
    Whole { number: u64, length: u32 },
}

/// A chunk that waits for the rest of its read.
struct WaitingChunk {
    read: u64,
    at: u64,
    data: Buffer,
}

impl NbdWire {
    pub fn new(ring: &mut Ring, connected: Connected, terms: Terms) -> io::Result<Self> {
        Ok(Self {
            transport: NetTransport::new(ring, connected)?,
            block: terms.gate.geometry().preferred_block.max(4096).into(),
            terms,
            expect: Expect::Header,
            reads: 0,
            parts: Vec::new(),
            closing: false,
            breach: None,
        })
    }
}

impl Wire for NbdWire {
    type Tag = NbdTag;

    fn take(&mut self, room: &LaneRoom) -> Option<WireInput<NbdTag>> {
        self.take_next(room)
    }

    fn bring(&mut self, _tag: NbdTag, chunk: WriteChunk, room: &LaneRoom) -> Brought {
        self.bring_payload(chunk, room)
    }

    fn give(&mut self, tag: NbdTag, at: u64, data: Buffer, last: bool) {
        self.send_data(tag, at, data, last);
    }

    fn end(&mut self, tag: NbdTag, result: Result<(), Fault>) {
        self.send_end(tag, result);
    }

    fn arm(&mut self, ring: &mut Ring, room: &LaneRoom) -> bool {
        self.transport.send(ring);
        // Who is gone is told so by being asked once more: `take` closes.
        let is_gone = self.transport.connection.is_broken && !self.closing;
        let more = is_gone || self.can_take_more(room);
        if !more {
            self.receive(ring, room);
        }
        more
    }

    fn reap(&mut self, ring: &mut Ring) {
        let arrived = self.transport.reap(ring);
        if let (Some((buffer, len)), Expect::Payload { wanted, .. }) = (arrived, &mut self.expect)
            && let Some(wanted) = wanted
        {
            wanted.buffer = Some(buffer);
            wanted.filled += len;
        }
    }

    fn stop(&mut self) {
        if matches!(self.expect, Expect::Header) {
            // What has arrived is the last that is taken.
            self.transport.connection.ended = true;
        }
    }

    fn is_over(&self) -> bool {
        self.closing && !self.transport.has_unsent()
    }

    fn look_for_peer(&mut self) {
        self.transport.look_for_peer();
    }

    fn is_gone(&self) -> bool {
        self.transport.connection.is_broken
    }

    fn breach(&self) -> Option<String> {
        self.breach.clone()
    }
}
