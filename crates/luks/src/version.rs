//! LUKS1 and LUKS2 behind one trait, for all that both have: [`LuksHeader::inner`] is where it is asked which one a header
//! is. Conversion, description and seals, which say different things of them, ask themselves; what only LUKS2 has is asked
//! by [`HeaderVersion::luks2`].

use crate::LuksHeader;
use crate::area::Area;
use crate::edit::HeaderEdit;
use crate::error::Error;
use crate::luks2::Luks2Header;
use crate::options::LuksVersion;
use crate::segment::{DataSegment, SegmentPolicy};
use crate::unlock::{KeyDigest, SlotsToTry, UnlockOptions};

/// Facts of a header that each version has in its own way.
pub(crate) trait HeaderVersion: HeaderEdit {
    fn version(&self) -> LuksVersion;
    fn uuid(&self) -> &str;
    /// Warnings for the user, one line each.
    fn warnings(&self) -> &[String];
    fn segments(&self, policy: SegmentPolicy) -> Result<Vec<DataSegment>, Error>;
    /// Length of the volume key in bytes; `None` when no key slot tells.
    fn key_len(&self) -> Option<usize>;
    /// Digest of the volume key.
    fn key_digest(&self) -> Result<KeyDigest, Error>;
    fn slots_to_try(&self, options: &UnlockOptions) -> Result<SlotsToTry, Error>;
    /// Key slots in use, with the places of their key material.
    fn areas(&self) -> Vec<(u32, Area)>;
    /// Cipher of the area of a key slot that keeps the volume key.
    fn area_cipher(&self, slot: u32) -> Option<String>;
    /// Start of the data in bytes.
    fn data_offset(&self) -> u64;
    /// Bytes before the place for key slots.
    fn metadata_len(&self) -> u64;
    /// End of the place for key slots.
    fn end(&self) -> u64;
    /// Refuses to change a header of which something is not as the format has it.
    fn check_understood(&self) -> Result<(), Error>;

    /// Refuses what may be read and must not be written to.
    fn check_writable(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Refuses what is sound but must not be opened.
    fn check_usable(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Refuses a header of which a newer program has written a copy.
    fn check_not_newer(&self) -> Result<(), Error> {
        Ok(())
    }

    /// The header as LUKS2, for what LUKS1 has none of.
    fn luks2(&self) -> Option<&Luks2Header> {
        None
    }
}

impl LuksHeader {
    pub(crate) fn inner(&self) -> &dyn HeaderVersion {
        match self {
            Self::V1(header) => header,
            Self::V2(header) => header,
        }
    }

    pub(crate) fn luks2(&self) -> Option<&Luks2Header> {
        self.inner().luks2()
    }
}
