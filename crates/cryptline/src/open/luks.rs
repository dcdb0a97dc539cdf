//! LUKS volumes: the header says everything but the passphrase.

use std::io::{Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cryptline_cipher::{CipherSpec, SectorOptions};
use cryptline_engine::base::Image;
use cryptline_luks::seal::{Covers, MeasureHash};
use cryptline_luks::{DataSegment, LuksHeader, SegmentPolicy, UnlockOptions, UnlockedSlot, recovery};
use cryptline_sys::SecretBuf;

use super::stack::{SegmentCrypt, StackPart, StackPlan, sector_cipher};
use super::{LuksVersion, Open, header_flags};
use crate::base::{Base, BaseSource};
use crate::contents;
use crate::dispatch::Stored;
use crate::error::Problem;
use crate::header::lock::InUse;
use crate::keys::{Key, KeyRequest, Keys, is_uuid, with_keys};
use crate::rules::hex;
use crate::volume::Volume;
use crate::{Result, Warning, tokens};

/// Opens and locks the target, reads its header or the detached one, and unlocks it.
pub(super) fn open(mut open: Open, source: &BaseSource, version: Option<LuksVersion>) -> Result<Volume> {
    let target = source.to_string();
    if source.is_memory() {
        return Err(Problem::HoldsNothing.on(target));
    }
    let base = source.open(open.access)?;
    let header_image = open.header.as_deref().map(|path| open_detached(path, &base)).transpose()?;
    let holder = header_image.as_ref().unwrap_or(&base);
    let name = match &open.header {
        Some(path) => path.display().to_string(),
        None => target.clone(),
    };
    // A header may be good enough to read by, and not to write by.
    let found = || {
        let (device, size) = (holder.reader()?, holder.size());
        if open.access.read_only { look(device, size, &name) } else { read(device, size, &name) }
    };
    let mut header = found()?;
    let in_use = InUse::of(&header).map_err(|problem| problem.on(&name))?;
    if in_use.is_some() {
        // Of before the lock it may tell nothing of what has been reencrypted since.
        header = found()?;
    }
    check_version(&header, version, &name)?;
    let mut demanded = open.given.rules().check(&header, &name)?;
    let mut warnings = warnings_of(&header, &open);
    let segments = usable_segments(&header, &open, &name)?;
    let identity = identity(&header, &segments, &base, &open);
    let sizes = data_sizes(&segments, base.size(), &target)?;
    let (perf, notes_of_flags) = header_flags(header.flags(), open.discards);
    let decision = open.dispatch.decide(Stored::Header(perf))?;
    let Opened { key, slot, notes, .. } = with_keys(|| unlock(&header, holder.reader()?, &name, &open))?;
    demanded.prove(&header, &key, &name)?;
    warnings.extend(notes);
    let keeps_trust =
        open.trust(&header, &segments, u64::MAX, slot) == open.trust(&header, &segments, base.size(), slot);
    let doubted = open.open_as_trusted(&header, &segments, base.size(), slot, &name)?;
    warnings.extend(doubted);
    demanded.finish(&name)?;
    let mut parts = Vec::with_capacity(segments.len());
    // A disk to the end of its device grows with it, unless its IVs come again there. One of several ranges is laid out
    // once and for all.
    let may_grow = segments.len() == 1 && keeps_trust;
    for (segment, size) in segments.iter().zip(sizes) {
        let crypt = segment.cipher.as_ref().map(|cipher| crypt_of(cipher, segment, &key, open.discards));
        parts.push(StackPart {
            base: 0,
            start: segment.offset,
            size: if may_grow && segment.size.is_none() && crypt.is_some() { None } else { Some(size) },
            // Here it is the header that is wrong, not the caller.
            crypt: crypt.transpose().map_err(|error| error.on(&name))?,
        });
    }
    drop((key, header_image));
    warnings.extend(notes_of_flags);
    let plan = StackPlan { source: target, kind: header.version().into(), dispatch: decision.dispatch, parts };
    let locks = (in_use, open.in_use.take());
    let volume = plan.build(vec![base], open, warnings)?;
    Ok(volume.identified(identity, slot).kept(locks))
}

impl Open {
    /// The volume on `base` under a header that is not there yet, or not in the way of this.
    pub(crate) fn under(self, base: Base, header: &LuksHeader, key: &SecretBuf) -> Result<Volume> {
        let name = self.of_target().map(ToString::to_string).unwrap_or_default();
        let segments = usable_segments(header, &self, &name)?;
        let decision = self.dispatch.decide(Stored::Nothing)?;
        let mut parts = Vec::with_capacity(segments.len());
        for segment in &segments {
            let crypt = segment.cipher.as_ref().map(|cipher| crypt_of(cipher, segment, key, false));
            parts.push(StackPart {
                base: 0,
                start: segment.offset,
                size: segment.size.filter(|_| segments.len() > 1),
                crypt: crypt.transpose().map_err(|error| error.on(&name))?,
            });
        }
        let plan = StackPlan { source: name, kind: header.version().into(), dispatch: decision.dispatch, parts };
        plan.build(vec![base], self, Vec::new())
    }
}

/// How the data of a segment is encrypted. A call for each: what leaves the stack that keys are used on does so
/// by itself.
fn crypt_of(cipher: &CipherSpec, segment: &DataSegment, key: &SecretBuf, discards: bool) -> Result<SegmentCrypt> {
    let sectors =
        SectorOptions { sector_size: segment.sector_size, iv_offset: segment.iv_tweak, iv_large_sectors: false };
    // The null cipher takes no key, whatever the header keeps for it.
    let key = if cipher.is_null() { &[][..] } else { key };
    let made = sector_cipher(cipher, sectors, key, Problem::HeaderCipher)?;
    Ok(SegmentCrypt { spec: cipher.clone(), cipher: made, key_len: key.len(), sectors, discards })
}

/// Bytes of each segment on a device of `size` bytes.
pub(super) fn data_sizes(segments: &[DataSegment], size: u64, name: &str) -> Result<Vec<u64>> {
    let sizes: std::result::Result<_, _> = segments.iter().map(|segment| segment.data_size(size)).collect();
    sizes.map_err(|error| Problem::Luks(error).on(name))
}

/// Returns what no other volume has: of a copy, header and key are the same, but not the file.
fn identity(header: &LuksHeader, segments: &[DataSegment], base: &Base, open: &Open) -> Option<String> {
    let header = header.identity(segments)?;
    let metadata = base.file().and_then(|file| file.metadata().ok());
    let place = metadata.map(|file| match file.rdev() {
        0 => format!("/{:x}.{:x}", file.dev(), file.ino()),
        device => format!("/{device:x}"),
    });
    let mut identity = header + place.as_deref().unwrap_or_default();
    if base.start() > 0 {
        identity += &format!("+{:x}", base.start());
    }
    if let Some(partition) = &open.partition {
        identity += &format!("/{partition}");
    }
    Some(identity)
}

/// Reads and checks the header of a device of `size` bytes, for who may write to the volume.
pub(crate) fn read(device: impl Read + Seek, size: u64, name: &str) -> Result<LuksHeader> {
    let header = look(device, size, name)?;
    header.check_writable().map_err(|error| Problem::Luks(error).on(name))?;
    Ok(header)
}

/// The same for who only reads.
pub(super) fn look(device: impl Read + Seek, size: u64, name: &str) -> Result<LuksHeader> {
    look_on(device, size, None, name)
}

/// The same on a device whose sectors have this size: a partition table that is found instead counts in them.
pub(super) fn look_on(mut device: impl Read + Seek, size: u64, sector: Option<u32>, name: &str) -> Result<LuksHeader> {
    let problem = match cryptline_luks::look(&mut device, size) {
        Ok(header) => return Ok(header),
        Err(error @ cryptline_luks::Error::NotLuks) => match contents::told(&mut device, size, sector) {
            Ok(Some(found)) => Problem::NotLuks(found),
            Ok(None) | Err(_) => Problem::Luks(error),
        },
        Err(error) => Problem::Luks(error),
    };
    Err(problem.on(name))
}

/// Returns what was found in the header, which is told at once.
pub(super) fn warnings_of(header: &LuksHeader, open: &Open) -> Vec<Warning> {
    let found: Vec<_> = header.warnings().iter().cloned().map(Warning::Header).collect();
    if let Some(observer) = &open.on_warning {
        found.iter().for_each(observer);
    }
    found
}

pub(super) fn check_version(header: &LuksHeader, wanted: Option<LuksVersion>, name: &str) -> Result<()> {
    let found = header.version();
    if wanted.is_some_and(|wanted| wanted != found) {
        return Err(Problem::Version { found: found.into() }.on(name));
    }
    Ok(())
}

/// Where the data is, if it can and may be opened.
pub(super) fn usable_segments(header: &LuksHeader, open: &Open, name: &str) -> Result<Vec<DataSegment>> {
    let policy = SegmentPolicy { allow_null_cipher: open.allow_null_cipher, detached: open.header.is_some() };
    header.segments(policy).map_err(|error| Problem::Luks(error).on(name))
}

/// Result of a key that fits.
pub(super) struct Opened {
    /// The volume key.
    pub key: SecretBuf,
    /// The slot that gave it; none where the caller has the key.
    pub slot: Option<u32>,
    /// The token that gave the slot's passphrase.
    pub token: Option<u32>,
    /// Warnings about tokens.
    pub notes: Vec<Warning>,
}

/// Unlocks by a token or by what the caller has.
pub(super) fn unlock(header: &LuksHeader, mut device: impl Read + Seek, name: &str, open: &Open) -> Result<Opened> {
    let options = UnlockOptions {
        slot: open.given.slot,
        unbound: open.unbound,
        allow_null_cipher: open.allow_null_cipher,
        limits: open.given.limits,
    };
    let mut notes = Vec::new();
    if let Some(tokens) = &open.given.tokens {
        let tried = tokens::unlock(tokens, header, &mut device, name, &options)?;
        if let Some(observer) = &open.on_warning {
            tried.notes.iter().for_each(observer);
        }
        if let Some((key, slot, _)) = tried.found {
            return Ok(Opened { key, slot: Some(slot), token: tried.token, notes: tried.notes });
        }
        notes = tried.notes;
    }
    let (key, by) = unlock_with(header, device, name, open.given.keys()?, &options)?;
    Ok(Opened { key, slot: by.map(|(slot, _)| slot), token: None, notes })
}

/// The volume key, with the slot and the passphrase that gave it; without them where the caller has the key.
pub(crate) fn unlock_with(
    header: &LuksHeader,
    mut device: impl Read + Seek,
    name: &str,
    keys: &dyn Keys,
    options: &UnlockOptions,
) -> Result<(SecretBuf, Option<(u32, SecretBuf)>)> {
    let failed = |error| Problem::Luks(error).on(name);
    let measure = header.subject(Covers::default()).ok().map(|subject| hex(&subject.measure(MeasureHash::Sha256)));
    let mut request = KeyRequest {
        name,
        uuid: Some(header.uuid()).filter(|uuid| is_uuid(uuid)),
        measure: measure.as_deref(),
        failed: 0,
        takes: header.unlock_time(options),
        raw_len: None,
        key_len: header.key_len(),
        // Other programs make key slots of it; where nothing is encrypted, cryptsetup takes no other one.
        may_be_empty: true,
        is_new: false,
        takes_passphrase: true,
    };
    loop {
        let passphrase = match keys.key(&request)? {
            Some(Key::Passphrase(passphrase)) => passphrase,
            Some(Key::Volume(key)) => {
                let verified = header.verify_volume_key(&key, options.limits);
                return verified.map(|()| (key, None)).map_err(failed);
            }
            None if request.failed == 0 => return Err(Problem::NoKey.on(name)),
            None => return Err(failed(cryptline_luks::Error::NoKey)),
        };
        if let Some((key, slot, passphrase)) = unlock_recovery(header, &mut device, &passphrase, options)? {
            return Ok((key, Some((slot, passphrase))));
        }
        match header.unlock(&mut device, &passphrase, options) {
            Ok(UnlockedSlot { key, slot }) => return Ok((key, Some((slot, passphrase)))),
            Err(cryptline_luks::Error::NoKey) => request.failed += 1,
            Err(error) => return Err(failed(error)),
        }
    }
}

/// As [`unlock_with`], where `typed` is the recovery key of one of the header's slots, whatever its case and dashes.
/// These slots cost little, so they come first.
fn unlock_recovery(
    header: &LuksHeader,
    device: &mut (impl Read + Seek),
    typed: &[u8],
    options: &UnlockOptions,
) -> Result<Option<(SecretBuf, u32, SecretBuf)>> {
    let slots = header.recovery_slots(options.slot);
    if slots.is_empty() {
        return Ok(None);
    }
    let Some(passphrase) = recovery::normalised(typed).map_err(Problem::Luks)? else {
        return Ok(None);
    };
    let options = UnlockOptions { slot: None, ..options.clone() };
    // What else is wrong will be told of the passphrase as it is.
    let unlocked = header.with_slots(&slots).unlock(device, &passphrase, &options);
    Ok(unlocked.ok().map(|found| (found.key, found.slot, passphrase)))
}

/// A detached header, which must not be the data itself.
fn open_detached(path: &Path, base: &Base) -> Result<Base> {
    let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    let data = base.file().and_then(|file| file.metadata().map(identity).ok());
    if data.is_some() && std::fs::metadata(path).map(identity).ok() == data {
        return Err(Problem::HeaderIsTarget.into());
    }
    Ok(Image::open(path, true)?.into())
}
