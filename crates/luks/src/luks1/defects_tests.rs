//! One test per defect of a LUKS1 header. LUKS1 has no checksum: any bytes can be there.

use std::io::Cursor;

use crate::edit::NewSlot;
use crate::testing::{Image, PASSPHRASE, cheap_slot};
use crate::{Error, ErrorKind, Guess, SegmentPolicy, UnlockOptions};

const SLOT_0: usize = 208;
const SLOT_1: usize = SLOT_0 + 48;
const SLOT_2: usize = SLOT_0 + 2 * 48;
const SLOT_7: usize = SLOT_0 + 7 * 48;

fn with(offset: usize, bytes: &[u8]) -> Image {
    let mut image = Image::luks1();
    image.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    image
}

#[track_caller]
fn refused(image: &Image, expected: &str) {
    let error = image.read().expect_err("the header should be refused");
    assert!(error.to_string().contains(expected), "{expected}: {error}");
    assert_eq!(error.kind(), ErrorKind::Device);
}

#[test]
fn sound_header_opens() {
    let image = Image::luks1();
    assert_eq!(image.unlock(&UnlockOptions::default()).unwrap().key.len(), 32);
    let segment = image.read().unwrap().segments(SegmentPolicy::default()).unwrap().remove(0);
    assert_eq!((segment.offset, segment.sector_size), (2 << 20, 512));
}

/// Bytes that are no header's, where they are, and what is said of them.
const DEFECTS: [(usize, &[u8], &str); 6] = [
    // No terminating zero.
    (8, &[b'a'; 32], "the cipher name is"),
    (40, &[0; 32], "the cipher mode is ''"),
    (72, b"sha\n1\0", "the hash is 'sha\\n1'"),
    (108, &[0; 4], "a volume key of 0 bytes"),
    (108, &[255; 4], "a volume key of 4294967295 bytes"),
    (164, &[0; 4], "the digest has 0 PBKDF2 iterations"),
];

/// The same of one key slot, and whether that can be written anew from the rest: not at all, not without giving the slot up,
/// or so.
const ODD: [(usize, &[u8], &str, Repair); 10] = [
    (SLOT_0 + 4, &[0; 4], "key slot 0 has 0 PBKDF2 iterations", Repair::GivesUp),
    (SLOT_0 + 44, &4001_u32.to_be_bytes(), "key slot 0 has 4001 stripes", Repair::Whole),
    (SLOT_0 + 40, &1_u32.to_be_bytes(), "key slot 0 overlaps the header", Repair::Whole),
    (SLOT_0 + 40, &4000_u32.to_be_bytes(), "key slot 0 reaches into the data", Repair::Whole),
    (SLOT_0 + 40, &264_u32.to_be_bytes(), "key slot 0 overlaps key slot 1", Repair::Whole),
    // Free slots, of which cryptsetup's own five hostile headers are, are checked as well.
    (SLOT_1, &[1, 2, 3, 4], "key slot 1 is neither active nor free (0x1020304)", Repair::Whole),
    (SLOT_1, &[1, 2, 3, 4, 5], "key slot 1 is neither active nor free (0x1020304)", Repair::GivesUp),
    (SLOT_1 + 40, &1_u32.to_be_bytes(), "key slot 1 overlaps the header", Repair::Whole),
    (SLOT_7 + 40, &3847_u32.to_be_bytes(), "key slot 7 reaches into the data", Repair::Whole),
    (SLOT_7 + 44, &44944_u32.to_be_bytes(), "key slot 7 has 44944 stripes", Repair::Whole),
];

#[derive(Clone, Copy, PartialEq)]
enum Repair {
    Whole,
    GivesUp,
}

