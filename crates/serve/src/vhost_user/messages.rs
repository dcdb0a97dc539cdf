//! The vhost-user protocol's messages: numbers and fields, without I/O.
//!
//! ```text
//! request u32, flags u32, size u32, payload; descriptors come with the header        all native-endian
//! ```

use std::os::fd::OwnedFd;

use cryptline_sys::GuestRegion;

pub(super) const HEADER: usize = 12;
/// No message that is understood here is longer.
pub(super) const PAYLOAD_MAX: usize = 4096;
/// Descriptors that come with one message: as many as regions of memory.
pub(super) const DESCRIPTORS_MAX: usize = 32;
/// Regions of memory at a time.
pub(super) const REGIONS_MAX: usize = 32;

const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const REPLY: u32 = 4;
const NEED_REPLY: u32 = 8;
/// In the number of a queue: no descriptor comes with it.
const NO_DESCRIPTOR: u64 = 1 << 8;

/// Requests that a front-end can make.
pub(super) mod request {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const RESET_OWNER: u32 = 4;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_LOG_BASE: u32 = 6;
    pub const SET_LOG_FD: u32 = 7;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_VRING_ERR: u32 = 14;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const SET_BACKEND_REQ_FD: u32 = 21;
    pub const GET_CONFIG: u32 = 24;
    pub const SET_CONFIG: u32 = 25;
    pub const GET_INFLIGHT_FD: u32 = 31;
    pub const SET_INFLIGHT_FD: u32 = 32;
    pub const RESET_DEVICE: u32 = 34;
    pub const GET_MAX_MEM_SLOTS: u32 = 36;
    pub const ADD_MEM_REG: u32 = 37;
    pub const REM_MEM_REG: u32 = 38;
    pub const SET_STATUS: u32 = 39;
    pub const GET_STATUS: u32 = 40;
}

/// Features that the two sides agree on beyond the basic protocol.
pub(super) mod protocol {
    pub const MULTI_QUEUE: u64 = 1 << 0;
    pub const SHARED_LOG: u64 = 1 << 1;
    pub const REPLY_ACK: u64 = 1 << 3;
    pub const BACKEND_REQUEST: u64 = 1 << 5;
    pub const CONFIG: u64 = 1 << 9;
    pub const INFLIGHT: u64 = 1 << 12;
    pub const RESET_DEVICE: u64 = 1 << 13;
    pub const MEMORY_SLOTS: u64 = 1 << 15;
    pub const STATUS: u64 = 1 << 16;

    pub const ALL: u64 = MULTI_QUEUE
        | SHARED_LOG
        | REPLY_ACK
        | BACKEND_REQUEST
        | CONFIG
        | INFLIGHT
        | RESET_DEVICE
        | MEMORY_SLOTS
        | STATUS;
}

/// Why a message is no good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum MessageError {
    #[error("not a vhost-user header")]
    Header,
    #[error("a message of {0} bytes, which is too long")]
    Long(u32),
    #[error("message {0} has the wrong length")]
    Length(u32),
    #[error("message {0} does not come with the descriptors that it must come with")]
    Descriptors(u32),
    #[error("message {0} is for queue {1}, which does not exist")]
    Queue(u32, u64),
    #[error("message {0} is unknown")]
    Unknown(u32),
}

/// The first bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MessageHeader {
    pub request: u32,
    pub needs_reply: bool,
    pub size: usize,
}

impl MessageHeader {
    pub fn parse(bytes: [u8; HEADER]) -> Result<Self, MessageError> {
        let [request, flags, size] = [0, 4, 8].map(|at| word(&bytes, at));
        if flags & VERSION_MASK != VERSION || flags & REPLY != 0 {
            return Err(MessageError::Header);
        }
        match usize::try_from(size) {
            Ok(size) if size <= PAYLOAD_MAX => Ok(Self { request, needs_reply: flags & NEED_REPLY != 0, size }),
            _ => Err(MessageError::Long(size)),
        }
    }
}

/// Builds the message that the back-end sends of its own accord: the configuration space reads otherwise now. No answer
/// is due.
pub(super) fn config_change() -> [u8; HEADER] {
    const CONFIG_CHANGE: u32 = 2;
    let mut bytes = [0; HEADER];
    bytes[..4].copy_from_slice(&CONFIG_CHANGE.to_ne_bytes());
    bytes[4..8].copy_from_slice(&VERSION.to_ne_bytes());
    bytes
}

/// A reply's bytes.
pub(super) fn reply(request: u32, payload: &[u8]) -> Vec<u8> {
    let size = u32::try_from(payload.len()).unwrap_or(0);
    let mut bytes = Vec::with_capacity(HEADER + payload.len());
    for word in [request, VERSION | REPLY, size] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend(payload);
    bytes
}

/// A whole message.
pub(super) struct VhostMessage {
    pub header: MessageHeader,
    pub payload: Vec<u8>,
    pub descriptors: Vec<OwnedFd>,
}

/// A vring's addresses, as the front-end's process has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Addresses {
    pub descriptors: u64,
    pub used: u64,
    pub available: u64,
}

/// A buffer for requests under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InflightPlace {
    pub size: u64,
    pub offset: u64,
    pub queues: u16,
    pub queue_size: u16,
}

