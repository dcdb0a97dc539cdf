//! A request in pieces: what is known of it while its buffer is in several hands.
//!
//! ```text
//!   front         back             away            rest
//! ├─ joined ─┼─ came early ─┼─ in other hands ─┼─ not yet cut ─┤      each a buffer of its own, cut
//!                                                                   from the request's and joined again
//! ```
//!
//! Pieces are cut in the order of their places and come back in any. None is cut any more once one has failed; what was
//! not cut is joined with the rest in the end.

use cryptline_sys::Buffer;

use crate::{Combined, Completion, Fault, Op, Request};

/// A request of which at most `N` pieces are apart at a time.
pub(crate) struct InPieces<const N: usize> {
    /// As it was submitted, without its data.
    head: Request,
    /// In bytes; of a flush, in devices.
    len: u64,
    /// How much of it was cut off.
    sent: u64,
    front: Option<Buffer>,
    /// Piece n in place n modulo `N`.
    back: [Option<Buffer>; N],
    rest: Option<Buffer>,
    /// Numbers of pieces: the next one to cut, and the next one to join.
    next: usize,
    joined: usize,
    away: usize,
    outcome: Combined,
}

impl<const N: usize> InPieces<N> {
    /// The request `head`, of which `len` bytes are to be done; of a flush, a piece for each of `len` devices. A piece
    /// that has ended well `changes` the device or not.
    pub fn new(mut head: Request, len: u64, changes: bool) -> Self {
        Self {
            rest: head.data.take(),
            len,
            sent: 0,
            front: None,
            back: [const { None }; N],
            next: 0,
            joined: 0,
            away: 0,
            outcome: Combined::new(changes),
            head,
        }
    }

    /// The request, without its data.
    pub fn head(&self) -> &Request {
        &self.head
    }

    /// How much was cut off so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Pieces that have not come back.
    pub fn away(&self) -> usize {
        self.away
    }

    /// Tells if there is something to cut, now or later.
    pub fn has_more(&self) -> bool {
        !self.outcome.has_failed() && self.sent < self.len
    }

    /// Tells if all that was cut is back, and nothing more will be.
    pub fn is_over(&self) -> bool {
        self.away == 0 && !self.has_more()
    }

    /// Cuts off the next `len`, or what is left, if it may go now: the number of the piece, and a request for it.
    pub fn cut(&mut self, len: u64) -> Option<(usize, Request)> {
        let moves_data = self.head.op.moves_data();
        let apart = if moves_data { self.next - self.joined } else { self.away };
        if !self.has_more() || apart >= N {
            return None;
        }
        let len = len.min(self.len - self.sent);
        let data = if moves_data { Some(self.cut_data(len)?) } else { None };
        let op = self.head.op;
        let (at, bytes) = if op == Op::Flush { (0, 0) } else { (self.sent, len) };
        let piece = Request { op, offset: self.head.offset.wrapping_add(at), data, len: bytes, token: 0 };
        let number = self.next;
        self.sent += len;
        self.next += 1;
        self.away += 1;
        Some((number, piece))
    }

    fn cut_data(&mut self, len: u64) -> Option<Buffer> {
        let len = usize::try_from(len).ok()?;
        let mut piece = self.rest.take()?;
        if len < piece.len() {
            self.rest = Some(piece.split_off(len));
        }
        Some(piece)
    }

    /// Takes a piece back, and how it has gone.
    pub fn put(&mut self, number: usize, data: Option<Buffer>, result: Result<(), Fault>) {
        self.away -= 1;
        self.outcome.add(result);
        let Some(buffer) = data else { return };
        debug_assert!(number >= self.joined && self.back[number % N].is_none(), "a piece came back twice");
        self.back[number % N] = Some(buffer);
        while let Some(buffer) = self.back[self.joined % N].take() {
            join(&mut self.front, buffer);
            self.joined += 1;
        }
    }

    /// The request again, as it was submitted, and how it went.
    pub fn end(mut self) -> Completion {
        debug_assert!(self.is_over(), "a piece is still away");
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A write of `len` bytes at 4096, each of which tells its place.
    fn write(len: usize) -> (Request, Vec<u8>) {
        let mut buffer = Buffer::alloc(len).unwrap();
        (0..len).for_each(|at| buffer[at] = u8::try_from(at % 251).unwrap());
        let bytes = buffer.to_vec();
        (Request::write(4096, buffer, true, 9), bytes)
    }

    #[test]
    fn window_is_as_long_as_it_says_whatever_the_order_of_the_pieces() {
        let (request, bytes) = write(5000);
        let mut pieces = InPieces::<2>::new(request, 5000, true);
        let (first, mut one) = pieces.cut(1000).unwrap();
        let (second, mut two) = pieces.cut(1000).unwrap();
        assert_eq!((one.offset, two.offset, two.len, two.op), (4096, 5096, 1000, Op::WriteFua));
        assert!(one.is_consistent() && two.is_consistent());
        assert!(pieces.cut(1000).is_none() && pieces.has_more());
        pieces.put(second, two.data.take(), Ok(()));
        assert!(pieces.cut(1000).is_none(), "the first has its place");
        pieces.put(first, one.data.take(), Ok(()));
        let (last, rest) = pieces.cut(u64::MAX).unwrap();
        assert_eq!((rest.len, pieces.sent(), pieces.has_more(), pieces.is_over()), (3000, 5000, false, false));
        pieces.put(last, rest.data, Ok(()));
        assert!(pieces.is_over());
        let Completion { request, result } = pieces.end();
        assert_eq!((request.offset, request.len, request.token, result), (4096, 5000, 9, Ok(())));
        assert!(request.is_consistent() && request.data.unwrap()[..] == bytes[..]);
    }

    #[test]
    fn none_is_cut_after_a_fault_and_all_bytes_come_back() {
        let (request, bytes) = write(4000);
        let mut pieces = InPieces::<4>::new(request, 4000, true);
        let (one, two) = (pieces.cut(1000).unwrap(), pieces.cut(1000).unwrap());
        pieces.put(one.0, one.1.data, Err(Fault::NoSpace));
        assert!(!pieces.has_more() && pieces.cut(1000).is_none() && pieces.away() == 1);
        pieces.put(two.0, two.1.data, Err(Fault::Truncated));
        assert_eq!(pieces.sent(), 2000);
        let Completion { request, result } = pieces.end();
        assert_eq!(result, Err(Fault::Truncated), "the worst");
        assert!(request.data.unwrap()[..] == bytes[..]);
    }

    #[test]
    fn flush_is_a_piece_for_each_device_without_a_range() {
        let mut pieces = InPieces::<8>::new(Request::flush(3), 2, false);
        for number in 0..2 {
            let (at, piece) = pieces.cut(1).unwrap();
            assert_eq!((at, piece.op, piece.offset, piece.len), (number, Op::Flush, 0, 0));
        }
        assert!(pieces.cut(1).is_none());
        pieces.put(1, None, Ok(()));
        pieces.put(0, None, Ok(()));
        assert_eq!(pieces.end().result, Ok(()));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a piece came back twice")]
    fn piece_that_comes_back_twice_is_our_own_bug() {
        let mut pieces = InPieces::<4>::new(write(4000).0, 4000, true);
        let _ = (pieces.cut(1000), pieces.cut(1000), pieces.cut(1000));
        for _ in 0..2 {
            pieces.put(1, Some(Buffer::alloc(1000).unwrap()), Ok(()));
        }
    }
}
