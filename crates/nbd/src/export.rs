//! Offer of a server: its exports, their sizes and abilities, and whether TLS is wanted.
//!
//! A [`ServerOffer`] is checked once, when it is built; the handshake then relies on it.

use super::wire::STRING_MAX;

/// Smallest payload limit that every server should accept, bytes: 32 MiB (proto.md, "Size constraints").
pub const DEFAULT_MAX_PAYLOAD: u32 = 32 << 20;
/// Largest payload limit that an export may have here, bytes: 64 MiB.
pub const LARGEST_MAX_PAYLOAD: u32 = 64 << 20;
/// Largest minimum block size that the protocol allows, bytes.
const LARGEST_MINIMUM_BLOCK: u32 = 1 << 16;

/// Abilities of an export, in the server's words; becomes [`TransmissionFlags`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Writes are refused.
    pub read_only: bool,
    /// `FLUSH` makes completed writes durable.
    pub flush: bool,
    /// Forced unit access: a write can be made durable on its own.
    pub fua: bool,
    /// The medium seeks.
    pub rotational: bool,
    /// Ranges can be discarded.
    pub trim: bool,
    /// Ranges can be zeroed without sending zeroes.
    pub write_zeroes: bool,
    /// Reads can be answered in one chunk on demand.
    pub dont_fragment: bool,
    /// A flush on one connection covers the writes of all.
    pub multi_conn: bool,
    /// `CACHE` is understood.
    pub cache: bool,
    /// The fast-zero flag is understood (the answer may still be "not fast").
    pub fast_zero: bool,
}

/// The 16 transmission flags as sent to a client (proto.md, "Transmission flags").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransmissionFlags(u16);

impl TransmissionFlags {
    /// Always set.
    pub const HAS_FLAGS: Self = Self(1 << 0);
    /// The export refuses writes.
    pub const READ_ONLY: Self = Self(1 << 1);
    /// `FLUSH` may be sent.
    pub const SEND_FLUSH: Self = Self(1 << 2);
    /// The FUA flag may be sent.
    pub const SEND_FUA: Self = Self(1 << 3);
    /// The medium seeks.
    pub const ROTATIONAL: Self = Self(1 << 4);
    /// `TRIM` may be sent.
    pub const SEND_TRIM: Self = Self(1 << 5);
    /// `WRITE_ZEROES` may be sent.
    pub const SEND_WRITE_ZEROES: Self = Self(1 << 6);
    /// The DF flag may be sent; only with structured replies.
    pub const SEND_DF: Self = Self(1 << 7);
    /// One export may be used over several connections at once.
    pub const CAN_MULTI_CONN: Self = Self(1 << 8);
    /// `CACHE` may be sent.
    pub const SEND_CACHE: Self = Self(1 << 10);
    /// The fast-zero flag may be sent; only with `SEND_WRITE_ZEROES`.
    pub const SEND_FAST_ZERO: Self = Self(1 << 11);

    /// The flags as the number on the wire.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Flags received from a server. `HAS_FLAGS` is always set in the result.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits | Self::HAS_FLAGS.0)
    }

    /// Tells if every flag of `other` is set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These flags and `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These flags without `other`; `HAS_FLAGS` stays.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self((self.0 & !other.0) | Self::HAS_FLAGS.0)
    }

    const fn with_if(self, condition: bool, other: Self) -> Self {
        if condition { self.with(other) } else { self }
    }
}

impl From<Capabilities> for TransmissionFlags {
    /// Flags that contradict each other are resolved here: a read-only export advertises no write
    /// commands, and fast zeroes need zeroes.
    fn from(can: Capabilities) -> Self {
        let writable = !can.read_only;
        Self::HAS_FLAGS
            .with_if(can.read_only, Self::READ_ONLY)
            .with_if(can.flush, Self::SEND_FLUSH)
            .with_if(can.fua, Self::SEND_FUA)
            .with_if(can.rotational, Self::ROTATIONAL)
            .with_if(can.trim && writable, Self::SEND_TRIM)
            .with_if(can.write_zeroes && writable, Self::SEND_WRITE_ZEROES)
            .with_if(can.dont_fragment, Self::SEND_DF)
            .with_if(can.multi_conn, Self::CAN_MULTI_CONN)
            .with_if(can.cache, Self::SEND_CACHE)
            .with_if(can.fast_zero && can.write_zeroes && writable, Self::SEND_FAST_ZERO)
    }
}

/// The size constraints of an export, bytes (proto.md, "Size constraints").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offsets and lengths must be multiples of this power of two, at most 64 KiB.
    pub minimum: u32,
    /// Requests of this alignment are efficient: a power of two, at least 512.
    pub preferred: u32,
    /// Longest payload of one read or write.
    pub maximum: u32,
}

impl Default for BlockSizes {
    /// Returns the sizes a client may assume when nothing is said: 1, 4096, 32 MiB.
    fn default() -> Self {
        Self { minimum: 1, preferred: 4096, maximum: DEFAULT_MAX_PAYLOAD }
    }
}

