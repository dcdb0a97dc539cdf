//! Limits of what a driver may ask for: ranges of discards and zeroings, segments, queues.

use std::sync::Arc;

use crate::common;
use cryptline_serve::vhost_user::{DiskError, QUEUE_SIZE_MAX};

use super::*;
use crate::common::vhost::SCRATCH;

const DISCARD: u32 = 11;
const ZEROES: u32 = 13;
/// Sectors of one range: what the configuration says.
const RANGE_MAX: u32 = 1 << 22;

/// A range of a discard or a zeroing.
fn range(sector: u64, count: u32, flags: u32) -> Vec<u8> {
    let mut bytes = sector.to_le_bytes().to_vec();
    bytes.extend([count, flags].map(u32::to_le_bytes).concat());
    bytes
}

fn over_3_gib(check: impl Fn(&mut Driver)) {
    let served = Served::new(stack::ram(3 << 30));
    let mut driver = served.driver();
    check(&mut driver);
    works(&mut driver);
}

#[test]
fn transfer_has_a_gibibyte_at_most() {
    over_3_gib(|driver| {
        for (len, expected) in [(1 << 30, OK), ((1 << 30) + 512, IO_ERROR), (3 << 30, IO_ERROR)] {
            // All segments share their memory.
            let placed = driver.put_at(&read(0, len), SCRATCH);
            driver.kick();
            assert_eq!(driver.take().0, placed.head);
            assert_eq!(driver.status(placed.head), expected, "{len}");
        }
    });
}

#[test]
fn discard_or_zeroing_of_two_segments_where_one_is_allowed_is_unsupported() {
    over_3_gib(|driver| {
        let two = [range(0, 8, 0), range(8, 8, 0)].concat();
        for number in [DISCARD, ZEROES] {
            assert_eq!(driver.run(&kind(number, &two)).0, UNSUPPORTED, "{number}");
        }
    });
}

#[test]
fn discard_or_zeroing_over_the_limit_or_past_the_end_is_an_error() {
    over_3_gib(|driver| {
        let config = driver.front.config(0, 60).split_off(12);
        for at in [36, 48] {
            assert_eq!(config[at..at + 4], RANGE_MAX.to_le_bytes());
        }
        let end = (3 << 30) / 512;
        for number in [DISCARD, ZEROES] {
            for (sector, count, expected) in [
                (0, RANGE_MAX + 8, IO_ERROR),
                (0, u32::MAX, IO_ERROR),
                (end - 8, 8, OK),
                (end - 8, 16, IO_ERROR),
                (end, 8, IO_ERROR),
                (u64::MAX - 7, 8, IO_ERROR),
            ] {
                let asked = range(sector, count, 0);
                assert_eq!(driver.run(&kind(number, &asked)).0, expected, "{number} {sector} {count}");
            }
        }
    });
}

#[test]
fn zeroing_that_is_written_is_no_longer_than_a_write() {
    let most = 1 << 11;
    let served = Served::new(stack::crypt_over_ram(8 << 20));
    let mut driver = served.driver();
    let config = driver.front.config(0, 60).split_off(12);
    assert_eq!(config[48..52], u32::to_le_bytes(most));
    for (count, expected) in [(most, OK), (most + 8, IO_ERROR)] {
        assert_eq!(driver.run(&kind(ZEROES, &range(0, count, 0))).0, expected, "{count}");
    }
    works(&mut driver);
}

#[test]
fn discard_or_zeroing_with_unknown_flags_is_unsupported() {
    over_3_gib(|driver| {
        for flags in [1 << 1, 1 << 31, 3, u32::MAX] {
            for number in [DISCARD, ZEROES] {
                let asked = range(0, 8, flags);
                assert_eq!(driver.run(&kind(number, &asked)).0, UNSUPPORTED, "{number} {flags:#x}");
            }
        }
    });
}

#[test]
fn zeroing_may_unmap_and_a_discard_that_says_so_is_unsupported() {
    over_3_gib(|driver| {
        let data = pattern(0, 8192, 3);
        assert_eq!(driver.run(&write(0, &data)).0, OK);
        assert_eq!(driver.run(&kind(DISCARD, &range(0, 8, 1))).0, UNSUPPORTED);
        assert!(driver.run(&read(0, 8192)).2 == data, "nothing was discarded");
        assert_eq!(driver.run(&kind(ZEROES, &range(0, 8, 1))).0, OK);
        let found = driver.run(&read(0, 8192)).2;
        assert!(found[..4096].iter().all(|byte| *byte == 0));
        assert!(found[4096..] == data[4096..], "the next bytes stay");
    });
}

#[test]
fn queues_have_the_size_at_most_that_was_chosen_and_requests_segments_that_fit() {
    for (chosen, largest, segments) in [
        (None, QUEUE_SIZE_MAX, 126),
        (Some(4), 4, 2),
        (Some(64), 64, 62),
        (Some(256), 256, 254),
        (Some(1024), 1024, 254),
        (Some(QUEUE_SIZE_MAX), QUEUE_SIZE_MAX, 254),
    ] {
        let served = Served::with_queues(stack::ram(SIZE), BackendChoice::Auto, chosen);
        let front = FrontEnd::new(served.connect());
        front.agree(1 << 30 | 1 << 32);
        assert_eq!(front.config(12, 4)[12..], u32::to_le_bytes(segments));
        let takes = |size: u32| {
            let payload = [0, size].map(u32::to_ne_bytes).concat();
            front.tell_with(8, &payload, &[]) == Some(true)
        };
        assert!(takes(largest.into()) && takes(2), "{chosen:?}");
        assert!(!takes(2 * u32::from(largest)), "{chosen:?}");
        let mut asked = vec![0; 16];
        asked.extend([2, largest].map(u16::to_ne_bytes).concat());
        front.send(31, 0, &asked, &[]);
        assert!(front.reply().is_some_and(|it| it.len() == 20), "{chosen:?}");
    }
}

#[test]
fn queue_of_a_chosen_size_is_served() {
    let size = Some(common::vhost::SIZE);
    let served = Served::with_queues(stack::ram(SIZE), BackendChoice::Auto, size);
    let mut driver = served.driver();
    for _ in 0..300 {
        works(&mut driver);
    }
}

#[test]
fn disk_whose_queues_no_request_fits_into_is_refused() {
    for size in [0, 1, 2, 3, 100, 40000] {
        let (_folder, front) = listening();
        let disk = VhostDisk { queue_size: Some(size), ..disk("disk", &stack::ram(SIZE).gate, front) };
        let refused = VhostServer::new(vec![disk], options(BackendChoice::Auto, Duration::from_secs(1))).err();
        assert!(matches!(refused, Some(DiskError::QueueSize(_, it)) if it == size));
    }
}

#[test]
fn request_that_is_refused_has_failed() {
    let over = stack::ram(SIZE);
    let (folder, front) = listening();
    let disk = disk("d", &over.gate, front);
    let stats = Arc::clone(&disk.stats);
    let _serving = Serving::start(vec![disk], options(BackendChoice::Auto, Duration::from_millis(500)));
    let mut driver = Driver::start(UnixStream::connect(folder.path().join("socket")).expect("it listens"));
    let end = SIZE / 512;
    assert_eq!(driver.run(&read(end, 512)).0, IO_ERROR);
    assert_eq!(driver.run(&kind(ZEROES, &range(end, 8, 0))).0, IO_ERROR);
    assert_eq!(driver.run(&kind(77, &[])).0, UNSUPPORTED);
    works(&mut driver);
    assert_eq!(stats.snapshot().operations.map(|totals| totals.errors), [1, 1, 0, 1]);
}
