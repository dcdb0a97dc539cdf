//! Changes of a header that stop anywhere. The disk keeps any of the sectors that were written since its
//! last flush, in any order, and tears writes between sectors. Whatever is left of a change, the old header
//! or the new one opens with its passphrases, and nothing in between.

use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};

use crate::edit::{Edit, LastSlot, NewSlot, Priority, Restore};
use crate::format::{FormatOptions, KdfCost, KdfKind, LuksVersion, format};
use crate::luks2::binary::HeaderCopy;
use crate::testing::{Image, PASSPHRASE};
use crate::{Error, LuksHeader, SegmentPolicy, UnlockOptions, read};

#[path = "crash_convert_tests.rs"]
mod convert;
#[path = "crash_overwrite_tests.rs"]
mod overwrite;
#[path = "crash_token_tests.rs"]
mod tokens;

const SECTOR: usize = 512;
/// Passphrases of the tests, by number; the first is [`PASSPHRASE`].
const PASSPHRASES: [&[u8]; 3] = [PASSPHRASE, b"second", b"third"];
/// Sets of sectors that are tried of each epoch, beside those in order.
const SHUFFLES: u64 = 12;

enum Done {
    Write { offset: usize, bytes: Vec<u8> },
    Flush,
}

/// A disk that remembers what was done to it.
struct Disk {
    bytes: Cursor<Vec<u8>>,
    done: Vec<Done>,
}

impl Disk {
    fn new(bytes: &[u8]) -> Self {
        Self { bytes: Cursor::new(bytes.to_vec()), done: Vec::new() }
    }
}

impl Read for Disk {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.bytes.read(out)
    }
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let offset = usize::try_from(self.bytes.position()).unwrap();
        let bytes = bytes.to_vec();
        let written = self.bytes.write(&bytes)?;
        self.done.push(Done::Write { offset, bytes });
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.done.push(Done::Flush);
        Ok(())
    }
}

impl Seek for Disk {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.bytes.seek(to)
    }
}

/// Pieces of a write, none of which crosses a sector's border.
fn pieces(offset: usize, bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let first = (SECTOR - offset % SECTOR).min(bytes.len());
    let (head, rest) = bytes.split_at(first);
    let rest = rest.chunks(SECTOR);
    let starts = (offset + first..).step_by(SECTOR);
    std::iter::once((offset, head)).chain(starts.zip(rest))
}

/// The file of a detached header grows.
fn put(disk: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    disk.resize(disk.len().max(end), 0);
    disk[at..end].copy_from_slice(bytes);
}

/// Shows `judge` every disk that a cut may leave, and returns how many there were. Behind the last flush there is nothing
/// that could be lost: what is done is durable.
#[track_caller]
fn each_cut(before: &[u8], done: &[Done], mut judge: impl FnMut(&[u8])) -> usize {
    let mut durable = before.to_vec();
    assert!(matches!(done.last(), Some(Done::Flush)), "done, and not durable");
    let mut count = 0;
    let mut show = |bytes: &[u8]| {
        judge(bytes);
        count += 1;
    };
    show(&durable);
    let mut seed = 1_u64;
    for epoch in done.split_inclusive(|done| matches!(done, Done::Flush)) {
        let writes = epoch.iter().filter_map(|done| match done {
            Done::Write { offset, bytes } => Some((*offset, bytes)),
            Done::Flush => None,
        });
        let sectors: Vec<_> = writes.flat_map(|(at, bytes)| pieces(at, bytes)).collect();
        for shuffle in 0..SHUFFLES {
            let mut torn = durable.clone();
            for (at, sector) in &sectors {
                // A linear congruential generator, so that a failure comes again.
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(shuffle | 1);
                if seed >> 33 & 1 == 1 {
                    put(&mut torn, *at, sector);
                }
            }
            show(&torn);
        }
        // In order, sector by sector; of key material, not after every single one.
        let stride = sectors.len().div_ceil(24).max(1);
        for (number, (at, sector)) in sectors.iter().enumerate() {
            put(&mut durable, *at, sector);
            if number % stride == 0 || number + 1 == sectors.len() {
                show(&durable);
            }
        }
    }
    count
}

