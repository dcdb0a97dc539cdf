//! Which copy is used, and what is said about it.

use std::io::Cursor;

use serde_json::json;

use super::binary::{COPY_SIZES, HeaderCopy, MAGIC_SECONDARY};
use crate::testing::{Image, PASSPHRASE};
use crate::{Error, ErrorKind, LuksHeader, UnlockOptions};

#[track_caller]
fn used(image: &Image) -> (HeaderCopy, String) {
    let LuksHeader::V2(header) = image.read().unwrap() else { panic!("LUKS2") };
    image.unlock(&UnlockOptions::default()).unwrap();
    (header.copy, header.warnings.join("\n"))
}

#[test]
fn sound_header_gives_no_warning() {
    assert_eq!(used(&Image::luks2()), (HeaderCopy::Primary, String::new()));
}

#[test]
fn secondary_is_used_when_any_byte_of_the_primary_changed() {
    for offset in [0, 8, 16, 24, 72, 104, 168, 208, 256, 300, 448, 479, 512, 4096, 4200, 16383] {
        let mut image = Image::luks2();
        image.bytes[offset] ^= 1;
        let (copy, warning) = used(&image);
        assert_eq!(copy, HeaderCopy::Secondary, "byte {offset}");
        assert!(warning.starts_with("the primary header copy is damaged"), "{warning}");
    }
}

#[test]
fn primary_is_used_when_any_byte_of_the_secondary_changed() {
    for offset in [0, 7, 8, 16, 24, 256, 448, 4096, 16383] {
        let mut image = Image::luks2();
        image.bytes[0x4000 + offset] ^= 1;
        let (copy, warning) = used(&image);
        assert_eq!(copy, HeaderCopy::Primary, "byte {offset}");
        assert!(warning.starts_with("the secondary header copy is damaged"), "{warning}");
    }
}

/// Such a copy may know of a key slot that the other one does not.
#[test]
fn newest_copy_that_is_not_understood_is_not_damaged_and_only_read_around() {
    for (copy, epoch) in
        [(HeaderCopy::Primary, 99), (HeaderCopy::Secondary, 99), (HeaderCopy::Primary, 1), (HeaderCopy::Secondary, 1)]
    {
        let mut image = Image::luks2();
        image.rewrite(copy, b"{}", |binary| binary.epoch = epoch);
        let error = image.read().unwrap_err();
        assert!(matches!(&error, Error::NotUnderstood { reason, .. } if reason.contains("no \"keyslots\"")), "{error}");
        assert!(error.to_string().contains("read-only") && error.kind() == ErrorKind::Device, "{error}");
        let header = crate::look(&mut image.device(), image.size()).unwrap();
        assert!(header.warnings()[0].contains("is not understood (JSON: no \"keyslots\")"), "{:?}", header.warnings());
        header.unlock(&mut image.device(), PASSPHRASE, &UnlockOptions::default()).unwrap();

        assert!(image.load().is_err());
        let edit = image.look();
        let refused = [edit.repair(false).err(), edit.erase().err(), edit.set_uuid(None).err()];
        assert!(refused.iter().all(|error| matches!(error, Some(Error::NotUnderstood { .. }))), "{refused:?}");
        let repaired = image.repaired(true).unwrap();
        assert_eq!(repaired.read().unwrap().info().epoch, Some(epoch.max(1) + 1));
        assert_eq!(used(&repaired), (HeaderCopy::Primary, String::new()));
    }
}

#[test]
fn older_copy_that_is_not_understood_is_written_anew() {
    let mut image = Image::luks2();
    image.edit_binary(HeaderCopy::Secondary, |binary| binary.epoch = 5);
    image.rewrite(HeaderCopy::Primary, b"{}", |binary| binary.epoch = 4);
    let (copy, warning) = used(&image);
    assert_eq!(copy, HeaderCopy::Secondary);
    assert!(warning.contains("is not understood") && warning.contains("header repair"), "{warning}");
    assert_eq!(used(&image.repaired(false).unwrap()), (HeaderCopy::Primary, String::new()));
}

