//! Tables of several lines: each line's bytes are where it says, under its own key, and nowhere else.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use cryptline::{BaseInfo, Error, Fault, Open, TableLine, Target, Volume, VolumeKind};
use rustix::io::Errno;
use tempfile::TempDir;

use crate::common::{read, write};

const SECTOR: usize = 512;

/// Keys of AES-256 and of AES-128 in XTS mode.
const LONG_KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\
                        202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f";
const SHORT_KEY: &str = "ffeeddccbbaa99887766554433221100f0e0d0c0b0a090807060504030201000";

fn open(text: &str) -> Result<Volume, Error> {
    Open::target(Target::Table(TableLine::new(text)?)).open()
}

fn opened(text: &str) -> Volume {
    open(text).unwrap_or_else(|error| panic!("{error}"))
}

fn error(text: &str) -> String {
    match open(text) {
        Ok(_) => panic!("{text}: opened"),
        Err(error) => error.to_string(),
    }
}

/// A file of so many sectors in which every sector is another.
fn disk(folder: &TempDir, name: &str, sectors: usize) -> String {
    let path = folder.path().join(name);
    fs::write(&path, bytes(sectors, name.len())).unwrap();
    path.display().to_string()
}

fn bytes(sectors: usize, seed: usize) -> Vec<u8> {
    let byte = |at: usize| u8::try_from((at / 7 + at / SECTOR * 31 + seed * 13) % 251).unwrap();
    (0..sectors * SECTOR).map(byte).collect()
}

fn sectors(data: &[u8], first: usize, count: usize) -> &[u8] {
    &data[first * SECTOR..(first + count) * SECTOR]
}

#[test]
fn linear_lines_show_ranges_of_their_devices_in_the_order_of_the_table() {
    let folder = TempDir::new().unwrap();
    let (one, other) = (disk(&folder, "a", 64), disk(&folder, "bb", 32));
    let table = format!("0 11 linear {one} 40\n11 32 linear {other} 0\n43 5 linear {one} 3\n");
    let volume = opened(&table);
    let info = volume.info();
    assert_eq!((info.kind, info.segments), (VolumeKind::Table, 3));
    assert_eq!((info.size, info.cipher.as_str()), (48 * 512, "none"));
    assert_eq!(info.source, format!("{one}, {other}"));
    assert!(matches!(info.base, BaseInfo::File { .. }));
    assert_eq!(info.other_bases.len(), 1);
    let (first, second) = (bytes(64, 1), bytes(32, 2));
    let expected = [sectors(&first, 40, 11), &second, sectors(&first, 3, 5)].concat();
    assert!(read(&volume) == expected);

    let new = bytes(48, 77);
    write(&volume, &new);
    assert!(read(&volume) == new);
    drop(volume);
    let mut first = first;
    first[40 * SECTOR..51 * SECTOR].copy_from_slice(sectors(&new, 0, 11));
    first[3 * SECTOR..8 * SECTOR].copy_from_slice(sectors(&new, 43, 5));
    assert!(fs::read(&one).unwrap() == first, "other sectors were changed");
    assert!(fs::read(&other).unwrap() == sectors(&new, 11, 32));
}

/// Each line alone is the same disk, as far as it goes.
#[test]
fn each_crypt_line_has_its_own_key_iv_offset_and_place() {
    let folder = TempDir::new().unwrap();
    let device = disk(&folder, "disk", 100);
    let first = |start| format!("{start} 24 crypt aes-xts-plain64 {LONG_KEY} 0 {device} 60 1 sector_size:4096");
    let second = |start| format!("{start} 13 crypt aes-xts-plain64 {SHORT_KEY} 9 {device} 7");
    let third = |start| format!("{start} 16 crypt aes-cbc-essiv:sha256 {} 5 {device} 30", &SHORT_KEY[..32]);
    let table = format!("{}\n{}\n37 3 linear {device} 0\n{}", first(0), second(24), third(40));
    let data = bytes(56, 5);
    let volume = opened(&table);
    assert_eq!(volume.info().cipher, "aes-xts-plain64, aes-cbc-essiv:sha256");
    assert_eq!((volume.info().key_bits, volume.info().sector_size), (512, 4096));
    assert_eq!(volume.info().logical_block, 512);
    write(&volume, &data);
    assert!(read(&volume) == data);
    drop(volume);
    for (line, start, count) in [(first(0), 0, 24), (second(0), 24, 13), (third(0), 40, 16)] {
        assert!(read(&opened(&line)) == sectors(&data, start, count), "{line}");
    }
    let stored = fs::read(&device).unwrap();
    assert_eq!(sectors(&stored, 0, 3), sectors(&data, 37, 3));
    let untouched = bytes(100, 4);
    for (start, end) in [(3, 7), (20, 30), (46, 60), (84, 100)] {
        assert_eq!(sectors(&stored, start, end - start), sectors(&untouched, start, end - start));
    }
}

#[test]
fn device_that_is_named_twice_is_opened_once_whatever_its_path() {
    let folder = TempDir::new().unwrap();
    let device = disk(&folder, "disk", 16);
    let link = folder.path().join("link");
    symlink(Path::new("disk"), &link).unwrap();
    let table = format!("0 8 linear {device} 8\n8 8 linear {} 0", link.display());
    let volume = opened(&table);
    assert!(volume.info().other_bases.is_empty());
    let stored = bytes(16, 4);
    assert!(read(&volume) == [sectors(&stored, 8, 8), sectors(&stored, 0, 8)].concat());
    assert!(error(&table).contains("in use"), "it is not locked");
}

