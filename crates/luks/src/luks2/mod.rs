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
pub(crate) mod format;
pub mod metadata;
pub(crate) mod node;
mod segments;
mod unlock;
pub(crate) mod validate;

pub use self::binary::HeaderCopy;
use self::copies::Bar;
pub use self::copies::CopyState;
pub use self::copies::{look, parse_metadata};
pub(crate) use self::format::{COPY_SIZE, format, lengths, wipe_magics};

use self::binary::Binary;
use self::metadata::{JsonSegment, Metadata, Odd};
use self::validate::header_end;
use crate::area::{Area, is_null_cipher};
use crate::edit::HeaderEdit;
use crate::error::{Error, quote};
use crate::options::LuksVersion;
use crate::segment::{DataSegment, SegmentPolicy};
use crate::unlock::{KeyDigest, SlotsToTry, UnlockOptions};
use crate::version::HeaderVersion;

/// A LUKS2 header that has been checked.
#[derive(Clone, Debug)]
pub struct Luks2Header {
    /// The binary part of the copy in use.
    pub binary: Binary,
    /// Its JSON.
    pub metadata: Metadata,
    /// The copy in use.
    pub copy: HeaderCopy,
    /// How both copies were found.
    pub copies: [CopyState; 2],
    /// Warnings for the user, one line each.
    pub warnings: Vec<String>,
    /// Why the copies are not just as they should be.
    trouble: Option<String>,
    /// Why nothing may be written to the volume.
    bar: Option<Bar>,
}

impl Luks2Header {
    /// Tells if both copies are good and the same.
    pub(crate) fn copies_agree(&self) -> bool {
        self.trouble.is_none()
    }

    /// Tells if part of the data is under another key, or is to be.
    pub(crate) fn is_reencrypting(&self) -> bool {
        let metadata = &self.metadata;
        metadata.config.requirements.iter().any(|requirement| requirement.contains("reencrypt"))
            || metadata.keyslots.values().any(|slot| slot.kind == "reencrypt")
            || metadata.segments.values().any(JsonSegment::is_reencrypting)
    }
}

impl HeaderVersion for Luks2Header {
    fn version(&self) -> LuksVersion {
        LuksVersion::Luks2
    }

    fn uuid(&self) -> &str {
        &self.binary.uuid
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn segments(&self, policy: SegmentPolicy) -> Result<Vec<DataSegment>, Error> {
        self.data_segments(policy)
    }

    fn key_len(&self) -> Option<usize> {
        let (_, digest) = self.data_digest().ok()?;
        let slot = digest.keyslots.first()?;
        Some(self.metadata.keyslots.get(slot)?.key_len as usize)
    }

    fn key_digest(&self) -> Result<KeyDigest, Error> {
        self.data_digest()?.1.proof()
    }

    fn slots_to_try(&self, options: &UnlockOptions) -> Result<SlotsToTry, Error> {
        self.chosen_slots(options)
    }

    fn areas(&self) -> Vec<(u32, Area)> {
        self.metadata.keyslots.iter().map(|(&number, slot)| (number, slot.area)).collect()
    }

    fn area_cipher(&self, slot: u32) -> Option<String> {
        let keyslot = self.metadata.keyslots.get(&slot).filter(|_| self.keeps(slot))?;
        Some(keyslot.luks2.as_ref()?.encryption.clone())
    }

    fn data_offset(&self) -> u64 {
        self.metadata.segments.values().map(|it| it.offset).min().unwrap_or(0)
    }

    fn metadata_len(&self) -> u64 {
        2 * self.binary.copy_size
    }

    fn end(&self) -> u64 {
        header_end(self.binary.copy_size, &self.metadata)
    }

    fn check_understood(&self) -> Result<(), Error> {
        let odd = &self.metadata.odd;
        let is_slot = |odd: &&Odd| odd.member == "keyslots";
        let is_kept = self.keeping().is_some_and(|keeping| !keeping.is_empty());
        let last = odd.iter().find(is_slot).filter(|_| !is_kept);
        let Some(first) = last.or(odd.first()) else {
            return Ok(());
        };
        let (next, is_removable) = if last.is_some() {
            let next = "no other key slot opens the volume, so it is not taken out either; the program that made it, or \
                        a newer version of this one, may open it";
            (next, false)
        } else if is_slot(&first) && self.metadata.keyslots.contains_key(&first.number) {
            ("remove one of the two by the program that made it; the volume opens all the same", false)
        } else {
            ("the volume opens all the same", true)
        };
        Err(Error::Odd { odd: first.to_string(), next, is_removable })
    }

    fn check_writable(&self) -> Result<(), Error> {
        match &self.bar {
            None => Ok(()),
            Some(bar) => Err(bar.error()),
        }
    }

    fn check_usable(&self) -> Result<(), Error> {
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
        Ok(())
    }

    fn check_not_newer(&self) -> Result<(), Error> {
        let damages = self.copies.iter().filter_map(|copy| copy.damage.as_deref());
        let mut versions = damages.filter_map(|damage| damage.strip_prefix("version ")?.parse().ok());
        match versions.find(|&version| version > 2) {
            Some(version) => Err(Error::NewerVersion(version)),
            None => Ok(()),
        }
    }

    fn luks2(&self) -> Option<&Luks2Header> {
        Some(self)
    }
}

impl JsonSegment {
    /// Tells if reencryption keeps this as what was or will be.
    pub(crate) fn is_backup(&self) -> bool {
        self.flags.iter().any(|flag| flag.starts_with("backup-"))
    }

    fn is_reencrypting(&self) -> bool {
        self.is_backup() || self.flags.iter().any(|flag| flag == "in-reencryption")
    }

    /// Tells if the data is not encrypted at all.
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
#[cfg(test)]
mod segments_tests;
