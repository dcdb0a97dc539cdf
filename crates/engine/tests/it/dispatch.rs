//! Whoever runs the cipher: a request ends once, with its own fault and its own bytes, and no long one
//! holds up a short one.

use std::time::{Duration, Instant};

use cryptline_engine::dispatch::{Dispatch, DispatchMode, HelperThreads};
use cryptline_engine::layer::{CryptDevice, CryptOptions};
use cryptline_engine::{Arena, BackendChoice, Channel, Fault, Gate, Request, Ring, Submitted};
use cryptline_testkit::suite::devices::{
    self, AES_512, AES_4096, AUTO, QUEUE, QUEUE_FLAGS, delayed, dispatched, faulty,
};
use cryptline_testkit::suite::{Driver, Fresh, Setup, Watchdog};
use rustix::io::Errno;

const EIO: Fault = Fault::Io(Errno::IO);
const MIB: u64 = 1 << 20;

const SHARED: [Dispatch; 3] = [AUTO, QUEUE, QUEUE_FLAGS];

/// RAM, a slow medium and a file, each way to share, over every setup.
fn everywhere(rules: &[&str], test: impl Fn(&Fresh, &mut Driver)) {
    let _watchdog = Watchdog::start(Duration::from_secs(120));
    let slow = || devices::ram().map(|ram| delayed(ram, "read=30us,write=30us"));
    for setup in Setup::ALL {
        for dispatch in SHARED {
            for base in [&devices::ram as &dyn Fn() -> _, &slow, &devices::file_direct_4096] {
                let Some(base) = base() else { continue };
                let fresh = dispatched(faulty(base, rules), &AES_4096, dispatch);
                println!("{setup:?}, {dispatch:?}, {:?}", fresh.gate.geometry());
                let mut driver = Driver::new(&fresh.gate, setup);
                test(&fresh, &mut driver);
            }
        }
    }
}

#[test]
fn fault_of_one_part_is_the_fault_of_its_request_and_of_no_other() {
    // In the last part of the second request, as it lies on the lower device.
    let bad = AES_4096.start + 2 * MIB - 4096;
    everywhere(&[&format!("read:offset={bad}")], |_, driver| {
        let model = driver.fill_device(3);
        for token in 0..3 {
            let len = if token == 2 { MIB / 2 } else { MIB };
            driver.submit(driver.read_request(token * MIB, len, token));
        }
        for completion in driver.drain() {
            let Request { data, offset, token, .. } = completion.request;
            assert_eq!(offset, token * MIB);
            let buffer = data.expect("a read");
            match token {
                1 => {
                    assert_eq!(completion.result, Err(EIO));
                    assert_eq!(buffer.len() as u64, MIB);
                }
                _ => {
                    assert_eq!(completion.result, Ok(()));
                    assert_eq!(model.check(offset, &buffer), Ok(()));
                }
            }
        }
        driver.verify(&model, 0, MIB);
        assert_eq!(driver.flush(), Ok(()));
    });
}

#[test]
fn lost_part_of_a_write_fails_it_and_every_later_flush() {
    let bad = AES_4096.start + MIB - 4096;
    everywhere(&[&format!("write:offset={bad}")], |fresh, driver| {
        assert_eq!(driver.run(driver.write_request(0, MIB, 1, 1)).result, Err(EIO));
        assert_eq!(driver.flush(), Err(Fault::Latched));
        assert!(fresh.gate.is_latched());
        // Another write still works, and is still not promised.
        assert_eq!(driver.run(driver.write_request(MIB, MIB, 2, 2)).result, Ok(()));
        assert_eq!(driver.flush(), Err(Fault::Latched));
    });
}

#[test]
fn what_one_dispatch_writes_every_other_reads() {
    let _watchdog = Watchdog::start(Duration::from_secs(120));
    let inline = Dispatch::both(DispatchMode::Inline);
    for setup in Setup::ALL {
        for writer in [inline, AUTO, QUEUE, QUEUE_FLAGS] {
            let lower = devices::ram().unwrap();
            let fresh = dispatched(Fresh::new(lower.gate.clone()), &AES_512, writer);
            let model = Driver::new(&fresh.gate, setup).fill_device(9);
            for reader in [inline, AUTO, QUEUE, QUEUE_FLAGS] {
                let fresh = dispatched(Fresh::new(lower.gate.clone()), &AES_512, reader);
                Driver::new(&fresh.gate, setup).verify_all(&model);
            }
        }
    }
}

