//! `--type plain`: no header; cipher, key and layout come from the command line.
//!
//! Nothing is guessed. cryptsetup's defaults changed with version 2.7, and a wrong guess reads as
//! noise and destroys the data on the first write.

use cryptline_cipher::{CipherSpec, SectorOptions};
use cryptline_luks::plain::derive_key;
use cryptline_sys::SecretBuf;

use super::dispatch::Stored;
use super::stack::{Base, Plan, cipher_error, parse_cipher, sector_cipher};
use super::{KeySource, TargetOptions, Volume};
use crate::CliError;
use crate::passphrase::PassphraseSource;

/// What a header would say.
pub(super) struct Layout {
    /// The cipher.
    pub cipher: CipherSpec,
    /// Length of the key in bytes.
    pub key_len: usize,
    /// Sectors and IVs.
    pub sectors: SectorOptions,
    /// First byte of the data.
    pub start: u64,
    /// Size in bytes; `None` for the rest of the device.
    pub size: Option<u64>,
}

impl Layout {
    /// What the command line says, or that it does not say enough.
    pub fn of(options: &TargetOptions, keys: &KeySource) -> Result<Self, CliError> {
        let plain = &options.plain;
        let (Some(cipher), Some(key_len)) = (&plain.cipher, plain.key_bytes()?) else {
            return Err(CliError::parameters(
                "a plain volume has no header to read; give --cipher, --key-size and --hash as it was made (cryptsetup before 2.7: aes-cbc-essiv:sha256, 256, ripemd160; since: aes-xts-plain64, 256, sha256)",
            ));
        };
        if keys.key_slot.is_some() || keys.kdf_time_limit.is_some() {
            return Err(CliError::parameters(
                "a plain volume has no key slots; leave out --key-slot and --kdf-time-limit",
            ));
        }
        let cipher = parse_cipher(cipher)?;
        let null = cipher.is_null();
        Ok(Self {
            cipher,
            key_len: if null { 0 } else { key_len },
            sectors: SectorOptions {
                sector_size: plain.sector_size.unwrap_or(512),
                iv_offset: plain.skip.unwrap_or(0),
                iv_large_sectors: plain.iv_large_sectors,
            },
            start: bytes("--offset", plain.offset)?.unwrap_or(0),
            size: bytes("--size", plain.size)?,
        })
    }
}

/// Opens the plain volume on `target`.
pub fn open(target: &str, options: &TargetOptions, keys: &KeySource) -> Result<Volume, CliError> {
    let layout = Layout::of(options, keys)?;
    let decision = options.dispatch.decide(Stored::Nothing)?;
    let base = Base::open(target, options)?;
    let read_key = || read_key(target, layout.key_len, options, keys);
    let (cipher, key_len) = sector_cipher(&layout.cipher, layout.sectors, read_key, cipher_error)?;
    let plan = Plan {
        source: target,
        kind: "plain",
        cipher: &layout.cipher,
        key_len,
        sectors: layout.sectors,
        start: layout.start,
        size: layout.size,
        discards: options.allow_discards,
        dispatch: decision.dispatch,
    };
    plan.build(base, cipher, options, Vec::new())
}

/// The volume key, made as cryptsetup makes it.
pub(super) fn read_key(
    target: &str,
    key_len: usize,
    options: &TargetOptions,
    keys: &KeySource,
) -> Result<SecretBuf, CliError> {
    if key_len == 0 {
        return no_key();
    }
    if let Some(key) = keys.volume_key()? {
        return first_bytes(&key, key_len, "the volume key file");
    }
    let hash = options.plain.hash.as_deref();
    let source = &keys.passphrase;
    if source.key_file_on_disk().is_some() {
        // The file is the key; cryptsetup ignores the hash and the size here as well.
        let taken = PassphraseSource {
            keyfile_size: Some(key_len as u64),
            ..source.clone()
        };
        return taken.read(target);
    }
    let Some(hash) = hash else {
        return Err(CliError::parameters(
            "give --hash as the plain volume was made (cryptsetup before 2.7: ripemd160; since: sha256), or `--hash plain` for none",
        ));
    };
    let passphrase = source.read(target)?;
    if hash == "plain" {
        // Cut or filled up with zeros, as cryptsetup does.
        let mut key = SecretBuf::zeroed(key_len)
            .map_err(|error| CliError::memory(format!("no memory for a key: {error}")))?;
        let len = passphrase.len().min(key_len);
        key[..len].copy_from_slice(&passphrase[..len]);
        return Ok(key);
    }
    derive_key(&passphrase, hash, key_len).map_err(|error| CliError::luks(target, &error))
}

/// What the null cipher takes.
pub(super) fn no_key() -> Result<SecretBuf, CliError> {
    SecretBuf::zeroed(0).map_err(|error| CliError::memory(error.to_string()))
}

fn first_bytes(bytes: &[u8], len: usize, what: &str) -> Result<SecretBuf, CliError> {
    let Some(bytes) = bytes.get(..len) else {
        return Err(CliError::parameters(format!(
            "{what} has {} bytes, --key-size {} needs {len}",
            bytes.len(),
            len * 8
        )));
    };
    SecretBuf::copy_of(bytes)
        .map_err(|error| CliError::memory(format!("no memory for a key: {error}")))
}

/// Sectors of an option in bytes.
fn bytes(option: &str, sectors: Option<u64>) -> Result<Option<u64>, CliError> {
    let Some(sectors) = sectors else {
        return Ok(None);
    };
    let bytes = sectors.checked_mul(512);
    let bytes = bytes.filter(|&bytes| i64::try_from(bytes).is_ok());
    bytes.map(Some).ok_or_else(|| {
        CliError::parameters(format!(
            "{option} {sectors}: more sectors than a disk can have"
        ))
    })
}
