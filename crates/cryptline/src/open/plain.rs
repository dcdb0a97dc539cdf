//! Volumes without a header: the caller, a table or chance says what it would say.

use std::path::Path;

use cryptline_cipher::{SectorCipher, SectorOptions};
use cryptline_engine::table::TableKey;
use cryptline_luks::plain::derive_key;
use cryptline_sys::SecretBuf;

use super::format::parse_cipher;
use super::stack::{Plan, sector_cipher};
use super::{Open, Plain, RandomKey};
use crate::Result;
use crate::base::Source;
use crate::dispatch::Stored;
use crate::error::Problem;
use crate::info::VolumeKind;
use crate::keys::{Key, KeyRequest, copy_of, no_key, with_keys};
use crate::table::{TableLine, sectors};
use crate::target::Target;
use crate::volume::Volume;

/// Opens a plain volume.
pub(super) fn open(open: Open, source: &Source, plain: &Plain) -> Result<Volume> {
    let cipher = parse_cipher(&plain.cipher)?;
    let key_len = if cipher.is_null() { 0 } else { plain.key_len };
    let decision = open.dispatch.decide(Stored::Nothing)?;
    let base = source.open(open.access)?;
    let (sectors, name) = (plain.sectors(), source.to_string());
    let read_key = || read_key(&open, &name, plain, key_len);
    let (sector_cipher, key_len) = sector_cipher(&cipher, sectors, read_key, |error| {
        Problem::Cipher(error).into()
    })?;
    let plan = Plan {
        source: name.clone(),
        kind: VolumeKind::Plain,
        cipher: &cipher,
        key_len,
        sectors,
        start: plain.start,
        size: plain.size,
        discards: open.discards,
        dispatch: decision.dispatch,
    };
    plan.build(base, sector_cipher, open, Vec::new())
}

/// Opens what `line` describes.
pub(super) fn open_table(open: Open, line: &TableLine) -> Result<Volume> {
    let (target, cipher, key_len) = with_keys(|| {
        let mut target = line.parse()?;
        let cipher = SectorCipher::new(&target.cipher, target.key.as_bytes(), sectors(&target));
        let key_len = target.key.as_bytes().len();
        target.key = TableKey::Empty;
        Ok((target, cipher, key_len))
    })?;
    let decision = open.dispatch.decide(Stored::Table(target.options.perf))?;
    let source = Source::Target(device_of(&target.device)?);
    let base = source.open(open.access)?;
    // The parser has bounded both: offset and length end below 2^64 bytes.
    let plan = Plan {
        source: target.device.clone(),
        kind: VolumeKind::Table,
        cipher: &target.cipher,
        key_len,
        sectors: sectors(&target),
        start: target.offset.saturating_mul(512),
        size: Some(target.len.saturating_mul(512)),
        discards: target.options.allow_discards || open.discards,
        dispatch: decision.dispatch,
    };
    plan.build(base, cipher.map_err(Problem::Cipher)?, open, Vec::new())
}

/// Opens a new volume, which reads as noise until it is written.
pub(super) fn open_random(open: Open, source: &Source, random: &RandomKey) -> Result<Volume> {
    if !source.is_memory() {
        return Err(Problem::NotMemory.on(source));
    }
    let cipher = parse_cipher(&random.cipher)?;
    let key_len = if cipher.is_null() { 0 } else { random.key_len };
    let sectors = SectorOptions {
        sector_size: random.sector_size,
        iv_offset: 0,
        iv_large_sectors: random.iv_large_sectors,
    };
    let base = source.open(open.access)?;
    let new_key = || Ok(SecretBuf::random(key_len).map_err(Problem::KeyMemory)?);
    let (sector_cipher, key_len) = sector_cipher(&cipher, sectors, new_key, |error| {
        Problem::Cipher(error).into()
    })?;
    let plan = Plan {
        source: source.to_string(),
        kind: VolumeKind::RandomKey,
        cipher: &cipher,
        key_len,
        sectors,
        start: 0,
        size: None,
        discards: true,
        dispatch: open.dispatch.decide(Stored::Nothing)?.dispatch,
    };
    plan.build(base, sector_cipher, open, Vec::new())
}

/// The volume key, made as cryptsetup makes it.
pub(super) fn read_key(
    open: &Open,
    name: &str,
    plain: &Plain,
    key_len: usize,
) -> Result<SecretBuf> {
    if key_len == 0 {
        return no_key();
    }
    let request = KeyRequest {
        name,
        failed: 0,
        takes: std::time::Duration::ZERO,
        raw_len: Some(key_len),
        may_be_empty: false,
        is_new: false,
        takes_passphrase: plain.hash.is_some(),
    };
    let passphrase = match open.keys_or_none()?.key(&request)? {
        None => return Err(Problem::NoKey.on(name)),
        Some(Key::Volume(key)) => {
            let has = key.len();
            let first = key.get(..key_len);
            let needs = key_len;
            return copy_of(first.ok_or(Problem::KeyTooShort { has, needs })?);
        }
        Some(Key::Passphrase(passphrase)) => passphrase,
    };
    let hash = plain.hash.as_deref().ok_or(Problem::NoHash)?;
    if hash == "plain" {
        // Cut or filled up with zeros, as cryptsetup does.
        let mut key = SecretBuf::zeroed(key_len).map_err(Problem::KeyMemory)?;
        let len = passphrase.len().min(key_len);
        key[..len].copy_from_slice(&passphrase[..len]);
        return Ok(key);
    }
    derive_key(&passphrase, hash, key_len).map_err(|error| Problem::Luks(error).on(name))
}

/// The device of a table: `MAJOR:MINOR`, or as any target is named.
fn device_of(device: &str) -> Result<Target> {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match device.split_once(':') {
        Some((major, minor)) if number(major) && number(minor) => {
            Ok(Target::Path(Path::new("/dev/block").join(device)))
        }
        _ => device.parse(),
    }
}