impl VhostMessage {
    fn exactly<const LEN: usize>(&self) -> Result<&[u8; LEN], MessageError> {
        let bytes = self.payload.as_slice().try_into();
        bytes.map_err(|_| MessageError::Length(self.header.request))
    }

    /// A payload of one number.
    pub fn number(&self) -> Result<u64, MessageError> {
        Ok(u64::from_ne_bytes(*self.exactly::<8>()?))
    }

    /// A queue, and a value for it.
    pub fn queue_state(&self) -> Result<(u64, u32), MessageError> {
        let bytes = self.exactly::<8>()?;
        Ok((word(bytes, 0).into(), word(bytes, 4)))
    }

    pub fn queue_addresses(&self) -> Result<(u64, Addresses), MessageError> {
        let bytes = self.exactly::<40>()?;
        let addresses = Addresses { descriptors: long(bytes, 8), used: long(bytes, 16), available: long(bytes, 24) };
        Ok((word(bytes, 0).into(), addresses))
    }

    /// A queue and its descriptor, if it has one.
    pub fn queue_descriptor(mut self) -> Result<(u64, Option<OwnedFd>), MessageError> {
        let number = self.number()?;
        let descriptor = self.optional_descriptor()?;
        if descriptor.is_none() && number & NO_DESCRIPTOR == 0 {
            return Err(MessageError::Descriptors(self.header.request));
        }
        Ok((number & (NO_DESCRIPTOR - 1), descriptor))
    }

    /// The one descriptor that comes with it.
    pub fn descriptor(&mut self) -> Result<OwnedFd, MessageError> {
        self.optional_descriptor()?.ok_or(MessageError::Descriptors(self.header.request))
    }

    /// The one descriptor that may come with it.
    fn optional_descriptor(&mut self) -> Result<Option<OwnedFd>, MessageError> {
        let file = self.descriptors.pop();
        if self.descriptors.is_empty() { Ok(file) } else { Err(MessageError::Descriptors(self.header.request)) }
    }

    /// The whole table of memory, with a file for each region.
    pub fn memory_table(self) -> Result<Vec<(GuestRegion, OwnedFd)>, MessageError> {
        let request = self.header.request;
        let (head, regions) = (self.payload.split_at_checked(8)).ok_or(MessageError::Length(request))?;
        let count = word(head, 0) as usize;
        // Some front-ends send room for more regions than there are.
        let needed = count.checked_mul(REGION).filter(|len| *len <= regions.len());
        if needed.is_none() || count > REGIONS_MAX {
            return Err(MessageError::Length(request));
        }
        if count != self.descriptors.len() {
            return Err(MessageError::Descriptors(request));
        }
        let regions = regions.chunks_exact(REGION).map(region);
        Ok(regions.zip(self.descriptors).collect())
    }

    /// One region, and its file where there is one.
    pub fn memory_region(mut self) -> Result<(GuestRegion, Option<OwnedFd>), MessageError> {
        let bytes = self.exactly::<{ 8 + REGION }>()?;
        let region = region(&bytes[8..]);
        Ok((region, self.optional_descriptor()?))
    }

    /// Where the log of written pages lies: its file, and first byte and length in it.
    pub fn log(mut self) -> Result<(OwnedFd, u64, u64), MessageError> {
        let bytes = self.exactly::<16>()?;
        let (len, offset) = (long(bytes, 0), long(bytes, 8));
        Ok((self.descriptor()?, offset, len))
    }

    /// A part of the configuration space: where it begins, and its bytes.
    pub fn config(&self) -> Result<(u32, &[u8]), MessageError> {
        let wrong = MessageError::Length(self.header.request);
        let (head, bytes) = self.payload.split_at_checked(12).ok_or(wrong)?;
        if word(head, 4) as usize != bytes.len() {
            return Err(wrong);
        }
        Ok((word(head, 0), bytes))
    }

    pub fn inflight(&self) -> Result<InflightPlace, MessageError> {
        // Some compilers pad the structure.
        if ![20, 24].contains(&self.payload.len()) {
            return Err(MessageError::Length(self.header.request));
        }
        let counts = word(&self.payload, 16).to_ne_bytes();
        let [one, two, three, four] = counts;
        Ok(InflightPlace {
            size: long(&self.payload, 0),
            offset: long(&self.payload, 8),
            queues: u16::from_ne_bytes([one, two]),
            queue_size: u16::from_ne_bytes([three, four]),
        })
    }
}

impl InflightPlace {
    /// As a payload of `len` bytes.
    pub fn encode(&self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(self.size.to_ne_bytes());
        bytes.extend(self.offset.to_ne_bytes());
        bytes.extend(self.queues.to_ne_bytes());
        bytes.extend(self.queue_size.to_ne_bytes());
        bytes.resize(len, 0);
        bytes
    }
}

const REGION: usize = 32;

fn region(bytes: &[u8]) -> GuestRegion {
    GuestRegion { guest: long(bytes, 0), len: long(bytes, 8), user: long(bytes, 16), offset: long(bytes, 24) }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes[at..].first_chunk().copied();
    bytes.map_or(0, u32::from_ne_bytes)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes[at..].first_chunk().copied();
    bytes.map_or(0, u64::from_ne_bytes)
}
