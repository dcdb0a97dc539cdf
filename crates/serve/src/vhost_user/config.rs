//! Offer of a disk: feature bits, and the configuration space that a driver reads.

use cryptline_engine::Geometry;

use super::queue::{QUEUE_SIZE_MAX, SEGMENTS_MAX};
use super::request::SECTOR;

/// Feature bits of the device, the ring and the protocol.
pub(super) mod feature {
    pub const SIZE_MAX: u64 = 1 << 1;
    pub const SEG_MAX: u64 = 1 << 2;
    pub const READ_ONLY: u64 = 1 << 5;
    pub const BLOCK_SIZE: u64 = 1 << 6;
    pub const FLUSH: u64 = 1 << 9;
    pub const TOPOLOGY: u64 = 1 << 10;
    pub const WRITE_CACHE: u64 = 1 << 11;
    pub const MULTI_QUEUE: u64 = 1 << 12;
    pub const DISCARD: u64 = 1 << 13;
    pub const WRITE_ZEROES: u64 = 1 << 14;
    pub const LOG: u64 = 1 << 26;
    pub const INDIRECT: u64 = 1 << 28;
    pub const EVENT_IDX: u64 = 1 << 29;
    pub const PROTOCOL: u64 = 1 << 30;
    pub const VERSION_1: u64 = 1 << 32;
    pub const RING_PACKED: u64 = 1 << 34;
}

/// Bytes of a disk's name.
pub(super) const SERIAL: usize = 20;
/// Bytes of the configuration space; what is asked for behind them reads as zeros.
const SPACE: usize = 60;
/// More than this nobody may ask for.
pub(super) const SPACE_MAX: usize = 256;
/// Where the space begins for front-ends that count as an older draft of the protocol did, such as cloud-hypervisor before 2026.
const OLD_START: usize = 0x100;
const _: () = assert!(SPACE_MAX <= OLD_START);

/// The place in the space that a front-end means by an offset.
pub(super) fn place_in_space(offset: u32) -> usize {
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    offset.checked_sub(OLD_START).unwrap_or(offset)
}
/// Bytes of its beginning, which say how large the disk is.
pub(super) const CAPACITY: usize = 8;
/// Where the configuration space says whether writes are cached.
pub(super) const WRITE_CACHE_AT: usize = 32;
/// Queues of this size fit every front-end, so the segments of a request are to fit into one.
const QUEUE_SIZE: u16 = 128;
/// Bytes of a segment of data: 4 MiB. So a request has no more bytes than may be [transferred](TRANSFER_MAX).
const SEGMENT_MAX: u32 = 1 << 22;
/// Bytes of one read or write: 1 GiB, which is also what UEFI asks for at most, in one segment, whatever it is told. A
/// driver needs no memory for more, since segments can share it, and a machine that is stopped waits for what its
/// queues have taken.
pub(super) const TRANSFER_MAX: u64 = 1 << 30;
const _: () = assert!((SEGMENTS_MAX as u64 - 2) * SEGMENT_MAX as u64 <= TRANSFER_MAX);

/// Description of one disk for a driver.
#[derive(Clone, Copy, Debug)]
pub(super) struct DiskShape {
    pub geometry: Geometry,
    /// The logical block that the driver is told.
    pub block: u32,
    pub queues: u16,
    /// The size that each queue is to have at most, where it was chosen.
    pub queue_size: Option<u16>,
}

impl DiskShape {
    /// The largest queue that is served.
    pub fn queue_size_max(&self) -> u16 {
        self.queue_size.unwrap_or(QUEUE_SIZE_MAX)
    }

    /// Segments of data in a request: what fits into a queue with a header and a status.
    fn segments(&self) -> u32 {
        let most = u16::try_from(SEGMENTS_MAX).unwrap_or(u16::MAX);
        let size = self.queue_size.unwrap_or(QUEUE_SIZE).min(most);
        u32::from(size).saturating_sub(2).max(1)
    }

    /// The device's and the ring's features.
    pub fn features(&self) -> u64 {
        let mut bits = feature::SIZE_MAX
            | feature::SEG_MAX
            | feature::BLOCK_SIZE
            | feature::FLUSH
            | feature::TOPOLOGY
            | feature::LOG
            | feature::INDIRECT
            | feature::EVENT_IDX
            | feature::PROTOCOL
            | feature::VERSION_1
            | feature::RING_PACKED;
        if self.queues > 1 {
            bits |= feature::MULTI_QUEUE;
        }
        if self.geometry.read_only {
            bits |= feature::READ_ONLY;
        } else {
            bits |= feature::WRITE_ZEROES | feature::WRITE_CACHE;
            if self.geometry.discard {
                bits |= feature::DISCARD;
            }
        }
        bits
    }

