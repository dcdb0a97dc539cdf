//! Meaning of an answer for a power cut.

use cryptline_testkit::suite::devices;

use super::{on_each_backend, on_each_dispatch};
use crate::common::turnstile::Turnstile;
use crate::common::{pattern, stack};
use crate::front::client::{Ask, Front, Zeroing, at};

pub fn durable_requests_are_durable_when_they_are_answered(front: Front) {
    let disk = stack::VolatileDisk::new(1 << 20);
    let over = || disk.stack();
    on_each_backend(front, over, |server| {
        let mut client = server.connect();
        let data = pattern(0, 600 << 10, 1);
        client.write_as(512, &data, true).expect("written");
        assert!(disk.stable()[512..][..data.len()] == data);
        let before = disk.stable();
        client.write(0, &pattern(0, 512, 2)).expect("written");
        assert!(disk.stable() == before, "was not asked to be durable");
        let (range, durable) = (at(4096, 8192), true);
        let zeroing = Zeroing { durable, ..Zeroing::default() };
        for ask in [Ask::Zero(range, zeroing), Ask::Discard { range, durable }] {
            client.write_as(512, &data, true).expect("written");
            assert_eq!(client.run(ask), Ok(vec![]));
            assert!(disk.stable()[4096..][..8192].iter().all(|byte| *byte == 0));
        }
    });
}

/// Whoever encrypts them: a write that is answered is under the flush that comes after, and a
/// durable one is durable.
pub fn flush_covers_what_was_answered_to_all_clients(front: Front) {
    let disk = stack::VolatileDisk::new(2 << 20);
    let start = usize::try_from(stack::AES_512.start).expect("small");
    // The disk below, decrypted.
    let clear = || {
        let mut clear = disk.stable()[start..].to_vec();
        devices::cipher(&stack::AES_512).decrypt_in_place(0, &mut clear);
        clear
    };
    let over = |dispatch| devices::dispatched(disk.stack(), &stack::AES_512, dispatch);
    on_each_dispatch(front, over, |server| {
        let mut writers = [server.connect(), server.connect()];
        let mut flusher = server.connect();
        let mut expected = clear();
        for round in 0..4_u64 {
            let durable = round % 2 == 1;
            let seed = disk.flushes() + round;
            for (index, writer) in (0..).zip(&mut writers) {
                let offset = (2 * round + index) * (200 << 10);
                let data = pattern(offset, 150 << 10, seed);
                writer.write_as(offset, &data, durable).expect("written");
                let at = usize::try_from(offset).expect("small");
                expected[at..][..data.len()].copy_from_slice(&data);
            }
            if !durable {
                assert!(clear() != expected, "not flushed yet");
                flusher.flush().expect("flushed");
            }
            assert!(clear() == expected, "round {round}");
        }
    });
}

pub fn zeroing_that_the_device_gives_up_half_way_is_durable_as_a_whole(front: Front) {
    const LENGTH: u32 = 128 << 20;
    for (zeroed, flushes) in [(1, 1), (0, 0)] {
        let disk = Turnstile::new(1 << 30);
        disk.let_pass(u64::MAX);
        let fresh = || {
            disk.zero_only(zeroed);
            disk.stack()
        };
        on_each_backend(front, fresh, |server| {
            let before = disk.flushes();
            let durable = Zeroing { durable: true, ..Zeroing::default() };
            let zero = Ask::Zero(at(0, LENGTH), durable);
            // Where a client asks for the flush itself, there is one in either case.
            let flushes = if server.has(&zero) { flushes } else { 1 };
            assert_eq!(server.connect().run(zero), Ok(vec![]));
            // Durable writes of the rest say nothing of what the device has done before.
            assert_eq!(disk.flushes() - before, flushes);
        });
    }
}
