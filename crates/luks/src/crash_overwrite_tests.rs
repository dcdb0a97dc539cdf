//! Changes where there is little room, or none, and those of what is not the volume's: cut off anywhere.

use super::*;
use crate::format::FormatOptions;
use crate::testing::{Device, sectors_left};

/// A passphrase of the slots that are in nobody's way.
const MORE: &[u8] = b"more";
const SIZE: u64 = 3 << 20;

/// Puts a passphrase into each slot that there is room for, and returns the last error.
fn fill(bytes: &mut Vec<u8>, key: &[u8]) -> Error {
    loop {
        let mut device = Cursor::new(&mut *bytes);
        let edit = Edit::load(&mut device, SIZE).unwrap();
        match edit.add(key, MORE, &new_slot()) {
            Ok((change, _)) => change.commit(&mut device, SIZE).map(drop).unwrap(),
            Err(error) => return error,
        }
    }
}

/// A volume whose slots are all in use, by `key_len` bytes each; the second passphrase is in slot `second`.
fn full(version: LuksVersion, key_len: u32, second: u32) -> (Vec<u8>, Vec<u8>) {
    let data_offset = (version == LuksVersion::Luks2).then_some(512 << 10);
    let options = FormatOptions { data_offset, ..options(version, key_len) };
    let (mut bytes, key) = formatted(&options, SIZE, &[0, second]);
    let error = fill(&mut bytes, &key);
    let is_full = matches!(error, Error::NoRoom { .. } | Error::NoFreeSlot(_));
    assert!(is_full, "{error}");
    (bytes, key)
}

/// Which of [`PASSPHRASES`] open the volume by these slots. The others would take most of the time.
fn opening_by(bytes: &[u8], key: &[u8], slots: [u32; 2]) -> Vec<usize> {
    let mut device = Cursor::new(bytes);
    let header = read(&mut device, SIZE).unwrap();
    let mut opens = |passphrase: &[u8]| {
        slots.iter().any(|&slot| {
            let options = UnlockOptions { slot: Some(slot), ..UnlockOptions::default() };
            let unlocked = header.unlock(&mut device, passphrase, &options);
            unlocked.is_ok_and(|unlocked| *unlocked.key == *key)
        })
    };
    let numbered = PASSPHRASES.iter().enumerate();
    numbered.filter_map(|(number, passphrase)| opens(passphrase).then_some(number)).collect()
}

/// Puts the passphrase in the place of that of `slot`, and cuts that everywhere.
fn change(bytes: &[u8], key: &[u8], sets: &[&[usize]], slot: u32, passphrase: &[u8], in_place: bool) -> Vec<u8> {
    let (mut disk, edit) = loaded(bytes);
    let change = if in_place {
        edit.replace_in_place(slot, key, passphrase, &new_slot())
    } else {
        let change = edit.replace(slot, key, passphrase, &new_slot());
        change.map(|(change, _)| change)
    };
    commit(change, &mut disk).unwrap();
    assert_eq!(opening(disk.bytes.get_ref(), key), *sets.last().unwrap());
    let count = each_cut(bytes, &disk.done, |bytes| {
        let opening = opening_by(bytes, key, [0, slot]);
        assert!(sets.contains(&&opening[..]), "{opening:?} of {sets:?}");
    });
    assert!(count > 50, "{count}");
    println!("cut points survived: {count}");
    disk.bytes.into_inner()
}

/// Slot 6 lies across two sectors. From the empty place behind the slots, the next change comes back.
#[test]
fn luks1_key_changed_at_every_cut_where_all_slots_are_in_use() {
    for second in [1, 6] {
        let (bytes, key) = full(LuksVersion::Luks1, 32, second);
        let new = PASSPHRASES[2];
        let after = change(&bytes, &key, &[&[0, 1], &[0, 2]], second, new, false);
        if second == 1 {
            continue;
        }
        let before = PASSPHRASES[1];
        let back = change(&after, &key, &[&[0, 2], &[0, 1]], second, before, false);
        let places = |bytes: &[u8]| match read(&mut Cursor::new(bytes), SIZE).unwrap() {
            LuksHeader::V1(header) => header.sectors,
            LuksHeader::V2(_) => unreachable!("it is LUKS1"),
        };
        assert_ne!(places(&after), places(&bytes));
        assert_eq!(places(&back), places(&bytes));
    }
}

