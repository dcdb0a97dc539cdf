//! The write cache, which a driver may turn off: what is durable then, here and at the next server.

use super::*;
use crate::common::stack::VolatileDisk;
use crate::common::vhost::{AVAILABLE, RING_PACKED, SCRATCH};

const WRITE_CACHE: u64 = 1 << 11;
const FEATURES: u64 = 1 << 28 | 1 << 30 | 1 << 32 | FLUSH | EVENT_IDX | WRITE_CACHE;
const AT: u32 = 32;
/// Where the buffer that is kept for one queue of 256 places says what was set.
const RECORD: u64 = 4160;

fn volatile() -> (VolatileDisk, Served) {
    let disk = VolatileDisk::new(1 << 20);
    let served = Served::new(disk.stack());
    (disk, served)
}

/// Returns the answer to a front-end that passes its driver's wish on.
fn set(front: &FrontEnd, at: u32, value: &[u8]) -> bool {
    let len = u32::try_from(value.len()).expect("small");
    let mut payload = [at, len, 0].map(u32::to_ne_bytes).concat();
    payload.extend(value);
    front.tell_with(25, &payload, &[]).expect("an answer")
}

/// Tells if a write is durable as soon as it is over.
fn is_durable(driver: &mut Driver, disk: &VolatileDisk) -> bool {
    let before = disk.stable()[..4096].to_vec();
    let data: Vec<u8> = before.iter().map(|byte| byte.wrapping_add(1)).collect();
    assert_eq!(driver.run(&write(0, &data)).0, OK);
    let after = disk.stable()[..4096].to_vec();
    assert!(after == before || after == data);
    after == data
}

/// The same driver at another server, which is told nothing that a front-end would not tell.
fn go_on(disk: &VolatileDisk, driver: &mut Driver, keep: Option<&(Vec<u8>, Machine)>) -> Served {
    let next = Served::new(disk.stack());
    driver.go_to(next.connect(), FEATURES);
    if let Some((place, buffer)) = keep {
        assert!(hand_over(&driver.front, place, buffer));
    }
    driver.start_queue(driver.queue.used);
    next
}

/// The same driver at a server that is asked for the configuration. The queue is not started.
fn ask_at_next(driver: &mut Driver, stream: UnixStream, features: u64) {
    driver.go_to(stream, features);
    driver.front.config(0, 60);
}

/// A buffer that the front-end keeps, with the running queue in it.
fn keep(driver: &Driver) -> (Vec<u8>, Machine) {
    let (place, buffer) = (place(&driver.front), Machine::new());
    let base = driver.front.base(0).expect("a base");
    assert!(hand_over(&driver.front, &place, &buffer));
    driver.start_queue(base);
    (place, buffer)
}

#[test]
fn writes_are_durable_while_the_driver_has_turned_the_cache_off() {
    let (disk, served) = volatile();
    let mut driver = Driver::start_with(served.connect(), FLUSH | EVENT_IDX | WRITE_CACHE);
    assert_eq!(driver.front.config(AT, 1)[12..], [1]);
    for _ in 0..3 {
        assert!(!is_durable(&mut driver, &disk), "a flush would come");
        assert_eq!(driver.run(&kind(4, &[])).0, OK);
        assert!(set(&driver.front, AT, &[0]));
        assert_eq!(driver.front.config(AT, 1)[12..], [0]);
        assert!(is_durable(&mut driver, &disk));
        assert!(set(&driver.front, AT, &[1]));
        assert_eq!(driver.front.config(AT, 1)[12..], [1]);
    }
}

#[test]
fn discards_and_zeroings_are_durable_too_while_the_cache_is_off() {
    let (disk, served) = volatile();
    let mut driver = Driver::start_with(served.connect(), FLUSH | EVENT_IDX | WRITE_CACHE);
    assert!(set(&driver.front, AT, &[0]));
    let mut range = 0u64.to_le_bytes().to_vec();
    range.extend([8u32, 0].map(u32::to_le_bytes).concat());
    for number in [11, 13] {
        assert!(is_durable(&mut driver, &disk));
        assert_eq!(driver.run(&kind(number, &range)).0, OK);
        assert!(disk.stable()[..4096].iter().all(|byte| *byte == 0), "{number}");
    }
}