/// The others open the volume.
#[test]
fn odd_key_slot_locks_nobody_out_and_is_not_written_around() {
    for (offset, bytes, expected, repair) in ODD {
        let sound = two_slots();
        let mut image = sound.clone();
        image.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        let header = image.read().unwrap();
        assert!(header.warnings()[0].starts_with(expected), "{expected}: {:?}", header.warnings());
        let is_free = offset >= SLOT_1;
        assert_eq!(image.unlock(&UnlockOptions::default()).unwrap().slot, if is_free { 0 } else { 2 }, "{expected}");
        let edit = image.look();
        for refused in [edit.erase().err(), edit.set_uuid(None).err(), edit.wipe_unused().err()] {
            assert!(matches!(refused, Some(Error::OddSlot(_))), "{expected}: {refused:?}");
        }
        assert!(edit.is_last(2) != is_free, "{expected}");
        if repair == Repair::GivesUp {
            assert!(matches!(image.repaired(false), Err(Error::Repair(_) | Error::Guess { .. })), "{expected}");
        }
        let repaired = image.repaired(repair == Repair::GivesUp).unwrap();
        assert!(repaired.read().unwrap().warnings().is_empty(), "{expected}");
        if repair == Repair::Whole {
            assert!(repaired.bytes == sound.bytes, "{expected}");
        }
    }
}

/// With a passphrase in slots 0 and 2.
fn two_slots() -> Image {
    let mut image = Image::luks1();
    let key = image.key();
    let new = NewSlot { slot: Some(2), ..cheap_slot() };
    image.change(|edit| Ok(edit.add(&key, PASSPHRASE, &new)?.0)).unwrap();
    image
}

/// Whatever is odd of them all.
#[test]
fn partition_table_over_the_key_slots_is_repaired_as_far_as_it_goes() {
    let sound = two_slots();
    let mut image = sound.clone();
    // Signature, four partitions, mark.
    image.bytes[440..512].fill(0x5c);
    let header = image.read().unwrap();
    assert_eq!(header.warnings().len(), 3, "{:?}", header.warnings());
    image.unlock(&UnlockOptions::default()).unwrap();
    let error = image.repaired(false).err().unwrap();
    assert!(matches!(error, Error::Guess { .. }), "{error}");
    assert!(image.repaired(true).unwrap().bytes == sound.bytes);
}

/// A free slot has neither iterations nor salt.
#[test]
fn key_slot_of_which_only_the_state_is_lost_is_had_again() {
    let sound = Image::luks1();
    for state in [[1, 2, 3, 4], [0; 4]] {
        let image = with(SLOT_0, &state);
        let error = image.repaired(false).err().unwrap();
        assert!(matches!(error, Error::Guess { would: Guess::InUse, .. }), "{error}");
        assert!(image.repaired(true).unwrap().bytes == sound.bytes);
    }
}

#[test]
fn last_key_slot_of_which_too_little_is_left_is_not_made_free() {
    for (offset, bytes) in [(SLOT_0 + 4, &[0; 4][..]), (SLOT_0, &[1; 16][..])] {
        let mut image = with(offset, bytes);
        if offset == SLOT_0 {
            image.bytes[SLOT_0 + 8..SLOT_0 + 16].fill(0);
        }
        let error = image.repaired(false).err().unwrap();
        assert!(matches!(error, Error::Guess { would: Guess::Free, .. }), "{error}");
        let error = image.repaired(true).err().unwrap();
        assert!(matches!(&error, Error::Repair(why) if why.contains("it could be the last one")), "{error}");
    }
}

/// With key slot 2 at `sector`, in the gap behind the others.
fn moved_to(sector: u32) -> Image {
    let mut image = two_slots();
    let (from, to, len) = ((8 + 2 * 256) * 512, sector as usize * 512, 32 * 4000);
    image.bytes.copy_within(from..from + len, to);
    image.bytes[from..from + len].fill(0);
    image.bytes[SLOT_2 + 40..SLOT_2 + 44].copy_from_slice(&sector.to_be_bytes());
    assert!(image.read().unwrap().warnings().is_empty());
    image.unlock(&UnlockOptions { slot: Some(2), ..UnlockOptions::default() }).unwrap();
    image
}

#[test]
fn place_of_a_key_slot_in_use_is_kept_or_told_from_an_empty_one() {
    let sound = moved_to(3000);
    let mut stripes = sound.clone();
    stripes.bytes[SLOT_2 + 44..SLOT_2 + 48].copy_from_slice(&4001_u32.to_be_bytes());
    assert!(stripes.repaired(false).unwrap().bytes == sound.bytes);
    // A place that is lost is not the usual one, where nothing is.
    for place in [1_u32, u32::MAX] {
        let mut lost = sound.clone();
        lost.bytes[SLOT_2 + 40..SLOT_2 + 44].copy_from_slice(&place.to_be_bytes());
        for force in [false, true] {
            let error = lost.repaired(force).err().unwrap();
            assert!(error.to_string().contains("nothing is at its usual place"), "{error}");
        }
    }
}

