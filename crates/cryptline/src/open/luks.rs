//! LUKS volumes: the header says everything but the passphrase.

use std::io::{Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cryptline_cipher::SectorOptions;
use cryptline_engine::base::Image;
use cryptline_luks::{Header, Segment, SegmentPolicy, UnlockOptions, Unlocked};
use cryptline_sys::SecretBuf;

use super::stack::{Plan, sector_cipher};
use super::{LuksVersion, Open, header_flags};
use crate::base::{Base, Source};
use crate::dispatch::Stored;
use crate::error::Problem;
use crate::info::VolumeKind;
use crate::keys::{Key, KeyRequest, no_key};
use crate::volume::Volume;
use crate::{Result, Warning};

/// Opens and locks the target, reads its header or the detached one, and unlocks it.
pub(super) fn open(open: Open, source: &Source, version: Option<LuksVersion>) -> Result<Volume> {
    let target = source.to_string();
    if source.is_memory() {
        return Err(Problem::HoldsNothing.on(target));
    }
    let base = source.open(open.access)?;
    let header_image = open.header.as_deref();
    let header_image = header_image
        .map(|path| open_detached(path, &base))
        .transpose()?;
    let holder = header_image.as_ref().unwrap_or(&base);
    let name = match &open.header {
        Some(path) => path.display().to_string(),
        None => target.clone(),
    };
    let header = read(holder.reader()?, holder.size(), &name)?;
    check_version(&header, version, &name)?;
    let mut warnings = warnings_of(&header, &open);
    let segment = usable_segment(&header, &open, &name)?;
    let size = segment
        .data_size(base.size())
        .map_err(|error| Problem::Luks(error).on(&target))?;
    let (flag_discards, perf, unknown) = header_flags(header.flags());
    let decision = open.dispatch.decide(Stored::Header(perf))?;
    let sectors = SectorOptions {
        sector_size: segment.sector_size,
        iv_offset: segment.iv_tweak,
        iv_large_sectors: false,
    };
    let null = segment.cipher.is_null();
    let read_key = || {
        let (key, _) = unlock(&header, holder.reader()?, &name, &open)?;
        // The null cipher takes no key, whatever the header keeps for it.
        if null { no_key() } else { Ok(key) }
    };
    // Here it is the header that is wrong, not the caller.
    let wrong = |error| Problem::HeaderCipher(error).on(&name);
    let (cipher, key_len) = sector_cipher(&segment.cipher, sectors, read_key, wrong)?;
    drop(header_image);
    warnings.extend(unknown);
    let plan = Plan {
        source: target,
        kind: kind(&header),
        cipher: &segment.cipher,
        key_len,
        sectors,
        start: segment.offset,
        size: Some(size),
        discards: open.discards || flag_discards,
        dispatch: decision.dispatch,
    };
    plan.build(base, cipher, open, warnings)
}

/// Reads and checks the header of a device of `size` bytes.
pub(super) fn read(mut device: impl Read + Seek, size: u64, name: &str) -> Result<Header> {
    cryptline_luks::read(&mut device, size).map_err(|error| Problem::Luks(error).on(name))
}

pub(super) fn kind(header: &Header) -> VolumeKind {
    match header {
        Header::V1(_) => VolumeKind::Luks1,
        Header::V2(_) => VolumeKind::Luks2,
    }
}

/// What was found in the header, which is told at once.
pub(super) fn warnings_of(header: &Header, open: &Open) -> Vec<Warning> {
    let found = header.warnings().iter().cloned();
    let found: Vec<_> = found.map(Warning::Header).collect();
    if let Some(observer) = &open.on_warning {
        found.iter().for_each(observer);
    }
    found
}

pub(super) fn check_version(
    header: &Header,
    wanted: Option<LuksVersion>,
    name: &str,
) -> Result<()> {
    let found = kind(header);
    match (wanted, found) {
        (Some(LuksVersion::Luks1), VolumeKind::Luks2)
        | (Some(LuksVersion::Luks2), VolumeKind::Luks1) => Err(Problem::Version { found }.on(name)),
        _ => Ok(()),
    }
}

/// The data segment, if it can and may be opened.
pub(super) fn usable_segment(header: &Header, open: &Open, name: &str) -> Result<Segment> {
    let policy = SegmentPolicy {
        allow_null_cipher: open.allow_null_cipher,
        detached: open.header.is_some(),
    };
    header
        .segment(policy)
        .map_err(|error| Problem::Luks(error).on(name))
}

/// The volume key, and the slot that gave it; no slot where the caller has the key.
pub(super) fn unlock(
    header: &Header,
    mut device: impl Read + Seek,
    name: &str,
    open: &Open,
) -> Result<(SecretBuf, Option<u32>)> {
    let keys = open.keys_or_none()?;
    let failed = |error| Problem::Luks(error).on(name);
    let options = UnlockOptions {
        slot: open.slot,
        allow_null_cipher: open.allow_null_cipher,
        limits: open.limits,
    };
    let mut request = KeyRequest {
        name,
        failed: 0,
        takes: header.unlock_time(&options),
        raw_len: None,
        // Where nothing is encrypted, cryptsetup takes no other passphrase than the empty one.
        may_be_empty: open.allow_null_cipher,
        is_new: false,
        takes_passphrase: true,
    };
    loop {
        let passphrase = match keys.key(&request)? {
            Some(Key::Passphrase(passphrase)) => passphrase,
            Some(Key::Volume(key)) => {
                let verified = header.verify_volume_key(&key, open.limits);
                return verified.map(|()| (key, None)).map_err(failed);
            }
            None if request.failed == 0 => return Err(Problem::NoKey.on(name)),
            None => return Err(failed(cryptline_luks::Error::NoKey)),
        };
        match header.unlock(&mut device, &passphrase, &options) {
            Ok(Unlocked { key, slot }) => return Ok((key, Some(slot))),
            Err(cryptline_luks::Error::NoKey) => request.failed += 1,
            Err(error) => return Err(failed(error)),
        }
    }
}

/// A detached header, which must not be the data itself.
fn open_detached(path: &Path, base: &Base) -> Result<Base> {
    let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    let data = base
        .file()
        .and_then(|file| file.metadata().map(identity).ok());
    if data.is_some() && std::fs::metadata(path).map(identity).ok() == data {
        return Err(Problem::HeaderIsTarget.into());
    }
    Ok(Base::Image(Image::open(path, true)?))
}
