//! Transmission replies, encoded into fixed arrays: no allocation, no I/O.
//!
//! ```text
//! simple   0 magic 4 error 8 cookie 16                        then the data of a successful read
//! chunk    0 magic 4 flags 6 type 8 cookie 16 length 20       then `length` bytes:
//!            NONE          nothing
//!            OFFSET_DATA   offset 8 | data
//!            OFFSET_HOLE   offset 8 | hole size 4
//!            BLOCK_STATUS  context 4 | (extent length 4 | flags 4) ×
//!            ERROR         error 4 | n 2 | message n
//!            ERROR_OFFSET  error 4 | n 2 | message n | offset 8
//! ```
//!
//! With structured replies negotiated, `READ` and `BLOCK_STATUS` must be answered with chunks; the
//! other commands may still use the simple reply.
//!
//! Source: proto.md, "Simple reply message", "Structured reply types", "Error values".

use rustix::io::Errno;

use super::wire::{CHUNK_HEADER_LEN, SIMPLE_REPLY_LEN, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk};

/// The errors that the protocol knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum NbdError {
    /// Operation not permitted.
    Perm = 1,
    /// Input/output error.
    Io = 5,
    /// Cannot allocate memory.
    NoMem = 12,
    /// Invalid argument.
    Inval = 22,
    /// No space left on device.
    NoSpc = 28,
    /// Value too large.
    Overflow = 75,
    /// Operation not supported.
    NotSup = 95,
    /// Server is shutting down.
    Shutdown = 108,
}

impl NbdError {
    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The error for a number received, other than 0. Numbers that the protocol does not know
    /// count as [`NbdError::Inval`], as it demands.
    #[must_use]
    pub const fn from_code(code: u32) -> Self {
        match code {
            1 => Self::Perm,
            5 => Self::Io,
            12 => Self::NoMem,
            28 => Self::NoSpc,
            75 => Self::Overflow,
            95 => Self::NotSup,
            108 => Self::Shutdown,
            _ => Self::Inval,
        }
    }

    /// The error for a failed operation on the medium. `EDQUOT` and `EFBIG` become `NoSpc`, as the
    /// protocol demands. It allows `NotSup` only for a refused fast zero, which the caller knows
    /// and this does not, so `EOPNOTSUPP` becomes `Inval`. What it has no word for becomes `Io`.
    #[must_use]
    pub fn from_errno(errno: Errno) -> Self {
        match errno {
            Errno::PERM | Errno::ACCESS | Errno::ROFS => Self::Perm,
            Errno::NOMEM => Self::NoMem,
            Errno::INVAL | Errno::OPNOTSUPP => Self::Inval,
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Self::NoSpc,
            Errno::SHUTDOWN => Self::Shutdown,
            _ => Self::Io,
        }
    }
}

/// A simple reply. After a successful read its data follows.
#[must_use]
pub fn simple(cookie: u64, outcome: Result<(), NbdError>) -> [u8; SIMPLE_REPLY_LEN] {
    let error = outcome.map_or_else(NbdError::code, |()| 0);
    let mut bytes = [0; SIMPLE_REPLY_LEN];
    bytes[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.to_be_bytes());
    bytes[8..].copy_from_slice(&cookie.to_be_bytes());
    bytes
}

/// Position of a chunk in its reply: the last one or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkPosition {
    /// More chunks follow.
    No,
    /// The reply is complete. Only when no error can happen any more.
    Yes,
}

