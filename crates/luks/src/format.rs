//! Making headers: checked options into a header with one key slot.

use std::io::{Read, Seek, Write};

use cryptline_cipher::{CipherError, CipherSpec, SectorCipher, SectorOptions, SpecError, Strength};
use cryptline_sys::SecretBuf;

pub use crate::cost::{KdfCost, KdfKind, benchmark};
pub use crate::options::{FormatOptions, LuksVersion};

use crate::area::{KEY_LEN_MAX, is_null_cipher, parse_cipher};
use crate::error::{Error, quote};
use crate::hash::{HASH_LEN_MIN, Hash};
use crate::options::parameters;
use crate::random::{self, Random};
use crate::unlock::check_passphrase;
use crate::{luks1, luks2};

/// Modes that combine the data with what only the key and the place determine: data under one key gives the other
/// away, at least up to where they differ (`cfb`).
const STREAMS: [&str; 4] = ["cfb", "ctr", "ofb", "xctr"];

/// Writes a new header with one key slot to `device` and returns the volume key.
///
/// All previous data there is lost from the first write on. The order is such that a crash leaves either no header or a
/// whole one, given that `flush` makes earlier writes durable: old headers are wiped first, then the key slots are
/// written, the secondary copy, and the primary last. `device_size` is in bytes; a detached header's file may be
/// shorter and grows.
///
/// # Errors
/// [`Error::Parameters`] for impossible options, [`Error::TooSmall`], [`Error::Io`].
pub fn format(
    device: &mut (impl Read + Write + Seek),
    device_size: u64,
    passphrase: &[u8],
    options: &FormatOptions,
) -> Result<SecretBuf, Error> {
    let len = options.key_len.min(KEY_LEN_MAX) as usize;
    let key = Random::of(options).secret("volume key", len)?;
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
    if !options.detached {
        options.check_data_size(device_size.saturating_sub(options.data_start()?))?;
    }
    // Headers hold the name in its usual case.
    let hash = Hash::by_name(&options.hash)?.name().to_owned();
    let cost = match options.seed {
        None => options.cost.clone(),
        Some(_) => options.cost.fixed(options.kdf_kind()),
    };
    let options = &FormatOptions { hash, cost, ..options.clone() };
    match options.version {
        LuksVersion::Luks1 => luks1::format(device, device_size, passphrase, key, options),
        LuksVersion::Luks2 => luks2::format(device, device_size, passphrase, key, options),
    }
}

/// Overwrites the magic of second copies that an earlier LUKS2 header may have left anywhere on a device of `device_size`
/// bytes, for a header that is not written by [`format()`]: they would be found where it is damaged.
///
/// # Errors
/// [`Error::Io`].
pub fn wipe_old_copies(device: &mut (impl Read + Write + Seek), device_size: u64) -> Result<(), Error> {
    luks2::wipe_magics(device, device_size)
}

impl FormatOptions {
    fn check(&self, key: &[u8]) -> Result<(), Error> {
        if key.len() != self.key_len as usize {
            return Err(parameters(format!("the volume key has {} bytes, {} are needed", key.len(), self.key_len)));
        }
        if is_null_cipher(&self.cipher) && !self.allow_null_cipher {
            return Err(Error::NullCipher("the new volume".into()));
        }
        check_cipher_takes(&self.cipher, key)?;
        let spec = parse_cipher(&self.cipher)?;
        let is_broken = spec.strength(0) == Strength::Broken && !spec.is_null();
        if is_broken && !self.accepted_ciphers.contains(&self.cipher) {
            return Err(Error::BrokenCipher(self.cipher.clone()));
        }
        if self.seed.is_some() && STREAMS.contains(&spec.chain_mode()) {
            return Err(parameters(format!(
                "with a seed, {} would encrypt two images with one keystream, which gives both away; use aes-xts-plain64",
                quote(&self.cipher)
            )));
        }
        let hash = Hash::by_name(&self.hash)?;
        // cryptsetup 2.6.1 makes such volumes, and opens them with any passphrase.
        if hash.output_len() < HASH_LEN_MIN {
            return Err(parameters(format!("hash {} is too short for a new volume; use sha256", quote(&self.hash))));
        }
        if let Some(offset) = self.data_offset
            && !offset.is_multiple_of(self.alignment())
        {
            let unit = self.alignment();
            return Err(parameters(format!(
                "a data offset of {offset} bytes is not possible, use a multiple of {unit}"
            )));
        }
        if let Some(uuid) = self.uuid.as_deref().filter(|uuid| !random::is_uuid(uuid)) {
            return Err(parameters(format!("{} is not a UUID", quote(uuid))));
        }
        Ok(())
    }
}

