//! A request of a file queue, and the operations on the ring that carry it out.

use cryptline_sys::{Allocate, Buffer, FileId, Io};

use crate::{Operation, Request};

/// A request and how far it got.
pub(super) struct Transfer {
    /// Without its buffer, which is in the ring.
    pub kind: Kind,
    pub offset: u64,
    pub token: u64,
    pub done: usize,
    /// Its number among the syncs of the queue's open file, where it is one.
    pub sync: Option<u64>,
}

pub(super) enum Kind {
    Read,
    Write { durable: bool },
    Other(Operation),
}

impl Transfer {
    /// The operation for what is left of it.
    pub fn io(&self, file: FileId, buffer: Option<Buffer>) -> Io {
        let (start, offset) = (self.done, self.offset + self.done as u64);
        match (&self.kind, buffer) {
            (Kind::Read, Some(buffer)) => {
                let len = buffer.len() - start;
                Io::Read {
                    file,
                    buffer,
                    start,
                    len,
                    offset,
                }
            }
            (Kind::Write { .. }, Some(buffer)) => {
                // Without a number the keeper is asked when all is written.
                let (len, durable) = (buffer.len() - start, self.sync.is_some());
                Io::Write {
                    file,
                    buffer,
                    start,
                    len,
                    offset,
                    durable,
                }
            }
            (Kind::Other(Operation::Discard { len }), _) => Io::Allocate {
                file,
                what: Allocate::PunchHole,
                offset,
                len: *len,
            },
            (Kind::Other(Operation::WriteZeroes { len, may_unmap }), _) => {
                let what = if *may_unmap {
                    Allocate::PunchHole
                } else {
                    Allocate::ZeroRange
                };
                Io::Allocate {
                    file,
                    what,
                    offset,
                    len: *len,
                }
            }
            _ => Io::Sync { file },
        }
    }

    /// The request as it was submitted.
    pub fn into_request(self, buffer: Option<Buffer>) -> Request {
        let operation = match (self.kind, buffer) {
            (Kind::Read, Some(buffer)) => Operation::Read(buffer),
            (Kind::Write { durable }, Some(data)) => Operation::Write { data, durable },
            (Kind::Other(operation), _) => operation,
            _ => unreachable!("a data operation comes back with its buffer"),
        };
        Request {
            operation,
            offset: self.offset,
            token: self.token,
        }
    }
}

/// The buffer that an operation on the ring has brought back.
pub(super) fn buffer_of(io: Io) -> Option<Buffer> {
    match io {
        Io::Read { buffer, .. } | Io::Write { buffer, .. } => Some(buffer),
        _ => None,
    }
}