/// Bytes of an `OFFSET_DATA` chunk before its data.
pub const OFFSET_DATA_LEN: usize = CHUNK_HEADER_LEN + 8;
/// Bytes of an `OFFSET_HOLE` chunk.
pub const OFFSET_HOLE_LEN: usize = CHUNK_HEADER_LEN + 12;
/// Bytes of a `BLOCK_STATUS` chunk before its descriptors.
pub const BLOCK_STATUS_LEN: usize = CHUNK_HEADER_LEN + 4;
/// Bytes of one descriptor in a `BLOCK_STATUS` chunk.
pub const DESCRIPTOR_LEN: usize = 8;
/// Longest data of one `OFFSET_DATA` chunk: its length field also counts the 8 bytes of offset.
pub const OFFSET_DATA_MAX: u32 = u32::MAX - 8;
/// Most descriptors that one chunk should have (proto.md, `NBD_REPLY_TYPE_BLOCK_STATUS`).
pub const DESCRIPTORS_MAX: usize = 1 << 20;

/// The chunk that ends a reply and carries nothing.
#[must_use]
pub fn none(cookie: u64) -> [u8; CHUNK_HEADER_LEN] {
    chunk_header(cookie, chunk::NONE, ChunkPosition::Yes, 0)
}

/// The start of a chunk of `length` bytes of data, which the caller sends next.
///
/// # Panics
/// When `length` is over [`OFFSET_DATA_MAX`]; checked reads never are.
#[must_use]
pub fn offset_data(cookie: u64, offset: u64, length: u32, last: ChunkPosition) -> [u8; OFFSET_DATA_LEN] {
    assert!(length <= OFFSET_DATA_MAX, "a read is bounded by the maximum payload");
    let mut bytes = [0; OFFSET_DATA_LEN];
    let (header, payload) = bytes.split_at_mut(CHUNK_HEADER_LEN);
    header.copy_from_slice(&chunk_header(cookie, chunk::OFFSET_DATA, last, length + 8));
    payload.copy_from_slice(&offset.to_be_bytes());
    bytes
}

/// A chunk that says that `length` bytes read as zeroes.
#[must_use]
pub fn offset_hole(cookie: u64, offset: u64, length: u32, last: ChunkPosition) -> [u8; OFFSET_HOLE_LEN] {
    let mut bytes = [0; OFFSET_HOLE_LEN];
    let (header, payload) = bytes.split_at_mut(CHUNK_HEADER_LEN);
    header.copy_from_slice(&chunk_header(cookie, chunk::OFFSET_HOLE, last, 12));
    payload[..8].copy_from_slice(&offset.to_be_bytes());
    payload[8..].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// One extent of `base:allocation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NbdExtent {
    /// Bytes; not zero.
    pub length: u32,
    /// `STATE_HOLE` and `STATE_ZERO` of [`super::wire`].
    pub flags: u32,
}

/// A `BLOCK_STATUS` chunk being written into a caller's slice, one descriptor at a time.
#[derive(Debug)]
pub struct BlockStatus<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl<'a> BlockStatus<'a> {
    /// Starts a chunk. `None` when `out` has no room for one descriptor.
    #[must_use]
    pub fn new(out: &'a mut [u8]) -> Option<Self> {
        (out.len() >= BLOCK_STATUS_LEN + DESCRIPTOR_LEN).then_some(Self { out, len: BLOCK_STATUS_LEN })
    }

    /// Adds an extent; `false`, and nothing is added, when the slice is full or the chunk has
    /// [`DESCRIPTORS_MAX`] descriptors.
    pub fn push(&mut self, extent: NbdExtent) -> bool {
        let end = self.len + DESCRIPTOR_LEN;
        if end > self.out.len() || end > BLOCK_STATUS_LEN + DESCRIPTOR_LEN * DESCRIPTORS_MAX {
            return false;
        }
        let descriptor = &mut self.out[self.len..end];
        descriptor[..4].copy_from_slice(&extent.length.to_be_bytes());
        descriptor[4..].copy_from_slice(&extent.flags.to_be_bytes());
        self.len = end;
        true
    }

