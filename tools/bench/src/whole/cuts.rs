//! Changes of a header that a crash of the machine cuts off anywhere, in memory.
//!
//! ```text
//! change ─► every write and flush is kept ─► each disk that a cut may leave ─► what opens it?
//! ```
//!
//! Of the sectors that were written since the last flush, a cut leaves the first ones, or any. A cut is survived where
//! the passphrases of the old header open the volume or those of the new one.

use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};

use cryptline_luks::edit::{Edit, HeaderChange, LastSlot, NewSlot, Priority};
use cryptline_luks::format::{FormatOptions, LuksVersion, format};
use cryptline_luks::{UnlockOptions, read};
use cryptline_sys::SecretBuf;

use crate::error::{Of as _, Result};
use crate::volume::cheap;

const SECTOR: usize = 512;
const SIZE: u64 = 3 << 20;
/// The first two open the volume; the third comes with a change.
const PASSPHRASES: [&[u8]; 3] = [b"first", b"second", b"third"];
/// Which of [`PASSPHRASES`] open something.
type OpensWith = [bool; 3];
const BEFORE: OpensWith = [true, true, false];
/// Sets of sectors that are tried of each epoch, beside those in order.
const SHUFFLES: u64 = 4;
/// Places in an epoch where it is cut in order: key material has hundreds of sectors.
const IN_ORDER: usize = 8;

/// Outcome of all cuts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cuts {
    pub tried: u64,
    pub survived: u64,
}

impl Cuts {
    /// Part of them that was survived.
    pub fn rate(self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "thousands")]
        let rate = self.survived as f64 / self.tried.max(1) as f64;
        rate
    }
}

/// Function that changes the header loaded from the disk.
type ChangeMaker = for<'a> fn(&'a Edit, &SecretBuf) -> Result<HeaderChange<'a>, cryptline_luks::Error>;

/// A change, and what may open a LUKS1 and a LUKS2 volume once it was begun; nothing where there is no such change.
type CutStep = (ChangeMaker, [&'static [OpensWith]; 2]);

const SAME: &[OpensWith] = &[BEFORE];
const ADDED: &[OpensWith] = &[BEFORE, [true, true, true]];
const REMOVED: &[OpensWith] = &[BEFORE, [true, false, false]];
const CHANGED: &[OpensWith] = &[BEFORE, [true, false, true]];
/// With one copy of the header, the new passphrase opens before the old one no longer does.
const CHANGED_LUKS1: &[OpensWith] = &[BEFORE, [true, true, true], [true, false, true]];

const STEPS: [CutStep; 6] = [
    (|edit, key| Ok(edit.add(key, PASSPHRASES[2], &new_slot())?.0), [ADDED, ADDED]),
    (|edit, key| Ok(edit.replace(1, key, PASSPHRASES[2], &new_slot())?.0), [CHANGED_LUKS1, CHANGED]),
    (|edit, _| edit.remove(1, LastSlot::Keep), [REMOVED, REMOVED]),
    (|edit, _| edit.set_uuid(None), [SAME, SAME]),
    (|edit, _| edit.set_label(Some("new"), Some("other")), [&[], SAME]),
    (|edit, _| edit.set_priority(1, Priority::Prefer), [&[], SAME]),
];

/// Makes every change and cuts it everywhere.
///
/// # Errors
/// A change that cannot be made at all.
pub fn count() -> Result<Cuts> {
    let mut cuts = Cuts::default();
    for (place, version) in [LuksVersion::Luks1, LuksVersion::Luks2].into_iter().enumerate() {
        let (before, key) = volume(version).of("header")?;
        for (make, opens) in STEPS.iter().filter(|(_, opens)| !opens[place].is_empty()) {
            cut_everywhere(&before, &key, *make, opens[place], &mut cuts).of("header")?;
        }
    }
    Ok(cuts)
}

fn cut_everywhere(
    before: &[u8],
    key: &SecretBuf,
    make: ChangeMaker,
    may_open: &[OpensWith],
    cuts: &mut Cuts,
) -> Result<(), cryptline_luks::Error> {
    let mut disk = RecordingDisk { bytes: Cursor::new(before.to_vec()), done: Vec::new() };
    let edit = Edit::load(&mut disk, SIZE)?;
    make(&edit, key)?.commit(&mut disk, SIZE)?;
    each_cut(before, &disk.done, |left| {
        cuts.tried += 1;
        cuts.survived += u64::from(may_open.contains(&opens(left, key)));
    });
    Ok(())
}

fn new_slot() -> NewSlot {
    let FormatOptions { kdf, cost, .. } = cheap(LuksVersion::Luks2);
    NewSlot { kdf, cost, ..NewSlot::default() }
}

/// A volume with the first two passphrases.
fn volume(version: LuksVersion) -> Result<(Vec<u8>, SecretBuf), cryptline_luks::Error> {
    let data_offset = (version == LuksVersion::Luks2).then_some(1 << 20);
    let options = FormatOptions { key_len: 32, data_offset, ..cheap(version) };
    let mut device = Cursor::new(vec![0; 3 << 20]);
    let key = format(&mut device, SIZE, PASSPHRASES[0], &options)?;
    let edit = Edit::load(&mut device, SIZE)?;
    let (change, _) = edit.add(&key, PASSPHRASES[1], &new_slot())?;
    change.commit(&mut device, SIZE)?;
    Ok((device.into_inner(), key))
}

fn opens(disk: &[u8], key: &SecretBuf) -> OpensWith {
    let mut device = Cursor::new(disk);
    let Ok(header) = read(&mut device, SIZE) else {
        return [false; 3];
    };
    PASSPHRASES.map(|passphrase| {
        let unlocked = header.unlock(&mut device, passphrase, &UnlockOptions::default());
        unlocked.is_ok_and(|unlocked| *unlocked.key == **key)
    })
}

/// A write, by its place; a flush where it has no bytes.
type DoneWrite = (usize, Vec<u8>);

/// A disk that remembers what was done to it.
struct RecordingDisk {
    bytes: Cursor<Vec<u8>>,
    done: Vec<DoneWrite>,
}

impl Read for RecordingDisk {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.bytes.read(out)
    }
}

impl Write for RecordingDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let offset = usize::try_from(self.bytes.position()).map_err(io::Error::other)?;
        let written = self.bytes.write(bytes)?;
        self.done.push((offset, bytes[..written].to_vec()));
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.done.push((0, Vec::new()));
        Ok(())
    }
}