impl BlockSizes {
    fn check(self) -> Result<(), &'static str> {
        if !self.minimum.is_power_of_two() || self.minimum > LARGEST_MINIMUM_BLOCK {
            return Err("the minimum block size must be a power of two from 1 to 65536");
        }
        if !self.preferred.is_power_of_two() || self.preferred < self.minimum.max(512) {
            return Err("the preferred block size must be a power of two, at least 512 and the minimum");
        }
        if self.maximum < self.preferred || self.maximum > LARGEST_MAX_PAYLOAD {
            return Err("the maximum payload must be from the preferred block size to 64 MiB");
        }
        Ok(())
    }
}

/// One export as clients see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportInfo {
    /// The name a client asks for; may be empty. At most 4096 bytes, no NUL.
    pub name: String,
    /// For people; may be empty. At most 4096 bytes, no NUL.
    pub description: String,
    /// Bytes; a multiple of the minimum block size.
    pub size: u64,
    /// Abilities of the export. `SEND_DF` is left out for clients without structured replies.
    pub flags: TransmissionFlags,
    /// Size constraints.
    pub block_sizes: BlockSizes,
    /// Refuse clients that do not ask for the block sizes before transmission.
    pub block_size_required: bool,
    /// Set if `base:allocation` is offered.
    pub base_allocation: bool,
}

/// Use of TLS on a connection, as the server decides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsMode {
    /// Never (proto.md: NOTLS).
    Off,
    /// When the client asks (SELECTIVETLS without TLS-only exports).
    On,
    /// Before anything else (FORCEDTLS).
    Require,
}

/// All that a server offers to its clients; share it between connections.
#[derive(Debug, Clone)]
pub struct ServerOffer {
    exports: Vec<ExportInfo>,
    tls: TlsMode,
    /// The first export answers to the empty name.
    has_default: bool,
}

/// An offer that the protocol does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// A name or description is too long or contains NUL.
    #[error("export {index}: {what} must have at most 4096 bytes and no NUL; choose another")]
    BadString {
        /// Position in the list.
        index: usize,
        /// `name` or `description`.
        what: &'static str,
    },
    /// Two exports share a name.
    #[error("two exports are named {0:?}; give each its own name")]
    DuplicateName(String),
    /// The volume has zones.
    #[error(
        "export {0:?} is a zoned volume, and NBD has no zones: a client would write where the device does not take it; use the library, or a volume on a device without zones"
    )]
    Zoned(String),
    /// Block sizes break a rule of the protocol.
    #[error("export {name:?}: {rule}")]
    BadBlockSizes {
        /// The export's name.
        name: String,
        /// The broken rule.
        rule: &'static str,
    },
    /// The last bytes would be out of reach.
    #[error("export {name:?}: size {size} is not a multiple of its minimum block size {minimum}; round it down")]
    UnalignedSize {
        /// The export's name.
        name: String,
        /// Bytes.
        size: u64,
        /// Bytes.
        minimum: u32,
    },
}

impl ServerOffer {
    /// Checks and keeps an offer. The first export is the default one.
    ///
    /// # Errors
    /// The first rule of the protocol that the exports break.
    pub fn new(exports: Vec<ExportInfo>, tls: TlsMode) -> Result<Self, OfferError> {
        for (index, export) in exports.iter().enumerate() {
            check_export(index, export)?;
            if exports.iter().take(index).any(|earlier| earlier.name == export.name) {
                return Err(OfferError::DuplicateName(export.name.clone()));
            }
        }
        Ok(Self { exports, tls, has_default: true })
    }

    /// The same, where the empty name means only an export of that name: the one that it meant is gone, and a client
    /// that comes back for it must not get another disk.
    #[must_use]
    pub fn without_default(self) -> Self {
        Self { has_default: false, ..self }
    }

    /// The exports, in order.
    #[must_use]
    pub fn exports(&self) -> &[ExportInfo] {
        &self.exports
    }

    /// The TLS mode.
    #[must_use]
    pub fn tls(&self) -> TlsMode {
        self.tls
    }

    /// The position of the export with this name. The empty name means the export with the empty
    /// name or else the first, unless [`without_default`](Self::without_default).
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        let exact = self.exports.iter().position(|export| export.name.as_bytes() == name);
        match exact {
            None if name.is_empty() && self.has_default && !self.exports.is_empty() => Some(0),
            found => found,
        }
    }
}

fn check_export(index: usize, export: &ExportInfo) -> Result<(), OfferError> {
    for (what, string) in [("name", &export.name), ("description", &export.description)] {
        if string.len() > STRING_MAX || string.contains('\0') {
            return Err(OfferError::BadString { index, what });
        }
    }
    let name = || export.name.clone();
    let sizes = export.block_sizes;
    sizes.check().map_err(|rule| OfferError::BadBlockSizes { name: name(), rule })?;
    if !export.size.is_multiple_of(u64::from(sizes.minimum)) {
        return Err(OfferError::UnalignedSize { name: name(), size: export.size, minimum: sizes.minimum });
    }
    Ok(())
}
