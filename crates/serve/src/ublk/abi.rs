//! ublk's numbers and structures, as bytes.
//!
//! Source: Linux's include/uapi/linux/ublk_cmd.h and Documentation/block/ublk.rst.

use cryptline_engine::Op;

/// Commands to the driver.
pub(super) mod command {
    pub const GET_INFO: u32 = 0x02;
    pub const ADD: u32 = 0x04;
    pub const DELETE: u32 = 0x05;
    pub const START: u32 = 0x06;
    pub const STOP: u32 = 0x07;
    pub const SET_PARAMETERS: u32 = 0x08;
    pub const GET_PARAMETERS: u32 = 0x09;
    pub const START_RECOVERY: u32 = 0x10;
    pub const END_RECOVERY: u32 = 0x11;
    /// Names the device's node, and so works whoever has made the device.
    pub const GET_INFO_OF_ANY: u32 = 0x12;
    pub const GET_FEATURES: u32 = 0x13;
    pub const UPDATE_SIZE: u32 = 0x15;
    pub const QUIESCE: u32 = 0x16;
}

/// A server that comes later may take over, and is given what was under way.
pub(super) const RECOVERY: u64 = 1 << 3 | 1 << 4;
/// A device with zones. Its data is copied by calls: an append's place is where a buffer's address would be.
pub(super) const ZONES: u64 = 1 << 7 | 1 << 8;
/// A device that was made without `CAP_SYS_ADMIN`. Only the user who made it can use it.
pub(super) const UNPRIVILEGED: u64 = 1 << 5;
/// A device that can grow while it is used.
pub(super) const GROWTH: u64 = 1 << 10;
/// A device that can be taken from a server that still serves it. It must be one that can be recovered.
pub(super) const QUIESCING: u64 = 1 << 12;
/// A device whose commands are for many tags each.
pub(super) const BATCHES: u64 = 1 << 15;
/// Commands are encoded as ioctls are.
const IOCTL_ENCODING: u64 = 1 << 6;
/// Any free number.
pub(super) const ANY: u32 = u32::MAX;

/// `struct ublksrv_ctrl_dev_info`, as far as it is of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceInfo {
    pub queues: u16,
    pub depth: u16,
    pub buffer_len: u32,
    pub id: u32,
    /// Of the server.
    pub pid: i32,
    pub flags: u64,
    /// User and group that have made it. The driver fills them in.
    pub owner: (u32, u32),
}

impl DeviceInfo {
    pub const LEN: usize = 64;
    /// The driver keeps a word for servers, by which we know our devices again.
    const MARK: std::ops::Range<usize> = 32..40;
    const OURS: &[u8; 8] = b"cryptlin";

    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; Self::LEN];
        bytes[0..2].copy_from_slice(&self.queues.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.depth.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.buffer_len.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.id.to_ne_bytes());
        bytes[24..32].copy_from_slice(&(self.flags | IOCTL_ENCODING).to_ne_bytes());
        bytes[Self::MARK].copy_from_slice(Self::OURS);
        bytes
    }

    /// Tells if this program has made the device, as it was described.
    pub fn is_ours(bytes: &[u8]) -> bool {
        bytes.get(Self::MARK) == Some(&Self::OURS[..])
    }

    /// Tells if the device, as it was described, has a server.
    pub fn is_live(bytes: &[u8]) -> bool {
        bytes.get(4..6) == Some(&1_u16.to_ne_bytes()[..])
    }

    pub fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            queues: u16::from_ne_bytes(*bytes.get(0..2)?.first_chunk()?),
            depth: u16::from_ne_bytes(*bytes.get(2..4)?.first_chunk()?),
            buffer_len: u32::from_ne_bytes(*bytes.get(8..12)?.first_chunk()?),
            id: u32::from_ne_bytes(*bytes.get(12..16)?.first_chunk()?),
            pid: i32::from_ne_bytes(*bytes.get(16..20)?.first_chunk()?),
            flags: u64::from_ne_bytes(*bytes.get(24..32)?.first_chunk()?),
            owner: (
                u32::from_ne_bytes(*bytes.get(40..44)?.first_chunk()?),
                u32::from_ne_bytes(*bytes.get(44..48)?.first_chunk()?),
            ),
        })
    }
}

/// `struct ublk_params`, as far as it is of use. Sectors of 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UblkParameters {
    pub read_only: bool,
    pub rotational: bool,
    /// Powers of two.
    pub logical_block: u32,
    pub physical_block: u32,
    pub sectors: u64,
    /// Of one transfer.
    pub sectors_max: u32,
    pub discards: bool,
    /// Of one zeroing; 0 where nothing is zeroed without a transfer.
    pub zeroes_max: u32,
    pub zones: Option<Zones>,
}