#[test]
fn requests_under_way_end_while_the_cache_is_turned_on_and_off() {
    let (disk, served) = volatile();
    let mut driver = Driver::start_with(served.connect(), FLUSH | EVENT_IDX | WRITE_CACHE);
    let data = pattern(0, 4096, 7);
    for round in 0..20 {
        for sector in 0..100 {
            driver.put(&write(8 * sector, &data));
        }
        driver.kick();
        assert!(set(&driver.front, AT, &[round % 2]));
        for _ in 0..100 {
            let (head, _) = driver.take();
            assert_eq!(driver.status(head), OK);
        }
        assert_eq!(is_durable(&mut driver, &disk), round % 2 == 0);
    }
}

#[test]
fn next_server_goes_on_with_what_the_driver_has_set() {
    for values in [&[][..], &[0], &[0, 1], &[1, 0]] {
        let (disk, first) = volatile();
        let mut driver = Driver::start_with(first.connect(), FLUSH | EVENT_IDX | WRITE_CACHE);
        let kept = keep(&driver);
        for value in values {
            assert!(set(&driver.front, AT, &[*value]));
        }
        let is_off = values.last() == Some(&0);
        assert_eq!(is_durable(&mut driver, &disk), is_off);
        drop(first);
        let mut next = go_on(&disk, &mut driver, Some(&kept));
        for _ in 0..3 {
            assert_eq!(is_durable(&mut driver, &disk), is_off, "{values:?}");
            drop(next);
            next = go_on(&disk, &mut driver, Some(&kept));
        }
        assert!(set(&driver.front, AT, &[is_off.into()]));
        assert_eq!(is_durable(&mut driver, &disk), !is_off);
        drop(driver);
    }
}

/// The front-end brings it after the driver has turned the cache off, and what is there was true before.
#[test]
fn buffer_that_comes_later_is_told_at_once_what_the_driver_has_set() {
    let (disk, first) = volatile();
    let mut driver = Driver::start_with(first.connect(), FLUSH | EVENT_IDX | WRITE_CACHE);
    let (place, buffer) = keep(&driver);
    assert!(!is_durable(&mut driver, &disk));
    let (second, mut late) = silent(&disk, FLUSH | EVENT_IDX | WRITE_CACHE);
    assert!(set(&late.front, AT, &[0]));
    assert!(hand_over(&late.front, &place, &buffer));
    // Its queue never begins.
    drop(second);
    buffer.write(0, &[0; 4160]);
    let _third = go_on(&disk, &mut late, Some(&(place, buffer)));
    assert!(is_durable(&mut late, &disk));
}

/// The next queue may take back what one lets a server believe.
#[test]
fn next_server_does_not_believe_what_a_resumed_queue_has_disproved() {
    let (disk, first) = volatile();
    let mut driver = Driver::start_with(first.connect(), FLUSH | EVENT_IDX | WRITE_CACHE);
    let kept = keep(&driver);
    assert!(!is_durable(&mut driver, &disk));
    drop(first);
    kept.1.write(RECORD, &[0; 8]);
    let second = Served::new(disk.stack());
    ask_at_next(&mut driver, second.connect(), FEATURES);
    assert!(hand_over(&driver.front, &kept.0, &kept.1));
    // It is killed before a queue begins, or after one went on.
    assert_eq!(kept.1.load64(RECORD), 0);
    driver.start_queue(driver.queue.used);
    assert!(is_durable(&mut driver, &disk));
    assert_eq!(kept.1.load64(RECORD), 0);
    drop(driver);
}

#[test]
fn record_that_can_not_be_reached_is_refused_with_its_buffer() {
    let (disk, served) = volatile();
    let driver = Driver::start_with(served.connect(), FLUSH | EVENT_IDX | WRITE_CACHE);
    let (mut place, buffer) = keep(&driver);
    rustix::fs::ftruncate(&buffer.file, 0).expect("cut");
    assert!(!hand_over(&driver.front, &place, &buffer));
    place[..8].copy_from_slice(&RECORD.to_ne_bytes());
    assert!(hand_over(&driver.front, &place, &buffer));
    drop((driver, disk));
}