/// Which of [`PASSPHRASES`] open the volume under `key`.
fn opening(bytes: &[u8], key: &[u8]) -> Vec<usize> {
    let size = u64::try_from(bytes.len()).unwrap();
    let mut device = Cursor::new(bytes);
    let Ok(header) = read(&mut device, size) else {
        return vec![usize::MAX];
    };
    let opens = |passphrase: &&[u8]| {
        let unlocked = header.unlock(&mut device, passphrase, &UnlockOptions::default());
        unlocked.is_ok_and(|unlocked| *unlocked.key == *key)
    };
    let mut opens = opens;
    let numbered = PASSPHRASES.iter().enumerate();
    numbered.filter_map(|(number, passphrase)| opens(passphrase).then_some(number)).collect()
}

fn new_slot() -> NewSlot {
    let iterations = Some(1000);
    NewSlot { kdf: Some(KdfKind::Pbkdf2), cost: KdfCost { iterations, ..KdfCost::default() }, ..NewSlot::default() }
}

/// Options whose key slots cost next to nothing.
fn options(version: LuksVersion, key_len: u32) -> FormatOptions {
    FormatOptions { version, key_len, kdf: Some(KdfKind::Pbkdf2), cost: new_slot().cost, ..FormatOptions::default() }
}

/// A volume whose key slots of these numbers open with the first passphrases, in turn.
fn formatted(options: &FormatOptions, size: u64, slots: &[u32]) -> (Vec<u8>, Vec<u8>) {
    let mut device = Cursor::new(vec![0; usize::try_from(size).unwrap()]);
    let key = format(&mut device, size, PASSPHRASE, options).unwrap();
    for (number, &slot) in slots.iter().enumerate().filter(|(_, slot)| **slot != 0) {
        let edit = Edit::load(&mut device, size).unwrap();
        let new = NewSlot { slot: Some(slot), ..new_slot() };
        let (change, _) = edit.add(&key, PASSPHRASES[number % 2], &new).unwrap();
        change.commit(&mut device, size).unwrap();
    }
    (device.into_inner(), key.to_vec())
}

/// A volume with the first two passphrases in slots 0 and `second`.
fn volume(version: LuksVersion, second: u32) -> (Vec<u8>, Vec<u8>) {
    let data_offset = (version == LuksVersion::Luks2).then_some(1 << 20);
    formatted(&FormatOptions { data_offset, ..options(version, 32) }, 3 << 20, &[0, second])
}

/// Bytes of a header that say what it has.
fn header_len(version: LuksVersion) -> usize {
    if version == LuksVersion::Luks1 { 1024 } else { 0x8000 }
}

/// A disk of these bytes, and what can be done with it.
fn loaded(bytes: &[u8]) -> (Disk, Edit) {
    let mut disk = Disk::new(bytes);
    let edit = Edit::load(&mut disk, u64::try_from(bytes.len()).unwrap()).unwrap();
    (disk, edit)
}

/// Makes a change and cuts it everywhere. Every disk that is left opens with one of these sets of
/// passphrases, the last of which is what the change is for.
#[track_caller]
fn survives(
    before: &[u8],
    key: &[u8],
    sets: &[&[usize]],
    change: impl FnOnce(&Edit, &mut Disk) -> Result<(), Error>,
) -> usize {
    let (mut disk, edit) = loaded(before);
    assert_eq!(opening(before, key), sets[0]);
    change(&edit, &mut disk).unwrap();
    assert_eq!(opening(disk.bytes.get_ref(), key), *sets.last().unwrap());
    let count = each_cut(before, &disk.done, |bytes| {
        let opening = opening(bytes, key);
        assert!(sets.contains(&&opening[..]), "{opening:?} of {sets:?}");
    });
    assert!(count > 10, "{count}");
    println!("cut points survived: {count}");
    count
}

fn commit(change: Result<crate::edit::HeaderChange<'_>, Error>, disk: &mut Disk) -> Result<(), Error> {
    let size = u64::try_from(disk.bytes.get_ref().len()).unwrap();
    change?.commit(disk, size).map(drop)
}

