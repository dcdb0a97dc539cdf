//! A request as the operation on the ring that carries it out, and back.
//!
//! The buffer and how far the transfer got are in the [`Io`]; what an `Io` does not have is in the [`Mark`] beside
//! it in the ring's slot. So a queue keeps no table of what it has in flight.

use cryptline_sys::{Allocate, FileId, Io, Mark, RingDone};

use crate::{Op, Request};

/// Parts of a request that its [`Io`] does not hold.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    token: u64,
    offset: u64,
    op: Op,
    /// Its number among the syncs of the queue's open file, where it is one.
    pub sync: Option<u64>,
}

/// Bits of a note that have the operation; the others have the number of the sync, counted from 1.
const OP_BITS: u32 = 4;
const _: () = assert!(Op::ALL.len() <= 1 << OP_BITS);

impl Origin {
    pub fn mark(self) -> Mark {
        let sync = self.sync.map_or(0, |number| number + 1);
        Mark { token: self.token, note: [self.offset, sync << OP_BITS | self.op as u64] }
    }

    pub fn of(done: &RingDone) -> Self {
        let [offset, word] = done.note;
        Self {
            token: done.token,
            offset,
            op: Op::ALL[(word & ((1 << OP_BITS) - 1)) as usize % Op::ALL.len()],
            sync: (word >> OP_BITS).checked_sub(1),
        }
    }

    /// Tells if it discards or zeroes, which is done through the keeper's file.
    pub fn zeroes(self) -> bool {
        matches!(self.op, Op::Discard | Op::Zero | Op::ZeroUnmap)
    }

    /// Tells if bytes are written.
    pub fn writes(self) -> bool {
        self.op.is_write()
    }

    /// Tells if bytes are read.
    pub fn reads(self) -> bool {
        self.op == Op::Read
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
    let Request { offset, op, data, len, token } = request;
    let origin = Origin { token, offset, op, sync };
    let allocate = |what| Io::Allocate { file: files.keeper, what, offset, len };
    let file = files.own;
    let io = match (op, data) {
        (Op::Read, Some(buffer)) => {
            let len = buffer.len();
            Io::Read { file, buffer, start: 0, len, offset }
        }
        (Op::Write | Op::WriteFua, Some(buffer)) => {
            let len = buffer.len();
            Io::Write { file, buffer, start: 0, len, offset, durable: sync.is_some() }
        }
        (Op::Flush, _) => Io::Sync { file },
        (Op::Discard | Op::ZeroUnmap, _) => allocate(Allocate::PunchHole),
        (Op::Zero, _) => allocate(Allocate::ZeroRange),
        (op, data) => return Err(Request { offset, op, data, len, token }),
    };
    Ok((origin, io))
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

/// Tells if bytes of a transfer were moved.
pub(super) fn has_moved(io: &Io) -> bool {
    matches!(io, Io::Read { start, .. } | Io::Write { start, .. } if *start > 0)
}

/// The request as it was submitted.
pub(super) fn end(origin: Origin, io: Io) -> Request {
    let Origin { token, offset, op, .. } = origin;
    match io {
        Io::Read { buffer, .. } | Io::Write { buffer, .. } => Request::transfer(op, offset, buffer, token),
        Io::Allocate { len, .. } => Request::new(op, offset, len, token),
        _ => Request::new(op, offset, 0, token),
    }
}
