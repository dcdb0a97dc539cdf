//! Changes, with what stays as it is, and refusals.

use std::io::Cursor;

use serde_json::json;

use super::{Edit, HeaderChange, LastSlot, NewSlot, Priority};
use crate::format::{FormatOptions, KdfKind, LuksVersion};
use crate::luks2::binary::HeaderCopy;
use crate::seal::{Covers, Seal, SealKind};
use crate::testing::{Image, PASSPHRASE, cheap_options, cheap_slot};
use crate::{Error, ErrorKind, LuksHeader, UnlockOptions};

fn refused(image: &Image, change: impl FnOnce(&Edit) -> Result<HeaderChange<'_>, Error>) -> Error {
    let edit = image.load().unwrap();
    let error = change(&edit).err();
    error.expect("it should be refused")
}

/// Slots, digests and tokens of others, flags and members that are not known here.
fn with_strange_members() -> Image {
    let mut image = Image::luks2();
    image.edit(|json| {
        json["tokens"]["3"] = json!({"type": "of-others", "keyslots": ["0"], "x": {"y": [1.5, "\u{e4}/"]}});
        json["config"]["flags"] = json!(["allow-discards", "not-known"]);
        json["config"]["later"] = json!({"a": null});
        json["keyslots"]["0"]["hint"] = json!("red");
        json["keyslots"]["0"]["priority"] = json!(2);
        json["of_tomorrow"] = json!([true]);
    });
    image
}

/// Where no key slot tells how long it is, either.
#[test]
fn volume_key_with_zeros_behind_it_is_another_key() {
    for version in [LuksVersion::Luks1, LuksVersion::Luks2] {
        let options = FormatOptions { key_len: 32, ..cheap_options(version) };
        let mut image = Image::format(17 << 20, &options);
        let key = image.key();
        let longer = [&key[..], &[0; 32]].concat();
        for is_erased in [false, true] {
            if is_erased {
                image.change(|edit| edit.erase()).unwrap();
            }
            let header = image.read().unwrap();
            let check = |key: &[u8]| header.verify_volume_key(key, crate::KdfLimits::default());
            check(&key).unwrap();
            let refused = check(&longer).unwrap_err();
            assert!(matches!(refused, Error::WrongVolumeKey), "{version:?}, erased: {is_erased}: {refused}");
        }
    }
}

#[test]
fn what_is_not_known_is_kept_by_every_change() {
    let mut image = with_strange_members();
    let key = image.key();
    let before = image.json();
    image.change(|edit| Ok(edit.add(&key, b"new", &cheap_slot())?.0)).unwrap();
    image.change(|edit| Ok(edit.replace(0, &key, b"newer", &cheap_slot())?.0)).unwrap();
    image.change(|edit| edit.set_label(Some("l"), None)).unwrap();
    image.change(|edit| edit.set_priority(1, Priority::Ignore)).unwrap();
    image.change(|edit| edit.remove(1, LastSlot::Keep)).unwrap();
    let mut after = image.json();
    for member in ["af", "area", "kdf"] {
        after["keyslots"]["0"][member] = before["keyslots"]["0"][member].clone();
    }
    assert_eq!(after, before);
    assert_eq!(
        after["keyslots"]["0"].to_string().replace("priority", ""),
        before["keyslots"]["0"].to_string().replace("priority", "")
    );
}

/// Bytes of the binary part that no program knows yet.
#[test]
fn reserved_bytes_are_kept() {
    let mut image = Image::luks2();
    let json = image.json().to_string();
    image.bytes[300] = 7;
    image.bytes[3000] = 8;
    let whole = image.bytes[..0x4000].to_vec();
    let sum = crate::luks2::binary::checksum(crate::Hash::Sha256, &whole);
    image.bytes[448..512].copy_from_slice(&sum);
    assert!(image.read().unwrap().warnings().is_empty(), "{json}");
    image.change(|edit| edit.set_label(Some("x"), Some("y"))).unwrap();
    for start in [0, 0x4000] {
        assert_eq!((image.bytes[start + 300], image.bytes[start + 3000]), (7, 8));
    }
    let LuksHeader::V2(header) = image.read().unwrap() else {
        panic!("LUKS2");
    };
    assert_eq!((&*header.binary.label, &*header.binary.subsystem), ("x", "y"));
    assert_eq!(header.binary.epoch, 2);
    assert_ne!(image.bytes[104..168], image.bytes[0x4000 + 104..0x4000 + 168]);
}

