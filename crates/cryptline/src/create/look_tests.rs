//! Looks at devices and files in memory.

use std::io::Cursor;

use super::*;

#[test]
fn what_is_known_is_named_wherever_it_lies() {
    let size = 65 << 20;
    for (at, magic, name_of_it) in [
        (0, &b"LUKS\xba\xbe"[..], "a LUKS header"),
        (4096, b"BTT_ARENA_INFO\0", "a block translation table"),
        (0x4000, b"SKUL\xba\xbe", "a second LUKS header"),
        (0x40_0000, b"SKUL\xba\xbe", "a second LUKS header"),
        (0, b"QFI\xfb", "a qcow2 image"),
        (0x1fe, b"\x55\xaa", "an MBR partition table"),
        (512, b"EFI PART", "a GPT partition table"),
        (size - 512, b"EFI PART", "a GPT partition table"),
        (size - 4096, b"EFI PART", "a GPT partition table"),
        (0x1_0040, b"_BHRfS_M", "a Btrfs file system"),
        (0x400_0040, b"_BHRfS_M", "a Btrfs file system"),
        (size - 8192, b"\xfc\x4e\x2b\xa9\x01\0\0\0", "a part of a Linux RAID array"),
    ] {
        let mut bytes = vec![0; size];
        bytes[at..at + magic.len()].copy_from_slice(magic);
        assert_eq!(name(&mut Cursor::new(bytes)).unwrap().unwrap_or_default(), name_of_it);
    }
}

/// A disk that is LUKS has what is in its data at other places; a boot sector has code.
#[test]
fn what_holds_others_is_named_first_and_what_all_have_last() {
    let mut bytes = vec![0; 8 << 20];
    bytes[0x1fe..0x200].copy_from_slice(b"\x55\xaa");
    bytes[0x1be] = 0x17;
    let mut named = |at: usize, magic: &[u8]| {
        bytes[at..at + magic.len()].copy_from_slice(magic);
        name(&mut Cursor::new(&bytes)).unwrap()
    };
    assert_eq!(named(0, &[]), Some("a boot sector"));
    assert_eq!(named(0x4000, b"SKUL\xba\xbe"), Some("a second LUKS header"));
    assert_eq!(named(3, b"NTFS    "), Some("an NTFS file system"));
    let table = Some("a block translation table");
    assert_eq!(named(4096, b"BTT_ARENA_INFO\0"), table);
    assert_eq!(named(0, b"LUKS\xba\xbe"), Some("a LUKS header"));
}

#[test]
fn nothing_and_next_to_nothing_have_no_name() {
    for len in [0, 1, 511, 4096, 8 << 20] {
        assert_eq!(name(&mut Cursor::new(vec![0; len])).unwrap(), None);
        assert_eq!(held(&mut Cursor::new(vec![0; len]), 0), None);
    }
}

#[test]
fn a_small_device_is_looked_at_in_whole() {
    for at in [0, 65535, 65536, 3 << 20, (8 << 20) + 4095] {
        let mut bytes = vec![0; (8 << 20) + 4096];
        bytes[at] = 1;
        assert_eq!(held(&mut Cursor::new(bytes), 0), Some("data"), "{at}");
    }
}

#[test]
fn what_is_known_to_be_zeros_is_not_read() {
    const AT: u64 = 3 << 20;
    let mut bytes = Cursor::new(vec![0; 8 << 20]);
    bytes.get_mut()[3 << 20] = 1;
    let looked = |bytes: &mut Cursor<Vec<u8>>, hole: Range<u64>| {
        let known = |at, len: u64| match hole.contains(&at) {
            true => KnownPart { len: len.min(hole.end - at), zeros: true },
            false if at < hole.start => KnownPart { len: len.min(hole.start - at), zeros: false },
            false => KnownPart { len, zeros: false },
        };
        device_holds(bytes, 0, known, |_, _| Ok(())).unwrap().is_some()
    };
    assert!(looked(&mut bytes, 0..AT));
    assert!(!looked(&mut bytes, 0..AT + 1));
    assert!(looked(&mut bytes, AT + 1..8 << 20));
    assert!(!looked(&mut bytes, AT - 5..8 << 20));
}

/// A file system on a partition, with no byte of it at the places of a sample.
#[test]
fn what_begins_where_a_partition_might_is_named() {
    for start in [63 * 512, 63 * 4096, 1 << 20] {
        let mut bytes = vec![0; 4 << 20];
        bytes[start + 1024 + 56..][..2].copy_from_slice(b"\x53\xef");
        assert_eq!(held(&mut Cursor::new(bytes), 0), Some("an ext2, ext3 or ext4 file system"), "{start}");
    }
}

/// Two terabytes, of which some runs may hold something.
struct Runs {
    runs: Vec<Range<u64>>,
    data: u64,
    at: u64,
    /// Bytes and calls so far. Nobody may want to read it all, or byte by byte.
    read: [u64; 2],
}

