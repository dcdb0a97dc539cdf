//! Work on a request: steps to the device below, each under one claim.
//!
//! ```text
//! request ─► Pass                             whole sectors, or what the device below can do alone
//!         └► Job ─► Rewrite, Body, Rewrite    part of a sector at either end; Peek for reads
//!              │                              of a zeroing, the body first: it may be refused
//!              └──► Flush                     after the parts of a durable write
//! ```

use cryptline_sys::Buffer;

use super::member::Claim;
use crate::{Combined, Completion, Fault, Op, Request};

/// One step.
pub(super) struct SubBlockStep {
    pub claim: Claim,
    pub work: StepSubject,
}

/// Subject of a step.
pub(super) enum StepSubject {
    /// The caller's request as it is; it is here until the claim is had. `offset` and `len` are what the
    /// caller gave, where a discard was cut or a hint made longer.
    Pass { request: Option<Request>, offset: u64, len: u64 },
    /// The whole sectors of a job.
    Body { piece: JobPiece, request: Option<Request> },
    /// Reads a sector to copy a part of it out.
    Peek { piece: JobPiece, place: SectorBytes },
    /// Reads a sector, puts pieces in and writes it.
    Rewrite {
        piece: JobPiece,
        place: SectorBytes,
        /// Another one for this sector, done together with this one.
        next: Option<usize>,
        /// The changed sector is on its way.
        is_writing: bool,
    },
    /// The last step of a durable write of several parts.
    Flush { job: usize },
}

/// A part of a job: which job, and which part.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobPiece {
    pub job: usize,
    pub part: usize,
}

/// A place in a sector. Bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct SectorBytes {
    /// Where the sector begins on the device.
    pub sector: u64,
    /// Where the part begins in it.
    pub within: usize,
    pub len: usize,
}

impl SectorBytes {
    /// The place of `len` bytes at `offset` of the device.
    pub fn of(offset: u64, len: u64, sector: u64) -> Self {
        let fits = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Self { sector: offset - offset % sector, within: fits(offset % sector), len: fits(len) }
    }
}

/// Which bytes of a sector are written: ranges with gaps between them.
#[derive(Clone, Copy, Default)]
pub(super) struct Cover {
    ranges: [(usize, usize); Self::RANGES],
    count: usize,
}

impl Cover {
    /// Ranges that can be told apart. What would be one more is left out: then the sector is read, which is
    /// never wrong.
    const RANGES: usize = 8;

    pub fn add(&mut self, place: SectorBytes) {
        let (mut from, mut to) = (place.within, place.within + place.len);
        let mut kept = 0;
        for index in 0..self.count {
            let range = self.ranges[index];
            if range.0 <= to && from <= range.1 {
                (from, to) = (from.min(range.0), to.max(range.1));
            } else {
                self.ranges[kept] = range;
                kept += 1;
            }
        }
        self.count = kept;
        if let Some(place) = self.ranges.get_mut(kept) {
            *place = (from, to);
            self.count += 1;
        }
    }

    /// Tells if the ranges cover all `sector` bytes.
    pub fn is_all_of(self, sector: u64) -> bool {
        let ranges = &self.ranges[..self.count];
        ranges.iter().any(|&(from, to)| from == 0 && to as u64 >= sector)
    }
}

/// Parts of a job at most.
const PARTS: usize = 3;
/// Alignment of whole sectors in memory, as direct I/O wants it.
const ALIGNMENT: u64 = 512;

/// A request that is cut at sectors.
pub(super) struct SubBlockJob {
    /// The caller's request, without its data.
    head: Request,
    /// The caller's buffer, cut.
    pieces: [Option<Buffer>; PARTS],
    count: usize,
    /// Bytes of the first part that lie behind the second one in memory.
    turned: usize,
    /// Parts that are not done.
    left: usize,
    /// Steps that wait for the body: whether they are made depends on its end.
    held: [Option<usize>; PARTS - 1],
    outcome: Combined,
    flushed: bool,
}

