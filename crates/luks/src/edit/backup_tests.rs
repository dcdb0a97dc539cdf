//! Headers whose key slots lie where no program puts them, and counters at their end.

use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};

use serde_json::json;

use super::{Edit, LastSlot};
use crate::Error;
use crate::luks2::binary::HeaderCopy;
use crate::options::LuksVersion;
use crate::testing::{Device, Image, sectors_left};

/// Where the test image's last key slot ends, in sectors: in the middle of 4096 bytes.
const SLOTS_END: u32 = 2050;

/// A LUKS1 volume whose data begins in `sector`; 0: elsewhere.
fn luks1(sector: u32) -> Image {
    let mut image = Image::luks1();
    image.bytes[104..108].copy_from_slice(&sector.to_be_bytes());
    image
}

/// Zeros in the place of an image.
fn lost(image: &Image) -> Image {
    Image { bytes: vec![0; image.bytes.len()] }
}

#[test]
fn data_right_behind_the_last_key_slot_is_neither_saved_nor_written_back() {
    let mut image = luks1(SLOTS_END);
    let data = SLOTS_END as usize * 512;
    image.bytes[data..].fill(1);
    let backup = image.backup();
    assert_eq!(backup.len(), data.next_multiple_of(4096));
    assert!(backup[data..].iter().all(|&byte| byte == 0));
    image.bytes[data..].fill(2);
    let later = image.bytes.clone();
    image.bytes[4096..data].fill(3);
    image.restore(backup).unwrap();
    assert!(image.bytes == later);
}

#[test]
fn header_file_may_end_with_its_last_key_slot() {
    let mut image = luks1(0);
    image.bytes.truncate(SLOTS_END as usize * 512);
    let mut lost = lost(&image);
    lost.restore(image.backup()).unwrap();
    assert!(lost.bytes == image.bytes);
}

/// As machines with larger pages write them, and as `dd` of the first megabytes is one. Its own data is not written back.
#[test]
fn backup_may_be_longer_than_the_header_and_not_shorter() {
    for image in [Image::luks2(), Image::luks1()] {
        let backup = image.backup();
        for more in [1, 64 << 10] {
            let mut longer = backup.clone();
            longer.resize(backup.len() + more, 7);
            let mut lost = image.clone();
            lost.bytes[..backup.len()].fill(0);
            lost.restore(longer).unwrap();
            assert!(lost.bytes[backup.len()..] == image.bytes[backup.len()..]);
            lost.read().unwrap();
        }
        let mut shorter = backup.clone();
        shorter.truncate(backup.len() - 4096);
        let error = image.clone().restore(shorter).unwrap_err();
        assert!(matches!(error, Error::NotABackup(_)), "{error}");
    }
}

/// A disk of which only the beginning is not zero.
struct Sparse {
    start: Vec<u8>,
    position: u64,
}

impl Read for Sparse {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        out.fill(0);
        let at = usize::try_from(self.position).unwrap();
        if let Some(rest) = self.start.get(at..) {
            let len = rest.len().min(out.len());
            out[..len].copy_from_slice(&rest[..len]);
        }
        self.position += out.len() as u64;
        Ok(out.len())
    }
}

impl Seek for Sparse {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let SeekFrom::Start(at) = to else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        self.position = at;
        Ok(at)
    }
}