/// Properties that a zoned device has beyond that: `struct ublk_param_zoned`, and the sectors of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Zones {
    pub sectors: u32,
    /// 0 for any number.
    pub max_open: u32,
    pub max_active: u32,
    pub append_sectors: u32,
}

impl UblkParameters {
    pub const LEN: usize = 60;
    /// With zones, behind the numbers of the nodes, which the driver fills in.
    const LEN_ZONED: usize = 108;
    const READ_ONLY: u32 = 1 << 0;
    const ROTATIONAL: u32 = 1 << 1;
    const VOLATILE_CACHE: u32 = 1 << 2;
    const FUA: u32 = 1 << 3;
    /// Sectors of a discard or of zeroing at most: half of what a length of 32 bits can say.
    pub const LONG: u32 = (1 << 31) / 512;

    pub fn to_bytes(self) -> Vec<u8> {
        let mut attributes = Self::VOLATILE_CACHE | Self::FUA;
        if self.read_only {
            attributes |= Self::READ_ONLY;
        }
        if self.rotational {
            attributes |= Self::ROTATIONAL;
        }
        let shift = |block: u32| u8::try_from(block.trailing_zeros()).unwrap_or(u8::MAX);
        let (logical, physical) = (shift(self.logical_block), shift(self.physical_block));
        let mut bytes = Self::query();
        // Basic and discard, whose limits zeroing has as well.
        bytes[4..8].copy_from_slice(&3_u32.to_ne_bytes());
        bytes[8..12].copy_from_slice(&attributes.to_ne_bytes());
        bytes[12..16].copy_from_slice(&[logical, physical, physical, physical]);
        bytes[16..20].copy_from_slice(&self.sectors_max.to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.sectors.to_ne_bytes());
        // Discards: granularity, longest, longest zeroing, segments.
        bytes[44..48].copy_from_slice(&self.physical_block.to_ne_bytes());
        let discard = if self.discards { Self::LONG } else { 0 };
        bytes[48..52].copy_from_slice(&discard.to_ne_bytes());
        bytes[52..56].copy_from_slice(&self.zeroes_max.to_ne_bytes());
        bytes[56..58].copy_from_slice(&u16::from(self.discards).to_ne_bytes());
        match self.zones {
            Some(zones) => zones.add_to(bytes),
            None => bytes,
        }
    }

    /// Returns the bytes that ask for them.
    pub fn query() -> Vec<u8> {
        let mut bytes = vec![0; Self::LEN];
        bytes[0..4].copy_from_slice(&60_u32.to_ne_bytes());
        bytes
    }

    /// Size in sectors and logical block in bytes, of those that a device has.
    pub fn shape(bytes: &[u8]) -> Option<(u64, u32)> {
        let sectors = u64::from_ne_bytes(*bytes.get(24..32)?.first_chunk()?);
        let block = 1_u32.checked_shl((*bytes.get(12)?).into())?;
        Some((sectors, block))
    }
}

impl Zones {
    fn add_to(self, mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.resize(UblkParameters::LEN_ZONED, 0);
        bytes[0..4].copy_from_slice(&108_u32.to_ne_bytes());
        // Basic, discard and zoned.
        bytes[4..8].copy_from_slice(&0b1011_u32.to_ne_bytes());
        bytes[20..24].copy_from_slice(&self.sectors.to_ne_bytes());
        bytes[76..80].copy_from_slice(&self.max_open.to_ne_bytes());
        bytes[80..84].copy_from_slice(&self.max_active.to_ne_bytes());
        bytes[84..88].copy_from_slice(&self.append_sectors.to_ne_bytes());
        bytes
    }
}

/// Request to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UblkOperation {
    /// One for the device.
    Device(Op),
    /// A report of zones.
    Report,
    Unknown,
}

/// `struct ublksrv_io_desc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IoDescriptor {
    pub operation: UblkOperation,
    pub durable: bool,
    /// Bytes.
    pub offset: Option<u64>,
    /// Bytes.
    pub length: u64,
    /// Of a report, in place of the length.
    pub zones: u32,
}

impl IoDescriptor {
    const FUA: u32 = 1 << 13;
    const NO_UNMAP: u32 = 1 << 15;

