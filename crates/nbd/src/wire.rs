//! Numbers of the NBD protocol, and reading them from bytes (all integers are big-endian).
//!
//! Source: proto.md, "Values".

/// First 8 bytes of a server's greeting, ASCII `NBDMAGIC`.
pub const INIT_PASSWD: u64 = 0x4e42_444d_4147_4943;
/// Second 8 bytes of a newstyle greeting and first 8 of every option, ASCII `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// First 8 bytes of every option reply.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First 4 bytes of every request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First 4 bytes of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First 4 bytes of a structured reply chunk.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Bytes of the server's greeting: two magic numbers and 16 bits of handshake flags.
pub const GREETING_LEN: usize = 18;
/// Bytes of an option's header: magic, option, data length.
pub const OPTION_HEADER_LEN: usize = 16;
/// Bytes of an option reply's header: magic, option, reply type, data length.
pub const OPTION_REPLY_HEADER_LEN: usize = 20;
/// Bytes of a request's header.
pub const REQUEST_LEN: usize = 28;
/// Bytes of a simple reply.
pub const SIMPLE_REPLY_LEN: usize = 16;
/// Bytes of a structured reply chunk's header.
pub const CHUNK_HEADER_LEN: usize = 20;
/// Longest string the protocol allows, bytes (proto.md, "Conventions").
pub const STRING_MAX: usize = 4096;

/// Handshake flags, sent by the server.
pub mod handshake_flag {
    /// The server speaks fixed newstyle.
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// The server can leave out the 124 zero bytes after `EXPORT_NAME`.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Client flags, sent in answer to the handshake flags.
pub mod client_flag {
    /// The client speaks fixed newstyle.
    pub const FIXED_NEWSTYLE: u32 = 1 << 0;
    /// The client wants no 124 zero bytes after `EXPORT_NAME`.
    pub const NO_ZEROES: u32 = 1 << 1;
}

/// Option codes, `NBD_OPT_*`.
pub mod opt {
    /// Choose an export; cannot be answered with an error.
    pub const EXPORT_NAME: u32 = 1;
    /// End the session.
    pub const ABORT: u32 = 2;
    /// List the exports.
    pub const LIST: u32 = 3;
    /// Upgrade the connection to TLS.
    pub const STARTTLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Describe an export and enter transmission.
    pub const GO: u32 = 7;
    /// Use structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Select metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
    /// Use 64-bit headers (experimental extension).
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Option reply types, `NBD_REP_*`. Bit 31 marks an error.
pub mod rep {
    /// Done, without more information.
    pub const ACK: u32 = 1;
    /// One export, in answer to `LIST`.
    pub const SERVER: u32 = 2;
    /// One piece of information, in answer to `INFO` and `GO`.
    pub const INFO: u32 = 3;
    /// One metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// The bit that all errors have.
    pub const ERROR_BIT: u32 = 1 << 31;
    /// The option is unknown here.
    pub const ERR_UNSUP: u32 = ERROR_BIT | 1;
    /// The server's configuration forbids the option.
    pub const ERR_POLICY: u32 = ERROR_BIT | 2;
    /// The option's data is malformed, or it came at the wrong time.
    pub const ERR_INVALID: u32 = ERROR_BIT | 3;
    /// TLS must be started first.
    pub const ERR_TLS_REQD: u32 = ERROR_BIT | 5;
    /// No such export.
    pub const ERR_UNKNOWN: u32 = ERROR_BIT | 6;
    /// The server is shutting down.
    pub const ERR_SHUTDOWN: u32 = ERROR_BIT | 7;
    /// The client must ask for the block sizes first.
    pub const ERR_BLOCK_SIZE_REQD: u32 = ERROR_BIT | 8;
    /// The option's data is too large.
    pub const ERR_TOO_BIG: u32 = ERROR_BIT | 9;
}

/// Information types, `NBD_INFO_*`.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// The export's canonical name.
    pub const NAME: u16 = 1;
    /// The export's description.
    pub const DESCRIPTION: u16 = 2;
    /// Minimum, preferred and maximum block sizes.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Command codes, `NBD_CMD_*`.
pub mod cmd {
    /// Read bytes.
    pub const READ: u16 = 0;
    /// Write the bytes that follow the header.
    pub const WRITE: u16 = 1;
    /// End the session; has no reply.
    pub const DISC: u16 = 2;
    /// Make completed writes durable.
    pub const FLUSH: u16 = 3;
    /// Discard a range.
    pub const TRIM: u16 = 4;
    /// Prefetch a range.
    pub const CACHE: u16 = 5;
    /// Zero a range.
    pub const WRITE_ZEROES: u16 = 6;
    /// Report extents of a range.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Command flags, `NBD_CMD_FLAG_*`.
pub mod cmd_flag {
    /// Reply only when the data is durable.
    pub const FUA: u16 = 1 << 0;
    /// Zeroing must not deallocate.
    pub const NO_HOLE: u16 = 1 << 1;
    /// Reply to a read with one content chunk.
    pub const DF: u16 = 1 << 2;
    /// Report one extent only.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Fail rather than zero slowly.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Structured reply chunk types, `NBD_REPLY_TYPE_*`. Bit 15 marks an error.
pub mod chunk {
    /// The last chunk, without content.
    pub const NONE: u16 = 0;
    /// Bytes read, with their offset.
    pub const OFFSET_DATA: u16 = 1;
    /// A range that reads as zeroes.
    pub const OFFSET_HOLE: u16 = 2;
    /// Extents of one metadata context.
    pub const BLOCK_STATUS: u16 = 5;
    /// The bit that all errors have.
    pub const ERROR_BIT: u16 = 1 << 15;
    /// The request failed.
    pub const ERROR: u16 = ERROR_BIT | 1;
    /// The request failed at an offset.
    pub const ERROR_OFFSET: u16 = ERROR_BIT | 2;
    /// Chunk flag: the last chunk of its reply.
    pub const FLAG_DONE: u16 = 1 << 0;
}

/// The one metadata context that the protocol itself defines.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// `base:allocation` flag: not allocated.
pub const STATE_HOLE: u32 = 1 << 0;
/// `base:allocation` flag: reads as zeroes.
pub const STATE_ZERO: u32 = 1 << 1;

/// Takes integers and strings off the front of a byte slice; every method returns `None` when
/// too few bytes are left, and then leaves the slice as it was.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(len)?;
        self.0 = tail;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A string preceded by its 32-bit length.
    pub(crate) fn string32(&mut self) -> Option<&'a [u8]> {
        let mut ahead = self.clone();
        let len = usize::try_from(ahead.u32()?).ok()?;
        let string = ahead.take(len)?;
        *self = ahead;
        Some(string)
    }
}
