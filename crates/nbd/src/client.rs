//! The client's half of the protocol: options and requests encoded, replies parsed.
//!
//! Only what a client needs to speak with a server; it drives nothing.
//! Parsers take the bytes received so far and return `Ok(None)` until an item is whole.

use super::export::{BlockSizes, TransmissionFlags};
use super::reply::{NbdError, NbdExtent};
use super::request::RequestHeader;
use super::wire::{
    CHUNK_HEADER_LEN, GREETING_LEN, INIT_PASSWD, OPTION_MAGIC, OPTION_REPLY_HEADER_LEN, OPTION_REPLY_MAGIC,
    REQUEST_LEN, REQUEST_MAGIC, Reader, SIMPLE_REPLY_LEN, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk, info,
};

/// Longest option reply or chunk that is accepted, bytes: 64 MiB of data and its header.
pub const PAYLOAD_MAX: usize = (64 << 20) + 8;

/// Why bytes from a server make no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// Not a greeting of a newstyle server.
    #[error("not a newstyle NBD server")]
    Greeting,
    /// A reply that starts with another magic number.
    #[error("server sent {0:#x} in place of a reply; the connection is out of step")]
    Magic(u64),
    /// A reply longer than [`PAYLOAD_MAX`].
    #[error("server sent a reply of {0} bytes, which is too long")]
    TooLong(u32),
    /// A reply whose content does not fit its type.
    #[error("server sent a malformed reply of type {0:#x}")]
    Malformed(u32),
}

/// Reads the server's greeting and gives its handshake flags.
///
/// # Errors
/// [`ReplyError::Greeting`] for anything but a newstyle server.
pub fn parse_greeting(bytes: &[u8; GREETING_LEN]) -> Result<u16, ReplyError> {
    let mut reader = Reader::new(bytes);
    let magics = (reader.u64(), reader.u64());
    match reader.u16() {
        Some(flags) if magics == (Some(INIT_PASSWD), Some(OPTION_MAGIC)) => Ok(flags),
        _ => Err(ReplyError::Greeting),
    }
}

/// Encodes an option.
///
/// # Panics
/// When `data` is 4 GiB or longer.
#[must_use]
pub fn option(option: u32, data: &[u8]) -> Vec<u8> {
    [&OPTION_MAGIC.to_be_bytes(), &option.to_be_bytes()[..], &length32(data), data].concat()
}

/// Encodes the data of `INFO` and `GO`.
///
/// # Panics
/// When there are 65536 information types or more.
#[must_use]
pub fn info_data(name: &[u8], types: &[u16]) -> Vec<u8> {
    let count = u16::try_from(types.len()).expect("few information types");
    let mut data = [&length32(name), name, &count.to_be_bytes()[..]].concat();
    data.extend(types.iter().flat_map(|kind| kind.to_be_bytes()));
    data
}

/// Encodes the data of `LIST_META_CONTEXT` and `SET_META_CONTEXT`.
///
/// # Panics
/// When there are 2^32 queries or more.
#[must_use]
pub fn context_data(name: &[u8], queries: &[&[u8]]) -> Vec<u8> {
    let count = u32::try_from(queries.len()).expect("few queries");
    let mut data = [&length32(name), name, &count.to_be_bytes()[..]].concat();
    for query in queries {
        data.extend_from_slice(&length32(query));
        data.extend_from_slice(query);
    }
    data
}

fn length32(bytes: &[u8]) -> [u8; 4] {
    u32::try_from(bytes.len()).expect("shorter than 4 GiB").to_be_bytes()
}

/// One reply to an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionReply<'a> {
    /// The option it answers.
    pub option: u32,
    /// Its type, see [`super::wire::rep`].
    pub kind: u32,
    /// Its data.
    pub data: &'a [u8],
}

/// Takes one option reply off the front of `bytes`.
///
/// # Errors
/// When the bytes cannot become a reply.
pub fn parse_option_reply(bytes: &[u8]) -> Result<Option<(OptionReply<'_>, usize)>, ReplyError> {
    let mut reader = Reader::new(bytes);
    let (Some(magic), Some(option), Some(kind), Some(length)) =
        (reader.u64(), reader.u32(), reader.u32(), reader.u32())
    else {
        return Ok(None);
    };
    if magic != OPTION_REPLY_MAGIC {
        return Err(ReplyError::Magic(magic));
    }
    let len = payload_len(length)?;
    let reply = reader.take(len).map(|data| OptionReply { option, kind, data });
    Ok(reply.map(|reply| (reply, OPTION_REPLY_HEADER_LEN + len)))
}

/// One piece of information about an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InfoReply<'a> {
    /// Size and flags.
    Export {
        /// Bytes.
        size: u64,
        /// Abilities of the export.
        flags: TransmissionFlags,
    },
    /// The canonical name.
    Name(&'a [u8]),
    /// The description.
    Description(&'a [u8]),
    /// Size constraints.
    BlockSize(BlockSizes),
    /// A type unknown here.
    Other(u16),
}

/// Reads the data of an `NBD_REP_INFO`; `None` when it is malformed.
#[must_use]
pub fn parse_info(data: &[u8]) -> Option<InfoReply<'_>> {
    let mut reader = Reader::new(data);
    let parsed = match reader.u16()? {
        info::EXPORT => InfoReply::Export { size: reader.u64()?, flags: TransmissionFlags::from_bits(reader.u16()?) },
        info::NAME => return Some(InfoReply::Name(reader.rest())),
        info::DESCRIPTION => return Some(InfoReply::Description(reader.rest())),
        info::BLOCK_SIZE => InfoReply::BlockSize(BlockSizes {
            minimum: reader.u32()?,
            preferred: reader.u32()?,
            maximum: reader.u32()?,
        }),
        other => return Some(InfoReply::Other(other)),
    };
    reader.is_empty().then_some(parsed)
}

