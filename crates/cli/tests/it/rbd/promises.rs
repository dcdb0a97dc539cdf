//! The `rbd` base over a cluster of this machine: what every device promises, holes, growth, and requests whose queue is
//! gone.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cryptline_engine::base::{RbdDevice, RbdName};
use cryptline_engine::blocking::Blocking;
use cryptline_engine::{BackendChoice, Fault, Gate, OpenError};
use cryptline_testkit::ceph::{Ceph, POOL};
use cryptline_testkit::suite::devices::{self, AES_4096, SIZE};
use cryptline_testkit::suite::{self, Fresh, Setup, Watchdog, checks};

type Check = fn(&Fresh, Setup);

const CHECKS: &[Check] = &[
    checks::what_is_written_is_read_back_at_every_alignment_and_size,
    checks::last_block_is_written_and_nothing_after_it,
    checks::durable_write_is_read_back,
    checks::flush_succeeds_with_and_without_writes,
    checks::discarded_range_leaves_its_neighbours_alone,
    checks::zeroed_range_reads_as_zeros_and_leaves_its_neighbours_alone,
    checks::range_past_the_end_is_refused,
    checks::refused_request_changes_nothing_and_latches_nothing,
    checks::extents_cover_the_device_and_hide_no_data,
    checks::deep_queue_completes_each_request_once,
    checks::queues_of_two_threads_see_each_others_completed_writes,
    checks::neighbouring_blocks_written_by_two_threads_at_once_all_arrive,
    checks::dropping_a_queue_with_requests_in_flight_harms_nobody,
];

fn name(ceph: &Ceph, image: &str) -> RbdName {
    RbdName {
        pool: POOL.to_owned(),
        namespace: None,
        image: image.to_owned(),
        snapshot: None,
        conf: Some(ceph.conf()),
        id: None,
    }
}

fn make(ceph: &Ceph, image: &str, size: u64, options: &[&str]) -> RbdName {
    let (size, spec) = (format!("{size}B"), format!("{POOL}/{image}"));
    let create = ["create", "--size", &size, &spec];
    let options = options.iter().copied();
    ceph.rbd(create.into_iter().chain(options)).success();
    name(ceph, image)
}

pub fn image_keeps_what_devices_promise(ceph: &Ceph) {
    let made = Cell::new(0);
    let fresh = || {
        made.set(made.get() + 1);
        // Small objects, so that many requests cross from one into the next.
        let name = make(ceph, &format!("disk{}", made.get()), SIZE, &["--object-size", "64K"]);
        let device = RbdDevice::open(&name, false).expect("it was just made");
        Some(Fresh::new(Gate::new(device)))
    };
    for check in CHECKS {
        suite::run(fresh, check);
    }
    let encrypted = || Some(devices::crypt(fresh()?, &AES_4096));
    suite::run(encrypted, checks::what_is_written_is_read_back_at_every_alignment_and_size);
    suite::run(encrypted, checks::deep_queue_completes_each_request_once);

    let _watchdog = Watchdog::start(Duration::from_secs(120));
    holes_are_holes_until_they_are_written_to(ceph);
    data_is_found_from_inside_an_object_and_in_a_clone(ceph);
    image_that_caches_by_its_own_settings_is_only_read(ceph);
    second_writer_is_refused_and_readers_are_not(ceph);
    flush_fails_once_its_writes_may_be_cut_off(ceph);
    device_grows_with_its_image_and_notices_when_it_shrinks(ceph);
    snapshot_under_load_has_what_was_durable_before_and_nothing_out_of_order(ceph);
    for backend in [BackendChoice::Auto, BackendChoice::Syscalls] {
        what_is_removed_under_a_reader_is_an_error_and_never_other_bytes(ceph, backend);
    }
}

fn holes_are_holes_until_they_are_written_to(ceph: &Ceph) {
    // With a map of its objects, and without.
    let bare = ["--image-feature", "exclusive-lock"];
    for (image, options) in [("mapped", &[][..]), ("asked", &bare[..])] {
        let name = make(ceph, image, 64 << 20, options);
        let gate = Gate::new(RbdDevice::open(&name, false).expect("it was just made"));
        let extent = |at: u64| gate.extent(at, (64 << 20) - at).expect("an extent");
        let mut disk = Blocking::new(&gate, BackendChoice::Auto).expect("a queue");
        let before = extent(0);
        assert!(before.hole && before.zero, "{before:?}");
        disk.write_at(9 << 20, &[7; 4096], false).expect("a write");
        assert_eq!((extent(0).len, extent(0).hole), (8 << 20, true));
        assert_eq!((extent(8 << 20).len, extent(8 << 20).hole), (4 << 20, false));
        disk.discard(8 << 20, 4 << 20).expect("a discard");
        assert!(extent(8 << 20).hole, "{:?}", extent(8 << 20));
        // As long as two parts are, of which the last is short.
        disk.write_zeroes(0, 64 << 20, true).expect("zeros");
    }
}

