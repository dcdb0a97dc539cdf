//! Remainder that an earlier server has left in the buffer for requests under way, and a queue that is stopped while it
//! is taken.

use super::*;
use crate::common;
use crate::common::turnstile::Turnstile;
use crate::common::vhost::RING_PACKED;

/// Requests in the ring, and how many of them the earlier server had taken: more than a lane takes at once.
const ALL: u16 = 150;
const TAKEN: u16 = 141;
/// The one that is over already.
const OVER: usize = 1;

/// The buffer as the earlier server has left it: the driver has heard of one request.
fn note(driver: &Driver, buffer: &Machine, heads: &[u16]) {
    let words = |at: u64, words: &[u16]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        buffer.write(at, &bytes);
    };
    let over = heads[OVER];
    let element = u64::from(over) | 1 << 32;
    if driver.queue.packed.is_none() {
        driver.machine.write(USED + 4, &element.to_le_bytes());
        driver.machine.store(USED + 2, 1);
        words(8, &[1, common::vhost::SIZE, over, 1]);
        for (counter, head) in (0..).zip(heads) {
            let entry = 16 + 16 * u64::from(*head);
            words(entry, &[u16::from(*head != over)]);
            buffer.store64(entry + 8, counter);
        }
        return;
    }
    let free = u16::try_from(OVER).expect("small");
    words(8, &[1, common::vhost::SIZE, free, free, 1, 1, 0x0101]);
    for (index, _) in (0u16..).zip(heads) {
        let entry = 32 + 32 * u64::from(index);
        let place = DESCRIPTORS + 16 * u64::from(index);
        words(entry, &[u16::from(index != free), index + 1, index, 1]);
        buffer.store64(entry + 8, index.into());
        let rest = driver.machine.load64(place + 8);
        buffer.store64(entry + 16, rest.rotate_left(32));
        buffer.store64(entry + 24, driver.machine.load64(place));
    }
    let marks = 0x8080 | WRITE;
    let element = 1 | u64::from(over) << 32 | u64::from(marks) << 48;
    driver.machine.store64(DESCRIPTORS + 8, element);
}

#[test]
fn queue_that_is_stopped_has_done_all_that_an_earlier_server_has_left() {
    for (ring, is_enabled) in [(0, false), (RING_PACKED, false), (0, true), (RING_PACKED, true)] {
        let disk = Turnstile::new(SIZE);
        let served = Served::new(disk.stack());
        let mut driver = Driver::start_with(served.connect(), FLUSH | EVENT_IDX | ring);
        let beginning = driver.front.base(0).expect("a base");
        driver.front.queue(18, 0, is_enabled.into());
        let (place, buffer) = (place(&driver.front), Machine::new());
        let heads: Vec<_> = (0..ALL).map(|_| driver.put(&read(0, 512)).head).collect();
        driver.kick();
        note(&driver, &buffer, &heads[..usize::from(TAKEN)]);
        driver.machine.write(driver.queue.status_at(heads[OVER]), &[OK]);
        assert!(hand_over(&driver.front, &place, &buffer));
        driver.front.queue(10, 0, beginning);
        driver.front.queue_file(12, 0, &driver.queue.kick);
        if is_enabled {
            disk.wait_for(0);
        }
        driver.front.send(11, 0, &[0; 8], &[]);
        if is_enabled {
            // It has time to hear that it is to stop.
            std::thread::sleep(Duration::from_millis(50));
        }
        disk.let_pass(u64::MAX / 2);
        let reply = driver.front.reply().expect("a base");
        let base = u32::from_ne_bytes(reply[4..8].try_into().expect("four"));
        let mut ended = Vec::new();
        while let Some((head, _)) = driver.take_within(Duration::ZERO) {
            assert_eq!(driver.status(head), OK);
            ended.push(head);
        }
        let count = u16::try_from(ended.len()).expect("small");
        assert!((TAKEN..=ALL).contains(&count), "{count} are over");
        assert!(is_enabled || count == TAKEN, "new ones were taken");
        let wrap = if ring == 0 { 0 } else { 0x8000_8000 };
        let both = if ring == 0 { 0 } else { u32::from(count) << 16 };
        assert_eq!(base, u32::from(count) | both | wrap);
        driver.start_queue(base);
        ended.extend((count..ALL).map(|_| driver.take().0));
        ended.sort_unstable();
        let mut heads = heads;
        heads.sort_unstable();
        assert!(ended == heads, "each is over once");
    }
}
