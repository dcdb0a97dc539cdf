//! What is there already, where a volume is about to be made.
//!
//! | place | what is looked at |
//! |---|---|
//! | regular file | every byte that is no hole |
//! | device | both ends and thousands of places in between, all of it up to 256 MiB |
//!
//! Whatever is not zero is data. Where its beginning is known, it is named.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::fs::SeekFrom as Place;
use rustix::io::Errno;

/// Bytes read at a time.
const PIECE: usize = 64 * 1024;
static ZEROS: [u8; PIECE] = [0; PIECE];
/// Pieces of a device that are looked at.
const PLACES: u64 = 4096;
/// Looked at in whole at both ends of a device.
const END: u64 = 1 << 20;
/// Where most begin.
const HEAD: usize = 136 * 1024;

/// First byte, what is there, and its name for people. The first that fits is taken: what wraps others
/// comes before them.
const KNOWN: &[(usize, &[u8], &str)] = &[
    (0, b"LUKS\xba\xbe", "a LUKS header"),
    (4096, b"BTT_ARENA_INFO\0", "a block translation table"),
    (3, b"-FVE-FS-", "a BitLocker volume"),
    (512, b"EFI PART", "a GPT partition table"),
    (4096, b"EFI PART", "a GPT partition table"),
    (0x438, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an XFS file system"),
    (0x1_0040, b"_BHRfS_M", "a btrfs file system"),
    (0x400, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (0, b"hsqs", "a squashfs file system"),
    (0x8001, b"CD001", "an ISO 9660 file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (54, b"FAT1", "a FAT file system"),
    (82, b"FAT32", "a FAT file system"),
    (0, b"QFI\xfb", "a qcow2 image"),
    (0, b"LABELONE", "an LVM physical volume"),
    (512, b"LABELONE", "an LVM physical volume"),
    (1024, b"LABELONE", "an LVM physical volume"),
    (1536, b"LABELONE", "an LVM physical volume"),
    (0, b"\xfc\x4e\x2b\xa9", "a member of a RAID"),
    (4096, b"\xfc\x4e\x2b\xa9", "a member of a RAID"),
    (4086, b"SWAPSPACE2", "swap space"),
    (4086, b"SWAP-SPACE", "swap space"),
    (
        0x2_0000,
        b"\x0c\xb1\xba\0\0\0\0\0",
        "a member of a ZFS pool",
    ),
    (0x1fe, b"\x55\xaa", "a boot sector or a partition table"),
];

/// The name of what begins here; `None` for what is not known.
pub fn name(device: &mut (impl Read + Seek)) -> io::Result<Option<&'static str>> {
    let mut head = Vec::new();
    device.rewind()?;
    device.take(HEAD as u64).read_to_end(&mut head)?;
    let has = |at: usize, magic: &[u8]| {
        let found = at
            .checked_add(magic.len())
            .and_then(|end| head.get(at..end));
        found == Some(magic)
    };
    if let Some((_, _, name)) = KNOWN.iter().find(|(at, magic, _)| has(*at, magic)) {
        return Ok(Some(name));
    }
    // Second LUKS2 headers, second btrfs superblocks, backups of a GPT and RAID members have places of
    // their own.
    let size = device.seek(SeekFrom::End(0))?;
    let mut there = |at: u64, magic: &[u8]| {
        let mut found = [0; 8];
        let found = &mut found[..magic.len()];
        if at
            .checked_add(found.len() as u64)
            .is_none_or(|end| end > size)
        {
            return Ok(false);
        }
        device.seek(SeekFrom::Start(at))?;
        device.read_exact(found)?;
        Ok::<_, io::Error>(found == magic)
    };
    for shift in 14..=22 {
        if there(1 << shift, b"SKUL\xba\xbe")? {
            return Ok(Some("a second LUKS header"));
        }
    }
    let last_of_raid = [
        (size & !0xffff).wrapping_sub(0x1_0000),
        (size & !0xfff).wrapping_sub(8192),
    ];
    for (at, magic, name) in [
        ((64 << 20) + 64, &b"_BHRfS_M"[..], "a btrfs file system"),
        (size.wrapping_sub(512), b"EFI PART", "a GPT partition table"),
        (
            size.wrapping_sub(4096),
            b"EFI PART",
            "a GPT partition table",
        ),
        (last_of_raid[0], b"\xfc\x4e\x2b\xa9", "a member of a RAID"),
        (last_of_raid[1], b"\xfc\x4e\x2b\xa9", "a member of a RAID"),
    ] {
        if there(at, magic)? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Whether any byte of a regular file in these ranges is not zero. Holes cost nothing.
pub fn file_has_data(file: &File, ranges: &[Range<u64>]) -> io::Result<bool> {
    let mut piece = vec![0; PIECE];
    for range in ranges {
        let mut at = range.start;
        while let Some(data) = next_data(file, at..range.end)? {
            at = data.start;
            while at < data.end {
                let len = piece_len(data.end - at);
                let read = file.read_at(&mut piece[..len], at)?;
                if piece[..read] != ZEROS[..read] {
                    return Ok(true);
                }
                if read == 0 {
                    return Ok(false);
                }
                at += read as u64;
            }
        }
    }
    Ok(false)
}

/// The first run in `range` that is no hole.
fn next_data(file: &File, range: Range<u64>) -> io::Result<Option<Range<u64>>> {
    if range.is_empty() {
        return Ok(None);
    }
    let start = match rustix::fs::seek(file, Place::Data(range.start)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // A file system that does not tell.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(range)),
        Err(error) => return Err(error.into()),
    };
    let end = match rustix::fs::seek(file, Place::Hole(start)) {
        Ok(end) => end.min(range.end),
        Err(_) => range.end,
    };
    Ok((start < end).then_some(start..end))
}

/// Whether any byte of a device that was looked at is not zero.
pub fn device_has_data(device: &mut (impl Read + Seek)) -> io::Result<bool> {
    let size = device.seek(SeekFrom::End(0))?;
    let ends = [0..END.min(size), size.saturating_sub(END)..size];
    let stride = (size / PLACES).max(PIECE as u64);
    let middle = (0..PLACES).map(|number| number.saturating_mul(stride));
    let middle = middle
        .take_while(|&at| at < size)
        .map(|at| at..at.saturating_add(PIECE as u64).min(size));
    let mut piece = vec![0; PIECE];
    for range in ends.into_iter().chain(middle) {
        let mut at = range.start;
        device.seek(SeekFrom::Start(at))?;
        while at < range.end {
            let len = piece_len(range.end - at);
            device.read_exact(&mut piece[..len])?;
            if piece[..len] != ZEROS[..len] {
                return Ok(true);
            }
            at += len as u64;
        }
    }
    Ok(false)
}

fn piece_len(left: u64) -> usize {
    usize::try_from(left).map_or(PIECE, |left| left.min(PIECE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn every_known_beginning_is_named_wherever_it_lies() {
        for (at, magic, name_of_it) in KNOWN {
            let mut bytes = vec![0; HEAD + 4096];
            bytes[*at..at + magic.len()].copy_from_slice(magic);
            assert_eq!(name(&mut Cursor::new(bytes)).unwrap(), Some(*name_of_it));
        }
        for (at, magic, name_of_it) in [
            (0x4000, &b"SKUL\xba\xbe"[..], "a second LUKS header"),
            (0x40_0000, b"SKUL\xba\xbe", "a second LUKS header"),
            ((8 << 20) - 512, b"EFI PART", "a GPT partition table"),
            ((8 << 20) - 65536, b"\xfc\x4e\x2b\xa9", "a member of a RAID"),
            ((8 << 20) - 8192, b"\xfc\x4e\x2b\xa9", "a member of a RAID"),
        ] {
            let mut bytes = vec![0; 8 << 20];
            bytes[at..at + magic.len()].copy_from_slice(magic);
            assert_eq!(name(&mut Cursor::new(bytes)).unwrap(), Some(name_of_it));
        }
    }

    #[test]
    fn nothing_and_next_to_nothing_have_no_name() {
        for len in [0, 1, 511, 4096, 8 << 20] {
            assert_eq!(name(&mut Cursor::new(vec![0; len])).unwrap(), None);
            assert!(!device_has_data(&mut Cursor::new(vec![0; len])).unwrap());
        }
    }

    #[test]
    fn a_small_device_is_looked_at_in_whole() {
        for at in [0, 65535, 65536, 3 << 20, (8 << 20) + 4095] {
            let mut bytes = vec![0; (8 << 20) + 4096];
            bytes[at] = 1;
            assert!(device_has_data(&mut Cursor::new(bytes)).unwrap(), "{at}");
        }
    }

    #[test]
    fn only_the_ranges_of_a_file_count() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 30).unwrap();
        file.write_all_at(&[1], 300 << 20).unwrap();
        let mib = |range: Range<u64>| range.start << 20..range.end << 20;
        for (ranges, expected) in [
            (vec![mib(0..1024)], true),
            (vec![mib(0..300)], false),
            (vec![mib(0..300), mib(301..1024)], false),
            (vec![mib(0..1), mib(299..301)], true),
            (vec![], false),
            (vec![mib(2048..4096)], false),
        ] {
            assert_eq!(
                file_has_data(&file, &ranges).unwrap(),
                expected,
                "{ranges:?}"
            );
        }
    }
}
