//! Options of a new header.

use crate::cost::{KdfCost, KdfKind};
use crate::error::Error;
use crate::random::{Random, Seed};

/// Which header to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LuksVersion {
    /// LUKS1.
    Luks1,
    /// LUKS2.
    Luks2,
}

impl std::fmt::Display for LuksVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Luks1 => "LUKS1",
            Self::Luks2 => "LUKS2",
        })
    }
}

/// Options of a new header. The defaults are those of `cryptsetup luksFormat`.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// LUKS1 or LUKS2.
    pub version: LuksVersion,
    /// Cipher word of the data, `aes-xts-plain64`.
    pub cipher: String,
    /// Length of the volume key in bytes: 64 (AES-256 in XTS mode) or 32 (AES-128).
    pub key_len: u32,
    /// Bytes in a cipher sector (LUKS2). `None`: 4096 where the data is a multiple of it.
    pub sector_size: Option<u32>,
    /// Hash of digest and splitter, and of PBKDF2: `sha256`.
    pub hash: String,
    /// Key derivation function. `None`: Argon2id for LUKS2, PBKDF2 for LUKS1.
    pub kdf: Option<KdfKind>,
    /// Its cost.
    pub cost: KdfCost,
    /// UUID of the volume. `None`: random.
    pub uuid: Option<String>,
    /// Label (LUKS2), up to 47 bytes.
    pub label: String,
    /// Subsystem (LUKS2), up to 47 bytes.
    pub subsystem: String,
    /// Start of the data in bytes, a multiple of 4096 (LUKS1: 512). `None`: 16 MiB for LUKS2, behind the key
    /// slots rounded up to 1 MiB for LUKS1, 0 for a detached header.
    pub data_offset: Option<u64>,
    /// The data is on another device: the header's device may be as small as the header.
    pub detached: bool,
    /// Number of the key slot.
    pub slot: u32,
    /// Cipher of the key slot and the length of its key in bytes (LUKS2). `None`: that of the data if it will do.
    pub slot_cipher: Option<(String, u32)>,
    /// Bytes of one copy of the header (LUKS2): 16 KiB to 4 MiB, a power of two. `None`: 16 KiB.
    pub metadata_size: Option<u64>,
    /// Bytes of the place for key slots (LUKS2), a multiple of 4096. `None`: all up to the data.
    pub keyslots_size: Option<u64>,
    /// Leave the free place for key slots (LUKS2) as it is, which takes no room in a new file. Otherwise, random bytes
    /// hide how much of it is used.
    pub sparse: bool,
    /// Allow `cipher_null`, which encrypts nothing.
    pub allow_null_cipher: bool,
    /// Broken ciphers that are made all the same, exactly as they are written.
    pub accepted_ciphers: Vec<String>,
    /// Source of all random bytes, so that the same options make the same header. The volume key is one of them. What
    /// is `None` in [`cost`](Self::cost) is then as in [`KdfCost::fixed`]. `None`: the kernel.
    pub seed: Option<Seed>,
}

impl Default for FormatOptions {
    fn default() -> Self {
        Self {
            version: LuksVersion::Luks2,
            cipher: "aes-xts-plain64".into(),
            key_len: 64,
            sector_size: None,
            hash: "sha256".into(),
            kdf: None,
            cost: KdfCost::default(),
            uuid: None,
            label: String::new(),
            subsystem: String::new(),
            data_offset: None,
            detached: false,
            slot: 0,
            slot_cipher: None,
            metadata_size: None,
            keyslots_size: None,
            sparse: false,
            allow_null_cipher: false,
            accepted_ciphers: Vec::new(),
            seed: None,
        }
    }
}

impl FormatOptions {
    pub(crate) fn uuid_or_random(&self) -> Result<String, Error> {
        let random = || Random::of(self).uuid("uuid");
        self.uuid.clone().map_or_else(random, Ok)
    }

    /// A UUID for something else that is made from the same seed, such as a file system; `None` without one.
    #[must_use]
    pub fn seeded_uuid(&self, purpose: &str) -> Option<String> {
        self.seed.is_some().then(|| Random::of(self))?.uuid(purpose).ok()
    }
}

pub(crate) fn parameters(reason: impl Into<String>) -> Error {
    Error::Parameters(reason.into())
}