fn data_is_found_from_inside_an_object_and_in_a_clone(ceph: &Ceph) {
    let name = make(ceph, "base", 64 << 20, &[]);
    let gate = Gate::new(RbdDevice::open(&name, false).expect("it was just made"));
    let mut disk = Blocking::new(&gate, BackendChoice::Auto).expect("a queue");
    disk.write_at(8 << 20, &[7; 8 << 20], true).expect("a write");
    let rest = |gate: &Gate, at: u64| gate.extent(at, (64 << 20) - at).expect("an extent");
    // The first question of all, so no other answer is used.
    let inside = rest(&gate, 9 << 20);
    assert_eq!((inside.len, inside.hole), (7 << 20, false));
    assert!(rest(&gate, 17 << 20).hole);
    drop((disk, gate));

    for words in [
        &["snap", "create", "rbd/base@snap"][..],
        &["snap", "protect", "rbd/base@snap"],
        &["clone", "rbd/base@snap", "rbd/heir"],
    ] {
        ceph.rbd(words.iter().copied()).success();
    }
    let heir = RbdName { image: "heir".to_owned(), ..name };
    let gate = Gate::new(RbdDevice::open(&heir, false).expect("it was just made"));
    for at in [8 << 20, 9 << 20] {
        let inherited = rest(&gate, at);
        assert!(!inherited.hole && !inherited.zero, "{inherited:?}");
    }
    let mut read = [0; 4096];
    let mut disk = Blocking::new(&gate, BackendChoice::Auto).expect("a queue");
    disk.read_at(9 << 20, &mut read).expect("a read");
    assert_eq!(read, [7; 4096]);
}

fn image_that_caches_by_its_own_settings_is_only_read(ceph: &Ceph) {
    let name = make(ceph, "cached", 8 << 20, &[]);
    let set = |level: &str, of: &str, value: &str| {
        ceph.rbd(["config", level, "set", of, "rbd_cache", value]).success();
    };
    for (level, of) in [("image", "rbd/cached"), ("pool", "rbd")] {
        set(level, of, "true");
        let why = RbdDevice::open(&name, false).map(drop).unwrap_err();
        let why = why.to_string();
        let remedy = format!("`rbd config {level} rm {of} rbd_cache`");
        assert!(why.contains(&remedy), "{why}");
        drop(RbdDevice::open(&name, true).expect("for reading"));
        ceph.rbd(["config", level, "rm", of, "rbd_cache"]).success();
    }
    set("image", "rbd/cached", "false");
    drop(RbdDevice::open(&name, false).expect("nothing is cached"));
}

fn flush_fails_once_its_writes_may_be_cut_off(ceph: &Ceph) {
    let name = make(ceph, "shrinks", 16 << 20, &[]);
    let gate = Gate::new(RbdDevice::open(&name, false).expect("it was just made"));
    let mut disk = Blocking::new(&gate, BackendChoice::Auto).expect("a queue");
    disk.write_at(0, &[3; 4096], false).expect("a write");
    disk.flush().expect("a flush");
    // A snapshot is news, too, and changes nothing.
    ceph.rbd(["snap", "create", "rbd/shrinks@then"]).success();
    disk.flush().expect("a flush");
    ceph.rbd(["snap", "rm", "rbd/shrinks@then"]).success();
    let resize = ["resize", "--size", "9M", "--allow-shrink", "rbd/shrinks"];
    ceph.rbd(resize).success();
    // Across the new end: the library writes the first half and says that it has written all.
    let across = disk.write_at((9 << 20) - (128 << 10), &[4; 256 << 10], false);
    assert_eq!(across, Ok(()), "the library has become honest");
    assert!(disk.flush().is_err(), "half of the write is nowhere");
    assert!(gate.is_latched());
}

fn second_writer_is_refused_and_readers_are_not(ceph: &Ceph) {
    let name = make(ceph, "owned", 8 << 20, &[]);
    let first = RbdDevice::open(&name, false).expect("it was just made");
    let second = RbdDevice::open(&name, false).map(|_| ());
    assert!(matches!(second, Err(OpenError::Busy { .. })), "{second:?}");
    let reader = Gate::new(RbdDevice::open(&name, true).expect("readers are many"));
    assert!(reader.geometry().read_only);
    drop(first);
    drop(RbdDevice::open(&name, false).expect("the lock is free again"));
}