    /// The configuration space, padded with zeros.
    pub fn space(&self, is_cached: bool) -> [u8; SPACE_MAX] {
        let mut space = [0; SPACE_MAX];
        let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
        let block = self.block.max(self.geometry.logical_block);
        let preferred = self.geometry.preferred_block.max(block);
        // Both are powers of two.
        let exponent = preferred.trailing_zeros() - block.trailing_zeros();
        let alignment = sectors(preferred.into());
        put(0, &(self.geometry.size / SECTOR).to_le_bytes());
        put(8, &SEGMENT_MAX.to_le_bytes());
        put(12, &self.segments().to_le_bytes());
        put(20, &block.to_le_bytes());
        put(24, &[u8::try_from(exponent).unwrap_or(0)]);
        put(26, &u16::try_from(preferred / block).unwrap_or(1).to_le_bytes());
        put(WRITE_CACHE_AT, &[is_cached.into()]);
        put(34, &self.queues.to_le_bytes());
        if !self.geometry.read_only {
            if self.geometry.discard {
                put(36, &SectorLimits::RANGE_MAX.to_le_bytes());
                put(40, &1u32.to_le_bytes());
                put(44, &alignment.to_le_bytes());
            }
            put(48, &SectorLimits::zeroes_of(&self.geometry).to_le_bytes());
            put(52, &1u32.to_le_bytes());
            put(56, &[1]);
        }
        debug_assert!(space[SPACE..].iter().all(|byte| *byte == 0));
        space
    }
}

fn sectors(bytes: u64) -> u32 {
    u32::try_from(bytes / SECTOR).unwrap_or(1).max(1)
}

/// Bounds by which requests are judged.
#[derive(Clone)]
pub(super) struct SectorLimits {
    /// Bytes of the disk.
    pub size: u64,
    /// Offsets and lengths are multiples of this.
    pub block: u64,
    pub read_only: bool,
    pub discards: bool,
    pub zeroes: bool,
    /// Sectors of one zeroing.
    pub zeroes_max: u32,
    /// The driver flushes what is to be durable: it knows that writes are cached.
    pub flushes: bool,
}

impl SectorLimits {
    /// Sectors of one discard, or of one zeroing that the medium does by itself: 2 GiB.
    pub const RANGE_MAX: u32 = 1 << 22;
    /// Sectors of one zeroing that is written: 1 MiB, as long as a driver's writes may be. A machine that is stopped
    /// waits for what its queues have taken.
    const WRITTEN_MAX: u32 = 1 << 11;

    /// Sectors of one zeroing.
    fn zeroes_of(geometry: &Geometry) -> u32 {
        if geometry.write_zeroes { Self::RANGE_MAX } else { Self::WRITTEN_MAX }
    }

    pub fn new(geometry: &Geometry, features: u64) -> Self {
        let is_on = |bit| features & bit != 0;
        Self {
            size: geometry.size,
            block: geometry.logical_block.into(),
            read_only: geometry.read_only,
            discards: !geometry.read_only && is_on(feature::DISCARD),
            zeroes: !geometry.read_only && is_on(feature::WRITE_ZEROES),
            zeroes_max: Self::zeroes_of(geometry),
            flushes: is_on(feature::FLUSH),
        }
    }

    /// Tells if a write is durable before it ends.
    pub fn writes_durably(&self) -> bool {
        !self.flushes
    }

    /// The offset in bytes, where all of the range lies on the disk.
    pub fn place(&self, sector: u64, length: u64) -> Option<u64> {
        let offset = sector.checked_mul(SECTOR)?;
        let is_inside = offset.checked_add(length)? <= self.size;
        let is_aligned = offset.is_multiple_of(self.block) && length.is_multiple_of(self.block);
        (is_inside && is_aligned).then_some(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn physical_blocks_are_those_that_the_cipher_has() {
        let shape = |logical_block, preferred_block, block| DiskShape {
            geometry: Geometry { preferred_block, discard: true, ..Geometry::plain(1 << 20, logical_block) },
            block,
            queues: 1,
            queue_size: None,
        };
        // Bytes of a block; then the exponent of blocks in a physical one, an offset of 0, and the least good I/O.
        for (shape, block, blocks) in [
            (shape(512, 4096, 512), 512_u32, [3, 0, 8, 0]),
            (shape(512, 512, 512), 512, [0, 0, 1, 0]),
            (shape(512, 4096, 4096), 4096, [0, 0, 1, 0]),
            (shape(4096, 4096, 512), 4096, [0, 0, 1, 0]),
        ] {
            let space = shape.space(true);
            assert_eq!(space[20..24], block.to_le_bytes());
            assert_eq!(space[24..28], blocks);
        }
    }
}