impl SubBlockJob {
    /// A job for a read, a write or a zeroing; `lens` are the lengths of its parts.
    ///
    /// Where whole sectors would be at an odd place in memory, the first part goes behind them.
    pub fn new(mut request: Request, lens: impl Iterator<Item = u64> + Clone) -> Self {
        debug_assert!(matches!(request.op, Op::Read | Op::Write | Op::WriteFua | Op::Zero | Op::ZeroUnmap));
        let mut rest = request.data.take();
        let turned = turned(lens.clone());
        let mut order = [0, 1, 2];
        if let (Some((first, second)), Some(buffer)) = (turned, &mut rest) {
            if request.op != Op::Read {
                buffer[..first + second].rotate_left(first);
            }
            order = [1, 0, 2];
        }
        let mut pieces = [const { None }; PARTS];
        let count = lens.clone().count();
        for &part in &order[..count] {
            let len = lens.clone().nth(part).unwrap_or(0);
            pieces[part] = rest.take().map(|mut piece| {
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                if len < piece.len() {
                    rest = Some(piece.split_off(len));
                }
                piece
            });
        }
        Self {
            pieces,
            count,
            turned: turned.map_or(0, |(first, _)| first),
            left: count,
            held: [None; PARTS - 1],
            outcome: Combined::new(request.op.changes()),
            flushed: false,
            head: request,
        }
    }

    pub fn is_read(&self) -> bool {
        self.head.op == Op::Read
    }

    /// Tells if its whole sectors come first, and parts of sectors only once these have ended well: the device below
    /// may refuse to zero, and what is refused has changed nothing.
    pub fn asks_body_first(&self) -> bool {
        self.head.op.is_zero()
    }

    /// Keeps a step until the body has ended.
    pub fn hold(&mut self, step: usize) {
        let place = self.held.iter_mut().find(|place| place.is_none());
        *place.expect("a head and a tail") = Some(step);
    }

    /// The steps that have waited for the body.
    pub fn take_held(&mut self) -> impl Iterator<Item = usize> + use<> {
        std::mem::take(&mut self.held).into_iter().flatten()
    }

    /// A part is not going to be done, since another one has failed.
    pub fn skip_part(&mut self) {
        self.left -= 1;
    }

    /// Tells if its only part must be durable by itself.
    pub fn is_durable_alone(&self) -> bool {
        self.count == 1 && self.head.op == Op::WriteFua
    }

    /// The request for whole sectors of it.
    pub fn body(&mut self, part: usize, offset: u64, len: u64) -> Request {
        // Of several parts a flush makes the write durable.
        let op = if self.head.op == Op::WriteFua { Op::write(self.is_durable_alone()) } else { self.head.op };
        Request { op, offset, data: self.pieces[part].take(), len, token: 0 }
    }

    /// Takes the buffer of a body back.
    pub fn put_back(&mut self, part: usize, request: Request) {
        self.pieces[part] = request.data;
    }

    /// Puts a part of a write into its sector.
    pub fn put_into(&self, part: usize, target: &mut [u8]) {
        match &self.pieces[part] {
            Some(data) => target.copy_from_slice(data),
            None => target.fill(0),
        }
    }

    /// Copies a part of a read out of its sector.
    pub fn copy_out(&mut self, part: usize, source: &[u8]) {
        if let Some(buffer) = &mut self.pieces[part] {
            buffer.copy_from_slice(source);
        }
    }

    /// Notes that a part is done; whether it was the last.
    pub fn part_done(&mut self, result: Result<(), Fault>) -> bool {
        self.outcome.add(result);
        self.left -= 1;
        self.left == 0
    }

    /// Tells if a flush is still to come.
    pub fn wants_flush(&mut self) -> bool {
        let is_durable = self.head.op == Op::WriteFua;
        let wants = is_durable && self.count > 1 && !self.outcome.has_failed() && !self.flushed;
        if wants {
            self.flushed = true;
            self.left = 1;
        }
        wants
    }