impl Seek for RecordingDisk {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.bytes.seek(to)
    }
}

/// Shows `judge` each disk that a cut may leave.
fn each_cut(before: &[u8], done: &[DoneWrite], mut judge: impl FnMut(&[u8])) {
    let mut durable = before.to_vec();
    judge(&durable);
    let mut seed = 1_u64;
    for epoch in done.split_inclusive(|(_, bytes)| bytes.is_empty()) {
        let sectors: Vec<_> = epoch.iter().flat_map(pieces).collect();
        for shuffle in 0..SHUFFLES {
            let mut torn = durable.clone();
            for &(at, sector) in &sectors {
                // A linear congruential generator, so that each run tries the same.
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(shuffle | 1);
                if seed >> 33 & 1 == 1 {
                    torn[at..at + sector.len()].copy_from_slice(sector);
                }
            }
            judge(&torn);
        }
        let stride = sectors.len().div_ceil(IN_ORDER).max(1);
        for (number, &(at, sector)) in sectors.iter().enumerate() {
            durable[at..at + sector.len()].copy_from_slice(sector);
            if number % stride == 0 || number + 1 == sectors.len() {
                judge(&durable);
            }
        }
    }
}

/// Pieces of a write, none of which crosses a sector's border.
fn pieces((offset, bytes): &DoneWrite) -> impl Iterator<Item = (usize, &[u8])> {
    let offset = *offset;
    let first = (SECTOR - offset % SECTOR).min(bytes.len());
    let (head, rest) = bytes.split_at(first);
    let starts = (offset + first..).step_by(SECTOR);
    let pieces = std::iter::once((offset, head)).chain(starts.zip(rest.chunks(SECTOR)));
    pieces.filter(|(_, piece)| !piece.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_that_opens_with_other_passphrases_is_not_survived() {
        let (before, key) = volume(LuksVersion::Luks2).unwrap();
        let mut cuts = Cuts::default();
        // As if the second passphrase had to stay.
        cut_everywhere(&before, &key, STEPS[2].0, SAME, &mut cuts).unwrap();
        assert!(cuts.survived > 0 && cuts.survived < cuts.tried, "{cuts:?}");
        assert!(cuts.rate() < 1.0);
    }
}