/// Of 2 TiB.
#[test]
fn key_slot_far_away_makes_no_backup_as_long_as_that() {
    let mut start = luks1(0).bytes;
    let last = 208 + 7 * 48 + 40;
    start[last..last + 4].copy_from_slice(&0xffff_0000_u32.to_be_bytes());
    let mut disk = Sparse { start, position: 0 };
    let edit = Edit::load(&mut disk, 3 << 40).unwrap();
    let error = edit.backup(&mut disk, 3 << 40).err().unwrap();
    let expected = "a key slot ends at byte 2198989829120";
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn header_that_cannot_be_counted_further_is_left_alone() {
    let image = Image::luks2();
    let backup = image.backup();
    let mut last = image.clone();
    for copy in [HeaderCopy::Primary, HeaderCopy::Secondary] {
        last.edit_binary(copy, |binary| binary.epoch = u64::MAX);
    }
    // Another key slot area than that of the backup.
    last.bytes[0x8000..0x9000].fill(7);
    let before = last.bytes.clone();
    let error = last.restore(backup).unwrap_err();
    assert!(error.to_string().contains("2^64"), "{error}");
    let edit = last.load().unwrap();
    let error = edit.remove(0, LastSlot::Remove).err().unwrap();
    assert!(error.to_string().contains("2^64"), "{error}");
    assert!(last.bytes == before);
}

/// With a copy that is newer and not understood here.
fn not_understood(copy: HeaderCopy) -> Image {
    let mut image = Image::luks2();
    image.rewrite(copy, b"{}", |binary| binary.epoch = 99);
    image
}

#[test]
fn header_that_is_only_read_guards_its_data_all_the_same() {
    for copy in [HeaderCopy::Primary, HeaderCopy::Secondary] {
        let mut image = not_understood(copy);
        let before = image.bytes.clone();
        let error = image.restore(Image::luks1().backup()).unwrap_err();
        assert!(matches!(error, Error::BackupDiffers(_)), "{error}");
        assert!(image.bytes == before);

        let backup = Image::luks2().backup();
        let concerns = image.prepare(backup.clone()).unwrap().concerns().join("; ");
        for expected in ["passphrases that were added since", &format!("the {} header copy, which is", copy.name())] {
            assert!(concerns.contains(expected), "{expected}: {concerns}");
        }
        let header = image.restore(backup).unwrap();
        assert_eq!(header.info().epoch, Some(100));
        assert!(image.read().unwrap().warnings().is_empty());
    }
}

#[test]
fn copy_that_is_not_understood_and_says_that_the_data_is_reencrypted_is_not_written_over() {
    for copy in [HeaderCopy::Primary, HeaderCopy::Secondary] {
        for json in
            [&br#"{"config":{"requirements":{"mandatory":["online-reencrypt-v9"]}}}"#[..], br#"{"type":"reencrypt"}"#]
        {
            let mut image = not_understood(copy);
            image.rewrite(copy, json, |binary| binary.epoch = 99);
            let before = image.bytes.clone();
            let error = image.restore(Image::luks2().backup()).unwrap_err();
            assert!(matches!(error, Error::ReencryptionInProgress(_)), "{error}");
            assert!(image.bytes == before);
        }
    }
}

/// A volume whose first sector is a partition table.
fn under_a_table() -> Image {
    let mut image = Image::luks2();
    image.bytes[..512].fill(0);
    image.bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    image
}

#[test]
fn left_copy_of_the_same_volume_guards_its_data_and_that_of_another_one_does_not() {
    let backup = Image::luks2().backup();
    let table = under_a_table();
    let concerns = table.prepare(backup.clone()).unwrap().concerns().join("; ");
    assert!(concerns.contains("partition table") && concerns.contains("were added since"), "{concerns}");
    for (uuid, is_guarded) in [(None, true), (Some("00000000-0000-4000-8000-000000000000"), false)] {
        let mut image = Image::luks2();
        image.edit(|json| json["config"]["requirements"] = json!({"mandatory": ["online-reencrypt"]}));
        if let Some(uuid) = uuid {
            image.edit_binary(HeaderCopy::Secondary, |binary| binary.uuid = uuid.into());
        }
        image.bytes[..512].copy_from_slice(&table.bytes[..512]);
        assert_eq!(image.prepare(backup.clone()).is_err(), is_guarded, "{uuid:?}");
    }
}

/// As whoever repairs them by force is told to save them.
#[test]
fn backup_of_a_header_that_is_only_read_is_written_back_as_it_is() {
    for image in [not_understood(HeaderCopy::Primary), not_understood(HeaderCopy::Secondary), under_a_table()] {
        let backup = image.backup();
        let repaired = image.repaired(true).unwrap();
        let concerns = repaired.prepare(backup.clone()).unwrap().concerns().join("; ");
        assert!(concerns.contains("as they are"), "{concerns}");
        for mut device in [repaired, lost(&image), image.clone()] {
            device.restore(backup.clone()).unwrap();
            assert!(device.bytes[..backup.len()] == image.bytes[..backup.len()]);
        }
    }
}

/// As those of a volume that has become LUKS2 since, whose first slot was in the way.
#[test]
fn key_slots_behind_the_end_of_a_backup_are_gone_once_it_is_restored() {
    let mut image = Image::luks1();
    let (backup, size) = (image.backup(), image.size());
    let edit = image.load().unwrap();
    let change = edit.convert(LuksVersion::Luks2, &mut image.device(), size).unwrap();
    image.commit(change).unwrap();
    let header = image.read().unwrap();
    let [(_, moved)] = header.inner().areas()[..] else { panic!("one key slot") };
    let at = usize::try_from(moved.offset).unwrap();
    let stripes = image.bytes[at..][..128_000].to_vec();
    assert!(at >= backup.len() && sectors_left(&image.bytes, &stripes) == 250);
    // A slot of LUKS1 can lie there, too: this one is as a change has moved it.
    let mut luks1 = Image::luks1();
    luks1.bytes[at..][..stripes.len()].copy_from_slice(&stripes);
    luks1.bytes[248..252].copy_from_slice(&u32::try_from(moved.offset / 512).unwrap().to_be_bytes());
    for mut image in [image, luks1] {
        let data = image.bytes[2 << 20..].to_vec();
        image.restore(backup.clone()).unwrap();
        assert_eq!(sectors_left(&image.bytes, &stripes), 250, "in the first slot's own place");
        image.bytes[4096..][..stripes.len()].fill(0);
        assert_eq!(sectors_left(&image.bytes, &stripes), 0);
        assert!(image.bytes[2 << 20..] == data);
    }
}

/// Such as what luksmeta keeps.
#[test]
fn what_lies_behind_the_end_of_a_backup_is_left_alone_where_no_header_says_what_it_is() {
    let mut image = Image::luks1();
    let backup = image.backup();
    let behind = backup.len()..2 << 20;
    image.bytes[behind.clone()].fill(7);
    let mut headless = image.clone();
    headless.bytes[..1024].fill(0);
    for mut image in [image, headless] {
        image.restore(backup.clone()).unwrap();
        assert!(image.bytes[behind.clone()].iter().all(|&byte| byte == 7));
    }
}

/// Everything else is as the backup has it.
#[test]
fn key_slot_behind_the_end_of_a_backup_that_cannot_be_overwritten_is_told() {
    let image = Image::luks1();
    let (backup, size) = (image.backup(), image.size());
    let mut moved = image.clone();
    let place = backup.len() as u64;
    moved.bytes[248..252].copy_from_slice(&u32::try_from(place / 512).unwrap().to_be_bytes());
    let restore = moved.prepare(backup).unwrap();
    let write = |disk: &mut Cursor<Vec<u8>>, bytes: &[u8]| {
        if disk.position() >= place { Err(io::ErrorKind::StorageFull.into()) } else { disk.write(bytes) }
    };
    let mut device = Device { disk: Cursor::new(moved.bytes), readable: u64::MAX, write };
    let error = restore.commit(&mut device, size).unwrap_err();
    assert!(matches!(error, Error::NotWiped { offset, .. } if offset == place), "{error}");
    assert!(device.disk.into_inner() == image.bytes);
}

/// Whoever agrees may get a disk of another size, or one that is noise.
#[test]
fn what_a_backup_says_otherwise_of_the_data_is_told() {
    let with = |member: &str, value: serde_json::Value| {
        let mut image = Image::luks2();
        image.edit(|json| json["segments"]["0"][member] = value);
        image
    };
    let now = with("size", json!("4096"));
    let concerns = |before: &Image| now.prepare(before.backup()).unwrap().concerns().join("; ");
    let of_itself = concerns(&now);
    assert!(!of_itself.contains("the data"), "{of_itself}");
    for (before, expected) in [
        (Image::luks2(), "the data is 4096 bytes long by the header that is there, and to the end of its device by"),
        (with("size", json!("8192")), "4096 bytes long by the header that is there, and 8192 bytes long by the backup"),
        (with("encryption", json!("aes-cbc-plain64")), "encrypted by 'aes-xts-plain64' in sectors of 4096 bytes here"),
        (with("sector_size", json!(512)), "and by 'aes-xts-plain64' in sectors of 512 bytes in the backup"),
    ] {
        let concerns = concerns(&before);
        assert!(concerns.contains(expected), "{expected}: {concerns}");
    }
}