#[test]
fn dropping_a_queue_whose_requests_are_in_pieces_loses_no_buffer() {
    for setup in Setup::ALL {
        for dispatch in SHARED {
            for spec in ["read=0,write=0", "read=50ms,write=50ms"] {
                let lower = delayed(devices::ram().unwrap(), spec);
                let fresh = dispatched(lower, &AES_512, dispatch);
                let arena = Arena::new(1 << 19, 8).unwrap();
                let mut ring = Ring::new(setup.backend, 16).unwrap();
                let mut queue = fresh.gate.open_queue(&mut ring).unwrap();
                for index in 0..4 {
                    let buffer = || arena.take().unwrap();
                    let read = Request::read(index << 19, buffer(), index);
                    let write = Request::write(index << 19, buffer(), false, 100 + index);
                    for request in [read, write] {
                        drop(match queue.submit(&mut ring, request) {
                            Submitted::Done(completion) => Some(completion),
                            Submitted::Pending => None,
                        });
                    }
                }
                drop(queue);
                drop(ring);
                // What workers and helpers still have comes back when they are through with it.
                drop(fresh);
                let start = Instant::now();
                while arena.available() < 8 {
                    assert!(start.elapsed() < Duration::from_secs(30), "a buffer is lost");
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }
}

#[test]
fn short_read_is_not_held_up_by_large_ones_that_ended_before_it() {
    let fresh = devices::crypt(devices::file_buffered().unwrap(), &AES_512);
    let mut driver = Driver::new(&fresh.gate, Setup::ALL[2]);
    let model = driver.fill_device(4);
    for token in 0..2 {
        driver.submit(driver.read_request(token * MIB, MIB, token));
    }
    driver.submit(driver.read_request(2 * MIB, 4096, 2));
    // System calls: all three have ended on the medium. One round may decrypt the short one, and
    // a quarter of a large one.
    let mut done = Vec::new();
    driver.channel.wait(&mut done).unwrap();
    assert_eq!(done.iter().map(|done| done.request.token).collect::<Vec<_>>(), [2]);
    let mut rounds = 0;
    while done.len() < 3 {
        // There is more to be had, so this must not wait for anything.
        driver.channel.wait(&mut done).unwrap();
        rounds += 1;
    }
    assert_eq!(rounds, 7);
    for completion in done {
        let buffer = completion.request.data.as_ref().expect("no read");
        assert_eq!(model.check(completion.request.offset, buffer), Ok(()));
    }
}

#[test]
fn more_large_requests_than_the_ring_has_places_all_end() {
    // As many requests as the ring was made for, each of which is cut: their parts need places of
    // their own.
    let _watchdog = Watchdog::start(Duration::from_secs(60));
    for setup in Setup::ALL {
        for dispatch in SHARED {
            let lower = delayed(devices::ram().unwrap(), "read=100us,write=100us");
            let fresh = dispatched(lower, &AES_4096, dispatch);
            let mut channel = Channel::open(&fresh.gate, setup.backend, 8).unwrap();
            let arena = Arena::new(1 << 20, 8).unwrap();
            let mut done = Vec::new();
            for token in 0..8 {
                let offset = token % 2 * MIB;
                let request = if token < 4 {
                    Request::read(offset, arena.take().unwrap(), token)
                } else {
                    Request::write(offset, arena.take().unwrap(), false, token)
                };
                if let Submitted::Done(completion) = channel.submit(request) {
                    done.push(completion);
                }
            }
            while done.len() < 8 {
                channel.wait(&mut done).unwrap();
            }
            assert!(done.iter().all(|done| done.result.is_ok()));
            assert_eq!(channel.in_flight(), 0);
        }
    }
}

#[test]
fn one_pool_of_helpers_serves_many_queues_at_once() {
    let helpers = HelperThreads::always(2).unwrap();
    let lower = devices::ram().unwrap();
    let options = CryptOptions { dispatch: AUTO, helpers: Some(helpers), ..CryptOptions::default() };
    let device = CryptDevice::new(lower.gate, devices::cipher(&AES_512), options).unwrap();
    let gate = Gate::new(device);
    let stripe = 512 * 1024;
    std::thread::scope(|scope| {
        for index in 0..4u64 {
            let gate = &gate;
            scope.spawn(move || {
                let mut driver = Driver::new(gate, Setup::ALL[2]);
                let mut ring_driver = Driver::new(gate, Setup::ALL[0]);
                for round in 0..100 {
                    let offset = index * stripe;
                    driver.submit(driver.write_request(offset, stripe, round, 1));
                    assert!(driver.drain().iter().all(|done| done.result.is_ok()));
                    let mut expected = vec![0; 512 * 1024];
                    cryptline_testkit::suite::fill(&mut expected, offset, round);
                    assert!(ring_driver.read(offset, stripe).unwrap() == expected);
                }
            });
        }
    });
}

#[test]
fn helpers_of_a_real_machine_change_no_byte() {
    // Measured thresholds and idleness, whatever they are here.
    let helpers = HelperThreads::start(1).unwrap();
    for backend in [BackendChoice::Auto, BackendChoice::Syscalls] {
        let options = CryptOptions { dispatch: AUTO, helpers: Some(helpers.clone()), ..CryptOptions::default() };
        let lower = devices::ram().unwrap();
        let device = CryptDevice::new(lower.gate, devices::cipher(&AES_4096), options).unwrap();
        let gate = Gate::new(device);
        let setup = Setup { backend, registered: false };
        let mut driver = Driver::new(&gate, setup);
        let until = Instant::now() + Duration::from_millis(400);
        while Instant::now() < until {
            let model = driver.fill_device(until.elapsed().subsec_nanos().into());
            driver.verify_all(&model);
        }
    }
}