impl Runs {
    const SIZE: u64 = 2 << 40;

    fn new(runs: Vec<Range<u64>>, data: u64) -> Self {
        Self { runs, data, at: 0, read: [0; 2] }
    }
}

impl Read for Runs {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        target.fill(0);
        let end = self.at + target.len() as u64;
        self.read = [self.read[0] + target.len() as u64, self.read[1] + 1];
        assert!(self.read[0] < 512 << 20 && self.read[1] < 20_000, "{:?}", self.read);
        if (self.at..end).contains(&self.data) {
            target[usize::try_from(self.data - self.at).unwrap()] = 1;
        }
        self.at = end;
        Ok(target.len())
    }
}

impl Seek for Runs {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::End(by) => Self::SIZE.checked_add_signed(by).unwrap(),
            SeekFrom::Current(by) => self.at.checked_add_signed(by).unwrap(),
        };
        Ok(self.at)
    }
}

fn unknown(_: u64, len: u64) -> KnownPart {
    KnownPart { len, zeros: false }
}

#[test]
fn beginning_and_end_of_a_large_device_are_looked_at_in_whole_and_the_rest_in_places() {
    const MIB: u64 = 1 << 20;
    let held = |data| device_holds(&mut Runs::new(Vec::new(), data), 0, unknown, |_, _| Ok(())).unwrap();
    let size = Runs::SIZE;
    for data in [0, MIB + 77, 16 * MIB - 1, 16 * MIB, size - MIB, size - 1] {
        assert_eq!(held(data), Some("data"), "{data}");
    }
    // The places are equally far from each other: so many of them, each read whole.
    let stride = (size - 17 * MIB) / 4096;
    for place in [1, 2, 2047, 4095] {
        let at = 16 * MIB + place * stride;
        assert_eq!(held(at), Some("data"), "{place}");
        assert_eq!(held(at + PIECE as u64 - 1), Some("data"), "{place}");
        assert_eq!(held(at + PIECE as u64), None, "{place}");
    }
    assert_eq!(held(size), None, "nothing");
}

#[test]
fn what_is_not_written_is_looked_at_in_whole_where_it_is_little() {
    // Runs that touch are one, and what is between others is not read.
    let (first, second) = (1 << 30..(1 << 30) + 300_000, (1 << 35) + 5..(1 << 35) + 200_005);
    let known = |at: u64, len: u64| {
        let middle = first.start + 100_000;
        let borders = [first.start, middle, first.end, second.start, second.end];
        let len = borders.into_iter().find(|border| at < *border).map_or(len, |border| len.min(border - at));
        KnownPart { len, zeros: !first.contains(&at) && !second.contains(&at) }
    };
    let held = |data| device_holds(&mut Runs::new(Vec::new(), data), 0, known, |_, _| Ok(())).unwrap();
    for data in [first.start, first.start + 99_999, first.end - 1, second.start, second.end - 1] {
        assert_eq!(held(data), Some("data"), "{data}");
    }
    assert_eq!(held(first.end), None);
    assert_eq!(held(second.start - 1), None);
}

#[test]
fn magic_that_ends_with_the_device_is_known() {
    assert_eq!(name(&mut Cursor::new(b"QFI\xfb")).unwrap(), Some("a qcow2 image"));
    assert_eq!(name(&mut Cursor::new(b"QFI")).unwrap(), None);
}

/// A sparse file of two terabytes with little in it is looked at in whole, wherever that lies.
#[test]
fn little_data_of_a_large_device_is_seen_where_holes_are_known() {
    let runs: Vec<_> = (1..100).map(|run| (run << 33) + 77..(run << 33) + 100_077).collect();
    let known = |runs: &[Range<u64>], at, len: u64| {
        assert!(at + len <= Runs::SIZE, "{at} + {len}");
        let next = runs.iter().find(|run| at < run.end);
        match next {
            Some(run) if at >= run.start => KnownPart { len: len.min(run.end - at), zeros: false },
            Some(run) => KnownPart { len: len.min(run.start - at), zeros: true },
            None => KnownPart { len, zeros: true },
        }
    };
    for data in [runs[0].start, runs[41].start + 70_000, runs[98].end - 1] {
        let mut disk = Runs::new(runs.clone(), data);
        let of = disk.runs.clone();
        let held = device_holds(&mut disk, 0, |at, len| known(&of, at, len), |_, _| Ok(())).unwrap();
        assert_eq!(held, Some("data"), "{data}");
    }
}

