//! A request as the operation on the ring that carries it out, and back.
//!
//! The buffer and how far the transfer got are in the [`Io`]; what an `Io` does not have is in the [`Mark`] beside
//! it in the ring's slot. So a queue keeps no table of what it has in flight.

use cryptline_sys::{Allocate, Done, FileId, Io, Mark};

use crate::{Operation, Request};

/// Parts of a request that its [`Io`] does not hold.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    token: u64,
    offset: u64,
    kind: Kind,
    /// Its number among the syncs of the queue's open file, where it is one.
    pub sync: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Read,
    Write,
    DurableWrite,
    Flush,
    Discard,
    /// The range keeps its space.
    Zero,
    /// The range may become a hole.
    ZeroOrUnmap,
}

impl Kind {
    const ALL: [Self; 7] =
        [Self::Read, Self::Write, Self::DurableWrite, Self::Flush, Self::Discard, Self::Zero, Self::ZeroOrUnmap];
}

/// Bits of a note that have the kind; the others have the number of the sync, counted from 1.
const KIND_BITS: u32 = 3;

impl Origin {
    pub fn mark(self) -> Mark {
        let sync = self.sync.map_or(0, |number| number + 1);
        Mark { token: self.token, note: [self.offset, sync << KIND_BITS | self.kind as u64] }
    }

    pub fn of(done: &Done) -> Self {
        let [offset, word] = done.note;
        Self {
            token: done.token,
            offset,
            kind: Kind::ALL[(word & ((1 << KIND_BITS) - 1)) as usize % Kind::ALL.len()],
            sync: (word >> KIND_BITS).checked_sub(1),
        }
    }

    /// Tells if it discards or zeroes, which is done through the keeper's file.
    pub fn zeroes(self) -> bool {
        matches!(self.kind, Kind::Discard | Kind::Zero | Kind::ZeroOrUnmap)
    }

    /// Tells if bytes are written.
    pub fn writes(self) -> bool {
        matches!(self.kind, Kind::Write | Kind::DurableWrite)
    }

    /// Tells if bytes are read.
    pub fn reads(self) -> bool {
        self.kind == Kind::Read
    }
}

/// The files that a queue submits to.
#[derive(Clone, Copy)]
pub(super) struct Files {
    /// The queue's own.
    pub own: FileId,
    pub keeper: FileId,
}

/// The operation for a request, and what it leaves out. `sync` is the request's number among the syncs of the
/// queue's own file. Without one, a durable write is not: the keeper is asked when all is written.
///
/// Zones are not the ring's business: their operations come back.
pub(super) fn begin(request: Request, files: Files, sync: Option<u64>) -> Result<(Origin, Io), Request> {
    let Request { operation, offset, token } = request;
    let origin = |kind| Origin { token, offset, kind, sync };
    let allocate = |what, len| Io::Allocate { file: files.keeper, what, offset, len };
    let file = files.own;
    Ok(match operation {
        Operation::Read(buffer) => {
            let len = buffer.len();
            let read = Io::Read { file, buffer, start: 0, len, offset };
            (origin(Kind::Read), read)
        }
        Operation::Write { data, durable } => {
            let len = data.len();
            let write = Io::Write { file, buffer: data, start: 0, len, offset, durable: sync.is_some() };
            let kind = if durable { Kind::DurableWrite } else { Kind::Write };
            (origin(kind), write)
        }
        Operation::Flush => (origin(Kind::Flush), Io::Sync { file }),
        Operation::Discard { len } => (origin(Kind::Discard), allocate(Allocate::PunchHole, len)),
        Operation::WriteZeroes { len, may_unmap: true } => {
            (origin(Kind::ZeroOrUnmap), allocate(Allocate::PunchHole, len))
        }
        Operation::WriteZeroes { len, may_unmap: false } => (origin(Kind::Zero), allocate(Allocate::ZeroRange, len)),
        Operation::Cache { .. } | Operation::ZoneAppend { .. } | Operation::Zone(_) => {
            return Err(Request { operation, offset, token });
        }
    })
}

/// Moves a transfer on by the bytes that were moved. How many of its buffer are done then, and how many there are.
/// `None` for what moves none.
pub(super) fn advance(io: &mut Io, moved: usize) -> Option<(usize, usize)> {
    match io {
        Io::Read { buffer, start, len, offset, .. } | Io::Write { buffer, start, len, offset, .. } => {
            *start += moved;
            *offset += moved as u64;
            *len = buffer.len().saturating_sub(*start);
            Some((*start, buffer.len()))
        }
        _ => None,
    }
}

/// The request as it was submitted.
pub(super) fn end(origin: Origin, io: Io) -> Request {
    let operation = match (io, origin.kind) {
        (Io::Read { buffer, .. }, _) => Operation::Read(buffer),
        (Io::Write { buffer, .. }, kind) => Operation::Write { data: buffer, durable: kind == Kind::DurableWrite },
        (Io::Allocate { len, .. }, Kind::Discard) => Operation::Discard { len },
        (Io::Allocate { len, .. }, kind) => Operation::WriteZeroes { len, may_unmap: kind == Kind::ZeroOrUnmap },
        _ => Operation::Flush,
    };
    Request { operation, offset: origin.offset, token: origin.token }
}
