//! Operations of a ring.

use std::sync::Arc;

use super::{FileId, ReceiveBatch, SendBatch};
use crate::fuse::FuseEntry;
use crate::ublk::UblkCommand;
use crate::{Arena, Buffer};

/// Operations on allocated space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// `FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE`.
    PunchHole,
    /// `FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE`.
    ZeroRange,
}

impl Allocate {
    pub(super) fn mode(self) -> libc::c_int {
        libc::FALLOC_FL_KEEP_SIZE
            | match self {
                Self::PunchHole => libc::FALLOC_FL_PUNCH_HOLE,
                Self::ZeroRange => libc::FALLOC_FL_ZERO_RANGE,
            }
    }
}

/// One operation; owns the memory it reads or writes. Offsets and lengths in bytes.
#[derive(Debug)]
pub enum Io {
    /// Reads `len` bytes at `offset` into `buffer[start..]`. Short at the end of the file.
    Read {
        /// The file.
        file: FileId,
        /// Where the bytes go.
        buffer: Buffer,
        /// First byte of the buffer to fill.
        start: usize,
        /// How many bytes.
        len: usize,
        /// Where in the file.
        offset: u64,
    },
    /// Writes `buffer[start..start + len]` at `offset`; may be short.
    Write {
        /// The file.
        file: FileId,
        /// Where the bytes come from.
        buffer: Buffer,
        /// First byte of the buffer to write.
        start: usize,
        /// How many bytes.
        len: usize,
        /// Where in the file.
        offset: u64,
        /// `RWF_DSYNC`: the write is durable when it completes.
        durable: bool,
    },
    /// `fdatasync`.
    Sync {
        /// The file.
        file: FileId,
    },
    /// `fallocate`.
    Allocate {
        /// The file.
        file: FileId,
        /// Operation to carry out.
        what: Allocate,
        /// Where in the file.
        offset: u64,
        /// How many bytes.
        len: u64,
    },
    /// Receives up to `len` bytes into `buffer[start..]`; a result of 0 is the peer's end.
    Receive {
        /// The socket.
        file: FileId,
        /// Where the bytes go.
        buffer: Buffer,
        /// First byte of the buffer to fill.
        start: usize,
        /// At most this many bytes.
        len: usize,
    },
    /// Sends what is left of a batch; may be short.
    Send {
        /// The socket.
        file: FileId,
        /// Headers and payloads, in order.
        batch: Box<SendBatch>,
    },
    /// Reads one whole message (`readv`), once there is one: the count of an eventfd, a request from
    /// `/dev/fuse`. The descriptor has `O_NONBLOCK`, or the batch is one [for an event](ReceiveBatch::for_event).
    ReadMessage {
        /// The descriptor.
        file: FileId,
        /// Where the message goes.
        batch: Box<ReceiveBatch>,
    },
    /// Writes one whole message (`writev`), once there is room. The descriptor has `O_NONBLOCK`.
    WriteMessage {
        /// The descriptor.
        file: FileId,
        /// Headers and payloads, in order.
        batch: Box<SendBatch>,
    },
    /// A command to a ublk device, from a [`UblkQueue`](crate::UblkQueue). It takes io_uring, and it cannot be
    /// cancelled: it ends when its device has a request or is stopped, or with the ring.
    Command(UblkCommand),
    /// Gives an entry to the kernel: with the answer to the request in it, if any, and for the next one. It takes a
    /// wide io_uring, and it cannot be cancelled: it ends when there is a request, or with the mount.
    Fuse(Box<FuseEntry>),
}

impl Io {
    pub(super) fn file(&self) -> FileId {
        match self {
            Self::Read { file, .. }
            | Self::Write { file, .. }
            | Self::Sync { file }
            | Self::Allocate { file, .. }
            | Self::Receive { file, .. }
            | Self::Send { file, .. }
            | Self::ReadMessage { file, .. }
            | Self::WriteMessage { file, .. }
            | Self::Command(UblkCommand { file, .. }) => *file,
            Self::Fuse(entry) => entry.file(),
        }
    }

    /// Returns the mark that shows that a command is meant for its file.
    pub(super) fn mark(&self) -> Option<u64> {
        match self {
            Self::Command(command) => Some(command.mark),
            Self::Fuse(entry) => Some(entry.mark()),
            _ => None,
        }
    }

    /// Tells if it is a transfer between a file and a buffer of `arena`.
    pub(super) fn transfers(&self, arena: &Arc<Arena>) -> bool {
        matches!(self, Self::Read { buffer, .. } | Self::Write { buffer, .. } if buffer.belongs_to(arena))
    }

    /// Tells if the kernel gives it back only when the ring is closed, and cancels it before under no circumstances.
    pub(super) fn ends_with_the_ring(&self) -> bool {
        matches!(self, Self::Fuse(_) | Self::Command(_))
    }

    /// Tells if it waits until its descriptor is ready, as sockets do and files never.
    pub(super) fn waits(&self) -> bool {
        matches!(self, Self::Receive { .. } | Self::Send { .. } | Self::ReadMessage { .. } | Self::WriteMessage { .. })
    }

    /// Tells if it is refused, instead of waiting, while its descriptor is not ready.
    pub(super) fn is_message(&self) -> bool {
        matches!(self, Self::ReadMessage { .. } | Self::WriteMessage { .. })
    }

    /// For what `poll` must wait.
    pub(super) fn events(&self) -> libc::c_short {
        match self {
            Self::Send { .. } | Self::WriteMessage { .. } => libc::POLLOUT,
            _ => libc::POLLIN,
        }
    }

    /// The memory range must lie in the buffer: everything unsafe below relies on it. File
    /// transfers are cut to `limit` bytes.
    pub(super) fn check(&mut self, limit: usize) {
        if let Self::Read { buffer, start, len, .. }
        | Self::Write { buffer, start, len, .. }
        | Self::Receive { buffer, start, len, .. } = self
        {
            let end = start.checked_add(*len);
            assert!(end.is_some_and(|end| end <= buffer.len()), "I/O range outside its buffer");
        }
        if let Self::Read { len, .. } | Self::Write { len, .. } = self {
            *len = (*len).min(limit);
        }
    }
}
