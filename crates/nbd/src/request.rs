//! One transmission request: parsed from its 28 bytes, then checked against the export.
//!
//! ```text
//!  0        4       6      8         16        24       28
//!  | magic  | flags | type | cookie  | offset  | length |  then, for WRITE, `length` bytes
//! ```
//!
//! Neither step allocates or reads the payload. The checks run in this order, so that the same bad
//! request always gets the same error: command known, flags allowed, writable, advertised, not
//! empty, aligned, payload bounded, inside the export, fast enough.
//!
//! Source: proto.md, "Request message", "Command flags", "Request types", "Error values".

use super::export::{BlockSizes, ExportInfo, TransmissionFlags};
use super::handshake::Negotiated;
use super::reply::NbdError;
use super::wire::{REQUEST_LEN, REQUEST_MAGIC, Reader, cmd, cmd_flag};

/// Payload of a refused write that is still read and thrown away, bytes: 64 MiB. A client that
/// announces more is dropped.
pub const DRAIN_MAX: u32 = 64 << 20;

/// A request's header as sent. Nothing in it is checked yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHeader {
    /// Command flags.
    pub flags: u16,
    /// Command code.
    pub command: u16,
    /// Returned with the reply as it is.
    pub cookie: u64,
    /// Bytes from the start of the export.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}

impl RequestHeader {
    /// Bytes of payload that follow the header on the wire.
    #[must_use]
    pub const fn payload_length(&self) -> u32 {
        if self.command == cmd::WRITE { self.length } else { 0 }
    }
}

/// The stream is out of step; the connection must be dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("client sent {0:#010x} in place of a request; the connection is out of step")]
pub struct BadMagic(pub u32);

/// Reads a request's header.
///
/// # Errors
/// [`BadMagic`] when the bytes are not the start of a request.
pub fn parse_request(bytes: &[u8; REQUEST_LEN]) -> Result<RequestHeader, BadMagic> {
    let fields = read_header(&mut Reader::new(bytes));
    let (magic, header) = fields.expect("all fields together are REQUEST_LEN bytes");
    if magic == REQUEST_MAGIC { Ok(header) } else { Err(BadMagic(magic)) }
}

fn read_header(reader: &mut Reader<'_>) -> Option<(u32, RequestHeader)> {
    let magic = reader.u32()?;
    let header = RequestHeader {
        flags: reader.u16()?,
        command: reader.u16()?,
        cookie: reader.u64()?,
        offset: reader.u64()?,
        length: reader.u32()?,
    };
    Some((magic, header))
}

/// A request that may be carried out on its header's `offset` and `length`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NbdCommand {
    /// Read `length` bytes.
    Read {
        /// Answer with one content chunk.
        df: bool,
    },
    /// Write the `length` bytes of payload.
    Write {
        /// Reply only when the data is durable.
        fua: bool,
    },
    /// Finish what is in flight and close; no reply.
    Disconnect,
    /// Make completed writes durable.
    Flush,
    /// Discard.
    Trim {
        /// Reply only when durable.
        fua: bool,
    },
    /// Prefetch.
    Cache,
    /// Zero.
    WriteZeroes {
        /// Reply only when durable.
        fua: bool,
        /// Keep the range allocated.
        no_hole: bool,
        /// Fail with [`NbdError::NotSup`] rather than be slow.
        fast_zero: bool,
    },
    /// Report extents of `base:allocation`.
    BlockStatus {
        /// One extent, not longer than `length`.
        req_one: bool,
    },
}

/// A request that is not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejection {
    /// Reply with this error.
    Reply(NbdError),
    /// Read `length` bytes of payload, throw them away, then reply with this error.
    ReplyAfterDraining {
        /// The reply.
        error: NbdError,
        /// Bytes of payload on the wire.
        length: u32,
    },
    /// The payload is too large even to throw away: drop the connection.
    DropConnection,
}

/// Limits that requests on one connection must keep to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportLimits {
    /// Bytes in the export.
    pub size: u64,
    /// Offsets and lengths are multiples of this power of two.
    pub min_block: u32,
    /// Longest read or write, bytes.
    pub max_payload: u32,
    /// The flags sent to this client.
    pub flags: TransmissionFlags,
    /// Structured replies were negotiated.
    pub structured_replies: bool,
    /// `base:allocation` was selected.
    pub block_status: bool,
    /// Zeroing is faster than writing zeroes.
    pub zeroes_are_fast: bool,
}

impl ExportLimits {
    /// The limits of `export` for a client that negotiated `agreed`.
    #[must_use]
    pub fn new(export: &ExportInfo, agreed: &Negotiated, zeroes_are_fast: bool) -> Self {
        let BlockSizes { minimum, maximum, .. } = export.block_sizes;
        Self {
            size: export.size,
            min_block: minimum,
            max_payload: maximum,
            flags: agreed.flags,
            structured_replies: agreed.structured_replies,
            block_status: agreed.base_allocation.is_some(),
            zeroes_are_fast,
        }
    }

    const fn has(&self, flag: TransmissionFlags) -> bool {
        self.flags.contains(flag)
    }
}

