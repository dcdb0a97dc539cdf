//! Looking at a header, and trying a key on it: nothing is locked but what must be, and nothing is changed.

use cryptline_luks::edit::Edit;
use cryptline_luks::seal::{Covers, MeasureHash};
use cryptline_luks::{DataSegment, Doubted, Error as LuksError, LuksHeader, SegmentPolicy};
use cryptline_sys::SecretBuf;
use sha2::{Digest, Sha256};

use super::luks::{Opened, check_version, look, look_on, unlock, warnings_of};
use super::{Format, Open};
use crate::base::Look;
use crate::error::Problem;
use crate::header::lock::InUse;
use crate::info::VolumeKind;
use crate::keys::with_keys;
use crate::{Result, Warning};

/// Contents of a header, and whether its volume can be opened.
pub struct Inspection {
    /// The target as it was named.
    pub name: String,
    /// LUKS1 or LUKS2.
    pub kind: VolumeKind,
    /// The header is in a file of its own.
    pub detached: bool,
    /// Bytes of the target.
    pub device_size: u64,
    /// Bytes of the clear disk, or why it cannot be opened.
    pub data_size: std::result::Result<u64, cryptline_luks::Error>,
    /// All of the header.
    pub header: LuksHeader,
}

/// A key that is right.
pub struct Unlocked {
    /// The volume key; that of the key slot, where one that keeps another was named.
    pub key: SecretBuf,
    /// The key slot; `None` where it was the volume key itself.
    pub slot: Option<u32>,
    /// The token whose passphrase opened it.
    pub token: Option<u32>,
    /// Facts that the user should know.
    pub warnings: Vec<Warning>,
    /// `Ok` where the volume could be opened; otherwise why not.
    pub usable: std::result::Result<(), cryptline_luks::Error>,
    /// Why it would be opened for reading only.
    pub doubted: Option<Doubted>,
    /// The ciphers that this is about, as the header has them.
    pub ciphers: Vec<String>,
    /// The header's measurement by SHA-256, where it has one, for whoever opens it elsewhere.
    pub measure: Option<Vec<u8>>,
    /// The header, where it was to be [examined](Open::examine).
    pub examined: Option<Examined>,
}

/// A header that a key has opened, for the record.
pub struct Examined {
    /// The header, and what it says of the volume.
    pub inspection: Inspection,
    /// Its place.
    pub area: HeaderArea,
}

/// The bytes that a backup of a header has: all of it with its key slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderArea {
    /// Their number.
    pub size: u64,
    /// Their hash.
    pub sha256: Vec<u8>,
}

impl Inspection {
    /// Keeps others from reencrypting the volume, for a process that is to open it and cannot do that itself. `None`
    /// for LUKS1, and where cryptsetup's folder of locks is not for us.
    ///
    /// # Errors
    /// Somebody reencrypts it.
    pub fn in_use(&self) -> Result<Option<InUse>> {
        InUse::of(&self.header).map_err(|problem| problem.on(&self.name))
    }
}

impl Open {
    /// Reads the LUKS header, for which no key is needed.
    ///
    /// # Errors
    /// A missing or damaged header. One that is sound and cannot be opened is shown.
    pub fn inspect(mut self) -> Result<Inspection> {
        let device = self.given.take_source()?.look()?;
        let detached = self.header.as_deref().map(Look::file).transpose()?;
        let source = detached.as_ref().unwrap_or(&device);
        let header = look_on(source.reader()?, source.size, source.sector, &source.name)?;
        Ok(self.inspected(header, &device))
    }

    fn inspected(&self, header: LuksHeader, device: &Look) -> Inspection {
        let detached = self.header.is_some();
        let segments = header.segments(SegmentPolicy { allow_null_cipher: self.allow_null_cipher, detached });
        Inspection {
            data_size: segments
                .and_then(|segments| segments.iter().map(|segment| segment.data_size(device.size)).sum()),
            kind: header.version().into(),
            detached,
            device_size: device.size,
            name: device.name.clone(),
            header,
        }
    }

    /// Describes `header`, which was read from `source`, if it still is what is there.
    fn examined(&self, header: LuksHeader, source: &Look, device: &Look) -> Result<Examined> {
        let failed = |error| Problem::Luks(error).on(&source.name);
        let mut reader = source.reader()?;
        let edit = Edit::look(&mut reader, source.size).map_err(failed)?;
        let said = |header: &LuksHeader| serde_json::to_value(header.info()).ok();
        if said(edit.header()) != said(&header) {
            return Err(failed(LuksError::ChangedMeanwhile));
        }
        let backup = edit.backup(&mut reader, source.size).map_err(failed)?;
        let bytes = backup.bytes();
        let area = HeaderArea { size: bytes.len() as u64, sha256: Sha256::digest(bytes).to_vec() };
        Ok(Examined { inspection: self.inspected(header, device), area })
    }

    /// Tries the key on the LUKS header, and does no more. A key slot that is named may keep another key than that of the
    /// volume.
    ///
    /// # Errors
    /// A wrong key, or a missing or damaged header.
    pub fn unlock(mut self) -> Result<Unlocked> {
        let target = self.given.take_source()?;
        if let Some(Format::Plain(_) | Format::RandomKey(_)) = self.format {
            return Err(Problem::NothingToTry.on(&target));
        }
        let (source, data) = match &self.header {
            Some(path) => (Look::file(path)?, Some(target.look())),
            None => (target.look()?, None),
        };
        // Nobody need have the data at hand to try a key; where it may be long, that is not known to be sound.
        let size = data.as_ref().map_or(source.size, |data| data.as_ref().map_or(u64::MAX, |data| data.size));
        let header = look(source.reader()?, source.size, &source.name)?;
        if let Some(Format::Luks(version)) = self.format {
            check_version(&header, version, &source.name)?;
        }
        let mut demanded = self.given.rules().check(&header, &source.name)?;
        let mut warnings = warnings_of(&header, &self);
        self.unbound = self.given.slot.is_some();
        let Opened { key, slot, token, notes } = with_keys(|| unlock(&header, source.reader()?, &source.name, &self))?;
        demanded.prove(&header, &key, &source.name)?;
        warnings.extend(notes);
        warnings.extend(Warning::of_key_memory());
        let policy = SegmentPolicy { allow_null_cipher: self.allow_null_cipher, detached: true };
        // The key of another one opens no data.
        let is_of_volume = slot.is_none_or(|slot| header.keeps_volume_key(slot));
        let mut ciphers = Vec::new();
        let trust = |segments: Vec<DataSegment>| {
            let specs = segments.iter().filter_map(|segment| segment.cipher.as_ref());
            ciphers.extend(specs.map(|spec| spec.as_str().to_owned()));
            if is_of_volume { self.trust(&header, &segments, size, slot).to_read() } else { Ok(None) }
        };
        let (usable, doubted) = match header.segments(policy).and_then(trust) {
            Ok(doubted) => (Ok(()), doubted),
            Err(error) => (Err(error), None),
        };
        demanded.finish(&source.name)?;
        let measure = header.subject(Covers::default()).ok().map(|subject| subject.measure(MeasureHash::Sha256));
        let examined = match (self.examine, data) {
            (false, _) => None,
            (true, None) => Some(self.examined(header, &source, &source)?),
            (true, Some(data)) => Some(self.examined(header, &source, &data?)?),
        };
        Ok(Unlocked { key, slot, token, warnings, usable, doubted, ciphers, measure, examined })
    }
}