/// Where one sector cannot say it all, or something lies behind the slots, nothing moves there.
#[test]
fn luks1_key_moves_to_no_place_that_is_not_empty() {
    let (mut bytes, key) = full(LuksVersion::Luks1, 32, 6);
    let refused = |bytes: &[u8], slot, new: &NewSlot| {
        let edit = Edit::load(&mut Cursor::new(bytes), SIZE).unwrap();
        let change = edit.replace(slot, &key, PASSPHRASES[2], new);
        matches!(change, Err(Error::NoFreeSlot(8)))
    };
    let mut costly = new_slot();
    costly.cost.iterations = Some(2000);
    assert!(!refused(&bytes, 6, &new_slot()));
    assert!(refused(&bytes, 6, &costly) && !refused(&bytes, 5, &costly));
    bytes[(1 << 20) + 8192] = 1;
    assert!(refused(&bytes, 5, &new_slot()));
}

/// The change cannot be atomic. The other slots stay, and what is left of this one counts as gone.
#[test]
fn key_changed_in_place_at_every_cut_leaves_the_others_alone() {
    let sets: &[&[usize]] = &[&[0, 1], &[0], &[0, 2]];
    let new = PASSPHRASES[2];
    for (version, key_len, second) in [(LuksVersion::Luks2, 32, 1), (LuksVersion::Luks1, 64, 6)] {
        let (bytes, key) = full(version, key_len, second);
        let edit = Edit::load(&mut Cursor::new(&bytes), SIZE).unwrap();
        assert!(edit.replace(second, &key, new, &new_slot()).is_err());
        change(&bytes, &key, sets, second, new, true);
    }
}

#[test]
fn slot_that_was_half_overwritten_does_not_let_the_last_one_go() {
    for version in [LuksVersion::Luks2, LuksVersion::Luks1] {
        let (bytes, key) = volume(version, 1);
        let (mut disk, edit) = loaded(&bytes);
        let change = edit.replace_in_place(1, &key, PASSPHRASES[2], &new_slot());
        commit(change, &mut disk).unwrap();
        let mut seen = 0;
        each_cut(&bytes, &disk.done, |bytes| {
            let edit = Edit::load(&mut Cursor::new(bytes), SIZE).unwrap();
            let is_last = opening(bytes, &key) == [0];
            assert_eq!(edit.is_last(0), is_last);
            seen += usize::from(is_last);
        });
        assert!(seen > 5, "{version:?} {seen}");
    }
}

/// The other key is whole or not there.
#[test]
fn luks2_other_key_added_at_every_cut() {
    let (bytes, key) = volume(LuksVersion::Luks2, 1);
    let (other, mut seen) = ([7; 24], [0; 2]);
    let (mut disk, edit) = loaded(&bytes);
    let change = edit.add_unbound(&other, PASSPHRASES[2], &new_slot());
    commit(change.map(|(change, _)| change), &mut disk).unwrap();
    each_cut(&bytes, &disk.done, |bytes| {
        assert_eq!(opening(bytes, &key), [0, 1]);
        let mut device = Cursor::new(bytes);
        let header = read(&mut device, SIZE).unwrap();
        let is_there = header.info().keyslots.iter().any(|slot| slot.id == 2);
        let options = UnlockOptions { slot: Some(2), unbound: true, ..UnlockOptions::default() };
        let opened = header.unlock(&mut device, PASSPHRASES[2], &options);
        assert_eq!(opened.is_ok_and(|opened| *opened.key == other), is_there);
        seen[usize::from(is_there)] += 1;
    });
    assert!(seen.iter().all(|&seen| seen > 10), "{seen:?}");
}

/// Remains of a removal that was cut off are overwritten in the end, and nothing else in between.
#[test]
fn unused_places_wiped_at_every_cut() {
    for version in [LuksVersion::Luks2, LuksVersion::Luks1] {
        let (bytes, key) = volume(version, 1);
        let added = {
            let (mut disk, edit) = loaded(&bytes);
            added(&edit, &key, Some(2), &mut disk).unwrap();
            disk.bytes.into_inner()
        };
        let header = header_len(version);
        let left = [&bytes[..header], &added[header..]].concat();
        let revived = |after: &[u8]| opening(&[&added[..header], &after[header..]].concat(), &key);
        assert_eq!(revived(&left), [0, 1, 2]);
        let mut after = Vec::new();
        survives(&left, &key, &[&[0, 1]], |edit, disk| {
            commit(edit.wipe_unused(), disk)?;
            after = disk.bytes.get_ref().clone();
            Ok(())
        });
        assert_eq!(revived(&after), [0, 1]);
    }
}

