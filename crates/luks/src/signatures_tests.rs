//! Contents that are known by their signatures, and that nothing else is.

use std::io::Cursor;

use super::{LVM, MBR_MARK, SIGNATURES, find};
use crate::edit::Edit;
use crate::testing::{Image, PASSPHRASE};
use crate::{Error, ErrorKind, UnlockOptions};

const SIZE: usize = 1 << 20;

fn found(bytes: &[u8]) -> Option<&'static str> {
    find(&mut Cursor::new(bytes), bytes.len() as u64).unwrap()
}

fn put(bytes: &mut [u8], offset: u64, what: &[u8]) {
    let offset = usize::try_from(offset).unwrap();
    bytes[offset..offset + what.len()].copy_from_slice(what);
}

/// The bytes between the parts are `filler`, so that what has to be zero has to be there.
#[test]
fn every_signature_is_found_wherever_it_may_start() {
    for signature in SIGNATURES {
        for &start in signature.starts {
            for filler in [0, 0xa5] {
                let mut bytes = vec![filler; SIZE];
                for (offset, part) in signature.parts {
                    put(&mut bytes, start + *offset as u64, part);
                }
                assert_eq!(found(&bytes), Some(signature.name), "at {start}");
            }
        }
    }
}

#[test]
fn no_signature_is_found_with_a_part_missing() {
    for signature in SIGNATURES {
        let start = signature.starts[0];
        for missing in signature.parts {
            let mut bytes = vec![0xa5; SIZE];
            for (offset, part) in signature.parts {
                put(&mut bytes, start + *offset as u64, part);
            }
            let place = usize::try_from(start).unwrap() + missing.0;
            bytes[place] ^= 0xff;
            assert_ne!(found(&bytes), Some(signature.name));
        }
    }
}

#[test]
fn arrays_that_keep_their_superblock_at_the_end_are_found() {
    const MD_1: &[u8] = b"\xfc\x4e\x2b\xa9\x01\0\0\0";
    const MD_0_LITTLE: &[u8] = b"\xfc\x4e\x2b\xa9\0\0\0\0\x5a\0\0\0";
    const MD_0_BIG: &[u8] = b"\xa9\x2b\x4e\xfc\0\0\0\0\0\0\0\x5a";
    // (size of the device, place of the superblock, its start, part of the name)
    let cases: [(usize, usize, &[u8], &str); 9] = [
        (SIZE, SIZE - 8192, MD_1, "Linux RAID"),
        (SIZE + 4095, SIZE - 8192, MD_1, "Linux RAID"),
        (SIZE, SIZE - 65536, MD_0_LITTLE, "Linux RAID"),
        (SIZE + 65535, SIZE - 65536, MD_0_BIG, "Linux RAID"),
        (SIZE, SIZE - 1024, b"Intel Raid ISM Cfg Sig. 1.3.00", "Intel RAID"),
        (SIZE, SIZE - 512, b"\xde\x11\xde\x11", "DDF RAID"),
        (SIZE, SIZE - 257 * 512, b"\x11\xde\x11\xde", "DDF RAID"),
        (SIZE, SIZE - 4096 + 60, b"\x83\x74\x02\x6b", "DRBD"),
        (SIZE, SIZE - 4096 + 60, b"\x83\x74\x02\x6d", "DRBD"),
    ];
    for (size, place, start, name) in cases {
        let mut bytes = vec![0; size];
        put(&mut bytes, place as u64, start);
        assert!(found(&bytes).is_some_and(|found| found.contains(name)), "{name}");
    }
}

#[test]
fn zfs_is_found_by_any_of_its_uberblocks_in_either_byte_order() {
    for (place, magic) in [(128 << 10, b"\x0c\xb1\xba\0\0\0\0\0"), ((256 << 10) - 1024, b"\0\0\0\0\0\xba\xb1\x0c")] {
        let mut bytes = vec![0; SIZE];
        put(&mut bytes, place, magic);
        assert_eq!(found(&bytes), Some("a part of a ZFS pool"));
    }
}

#[test]
fn partition_table_of_a_pc_is_told_from_a_mark_by_chance() {
    let mut bytes = vec![0; SIZE];
    put(&mut bytes, 510, &[0x55, 0xaa]);
    assert_eq!(found(&bytes), Some("an MBR partition table"));
    bytes[446] = 0x80;
    assert_eq!(found(&bytes), Some("an MBR partition table"));
    bytes[462] = 0x17;
    assert_eq!(found(&bytes), None);
}

