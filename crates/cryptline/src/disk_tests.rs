//! Places of a disk after a panic.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
