//! Backups: all of a header, key slots included, as a file that cryptsetup reads and writes as well.
//!
//! ```text
//!   LUKS2   both copies and the key slots area, whole
//!   LUKS1   the header and the stripes of all eight slots, to a multiple of 4096 bytes
//! ```
//!
//! Only what is too short is none: others fill theirs up to larger pages, and the beginning of a copied disk is as good.
//!
//! Restoring replaces key slots, so it cannot be taken back; a restore that was cut off can be run again,
//! since the backup is still there. Key slots that lie behind the end of the backup are overwritten first: once the header
//! that names them is gone, nothing knows of them. A LUKS2 header is written back with an epoch above those that are on
//! the device: nothing that was left of the old one counts as newer. One that may only be read is written back byte for
//! byte: it was saved to be had again after a repair that costs something.

use std::io::{Cursor, Read, Seek, Write};

use super::luks2::next_epoch;
use super::{Edit, gone, wipe};
use crate::area::Area;
use crate::device::{flush, read_at, to_u64, write_at, write_in_order};
use crate::error::{Error, quote};
use crate::luks2::binary::{BINARY_LEN, HeaderCopy};
use crate::luks2::{Luks2Header, wipe_magics};
use crate::{LuksHeader, signatures};

/// Those that are made here end at a multiple of this.
const ALIGNMENT: u64 = 4096;
/// Bytes that are compared, and written where they differ.
const PIECE: usize = 4096;

/// All of a header.
pub struct Backup(Vec<u8>);

/// A backup that is about to be written back.
pub struct Restore {
    /// The header, without what fills the file up.
    backup: Vec<u8>,
    header: LuksHeader,
    /// Of the LUKS2 header that is written.
    epoch: u64,
    /// Bytes of the device where the backup will be.
    before: Vec<u8>,
    /// The header on the device, if it can be read.
    current: Option<LuksHeader>,
    concerns: Vec<String>,
}

impl Edit {
    /// A backup of the header on the device that it was loaded from, which has `size` bytes.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::ChangedMeanwhile`], [`Error::Io`]; [`Error::Invalid`] where its key
    /// slots reach further than any program puts them.
    pub fn backup(&self, device: &mut (impl Read + Seek), size: u64) -> Result<Backup, Error> {
        self.check_unchanged(device, size)?;
        let end = end_of(&self.header)?;
        let mut bytes = zeroed(end.next_multiple_of(ALIGNMENT));
        // What fills the last piece up may be data.
        let header = &mut bytes[..at(end)];
        read_at(device, 0, header, "the header with its key slots")?;
        Ok(Backup(bytes))
    }
}

/// Words in the JSON of a volume that is being reencrypted.
const REENCRYPTS: [&[u8]; 2] = [b"\"online-reencrypt", b"\"reencrypt\""];

impl Backup {
    /// Returns the bytes that go into the file.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Restore {
    /// The most bytes that a backup needs; what lies behind them is of no use.
    pub const LEN_MAX: u64 = (8 << 20) + crate::luks2::validate::KEYSLOTS_SIZE_MAX;

