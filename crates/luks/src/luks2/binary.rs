//! The binary part of a LUKS2 header copy: 4096 bytes, big-endian ("LUKS2 On-Disk Format
//! Specification", 1.1.x, section 2.1).
//!
//! ```text
//!   0    6       8        16    24    72           104   168   208       256        448      512
//!  +----+-------+--------+-----+-----+------------+-----+-----+---------+----------+--------+---
//!  |LUKS|version|hdr_size|seqid|label|checksum alg|salt |UUID |subsystem|hdr_offset|checksum|  0
//!  |SKUL|   2   |  +JSON |     | 48  |    32      | 64  | 40  |   48    |   8 +184 |   64   |
//!  +----+-------+--------+-----+-----+------------+-----+-----+---------+----------+--------+---
//! ```
//!
//! The checksum covers the whole copy (this part and the JSON area) with the checksum field zero.

use crate::error::{Error, quote};
use crate::hash::Hash;

/// Bytes of the binary part.
pub const BINARY_LEN: usize = 4096;
/// The legal sizes of a copy, and so the legal offsets of the secondary one.
pub const COPY_SIZES: [u64; 9] =
    [0x4000, 0x8000, 0x1_0000, 0x2_0000, 0x4_0000, 0x8_0000, 0x10_0000, 0x20_0000, 0x40_0000];
/// Magic of the secondary copy; the primary's is [`crate::MAGIC`].
pub const MAGIC_SECONDARY: [u8; 6] = *b"SKUL\xba\xbe";

const CHECKSUM_OFFSET: usize = 448;
const CHECKSUM_LEN: usize = 64;

/// Which of the two copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderCopy {
    /// At offset 0.
    Primary,
    /// At offset `hdr_size`.
    Secondary,
}

impl HeaderCopy {
    /// "primary" or "secondary".
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Secondary => "secondary",
        }
    }
}

/// The fields of the binary part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// Bytes of this copy, JSON area included: one of [`COPY_SIZES`].
    pub copy_size: u64,
    /// Counts updates: the copy with the higher number is newer.
    pub epoch: u64,
    /// Label.
    pub label: String,
    /// Name of the checksum's hash.
    pub checksum_hash: String,
    /// Random, new with each update, so that no two copies have the same checksum.
    pub salt: [u8; 64],
    /// UUID of the volume, as text.
    pub uuid: String,
    /// Subsystem.
    pub subsystem: String,
}

/// Result of a first look at a copy that is not good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CopyDamage {
    /// No magic: there is no copy here at all.
    Missing,
    /// The device ends before the copy does.
    Truncated {
        /// Where the copy would end.
        needed: u64,
    },
    /// A version that is not known here.
    Newer(u16),
    /// Bits have changed.
    Corrupt(String),
    /// Whole, with the right checksum, but it says something that is not understood here. It may be the newest that there
    /// is, so it is never taken for damaged.
    NotUnderstood {
        /// Its epoch.
        epoch: u64,
        /// The UUID that it has.
        uuid: String,
        /// Reason why it is not understood.
        reason: String,
    },
}

impl std::fmt::Display for CopyDamage {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing => out.write_str("missing"),
            Self::Newer(version) => write!(out, "version {version}"),
            Self::Truncated { needed } => write!(out, "truncated, needs {needed} bytes"),
            Self::Corrupt(reason) | Self::NotUnderstood { reason, .. } => out.write_str(reason),
        }
    }
}

impl Binary {
    /// Decodes the binary part of `copy` that was found at `offset`.
    /// The checksum is still to be checked.
    pub(crate) fn decode(bytes: &[u8], copy: HeaderCopy, offset: u64) -> Result<Self, CopyDamage> {
        if bytes.get(..6) != Some(&magic(copy)[..]) || bytes.len() < BINARY_LEN {
            return Err(CopyDamage::Missing);
        }
        let version = u16::from_be_bytes(array(bytes, 6));
        if version > 2 {
            return Err(CopyDamage::Newer(version));
        }
        if version != 2 {
            return Err(CopyDamage::Corrupt(format!("version {version}")));
        }
        let copy_size = u64::from_be_bytes(array(bytes, 8));
        if !COPY_SIZES.contains(&copy_size) {
            return Err(CopyDamage::Corrupt(format!("header size {copy_size} is not allowed")));
        }
        let stated_offset = u64::from_be_bytes(array(bytes, 256));
        if stated_offset != offset {
            return Err(CopyDamage::Corrupt(format!(
                "it says that it is at offset {stated_offset}, and is at {offset}"
            )));
        }
        if copy == HeaderCopy::Secondary && copy_size != offset {
            return Err(CopyDamage::Corrupt(format!("header size {copy_size} does not fit its offset {offset}")));
        }
        Ok(Self {
            copy_size,
            epoch: u64::from_be_bytes(array(bytes, 16)),
            label: text(&bytes[24..72]),
            checksum_hash: text(&bytes[72..104]),
            salt: array(bytes, 104),
            uuid: text(&bytes[168..208]),
            subsystem: text(&bytes[208..256]),
        })
    }