/// Encodes a request's header; the payload of a write follows it.
#[must_use]
pub fn request(header: &RequestHeader) -> [u8; REQUEST_LEN] {
    let mut bytes = [0; REQUEST_LEN];
    bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&header.flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&header.command.to_be_bytes());
    bytes[8..16].copy_from_slice(&header.cookie.to_be_bytes());
    bytes[16..24].copy_from_slice(&header.offset.to_be_bytes());
    bytes[24..].copy_from_slice(&header.length.to_be_bytes());
    bytes
}

/// One message of a server in transmission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerMessage<'a> {
    /// A simple reply. After a successful read, data follows that only the reader's own request
    /// tells the length of.
    Simple {
        /// The request's cookie.
        cookie: u64,
        /// Outcome of the request.
        outcome: Result<(), NbdError>,
    },
    /// One chunk of a structured reply.
    Chunk {
        /// The request's cookie.
        cookie: u64,
        /// The last chunk of its reply.
        done: bool,
        /// Its content.
        content: Content<'a>,
    },
}

/// The content of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content<'a> {
    /// Nothing.
    None,
    /// Bytes of the export.
    Data {
        /// Where they are.
        offset: u64,
        /// The bytes.
        data: &'a [u8],
    },
    /// Zeroes.
    Hole {
        /// Where they are.
        offset: u64,
        /// How many.
        length: u32,
    },
    /// Extents, from the request's offset on.
    BlockStatus {
        /// The metadata context's id.
        context: u32,
        /// At least one.
        extents: Vec<NbdExtent>,
    },
    /// The request failed.
    Error {
        /// How.
        error: NbdError,
        /// For people.
        message: &'a [u8],
        /// Where, if the server said it.
        offset: Option<u64>,
    },
}

/// Takes one message off the front of `bytes`.
///
/// # Errors
/// When the bytes cannot become a message.
pub fn parse_reply(bytes: &[u8]) -> Result<Option<(ServerMessage<'_>, usize)>, ReplyError> {
    let mut reader = Reader::new(bytes);
    match reader.u32() {
        None => Ok(None),
        Some(SIMPLE_REPLY_MAGIC) => Ok(parse_simple(reader).map(|reply| (reply, SIMPLE_REPLY_LEN))),
        Some(STRUCTURED_REPLY_MAGIC) => parse_chunk(reader),
        Some(magic) => Err(ReplyError::Magic(u64::from(magic))),
    }
}

fn parse_simple(mut reader: Reader<'_>) -> Option<ServerMessage<'static>> {
    let outcome = match reader.u32()? {
        0 => Ok(()),
        code => Err(NbdError::from_code(code)),
    };
    Some(ServerMessage::Simple { cookie: reader.u64()?, outcome })
}

fn parse_chunk(mut reader: Reader<'_>) -> Result<Option<(ServerMessage<'_>, usize)>, ReplyError> {
    let (Some(flags), Some(kind), Some(cookie), Some(length)) =
        (reader.u16(), reader.u16(), reader.u64(), reader.u32())
    else {
        return Ok(None);
    };
    let len = payload_len(length)?;
    let Some(payload) = reader.take(len) else {
        return Ok(None);
    };
    let content = parse_content(kind, Reader::new(payload));
    let content = content.ok_or(ReplyError::Malformed(u32::from(kind)))?;
    let done = flags & chunk::FLAG_DONE != 0;
    Ok(Some((ServerMessage::Chunk { cookie, done, content }, CHUNK_HEADER_LEN + len)))
}

fn parse_content(kind: u16, mut payload: Reader<'_>) -> Option<Content<'_>> {
    let content = match kind {
        chunk::NONE => Content::None,
        chunk::OFFSET_DATA => {
            let content = Content::Data { offset: payload.u64()?, data: payload.rest() };
            return matches!(content, Content::Data { data: [_, ..], .. }).then_some(content);
        }
        chunk::OFFSET_HOLE => {
            let (offset, length) = (payload.u64()?, payload.u32()?);
            (length > 0).then_some(Content::Hole { offset, length })?
        }
        chunk::BLOCK_STATUS => return parse_block_status(payload),
        _ if kind & chunk::ERROR_BIT != 0 => {
            let error = match payload.u32()? {
                0 => return None,
                code => NbdError::from_code(code),
            };
            let message_len = usize::from(payload.u16()?);
            let message = payload.take(message_len)?;
            match kind {
                chunk::ERROR => Content::Error { error, message, offset: None },
                chunk::ERROR_OFFSET => Content::Error { error, message, offset: Some(payload.u64()?) },
                // Unknown errors may carry more.
                _ => {
                    return Some(Content::Error { error, message, offset: None });
                }
            }
        }
        _ => return None,
    };
    payload.is_empty().then_some(content)
}

fn parse_block_status(mut payload: Reader<'_>) -> Option<Content<'_>> {
    let context = payload.u32()?;
    let mut extents = Vec::new();
    while !payload.is_empty() {
        let (length, flags) = (payload.u32()?, payload.u32()?);
        if length == 0 {
            return None;
        }
        extents.push(NbdExtent { length, flags });
    }
    (!extents.is_empty()).then_some(Content::BlockStatus { context, extents })
}

fn payload_len(length: u32) -> Result<usize, ReplyError> {
    let len = usize::try_from(length).ok().filter(|&len| len <= PAYLOAD_MAX);
    len.ok_or(ReplyError::TooLong(length))
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