    /// Checks `backup` by itself, and against what is on `device`, which has `size` bytes.
    ///
    /// # Errors
    /// [`Error::NotABackup`]; [`Error::BackupDiffers`] where the data would not be found any more;
    /// [`Error::TooSmall`]; [`Error::Io`].
    pub fn prepare(mut backup: Vec<u8>, device: &mut (impl Read + Seek), size: u64) -> Result<Self, Error> {
        let header = checked(&backup)?;
        let needed = end_of(&header)?;
        backup.truncate(at(needed));
        if size < needed {
            return Err(Error::TooSmall { needed, size });
        }
        let mut before = zeroed(needed);
        read_at(device, 0, &mut before, "the place for the header")?;
        // What is left of another volume, on a device that holds something else by now, guards nothing.
        let found = crate::look(device, size).and_then(|current| match current.check_writable() {
            Err(error @ Error::OtherContents { .. }) if current.uuid() != header.uuid() => Err(error),
            barred => Ok((current, barred.err())),
        });
        let (current, mut concerns) = match found {
            Ok((current, bar)) => {
                check_same_data(&current, &header)?;
                if let Some(Error::NotUnderstood { copy, .. }) = &bar {
                    check_not_reencrypting(&current, copy, &before)?;
                }
                let mut concerns = concerns(&current, &header);
                concerns.extend(bar.map(|bar| what_is_barred(&bar)));
                (Some(current), concerns)
            }
            Err(error @ (Error::Io { .. } | Error::KeyMemory(_))) => return Err(error),
            Err(error) => (None, vec![what_is_lost(device, size, &error)?]),
        };
        if header.check_writable().is_err() {
            let kept = "the header in the backup may only be read, and so it is again: both of its copies are written as they are";
            concerns.push(kept.to_owned());
        }
        let epoch = next_epoch([Some(&header), current.as_ref()].into_iter().flatten().filter_map(LuksHeader::luks2))?;
        Ok(Self { epoch, backup, header, before, current, concerns })
    }

    /// Returns what is lost by it, one line each; whoever may lose it should be asked.
    #[must_use]
    pub fn concerns(&self) -> &[String] {
        &self.concerns
    }

    /// The header that will be on the device.
    #[must_use]
    pub fn header(&self) -> &LuksHeader {
        &self.header
    }

    /// The header by which others know the volume: that on the device, or where it has none, that of the backup.
    #[must_use]
    pub fn known_by(&self) -> &LuksHeader {
        self.current.as_ref().unwrap_or(&self.header)
    }

    /// Returns what the header on the device has for its key slots behind the backup's end.
    #[must_use]
    pub fn freed(&self) -> Vec<Area> {
        let start = to_u64(self.backup.len());
        // Of one that is not understood, nobody knows what else it keeps there.
        let current = self.current.as_ref().filter(|current| current.check_writable().is_ok());
        let places = match current.map(LuksHeader::inner) {
            Some(header) if header.luks2().is_some() => vec![Area { offset: 0, size: header.end() }],
            Some(header) => header.areas().into_iter().map(|(_, place)| place).collect(),
            None => Vec::new(),
        };
        let behind = places.into_iter().filter_map(|place| {
            let (offset, end) = (place.offset.max(start), place.end()?);
            (end > offset).then(|| Area { offset, size: end - offset })
        });
        behind.collect()
    }

    /// Writes the backup to the device it was checked against, which has `size` bytes.
    ///
    /// # Errors
    /// [`Error::ChangedMeanwhile`], with nothing written; [`Error::NotWiped`], with everything restored; [`Error::Io`],
    /// after which it can be done again.
    pub fn commit(self, device: &mut (impl Read + Write + Seek), size: u64) -> Result<LuksHeader, Error> {
        let mut now = zeroed(to_u64(self.before.len()));
        read_at(device, 0, &mut now, "the place for the header")?;
        if now != self.before {
            return Err(Error::ChangedMeanwhile);
        }
        let header = self.header.inner();
        let first = at(header.metadata_len());
        let writes = header.restored(&self.backup[..first], self.epoch, self.is_primary_last())?;
        // The slots may lie over the only header that says what is to be overwritten. While it names them, they are gone.
        let freed = self.freed();
        let mut slots = self.current.as_ref().map(|current| current.inner().areas()).unwrap_or_default();
        slots.retain(|(_, place)| freed.iter().any(|area| area.offset <= place.offset && place.end() <= area.end()));
        let slots: Vec<Area> = slots.into_iter().map(|(_, place)| place).collect();
        let marked = gone::destroy(device, &slots, size);
        let wiped = wipe(device, &freed, size);
        self.write_slots(device, first)?;
        write_in_order(device, &writes)?;
        if header.luks2().is_none() {
            wipe_beyond(device, size, to_u64(self.backup.len()))?;
        }
        marked.and(wiped)?;
        crate::look(device, size)
    }