    /// Checks the checksum over the whole copy.
    pub(crate) fn verify(&self, whole: &[u8]) -> Result<(), CopyDamage> {
        let Ok(hash) = Hash::by_name(&self.checksum_hash) else {
            let name = quote(&self.checksum_hash);
            return Err(CopyDamage::Corrupt(format!("unknown checksum {name}")));
        };
        let len = hash.output_len();
        let stored = &whole[CHECKSUM_OFFSET..CHECKSUM_OFFSET + len];
        if checksum(hash, whole)[..len] != *stored {
            return Err(CopyDamage::Corrupt("checksum mismatch".into()));
        }
        Ok(())
    }

    /// The whole copy: binary part, `json`, zeros, with its checksum.
    ///
    /// # Panics
    /// When `json` does not fit, or a text is too long for its field: both checked before.
    pub(crate) fn encode(&self, copy: HeaderCopy, json: &[u8]) -> Vec<u8> {
        let len = usize::try_from(self.copy_size).expect("at most 4 MiB");
        let mut bytes = vec![0; len];
        let mut put = |offset: usize, value: &[u8]| {
            bytes[offset..offset + value.len()].copy_from_slice(value);
        };
        put(0, &magic(copy));
        put(6, &2_u16.to_be_bytes());
        put(8, &self.copy_size.to_be_bytes());
        put(16, &self.epoch.to_be_bytes());
        put(24, self.label.as_bytes());
        put(72, self.checksum_hash.as_bytes());
        put(104, &self.salt);
        put(168, self.uuid.as_bytes());
        put(208, self.subsystem.as_bytes());
        put(256, &self.offset(copy).to_be_bytes());
        put(BINARY_LEN, json);
        let hash = Hash::by_name(&self.checksum_hash).expect("chosen by us");
        let sum = checksum(hash, &bytes);
        bytes[CHECKSUM_OFFSET..CHECKSUM_OFFSET + CHECKSUM_LEN].copy_from_slice(&sum);
        bytes
    }

    /// The whole copy: the binary part `old` of either copy with this epoch and salt, and `json`. Whatever else the
    /// old one has, reserved bytes included, is kept.
    ///
    /// # Panics
    /// When `json` does not fit, which is checked before.
    pub(crate) fn renew(&self, old: &[u8], copy: HeaderCopy, json: &[u8]) -> Result<Vec<u8>, Error> {
        let hash = Hash::by_name(&self.checksum_hash)?;
        let len = usize::try_from(self.copy_size).expect("at most 4 MiB");
        let mut bytes = vec![0; len];
        let mut put = |offset: usize, value: &[u8]| {
            bytes[offset..offset + value.len()].copy_from_slice(value);
        };
        put(0, &old[..BINARY_LEN]);
        put(0, &magic(copy));
        put(16, &self.epoch.to_be_bytes());
        put(104, &self.salt);
        put(256, &self.offset(copy).to_be_bytes());
        put(CHECKSUM_OFFSET, &[0; CHECKSUM_LEN]);
        put(BINARY_LEN, json);
        let sum = checksum(hash, &bytes);
        bytes[CHECKSUM_OFFSET..CHECKSUM_OFFSET + CHECKSUM_LEN].copy_from_slice(&sum);
        Ok(bytes)
    }

    /// Where `copy` lies, in bytes.
    #[must_use]
    pub fn offset(&self, copy: HeaderCopy) -> u64 {
        match copy {
            HeaderCopy::Primary => 0,
            HeaderCopy::Secondary => self.copy_size,
        }
    }
}

/// The checksum of a whole copy, padded with zeros.
pub(crate) fn checksum(hash: Hash, whole: &[u8]) -> [u8; CHECKSUM_LEN] {
    let mut sum = [0; CHECKSUM_LEN];
    let after = &whole[CHECKSUM_OFFSET + CHECKSUM_LEN..];
    let parts = [&whole[..CHECKSUM_OFFSET], &[0; CHECKSUM_LEN], after];
    hash.digest(&parts, &mut sum[..hash.output_len()]);
    sum
}

fn magic(copy: HeaderCopy) -> [u8; 6] {
    match copy {
        HeaderCopy::Primary => crate::MAGIC,
        HeaderCopy::Secondary => MAGIC_SECONDARY,
    }
}

pub(crate) fn array<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[offset..offset + N]);
    out
}

/// Text up to the first zero byte. It is only shown, so odd bytes do no harm.
pub(crate) fn text(field: &[u8]) -> String {
    let text = field.split(|&byte| byte == 0).next().unwrap_or(field);
    String::from_utf8_lossy(text).into_owned()
}
