//! Replies of a server in transmission, read piece by piece without allocating: headers here, data by the caller.

use super::client::ReplyError;
use super::reply::NbdError;
use super::wire::{CHUNK_HEADER_LEN, Reader, SIMPLE_REPLY_LEN, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk};

/// Most bytes of a message that [`parse_incoming`] has to see: those of a hole.
pub const INCOMING_LEN_MAX: usize = CHUNK_HEADER_LEN + 12;
/// Longest content of an error chunk that is accepted: the protocol allows 4096 bytes of text.
const ERROR_LEN_MAX: u32 = 4 + 2 + 4096 + 8;

/// The start of one message of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incoming {
    /// A simple reply. After a successful read, its data follows.
    Simple {
        /// The request's cookie.
        cookie: u64,
        /// Outcome of the request.
        outcome: Result<(), NbdError>,
    },
    /// A chunk of a structured reply.
    Chunk {
        /// The request's cookie.
        cookie: u64,
        /// The last chunk of its reply.
        done: bool,
        /// Content of the chunk.
        content: IncomingContent,
    },
}

/// Content of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncomingContent {
    /// Nothing.
    None,
    /// So many bytes of the export follow.
    Data {
        /// Where they are.
        offset: u64,
        /// How many; not zero.
        length: u32,
    },
    /// Zeros.
    Hole {
        /// Where they are.
        offset: u64,
        /// How many; not zero.
        length: u32,
    },
    /// The request failed; `text` bytes follow that are for people.
    Error {
        /// How.
        error: NbdError,
        /// Bytes that follow.
        text: u32,
    },
}

/// Reads the start of a message, and how many bytes of `bytes` that were; `None` until it is there.
///
/// # Errors
/// When the bytes cannot become a message that a client without metadata contexts is sent.
pub fn parse_incoming(bytes: &[u8]) -> Result<Option<(Incoming, usize)>, ReplyError> {
    let mut reader = Reader::new(bytes);
    match reader.u32() {
        None => Ok(None),
        Some(SIMPLE_REPLY_MAGIC) => Ok(simple(reader)),
        Some(STRUCTURED_REPLY_MAGIC) => structured(reader),
        Some(magic) => Err(ReplyError::Magic(u64::from(magic))),
    }
}

fn simple(mut reader: Reader<'_>) -> Option<(Incoming, usize)> {
    let outcome = match reader.u32()? {
        0 => Ok(()),
        code => Err(NbdError::from_code(code)),
    };
    let cookie = reader.u64()?;
    Some((Incoming::Simple { cookie, outcome }, SIMPLE_REPLY_LEN))
}

fn structured(mut reader: Reader<'_>) -> Result<Option<(Incoming, usize)>, ReplyError> {
    let (Some(flags), Some(kind), Some(cookie), Some(length)) =
        (reader.u16(), reader.u16(), reader.u64(), reader.u32())
    else {
        return Ok(None);
    };
    let malformed = ReplyError::Malformed(u32::from(kind));
    let is_error = kind & chunk::ERROR_BIT != 0;
    let fixed = match kind {
        chunk::NONE if length == 0 => 0,
        chunk::OFFSET_DATA if length > 8 => 8,
        chunk::OFFSET_HOLE if length == 12 => 12,
        _ if is_error && length > ERROR_LEN_MAX => return Err(ReplyError::TooLong(length)),
        _ if is_error && length >= 6 => 6,
        _ => return Err(malformed),
    };
    let Some(fields) = reader.take(fixed) else {
        return Ok(None);
    };
    let content = content(kind, length, Reader::new(fields)).ok_or(malformed)?;
    let done = flags & chunk::FLAG_DONE != 0;
    let head = Incoming::Chunk { cookie, done, content };
    Ok(Some((head, CHUNK_HEADER_LEN + fixed)))
}