    /// Everything behind the first bytes that is not there already.
    fn write_slots(&self, device: &mut (impl Write + Seek), first: usize) -> Result<(), Error> {
        let pieces = self.backup[first..].chunks(PIECE);
        let pieces = pieces.zip(self.before[first..].chunks(PIECE));
        for ((new, old), offset) in pieces.zip((first..).step_by(PIECE)) {
            if new != old {
                write_at(device, to_u64(offset), new)?;
            }
        }
        flush(device)
    }

    /// The only good copy that there is comes last.
    fn is_primary_last(&self) -> bool {
        let current = self.current.as_ref().and_then(LuksHeader::luks2);
        current.is_some_and(Luks2Header::is_only_primary)
    }
}

/// A copy of a LUKS2 header that lies behind a LUKS1 header would be found if that is damaged.
fn wipe_beyond(device: &mut (impl Read + Write + Seek), size: u64, end: u64) -> Result<(), Error> {
    if end < crate::luks2::binary::COPY_SIZES[8] {
        wipe_magics(device, size)?;
    }
    Ok(())
}

/// The header of a backup that is whole.
fn checked(backup: &[u8]) -> Result<LuksHeader, Error> {
    let len = to_u64(backup.len());
    let header = crate::look(&mut Cursor::new(backup), len).map_err(|error| Error::NotABackup(error.to_string()))?;
    let needed = end_of(&header)?;
    if needed > len {
        let reason = format!("it has {len} bytes, such a header has {needed}");
        return Err(Error::NotABackup(reason));
    }
    header.inner().check_usable()?;
    Ok(header)
}

/// With another start of the data or length of its key, the data would be lost.
fn check_same_data(current: &LuksHeader, backup: &LuksHeader) -> Result<(), Error> {
    // During reencryption, only the header that is there knows which part is under which key.
    current.inner().check_usable()?;
    let (is, was) = (current.inner().data_offset(), backup.inner().data_offset());
    if is != was {
        return Err(Error::BackupDiffers(format!("the data begins at byte {is} here, in the backup at {was}")));
    }
    match (current.key_len(), backup.key_len()) {
        (Some(is), Some(was)) if is != was => {
            Err(Error::BackupDiffers(format!("the volume key has {is} bytes here, in the backup {was}")))
        }
        _ => Ok(()),
    }
}

/// The same of a copy that is not understood: that it says so is seen nevertheless.
fn check_not_reencrypting(current: &LuksHeader, copy: &'static str, before: &[u8]) -> Result<(), Error> {
    let Some(current) = current.luks2() else { return Ok(()) };
    let both = [HeaderCopy::Primary, HeaderCopy::Secondary];
    let json = both.into_iter().find(|it| it.name() == copy).and_then(|copy| {
        let start = at(current.binary.offset(copy)) + BINARY_LEN;
        before.get(start..start - BINARY_LEN + at(current.binary.copy_size))
    });
    // Guard: one that is not all there may say it as well.
    let why = match json {
        Some(json) if REENCRYPTS.iter().any(|word| json.windows(word.len()).any(|found| found == *word)) => {
            format!("the {copy} header copy, which is whole and not understood here, says so")
        }
        Some(_) => return Ok(()),
        None => format!("the {copy} header copy is not understood here, and whether it says so cannot be seen"),
    };
    Err(Error::ReencryptionInProgress(why))
}

