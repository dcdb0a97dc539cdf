//! A request that crosses a border: what is known of it while it is in pieces.
//!
//! ```text
//!   front         back             below            rest
//! ├─ joined ─┼─ came early ─┼─ in other hands ─┼─ not yet cut ─┤      each a buffer of its own, cut
//!                                                                   from the request's and joined again
//! ```

use cryptline_sys::Buffer;

use super::map::{Map, Route};
use crate::{Combined, Completion, Fault, Op, Request};

/// Pieces of one request below at a time.
pub(super) const WINDOW: usize = 8;

pub(super) struct LinearJob {
    /// As it was submitted, without its data.
    head: Request,
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

impl LinearJob {
    /// Gives back what has neither a range nor is a flush: operations on zones.
    pub fn new(mut request: Request, map: &Map) -> Result<Self, Request> {
        if request.op.is_zoned() {
            return Err(request);
        }
        let len = if request.op == Op::Flush { map.devices() as u64 } else { request.len };
        Ok(Self {
            rest: request.data.take(),
            len,
            sent: 0,
            front: None,
            back: [const { None }; WINDOW],
            next: 0,
            joined: 0,
            below: 0,
            outcome: Combined::new(request.op.changes()),
            head: request,
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
    pub fn next_piece(&mut self, map: &Map) -> Option<(usize, Route, Request)> {
        let moves_data = self.head.op.moves_data();
        let apart = if moves_data { self.next - self.joined } else { self.below };
        if !self.has_more() || apart >= WINDOW {
            return None;
        }
        let number = self.next;
        let is_flush = self.head.op == Op::Flush;
        let (way, offset, step) = if is_flush {
            (Route { device: number, shift: 0 }, self.head.offset, 1)
        } else {
            let at = self.head.offset + self.sent;
            let (way, len) = map.find(at);
            (way, at.wrapping_add(way.shift), len.min(self.len - self.sent))
        };
        let data = if moves_data { Some(self.cut(step)?) } else { None };
        self.sent += step;
        self.next += 1;
        self.below += 1;
        let len = if is_flush { 0 } else { step };
        Some((number, way, Request { op: self.head.op, offset, data, len, token: 0 }))
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
    pub fn take_back(&mut self, number: usize, data: Option<Buffer>, result: Result<(), Fault>) {
        self.below -= 1;
        self.outcome.add(result);
        if let Some(buffer) = data {
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
        self.head.data = self.front;
        self.head.complete(self.outcome.result())
    }
}

fn join(front: &mut Option<Buffer>, next: Buffer) {
    match front {
        Some(front) => front.join(next),
        None => *front = Some(next),
    }
}