/// The content whose fixed fields are there, `length` bytes in all.
fn content(kind: u16, length: u32, mut fields: Reader<'_>) -> Option<IncomingContent> {
    Some(match kind {
        chunk::NONE => IncomingContent::None,
        chunk::OFFSET_DATA => IncomingContent::Data { offset: fields.u64()?, length: length - 8 },
        chunk::OFFSET_HOLE => {
            let (offset, length) = (fields.u64()?, fields.u32()?);
            (length > 0).then_some(IncomingContent::Hole { offset, length })?
        }
        _ => {
            let code = fields.u32().filter(|&code| code != 0)?;
            let (message, text) = (u32::from(fields.u16()?), length - 6);
            let is_whole = match kind {
                chunk::ERROR => text == message,
                chunk::ERROR_OFFSET => text == message + 8,
                // Unknown errors may carry more.
                _ => text >= message,
            };
            let error = NbdError::from_code(code);
            is_whole.then_some(IncomingContent::Error { error, text })?
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::reply::{self, ChunkPosition};
    use super::*;

    fn parse(bytes: &[u8]) -> Result<Option<(Incoming, usize)>, ReplyError> {
        // Whatever is there, each part of it is the start of a message or no message.
        let whole = parse_incoming(bytes);
        for len in 0..bytes.len().min(INCOMING_LEN_MAX) {
            let part = parse_incoming(&bytes[..len]);
            assert!(part == Ok(None) || part == whole || part.is_err(), "{len}");
        }
        whole
    }

    fn chunk(cookie: u64, done: bool, content: IncomingContent, len: usize) -> (Incoming, usize) {
        let head = Incoming::Chunk { cookie, done, content };
        (head, len)
    }

    #[test]
    fn what_the_server_encodes_is_what_the_client_reads() {
        let simple = |outcome| (Incoming::Simple { cookie: 7, outcome }, 16);
        assert_eq!(parse(&reply::simple(7, Ok(()))), Ok(Some(simple(Ok(())))));
        let failed = Err(NbdError::NoSpc);
        assert_eq!(parse(&reply::simple(7, failed)), Ok(Some(simple(failed))));
        let none = chunk(1, true, IncomingContent::None, 20);
        assert_eq!(parse(&reply::none(1)), Ok(Some(none)));
        let (offset, length) = (4096, 512);
        let data = IncomingContent::Data { offset, length };
        let bytes = reply::offset_data(2, offset, length, ChunkPosition::No);
        assert_eq!(parse(&bytes), Ok(Some(chunk(2, false, data, 28))));
        let hole = IncomingContent::Hole { offset, length };
        let bytes = reply::offset_hole(3, offset, length, ChunkPosition::Yes);
        assert_eq!(parse(&bytes), Ok(Some(chunk(3, true, hole, 32))));
        let error = |text| IncomingContent::Error { error: NbdError::Io, text };
        let bytes = reply::error_chunk(4, NbdError::Io, "bad", ChunkPosition::Yes);
        assert_eq!(parse(bytes.as_bytes()), Ok(Some(chunk(4, true, error(3), 26))));
        let bytes = reply::error_offset_chunk(5, NbdError::Io, "bad", 9, ChunkPosition::No);
        assert_eq!(parse(bytes.as_bytes()), Ok(Some(chunk(5, false, error(11), 26))));
    }

    #[test]
    fn chunks_that_break_a_rule_are_refused_by_their_first_bytes() {
        let changed = |kind: u16, length: u32| {
            let mut bytes = reply::none(1).to_vec();
            bytes[6..8].copy_from_slice(&kind.to_be_bytes());
            bytes[16..20].copy_from_slice(&length.to_be_bytes());
            bytes.extend([0; 64]);
            parse_incoming(&bytes)
        };
        let malformed = |kind: u16| Err(ReplyError::Malformed(u32::from(kind)));
        for (kind, length) in [
            (chunk::NONE, 1),
            (chunk::OFFSET_DATA, 8),
            (chunk::OFFSET_DATA, 0),
            (chunk::OFFSET_HOLE, 11),
            (chunk::OFFSET_HOLE, 12),
            (chunk::OFFSET_HOLE, 13),
            (chunk::BLOCK_STATUS, 12),
            (3, 0),
            (chunk::ERROR, 5),
            (chunk::ERROR, 6),
        ] {
            assert_eq!(changed(kind, length), malformed(kind), "{kind} {length}");
        }
        assert_eq!(changed(chunk::ERROR, u32::MAX), Err(ReplyError::TooLong(u32::MAX)));
        assert_eq!(parse_incoming(&[2; 16]), Err(ReplyError::Magic(0x0202_0202)));
    }
}
