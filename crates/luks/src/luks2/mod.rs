//! LUKS2: two copies of a header (a binary part and JSON), then the key slots, then the data.
//!
//! ```text
//!   0              hdr_size         2 x hdr_size                       data offset
//!  +--------+-----+--------+-------+------------------------------+---+-------------
//!  | binary | JSON| binary | JSON  | key slots area               | 0 | data ...
//!  +--------+-----+--------+-------+------------------------------+---+-------------
//!    primary copy   secondary copy    only the slots in use are not noise
//! ```

pub mod binary;
mod copies;
mod format;
pub mod metadata;
mod node;
mod unlock;
mod validate;

pub use self::binary::Copy;
pub use self::copies::CopyState;
pub use self::copies::{parse_metadata, read};
pub(crate) use self::format::{format, wipe_magics};

use self::binary::Binary;
use self::metadata::{Digest, JsonSegment, Keyslot, Metadata, Priority};
use crate::area::is_null_cipher;
use crate::error::{Error, quote};
use crate::segment::{Segment, SegmentPolicy, check_offset, checked_cipher};

/// A LUKS2 header that has been checked.
#[derive(Clone, Debug)]
pub struct Header {
    /// The binary part of the copy in use.
    pub binary: Binary,
    /// Its JSON.
    pub metadata: Metadata,
    /// The copy in use.
    pub copy: Copy,
    /// How both copies were found.
    pub copies: [CopyState; 2],
    /// What the user should know, one line each.
    pub warnings: Vec<String>,
}

impl Header {
    /// Where the data is and how it is encrypted.
    ///
    /// # Errors
    /// [`Error::ReencryptionInProgress`], [`Error::UnknownRequirement`],
    /// [`Error::NotSupported`] for integrity, other segment types and other ciphers,
    /// [`Error::NullCipher`] and [`Error::Parameters`] as `policy` says.
    pub fn segment(&self, policy: SegmentPolicy) -> Result<Segment, Error> {
        self.check_usable()?;
        let (number, segment) = self.data_segment()?;
        let Some(crypt) = &segment.crypt else {
            let kind = quote(&segment.kind);
            return Err(Error::NotSupported(format!("segment type {kind}")));
        };
        if let Some(integrity) = &crypt.integrity {
            return Err(Error::NotSupported(format!(
                "integrity ({})",
                quote(integrity)
            )));
        }
        if crypt.iv_tweak != 0 {
            return Err(Error::invalid(format!(
                "segments.{number}.iv_tweak: {}; only 0 is used outside of reencryption, and programs disagree on others",
                crypt.iv_tweak
            )));
        }
        check_offset(segment.offset, policy)?;
        Ok(Segment {
            cipher: checked_cipher(&crypt.encryption, policy)?,
            key_len: self.key_len(),
            sector_size: crypt.sector_size,
            offset: segment.offset,
            size: segment.size,
            iv_tweak: crypt.iv_tweak,
        })
    }

    /// Length of the volume key in bytes; `None` when no key slot keeps it.
    #[must_use]
    pub fn key_len(&self) -> Option<usize> {
        let (_, digest) = self.data_digest().ok()?;
        let slot = digest.keyslots.first()?;
        Some(self.metadata.keyslots.get(slot)?.key_len as usize)
    }

    /// Refuses what is sound but must not be opened.
    pub(crate) fn check_usable(&self) -> Result<(), Error> {
        if let Some(requirement) = self.metadata.config.requirements.first() {
            let name = quote(requirement);
            return Err(if requirement.contains("reencrypt") {
                Error::ReencryptionInProgress(format!("requirement {name}"))
            } else {
                Error::UnknownRequirement(name)
            });
        }
        let mut slots = self.metadata.keyslots.iter();
        if let Some((number, _)) = slots.find(|(_, slot)| slot.kind == "reencrypt") {
            let what = format!("key slot {number} is of type 'reencrypt'");
            return Err(Error::ReencryptionInProgress(what));
        }
        let mut segments = self.metadata.segments.iter();
        if let Some((number, _)) = segments.find(|(_, segment)| segment.is_reencrypting()) {
            let what = format!("segment {number} is flagged so");
            return Err(Error::ReencryptionInProgress(what));
        }
        match self.metadata.segments.len() {
            1 => Ok(()),
            count => Err(Error::ReencryptionInProgress(format!("{count} segments"))),
        }
    }

    /// The only segment; `check_usable` has refused others.
    fn data_segment(&self) -> Result<(u32, &JsonSegment), Error> {
        let first = self.metadata.segments.first_key_value();
        let (&number, segment) = first.ok_or_else(|| Error::invalid("segments: there are none"))?;
        Ok((number, segment))
    }

    /// The digest of the data segment's key.
    pub(crate) fn data_digest(&self) -> Result<(u32, &Digest), Error> {
        let (segment, _) = self.data_segment()?;
        let digests = self.metadata.digests.iter();
        let mut bound = digests.filter(|(_, digest)| digest.segments.contains(&segment));
        match (bound.next(), bound.next()) {
            (Some((&number, digest)), None) => Ok((number, digest)),
            (None, _) => Err(Error::invalid("digests: none is for the data segment")),
            (Some(_), Some(_)) => Err(Error::invalid(
                "digests: more than one is for the data segment",
            )),
        }
    }

    /// Key slots that keep the data segment's key, in the order in which they are tried.
    pub(crate) fn slots_to_try(&self, named: Option<u32>) -> Result<Vec<(u32, &Keyslot)>, Error> {
        let (_, digest) = self.data_digest()?;
        let bound = self
            .metadata
            .keyslots
            .iter()
            .map(|(&number, slot)| (number, slot));
        let wanted = |&(number, slot): &(u32, &Keyslot)| {
            let chosen = match named {
                Some(named) => named == number,
                None => slot.priority != Priority::Ignore,
            };
            chosen && digest.keyslots.contains(&number)
        };
        let mut slots: Vec<_> = bound.filter(wanted).collect();
        slots.sort_by_key(|&(number, slot)| (std::cmp::Reverse(slot.priority), number));
        Ok(slots)
    }
}

impl JsonSegment {
    /// Whether reencryption keeps this as what was or will be.
    pub(crate) fn is_backup(&self) -> bool {
        self.flags.iter().any(|flag| flag.starts_with("backup-"))
    }

    fn is_reencrypting(&self) -> bool {
        self.is_backup() || self.flags.iter().any(|flag| flag == "in-reencryption")
    }

    /// Whether the data is not encrypted at all.
    #[must_use]
    pub fn is_null(&self) -> bool {
        let crypt = self.crypt.as_ref();
        crypt.is_some_and(|crypt| is_null_cipher(&crypt.encryption))
    }
}

#[cfg(test)]
mod copies_tests;
#[cfg(test)]
mod defects_tests;
#[cfg(test)]
mod refusals_tests;