/// cryptsetup writes texts of tokens as they are given.
#[test]
fn json_that_is_no_utf8_is_read_and_kept_byte_for_byte() {
    let mut image = Image::luks2();
    let text = image.json().to_string();
    let text = text.replacen("\"tokens\":{}", "\"tokens\":{\"0\":{\"type\":\"caf#\",\"keyslots\":[\"0\"]}}", 1);
    let json: Vec<u8> = text.bytes().map(|byte| if byte == b'#' { 0xe9 } else { byte }).collect();
    image.set_json(&json);
    assert_eq!(used(&image), (HeaderCopy::Primary, String::new()));
    assert_eq!(image.read().unwrap().info().tokens[0].kind, "caf\u{fffd}");
    // Another copy that is older, or damaged, takes its place by no means.
    for offset in [0x4000 + 5000, 5000] {
        let mut damaged = image.clone();
        damaged.bytes[offset] ^= 1;
        let repaired = damaged.repaired(false).unwrap();
        assert_eq!(used(&repaired), (HeaderCopy::Primary, String::new()));
        for copy in [0, 0x4000] {
            let area = &repaired.bytes[copy + 4096..][..json.len() + 1];
            assert!(area[..json.len()] == json && area[json.len()] == 0, "{offset} {copy}");
        }
    }
    assert!(matches!(image.load(), Err(Error::JsonNotKept)));
    assert!(matches!(image.look().set_uuid(None).err(), Some(Error::JsonNotKept)));
    let backup = image.backup();
    assert_eq!(backup, image.bytes[..backup.len()]);
}

#[test]
fn copy_with_the_higher_epoch_is_used() {
    let mut image = Image::luks2();
    image.edit_binary(HeaderCopy::Secondary, |binary| binary.epoch += 1);
    let (copy, warning) = used(&image);
    assert_eq!(copy, HeaderCopy::Secondary);
    assert!(warning.contains("the primary header copy is older than the secondary; using the secondary"), "{warning}");

    image.edit_binary(HeaderCopy::Primary, |binary| binary.epoch += 2);
    assert_eq!(used(&image).0, HeaderCopy::Primary);
}

#[test]
fn secondary_of_another_volume_is_not_used_however_new() {
    let mut image = Image::luks2();
    image.edit_binary(HeaderCopy::Secondary, |binary| {
        binary.epoch = u64::MAX;
        binary.uuid = "00000000-0000-4000-8000-000000000000".into();
    });
    let (copy, warning) = used(&image);
    assert_eq!(copy, HeaderCopy::Primary);
    assert!(warning.contains("of another volume"), "{warning}");
}

#[test]
fn secondary_is_found_at_every_legal_offset() {
    for size in COPY_SIZES {
        let image = with_copies_of(size);
        let mut broken = image.clone();
        broken.bytes[..4096].fill(0);
        for image in [&image, &broken] {
            let LuksHeader::V2(header) = image.read().unwrap() else { panic!("LUKS2") };
            assert_eq!(header.binary.copy_size, size);
        }
    }
}

/// A device whose header copies have `size` bytes, with its key slot behind them.
fn with_copies_of(size: u64) -> Image {
    let small = Image::luks2();
    let len = usize::try_from(2 * size).unwrap();
    let mut image = Image { bytes: vec![0; len + (1 << 20)] };
    image.bytes[len..len + 258_048].copy_from_slice(&small.bytes[0x8000..0x8000 + 258_048]);
    let mut json = small.json();
    json["config"]["json_size"] = (size - 4096).to_string().into();
    json["config"]["keyslots_size"] = json!("258048");
    json["keyslots"]["0"]["area"]["offset"] = (2 * size).to_string().into();
    json["segments"]["0"]["offset"] = (2 * size + (1 << 19)).to_string().into();
    let start = &small.bytes[..4096];
    let binary = super::binary::Binary::decode(start, HeaderCopy::Primary, 0);
    let mut binary = binary.unwrap_or_else(|damage| panic!("{damage}"));
    binary.copy_size = size;
    for copy in [HeaderCopy::Primary, HeaderCopy::Secondary] {
        let whole = binary.encode(copy, json.to_string().as_bytes());
        let offset = usize::try_from(binary.offset(copy)).unwrap();
        image.bytes[offset..offset + whole.len()].copy_from_slice(&whole);
    }
    image.unlock(&UnlockOptions::default()).unwrap();
    image
}

#[test]
fn both_copies_damaged_is_said_with_both_reasons() {
    let mut image = Image::luks2();
    image.bytes[5000] ^= 1;
    image.bytes[0x4000 + 72] ^= 1;
    let error = image.read().unwrap_err();
    assert_eq!(
        error.to_string(),
        "both LUKS2 header copies are damaged (primary: checksum mismatch; secondary: unknown checksum 'rha256')"
    );
    assert_eq!(error.kind(), ErrorKind::Device);
}

