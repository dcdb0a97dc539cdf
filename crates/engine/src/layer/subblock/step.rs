//! What has to be done for a request: steps to the device below, each under one claim.
//!
//! ```text
//! request ─► Pass                             whole sectors, or what the device below can do alone
//!         └► Job ─► Rewrite, Body, Rewrite    part of a sector at either end; Peek for reads
//!              └──► Flush                     after the parts of a durable write
//! ```

use cryptline_sys::Buffer;

use super::member::Claim;
use crate::{Completion, Fault, Operation, Request};

/// One step.
pub(super) struct Step {
    pub claim: Claim,
    pub work: Work,
}

/// What it is about.
pub(super) enum Work {
    /// The caller's request as it is; it is here until the claim is had. `offset` and `len` are what the
    /// caller gave, where a discard was cut.
    Pass {
        request: Option<Request>,
        token: u64,
        offset: u64,
        len: u64,
    },
    /// The whole sectors of a job.
    Body {
        piece: Piece,
        request: Option<Request>,
    },
    /// Reads a sector to copy a part of it out.
    Peek { piece: Piece, place: Place },
    /// Reads a sector, puts pieces in and writes it.
    Rewrite {
        piece: Piece,
        place: Place,
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
pub(super) struct Piece {
    pub job: usize,
    pub part: usize,
}

/// A place in a sector. Bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Where the sector begins on the device.
    pub sector: u64,
    /// Where the part begins in it.
    pub within: usize,
    pub len: usize,
}

impl Place {
    /// The place of `len` bytes at `offset` of the device.
    pub fn of(offset: u64, len: u64, sector: u64) -> Self {
        let fits = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Self {
            sector: offset - offset % sector,
            within: fits(offset % sector),
            len: fits(len),
        }
    }
}

/// Which 512-byte blocks of a sector are written.
#[derive(Clone, Copy, Default)]
pub(super) struct Cover(u64);

impl Cover {
    pub fn add(&mut self, place: Place) {
        let bits = |bytes: usize| 1_u64.checked_shl(u32::try_from(bytes / 512).unwrap_or(64));
        // In a sector of more blocks than there are bits, some are never counted.
        if let (Some(from), Some(to)) = (bits(place.within), bits(place.within + place.len)) {
            self.0 |= to - from;
        }
    }

    /// Whether all `sector` bytes are.
    pub fn is_all_of(self, sector: u64) -> bool {
        u32::try_from(sector / 512).is_ok_and(|blocks| self.0.trailing_ones() >= blocks)
    }
}

/// Parts of a job at most.
const PARTS: usize = 3;

/// A request that is cut at sectors.
pub(super) struct Job {
    kind: Kind,
    offset: u64,
    len: u64,
    token: u64,
    /// The caller's buffer, cut.
    pieces: [Option<Buffer>; PARTS],
    count: usize,
    /// Parts that are not done.
    left: usize,
    fault: Option<Fault>,
    flushed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write { durable: bool },
    Zero { may_unmap: bool },
}

impl Job {
    /// A job for a read, a write or a zeroing; `lens` are the lengths of its parts.
    pub fn new(request: Request, lens: impl Iterator<Item = u64>) -> Self {
        let (offset, len, token) = (request.offset, request.len(), request.token);
        let (kind, mut rest) = match request.operation {
            Operation::Read(buffer) => (Kind::Read, Some(buffer)),
            Operation::Write { data, durable } => (Kind::Write { durable }, Some(data)),
            Operation::WriteZeroes { may_unmap, .. } => (Kind::Zero { may_unmap }, None),
            _ => unreachable!("nothing else is cut"),
        };
        let mut pieces = [const { None }; PARTS];
        let mut count = 0;
        for len in lens {
            let piece = rest.take().map(|mut piece| {
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                if len < piece.len() {
                    rest = Some(piece.split_off(len));
                }
                piece
            });
            pieces[count] = piece;
            count += 1;
        }
        Self {
            kind,
            offset,
            len,
            token,
            pieces,
            count,
            left: count,
            fault: None,
            flushed: false,
        }
    }

    pub fn is_read(&self) -> bool {
        self.kind == Kind::Read
    }

    /// Whether its only part must be durable by itself.
    pub fn is_durable_alone(&self) -> bool {
        self.count == 1 && self.kind == Kind::Write { durable: true }
    }

    /// The request for whole sectors of it.
    pub fn body(&mut self, part: usize, offset: u64, len: u64) -> Request {
        let operation = match (self.kind, self.pieces[part].take()) {
            (Kind::Read, Some(buffer)) => Operation::Read(buffer),
            (Kind::Write { .. }, Some(data)) => Operation::Write {
                data,
                durable: self.is_durable_alone(),
            },
            (Kind::Zero { may_unmap }, _) => Operation::WriteZeroes { len, may_unmap },
            _ => unreachable!("a part has its piece until it is passed on"),
        };
        Request {
            operation,
            offset,
            token: 0,
        }
    }

    /// Takes the buffer of a body back.
    pub fn put_back(&mut self, part: usize, request: Request) {
        if let Operation::Read(buffer) | Operation::Write { data: buffer, .. } = request.operation {
            self.pieces[part] = Some(buffer);
        }
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
        if let Err(fault) = result {
            self.fault.get_or_insert(fault);
        }
        self.left -= 1;
        self.left == 0
    }

    /// Whether a flush is still to come.
    pub fn wants_flush(&mut self) -> bool {
        let is_durable = self.kind == Kind::Write { durable: true };
        let wants = is_durable && self.count > 1 && self.fault.is_none() && !self.flushed;
        if wants {
            self.flushed = true;
            self.left = 1;
        }
        wants
    }

    /// The caller's request again, and how it went.
    pub fn end(self) -> Completion {
        let mut pieces = self.pieces.into_iter().flatten();
        let buffer = pieces.next().map(|mut buffer| {
            pieces.for_each(|piece| buffer.join(piece));
            buffer
        });
        let operation = match (self.kind, buffer) {
            (Kind::Read, Some(buffer)) => Operation::Read(buffer),
            (Kind::Write { durable }, Some(data)) => Operation::Write { data, durable },
            (Kind::Zero { may_unmap }, _) => Operation::WriteZeroes {
                len: self.len,
                may_unmap,
            },
            _ => unreachable!("every piece came back"),
        };
        let request = Request {
            operation,
            offset: self.offset,
            token: self.token,
        };
        request.complete(self.fault.map_or(Ok(()), Err))
    }
}