#[test]
fn unusual_places_of_key_slots_are_not_guessed() {
    let mut image = Image::luks1();
    for slot in 0..8 {
        let start = SLOT_0 + slot * 48 + 40;
        let sector = u32::try_from(16 + slot * 256).unwrap();
        image.bytes[start..start + 4].copy_from_slice(&sector.to_be_bytes());
    }
    assert!(image.read().unwrap().warnings().is_empty());
    image.bytes[SLOT_1 + 40..SLOT_1 + 44].fill(0xff);
    let error = image.repaired(true).err().unwrap();
    assert!(matches!(error, Error::Repair(_)), "{error}");
    // Also where a slot is that was moved out of the way, or the data.
    let mut moved = Image::luks1();
    moved.bytes[SLOT_1 + 40..SLOT_1 + 44].fill(0xff);
    moved.bytes[SLOT_7 + 40..SLOT_7 + 44].copy_from_slice(&(8_u32 + 256 + 2).to_be_bytes());
    let error = moved.repaired(true).err().unwrap();
    assert!(error.to_string().contains("the usual place of key slot 1 overlaps key slot 7"), "{error}");
}

#[test]
fn each_defect_is_refused_by_name() {
    for (offset, bytes, expected) in DEFECTS {
        refused(&with(offset, bytes), expected);
    }
}

#[test]
fn of_slots_that_overlap_the_one_at_its_usual_place_is_right() {
    let passed_over = |image: &Image, expected: &[&str]| {
        let header = image.read().unwrap();
        assert_eq!(header.warnings().len(), expected.len(), "{:?}", header.warnings());
        for (warning, expected) in header.warnings().iter().zip(expected) {
            assert!(warning.starts_with(expected), "{expected}: {warning}");
        }
        image.unlock(&UnlockOptions::default()).unwrap();
    };
    let first: Vec<u8> = Image::luks1().bytes[SLOT_0..SLOT_1].to_vec();
    passed_over(&with(SLOT_1, &first), &["key slot 1 overlaps key slot 0"]);
    let mut image = Image::luks1();
    let second: Vec<u8> = image.bytes[SLOT_1 + 40..SLOT_1 + 44].to_vec();
    for slot in 2..7 {
        let start = SLOT_0 + slot * 48 + 40;
        image.bytes[start..start + 4].copy_from_slice(&second);
    }
    let others = ["key slot 2 overlaps key slot 1", "key slot 3", "key slot 4", "key slot 5", "key slot 6"];
    passed_over(&image, &others);
}

#[test]
fn odd_uuid_is_shown_without_control_characters_and_does_no_harm() {
    let image = with(168, b"\xff\x1b[2J\0");
    assert_eq!(image.read().unwrap().info().uuid, "\u{fffd}\u{fffd}[2J");
    image.unlock(&UnlockOptions::default()).unwrap();
}

#[test]
fn device_that_ends_before_its_header_or_a_slot_is_truncated() {
    for (mut image, len, expected) in [
        (Image::luks1(), 2050 * 512 - 1, "truncated: key slot 7 needs 1049600 bytes, the device has 1049599"),
        (Image::luks1(), 591, "truncated: the LUKS1 header needs 592 bytes, the device has 591"),
        (with(104, &[0; 4]), 4096 + 127_999, "truncated: key slot 0"),
    ] {
        image.bytes.truncate(len);
        refused(&image, expected);
    }
    let mut image = Image::luks1();
    image.bytes.truncate(2050 * 512);
    image.read().unwrap();
}