impl FormatOptions {
    /// Refuses `size` bytes of data if that is more than the IVs count, unless the cipher is accepted.
    ///
    /// # Errors
    /// [`Error::RepeatedIvs`], [`Error::Parameters`].
    pub fn check_data_size(&self, size: u64) -> Result<(), Error> {
        let repeats = parse_cipher(&self.cipher)?.wraps(size / 512);
        if repeats && !self.accepted_ciphers.contains(&self.cipher) {
            return Err(Error::RepeatedIvs(self.cipher.clone()));
        }
        Ok(())
    }

    /// Bytes of the header with its place for key slots.
    ///
    /// # Errors
    /// [`Error::Parameters`] for impossible options.
    pub fn header_len(&self) -> Result<u64, Error> {
        self.lengths().map(|[header, _]| header)
    }

    /// Bytes before the place for key slots: the header itself, and of LUKS2 both copies.
    #[must_use]
    pub fn metadata_len(&self) -> u64 {
        match self.version {
            LuksVersion::Luks1 => 4096,
            LuksVersion::Luks2 => 2 * self.metadata_size.unwrap_or(luks2::COPY_SIZE),
        }
    }

    /// Where the data of such a volume begins.
    ///
    /// # Errors
    /// [`Error::Parameters`] for impossible options.
    pub fn data_start(&self) -> Result<u64, Error> {
        self.lengths().map(|[_, data]| data)
    }

    fn lengths(&self) -> Result<[u64; 2], Error> {
        match self.version {
            LuksVersion::Luks1 => luks1::lengths(self),
            LuksVersion::Luks2 => luks2::lengths(self),
        }
    }

    pub(crate) fn kdf_kind(&self) -> KdfKind {
        match self.version {
            LuksVersion::Luks1 => KdfKind::Pbkdf2,
            LuksVersion::Luks2 => self.kdf.unwrap_or(KdfKind::Argon2id),
        }
    }

    /// Data begins at a multiple of so many bytes.
    fn alignment(&self) -> u64 {
        match self.version {
            LuksVersion::Luks1 => 512,
            LuksVersion::Luks2 => 4096,
        }
    }
}