    pub fn parse(bytes: &[u8; 24]) -> Self {
        let [o0, o1, o2, o3, s0, s1, s2, s3, rest @ ..] = *bytes;
        let flags = u32::from_ne_bytes([o0, o1, o2, o3]);
        let start = rest.first_chunk().map_or(u64::MAX, |at| u64::from_ne_bytes(*at));
        let count = u32::from_ne_bytes([s0, s1, s2, s3]);
        let durable = flags & Self::FUA != 0;
        let op = match flags & 0xff {
            0 => Some(Op::Read),
            1 => Some(Op::write(durable)),
            2 => Some(Op::Flush),
            3 => Some(Op::Discard),
            5 => Some(Op::zero(flags & Self::NO_UNMAP == 0)),
            10 => Some(Op::ZoneOpen),
            11 => Some(Op::ZoneClose),
            12 => Some(Op::ZoneFinish),
            13 => Some(Op::append(durable)),
            14 => Some(Op::ZoneResetAll),
            15 => Some(Op::ZoneReset),
            _ => None,
        };
        let other = if flags & 0xff == 18 { UblkOperation::Report } else { UblkOperation::Unknown };
        Self {
            operation: op.map_or(other, UblkOperation::Device),
            durable,
            offset: start.checked_mul(512),
            length: u64::from(count) * 512,
            zones: count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_a_device_is_understood_again() {
        let info =
            DeviceInfo { queues: 2, depth: 64, buffer_len: 1 << 18, id: 7, pid: 0, flags: RECOVERY, owner: (0, 0) };
        let mut bytes = info.to_bytes();
        let again = DeviceInfo::parse(&bytes).unwrap();
        assert_eq!(again.flags, RECOVERY | IOCTL_ENCODING);
        assert_eq!(DeviceInfo { flags: RECOVERY, ..again }, info);
        bytes[40..48].copy_from_slice(&[232, 3, 0, 0, 100, 0, 0, 0]);
        assert_eq!(DeviceInfo::parse(&bytes).unwrap().owner, (1000, 100));
        for (state, is_live) in [(0, false), (1, true), (2, false)] {
            bytes[4] = state;
            assert_eq!(DeviceInfo::is_live(&bytes), is_live);
        }
        assert!(DeviceInfo::is_ours(&bytes));
        bytes[33] = 0;
        assert!(!DeviceInfo::is_ours(&bytes));
        for short in [0, 20, 47] {
            assert_eq!(DeviceInfo::parse(&vec![0; short]), None);
        }
    }

    #[test]
    fn parameters_lie_where_the_kernel_looks_for_them() {
        let parameters = UblkParameters {
            read_only: false,
            rotational: true,
            logical_block: 512,
            physical_block: 4096,
            sectors: 0x1234,
            sectors_max: 512,
            discards: true,
            zeroes_max: 0x8000,
            zones: None,
        };
        let bytes = parameters.to_bytes();
        assert_eq!(bytes[..16], [60, 0, 0, 0, 3, 0, 0, 0, 14, 0, 0, 0, 9, 12, 12, 12]);
        assert_eq!(UblkParameters::shape(&bytes), Some((0x1234, 512)));
        assert_eq!(bytes[52..58], [0, 0x80, 0, 0, 1, 0]);
        let zones = Some(Zones { sectors: 8192, max_open: 3, max_active: 5, append_sectors: 512 });
        let bytes = UblkParameters { zones, ..parameters }.to_bytes();
        assert_eq!(bytes.len(), 108);
        assert_eq!(bytes[..8], [108, 0, 0, 0, 11, 0, 0, 0]);
        assert_eq!(bytes[20..24], [0, 32, 0, 0]);
        assert_eq!(bytes[76..88], [3, 0, 0, 0, 5, 0, 0, 0, 0, 2, 0, 0]);
    }

    #[test]
    fn descriptor_is_taken_apart() {
        let mut bytes = [0; 24];
        bytes[0..4].copy_from_slice(&(1_u32 | 1 << 13).to_ne_bytes());
        bytes[4..8].copy_from_slice(&8_u32.to_ne_bytes());
        bytes[8..16].copy_from_slice(&16_u64.to_ne_bytes());
        let write = IoDescriptor::parse(&bytes);
        assert_eq!((write.operation, write.durable), (UblkOperation::Device(Op::WriteFua), true));
        assert_eq!((write.offset, write.length), (Some(8192), 4096));
        bytes[0] = 18;
        let report = IoDescriptor::parse(&bytes);
        assert_eq!((report.operation, report.zones), (UblkOperation::Report, 8));
        bytes[8..16].fill(0xff);
        assert_eq!(IoDescriptor::parse(&bytes).offset, None);
    }
}