fn added(edit: &Edit, key: &[u8], slot: Option<u32>, disk: &mut Disk) -> Result<(), Error> {
    let new = NewSlot { slot, ..new_slot() };
    let change = edit.add(key, PASSPHRASES[2], &new);
    commit(change.map(|(change, _)| change), disk)
}

fn replaced(edit: &Edit, key: &[u8], disk: &mut Disk) -> Result<(), Error> {
    let slot = edit.header().info().keyslots[1].id;
    let change = edit.replace(slot, key, PASSPHRASES[2], &new_slot());
    commit(change.map(|(change, _)| change), disk)
}

#[test]
fn luks2_key_added_at_every_cut() {
    let (bytes, key) = volume(LuksVersion::Luks2, 1);
    let count = survives(&bytes, &key, &[&[0, 1], &[0, 1, 2]], |edit, disk| added(edit, &key, None, disk));
    assert!(count > 90, "{count}");
}

/// The only good copy is never the first to be written.
#[test]
fn luks2_key_added_at_every_cut_beside_a_damaged_copy() {
    let (bytes, key) = volume(LuksVersion::Luks2, 1);
    for copy in [HeaderCopy::Primary, HeaderCopy::Secondary] {
        let mut image = Image { bytes: bytes.clone() };
        let start = image.offset(copy);
        image.bytes[start + 5000] ^= 1;
        survives(&image.bytes, &key, &[&[0, 1], &[0, 1, 2]], |edit, disk| added(edit, &key, None, disk));
        let mut image = Image { bytes: bytes.clone() };
        image.edit_binary(copy, |binary| binary.epoch += 5);
        survives(&image.bytes, &key, &[&[0, 1], &[0, 1, 2]], |edit, disk| added(edit, &key, None, disk));
    }
}

#[test]
fn luks2_key_changed_removed_and_erased_at_every_cut() {
    let (bytes, key) = volume(LuksVersion::Luks2, 1);
    survives(&bytes, &key, &[&[0, 1], &[0, 2]], |edit, disk| replaced(edit, &key, disk));
    survives(&bytes, &key, &[&[0, 1], &[1]], |edit, disk| commit(edit.remove(0, LastSlot::Keep), disk));
    let erased: &[&[usize]] = &[&[0, 1], &[0], &[1], &[]];
    survives(&bytes, &key, erased, |edit, disk| commit(edit.erase(), disk));
}

/// Whatever is left of the removal of one key slot: where it opens nothing any more, the other is the last.
#[test]
fn removal_that_was_cut_off_does_not_let_the_last_slot_go() {
    for version in [LuksVersion::Luks1, LuksVersion::Luks2] {
        let (bytes, key) = volume(version, 1);
        let size = u64::try_from(bytes.len()).unwrap();
        let (mut disk, edit) = loaded(&bytes);
        commit(edit.remove(0, LastSlot::Keep), &mut disk).unwrap();
        let mut seen = [0; 2];
        each_cut(&bytes, &disk.done, |bytes| {
            let mut device = Cursor::new(bytes);
            let edit = Edit::load(&mut device, size).unwrap();
            let is_last = opening(bytes, &key) == [1];
            let removal = edit.remove(1, LastSlot::Keep);
            assert_eq!(matches!(removal, Err(Error::LastSlot(1))), is_last);
            // What was begun can be ended.
            let named = edit.header().info().keyslots.iter().any(|slot| slot.id == 0);
            assert_eq!(edit.remove(0, LastSlot::Keep).is_ok(), named);
            seen[usize::from(is_last && named)] += 1;
        });
        assert!(seen.iter().all(|&seen| seen > 5), "{version:?} {seen:?}");
    }
}

#[test]
fn luks2_uuid_label_and_priority_at_every_cut() {
    let (bytes, key) = volume(LuksVersion::Luks2, 1);
    survives(&bytes, &key, &[&[0, 1]], |edit, disk| commit(edit.set_uuid(None), disk));
    survives(&bytes, &key, &[&[0, 1]], |edit, disk| commit(edit.set_label(Some("new"), Some("other")), disk));
    survives(&bytes, &key, &[&[0, 1]], |edit, disk| commit(edit.set_priority(1, Priority::Prefer), disk));
}

