//! What is there already, where a volume is about to be made.
//!
//! | place | what is looked at |
//! |---|---|
//! | regular file | every byte that is no hole |
//! | device | both ends and thousands of places in between, all of it up to 256 MiB; not what is known to be zeros |
//!
//! Whatever is not zero is data. Where its beginning is known, it is named.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use cryptline_engine::ZEROS;
use cryptline_luks::signatures;
use rustix::fs::SeekFrom as Place;
use rustix::io::Errno;

/// Bytes read at a time.
const PIECE: usize = ZEROS.len();
/// Pieces of a device that are looked at.
const PLACES: u64 = 4096;
/// Looked at in whole at both ends of a device.
const END: u64 = 1 << 20;
/// Where the second superblock of btrfs has its magic.
const SECOND_BTRFS: u64 = (64 << 20) + 64;

/// The name of what begins here, with its article; `None` for what is not known.
///
/// What `signatures` knows makes the copy of a LUKS header that is left on a disk worthless. The rest is
/// known here only: it does not, but is worth a word before it is lost.
pub fn name(device: &mut (impl Read + Seek)) -> io::Result<Option<&'static str>> {
    let size = device.seek(SeekFrom::End(0))?;
    let first = [(0, &b"LUKS\xba\xbe"[..], "a LUKS header"), (4096, b"BTT_ARENA_INFO\0", "a block translation table")];
    if let Some(name) = first_of(device, size, &first)? {
        return Ok(Some(name));
    }
    match signatures::find(device, size) {
        Ok(None) => {}
        Ok(found) => return Ok(found),
        Err(cryptline_luks::Error::Io { source, .. }) => return Err(source),
        Err(error) => return Err(io::Error::other(error)),
    }
    for shift in 14..=22 {
        let second = [(1 << shift, &b"SKUL\xba\xbe"[..], "a second LUKS header")];
        if let Some(name) = first_of(device, size, &second)? {
            return Ok(Some(name));
        }
    }
    let gpt = "a GPT partition table";
    let last = [
        (0, &b"QFI\xfb"[..], "a qcow2 image"),
        (SECOND_BTRFS, b"_BHRfS_M", "a Btrfs file system"),
        (size.wrapping_sub(512), b"EFI PART", gpt),
        (size.wrapping_sub(4096), b"EFI PART", gpt),
        (0x1fe, b"\x55\xaa", "a boot sector"),
    ];
    first_of(device, size, &last)
}

/// The name of the first of `known` (its place, what is there, its name) that is there.
fn first_of(
    device: &mut (impl Read + Seek),
    size: u64,
    known: &[(u64, &[u8], &'static str)],
) -> io::Result<Option<&'static str>> {
    for &(at, magic, name) in known {
        let mut found = [0; 16];
        let found = &mut found[..magic.len()];
        let end = at.checked_add(found.len() as u64);
        if end.is_none_or(|end| end > size) {
            continue;
        }
        device.seek(SeekFrom::Start(at))?;
        device.read_exact(found)?;
        if found == magic {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Shows `visit` the data of a regular file in this range, piece by piece, until it has seen enough. Holes cost nothing.
fn look_through<T>(
    file: &File,
    range: Range<u64>,
    mut visit: impl FnMut(u64, &[u8]) -> Option<T>,
) -> io::Result<Option<T>> {
    let (mut piece, mut at) = (vec![0; PIECE], range.start);
    while let Some(data) = next_data(file, at..range.end)? {
        at = data.start;
        while at < data.end {
            let len = piece_len(data.end - at);
            let read = file.read_at(&mut piece[..len], at)?;
            if read == 0 {
                return Ok(None);
            }
            if let Some(seen) = visit(at, &piece[..read]) {
                return Ok(Some(seen));
            }
            at += read as u64;
        }
    }
    Ok(None)
}

/// Looks for a byte that is not zero in these ranges of a regular file.
pub fn file_has_data(file: &File, ranges: &[Range<u64>]) -> io::Result<bool> {
    for range in ranges {
        let found = look_through(file, range.clone(), |_, piece| (piece != &ZEROS[..piece.len()]).then_some(()))?;
        if found.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The place behind the last byte of a regular file in this range that is not zero.
pub fn end_of_data(file: &File, range: Range<u64>) -> io::Result<Option<u64>> {
    let mut end = None;
    look_through(file, range, |at, piece| {
        if piece != &ZEROS[..piece.len()] {
            let last = piece.iter().rposition(|&byte| byte != 0);
            end = last.map(|last| at + last as u64 + 1);
        }
        None::<()>
    })?;
    Ok(end)
}

/// The same on anything else, from its end, where less has to be read.
pub fn end_of_bytes(device: &mut (impl Read + Seek), range: Range<u64>) -> io::Result<Option<u64>> {
    let (mut piece, mut end) = (vec![0; PIECE], range.end);
    while end > range.start {
        // Whoever reads ahead does so in pieces of this size.
        let start = ((end - 1) - (end - 1) % PIECE as u64).max(range.start);
        let piece = &mut piece[..piece_len(end - start)];
        device.seek(SeekFrom::Start(start))?;
        device.read_exact(piece)?;
        if let Some(last) = piece.iter().rposition(|&byte| byte != 0) {
            return Ok(Some(start + last as u64 + 1));
        }
        end = start;
    }
    Ok(None)
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

/// Whether any byte of a device that was looked at is not zero. `zeros` tells how many bytes from a place on, of so
/// many, are known to be zeros; those are not read.
pub fn device_has_data(device: &mut (impl Read + Seek), zeros: impl Fn(u64, u64) -> u64) -> io::Result<bool> {
    let size = device.seek(SeekFrom::End(0))?;
    let ends = [0..END.min(size), size.saturating_sub(END)..size];
    let stride = (size / PLACES).max(PIECE as u64);
    let middle = (0..PLACES).map(|number| number.saturating_mul(stride));
    let middle = middle.take_while(|&at| at < size).map(|at| at..at.saturating_add(PIECE as u64).min(size));
    let mut piece = vec![0; PIECE];
    for range in ends.into_iter().chain(middle) {
        let mut at = range.start;
        while at < range.end {
            let known = zeros(at, range.end - at);
            if known > 0 {
                at = at.saturating_add(known);
                continue;
            }
            device.seek(SeekFrom::Start(at))?;
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
            assert!(!device_has_data(&mut Cursor::new(vec![0; len]), |_, _| 0).unwrap());
        }
    }

    #[test]
    fn a_small_device_is_looked_at_in_whole() {
        for at in [0, 65535, 65536, 3 << 20, (8 << 20) + 4095] {
            let mut bytes = vec![0; (8 << 20) + 4096];
            bytes[at] = 1;
            assert!(device_has_data(&mut Cursor::new(bytes), |_, _| 0).unwrap(), "{at}");
        }
    }

    #[test]
    fn what_is_known_to_be_zeros_is_not_read() {
        const AT: u64 = 3 << 20;
        let mut bytes = Cursor::new(vec![0; 8 << 20]);
        bytes.get_mut()[3 << 20] = 1;
        let looked = |bytes: &mut Cursor<Vec<u8>>, hole: Range<u64>| {
            let zeros = |at, len: u64| {
                if hole.contains(&at) { len.min(hole.end - at) } else { 0 }
            };
            device_has_data(bytes, zeros).unwrap()
        };
        assert!(looked(&mut bytes, 0..AT));
        assert!(!looked(&mut bytes, 0..AT + 1));
        assert!(looked(&mut bytes, AT + 1..8 << 20));
        assert!(!looked(&mut bytes, AT - 5..8 << 20));
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
}
