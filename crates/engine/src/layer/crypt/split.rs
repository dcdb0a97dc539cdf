//! A request in pieces: what is known of it while its buffer is in several hands.
//!
//! ```text
//! offset ├── part 0 ──┼── part 1 ──┼── part 2 ─┤      each part a buffer of its own, cut from the
//!            medium       helper        here           request's and joined again at the end
//! ```

use cryptline_sys::Buffer;

use crate::{Combined, Completion, Fault, Op, Request};

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
    /// A transfer at its place on the clear disk, without its data.
    head: Request,
    /// Encrypted parts are written one by one; otherwise as one request, in the end.
    by_parts: bool,
    cut: SplitCut,
    serial: u64,
    /// Parts that have come back.
    parts: [Option<Buffer>; PARTS_MAX],
    left: usize,
    outcome: Combined,
}

impl Split {
    /// The transfer `head`, whose buffer is cut by [`next_part`].
    pub fn new(head: Request, by_parts: bool, cut: SplitCut, serial: u64) -> Self {
        debug_assert!(head.data.is_none(), "its data are in parts");
        // Of a write whose parts are only encrypted, nothing is changed before all of them are.
        let outcome = Combined::new(head.op.changes() && by_parts);
        Self { head, by_parts, cut, serial, parts: [const { None }; PARTS_MAX], left: cut.count, outcome }
    }

    pub fn op(&self) -> Op {
        self.head.op
    }

    /// Tells if encrypted parts are written one by one.
    pub fn is_written_by_parts(&self) -> bool {
        self.by_parts && self.head.op.is_write()
    }

    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// Tells if it is a write whose parts were only encrypted.
    pub fn is_to_be_written(&self) -> bool {
        !self.by_parts && self.head.op.is_write()
    }

    pub fn count(&self) -> usize {
        self.cut.count
    }

    /// Where a part begins on the clear disk.
    pub fn offset_of(&self, part: usize) -> u64 {
        self.head.offset + (part * self.cut.part_len) as u64
    }

    /// Takes a part back.
    pub fn put(&mut self, part: usize, data: Buffer, result: Result<(), Fault>) {
        debug_assert!(self.parts[part].is_none(), "a part came back twice");
        self.parts[part] = Some(data);
        self.left -= 1;
        self.outcome.add(result);
    }

    /// Tells if all parts are back.
    pub fn is_whole(&self) -> bool {
        self.left == 0
    }

    /// The request again, with its buffer, and how it went so far.
    pub fn rejoin(mut self) -> Completion {
        let mut parts = self.parts.iter_mut().filter_map(Option::take);
        let mut buffer = parts.next().expect("a request has at least one part");
        for part in parts {
            buffer.join(part);
        }
        self.head.data = Some(buffer);
        self.head.complete(self.outcome.result())
    }
}

/// Cuts the next part off the front of what is left of a buffer.
pub(super) fn next_part(rest: &mut Option<Buffer>, part_len: usize) -> Option<Buffer> {
    let mut part = rest.take()?;
    if part.len() > part_len {
        *rest = Some(part.split_off(part_len));
    }
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of a buffer.
    fn parts_of(len: usize, cut: SplitCut) -> Vec<Buffer> {
        let mut rest = Some(Buffer::alloc(len).unwrap());
        std::iter::from_fn(|| next_part(&mut rest, cut.part_len)).take(2 * PARTS_MAX).collect()
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
        let head = Request::new(Op::WriteFua, 1 << 20, buffer.len() as u64, 99);
        let mut split = Split::new(head, true, cut, 1);
        let mut rest = Some(buffer);
        let mut parts: Vec<_> = std::iter::from_fn(|| next_part(&mut rest, cut.part_len)).collect();
        assert_eq!(parts.len(), split.count());
        assert_eq!(split.offset_of(2), (1 << 20) + 4 * UNIT as u64);
        for part in [1, 2, 0] {
            let data = std::mem::replace(&mut parts[part], Buffer::alloc(1).unwrap());
            split.put(part, data, Ok(()));
        }
        assert!(split.is_whole());
        let Completion { request, result } = split.rejoin();
        assert_eq!((request.offset, request.token, result), (1 << 20, 99, Ok(())));
        assert!(request.is_consistent() && request.op == Op::WriteFua);
        assert!(request.data.unwrap()[..] == before[..]);
    }

    #[test]
    fn buffer_of_whole_parts_has_no_empty_one_behind_them() {
        for (units, part) in [(1, 1), (2, 1), (4, 2), (4, 3), (1, 2)] {
            let cut = SplitCut::into_parts(units * UNIT, part * UNIT, 64);
            let parts = parts_of(units * UNIT, cut);
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
            let head = Request::new(op, 3 * UNIT as u64, 2 * UNIT as u64, 9);
            let mut split = Split::new(head, by_parts, cut, 77);
            assert_eq!((split.op(), split.serial(), split.count()), (op, 77, 2));
            assert_eq!(split.is_written_by_parts(), by_parts);
            assert_eq!(split.is_to_be_written(), is_to_be_written);
            assert_eq!([0, 1].map(|part| split.offset_of(part)), [3, 4].map(|unit| unit * UNIT as u64));
            for (part, data) in parts_of(2 * UNIT, cut).into_iter().enumerate() {
                assert!(!split.is_whole());
                split.put(part, data, Ok(()));
            }
            assert!(split.is_whole());
            let Completion { request, result } = split.rejoin();
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
            let mut split = Split::new(Request::new(Op::Write, 0, 2 * UNIT as u64, 1), by_parts, cut, 1);
            for ((part, data), result) in
                parts_of(2 * UNIT, cut).into_iter().enumerate().zip([Ok(()), Err(Fault::NotSupported)])
            {
                split.put(part, data, result);
            }
            assert_eq!(split.rejoin().result, Err(expected));
        }
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a part came back twice")]
    fn part_that_comes_back_twice_is_our_own_bug() {
        let head = Request::new(Op::Read, 0, 2 * UNIT as u64, 1);
        let mut split = Split::new(head, false, SplitCut::into_parts(2 * UNIT, UNIT, 64), 1);
        for _ in 0..2 {
            split.put(0, Buffer::alloc(UNIT).unwrap(), Ok(()));
        }
    }

    #[test]
    fn first_fault_of_any_part_is_the_fault_of_the_request() {
        let buffer = Buffer::alloc(2 * UNIT).unwrap();
        let cut = SplitCut::into_parts(buffer.len(), UNIT, 64);
        let mut split = Split::new(Request::new(Op::Read, 0, 2 * UNIT as u64, 1), false, cut, 1);
        let mut rest = Some(buffer);
        let first = next_part(&mut rest, UNIT).unwrap();
        split.put(1, next_part(&mut rest, UNIT).unwrap(), Err(Fault::Truncated));
        split.put(0, first, Err(Fault::NoSpace));
        assert_eq!(split.rejoin().result, Err(Fault::Truncated));
    }
}
