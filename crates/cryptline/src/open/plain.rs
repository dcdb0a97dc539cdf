//! Volumes without a header: the caller or chance says what it would say.

use cryptline_cipher::SectorOptions;
use cryptline_luks::plain::derive_key;
use cryptline_sys::SecretBuf;

use super::format::parse_cipher;
use super::stack::{SegmentCrypt, StackPart, StackPlan, sector_cipher};
use super::{Open, Plain, RandomKey};
use crate::Result;
use crate::base::{Base, BaseSource};
use crate::bytes::WindowBytes;
use crate::contents;
use crate::dispatch::Stored;
use crate::error::Problem;
use crate::info::VolumeKind;
use crate::keys::{Key, KeyRequest, copy_of, no_key, with_keys};
use crate::volume::Volume;

/// Opens a plain volume.
pub(super) fn open(open: Open, source: &BaseSource, plain: &Plain) -> Result<Volume> {
    let cipher = parse_cipher(&plain.cipher)?;
    let key_len = if cipher.is_null() { 0 } else { plain.key_len };
    let decision = open.dispatch.decide(Stored::Nothing)?;
    let base = source.open(open.access)?;
    let (sectors, name) = (plain.sectors(), source.to_string());
    if !open.access.read_only && !open.overwrite && !cipher.is_null() {
        refuse_others(&base, plain, &name)?;
    }
    let key = with_keys(|| read_key(&open, &name, plain, key_len))?;
    let made = sector_cipher(&cipher, sectors, &key, Problem::Cipher)?;
    let crypt = SegmentCrypt { spec: cipher, cipher: made, key_len: key.len(), sectors, discards: open.discards };
    drop(key);
    let part = StackPart { base: 0, start: plain.start, size: plain.size, crypt: Some(crypt) };
    let plan =
        StackPlan { source: name.clone(), kind: VolumeKind::Plain, dispatch: decision.dispatch, parts: vec![part] };
    plan.build(vec![base], open, Vec::new())
}

/// Refuses to write over what is recognised where the data begins: under the right cipher and key nothing is.
fn refuse_others(base: &Base, plain: &Plain, name: &str) -> Result<()> {
    let left = base.size().saturating_sub(plain.start);
    let size = plain.size.map_or(left, |size| size.min(left));
    let place = plain.start..plain.start.saturating_add(size);
    let found = contents::find(&mut WindowBytes::new(base.reader()?, place), size, None);
    let action = "read it";
    let found = found.map_err(|source| Problem::Io { action, source }.on(name))?;
    found.map_or(Ok(()), |found| Err(Problem::PlainOver(found).on(name)))
}

/// Opens a new volume, which reads as noise until it is written.
pub(super) fn open_random(open: Open, source: &BaseSource, random: &RandomKey) -> Result<Volume> {
    if !source.is_memory() {
        return Err(Problem::NotMemory.on(source));
    }
    let cipher = parse_cipher(&random.cipher)?;
    let key_len = if cipher.is_null() { 0 } else { random.key_len };
    let sectors =
        SectorOptions { sector_size: random.sector_size, iv_offset: 0, iv_large_sectors: random.iv_large_sectors };
    let base = source.open(open.access)?;
    let key = SecretBuf::random(key_len).map_err(Problem::KeyMemory)?;
    let made = sector_cipher(&cipher, sectors, &key, Problem::Cipher)?;
    let crypt = SegmentCrypt { spec: cipher, cipher: made, key_len: key.len(), sectors, discards: true };
    drop(key);
    let part = StackPart { base: 0, start: 0, size: None, crypt: Some(crypt) };
    let plan = StackPlan {
        source: source.to_string(),
        kind: VolumeKind::RandomKey,
        dispatch: open.dispatch.decide(Stored::Nothing)?.dispatch,
        parts: vec![part],
    };
    plan.build(vec![base], open, Vec::new())
}

/// The volume key, made as cryptsetup makes it.
pub(super) fn read_key(open: &Open, name: &str, plain: &Plain, key_len: usize) -> Result<SecretBuf> {
    if key_len == 0 {
        return no_key();
    }
    let request = KeyRequest {
        name,
        uuid: None,
        measure: None,
        failed: 0,
        takes: std::time::Duration::ZERO,
        raw_len: Some(key_len),
        key_len: Some(key_len),
        may_be_empty: false,
        is_new: false,
        takes_passphrase: plain.hash.is_some(),
    };
    let passphrase = match open.given.keys()?.key(&request)? {
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
