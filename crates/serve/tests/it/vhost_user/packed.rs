//! Packed rings over the socket: where they go on, and what breaks them.

use super::*;
use crate::common;
use crate::common::vhost::{AVAILABLE, IS_INDIRECT, NEXT, RING_PACKED};
use crate::common::vhost::{Packed, START};

const FEATURES: u64 = FLUSH | EVENT_IDX | RING_PACKED;

fn driver(served: &Served) -> Driver {
    Driver::start_with(served.connect(), FEATURES)
}

fn base_of(driver: &Driver) -> u32 {
    driver.queue.packed.as_ref().expect("a packed ring").base()
}

#[test]
fn packed_queue_is_stopped_and_goes_on_where_it_was() {
    for backend in BACKENDS {
        let served = Served::over(stack::ram(SIZE), backend);
        let mut driver = driver(&served);
        assert_eq!(driver.front.base(0), Some(0x8000_8000));
        driver.start_queue(0x8000_8000u32);
        // More than two laps.
        for _ in 0..300 {
            works(&mut driver);
        }
        for _ in 0..20 {
            let base = driver.front.base(0).expect("a base");
            assert_eq!(base, base_of(&driver));
            driver.start_queue(base);
            works(&mut driver);
        }
    }
}

#[test]
fn driver_of_a_packed_ring_without_event_indices_is_served() {
    let served = ram();
    let mut driver = Driver::start_with(served.connect(), FLUSH | RING_PACKED);
    for _ in 0..200 {
        works(&mut driver);
    }
}

#[test]
fn packed_ring_has_any_number_of_places_and_a_split_one_has_not() {
    let served = ram();
    for (features, size, is_taken) in [
        (RING_PACKED, 100u32, true),
        (RING_PACKED, 32768, true),
        (RING_PACKED, 0, false),
        (RING_PACKED, 32769, false),
        (0, 100, false),
        (0, 128, true),
    ] {
        let front = FrontEnd::new(served.connect());
        front.agree(1 << 30 | 1 << 32 | features);
        let payload = [0, size].map(u32::to_ne_bytes).concat();
        assert_eq!(front.tell_with(8, &payload, &[]), Some(is_taken), "{size}");
    }
    // Agreed on for a packed ring, and used for a split one.
    let front = FrontEnd::new(served.connect());
    let machine = Machine::new();
    front.agree(1 << 30 | 1 << 32 | RING_PACKED);
    front.share(&machine);
    front.queue(8, 0, 100);
    front.tell(2, &(1u64 << 30 | 1 << 32).to_ne_bytes());
    front.queue_addresses(0, [DESCRIPTORS, USED, AVAILABLE].map(|at| USER + at));
    let kick = event();
    assert_eq!(front.tell_with(12, &0u64.to_ne_bytes(), &[kick.as_fd()]), Some(false));
    served.says("100 places");
}

#[test]
fn hostile_packed_ring_ends_and_the_next_front_end_is_served() {
    let piece = |len: u32, flags: u16| Piece { address: GUEST, len, flags: flags | 1 << 7, next: 0 };
    for (piece, why) in [
        (piece(16, NEXT), "a chain of descriptors"),
        (piece(16, IS_INDIRECT | NEXT), "an indirect table"),
        (piece(17, IS_INDIRECT), "an indirect table"),
        (piece(16, WRITE), "without a whole header"),
        (piece(0, 0), "without a whole header"),
    ] {
        let served = ram();
        let driver = driver(&served);
        let error = event();
        driver.front.queue_file(14, 0, &error);
        for index in (0..u64::from(common::vhost::SIZE)).rev() {
            driver.machine.write(DESCRIPTORS + 16 * index, &piece.encode_packed(1));
        }
        driver.kick_anyway();
        served.says(why);
        wait_until("the front-end is told", || rustix::io::read(&error, &mut [0; 8]) == Ok(8));
        assert!(driver.front.base(0).is_some(), "messages are answered");
        drop(driver);
        works(&mut self::driver(&served));
    }
}

/// The front-end gives the next server a base that has long been passed, as QEMU does.
#[test]
fn packed_requests_of_a_server_that_is_gone_are_done_by_the_next() {
    let over = stack::ram(SIZE);
    let gate = over.gate.clone();
    let first = Served::new(over);
    let mut driver = driver(&first);
    let (place, buffer) = (place(&driver.front), Machine::new());
    assert!(u64::from_ne_bytes(place[..8].try_into().expect("eight")) >= 32 + 32 * 256);
    assert!(hand_over(&driver.front, &place, &buffer));
    restart(&driver);
    for _ in 0..100 {
        works(&mut driver);
    }
    drop(first);
    let data = pattern(0, 4096, 9);
    driver.put(&write(0, &data));
    driver.put(&write(16, &data));
    driver.kick();
    let second = Served::new(Fresh::new(gate));
    driver.go_to(second.connect(), 1 << 30 | 1 << 32 | 1 << 28 | FEATURES);
    assert!(hand_over(&driver.front, &place, &buffer));
    let stale = u32::from(START.bits());
    driver.start_queue(stale | stale << 16);
    for _ in 0..2 {
        let (head, _) = driver.take();
        assert_eq!(driver.status(head), OK);
    }
    works(&mut driver);
    assert_eq!(driver.front.base(0), Some(base_of(&driver)));
    drop(driver);
}

/// The buffer for requests under way says where the old ring was.
#[test]
fn device_that_was_reset_looks_at_a_new_ring_from_its_beginning() {
    const RESETS: [u32; 2] = [4, 34];
    for (ring, reset) in [0, RING_PACKED].into_iter().zip(RESETS) {
        let served = ram();
        let mut driver = Driver::start_with(served.connect(), FLUSH | EVENT_IDX | ring);
        let (place, buffer) = (place(&driver.front), Machine::new());
        let base = driver.front.base(0).expect("a base");
        assert!(hand_over(&driver.front, &place, &buffer));
        driver.start_queue(base);
        for _ in 0..5 {
            works(&mut driver);
        }
        driver.front.tell(reset, &[]);
        driver.machine.write(DESCRIPTORS, &[0; 0xc000]);
        (driver.queue.available, driver.queue.used) = (0, 0);
        if let Some(packed) = &mut driver.queue.packed {
            *packed = Packed::new(common::vhost::SIZE, 0);
        }
        driver.start_queue(base);
        works(&mut driver);
    }
}
