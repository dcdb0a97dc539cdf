//! A request whose parts the medium, helpers and this thread have meanwhile: into how many it is cut, and what becomes
//! of a part that the cipher has done.

use cryptline_sys::Buffer;

use crate::pieces::InPieces;
use crate::{Op, Request};

/// Pieces of one request at most.
pub(super) const PARTS_MAX: usize = 32;
/// Pieces are whole units of this many bytes: the largest cipher sector.
pub(super) const UNIT: usize = 4096;

/// How a request is cut: `count` parts of `part_len` bytes, the last one shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SplitCut {
    pub part_len: usize,
    pub count: usize,
}

impl SplitCut {
    /// One piece.
    pub fn whole(len: usize) -> Self {
        Self { part_len: len, count: 1 }
    }

    /// Parts of about `part_len` bytes, but at most `most` of them.
    pub fn into_parts(len: usize, part_len: usize, most: usize) -> Self {
        let most = most.clamp(1, PARTS_MAX);
        let part_len = part_len.max(len.div_ceil(most)).next_multiple_of(UNIT);
        Self { part_len, count: len.div_ceil(part_len).max(1) }
    }
}

/// A request whose parts are away.
pub(super) struct Split {
    /// A transfer at its place on the clear disk.
    pub pieces: InPieces<PARTS_MAX>,
    /// Encrypted parts are written one by one; otherwise as one request, in the end.
    by_parts: bool,
    cut: SplitCut,
    pub serial: u64,
}

impl Split {
    /// The transfer `request`, to be cut into parts.
    pub fn new(request: Request, by_parts: bool, cut: SplitCut, serial: u64) -> Self {
        // Of a write whose parts are only encrypted, nothing is changed before all of them are.
        let (len, changes) = (request.len, request.op.changes() && by_parts);
        Self { pieces: InPieces::new(request, len, changes), by_parts, cut, serial }
    }

    pub fn op(&self) -> Op {
        self.pieces.head().op
    }

    /// Tells if encrypted parts are written one by one.
    pub fn is_written_by_parts(&self) -> bool {
        self.by_parts && self.op().is_write()
    }

    /// Tells if it is a write whose parts were only encrypted.
    pub fn is_to_be_written(&self) -> bool {
        !self.by_parts && self.op().is_write()
    }

    pub fn count(&self) -> usize {
        self.cut.count
    }

    /// Where a part begins on the clear disk.
    pub fn offset_of(&self, part: usize) -> u64 {
        self.pieces.head().offset + (part * self.cut.part_len) as u64
    }

