//! Conversions that stop anywhere: the header is that of one version or the other, and opens with the same passphrases.

use super::*;
use crate::options::LuksVersion::{Luks1, Luks2};
use crate::testing::sectors_left;

fn converted(edit: &Edit, to: LuksVersion, disk: &mut Disk) -> Result<(), Error> {
    let size = u64::try_from(disk.bytes.get_ref().len()).unwrap();
    let change = edit.convert(to, disk, size)?;
    change.commit(disk, size).map(drop)
}

/// There and back.
#[track_caller]
fn survives_both_ways(before: &[u8], key: &[u8], first: LuksVersion) {
    let passphrases = opening(before, key);
    let mut bytes = before.to_vec();
    let other = if first == Luks1 { Luks2 } else { Luks1 };
    for to in [other, first] {
        let before = std::mem::take(&mut bytes);
        let sets: &[&[usize]] = &[&passphrases];
        survives(&before, key, sets, |edit, disk| {
            converted(edit, to, disk)?;
            bytes = disk.bytes.get_ref().clone();
            Ok(())
        });
        let size = u64::try_from(bytes.len()).unwrap();
        let header = read(&mut Cursor::new(&bytes), size).unwrap();
        let is = if matches!(header, LuksHeader::V1(_)) { Luks1 } else { Luks2 };
        assert_eq!(is, to);
        assert!(header.warnings().is_empty(), "{:?}", header.warnings());
        // What a header of the other version was is not found by whoever looks for it.
        if to == Luks1 {
            let copies = [0x4000, 0x8000].map(|offset| &bytes[offset..offset + 6]);
            assert!(copies.iter().all(|copy| **copy != *b"SKUL\xba\xbe"));
        }
        // It can be changed, and has all that it had.
        let (mut disk, edit) = loaded(&bytes);
        added(&edit, key, None, &mut disk).unwrap();
        let more = opening(disk.bytes.get_ref(), key);
        assert_eq!(more.len(), passphrases.len() + 1, "{more:?}");
    }
}

#[test]
fn luks2_becomes_luks1_and_luks2_again_at_every_cut() {
    let options = FormatOptions { sector_size: Some(512), data_offset: Some(3 << 20), ..options(Luks2, 64) };
    let (bytes, key) = formatted(&options, 4 << 20, &[0, 1]);
    survives_both_ways(&bytes, &key, Luks2);
}

/// The first key slot of LUKS1 lies where the header of LUKS2 will be. With long keys there is no other room for it than
/// that of a slot that is free.
#[test]
fn luks1_becomes_luks2_and_luks1_again_at_every_cut() {
    for (key_len, second) in [(32, 6), (64, 1)] {
        let (bytes, key) = formatted(&options(Luks1, key_len), 3 << 20, &[0, second]);
        survives_both_ways(&bytes, &key, Luks1);
    }
}

/// The file ends with the last key slot of LUKS1, and becomes as long as the header of LUKS2 says, wherever data begins.
#[test]
fn detached_luks1_becomes_luks2_and_luks1_again_at_every_cut_of_a_file_that_grows() {
    for (data_offset, grown) in [(None, 16 << 20), (Some(3 << 20), 3 << 20)] {
        let options = FormatOptions { detached: true, data_offset, ..options(Luks1, 64) };
        let size = 4096 + 8 * 258_048 - 2048;
        let (bytes, key) = formatted(&options, size, &[0, 1]);
        assert_eq!(u64::try_from(bytes.len()).unwrap(), size);
        survives_both_ways(&bytes, &key, Luks1);
        let (mut disk, edit) = loaded(&bytes);
        converted(&edit, Luks2, &mut disk).unwrap();
        assert_eq!(disk.bytes.get_ref().len(), grown);
    }
}

