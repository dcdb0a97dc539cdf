//! A request that crosses a border: what is known of it while it is in pieces.
//!
//! ```text
//!   front         back             below            rest
//! ├─ joined ─┼─ came early ─┼─ in other hands ─┼─ not yet cut ─┤      each a buffer of its own, cut
//!                                                                   from the request's and joined again
//! ```

use cryptline_sys::Buffer;

use super::map::{Map, Way};
use crate::{Combined, Completion, Fault, Operation, Request};

/// Pieces of one request below at a time.
pub(super) const WINDOW: usize = 8;

pub(super) struct Job {
    kind: Kind,
    offset: u64,
    token: u64,
    /// In bytes; of a flush, in devices.
    len: u64,
    /// How much of it has been sent.
    sent: u64,
    front: Option<Buffer>,
    /// Piece n in place n modulo the window.
    back: [Option<Buffer>; WINDOW],
    rest: Option<Buffer>,
    /// Numbers of pieces: the next one to send, and the next one to join.
    next: usize,
    joined: usize,
    below: usize,
    outcome: Combined,
}

/// Operation of a request in pieces.
#[derive(Clone, Copy)]
enum Kind {
    Read,
    Write { durable: bool },
    Flush,
    Discard,
    WriteZeroes { may_unmap: bool },
    Cache,
}

impl Job {
    /// Gives back what has neither a range nor is a flush: operations on zones.
    pub fn new(request: Request, map: &Map) -> Result<Self, Request> {
        let len = match &request.operation {
            Operation::Flush => map.devices() as u64,
            _ => request.len(),
        };
        let outcome = Combined::new(request.is_write());
        let Request { operation, offset, token } = request;
        let (kind, rest) = match operation {
            Operation::Read(buffer) => (Kind::Read, Some(buffer)),
            Operation::Write { data, durable } => (Kind::Write { durable }, Some(data)),
            Operation::Flush => (Kind::Flush, None),
            Operation::Discard { .. } => (Kind::Discard, None),
            Operation::WriteZeroes { may_unmap, .. } => (Kind::WriteZeroes { may_unmap }, None),
            Operation::Cache { .. } => (Kind::Cache, None),
            operation @ (Operation::ZoneAppend { .. } | Operation::Zone(_)) => {
                return Err(Request { operation, offset, token });
            }
        };
        Ok(Self {
            kind,
            offset,
            token,
            len,
            sent: 0,
            front: None,
            back: [const { None }; WINDOW],
            rest,
            next: 0,
            joined: 0,
            below: 0,
            outcome,
        })
    }

    /// Pieces that are below.
    pub fn below(&self) -> usize {
        self.below
    }

    /// Tells if there is something to send, now or later.
    pub fn has_more(&self) -> bool {
        !self.outcome.has_failed() && self.sent < self.len
    }

    /// Tells if all of it that was sent is back, and nothing more will be.
    pub fn is_over(&self) -> bool {
        self.below == 0 && !self.has_more()
    }

    /// Cuts off the next piece, if it may go now: its number, its way, and the request for it, with its
    /// place on the device below.
    pub fn next_piece(&mut self, map: &Map) -> Option<(usize, Way, Request)> {
        let apart = match self.kind {
            Kind::Read | Kind::Write { .. } => self.next - self.joined,
            _ => self.below,
        };
        if !self.has_more() || apart >= WINDOW {
            return None;
        }
        let number = self.next;
        let (way, offset, len) = if let Kind::Flush = self.kind {
            let way = Way { device: number, shift: 0 };
            (way, self.offset, 1)
        } else {
            let at = self.offset + self.sent;
            let (way, len) = map.find(at);
            (way, at.wrapping_add(way.shift), len.min(self.len - self.sent))
        };
        let operation = self.operation(len)?;
        self.sent += len;
        self.next += 1;
        self.below += 1;
        let request = Request { operation, offset, token: 0 };
        Some((number, way, request))
    }

    /// Returns the operation of a piece of the next `len` bytes.
    fn operation(&mut self, len: u64) -> Option<Operation> {
        Some(match self.kind {
            Kind::Read => Operation::Read(self.cut(len)?),
            Kind::Write { durable } => Operation::Write { data: self.cut(len)?, durable },
            Kind::Flush => Operation::Flush,
            Kind::Discard => Operation::Discard { len },
            Kind::WriteZeroes { may_unmap } => Operation::WriteZeroes { len, may_unmap },
            Kind::Cache => Operation::Cache { len },
        })
    }

    fn cut(&mut self, len: u64) -> Option<Buffer> {
        let len = usize::try_from(len).ok()?;
        let mut piece = self.rest.take()?;
        if len < piece.len() {
            self.rest = Some(piece.split_off(len));
        }
        Some(piece)
    }

    /// Takes a piece back.
    pub fn take_back(&mut self, number: usize, operation: Operation, result: Result<(), Fault>) {
        self.below -= 1;
        self.outcome.add(result);
        if let Operation::Read(buffer) | Operation::Write { data: buffer, .. } = operation {
            self.back[number % WINDOW] = Some(buffer);
            while let Some(buffer) = self.back[self.joined % WINDOW].take() {
                join(&mut self.front, buffer);
                self.joined += 1;
            }
        }
    }

    /// The request again, as it was submitted, and how it went.
    pub fn end(mut self) -> Completion {
        debug_assert!(self.is_over(), "a piece is still below");
        if let Some(rest) = self.rest.take() {
            join(&mut self.front, rest);
        }
        let len = self.len;
        let operation = match (self.kind, self.front) {
            (Kind::Read, Some(buffer)) => Operation::Read(buffer),
            (Kind::Write { durable }, Some(data)) => Operation::Write { data, durable },
            (Kind::Discard, _) => Operation::Discard { len },
            (Kind::WriteZeroes { may_unmap }, _) => Operation::WriteZeroes { len, may_unmap },
            (Kind::Cache, _) => Operation::Cache { len },
            (Kind::Flush, _) => Operation::Flush,
            (Kind::Read | Kind::Write { .. }, None) => {
                unreachable!("the pieces of a transfer are back")
            }
        };
        let request = Request { operation, offset: self.offset, token: self.token };
        request.complete(self.outcome.result())
    }
}

fn join(front: &mut Option<Buffer>, next: Buffer) {
    match front {
        Some(front) => front.join(next),
        None => *front = Some(next),
    }
}