/// Checks a request against the export.
///
/// # Errors
/// A [`Rejection`] that says what to send and how much payload to read first.
pub fn validate(header: &RequestHeader, limits: &ExportLimits) -> Result<NbdCommand, Rejection> {
    check(header, limits).map_err(|error| match header.payload_length() {
        0 => Rejection::Reply(error),
        length if length <= DRAIN_MAX => Rejection::ReplyAfterDraining { error, length },
        _ => Rejection::DropConnection,
    })
}

fn check(header: &RequestHeader, limits: &ExportLimits) -> Result<NbdCommand, NbdError> {
    let command = decode(header)?;
    if command == NbdCommand::Disconnect {
        return Ok(command);
    }
    check_flags(header, command, limits)?;
    if command.changes_data() && limits.has(TransmissionFlags::READ_ONLY) {
        return Err(NbdError::Perm);
    }
    if !command.is_advertised(limits) {
        return Err(NbdError::Inval);
    }
    if command == NbdCommand::Flush {
        let reserved_is_zero = header.offset == 0 && header.length == 0;
        return if reserved_is_zero { Ok(command) } else { Err(NbdError::Inval) };
    }
    check_range(header, command, limits)?;
    let too_slow = matches!(command, NbdCommand::WriteZeroes { fast_zero: true, .. }) && !limits.zeroes_are_fast;
    if too_slow { Err(NbdError::NotSup) } else { Ok(command) }
}

fn decode(header: &RequestHeader) -> Result<NbdCommand, NbdError> {
    let set = |flag: u16| header.flags & flag != 0;
    let fua = set(cmd_flag::FUA);
    Ok(match header.command {
        cmd::READ => NbdCommand::Read { df: set(cmd_flag::DF) },
        cmd::WRITE => NbdCommand::Write { fua },
        cmd::DISC => NbdCommand::Disconnect,
        cmd::FLUSH => NbdCommand::Flush,
        cmd::TRIM => NbdCommand::Trim { fua },
        cmd::CACHE => NbdCommand::Cache,
        cmd::WRITE_ZEROES => {
            NbdCommand::WriteZeroes { fua, no_hole: set(cmd_flag::NO_HOLE), fast_zero: set(cmd_flag::FAST_ZERO) }
        }
        cmd::BLOCK_STATUS => NbdCommand::BlockStatus { req_one: set(cmd_flag::REQ_ONE) },
        _ => return Err(NbdError::Inval),
    })
}

fn check_flags(header: &RequestHeader, command: NbdCommand, limits: &ExportLimits) -> Result<(), NbdError> {
    let when = |flag, bit| if limits.has(flag) { bit } else { 0 };
    // FUA is allowed on every command once it is advertised, even where it means nothing.
    let fua = when(TransmissionFlags::SEND_FUA, cmd_flag::FUA);
    let own = match command {
        NbdCommand::Read { .. } => when(TransmissionFlags::SEND_DF, cmd_flag::DF),
        NbdCommand::WriteZeroes { .. } => {
            cmd_flag::NO_HOLE | when(TransmissionFlags::SEND_FAST_ZERO, cmd_flag::FAST_ZERO)
        }
        NbdCommand::BlockStatus { .. } => cmd_flag::REQ_ONE,
        _ => 0,
    };
    if header.flags & !(fua | own) == 0 { Ok(()) } else { Err(NbdError::Inval) }
}

impl NbdCommand {
    const fn changes_data(self) -> bool {
        matches!(self, Self::Write { .. } | Self::Trim { .. } | Self::WriteZeroes { .. })
    }

    fn is_advertised(self, limits: &ExportLimits) -> bool {
        match self {
            Self::Read { .. } | Self::Write { .. } | Self::Disconnect => true,
            Self::Flush => limits.has(TransmissionFlags::SEND_FLUSH),
            Self::Trim { .. } => limits.has(TransmissionFlags::SEND_TRIM),
            Self::Cache => limits.has(TransmissionFlags::SEND_CACHE),
            Self::WriteZeroes { .. } => limits.has(TransmissionFlags::SEND_WRITE_ZEROES),
            Self::BlockStatus { .. } => limits.structured_replies && limits.block_status,
        }
    }
}

fn check_range(header: &RequestHeader, command: NbdCommand, limits: &ExportLimits) -> Result<(), NbdError> {
    let (offset, length) = (header.offset, header.length);
    if length == 0 {
        return Err(NbdError::Inval);
    }
    let aligned = offset.is_multiple_of(u64::from(limits.min_block)) && length.is_multiple_of(limits.min_block);
    if !aligned {
        return Err(NbdError::Inval);
    }
    if length > limits.max_payload {
        match command {
            // The protocol lets a read be refused for its size alone only in a structured reply.
            NbdCommand::Read { .. } if limits.structured_replies => return Err(NbdError::Overflow),
            NbdCommand::Read { .. } | NbdCommand::Write { .. } => return Err(NbdError::Inval),
            _ => {}
        }
    }
    let inside = offset.checked_add(u64::from(length)).is_some_and(|end| end <= limits.size);
    match command {
        _ if inside => Ok(()),
        NbdCommand::Write { .. } | NbdCommand::WriteZeroes { .. } => Err(NbdError::NoSpc),
        _ => Err(NbdError::Inval),
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
