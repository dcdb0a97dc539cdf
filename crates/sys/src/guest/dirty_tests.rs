//! The log of written pages: which bits, what has no place in it, and threads that share a byte.

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::*;
use crate::{GuestMemory, GuestRegion};

const GUEST: u64 = 64 * PAGE;
const USER: u64 = 0x7000_0000;
const PAGES: u64 = 64;
/// Bytes of a log for what lies before the memory, and for all.
const BEFORE: usize = 8;
const WHOLE: usize = 16;

fn file(len: u64) -> OwnedFd {
    let file = memfd_create("log", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, len).unwrap();
    file
}

/// Memory with a log of `len` bytes, behind five others in its file.
fn logged(len: usize) -> (GuestMemory, OwnedFd) {
    let mut memory = GuestMemory::default();
    let region = GuestRegion { guest: GUEST, user: USER, len: PAGES * PAGE, offset: 0 };
    memory.add(region, &file(PAGES * PAGE)).unwrap();
    let log = file(len as u64 + 5);
    memory.set_log(Some(DirtyLog::map(&log, 5, len as u64).unwrap().into()));
    (memory, log)
}

/// The pages whose bits are set, counted from the first of the memory; they are cleared.
fn take(log: &OwnedFd) -> Vec<usize> {
    let mut bits = [0; 5 + WHOLE];
    let len = rustix::io::pread(log, &mut bits, 0).unwrap();
    rustix::io::pwrite(log, &vec![0; len], 0).unwrap();
    assert_eq!(bits[..5 + BEFORE], [0; 5 + BEFORE]);
    let is_set = |page: &usize| bits[5 + BEFORE + page / 8] & 1 << (page % 8) != 0;
    (0..64).filter(is_set).collect()
}

#[test]
fn pages_that_were_written_are_noted_and_no_others() {
    let (memory, log) = logged(WHOLE);
    let some = vec![1; 20 * 4096];
    for (at, len, pages) in [
        (0, 1, 0..1),
        (4095, 1, 0..1),
        (4095, 2, 0..2),
        (4096, 4096, 1..2),
        (7 * 4096 + 9, 4096, 7..9),
        (3 * 4096, 18 * 4096, 3..21),
        (8 * 4096, 8 * 4096, 8..16),
        (63 * 4096, 4096, 63..64),
    ] {
        memory.write(GUEST + at, &some[..len]).unwrap();
        assert_eq!(take(&log), pages.collect::<Vec<_>>(), "{at} {len}");
    }
    memory.write(GUEST, &[]).unwrap();
    memory.read(GUEST, &mut [0; 64]).unwrap();
    assert_eq!(take(&log), []);
}

#[test]
fn words_and_parts_of_ranges_are_noted_where_the_guest_has_them() {
    let (memory, log) = logged(WHOLE);
    let range = memory.user_range(USER + 4096, 5 * 4096).unwrap();
    range.store16(4096, 1).unwrap();
    assert_eq!(take(&log), [2]);
    range.store64(8, 1).unwrap();
    assert_eq!(take(&log), [1]);
    let part = range.part(3 * 4096, 4096).unwrap();
    part.write(4090, &[1; 6]).unwrap();
    assert_eq!(take(&log), [4]);
    part.write(4090, &[1; 7]).unwrap_err();
    part.load16(0).unwrap();
    assert_eq!(take(&log), []);
}

#[test]
fn nothing_is_written_that_has_no_place_in_the_log() {
    let (memory, log) = logged(WHOLE - 1);
    let last = GUEST + 56 * PAGE;
    assert_eq!(memory.write(last, &[1]), Err(GuestFault::Outside));
    assert_eq!(memory.write(last - 1, &[1; 2]), Err(GuestFault::Outside));
    assert_eq!((memory.user_range(USER + 56 * PAGE, 8).unwrap()).store16(0, 1), Err(GuestFault::Outside));
    let mut bytes = [7; 2];
    memory.read(last - 1, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 2]);
    assert_eq!(memory.write(u64::MAX, &[1; 2]), Err(GuestFault::Outside));
    memory.write(last - 1, &[1]).unwrap();
    assert_eq!(take(&log), [55]);
}

#[test]
fn log_that_is_cut_short_fails_writes_and_ends_nobody() {
    let (memory, log) = logged(WHOLE);
    ftruncate(&log, 0).unwrap();
    assert_eq!(memory.write(GUEST, &[1]), Err(GuestFault::Lost));
    assert_eq!(memory.write(GUEST, &[1]), Err(GuestFault::Lost));
}

#[test]
fn log_without_bytes_or_addresses_is_refused() {
    let file = file(64);
    for (offset, len) in [(0, 0), (0, 1 << 62), (u64::MAX - 3, 8)] {
        assert!(DirtyLog::map(&file, offset, len).is_err(), "{offset} {len}");
    }
}

/// An owner that clears a bit while its page is being written has copied the old bytes.
#[test]
fn bits_are_set_when_the_write_has_been_made() {
    let log = file(WHOLE as u64);
    let dirty = DirtyLog::map(&log, 0, WHOLE as u64).unwrap();
    dirty.mark(64, 65).unwrap();
    let write = || {
        assert_eq!(dirty.bits.take_bits(BEFORE), Ok(3));
        Err(GuestFault::Lost)
    };
    assert_eq!(dirty.note(GUEST, 4097, write), Err(GuestFault::Lost));
    assert_eq!(dirty.bits.take_bits(BEFORE), Ok(3));
}

/// The owner clears bits and copies their pages while others write them, and once more when the writers have stopped.
#[test]
fn writes_of_many_threads_are_in_the_copy_or_in_the_log() {
    let (memory, log) = logged(WHOLE);
    let bits = GuestRange::map(&log, 5, WHOLE).unwrap();
    let mut copies = [0; 8];
    let mut copy_dirty = || {
        let dirty = bits.take_bits(BEFORE).unwrap();
        for (page, copy) in (0..).zip(&mut copies) {
            let mut bytes = [0; 8];
            if dirty & 1 << page != 0 {
                memory.read(GUEST + page * PAGE, &mut bytes).unwrap();
                *copy = u64::from_le_bytes(bytes);
            }
        }
    };
    std::thread::scope(|scope| {
        let writers = (0..8).map(|page| {
            let memory = &memory;
            scope.spawn(move || {
                for round in 1..=2000u64 {
                    memory.write(GUEST + page * PAGE, &round.to_le_bytes()).unwrap();
                }
            })
        });
        let writers: Vec<_> = writers.collect();
        while !writers.iter().all(|writer| writer.is_finished()) {
            copy_dirty();
            std::thread::yield_now();
        }
    });
    copy_dirty();
    assert_eq!(copies, [2000; 8]);
}