#[test]
fn data_beyond_the_device() {
    let image = with(104, &u32::MAX.to_be_bytes());
    let segment = image.read().unwrap().segments(SegmentPolicy::default());
    let size = u64::try_from(image.bytes.len()).unwrap();
    let error = segment.unwrap()[0].data_size(size).unwrap_err();
    assert!(error.to_string().starts_with("device too small"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Device);
}

#[test]
fn iterations_beyond_the_limits_are_refused_without_being_paid() {
    let image = with(SLOT_0 + 4, &u32::MAX.to_be_bytes());
    let error = image.unlock(&UnlockOptions::default()).err().unwrap();
    assert!(matches!(error, Error::CostLimit { .. }), "{error}");
}

#[test]
fn null_cipher_is_refused_unless_allowed() {
    let mut image = with(8, b"cipher_null\0");
    image.bytes[40..44].copy_from_slice(b"ecb\0");
    let header = image.read().unwrap();
    let error = header.segments(SegmentPolicy::default()).unwrap_err();
    assert!(matches!(error, Error::NullCipher(_)), "{error}");
    let error = image.unlock(&UnlockOptions::default()).err().unwrap();
    assert!(matches!(error, Error::NullCipher(_)), "{error}");
    let policy = SegmentPolicy { allow_null_cipher: true, ..SegmentPolicy::default() };
    assert!(header.segments(policy).unwrap()[0].cipher.as_ref().unwrap().is_null());
}

/// As cryptsetup makes such volumes: nothing is encrypted, so only an empty passphrase is taken.
#[test]
fn volume_of_the_null_cipher_opens_with_an_empty_passphrase_where_that_is_allowed() {
    let mut image = Image::luks1();
    let key = image.key();
    image.bytes[8..72].fill(0);
    image.bytes[8..20].copy_from_slice(b"cipher_null\0");
    image.bytes[40..44].copy_from_slice(b"ecb\0");
    // The null cipher needs none of it.
    let kdf = crate::Kdf::Pbkdf2 { hash: "sha256".into(), iterations: 1000, salt: vec![0; 32] };
    let area = crate::area::KeyArea {
        offset: 4096,
        encryption: "cipher_null-ecb".into(),
        encryption_key_len: 32,
        af_hash: crate::Hash::Sha256,
        kdf,
        key_len: 32,
    };
    let mut device = Cursor::new(&mut image.bytes);
    area.store(&mut device, b"", &key, &crate::random::Random::Kernel).unwrap();
    let header = image.read().unwrap();
    let mut device = Cursor::new(&image.bytes);
    let allowed = UnlockOptions { allow_null_cipher: true, ..UnlockOptions::default() };
    let unlocked = header.unlock(&mut device, b"", &allowed).unwrap();
    assert_eq!(*unlocked.key, key);
    let refused = header.unlock(&mut device, b"", &UnlockOptions::default());
    assert!(matches!(refused.err(), Some(Error::NullCipher(_))));
}

#[test]
fn other_ciphers_and_hashes_are_refused_by_name_and_still_described() {
    let image = with(8, b"anubis\0");
    let header = image.read().unwrap();
    assert_eq!(header.info().segments[0].cipher.as_deref(), Some("anubis-xts-plain64"));
    let error = header.segments(SegmentPolicy::default()).unwrap_err();
    assert_eq!(error.to_string(), "not supported yet: cipher anubis-xts-plain64");
    let error = with(72, b"md5\0").unlock(&UnlockOptions::default()).err().unwrap();
    assert_eq!(error.to_string(), "not supported yet: hash 'md5' in LUKS1");
}

#[test]
fn detached_header_alone_is_refused_as_data() {
    let header = with(104, &[0; 4]).read().unwrap();
    assert_eq!(header.segments(SegmentPolicy::default()).unwrap_err().kind(), ErrorKind::Parameters);
    let policy = SegmentPolicy { detached: true, ..SegmentPolicy::default() };
    assert_eq!(header.segments(policy).unwrap()[0].offset, 0);
}

#[test]
fn device_that_shrank_after_the_header_was_read_gives_an_error() {
    let image = Image::luks1();
    let header = image.read().unwrap();
    let mut device = Cursor::new(&image.bytes[..8192]);
    let options = UnlockOptions::default();
    let error = header.unlock(&mut device, b"", &options).err().unwrap();
    assert!(matches!(error, Error::Truncated { .. }), "{error}");
}