    /// Cuts off the next part, unless one has failed: its number and its data.
    pub fn next_part(&mut self) -> Option<(usize, Buffer)> {
        let (part, piece) = self.pieces.cut(self.cut.part_len as u64)?;
        piece.data.map(|data| (part, data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Completion, Fault};

    /// A request for `len` bytes that is cut, and its parts.
    fn cut_up(op: Op, offset: u64, data: Buffer, by_parts: bool, cut: SplitCut) -> (Split, Vec<Buffer>) {
        let mut split = Split::new(Request::transfer(op, offset, data, 9), by_parts, cut, 77);
        let parts = std::iter::from_fn(|| split.next_part()).take(2 * PARTS_MAX);
        let parts = parts
            .enumerate()
            .map(|(at, (part, data))| {
                assert_eq!(at, part);
                data
            })
            .collect();
        (split, parts)
    }

    #[test]
    fn parts_are_whole_units_and_never_too_many() {
        let cut = SplitCut::into_parts(1 << 20, 100_000, 64);
        assert_eq!((cut.part_len, cut.count), (102_400, 11));
        let cut = SplitCut::into_parts(1 << 22, UNIT, 64);
        assert_eq!((cut.part_len, cut.count), ((1 << 22) / PARTS_MAX, PARTS_MAX));
        assert_eq!(SplitCut::into_parts(512, UNIT, 64).count, 1);
        assert_eq!(SplitCut::into_parts(1 << 20, UNIT, 1).count, 1);
        assert_eq!(SplitCut::into_parts(1 << 20, UNIT, 0).count, 1);
        assert_eq!(SplitCut::into_parts(0, UNIT, 64).count, 1);
    }

    #[test]
    fn request_is_whole_again_whatever_the_order_of_its_parts() {
        let mut buffer = Buffer::alloc(5 * UNIT + 512).unwrap();
        for (index, byte) in buffer.iter_mut().enumerate() {
            *byte = u8::try_from(index % 251).unwrap();
        }
        let before = buffer.to_vec();
        let cut = SplitCut::into_parts(buffer.len(), 2 * UNIT, 64);
        let (mut split, mut parts) = cut_up(Op::WriteFua, 1 << 20, buffer, true, cut);
        assert_eq!(parts.len(), split.count());
        assert_eq!(split.offset_of(2), (1 << 20) + 4 * UNIT as u64);
        for part in [1, 2, 0] {
            let data = std::mem::replace(&mut parts[part], Buffer::alloc(1).unwrap());
            split.pieces.put(part, Some(data), Ok(()));
        }
        assert!(split.pieces.is_over());
        let Completion { request, result } = split.pieces.end();
        assert_eq!((request.offset, request.token, result), (1 << 20, 9, Ok(())));
        assert!(request.is_consistent() && request.op == Op::WriteFua);
        assert!(request.data.unwrap()[..] == before[..]);
    }

    #[test]
    fn buffer_of_whole_parts_has_no_empty_one_behind_them() {
        for (units, part) in [(1, 1), (2, 1), (4, 2), (4, 3), (1, 2)] {
            let cut = SplitCut::into_parts(units * UNIT, part * UNIT, 64);
            let (_, parts) = cut_up(Op::Read, 0, Buffer::alloc(units * UNIT).unwrap(), false, cut);
            assert_eq!(parts.len(), cut.count);
            assert!(parts.iter().all(|part| !part.is_empty() && part.len() <= cut.part_len));
            assert_eq!(parts.iter().map(|part| part.len()).sum::<usize>(), units * UNIT);
        }
        assert_eq!(SplitCut::whole(1000), SplitCut { part_len: 1000, count: 1 });
    }

    #[test]
    fn request_in_pieces_tells_what_it_does() {
        let kinds = [(Op::Read, false), (Op::WriteFua, true), (Op::Write, false)];
        for ((op, by_parts), is_to_be_written) in kinds.into_iter().zip([false, false, true]) {
            let cut = SplitCut::into_parts(2 * UNIT, UNIT, 64);
            let data = Buffer::alloc(2 * UNIT).unwrap();
            let (mut split, parts) = cut_up(op, 3 * UNIT as u64, data, by_parts, cut);
            assert_eq!((split.op(), split.serial, split.count()), (op, 77, 2));
            assert_eq!(split.is_written_by_parts(), by_parts);
            assert_eq!(split.is_to_be_written(), is_to_be_written);
            assert_eq!([0, 1].map(|part| split.offset_of(part)), [3, 4].map(|unit| unit * UNIT as u64));
            for (part, data) in parts.into_iter().enumerate() {
                assert!(!split.pieces.is_over());
                split.pieces.put(part, Some(data), Ok(()));
            }
            assert!(split.pieces.is_over());
            let Completion { request, result } = split.pieces.end();
            assert!(request.is_consistent());
            assert_eq!(
                (request.op, request.offset, request.token, request.len, result),
                (op, 3 * UNIT as u64, 9, 2 * UNIT as u64, Ok(()))
            );
        }
    }

    #[test]
    fn write_of_which_a_part_is_there_was_not_refused() {
        for (by_parts, expected) in [(true, Fault::Partly), (false, Fault::NotSupported)] {
            let cut = SplitCut::into_parts(2 * UNIT, UNIT, 64);
            let (mut split, parts) = cut_up(Op::Write, 0, Buffer::alloc(2 * UNIT).unwrap(), by_parts, cut);
            for ((part, data), result) in parts.into_iter().enumerate().zip([Ok(()), Err(Fault::NotSupported)]) {
                split.pieces.put(part, Some(data), result);
            }
            assert_eq!(split.pieces.end().result, Err(expected));
        }
    }

    #[test]
    fn first_fault_of_any_part_is_the_fault_of_the_request() {
        let buffer = Buffer::alloc(2 * UNIT).unwrap();
        let cut = SplitCut::into_parts(buffer.len(), UNIT, 64);
        let (mut split, mut parts) = cut_up(Op::Read, 0, buffer, false, cut);
        split.pieces.put(1, parts.pop(), Err(Fault::Truncated));
        split.pieces.put(0, parts.pop(), Err(Fault::NoSpace));
        assert_eq!(split.pieces.end().result, Err(Fault::Truncated));
    }
}