/// Tries the key on the cipher, so that no header is written that could not be opened.
pub(crate) fn check_cipher_takes(cipher: &str, key: &[u8]) -> Result<(), Error> {
    let refused = |error: SpecError| match error {
        SpecError::NotSupportedYet(what) => Error::NotSupported(what),
        error => Error::Parameters(error.to_string()),
    };
    let spec = CipherSpec::parse(cipher).map_err(refused)?;
    spec.check_supported().map_err(refused)?;
    let options = SectorOptions { sector_size: 512, iv_offset: 0, iv_large_sectors: false };
    let made = SectorCipher::new(&spec, key, options);
    made.map(drop).map_err(|error| match error {
        CipherError::Spec(error) => refused(error),
        error => Error::Parameters(error.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Image, PASSPHRASE, cheap_options};
    use crate::{ErrorKind, KdfLimits, Seed};
    use base16ct::lower::encode_string as hex;

    fn seeded(version: LuksVersion) -> FormatOptions {
        let seed = SecretBuf::copy_of(b"0123456789abcdef").unwrap();
        FormatOptions { seed: Some(Seed::new(seed).unwrap()), data_offset: Some(2 << 20), ..cheap_options(version) }
    }

    /// For ever: whoever builds an image again, years later, compares it with the old one.
    #[test]
    fn one_seed_makes_one_header() {
        const SIZE: u64 = (2 << 20) + 4096;
        let golden = [
            (LuksVersion::Luks1, "d2055e84dba251a6d5aef7d244cbedf6a51bd842841a480397a4dfe79a315199"),
            (LuksVersion::Luks2, "8d81eaaa655dc443c394b7745ee695f46fab1585c978490a2c8fb5523370e06b"),
        ];
        for (version, golden) in golden {
            let image = Image::format(SIZE, &seeded(version));
            let mut hash = [0; 32];
            Hash::Sha256.digest(&[&image.bytes], &mut hash);
            assert_eq!(hex(&hash), golden, "{version:?}");
            let key = image.unlock(&crate::UnlockOptions::default()).unwrap().key;
            let header = image.read().unwrap();
            header.verify_volume_key(&key, KdfLimits::default()).unwrap();
            // Nothing of the key depends on the passphrase.
            let mut other = std::io::Cursor::new(vec![0; image.bytes.len()]);
            let others = format(&mut other, SIZE, b"other", &seeded(version)).unwrap();
            assert!(*key == *others, "{version:?}");
            assert_ne!(PASSPHRASE, b"other");
        }
    }

    #[test]
    fn seeds_and_ciphers_that_make_a_keystream_are_refused_together() {
        let with = |cipher: &str, seed: Option<Seed>| {
            let accepted_ciphers = vec![cipher.into()];
            let options = FormatOptions {
                cipher: cipher.into(),
                key_len: 32,
                seed,
                accepted_ciphers,
                ..seeded(LuksVersion::Luks2)
            };
            let mut device = std::io::Cursor::new(vec![0; 4 << 20]);
            let made = format(&mut device, 4 << 20, PASSPHRASE, &options);
            let untouched = device.get_ref().iter().all(|&byte| byte == 0);
            (made.map(drop), untouched)
        };
        let seed = || seeded(LuksVersion::Luks2).seed;
        for cipher in ["aes-ctr-plain64", "capi:ctr(aes)-plain64"] {
            let (made, untouched) = with(cipher, seed());
            let error = made.unwrap_err();
            assert!(error.to_string().contains("one keystream"), "{error}");
            assert!(error.kind() == ErrorKind::Parameters && untouched);
            with(cipher, None).0.unwrap();
        }
        with("aes-cbc-essiv:sha256", seed()).0.unwrap();
    }

    #[test]
    fn nothing_is_measured_with_a_seed() {
        let mut options = seeded(LuksVersion::Luks2);
        options.cost = KdfCost { memory_kib: Some(32), ..KdfCost::default() };
        let header = Image::format((2 << 20) + 4096, &options).read().unwrap();
        let kdf = header.info().keyslots[0].kdf.clone().unwrap();
        assert_eq!((kdf.time, kdf.memory_kib, kdf.cpus), (Some(4), Some(32), Some(4)));
        let fixed = KdfCost::default().fixed(KdfKind::Pbkdf2);
        assert_eq!(fixed.iterations, Some(1_000_000));
        assert_eq!(KdfCost::default().fixed(KdfKind::Argon2id).memory_kib, Some(256 << 10));
    }

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
        assert_eq!(refused(|options| options.key_len = 33).kind(), ErrorKind::Parameters);
        assert_eq!(refused(|options| options.key_len = 0).kind(), ErrorKind::Parameters);
        assert_eq!(refused(|options| options.key_len = 4096).kind(), ErrorKind::Parameters);
        assert_eq!(refused(|options| options.cipher = "rot13-xts-plain64".into()).kind(), ErrorKind::Parameters);
        assert_eq!(refused(|options| options.cipher = "anubis-xts-plain64".into()).kind(), ErrorKind::Parameters);
        assert_eq!(refused(|options| options.cipher = "cipher_null-ecb".into()).kind(), ErrorKind::Device);
        let broken = refused(|options| options.cipher = "aes-xts-null".into());
        assert!(matches!(&broken, Error::BrokenCipher(word) if word == "aes-xts-null"), "{broken}");
        assert_eq!(broken.kind(), ErrorKind::Device);
        assert_eq!(refused(|options| options.hash = "md4".into()).kind(), ErrorKind::Parameters);
        assert_eq!(refused(|options| options.uuid = Some("x".into())).kind(), ErrorKind::Parameters);
        assert_eq!(refused(|options| options.data_offset = Some(100)).kind(), ErrorKind::Parameters);
        assert_eq!(refused(|options| options.sector_size = Some(520)).kind(), ErrorKind::Parameters);
        assert_eq!(refused(|options| options.label = "x".repeat(48)).kind(), ErrorKind::Parameters);
        assert_eq!(refused(|options| options.cost.memory_kib = Some(u32::MAX)).kind(), ErrorKind::Parameters);
    }
}
