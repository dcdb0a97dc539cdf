//! Headers of encrypted disks: LUKS2, LUKS1 and `cryptsetup plain` (which has none).
//!
//! ```text
//!              read                    unlock                     segments
//!   device  ---------->  Header  --------------------->  key  +  Segments ---->  crypt layer
//!                          |     passphrase, KDF,         ^      cipher, offset,
//!                          |     key slot area, digest    |      size, sector size
//!                          +--> info                      +--- or a volume key that
//!                                                              verify_volume_key accepts
//! ```
//!
//! Everything is pure over a `Read`/`Write`/`Seek` that the caller brings, with its size in
//! bytes: no file is opened, nobody is asked. Reading never writes.
//!
//! A header is hostile until it is checked: sizes, counts and costs are bounded before they are
//! used. What damages a header makes [`read`] fail; what is sound but can not or must not be
//! opened (reencryption, integrity, `cipher_null`) makes [`LuksHeader::segments`] and
//! [`LuksHeader::unlock`] fail, so that [`LuksHeader::info`] can still show it.
//!
//! A LUKS header is not authenticated. Whoever can write to the disk can swap it for one of
//! their own, whose key they know, and wait for new data. Only the owner knows what cipher and
//! key the volume should have; [`LuksHeader::trust`] says how far the key slot that was opened proves it.
//!
//! A key slot or token that breaks the format refuses nobody who opens, and is not written around: whoever would change
//! the header is refused by name. [`look`] is for who only reads; [`read`], for who may write, also refuses a LUKS2
//! header whose device holds something else by now, and one with a whole copy, not older, that is not understood. Such
//! a copy may know of key slots that the other does not, so it is never taken for damaged.

#![forbid(unsafe_code)]

mod af;
mod area;
mod budget;
mod cost;
mod device;
pub mod edit;
mod error;
pub mod format;
mod hash;
mod identity;
pub mod info;
mod kdf;
pub mod luks1;
pub mod luks2;
mod memory;
mod options;
pub mod plain;
mod random;
pub mod recovery;
pub mod seal;
mod segment;
pub mod signatures;
pub mod token;
mod trust;
mod unlock;
mod version;

#[cfg(test)]
mod crash_edit_tests;
#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod mutation_tests;
#[cfg(test)]
#[path = "tests/testing.rs"]
mod testing;
#[cfg(test)]
mod tests;

use std::io::{Read, Seek};

pub use hash::Hash;

pub use area::{Area, KEY_LEN_MAX};
pub use budget::KdfLimits;
pub use device::ReadSeek;
pub use error::{Error, ErrorKind, Guess, time_text};
pub use info::HeaderInfo;
pub use kdf::{Argon2Variant, Kdf};
pub use memory::{Available, available_for_files, available_within_limits};
pub use random::Seed;
pub use segment::{DataSegment, SegmentPolicy};
pub use trust::{Doubted, Trust};
pub use unlock::{PASSPHRASE_LEN_MAX, UnlockOptions, UnlockedSlot};

use device::{read_at, to_u64};
use options::LuksVersion;

/// First bytes of a LUKS1 header and of the primary copy of a LUKS2 header.
pub const MAGIC: [u8; 6] = *b"LUKS\xba\xbe";
/// First bytes of a header of Ceph's layered images, which is LUKS in all else.
const MAGIC_CEPH: [u8; 6] = *b"RBDL\xba\xbe";

/// A header that has been checked.
#[derive(Clone, Debug)]
pub enum LuksHeader {
    /// LUKS1.
    V1(luks1::Luks1Header),
    /// LUKS2.
    V2(luks2::Luks2Header),
}

/// Reads the header of `device`, which has `device_size` bytes: detects its version, checks it,
/// and of a LUKS2 header picks the good copy. Whoever has it may write to the volume.
///
/// # Errors
/// As [`look`], and as [`LuksHeader::check_writable`].
pub fn read(device: &mut (impl Read + Seek), device_size: u64) -> Result<LuksHeader, Error> {
    let header = look(device, device_size)?;
    header.check_writable()?;
    Ok(header)
}

/// The same for who only reads the volume: [`LuksHeader::check_writable`] has not been asked.
///
/// # Errors
/// [`Error::NotLuks`], [`Error::Truncated`], [`Error::BothCopiesDamaged`], [`Error::Invalid`],
/// [`Error::NewerVersion`], [`Error::NotSupported`] or [`Error::Io`].
pub fn look(device: &mut (impl Read + Seek), device_size: u64) -> Result<LuksHeader, Error> {
    let mut start = [0; 8];
    if device_size < to_u64(start.len()) {
        return Err(Error::NotLuks);
    }
    read_at(device, 0, &mut start, "the LUKS header")?;
    let version = u16::from_be_bytes([start[6], start[7]]);
    if start[..6] == MAGIC_CEPH {
        return Err(Error::NotSupported(
            "Ceph layered encryption (RBDL header); make it a LUKS image of its own with `rbd flatten --encryption-passphrase-file`, as docs/ceph.md says: without the passphrases it destroys the data".into(),
        ));
    }
    if start[..6] == MAGIC && version == 1 {
        return luks1::read(device, device_size).map(LuksHeader::V1);
    }
    if start[..6] == MAGIC && version > 2 {
        return Err(Error::NewerVersion(version));
    }
    luks2::look(device, device_size).map(LuksHeader::V2)
}

impl LuksHeader {
    /// Version of the header.
    #[must_use]
    pub fn version(&self) -> LuksVersion {
        self.inner().version()
    }

    /// Refuses a volume that may be read and must not be written to.
    ///
    /// # Errors
    /// [`Error::OtherContents`], [`Error::NotUnderstood`].
    pub fn check_writable(&self) -> Result<(), Error> {
        self.inner().check_writable()
    }

    /// Where the data is and how it is encrypted: at least one segment, in the order of the clear disk. All that are
    /// encrypted are under the volume key.
    ///
    /// # Errors
    /// [`Error::ReencryptionInProgress`], [`Error::UnknownRequirement`],
    /// [`Error::NotSupported`] for integrity, other segment types and other ciphers,
    /// [`Error::NullCipher`], [`Error::ClearSegment`] and [`Error::DetachedHeader`] as `policy` says,
    /// [`Error::Invalid`] where several do not follow each other.
    pub fn segments(&self, policy: SegmentPolicy) -> Result<Vec<DataSegment>, Error> {
        self.inner().segments(policy)
    }

    /// Length of the volume key in bytes; `None` when no key slot tells.
    #[must_use]
    pub fn key_len(&self) -> Option<usize> {
        self.inner().key_len()
    }

    /// How the volume asks to be opened (`cryptsetup open --persistent`): the flags' names, as the header has
    /// them, such as `allow-discards`. LUKS1 has none.
    #[must_use]
    pub fn flags(&self) -> &[String] {
        self.luks2().map_or(&[], |header| &header.metadata.config.flags)
    }

    /// Returns the warnings for the user, one line each: for example that a copy is damaged.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        self.inner().warnings()
    }

    /// UUID of the volume, as text.
    #[must_use]
    pub fn uuid(&self) -> &str {
        self.inner().uuid()
    }
}