    /// The caller's request again, and how it went.
    pub fn end(mut self) -> Completion {
        let [first, second, third] = self.pieces;
        let body = second.as_ref().map_or(0, |body| body.len());
        let in_memory = if self.turned > 0 { [second, first, third] } else { [first, second, third] };
        let mut pieces = in_memory.into_iter().flatten();
        self.head.data = pieces.next().map(|mut buffer| {
            pieces.for_each(|piece| buffer.join(piece));
            if self.head.op == Op::Read && self.turned > 0 {
                buffer[..body + self.turned].rotate_right(self.turned);
            }
            buffer
        });
        self.head.complete(self.outcome.result())
    }
}

/// The lengths of the first two parts, where the second would be at an odd place in memory and the first goes
/// behind it.
fn turned(mut lens: impl Iterator<Item = u64>) -> Option<(usize, usize)> {
    let (first, second) = (lens.next()?, lens.next()?);
    let is_odd = !first.is_multiple_of(ALIGNMENT) && second >= ALIGNMENT;
    let fits = |len: u64| usize::try_from(len).ok();
    is_odd.then_some((fits(first)?, fits(second)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covered(places: &[(usize, usize)]) -> bool {
        let mut cover = Cover::default();
        for &(within, len) in places {
            cover.add(SectorBytes { sector: 0, within, len });
        }
        cover.is_all_of(4096)
    }

    #[test]
    fn sector_is_covered_when_no_byte_is_missing() {
        assert!(covered(&[(0, 4096)]));
        assert!(covered(&[(4095, 1), (1, 4094), (0, 1)]));
        assert!(covered(&[(0, 3000), (2000, 2096)]));
        assert!(!covered(&[(0, 4095)]));
        assert!(!covered(&[(1, 4095)]));
        assert!(!covered(&[(0, 2000), (2001, 2095)]));
        assert!(!covered(&[]));
    }

    #[test]
    fn order_and_repetition_make_no_difference_and_too_many_gaps_are_no_cover() {
        let pieces: Vec<_> = (0..8).map(|index| (index * 512, 512)).collect();
        let mut mixed = pieces.clone();
        mixed.sort_by_key(|(at, _)| (at * 5) % 4096);
        assert!(covered(&mixed));
        assert!(covered(&[mixed.clone(), mixed].concat()));
        // Every second byte, then all of them: what was left out is not counted.
        let sparse: Vec<_> = (0..2048).map(|index| (index * 2, 1)).collect();
        assert!(!covered(&sparse));
        assert!(covered(&[sparse, vec![(0, 4096)]].concat()));
    }

    #[test]
    fn whole_sectors_are_aligned_in_memory_and_every_byte_comes_back_in_its_place() {
        for lens in [vec![100_u64, 8192, 7], vec![4000, 4096], vec![1, 2], vec![512, 4096, 1]] {
            let len: u64 = lens.iter().sum();
            let mut buffer = Buffer::alloc(usize::try_from(len).unwrap()).unwrap();
            let start = buffer.as_ptr().addr();
            let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            buffer.copy_from_slice(&bytes);
            let mut job = SubBlockJob::new(Request::write(5, buffer, false, 1), lens.clone().into_iter());
            let mut at = 0;
            for (part, len) in lens.iter().enumerate() {
                let len = usize::try_from(*len).unwrap();
                let piece = job.pieces[part].as_ref().unwrap();
                assert_eq!(piece[..], bytes[at..at + len]);
                let odd = (piece.as_ptr().addr() - start) % 512;
                assert!(len < 512 || part != 1 || odd == 0, "{lens:?}");
                at += len;
            }
            let request = job.end().request;
            assert!(request.op == Op::Write && request.is_consistent());
            let buffer = Buffer::alloc(usize::try_from(len).unwrap()).unwrap();
            job = SubBlockJob::new(Request::read(5, buffer, 1), lens.clone().into_iter());
            let mut at = 0;
            for (part, len) in lens.iter().enumerate() {
                let len = usize::try_from(*len).unwrap();
                let piece = job.pieces[part].as_mut().unwrap();
                piece.copy_from_slice(&bytes[at..at + len]);
                at += len;
            }
            let read = job.end().request.data.unwrap();
            assert!(read[..] == bytes[..], "{lens:?}");
        }
    }
}