#[test]
fn cache_that_could_not_be_turned_on_is_off() {
    let (disk, served) = volatile();
    let mut driver = Driver::start_with(served.connect(), FLUSH | EVENT_IDX | WRITE_CACHE);
    let front = &driver.front;
    front.queue(8, 1, 8);
    front.queue(10, 1, 0);
    front.queue_addresses(1, [0, 0x8000, 0x4000].map(|at| USER + SCRATCH + at));
    front.queue_file(12, 1, &event());
    assert!(set(front, AT, &[0]));
    // The buffer has no place for the other queue, which can not start again.
    let (_, buffer) = keep(&driver);
    let word = |buffer: &Machine| buffer.load64(RECORD).to_le_bytes();
    assert!(is_durable(&mut driver, &disk));
    assert!(!set(&driver.front, AT, &[1]));
    assert_eq!(driver.front.config(AT, 1)[12..], [0]);
    assert_eq!(word(&buffer), *b"cacheoff");
    assert!(is_durable(&mut driver, &disk));
    assert!(set(&driver.front, AT, &[1]), "nothing else is down");
    assert!(!is_durable(&mut driver, &disk));
}

/// Nobody tells it whether its machine's driver flushes.
#[test]
fn next_server_that_is_not_told_makes_each_write_durable() {
    let (disk, first) = volatile();
    let mut driver = Driver::start_with(first.connect(), FLUSH | EVENT_IDX | WRITE_CACHE);
    assert!(!is_durable(&mut driver, &disk));
    drop(first);
    let second = go_on(&disk, &mut driver, None);
    assert!(is_durable(&mut driver, &disk));
    drop(second);
    // That this one is asked for the configuration does not help, since the queue has been in use.
    let third = Served::new(disk.stack());
    ask_at_next(&mut driver, third.connect(), FEATURES);
    driver.start_queue(driver.queue.used);
    assert!(is_durable(&mut driver, &disk));
    assert_eq!(driver.front.config(AT, 1)[12..], [0], "it says so");
    assert!(set(&driver.front, AT, &[1]));
    assert!(!is_durable(&mut driver, &disk));
    drop(driver);
}

#[test]
fn buffer_of_another_program_that_ends_with_its_queues_will_do() {
    let (disk, first) = volatile();
    let mut driver = Driver::start_with(first.connect(), FLUSH | EVENT_IDX | WRITE_CACHE);
    let (mut place, buffer) = keep(&driver);
    assert!(set(&driver.front, AT, &[1]));
    assert!(!is_durable(&mut driver, &disk));
    drop(first);
    let size = u64::from_ne_bytes(place[..8].try_into().expect("eight"));
    place[..8].copy_from_slice(&(size - 64).to_ne_bytes());
    let _second = go_on(&disk, &mut driver, Some(&(place, buffer)));
    assert!(is_durable(&mut driver, &disk), "there is no word of it");
    drop(driver);
}

/// The front-end keeps what it has read, and tells it to a driver that has agreed on other features.
#[test]
fn cache_that_was_read_to_be_off_is_off_until_a_driver_turns_it_on() {
    for is_set in [false, true] {
        let (disk, served) = volatile();
        let mut driver = Driver::start_with(served.connect(), FLUSH | EVENT_IDX | WRITE_CACHE);
        let kept = keep(&driver);
        if is_set {
            assert!(set(&driver.front, AT, &[1]));
        }
        assert!(!is_durable(&mut driver, &disk));
        driver.set_flushes(false);
        assert_eq!(driver.front.config(AT, 1)[12..], [0]);
        driver.set_flushes(true);
        assert!(is_durable(&mut driver, &disk), "nobody flushes");
        drop(served);
        let _next = go_on(&disk, &mut driver, Some(&kept));
        assert!(is_durable(&mut driver, &disk), "at the next server");
        assert!(set(&driver.front, AT, &[1]));
        assert!(!is_durable(&mut driver, &disk));
        drop(driver);
    }
}

#[test]
fn only_who_could_turn_it_on_and_not_flush_reads_that_the_cache_is_off() {
    let (_disk, served) = volatile();
    for (features, is_on) in [
        (0, 1),
        (FEATURES & !FLUSH & !WRITE_CACHE, 1),
        (FEATURES & !WRITE_CACHE, 1),
        (FEATURES, 1),
        (FEATURES & !FLUSH, 0),
    ] {
        let front = FrontEnd::new(served.connect());
        front.agree(features);
        assert_eq!(front.config(AT, 1)[12..], [is_on], "{features:#x}");
    }
}

#[test]
fn nothing_else_can_be_set() {
    let (disk, served) = volatile();
    let mut driver = Driver::start_with(served.connect(), FLUSH | EVENT_IDX | WRITE_CACHE);
    let wrong: [(u32, &[u8]); 6] =
        [(AT, &[2]), (AT, &[]), (AT, &[0, 0]), (AT - 1, &[0]), (0, &[0; 60]), (u32::MAX, &[0])];
    for (at, value) in wrong {
        assert!(!set(&driver.front, at, value), "{at} {value:?}");
    }
    assert!(!is_durable(&mut driver, &disk));
}

