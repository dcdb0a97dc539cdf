//! The info block: what an arena is, twice on the medium and sealed by a checksum.
//!
//! | bytes | field | |
//! |---|---|---|
//! | 0..16 | signature | `BTT_ARENA_INFO`, two zero bytes |
//! | 16..32 | uuid | of the table, in text order |
//! | 32..48 | parent uuid | of the namespace, or zero |
//! | 48..52 | flags | bit 0: the arena has failed |
//! | 52..56 | major, minor | 1.1, or 2.0 where it starts at byte 0 |
//! | 56..76 | external size and number, internal size and number, nfree | |
//! | 76..80 | size of this block | 4096 |
//! | 80..120 | next arena, blocks, map, flog, copy | relative to this block |
//! | 4088..4096 | checksum | Fletcher64 of the block with this field zero |

use super::layout::{ArenaLayout, INFO_SIZE};

const SIGNATURE: [u8; 16] = *b"BTT_ARENA_INFO\0\0";
const CHECKSUM: usize = 4088;
/// Bytes in an encoded block.
const LEN: usize = 4096;

/// Set in [`InfoBlock::flags`] once the arena must not be written any more.
pub const FLAG_ERROR: u32 = 1;

/// An info block whose signature, checksum and fields are right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InfoBlock {
    /// Of the table; all arenas share it.
    pub uuid: [u8; 16],
    /// Of the namespace below; zero where there is none.
    pub parent_uuid: [u8; 16],
    /// See [`FLAG_ERROR`].
    pub flags: u32,
    /// Major and minor version.
    pub version: (u16, u16),
    /// Bytes to the next arena; 0 in the last one.
    pub next: u64,
    /// Where everything lies.
    pub layout: ArenaLayout,
}

/// Why 4096 bytes are no info block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InfoError {
    /// Something else, or nothing, is here.
    #[error("no BTT info block")]
    NoSignature,
    /// Damaged.
    #[error("the info block's checksum is wrong")]
    Checksum,
    /// Of a later format.
    #[error("the table has version {major}.{minor}; 1.1 and 2.0 are known")]
    Version {
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },
    /// Sealed, but it cannot be right.
    #[error("the info block is sealed but wrong: {0}")]
    Field(&'static str),
    /// Sectors that this program does not serve.
    #[error("the table has sectors of {0} bytes; 512 and 4096 are supported, those with integrity metadata are not")]
    SectorSize(u32),
}

impl InfoBlock {
    /// Reads a block.
    ///
    /// # Errors
    /// The first thing that is wrong with it. Never panics, whatever the bytes are.
    pub fn parse(bytes: &[u8; LEN]) -> Result<Self, InfoError> {
        if bytes[..16] != SIGNATURE {
            return Err(InfoError::NoSignature);
        }
        if u64_at(bytes, CHECKSUM) != checksum(bytes) {
            return Err(InfoError::Checksum);
        }
        let version = (u16_at(bytes, 52), u16_at(bytes, 54));
        if !matches!(version, (1, 1) | (2, 0)) {
            let (major, minor) = version;
            return Err(InfoError::Version { major, minor });
        }
        if u64::from(u32_at(bytes, 76)) != INFO_SIZE {
            return Err(InfoError::Field("its own size is not 4096"));
        }
        let external_lbasize = u32_at(bytes, 56);
        if !super::layout::is_sector_size(external_lbasize) {
            return Err(InfoError::SectorSize(external_lbasize));
        }
        let info_copy = u64_at(bytes, 112);
        let size = info_copy.checked_add(INFO_SIZE);
        let layout = ArenaLayout {
            size: size.ok_or(InfoError::Field("its copy is nowhere"))?,
            external_lbasize,
            external_nlba: u32_at(bytes, 60),
            internal_lbasize: u32_at(bytes, 64),
            internal_nlba: u32_at(bytes, 68),
            nfree: u32_at(bytes, 72),
            data: u64_at(bytes, 88),
            map: u64_at(bytes, 96),
            flog: u64_at(bytes, 104),
            info_copy,
        };
        layout.check().map_err(InfoError::Field)?;
        let next = u64_at(bytes, 80);
        if next != 0 && (next < layout.size || !next.is_multiple_of(INFO_SIZE)) {
            return Err(InfoError::Field("the next arena starts inside this one"));
        }
        Ok(Self {
            uuid: array_at(bytes, 16),
            parent_uuid: array_at(bytes, 32),
            flags: u32_at(bytes, 48),
            version,
            next,
            layout,
        })
    }