#[test]
fn what_will_be_written_is_looked_at_to_its_last_byte_and_can_be_left() {
    let size = 300 << 20;
    let written = (280 << 20) + 4096;
    let disk = |at: u64| Runs::new(Vec::new(), at);
    for at in [20 << 20, (100 << 20) + 1, written - 1] {
        assert_eq!(device_holds(&mut disk(at), written, unknown, |_, _| Ok(())).unwrap(), Some("data"), "{at}");
    }
    let mut told = Vec::new();
    let stopped = device_holds(&mut disk(size), written, unknown, |bytes, of| {
        told.push((bytes, of));
        if told.len() == 3 { Err(Problem::NoKey.into()) } else { Ok(()) }
    });
    assert!(matches!(stopped.unwrap_err().problem(), Problem::NoKey));
    assert_eq!(told, [1, 2, 3].map(|number| (number * TOLD, written)));
}

fn held(device: &mut (impl Read + Seek), written: u64) -> Option<&'static str> {
    device_holds(device, written, unknown, |_, _| Ok(())).unwrap()
}

#[test]
fn last_byte_of_a_range_is_found_wherever_it_lies() {
    let size = 5 * PIECE as u64 + 100;
    let mut bytes = Cursor::new(vec![0; 5 * PIECE + 100]);
    for at in [7, PIECE - 1, PIECE, 3 * PIECE + 5, 5 * PIECE + 99] {
        bytes.get_mut()[at] = 1;
        let end = at as u64 + 1;
        let mut found = |range| end_of_bytes(&mut bytes, range).unwrap();
        assert_eq!(found(0..size), Some(end));
        assert_eq!(found(end - 1..size), Some(end));
        assert_eq!(found(end - 1..end), Some(end));
        assert_eq!(found(end..size), None);
    }
    assert_eq!(end_of_bytes(&mut bytes, 0..7).unwrap(), None);
    assert_eq!(end_of_bytes(&mut bytes, 9..9).unwrap(), None);
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
        assert_eq!(file_has_data(&file, &ranges).unwrap(), expected, "{ranges:?}");
    }
}

/// From its end, in the pieces of whoever reads ahead.
#[test]
fn bytes_are_read_from_the_end_in_whole_pieces() {
    struct Reads(Cursor<Vec<u8>>, Vec<Range<u64>>);
    impl Read for Reads {
        fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
            let at = self.0.position();
            self.1.push(at..at + target.len() as u64);
            self.0.read(target)
        }
    }
    impl Seek for Reads {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.0.seek(to)
        }
    }
    let piece = PIECE as u64;
    for (range, expected) in [
        (0..2 * piece, vec![piece..2 * piece, 0..piece]),
        (5..piece + 1, vec![piece..piece + 1, 5..piece]),
        (piece - 1..2 * piece + 7, vec![2 * piece..2 * piece + 7, piece..2 * piece, piece - 1..piece]),
    ] {
        let mut reads = Reads(Cursor::new(vec![0; 3 * PIECE]), Vec::new());
        assert_eq!(end_of_bytes(&mut reads, range).unwrap(), None);
        assert_eq!(reads.1, expected);
    }
}

/// A file with zeros that were written, and a hole, before its data, which goes on behind a range.
#[test]
fn only_the_bytes_of_a_range_of_a_file_count() {
    let file = tempfile::tempfile().unwrap();
    let (zeros, data) = (vec![0; 3 * PIECE], 1 << 20);
    file.write_all_at(&zeros, 0).unwrap();
    file.write_all_at(&zeros, data).unwrap();
    file.write_all_at(&[1, 1], data + 100_000).unwrap();
    let at = data + 100_000;
    // A range, and where its data ends.
    for (range, end) in [
        (0..at, None),
        (0..at + 1, Some(at + 1)),
        (0..at + 2, Some(at + 2)),
        (0..2 << 20, Some(at + 2)),
        (at + 1..at + 2, Some(at + 2)),
        (at + 1..2 << 20, Some(at + 2)),
        (at + 2..2 << 20, None),
        (7..data, None),
        (4 << 20..5 << 20, None),
        (at..at, None),
    ] {
        assert_eq!(end_of_data(&file, range.clone()).unwrap(), end, "{range:?}");
        assert_eq!(file_has_data(&file, std::slice::from_ref(&range)).unwrap(), end.is_some(), "{range:?}");
    }
}

/// Somebody gives its name to a file of zeros.
#[test]
fn what_is_looked_at_is_what_was_opened() {
    use crate::base::{Access, BaseSource};
    use crate::target::Target;

    let folder = tempfile::tempdir().unwrap();
    let [path, zeros] = ["path", "zeros"].map(|name| folder.path().join(name));
    for target in [Target::Pmem(path.clone()), Target::Path(path.clone())] {
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        std::fs::write(&zeros, vec![0; 1 << 20]).unwrap();
        let device = BaseSource::Target(target).open_device(Access::default()).unwrap();
        let found = || what_is_there(&device, 1 << 20, Some(&path), |_| Ok(())).unwrap();
        assert_eq!(found(), Some("data"));
        std::fs::rename(&zeros, &path).unwrap();
        assert_eq!(found(), Some("data"));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(found(), Some("data"));
    }
}