fn concerns(current: &LuksHeader, backup: &LuksHeader) -> Vec<String> {
    let mut concerns = vec![
        "the key slots that are there now are lost: passphrases that were added since the backup open nothing \
         any more, and those that were removed open the volume again"
            .to_owned(),
    ];
    if current.uuid() != backup.uuid() {
        let (is, was) = (quote(current.uuid()), quote(backup.uuid()));
        concerns.push(format!("the backup is of another volume, with UUID {was}; the one that is there has {is}"));
    }
    if current.version() != backup.version() {
        concerns.push("the header that is there is of another LUKS version".to_owned());
    } else {
        // Guard: what nobody can compare is not taken for the same.
        let concern = match (current.inner().key_digest(), backup.inner().key_digest()) {
            (Ok(is), Ok(was)) if is.value == was.value => None,
            (Ok(_), Ok(_)) => Some("the backup is of another volume key, under which the data that is there is noise"),
            _ => Some("it cannot be told whether the backup has the volume key that the data is under"),
        };
        concerns.extend(concern.map(str::to_owned));
    }
    concerns.extend(other_data(current, backup));
    concerns
}

/// Differences of the backup in the description of the data: how long it is, and how it is encrypted.
fn other_data(current: &LuksHeader, backup: &LuksHeader) -> Vec<String> {
    let (is, was) = (current.info().segments, backup.info().segments);
    let mut concerns = Vec::new();
    if is.len() != was.len() {
        let (is, was) = (is.len(), was.len());
        concerns.push(format!("the data is in {is} segments here, and in {was} by the backup"));
    }
    let size =
        |size: Option<u64>| size.map_or_else(|| "to the end of its device".to_owned(), |it| format!("{it} bytes long"));
    for (is, was) in is.iter().zip(&was) {
        let which = if is.id == 0 { "the data".to_owned() } else { format!("segment {} of the data", is.id) };
        if is.size != was.size {
            let (is, was) = (size(is.size), size(was.size));
            concerns.push(format!("{which} is {is} by the header that is there, and {was} by the backup"));
        }
        let how = |of: &crate::info::SegmentInfo| {
            let cipher = of.cipher.as_deref().map_or_else(|| "nothing".to_owned(), quote);
            (format!("{cipher} in sectors of {} bytes", of.sector_size.unwrap_or(512)), of.offset)
        };
        let ((is, begins), (was, began)) = (how(is), how(was));
        if is != was {
            concerns
                .push(format!("{which} is encrypted by {is} here, and by {was} in the backup, which reads as noise"));
        }
        if begins != began {
            concerns.push(format!("{which} begins at byte {begins} here, and at {began} in the backup"));
        }
    }
    concerns
}

/// Why nothing but a backup may be written over the header that is there.
fn what_is_barred(bar: &Error) -> String {
    match bar {
        Error::OtherContents { what, .. } => format!("it contains {what}, whose beginning is overwritten"),
        Error::NotUnderstood { copy, reason, .. } => {
            format!("the {copy} header copy, which is whole and not understood here ({reason}), is lost")
        }
        other => other.to_string(),
    }
}

/// Where no header can be read.
fn what_is_lost(device: &mut (impl Read + Seek), size: u64, error: &Error) -> Result<String, Error> {
    Ok(match (signatures::find(device, size)?, error) {
        (Some(what), _) => format!("it contains {what}, whose beginning is overwritten"),
        (None, Error::NotLuks) => "it has no LUKS header; what is at its beginning is overwritten".to_owned(),
        (None, error) => format!("its header cannot be read ({error}) and is overwritten"),
    })
}

/// Bytes of this header with its key slots. LUKS1 lets these lie anywhere.
fn end_of(header: &LuksHeader) -> Result<u64, Error> {
    let end = header.inner().end();
    if end > Restore::LEN_MAX {
        let most = Restore::LEN_MAX;
        return Err(Error::Invalid(format!("a key slot ends at byte {end}; backups have at most {most} bytes")));
    }
    Ok(end)
}

fn at(offset: u64) -> usize {
    usize::try_from(offset).expect("a header has at most 136 MiB")
}

fn zeroed(len: u64) -> Vec<u8> {
    vec![0; at(len)]
}
