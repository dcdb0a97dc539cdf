//! `ram:SIZE`: a fresh volume in memory under a key that nobody knows.
//!
//! Cipher sectors have 4096 bytes unless told otherwise: that is a page, so discards free memory
//! exactly where they strike, and one IV serves 4 KiB instead of 512 bytes, which is faster.
//! `zoned:ram:SIZE,…` is the same with zones.

use cryptline_cipher::SectorOptions;
use cryptline_sys::SecretBuf;

use super::dispatch::Stored;
use super::stack::{Base, Plan, cipher_error, parse_cipher, sector_cipher};
use super::{KeySource, TargetOptions, Volume};
use crate::CliError;

const CIPHER: &str = "aes-xts-plain64";
const KEY_BYTES: usize = 64;
const SECTOR_SIZE: u32 = 4096;

/// Opens a volume on `base`, which is new, that reads as noise until it is written.
pub fn open(
    target: &str,
    base: Base,
    options: &TargetOptions,
    keys: &KeySource,
) -> Result<Volume, CliError> {
    let misplaced = options.plain.first_given_of_layout();
    let misplaced = misplaced.or_else(|| options.header.is_some().then_some("--header"));
    let misplaced = misplaced.or_else(|| options.kind.is_some().then_some("--type"));
    let misplaced = misplaced.or_else(|| (!keys.is_empty()).then_some("a key"));
    if let Some(option) = misplaced {
        return Err(CliError::parameters(format!(
            "{target} is a new volume under a random key; leave out {option}"
        )));
    }
    refuse_read_only(target, options)?;
    let plain = &options.plain;
    let cipher = parse_cipher(plain.cipher.as_deref().unwrap_or(CIPHER))?;
    let key_bytes = if cipher.is_null() {
        0
    } else {
        plain.key_bytes()?.unwrap_or(KEY_BYTES)
    };
    let sectors = SectorOptions {
        sector_size: plain.sector_size.unwrap_or(SECTOR_SIZE),
        iv_offset: 0,
        iv_large_sectors: plain.iv_large_sectors,
    };
    let new_key = || {
        SecretBuf::random(key_bytes)
            .map_err(|error| CliError::memory(format!("no memory for a key: {error}; free some")))
    };
    let (sector_cipher, key_len) = sector_cipher(&cipher, sectors, new_key, cipher_error)?;
    let plan = Plan {
        source: target,
        kind: "random key",
        cipher: &cipher,
        key_len,
        sectors,
        start: 0,
        size: None,
        discards: true,
        dispatch: options.dispatch.decide(Stored::Nothing)?.dispatch,
    };
    plan.build(base, sector_cipher, options, Vec::new())
}

/// Memory that can not be written would hold nothing for ever.
pub fn refuse_read_only(target: &str, options: &TargetOptions) -> Result<(), CliError> {
    if options.read_only {
        Err(CliError::parameters(format!(
            "{target} starts empty, so --read-only makes no sense; leave it out"
        )))
    } else {
        Ok(())
    }
}