#[test]
fn luks2_size_of_the_data_at_every_cut() {
    let (bytes, key) = volume(LuksVersion::Luks2, 1);
    let mut image = Image { bytes };
    image.edit(|json| json["segments"]["0"]["size"] = "8192".into());
    let size_of = |bytes: &[u8]| {
        let read = read(&mut Cursor::new(bytes), 3 << 20).unwrap();
        read.segments(SegmentPolicy::default()).unwrap()[0].size
    };
    let (mut disk, edit) = loaded(&image.bytes);
    commit(edit.set_data_size(65536), &mut disk).unwrap();
    assert_eq!(size_of(disk.bytes.get_ref()), Some(65536));
    let mut seen = [0; 2];
    each_cut(&image.bytes, &disk.done, |bytes| {
        assert_eq!(opening(bytes, &key), [0, 1]);
        seen[usize::from(size_of(bytes) == Some(65536))] += 1;
        assert!([Some(8192), Some(65536)].contains(&size_of(bytes)));
    });
    assert!(seen.iter().all(|&seen| seen > 10), "{seen:?}");
}

#[test]
fn luks2_copy_repaired_at_every_cut() {
    let (bytes, key) = volume(LuksVersion::Luks2, 1);
    for copy in [HeaderCopy::Primary, HeaderCopy::Secondary] {
        let mut image = Image { bytes: bytes.clone() };
        let start = image.offset(copy);
        image.bytes[start + 5000] ^= 1;
        survives(&image.bytes, &key, &[&[0, 1]], |edit, disk| {
            commit(edit.repair(false).map(|change| change.expect("a damaged copy")), disk)
        });
    }
}

/// Slot 6 lies across two sectors, slot 7 in the second.
#[test]
fn luks1_key_added_at_every_cut() {
    let (bytes, key) = volume(LuksVersion::Luks1, 1);
    for slot in [2, 6, 7] {
        survives(&bytes, &key, &[&[0, 1], &[0, 1, 2]], |edit, disk| added(edit, &key, Some(slot), disk));
    }
}

#[test]
fn luks1_key_changed_removed_and_erased_at_every_cut() {
    for second in [1, 6] {
        let (bytes, key) = volume(LuksVersion::Luks1, second);
        // With one copy of the header, the new passphrase opens first, and then the old one no longer.
        survives(&bytes, &key, &[&[0, 1], &[0, 1, 2], &[0, 2]], |edit, disk| replaced(edit, &key, disk));
        survives(&bytes, &key, &[&[0, 1], &[0]], |edit, disk| commit(edit.remove(second, LastSlot::Keep), disk));
        let erased: &[&[usize]] = &[&[0, 1], &[0], &[1], &[]];
        survives(&bytes, &key, erased, |edit, disk| commit(edit.erase(), disk));
        survives(&bytes, &key, &[&[0, 1]], |edit, disk| commit(edit.set_uuid(None), disk));
    }
}

/// The key slots that a backup replaces are gone as soon as the first is overwritten, so here nothing
/// less than this is promised: from every cut, the same command ends in the header of the backup.
#[test]
fn restore_is_finished_from_every_cut() {
    for version in [LuksVersion::Luks2, LuksVersion::Luks1] {
        let (bytes, key) = volume(version, 1);
        let size = u64::try_from(bytes.len()).unwrap();
        let edit = Edit::load(&mut Cursor::new(&bytes), size).unwrap();
        let backup = edit.backup(&mut Cursor::new(&bytes), size).unwrap();
        let mut disk = Disk::new(&bytes);
        replaced(&edit, &key, &mut disk).unwrap();
        let before = disk.bytes.into_inner();
        assert_eq!(opening(&before, &key), [0, 2]);
        let restore = |disk: &mut Disk| {
            let restore = Restore::prepare(backup.bytes().to_vec(), disk, size).unwrap();
            restore.commit(disk, size).unwrap()
        };
        let mut disk = Disk::new(&before);
        restore(&mut disk);
        assert_eq!(opening(disk.bytes.get_ref(), &key), [0, 1]);
        let count = each_cut(&before, &disk.done, |bytes| {
            let mut again = Disk::new(bytes);
            assert!(restore(&mut again).warnings().is_empty());
            assert_eq!(opening(again.bytes.get_ref(), &key), [0, 1]);
        });
        println!("cut points survived: {count}");
        assert!(count > 50, "{count}");
    }
}