    /// The block's bytes, sealed.
    #[must_use]
    pub fn encode(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        let layout = &self.layout;
        put(0, &SIGNATURE);
        put(16, &self.uuid);
        put(32, &self.parent_uuid);
        put(48, &self.flags.to_le_bytes());
        put(52, &self.version.0.to_le_bytes());
        put(54, &self.version.1.to_le_bytes());
        put(56, &layout.external_lbasize.to_le_bytes());
        put(60, &layout.external_nlba.to_le_bytes());
        put(64, &layout.internal_lbasize.to_le_bytes());
        put(68, &layout.internal_nlba.to_le_bytes());
        put(72, &layout.nfree.to_le_bytes());
        put(76, &4096u32.to_le_bytes());
        put(80, &self.next.to_le_bytes());
        put(88, &layout.data.to_le_bytes());
        put(96, &layout.map.to_le_bytes());
        put(104, &layout.flog.to_le_bytes());
        put(112, &layout.info_copy.to_le_bytes());
        let sum = checksum(&bytes);
        bytes[CHECKSUM..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Tells if the arena's last user found it broken.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.flags & FLAG_ERROR != 0
    }
}

/// Fletcher64 over little-endian words, the checksum's own words taken as zero (UEFI
/// specification, "BTT Info Block").
pub(crate) fn checksum(bytes: &[u8; LEN]) -> u64 {
    let (mut low, mut high) = (0u32, 0u32);
    for at in (0..LEN).step_by(4) {
        let word = if at < CHECKSUM { u32_at(bytes, at) } else { 0 };
        low = low.wrapping_add(word);
        high = high.wrapping_add(low);
    }
    u64::from(high) << 32 | u64::from(low)
}

fn array_at<const N: usize>(bytes: &[u8; LEN], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

fn u16_at(bytes: &[u8; LEN], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

fn u32_at(bytes: &[u8; LEN], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

fn u64_at(bytes: &[u8; LEN], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> InfoBlock {
        InfoBlock {
            uuid: *b"0123456789abcdef",
            parent_uuid: [0; 16],
            flags: 0,
            version: (1, 1),
            next: 0,
            layout: ArenaLayout::new(48 << 20, 4096).unwrap(),
        }
    }

    /// Changes bytes and seals the block again.
    fn sealed(change: impl FnOnce(&mut [u8; LEN])) -> Result<InfoBlock, InfoError> {
        let mut bytes = info().encode();
        change(&mut bytes);
        let sum = checksum(&bytes);
        bytes[CHECKSUM..].copy_from_slice(&sum.to_le_bytes());
        InfoBlock::parse(&bytes)
    }

    #[test]
    fn encoded_block_parses_to_itself() {
        assert_eq!(InfoBlock::parse(&info().encode()), Ok(info()));
        let last = InfoBlock { next: 512 << 30, flags: FLAG_ERROR, ..info() };
        assert!(InfoBlock::parse(&last.encode()).unwrap().has_failed());
        assert_eq!(InfoBlock::parse(&last.encode()), Ok(last));
    }

    /// Words 1, 2 and 3: low = 6; high = 1 + 3 + 6 and then 6 for each of the other words.
    #[test]
    fn checksum_is_fletcher64() {
        let mut bytes = [0; LEN];
        (bytes[0], bytes[4], bytes[8]) = (1, 2, 3);
        // Not part of the sum.
        bytes[CHECKSUM] = 77;
        assert_eq!(checksum(&bytes), (10 + 6 * 1021) << 32 | 6);
        // Both halves wrap.
        bytes = [0xff; LEN];
        let words = 1022u64;
        let high = (words * (words + 1) / 2) % (1 << 32);
        let expected_high = (1u64 << 32) - high - 2 * words % (1 << 32);
        assert_eq!(checksum(&bytes) >> 32, expected_high % (1 << 32));
    }

    #[test]
    fn any_flipped_bit_is_seen() {
        let whole = info().encode();
        for at in (0..LEN).filter(|at| *at < 140 || *at % 97 == 0 || *at > 4080) {
            for bit in 0..8 {
                let mut bytes = whole;
                bytes[at] ^= 1 << bit;
                assert!(InfoBlock::parse(&bytes).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn sealed_nonsense_is_refused() {
        let put = |at: usize, value: u32| sealed(move |bytes| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes()));
        assert_eq!(put(52, 3), Err(InfoError::Version { major: 3, minor: 0 }));
        assert_eq!(put(56, 520), Err(InfoError::SectorSize(520)));
        for (at, value) in [
            (60, 0),
            (60, u32::MAX),
            (64, 64),
            (64, u32::MAX),
            (68, u32::MAX),
            (72, 0),
            (72, u32::MAX),
            (76, 512),
            (80, 4096),
            (88, 0),
            (92, u32::MAX),
            (96, 4096),
            (100, u32::MAX),
            (104, 1),
            (112, 0),
            (116, u32::MAX),
        ] {
            assert!(matches!(put(at, value), Err(InfoError::Field(_))), "{at}");
        }
    }
}
