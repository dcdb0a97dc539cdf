//! Making headers: checked options into a header with one key slot.

use std::io::{Read, Seek, Write};

use cryptline_cipher::{CipherError, SectorCipher, SectorOptions, SpecError};
use cryptline_sys::SecretBuf;

pub use crate::cost::{KdfCost, KdfKind, benchmark};
pub use crate::options::{FormatOptions, Version};

use crate::area::{KEY_LEN_MAX, is_null_cipher, parse_cipher};
use crate::error::{Error, quote};
use crate::hash::{HASH_LEN_MIN, Hash};
use crate::options::parameters;
use crate::unlock::check_passphrase;
use crate::{luks1, luks2, random};

/// Writes a new header with one key slot to `device` and returns the volume key.
///
/// What was there before is lost from the first write on. The order is such that a crash leaves
/// either no header or a whole one, given that `flush` makes earlier writes durable: old headers
/// are wiped first, then the key slots are written, the secondary copy, and the primary last.
/// `device_size` is in bytes; a detached header's file may be shorter and grows.
///
/// # Errors
/// [`Error::Parameters`] for impossible options, [`Error::TooSmall`], [`Error::Io`].
pub fn format(
    device: &mut (impl Read + Write + Seek),
    device_size: u64,
    passphrase: &[u8],
    options: &FormatOptions,
) -> Result<SecretBuf, Error> {
    let key =
        SecretBuf::random(options.key_len.min(KEY_LEN_MAX) as usize).map_err(Error::KeyMemory)?;
    format_with_key(device, device_size, passphrase, &key, options)?;
    Ok(key)
}

/// As [`format()`], with a volume key that the caller brings; `key_len` must be its length.
///
/// # Errors
/// As [`format()`].
pub fn format_with_key(
    device: &mut (impl Read + Write + Seek),
    device_size: u64,
    passphrase: &[u8],
    key: &[u8],
    options: &FormatOptions,
) -> Result<(), Error> {
    check_passphrase(passphrase)?;
    options.check(key)?;
    // Headers hold the name in its usual case.
    let hash = Hash::by_name(&options.hash)?.name().to_owned();
    let options = &FormatOptions {
        hash,
        ..options.clone()
    };
    match options.version {
        Version::Luks1 => luks1::format(device, device_size, passphrase, key, options),
        Version::Luks2 => luks2::format(device, device_size, passphrase, key, options),
    }
}

impl FormatOptions {
    fn check(&self, key: &[u8]) -> Result<(), Error> {
        if key.len() != self.key_len as usize {
            return Err(parameters(format!(
                "the volume key has {} bytes, {} are needed",
                key.len(),
                self.key_len
            )));
        }
        if is_null_cipher(&self.cipher) && !self.allow_null_cipher {
            return Err(Error::NullCipher("the new volume".into()));
        }
        check_cipher_takes(&self.cipher, key)?;
        let hash = Hash::by_name(&self.hash)?;
        // cryptsetup 2.6.1 makes such volumes, and opens them with any passphrase.
        if hash.output_len() < HASH_LEN_MIN {
            return Err(parameters(format!(
                "hash {} is too short for a new volume; use sha256",
                quote(&self.hash)
            )));
        }
        if let Some(offset) = self.data_offset
            && !offset.is_multiple_of(self.alignment())
        {
            let unit = self.alignment();
            return Err(parameters(format!(
                "a data offset of {offset} bytes is not possible, give a multiple of {unit}"
            )));
        }
        if let Some(uuid) = self.uuid.as_deref().filter(|uuid| !random::is_uuid(uuid)) {
            return Err(parameters(format!("{} is not a UUID", quote(uuid))));
        }
        Ok(())
    }
}

impl FormatOptions {
    /// Bytes of the header with its place for key slots.
    ///
    /// # Errors
    /// [`Error::Parameters`] for impossible options.
    pub fn header_len(&self) -> Result<u64, Error> {
        match self.version {
            Version::Luks1 => luks1::header_len(self),
            Version::Luks2 => luks2::header_len(self),
        }
    }

    /// Where the data of such a volume begins.
    ///
    /// # Errors
    /// [`Error::Parameters`] for impossible options.
    pub fn data_start(&self) -> Result<u64, Error> {
        match self.version {
            Version::Luks1 => luks1::data_start(self),
            Version::Luks2 => luks2::data_start(self),
        }
    }

    /// Data begins at a multiple of so many bytes.
    fn alignment(&self) -> u64 {
        match self.version {
            Version::Luks1 => 512,
            Version::Luks2 => 4096,
        }
    }
}

/// Tries the key on the cipher, so that no header is written that could not be opened.
pub(crate) fn check_cipher_takes(cipher: &str, key: &[u8]) -> Result<(), Error> {
    let spec = parse_cipher(cipher).map_err(|error| match error {
        Error::Invalid(reason) => Error::Parameters(reason),
        other => other,
    })?;
    let options = SectorOptions {
        sector_size: 512,
        iv_offset: 0,
        iv_large_sectors: false,
    };
    let made = SectorCipher::new(&spec, key, options);
    made.map(drop).map_err(|error| match error {
        CipherError::Spec(SpecError::NotSupportedYet(what)) => Error::NotSupported(what),
        error => Error::Parameters(error.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn impossible_options_are_refused_before_anything_is_written() {
        let refused = |change: fn(&mut FormatOptions)| {
            let mut options = FormatOptions::default();
            change(&mut options);
            let mut device = std::io::Cursor::new(vec![0xaa_u8; 4096]);
            let error = format(&mut device, 1 << 30, b"", &options).err().unwrap();
            assert!(device.get_ref().iter().all(|&byte| byte == 0xaa));
            error
        };
        assert_eq!(
            refused(|options| options.key_len = 33).kind(),
            ErrorKind::Parameters
        );
        assert_eq!(
            refused(|options| options.key_len = 0).kind(),
            ErrorKind::Parameters
        );
        assert_eq!(
            refused(|options| options.key_len = 4096).kind(),
            ErrorKind::Parameters
        );
        assert_eq!(
            refused(|options| options.cipher = "rot13-xts-plain64".into()).kind(),
            ErrorKind::Parameters
        );
        assert_eq!(
            refused(|options| options.cipher = "anubis-xts-plain64".into()).kind(),
            ErrorKind::Parameters
        );
        assert_eq!(
            refused(|options| options.cipher = "cipher_null-ecb".into()).kind(),
            ErrorKind::Device
        );
        assert_eq!(
            refused(|options| options.hash = "md4".into()).kind(),
            ErrorKind::Parameters
        );
        assert_eq!(
            refused(|options| options.uuid = Some("x".into())).kind(),
            ErrorKind::Parameters
        );
        assert_eq!(
            refused(|options| options.data_offset = Some(100)).kind(),
            ErrorKind::Parameters
        );
        assert_eq!(
            refused(|options| options.sector_size = Some(520)).kind(),
            ErrorKind::Parameters
        );
        assert_eq!(
            refused(|options| options.label = "x".repeat(48)).kind(),
            ErrorKind::Parameters
        );
        assert_eq!(
            refused(|options| options.cost.memory_kib = Some(u32::MAX)).kind(),
            ErrorKind::Parameters
        );
    }
}