#[test]
fn nothing_is_found_in_zeros_in_headers_or_on_short_devices() {
    for len in [0, 1, 511, 512, 4096, 70_000, SIZE] {
        assert_eq!(found(&vec![0; len]), None, "{len}");
        assert_eq!(found(&vec![0xff; len]), None, "{len}");
    }
    assert_eq!(found(&Image::luks2().bytes), None);
    assert_eq!(found(&Image::luks1().bytes), None);
}

/// A disk that was a LUKS volume: its old secondary copy is whole and must not open it.
fn reused(place: usize, what: &[u8]) -> Image {
    let mut image = Image::luks2();
    image.bytes[..4096].fill(0);
    put(&mut image.bytes, place as u64, what);
    image
}

#[test]
fn secondary_copy_left_on_a_disk_of_another_use_is_refused_by_name() {
    let mut pv = vec![0; 32];
    pv[..8].copy_from_slice(b"LABELONE");
    pv[24..].copy_from_slice(b"LVM2 001");
    let error = reused(512, &pv).read().unwrap_err();
    assert!(matches!(error, Error::OtherContents { what, left: 0x4000, .. } if what == LVM), "{error}");
    assert_eq!(error.kind(), ErrorKind::Device);
    let message = error.to_string();
    for part in [
        "an LVM physical volume",
        "the primary header copy is damaged (missing)",
        "`wipefs --offset 0x4000`",
        "read-only, it opens",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn volume_whose_first_sector_is_a_partition_table_is_read_and_repaired_only_if_that_was_said() {
    let image = Image::luks2();
    let mut table = image.clone();
    table.bytes[..512].fill(0);
    put(&mut table.bytes, 510, MBR_MARK);
    let size = table.bytes.len() as u64;
    let header = crate::look(&mut Cursor::new(&table.bytes), size).unwrap();
    let warning = header.warnings().join("\n");
    assert!(warning.contains("an MBR partition table") && warning.contains("only to read"), "{warning}");
    let key = header.unlock(&mut Cursor::new(&table.bytes), PASSPHRASE, &UnlockOptions::default()).unwrap().key;
    assert_eq!(*key, *image.unlock(&UnlockOptions::default()).unwrap().key);
    assert!(matches!(header.check_writable(), Err(Error::OtherContents { .. })));

    let edit = Edit::look(&mut Cursor::new(&table.bytes), size).unwrap();
    for refused in [edit.repair(false).err(), edit.set_label(Some("x"), None).err()] {
        assert!(matches!(refused, Some(Error::OtherContents { .. })), "{refused:?}");
    }
    let change = edit.repair(true).unwrap().unwrap();
    change.commit(&mut Cursor::new(&mut table.bytes), size).unwrap();
    assert!(table.read().unwrap().warnings().is_empty());
}

#[test]
fn magic_that_is_left_does_not_make_another_use_less_so() {
    let mut image = Image::luks2();
    put(&mut image.bytes, 1024, b"\x10\x20\xf5\xf2");
    let error = image.read().unwrap_err();
    assert!(matches!(error, Error::OtherContents { .. }), "{error}");
}

#[test]
fn copy_that_differs_is_refused_beside_another_use_too() {
    let mut image = Image::luks2();
    let end = image.bytes.len();
    put(&mut image.bytes, end as u64 - 1024, b"Intel Raid ISM Cfg Sig. ");
    image.read().unwrap();
    image.edit_binary(crate::luks2::HeaderCopy::Secondary, |binary| binary.epoch += 1);
    let error = image.read().unwrap_err();
    assert!(matches!(error, Error::OtherContents { .. }), "{error}");
    // The primary is the copy that is left.
    image.bytes[0x4000..0x5000].fill(0);
    let error = image.read().unwrap_err();
    assert!(matches!(error, Error::OtherContents { left: 0, .. }), "{error}");
}

#[test]
fn volume_whose_start_was_lost_to_zeros_or_noise_still_opens() {
    let noise = |place: usize| u8::try_from(place * 7 % 251).unwrap();
    for lost in [0, 1] {
        let mut image = Image::luks2();
        for (place, byte) in image.bytes[..4096].iter_mut().enumerate() {
            *byte = noise(place) * lost;
        }
        image.unlock(&UnlockOptions::default()).unwrap();
        assert_eq!(image.read().unwrap().warnings().len(), 1);
    }
}