    /// Writes the header and gives the whole chunk. `None` when no extent was added: the protocol
    /// wants at least one, so the caller reports an error in place of it.
    #[must_use]
    pub fn finish(self, cookie: u64, context: u32, last: ChunkPosition) -> Option<&'a [u8]> {
        if self.len == BLOCK_STATUS_LEN {
            return None;
        }
        let payload = u32::try_from(self.len - CHUNK_HEADER_LEN).ok()?;
        let header = chunk_header(cookie, chunk::BLOCK_STATUS, last, payload);
        self.out[..CHUNK_HEADER_LEN].copy_from_slice(&header);
        self.out[CHUNK_HEADER_LEN..BLOCK_STATUS_LEN].copy_from_slice(&context.to_be_bytes());
        Some(&self.out[..self.len])
    }
}

/// Longest message of an error chunk, bytes; longer ones are cut.
pub const MESSAGE_MAX: usize = 200;
const ERROR_REPLY_MAX: usize = CHUNK_HEADER_LEN + 4 + 2 + MESSAGE_MAX + 8;

/// An encoded error reply, simple or structured.
#[derive(Debug, Clone, Copy)]
pub struct ErrorReply {
    bytes: [u8; ERROR_REPLY_MAX],
    len: usize,
}

impl ErrorReply {
    /// The bytes to send.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    const EMPTY: Self = Self { bytes: [0; ERROR_REPLY_MAX], len: 0 };

    fn append(mut self, part: &[u8]) -> Self {
        let end = self.len + part.len();
        self.bytes[self.len..end].copy_from_slice(part);
        self.len = end;
        self
    }
}

/// The whole reply to a failed request: an `ERROR` chunk with a message where structured replies
/// are negotiated, else a simple reply.
#[must_use]
pub fn failure(structured: bool, cookie: u64, error: NbdError, message: &str) -> ErrorReply {
    if structured {
        error_chunk(cookie, error, message, ChunkPosition::Yes)
    } else {
        ErrorReply::EMPTY.append(&simple(cookie, Err(error)))
    }
}

/// An `ERROR` chunk: nothing in the reply can be relied on.
#[must_use]
pub fn error_chunk(cookie: u64, error: NbdError, message: &str, last: ChunkPosition) -> ErrorReply {
    encode_error(cookie, chunk::ERROR, error, message, &[], last)
}

/// An `ERROR_OFFSET` chunk: the request failed at the absolute `offset`, which lies inside it.
#[must_use]
pub fn error_offset_chunk(cookie: u64, error: NbdError, message: &str, offset: u64, last: ChunkPosition) -> ErrorReply {
    encode_error(cookie, chunk::ERROR_OFFSET, error, message, &offset.to_be_bytes(), last)
}

fn encode_error(
    cookie: u64,
    kind: u16,
    error: NbdError,
    message: &str,
    tail: &[u8],
    last: ChunkPosition,
) -> ErrorReply {
    let message = cut(message);
    let fits = "an error chunk is at most a few hundred bytes";
    let message_len = u16::try_from(message.len()).expect(fits);
    let length = u32::try_from(4 + 2 + message.len() + tail.len()).expect(fits);
    ErrorReply::EMPTY
        .append(&chunk_header(cookie, kind, last, length))
        .append(&error.code().to_be_bytes())
        .append(&message_len.to_be_bytes())
        .append(message.as_bytes())
        .append(tail)
}

/// The longest start of `message` that fits and ends between characters.
fn cut(message: &str) -> &str {
    let end = (0..=message.len().min(MESSAGE_MAX)).rfind(|&end| message.is_char_boundary(end));
    &message[..end.unwrap_or(0)]
}

fn chunk_header(cookie: u64, kind: u16, last: ChunkPosition, length: u32) -> [u8; CHUNK_HEADER_LEN] {
    let flags = match last {
        ChunkPosition::Yes => chunk::FLAG_DONE,
        ChunkPosition::No => 0,
    };
    let mut bytes = [0; CHUNK_HEADER_LEN];
    bytes[..4].copy_from_slice(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..].copy_from_slice(&length.to_be_bytes());
    bytes
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