#[test]
fn one_line_that_is_all_of_a_device_is_that_device() {
    let folder = TempDir::new().unwrap();
    let device = disk(&folder, "disk", 16);
    let volume = opened(&format!("0 16 linear {device} 0"));
    assert_eq!(volume.info().segments, 1);
    assert!(read(&volume) == bytes(16, 4));
    let part = opened(&format!("0 4 linear {} 2", disk(&folder, "part", 16)));
    assert!(read(&part) == sectors(&bytes(16, 4), 2, 4));
}

#[test]
fn zero_lines_read_as_zeros_and_error_lines_fail() {
    let folder = TempDir::new().unwrap();
    let device = disk(&folder, "disk", 8);
    let volume = opened(&format!("0 8 linear {device} 0\n8 8 zero\n16 8 error\n24 8 zero"));
    let mut disk = volume.blocking().unwrap();
    let mut found = vec![1; 16 * SECTOR];
    disk.read_at(0, &mut found).unwrap();
    assert_eq!(sectors(&found, 0, 8), bytes(8, 4));
    assert_eq!(sectors(&found, 8, 8), [0; 8 * SECTOR]);
    disk.write_at(4 * 512, &[7; 8 * SECTOR], true).unwrap();
    disk.read_at(24 * 512, &mut found[..8 * SECTOR]).unwrap();
    assert_eq!(sectors(&found, 0, 8), [0; 8 * SECTOR]);
    let failed = Err(Fault::Io(Errno::IO));
    assert_eq!(disk.read_at(15 * 512, &mut found[..1024]), failed);
    assert_eq!(disk.flush(), Ok(()));
    assert_eq!(disk.write_at(16 * 512, &[8; 512], false), Err(Fault::NoStore));
    // What lies before the range is done, and what lies behind it is not begun.
    assert_eq!(disk.write_at(15 * 512, &[8; 1024], false), Err(Fault::Partly));
    assert_eq!(disk.discard(16 * 512, 16 * 512), Err(Fault::NoStore));
    // As with the kernel's target: nothing that was acknowledged is lost.
    assert_eq!(disk.flush(), Ok(()));
    assert_eq!(fs::read(&device).unwrap()[4 * SECTOR..], [7; 4 * SECTOR]);
}

#[test]
fn small_blocks_are_those_of_the_largest_sector_that_cannot_be_cut() {
    let key = &SHORT_KEY[..32];
    let line = |start, device| format!("{start} 8 crypt aes-cbc-plain64 {key} 0 {device} 0 1 sector_size:4096");
    let volume = opened(&format!("{}\n8 8 linear ram:8K 0", line(0, "ram:4K")));
    assert_eq!(volume.info().logical_block, 4096);
    assert_eq!(volume.gate_for_any_client().unwrap().geometry().logical_block, 512);
    // A sector that is written as a whole or not at all cannot begin inside a block of another line.
    let crooked = format!("0 4 linear ram:8K 0\n{}", line(4, "ram:4K"));
    assert!(error(&crooked).contains("not aligned"), "{}", error(&crooked));
}

#[test]
fn what_does_not_fit_is_refused_by_line_or_device() {
    let folder = TempDir::new().unwrap();
    let device = disk(&folder, "disk", 16);
    for (table, says) in [
        (format!("0 8 linear {device} 0\n9 8 linear {device} 8"), "Gap in table"),
        (format!("0 8 linear {device} 0\n8 9 linear {device} 8"), "cut short"),
        (format!("0 8 linear {device} 0\n8 8 linear {device}x 8"), "No such file"),
        ("0 8 linear zoned:ram:1M,zone-size=64K 0\n8 8 zero".to_owned(), "zoned"),
        ("0 8 linear /dev/null 0".to_owned(), "neither a regular file"),
    ] {
        let error = error(&table);
        assert!(error.contains(says) && !error.contains('\n'), "{table}: {error}");
    }
    let locked = opened(&format!("0 16 linear {device} 0"));
    assert!(error(&format!("0 8 zero\n8 8 linear {device} 0")).contains("in use"));
    drop(locked);
}

#[test]
fn table_is_shown_on_one_line_without_keys_and_printed_on_several() {
    let table =
        format!("0 8 crypt aes-xts-plain64 {SHORT_KEY} 0 ram:4K 0\n# the rest\n8 8 linear a\\ b 3\n16 1 zero\n");
    let target = Target::Table(TableLine::new(&table).unwrap());
    let hidden = "0".repeat(64);
    let shown = [
        format!("0 8 crypt aes-xts-plain64 {hidden} 0 ram:4K 0"),
        "8 8 linear a\\ b 3".to_owned(),
        "16 1 zero".to_owned(),
    ];
    assert_eq!(target.to_string(), shown.join(","));
    let printed = Open::target(target.clone()).table(false).unwrap();
    assert_eq!(*printed.line, shown.join("\n"));
    assert!(Open::target(target).table(true).unwrap().line.contains(SHORT_KEY));
}