/// Key slots packed by 512 bytes: the only place for the second to move to is so near to where the first has been that
/// its last page would lie over that one, which the old header still names.
#[test]
fn key_slot_that_was_moved_is_not_overwritten_where_the_old_header_has_it() {
    let (mut bytes, _) = formatted(&options(Luks1, 64), 3 << 20, &[0, 1]);
    let mut put = |at: usize, number: u32| bytes[at..at + 4].copy_from_slice(&number.to_be_bytes());
    let packed = [32768 + 256_000, 545_280, 32768, 1_065_472, 1_321_472, 1_577_472, 1_833_472, 2_089_472];
    for (slot, offset) in packed.into_iter().enumerate() {
        put(208 + 48 * slot + 40, offset / 512);
    }
    put(104, 2_345_472 / 512);
    let (mut disk, edit) = loaded(&bytes);
    let error = converted(&edit, Luks2, &mut disk).unwrap_err();
    assert!(matches!(error, Error::NoRoom { .. }), "{error}");
    assert!(disk.done.is_empty());
}

/// A key slot that was moved leaves nothing that opens once it is removed.
#[test]
fn key_material_that_was_moved_is_gone_where_it_was() {
    let (bytes, key) = volume(Luks1, 1);
    let size = u64::try_from(bytes.len()).unwrap();
    let (mut disk, edit) = loaded(&bytes);
    converted(&edit, Luks2, &mut disk).unwrap();
    let edit = Edit::load(&mut disk, size).unwrap();
    commit(edit.remove(0, LastSlot::Keep), &mut disk).unwrap();
    let mut after = disk.bytes.into_inner();
    after[..1024].copy_from_slice(&bytes[..1024]);
    assert_eq!(opening(&after, &key), [1]);
    let lost = |from: usize, to: usize| after[from..to] != bytes[from..to];
    assert!(lost(0x8000, 0x9000) && lost(0x1e000, 0x1f000));
}

/// Key material that a crash has left in no key slot's place, where LUKS1 has none.
#[test]
fn what_lay_between_key_slots_of_luks2_is_gone_from_luks1() {
    let options = FormatOptions { sector_size: Some(512), data_offset: Some(3 << 20), ..options(Luks2, 64) };
    let (mut bytes, key) = formatted(&options, 4 << 20, &[0]);
    let stripes = bytes[0x8000..][..256_000].to_vec();
    bytes[5 << 19..][..stripes.len()].copy_from_slice(&stripes);
    let (mut disk, edit) = loaded(&bytes);
    converted(&edit, Luks1, &mut disk).unwrap();
    assert_eq!(opening(disk.bytes.get_ref(), &key), [0]);
    assert_eq!(sectors_left(disk.bytes.get_ref(), &stripes), 500);
}

/// The key slot that was moved for LUKS2 lies behind the end of the backup, and the others over the header that says so.
#[test]
fn nothing_of_a_key_slot_behind_the_end_of_a_backup_is_left_by_a_restore_that_is_finished_from_any_cut() {
    let (luks1, key) = volume(Luks1, 1);
    let image = Image { bytes: luks1.clone() };
    let (backup, size) = (image.backup(), image.size());
    let (mut disk, edit) = loaded(&luks1);
    converted(&edit, Luks2, &mut disk).unwrap();
    let before = disk.bytes.into_inner();
    let (stripes, behind) = (&luks1[4096..][..128_000], backup.len());
    assert_eq!(sectors_left(&before[behind..], stripes), 250);
    let restore = |disk: &mut Disk| {
        let restore = Restore::prepare(backup.clone(), disk, size).unwrap();
        restore.commit(disk, size).unwrap()
    };
    let mut disk = Disk::new(&before);
    restore(&mut disk);
    let count = each_cut(&before, &disk.done, |bytes| {
        let mut again = Disk::new(bytes);
        restore(&mut again);
        assert_eq!(sectors_left(&again.bytes.get_ref()[behind..], stripes), 0);
    });
    assert!(count > 50, "{count}");
    assert_eq!(opening(disk.bytes.get_ref(), &key), [0, 1]);
}

#[test]
fn luks1_without_room_to_move_a_key_slot_is_left_alone() {
    let (bytes, _) = formatted(&options(Luks1, 64), 3 << 20, &[0, 1, 2, 3, 4, 5, 6, 7]);
    let (mut disk, edit) = loaded(&bytes);
    let error = converted(&edit, Luks2, &mut disk).unwrap_err();
    assert!(matches!(error, Error::NoRoom { .. }), "{error}");
    assert!(disk.done.is_empty());
}