#[test]
fn json_that_would_not_come_back_as_it_is_is_left_alone() {
    let mut image = Image::luks2();
    let json = image.json().to_string();
    let json = json.replacen('{', r#"{"large":123456789012345678901234567890,"#, 1);
    image.set_json(json.as_bytes());
    assert!(matches!(image.load(), Err(Error::JsonNotKept)));
}

#[test]
fn slots_are_taken_from_the_lowest_and_the_named_one_until_all_are_full() {
    for mut image in [Image::luks2(), Image::luks1()] {
        let key = image.key();
        let named = NewSlot { slot: Some(2), ..cheap_slot() };
        let add = |image: &mut Image, new: &NewSlot, passphrase: &[u8]| {
            let edit = image.load().unwrap();
            let (change, slot) = edit.add(&key, passphrase, new)?;
            image.commit(change)?;
            Ok::<_, Error>(slot)
        };
        assert_eq!(add(&mut image, &named, b"2").unwrap(), 2);
        let error = add(&mut image, &named, b"2").unwrap_err();
        assert!(matches!(error, Error::SlotInUse(2)), "{error}");
        assert_eq!(add(&mut image, &cheap_slot(), b"1").unwrap(), 1);
        let mut added = 3;
        let error = loop {
            match add(&mut image, &cheap_slot(), b"more") {
                Ok(_) => added += 1,
                Err(error) => break error,
            }
        };
        let LuksHeader::V1(_) = image.read().unwrap() else {
            // The slots of the test image's 1 MiB end before their numbers do.
            assert!(matches!(error, Error::NoRoom { .. }), "{error}");
            continue;
        };
        assert_eq!(added, 8);
        assert!(matches!(error, Error::NoFreeSlot(8)), "{error}");
        let far = NewSlot { slot: Some(8), ..cheap_slot() };
        assert_eq!(add(&mut image, &far, b"").unwrap_err().kind(), ErrorKind::Parameters);
    }
}

#[test]
fn last_slot_stays_unless_it_is_said() {
    for mut image in [Image::luks2(), Image::luks1()] {
        let error = refused(&image, |edit| edit.remove(0, LastSlot::Keep));
        assert!(matches!(error, Error::LastSlot(0)), "{error}");
        assert!(error.to_string().contains("key slot 0 is the last one"));
        let error = refused(&image, |edit| edit.remove(1, LastSlot::Remove));
        assert!(matches!(error, Error::SlotNotInUse(1)), "{error}");
        let key = image.key();
        image.change(|edit| edit.remove(0, LastSlot::Remove)).unwrap();
        assert!(image.read().unwrap().info().keyslots.is_empty());
        // The volume key itself still does, and makes a new slot.
        image.change(|edit| Ok(edit.add(&key, PASSPHRASE, &cheap_slot())?.0)).unwrap();
        assert_eq!(image.key(), key);
    }
}

#[test]
fn wrong_volume_key_makes_no_slot() {
    for image in [Image::luks2(), Image::luks1()] {
        let mut key = image.key();
        key[0] ^= 1;
        let error = refused(&image, |edit| Ok(edit.add(&key, b"new", &cheap_slot())?.0));
        assert!(matches!(error, Error::WrongVolumeKey), "{error}");
    }
}

#[test]
fn header_that_another_program_has_written_meanwhile_is_left_alone() {
    for image in [Image::luks2(), Image::luks1()] {
        let edit = image.load().unwrap();
        let mut other = image.clone();
        other.change(|edit| edit.set_uuid(None)).unwrap();
        let before = other.bytes.clone();
        let change = edit.erase().unwrap();
        let error = other.commit(change).err().unwrap();
        assert!(matches!(error, Error::ChangedMeanwhile), "{error}");
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert_eq!(other.bytes, before);
    }
}

#[test]
fn unknown_requirement_and_reencryption_allow_no_change() {
    for (name, words) in
        [("time-travel", "requires 'time-travel'"), ("online-reencrypt-v2", "reencryption in progress")]
    {
        let mut image = Image::luks2();
        let key = image.key();
        image.edit(|json| json["config"]["requirements"] = json!({"mandatory": [name]}));
        for error in [
            refused(&image, |edit| Ok(edit.add(&key, b"new", &cheap_slot())?.0)),
            refused(&image, |edit| Ok(edit.replace(0, &key, b"new", &cheap_slot())?.0)),
            refused(&image, |edit| edit.remove(0, LastSlot::Remove)),
            refused(&image, |edit| edit.erase()),
            refused(&image, |edit| edit.set_priority(0, Priority::Ignore)),
            refused(&image, |edit| edit.set_uuid(None)),
            refused(&image, |edit| edit.set_label(Some("x"), None)),
        ] {
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}

#[test]
fn luks1_has_no_priorities_and_labels_and_pbkdf2_only() {
    let image = Image::luks1();
    let key = image.key();
    let argon2 = NewSlot { kdf: Some(KdfKind::Argon2id), ..cheap_slot() };
    for error in [
        refused(&image, |edit| edit.set_priority(0, Priority::Prefer)),
        refused(&image, |edit| edit.set_label(Some("x"), None)),
        refused(&image, |edit| Ok(edit.add(&key, b"new", &argon2)?.0)),
    ] {
        assert_eq!(error.kind(), ErrorKind::Parameters, "{error}");
    }
}

#[test]
fn texts_that_do_not_fit_are_refused() {
    let image = Image::luks2();
    let long = "x".repeat(48);
    for error in [
        refused(&image, |edit| edit.set_label(Some(&long), None)),
        refused(&image, |edit| edit.set_label(None, Some("a\0b"))),
        refused(&image, |edit| edit.set_uuid(Some("x"))),
    ] {
        assert_eq!(error.kind(), ErrorKind::Parameters, "{error}");
    }
}

#[test]
fn repair_has_nothing_to_do_where_both_copies_are_good() {
    for image in [Image::luks2(), Image::luks1()] {
        assert!(image.load().unwrap().repair(false).unwrap().is_none());
    }
    let mut image = Image::luks2();
    image.edit_binary(HeaderCopy::Secondary, |binary| binary.epoch += 3);
    image.change(|edit| Ok(edit.repair(false)?.unwrap())).unwrap();
    let header = image.read().unwrap();
    assert!(header.warnings().is_empty());
    assert_eq!(header.info().epoch, Some(5));
}

#[test]
fn backup_brings_a_lost_header_back() {
    for image in [Image::luks2(), Image::luks1()] {
        let backup = image.backup();
        let mut lost = image.clone();
        lost.bytes[..backup.len()].fill(0);
        assert!(lost.prepare(backup.clone()).unwrap().concerns()[0].contains("no LUKS header"));
        lost.restore(backup).unwrap();
        assert_eq!(lost.key(), image.key());
    }
}

#[test]
fn backup_of_another_volume_is_named_and_that_of_another_shape_refused() {
    let image = Image::luks2();
    let mut other = cheap_options(LuksVersion::Luks2);
    other.data_offset = Some(1 << 20);
    let other = Image::format(image.size(), &other);
    let restore = image.prepare(other.backup()).unwrap();
    assert!(restore.concerns()[1].contains("of another volume"), "{:?}", restore.concerns());
    assert!(restore.concerns()[2].contains("of another volume key"));
    let mut changing = image.clone();
    changing.edit(|json| {
        json["config"]["requirements"] = json!({"mandatory": ["online-reencrypt-v2"]});
    });
    let error = changing.prepare(image.backup()).err().unwrap();
    assert!(matches!(error, Error::ReencryptionInProgress(_)), "{error}");
    let options = FormatOptions { data_offset: Some(512 << 10), ..cheap_options(LuksVersion::Luks2) };
    let small = Image::format(image.size(), &options);
    let error = image.prepare(small.backup()).err().unwrap();
    assert!(matches!(error, Error::BackupDiffers(_)), "{error}");
    let mut cut = image.backup();
    cut.truncate(cut.len() - 4096);
    let error = image.prepare(cut).err().unwrap();
    assert!(matches!(error, Error::NotABackup(_)), "{error}");
    let error = image.prepare(vec![0; 1 << 20]).err().unwrap();
    assert!(matches!(error, Error::NotABackup(_)), "{error}");
    let mut short = image.clone();
    short.bytes.truncate(1 << 19);
    let error = short.prepare(image.backup()).err().unwrap();
    assert!(matches!(error, Error::TooSmall { .. }), "{error}");
}

#[test]
fn device_that_was_written_since_it_was_looked_at_is_left_alone() {
    let image = Image::luks2();
    let restore = image.prepare(image.backup()).unwrap();
    let mut other = image.clone();
    other.change(|edit| edit.set_label(Some("x"), None)).unwrap();
    let error = restore.commit(&mut Cursor::new(&mut other.bytes), image.size());
    assert!(matches!(error, Err(Error::ChangedMeanwhile)));
}

#[test]
fn without_a_slot_its_passphrase_opens_nothing() {
    for mut image in [Image::luks2(), Image::luks1()] {
        let key = image.key();
        image.change(|edit| Ok(edit.add(&key, b"new", &cheap_slot())?.0)).unwrap();
        let header = image.read().unwrap().without_slot(0);
        let mut device = image.device();
        let options = UnlockOptions::default();
        assert!(header.unlock(&mut device, PASSPHRASE, &options).is_err());
        assert_eq!(header.unlock(&mut device, b"new", &options).unwrap().slot, 1);
    }
}

/// As after a crash between the header and what it no longer names.
#[test]
fn key_material_that_a_crash_left_is_overwritten_when_asked() {
    let mut image = Image::luks2();
    let key = image.key();
    image.change(|edit| Ok(edit.add(&key, b"new", &cheap_slot())?.0)).unwrap();
    let before = image.json();
    image.edit(|json| {
        json["keyslots"].as_object_mut().unwrap().shift_remove("0");
        json["digests"]["0"]["keyslots"] = json!(["1"]);
    });
    image.change(Edit::wipe_unused).unwrap();
    image.set_json(before.to_string().as_bytes());
    let opens = |passphrase: &[u8]| {
        let mut device = image.device();
        let header = image.read().unwrap();
        header.unlock(&mut device, passphrase, &UnlockOptions::default()).is_ok()
    };
    assert!(opens(b"new") && !opens(PASSPHRASE));
    let mut image = Image::luks1();
    image.change(Edit::wipe_unused).unwrap();
    assert_eq!(image.key(), Image::luks1().key());
    let edit = image.load().unwrap();
    assert!(edit.wipe_unused().unwrap().wiped.iter().map(|place| place.size).sum::<u64>() >= 7 * 128_000);
}

#[test]
fn seal_beside_a_header_is_void_only_where_that_changes() {
    for image in [Image::luks2(), Image::luks1()] {
        let covers = Covers { keyslots: true, tokens: false };
        let subject = image.read().unwrap().subject(covers).unwrap();
        let seal = Seal::new(&[1; 64], SealKind::File, &subject, covers, 1).unwrap();
        let edit = image.load().unwrap();
        assert!(!edit.wipe_unused().unwrap().voids(&seal, true));
        assert!(edit.set_uuid(None).unwrap().voids(&seal, true));
    }
}

#[test]
fn copy_that_a_newer_program_wrote_is_left_alone() {
    let mut image = Image::luks2();
    image.bytes[7] = 3;
    assert!(matches!(image.load(), Err(Error::NewerVersion(3))));
}
