//! Places of a disk after a panic.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cryptline_testkit::suite::devices;

use super::*;
use crate::{Medium, Open, Plain};

/// Zeros, whose reading panics where asked.
#[derive(Default)]
struct Frail(AtomicBool);

impl Medium for Frail {
    fn size(&self) -> u64 {
        1 << 20
    }

    fn read_at(&self, _offset: u64, target: &mut [u8]) -> io::Result<()> {
        assert!(!self.0.load(Ordering::Relaxed), "as the test wants");
        target.fill(0);
        Ok(())
    }

    fn write_at(&self, _offset: u64, _source: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A disk in whose place of this thread somebody has panicked.
fn panicked() -> Disk {
    let medium = Arc::new(Frail::default());
    let plain = Plain::new("aes-xts-plain64", 64);
    let open = Open::medium(Arc::clone(&medium)).plain(plain);
    let disk = open.key([1; 64]).open().unwrap().disk().unwrap();
    medium.0.store(true, Ordering::Relaxed);
    let read = catch_unwind(AssertUnwindSafe(|| disk.read_at(0, &mut [0; 512])));
    assert!(read.is_err());
    medium.0.store(false, Ordering::Relaxed);
    assert_eq!(poisoned(&disk), 1);
    disk
}

fn poisoned(disk: &Disk) -> usize {
    let places = disk.places.iter();
    places.filter(|place| place.is_poisoned()).count()
}

#[test]
fn place_of_a_panic_is_made_anew_once_and_works_on() {
    let disk = panicked();
    disk.read_at(0, &mut [0; 512]).unwrap();
    assert_eq!(poisoned(&disk), 0);
    disk.read_at(512, &mut [0; 512]).unwrap();
}

#[test]
fn who_has_waited_for_a_place_of_a_panic_finds_it_empty() {
    let disk = panicked();
    let place = disk.places.iter().find(|place| place.is_poisoned());
    let place = place.unwrap();
    assert!(wait_for(place).is_none());
    assert!(!place.is_poisoned());
    disk.read_at(0, &mut [0; 512]).unwrap();
}

/// A disk over any device.
fn over(gate: Gate) -> Disk {
    let volume = Open::new("ram:1M").open().unwrap();
    Disk { places: vec![Mutex::new(None)], gate, volume }
}

#[test]
fn zeroing_that_is_refused_has_changed_nothing() {
    // In blocks, as those keep them who share a volume with other programs.
    let disk = over(devices::ram().unwrap().gate);
    let len = ZEROS.len() + 512;
    disk.write_at(0, &vec![7; len], false).unwrap();
    for (offset, len) in [(0, ZEROS.len() + 1), (0, ZEROS.len() + 511), (511, 512)] {
        assert_eq!(disk.write_zeroes(offset, len as u64), Err(Fault::Misaligned));
    }
    assert_eq!(disk.write_zeroes(512, 0), Ok(()));
    let mut found = vec![0; len];
    disk.read_at(0, &mut found).unwrap();
    assert!(found.iter().all(|&byte| byte == 7));
}

#[test]
fn zeroing_of_which_a_part_was_made_was_not_refused() {
    const BORDER: u64 = 1 << 20;
    const LEN: u64 = 2 * ZEROS.len() as u64;
    let refuse = |when| format!("write:{when}:error=EOPNOTSUPP");
    let cases = [
        // Nothing is taken; then the first of two ranges, and nothing behind it; then the first piece that is written.
        (vec![refuse("every=1")], BORDER - 4096, Fault::NotSupported),
        (vec![refuse("after=1")], BORDER - 4096, Fault::Partly),
        (vec![refuse("nth=1"), refuse("after=2")], 0, Fault::Partly),
    ];
    for (rules, offset, told) in cases {
        let rules: Vec<_> = rules.iter().map(String::as_str).collect();
        let lower = devices::faulty(devices::ram().unwrap(), &rules);
        let ranges = devices::swapped(lower, devices::SIZE - BORDER);
        let disk = over(ranges.gate.clone());
        assert_eq!(disk.write_zeroes(offset, LEN), Err(told), "{rules:?}");
    }
}