/// One durable write after the other while somebody makes a snapshot.
fn snapshot_under_load_has_what_was_durable_before_and_nothing_out_of_order(ceph: &Ceph) {
    const BLOCK: usize = 4096;
    let name = make(ceph, "snapped", 64 << 20, &["--object-size", "64K"]);
    let gate = Gate::new(RbdDevice::open(&name, false).expect("it was just made"));
    let (written, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let begun = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut disk = Blocking::new(&gate, BackendChoice::Auto).expect("a queue");
            // All over the image.
            for number in 0.. {
                if is_over.load(Ordering::Relaxed) || number == 8192 {
                    break;
                }
                disk.write_at(place(number), &[7; BLOCK], true).expect("a write");
                written.store(number + 1, Ordering::Relaxed);
            }
        });
        while written.load(Ordering::Relaxed) < 32 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let begun = written.load(Ordering::Relaxed);
        ceph.rbd(["snap", "create", "rbd/snapped@then"]).success();
        is_over.store(true, Ordering::Relaxed);
        begun
    });
    let then = RbdName { snapshot: Some("then".to_owned()), ..name };
    let gate = Gate::new(RbdDevice::open(&then, true).expect("it was just made"));
    let mut disk = Blocking::new(&gate, BackendChoice::Auto).expect("a queue");
    let mut is_there = |number| {
        let mut found = [0; BLOCK];
        disk.read_at(place(number), &mut found).expect("a read");
        assert!(found == [7; BLOCK] || found == [0; BLOCK]);
        found == [7; BLOCK]
    };
    let all = written.load(Ordering::Relaxed);
    let there = (0..all).take_while(|&number| is_there(number)).count() as u64;
    assert!((begun..=all).contains(&there), "{begun} {there} {all}");
    assert!(!(there..all).any(is_there), "a later write without an earlier one");
}

/// Where the write of this number goes, among 8192 blocks.
fn place(number: u64) -> u64 {
    number * 2657 % 8192 * 8192
}

fn what_is_removed_under_a_reader_is_an_error_and_never_other_bytes(ceph: &Ceph, backend: BackendChoice) {
    const HALF: usize = 4 << 20;
    let rbd = |words: &[&str]| drop(ceph.rbd(words.iter().copied()).success());
    let name = make(ceph, "leaves", 16 << 20, &["--object-size", "64K"]);
    let mut content = vec![0; 2 * HALF];
    suite::fill(&mut content, 0, 3);
    let write = |bytes: &[u8]| {
        let gate = Gate::new(RbdDevice::open(&name, false).expect("nobody writes to it"));
        let mut disk = Blocking::new(&gate, backend).expect("a queue");
        disk.write_at(0, bytes, true).expect("a write");
    };
    write(&content);
    rbd(&["snap", "create", "rbd/leaves@then"]);
    // Half of the snapshot is its own by now, and the other still the image's.
    write(&vec![9; HALF]);
    let then = RbdName { snapshot: Some("then".to_owned()), ..name.clone() };
    let snapshot = Gate::new(RbdDevice::open(&then, true).expect("it was just made"));
    let mut disk = Blocking::new(&snapshot, backend).expect("a queue");
    let mut stays = |content: &[u8]| {
        let mut found = vec![1; content.len()];
        let read = disk.read_at(0, &mut found);
        assert!(read.is_err() || found == content, "other bytes");
        read
    };
    let mut whole = content.clone();
    whole.resize(12 << 20, 0);
    stays(&whole).expect("nothing has happened yet");
    assert!(snapshot.extent(12 << 20, 4096).expect("an extent").hole);
    rbd(&["snap", "rm", "rbd/leaves@then"]);
    write(&vec![8; 2 * HALF]);
    let ended = loop {
        if let Err(fault) = stays(&whole) {
            break fault;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(ended, Fault::Gone);
    assert_eq!(stays(&whole), Err(Fault::Gone), "it comes back");
    let extent = snapshot.extent(12 << 20, 4096).expect("an extent");
    assert!(!extent.hole && !extent.zero, "{extent:?}");
    drop((disk, snapshot));

    // An image that nobody writes to.
    let reader = Gate::new(RbdDevice::open(&name, true).expect("it is there"));
    let mut disk = Blocking::new(&reader, backend).expect("a queue");
    let mut found = vec![0; HALF];
    disk.read_at(0, &mut found).expect("a read");
    assert!(found == vec![8; HALF]);
    rbd(&["rm", "--no-progress", "rbd/leaves"]);
    assert_eq!(disk.read_at(0, &mut found), Err(Fault::Gone));
}

fn device_grows_with_its_image_and_notices_when_it_shrinks(ceph: &Ceph) {
    let name = make(ceph, "grows", 8 << 20, &[]);
    let gate = Gate::new(RbdDevice::open(&name, false).expect("it was just made"));
    let mut disk = Blocking::new(&gate, BackendChoice::Auto).expect("a queue");
    assert_eq!(gate.grow(), 8 << 20);
    let resize = |size: &str, more: &[&str]| {
        let resize = ["resize", "--size", size, "rbd/grows"];
        ceph.rbd(resize.into_iter().chain(more.iter().copied())).success();
    };
    resize("16M", &[]);
    while gate.grow() != 16 << 20 {
        std::thread::sleep(Duration::from_millis(10));
    }
    disk.write_at(12 << 20, &[5; 4096], true).expect("room");
    resize("8M", &["--allow-shrink"]);
    let mut read = [0; 4096];
    while disk.read_at(12 << 20, &mut read).is_ok() {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(disk.read_at(12 << 20, &mut read), Err(Fault::Truncated));
    assert_eq!(gate.grow(), 16 << 20, "it never becomes smaller");
}