/// The header does not name that place any more.
#[test]
fn place_that_a_luks1_slot_has_left_is_wiped_when_asked() {
    let (bytes, key) = full(LuksVersion::Luks1, 32, 1);
    let (mut disk, edit) = loaded(&bytes);
    let moved = edit.replace(1, &key, PASSPHRASES[2], &new_slot());
    commit(moved.map(|(change, _)| change), &mut disk).unwrap();
    let after = disk.bytes.into_inner();
    let LuksHeader::V1(header) = read(&mut Cursor::new(&bytes), SIZE).unwrap() else {
        unreachable!("it is LUKS1");
    };
    let start = header.sectors[1] as usize * SECTOR;
    let place = start..start + 128_000;
    let mut left = after.clone();
    left[place.clone()].copy_from_slice(&bytes[place.clone()]);
    let (mut disk, edit) = loaded(&left);
    commit(Ok(edit.wipe_unused().unwrap()), &mut disk).unwrap();
    let wiped = disk.bytes.into_inner();
    assert_eq!(opening(&wiped, &key), [0, 2]);
    let same = wiped[place.clone()].iter().zip(&bytes[place]);
    assert!(same.filter(|(one, other)| one == other).count() < 2000);
}

/// The place lies between the others then.
#[test]
fn erased_luks1_volume_has_nothing_of_a_key_slot_whose_move_was_cut_off() {
    let (bytes, key) = full(LuksVersion::Luks1, 32, 1);
    let edit = Edit::load(&mut Cursor::new(&bytes), SIZE).unwrap();
    let place = edit.header().inner().areas()[1].1;
    let old = &bytes[usize::try_from(place.offset).unwrap()..][..128_000];
    let (mut disk, edit) = loaded(&bytes);
    let moved = edit.replace(1, &key, PASSPHRASES[2], &new_slot());
    commit(moved.map(|(change, _)| change), &mut disk).unwrap();
    assert_ne!(Edit::load(&mut disk.bytes, SIZE).unwrap().header().inner().areas()[1].1, place);
    each_cut(&bytes, &disk.done, |cut| {
        let (mut disk, edit) = loaded(cut);
        commit(edit.erase(), &mut disk).unwrap();
        assert_eq!(sectors_left(disk.bytes.get_ref(), old), 0);
    });
}

/// Such a place is none for a slot then, and what needs no place goes on.
#[test]
fn place_that_cannot_be_read_keeps_no_luks1_slot_from_being_removed() {
    let (bytes, key) = full(LuksVersion::Luks1, 32, 1);
    let load =
        |readable| Edit::load(&mut Device { disk: Cursor::new(bytes.clone()), readable, write: () }, SIZE).unwrap();
    let replace = |edit: &Edit| {
        let replaced = edit.replace(1, &key, PASSPHRASES[2], &new_slot());
        replaced.map(drop)
    };
    replace(&load(SIZE)).unwrap();
    let edit = load(1 << 20);
    assert!(matches!(replace(&edit), Err(Error::NoFreeSlot(8))));
    assert!(edit.remove(1, LastSlot::Keep).is_ok() && edit.erase().is_ok());
}

/// The header is not there afterwards: whoever put it back would open the volume with what is left.
#[test]
fn what_cannot_be_overwritten_leaves_no_other_key_material() {
    for version in [LuksVersion::Luks2, LuksVersion::Luks1] {
        let (before, key) = volume(version, 1);
        let old = Edit::load(&mut Cursor::new(&before), SIZE).unwrap();
        let slots = if version == LuksVersion::Luks1 { 4096 } else { 0x8000 };
        // A file system that is full, below a file with a hole in it.
        let write = |disk: &mut Cursor<Vec<u8>>, bytes: &[u8]| {
            let at = disk.position();
            if (slots..slots + 4096).contains(&at) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let before = usize::try_from(slots.saturating_sub(at)).unwrap();
            let len = if before == 0 { bytes.len() } else { before };
            disk.write(&bytes[..len.min(bytes.len())])
        };
        let mut device = Device { disk: Cursor::new(before.clone()), readable: u64::MAX, write };
        let change = old.erase().unwrap();
        let error = change.commit(&mut device, SIZE).unwrap_err();
        let expected = format!("key material at offset {slots} could not be overwritten");
        assert!(error.to_string().contains(&expected), "{error}");
        let (mut bytes, header) = (device.disk.into_inner(), header_len(version));
        bytes[..header].copy_from_slice(&before[..header]);
        assert_eq!(opening(&bytes, &key), [0; 0], "{version:?}");
    }
}