#[test]
fn later_version_is_called_newer_and_not_damaged() {
    for version in [3, 4, u16::MAX] {
        let mut image = Image::luks2();
        image.bytes[6..8].copy_from_slice(&version.to_be_bytes());
        let error = image.read().unwrap_err();
        assert!(matches!(error, Error::NewerVersion(found) if found == version));
        let message = error.to_string();
        assert!(message.contains("made by a newer version"), "{message}");
        assert_eq!(error.kind(), ErrorKind::Device);
        // With the primary lost, the secondary says the same.
        image.bytes[0x4006..0x4008].copy_from_slice(&version.to_be_bytes());
        image.bytes[..6].fill(0);
        assert!(matches!(image.read().unwrap_err(), Error::NewerVersion(found) if found == version));
    }
}

#[test]
fn header_size_that_is_not_legal_is_not_believed() {
    for size in [0_u64, 4096, 0x4001, 0x80_0000, u64::MAX] {
        let mut image = Image::luks2();
        for copy in [0, 0x4000] {
            image.bytes[copy + 8..copy + 16].copy_from_slice(&size.to_be_bytes());
        }
        let message = image.read().unwrap_err().to_string();
        assert!(message.contains(&format!("header size {size} is not allowed")), "{message}");
    }
}

#[test]
fn header_larger_than_the_file_is_truncated() {
    for len in [8, 4095, 4096, 16383] {
        let mut image = Image::luks2();
        image.bytes.truncate(len);
        let error = image.read().unwrap_err();
        assert!(matches!(error, Error::Truncated { .. }), "{len}: {error}");
        assert_eq!(error.kind(), ErrorKind::Device);
    }
}

#[test]
fn key_slot_beyond_the_file_is_truncated() {
    let mut image = Image::luks2();
    image.bytes.truncate(0x8000 + 258_047);
    let message = image.read().unwrap_err().to_string();
    assert!(message.contains("truncated: key slot 0 needs 290816 bytes"), "{message}");
}

#[test]
fn stated_size_that_is_too_large_gives_an_error() {
    let image = Image::luks2();
    let mut device = Cursor::new(&image.bytes[..0x6000]);
    assert!(crate::read(&mut device, u64::MAX).is_err());
}

#[test]
fn anything_else_is_not_a_luks_device() {
    let empty = Image { bytes: Vec::new() };
    let zeros = Image { bytes: vec![0; 5 << 20] };
    let noise = Image { bytes: (0..1 << 16).map(|byte: u32| byte.to_le_bytes()[0]).collect() };
    for image in [empty, zeros, noise] {
        let error = image.read().unwrap_err();
        assert_eq!(error.to_string(), "not a LUKS volume: no LUKS header found");
        assert_eq!(error.kind(), ErrorKind::Device);
    }
}

#[test]
fn ceph_layered_header_is_refused_by_name() {
    let mut image = Image::luks2();
    image.bytes[..4].copy_from_slice(b"RBDL");
    let message = image.read().unwrap_err().to_string();
    // LUKS1: as long as its header, and with its version.
    image.bytes[6..8].copy_from_slice(&1u16.to_be_bytes());
    assert_eq!(image.read().unwrap_err().to_string(), message);
    assert_eq!(
        message,
        "not supported yet: Ceph layered encryption (RBDL header); make it a LUKS image of its own with `rbd flatten --encryption-passphrase-file`, as docs/ceph.md says: without the passphrases it destroys the data"
    );
}

#[test]
fn format_leaves_no_older_header_to_be_found() {
    let mut old = with_copies_of(0x1_0000);
    let size = u64::try_from(old.bytes.len()).unwrap();
    let mut options = crate::testing::cheap_options(crate::format::LuksVersion::Luks2);
    options.data_offset = Some(512 << 10);
    let mut device = Cursor::new(&mut old.bytes);
    crate::format::format(&mut device, size, b"new", &options).unwrap();
    let magics = old.bytes.windows(6).filter(|window| *window == MAGIC_SECONDARY);
    assert_eq!(magics.count(), 1);
    // With both copies gone there is nothing left of the old volume.
    old.bytes[..0x8000].fill(0);
    assert!(matches!(old.read(), Err(Error::NotLuks)));
}
