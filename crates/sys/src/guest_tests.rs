//! Memory of another process: addresses, borders, and files that are cut short.

use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::*;

const PAGE: u64 = 4096;

fn file(len: u64) -> OwnedFd {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, len).unwrap();
    file
}

fn place(guest: u64, user: u64, len: u64, offset: u64) -> GuestRegion {
    GuestRegion { guest, user, len, offset }
}

/// Two adjacent regions of one file, swapped in it, and one further away.
fn memory() -> (GuestMemory, OwnedFd) {
    let file = file(4 * PAGE);
    let mut memory = GuestMemory::default();
    for region in [
        place(0x1000, 0x7000_1000, PAGE, 2 * PAGE),
        place(0x2000, 0x7000_9000, PAGE, PAGE),
        place(0x10_0000, 0x7010_0000, 512, 3 * PAGE + 100),
    ] {
        memory.add(region, &file).unwrap();
    }
    (memory, file)
}

fn in_file(file: &OwnedFd, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rustix::io::pread(file, &mut bytes, offset).unwrap();
    bytes
}

#[test]
fn bytes_go_where_the_table_says_across_adjacent_regions() {
    let (memory, file) = memory();
    memory.write(0x1ffe, b"abcd").unwrap();
    assert_eq!(in_file(&file, 3 * PAGE - 2, 2), b"ab");
    assert_eq!(in_file(&file, PAGE, 2), b"cd");
    let mut back = [0; 4];
    memory.read(0x1ffe, &mut back).unwrap();
    assert_eq!(&back, b"abcd");
    memory.write(0x10_0000 + 500, &[7; 12]).unwrap();
    assert_eq!(in_file(&file, 3 * PAGE + 600, 12), [7; 12]);
}

#[test]
fn what_leaves_the_shared_memory_is_refused() {
    let (memory, _file) = memory();
    let mut bytes = [0; 16];
    for address in [0, 0xfff, 0x2ff8, 0x3000, 0x10_0000 + 500, u64::MAX - 3, u64::MAX] {
        assert_eq!(memory.read(address, &mut bytes), Err(GuestFault::Outside), "{address:#x}");
        assert_eq!(memory.write(address, &bytes), Err(GuestFault::Outside), "{address:#x}");
    }
    memory.read(u64::MAX, &mut []).unwrap();
}

#[test]
fn regions_that_overlap_or_have_no_addresses_are_refused() {
    let (mut memory, file) = memory();
    for bad in [
        place(0x5000, 0x5000, 0, 0),
        place(0x1800, 0x5000, PAGE, 0),
        place(0x5000, 0x7000_1800, PAGE, 0),
        place(u64::MAX - 5, 0x5000, PAGE, 0),
        place(0x5000, u64::MAX - 5, PAGE, 0),
        place(0x5000, 0x5000, PAGE, u64::MAX - 5),
        place(0x5000, 0x8_0000_0000, 1 << 62, 0),
    ] {
        memory.add(bad, &file).unwrap_err();
    }
    assert_eq!(memory.len(), 3);
}

#[test]
fn removed_region_is_gone_from_the_table_and_stays_where_it_is_in_use() {
    let (memory, _file) = memory();
    let mut smaller = memory.clone();
    assert!(!smaller.remove(&place(0x1000, 0x7000_1000, 512, 0)));
    assert!(smaller.remove(&place(0x1000, 0x7000_1000, PAGE, 2 * PAGE)));
    assert_eq!(smaller.write(0x1000, &[1]), Err(GuestFault::Outside));
    memory.write(0x1000, &[1]).unwrap();
    smaller.write(0x2000, &[1]).unwrap();
}

#[test]
fn words_are_reached_by_user_address_inside_their_range_only() {
    let (memory, file) = memory();
    let range = memory.user_range(0x7000_9000 + 16, 32).unwrap();
    range.store16(2, 0x1234).unwrap();
    range.store64(8, 0x0102_0304_0506_0708).unwrap();
    assert_eq!(range.load16(2), Ok(0x1234));
    assert_eq!(range.load64(8), Ok(0x0102_0304_0506_0708));
    assert_eq!(in_file(&file, PAGE + 18, 2), 0x1234u16.to_le_bytes());
    assert_eq!(range.load16(1), Err(GuestFault::Misaligned));
    assert_eq!(range.store64(4, 0), Err(GuestFault::Misaligned));
    for offset in [31, 32, usize::MAX] {
        assert_eq!(range.load16(offset), Err(GuestFault::Outside));
        assert_eq!(range.store64(offset, 0), Err(GuestFault::Outside));
        assert_eq!(range.write(offset, b"ab"), Err(GuestFault::Outside));
    }
    let part = range.part(2, 4).unwrap();
    assert_eq!(part.load16(0), Ok(0x1234));
    assert_eq!(part.load16(4), Err(GuestFault::Outside));
    assert!(range.part(30, 4).is_err());
    assert!(memory.user_range(0x7000_9000 + 4000, 200).is_err());
    assert!(memory.user_range(0x6fff_0000, 1).is_err());
}

#[test]
fn memory_that_is_cut_short_is_an_error_for_good_and_no_death() {
    let (memory, file) = memory();
    let range = memory.user_range(0x7010_0000, 512).unwrap();
    memory.write(0x10_0000, &[1; 8]).unwrap();
    ftruncate(&file, 0).unwrap();
    assert_eq!(memory.read(0x10_0000, &mut [0; 8]), Err(GuestFault::Lost));
    assert_eq!(range.load16(0), Err(GuestFault::Lost));
    assert_eq!(memory.write(0x1000, &[1; 8]), Err(GuestFault::Lost));
    ftruncate(&file, 4 * PAGE).unwrap();
    assert_eq!(memory.write(0x1000, &[1; 8]), Err(GuestFault::Lost));
}

#[test]
fn memory_that_has_lost_a_page_is_not_touched_again() {
    let file = file(4 * PAGE);
    let range = GuestRange::map(&file, 0, 4 * 4096).unwrap();
    ftruncate(&file, PAGE).unwrap();
    assert_eq!(range.read(3 * 4096, &mut [0; 8]), Err(GuestFault::Lost));
    // Its first page is still there.
    let mut bytes = [7; 8];
    assert_eq!(range.read(0, &mut bytes), Err(GuestFault::Lost));
    assert_eq!(bytes, [7; 8], "nothing was read");
    assert_eq!(range.write(0, &[1; 8]), Err(GuestFault::Lost));
    assert_eq!(range.store16(16, 0x0101), Err(GuestFault::Lost));
    assert_eq!(range.store64(24, 1), Err(GuestFault::Lost));
    assert_eq!(in_file(&file, 0, 32), [0; 32], "nothing was written");
}