/// A header that is made, and what was a header of the other version there before.
#[test]
fn header_that_is_made_is_durable() {
    for version in [LuksVersion::Luks1, LuksVersion::Luks2] {
        let other = if version == LuksVersion::Luks1 { LuksVersion::Luks2 } else { LuksVersion::Luks1 };
        let (bytes, _) = volume(other, 1);
        for before in [vec![0; bytes.len()], bytes] {
            let mut disk = Disk::new(&before);
            let size = u64::try_from(before.len()).unwrap();
            let data_offset = (version == LuksVersion::Luks2).then_some(1 << 20);
            let options = FormatOptions { data_offset, ..options(version, 32) };
            let key = format(&mut disk, size, PASSPHRASES[2], &options).unwrap();
            assert_eq!(opening(disk.bytes.get_ref(), &key), [2]);
            each_cut(&before, &disk.done, |_| ());
        }
    }
}

/// With the old header put back, the removed passphrase opens nothing.
#[test]
fn removed_key_material_is_overwritten() {
    for version in [LuksVersion::Luks2, LuksVersion::Luks1] {
        let (bytes, key) = volume(version, 1);
        let (mut disk, edit) = loaded(&bytes);
        commit(edit.remove(1, LastSlot::Keep), &mut disk).unwrap();
        let mut after = disk.bytes.into_inner();
        let header = header_len(version);
        after[..header].copy_from_slice(&bytes[..header]);
        assert_eq!(opening(&after, &key), [0]);
    }
}

/// A user who removes a passphrase and is cut off sees that it is still there, or it opens nothing, not even with the
/// old header put back.
#[test]
fn removal_is_never_believed_before_the_key_material_is_gone() {
    for version in [LuksVersion::Luks2, LuksVersion::Luks1] {
        let (bytes, _) = volume(version, 1);
        let size = u64::try_from(bytes.len()).unwrap();
        let edit = Edit::load(&mut Cursor::new(&bytes), size).unwrap();
        let header = header_len(version);
        for all in [false, true] {
            let mut disk = Disk::new(&bytes);
            let change = if all { edit.erase() } else { edit.remove(1, LastSlot::Keep) };
            commit(change, &mut disk).unwrap();
            let mut gone = 0;
            each_cut(&bytes, &disk.done, |cut| {
                let now = read(&mut Cursor::new(cut), size).unwrap();
                if now.info().keyslots.iter().any(|slot| slot.id == 1) {
                    return;
                }
                gone += 1;
                let mut old = cut.to_vec();
                old[..header].copy_from_slice(&bytes[..header]);
                let mut old = Cursor::new(old);
                let options = UnlockOptions::default();
                assert!(edit.header().unlock(&mut old, PASSPHRASES[1], &options).is_err(), "{version:?}");
            });
            assert!(gone > 0);
        }
    }
}

/// As a change that was cut off leaves it: the header does not know of the second slot.
#[test]
fn erased_volume_has_no_key_material_that_was_lost_before() {
    for version in [LuksVersion::Luks2, LuksVersion::Luks1] {
        let (bytes, _) = volume(version, 1);
        let size = u64::try_from(bytes.len()).unwrap();
        let edit = Edit::load(&mut Cursor::new(&bytes), size).unwrap();
        let mut disk = Disk::new(&bytes);
        commit(edit.remove(1, LastSlot::Keep), &mut disk).unwrap();
        let header = header_len(version);
        let mut left = bytes.clone();
        left[..header].copy_from_slice(&disk.bytes.get_ref()[..header]);
        let (mut disk, forgetful) = loaded(&left);
        commit(forgetful.erase(), &mut disk).unwrap();
        let mut after = disk.bytes.into_inner();
        after[..header].copy_from_slice(&bytes[..header]);
        let (mut after, options) = (Cursor::new(after), UnlockOptions::default());
        for passphrase in &PASSPHRASES[..2] {
            assert!(edit.header().unlock(&mut after, passphrase, &options).is_err(), "{version:?}");
        }
    }
}