/// A driver whose ring no server has had, at a server that it has not told anything.
fn silent(disk: &VolatileDisk, features: u64) -> (Served, Driver) {
    let elsewhere = ram();
    let mut driver = Driver::start_with(elsewhere.connect(), features);
    let served = Served::new(disk.stack());
    driver.front = FrontEnd::new(served.connect());
    let protocol = driver.front.ask_number(15);
    driver.front.send(16, 0, &protocol.to_ne_bytes(), &[]);
    drop(elsewhere);
    // Its rings are new ones.
    driver.machine.write(USED, &[0; 4 + 8 * 256 + 2]);
    (served, driver)
}

/// Front-ends tell what a driver has agreed on when it starts, and it may turn the cache off before.
#[test]
fn cache_is_turned_off_before_the_features_are_told() {
    let disk = VolatileDisk::new(1 << 20);
    let (_served, mut driver) = silent(&disk, FLUSH | EVENT_IDX | WRITE_CACHE);
    driver.front.config(0, 60);
    assert!(set(&driver.front, AT, &[0]));
    assert_eq!(driver.front.config(AT, 1)[12..], [0]);
    driver.front.agree(FEATURES);
    driver.front.share(&driver.machine);
    driver.start_queue(0u32);
    assert!(is_durable(&mut driver, &disk));
    drop(driver);
}

/// The second server is told what the first one was, and only the ring says that the driver may have turned it off.
#[test]
fn ring_that_was_used_and_is_at_its_beginning_again_is_not_new() {
    for ring in [0, RING_PACKED] {
        let disk = VolatileDisk::new(1 << 20);
        let (first, mut driver) = silent(&disk, FLUSH | EVENT_IDX | WRITE_CACHE | ring);
        let mut begin = driver.queue.packed.as_ref().map_or(0, |packed| packed.base());
        let beginning = begin;
        if ring == 0 {
            begin = 0xfffd;
            (driver.queue.available, driver.queue.used) = (0xfffd, 0xfffd);
            driver.machine.store(AVAILABLE + 2, 0xfffd);
            driver.machine.store(USED + 2, 0xfffd);
        }
        driver.front.agree(FEATURES | ring);
        driver.front.config(0, 60);
        driver.front.share(&driver.machine);
        driver.start_queue(begin);
        assert_eq!(is_durable(&mut driver, &disk), ring == 0);
        assert!(set(&driver.front, AT, &[0]));
        let base = |driver: &Driver| match &driver.queue.packed {
            Some(packed) => packed.base(),
            None => driver.queue.used.into(),
        };
        let mut count = 0;
        while base(&driver) != beginning {
            // They take different numbers of places.
            let data = vec![0; if count % 7 < 3 { 512 } else { 65536 }];
            assert_eq!(driver.run(&write(8, &data)).0, OK);
            count += 1;
            assert!(count < 10_000, "it never ends with the ring");
        }
        drop(first);
        let second = Served::new(disk.stack());
        ask_at_next(&mut driver, second.connect(), FEATURES | ring);
        driver.start_queue(beginning);
        assert!(is_durable(&mut driver, &disk), "{ring:#x}");
        drop(driver);
    }
}

/// Its driver has turned the cache off before, and the ring is as it began.
#[test]
fn machine_that_moves_before_its_first_request_is_not_taken_for_a_new_one() {
    for features in [FEATURES, FEATURES & !EVENT_IDX, FEATURES | RING_PACKED, FEATURES & !EVENT_IDX | RING_PACKED] {
        let (disk, first) = volatile();
        let mut driver = Driver::start_with(first.connect(), features);
        assert!(set(&driver.front, AT, &[0]));
        let base = driver.front.base(0).expect("a base");
        drop(first);
        let second = Served::new(disk.stack());
        ask_at_next(&mut driver, second.connect(), features);
        driver.start_queue(base);
        assert!(is_durable(&mut driver, &disk), "{features:#x}");
        drop(driver);
    }
}

#[test]
fn disk_that_is_read_only_has_no_write_cache() {
    let served = Served::new(stack::file_read_only(SIZE));
    assert_eq!(served.driver().front.ask_number(1) & WRITE_CACHE, 0);
}
