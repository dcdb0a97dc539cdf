//! Sources of a volume's encryption parameters.

use cryptline_cipher::{CipherSpec, SectorOptions};

use crate::Result;
use crate::error::Problem;

/// Source of a volume's encryption parameters.
#[derive(Clone, Debug)]
pub enum Format {
    /// A LUKS header, of this version or of any.
    Luks(Option<LuksVersion>),
    /// The caller.
    Plain(Plain),
    /// Nobody: a new volume under a key that nobody knows, for memory.
    RandomKey(RandomKey),
}

pub use cryptline_luks::format::LuksVersion;

/// Parameters that a header would state. Nothing is guessed: cryptsetup's defaults changed with version 2.7, and a
/// wrong guess reads as noise and destroys the data on the first write.
#[derive(Clone, Debug)]
pub struct Plain {
    /// The cipher word, such as `aes-xts-plain64`.
    pub cipher: String,
    /// Bytes of the volume key.
    pub key_len: usize,
    /// Function that makes the key of a passphrase: `sha256`, or `sha512:32`; `plain` for nothing.
    pub hash: Option<String>,
    /// First byte of the data.
    pub start: u64,
    /// Size in bytes; `None` for the rest.
    pub size: Option<u64>,
    /// Bytes in a cipher sector.
    pub sector_size: u32,
    /// Added to the sector number for the IV, in 512-byte sectors.
    pub iv_offset: u64,
    /// IVs count cipher sectors, and not 512-byte sectors.
    pub iv_large_sectors: bool,
}

/// Properties of a new volume under a random key.
#[derive(Clone, Debug)]
pub struct RandomKey {
    /// The cipher word.
    pub cipher: String,
    /// Bytes of the volume key.
    pub key_len: usize,
    /// Bytes in a cipher sector.
    pub sector_size: u32,
    /// IVs count cipher sectors, and not 512-byte sectors.
    pub iv_large_sectors: bool,
}

impl Plain {
    /// All of the device under `cipher` with a key of `key_len` bytes, in sectors of 512 bytes.
    pub fn new(cipher: impl Into<String>, key_len: usize) -> Self {
        Self {
            cipher: cipher.into(),
            key_len,
            hash: None,
            start: 0,
            size: None,
            sector_size: 512,
            iv_offset: 0,
            iv_large_sectors: false,
        }
    }

    pub(super) fn sectors(&self) -> SectorOptions {
        SectorOptions {
            sector_size: self.sector_size,
            iv_offset: self.iv_offset,
            iv_large_sectors: self.iv_large_sectors,
        }
    }
}

impl Default for RandomKey {
    /// AES-256 in XTS mode over pages: so discards free memory exactly where they strike, and one IV serves
    /// 4 KiB instead of 512 bytes, which is faster.
    fn default() -> Self {
        Self { cipher: "aes-xts-plain64".to_owned(), key_len: 64, sector_size: 4096, iv_large_sectors: false }
    }
}

/// A cipher that this build has.
pub(super) fn parse_cipher(word: &str) -> Result<CipherSpec> {
    let parsed = CipherSpec::parse(word).and_then(|spec| spec.check_supported().map(|()| spec));
    Ok(parsed.map_err(|error| Problem::CipherWord { word: word.to_owned(), error })?)
}
