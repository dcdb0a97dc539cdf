//! The delay layer in real time. Only lower bounds are asserted: a machine may always be late.

use std::time::{Duration, Instant};

use cryptline_engine::{Arena, Completion, Fault, Op, Request, Ring, Submitted};
use cryptline_testkit::suite::devices::{self, AES_512, delayed, faulty};
use cryptline_testkit::suite::{Driver, Fresh, Setup, Watchdog, fill};
use rustix::io::Errno;

/// Runs over every I/O engine, on a fresh device each.
fn over_each(make: impl Fn() -> Fresh, test: impl Fn(Driver)) {
    let _watchdog = Watchdog::start(Duration::from_secs(120));
    for setup in Setup::ALL {
        test(Driver::new(&make().gate, setup));
    }
}

fn slow_ram(spec: &str) -> Fresh {
    delayed(devices::ram().unwrap(), spec)
}

fn slow_file(spec: &str) -> Fresh {
    delayed(devices::file_buffered().unwrap(), spec)
}

#[test]
fn no_completion_comes_before_its_time() {
    let spec = "read=2ms,write=3ms,flush=4ms,discard=5ms";
    let ms = Duration::from_millis;
    for make in [slow_ram, slow_file] {
        let slow = || make(spec);
        over_each(slow, |mut driver| {
            let range = |op| Request::new(op, 8192, 4096, 9);
            for (request, time) in [
                (driver.write_request(0, 4096, 1, 9), ms(3)),
                (driver.read_request(0, 4096, 9), ms(2)),
                (Request::flush(9), ms(4)),
                (range(Op::Discard), ms(5)),
                (range(Op::ZeroUnmap), ms(5)),
            ] {
                let start = Instant::now();
                assert_eq!(driver.run(request).result, Ok(()));
                assert!(start.elapsed() >= time, "{:?} < {time:?}", start.elapsed());
            }
        });
    }
}

#[test]
fn requests_come_back_in_the_order_of_their_times() {
    let make = || slow_ram("read=300ms,write=100ms,flush=200ms");
    over_each(make, |mut driver| {
        driver.submit(driver.read_request(0, 512, 30));
        driver.submit(driver.write_request(4096, 512, 1, 10));
        driver.submit(Request::flush(20));
        driver.submit(driver.write_request(8192, 512, 1, 11));
        let tokens: Vec<u64> = driver.drain().iter().map(token).collect();
        assert_eq!(tokens, [10, 11, 20, 30]);
    });
}

#[test]
fn medium_that_does_one_thing_at_a_time_needs_the_sum() {
    let count = 20;
    let make = || slow_ram("read=1ms,parallel=1");
    over_each(make, |mut driver| {
        let start = Instant::now();
        for index in 0..count {
            driver.submit(driver.read_request(u64::from(index) * 4096, 4096, index.into()));
        }
        for index in 0..count {
            let completion = driver.next_completion().unwrap();
            assert_eq!(token(&completion), u64::from(index), "first come, first served");
            assert!(start.elapsed() >= Duration::from_millis(1) * (index + 1));
        }
    });
}

#[test]
fn queues_of_two_threads_share_one_medium() {
    let _watchdog = Watchdog::start(Duration::from_secs(120));
    let fresh = slow_ram("read=1ms,parallel=1");
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut driver = Driver::new(&fresh.gate, Setup::ALL[0]);
                for index in 0..10 {
                    driver.submit(driver.read_request(index * 4096, 4096, index));
                }
                assert_eq!(driver.drain().len(), 10);
            });
        }
    });
    assert!(start.elapsed() >= Duration::from_millis(20));
}

#[test]
fn data_written_through_a_slow_medium_is_read_back_right() {
    let make = || slow_file("read=50us..300us,write=10us..500us,flush=1ms");
    over_each(make, |mut driver| {
        let model = driver.fill_device(5);
        for index in 0..32 {
            driver.submit(driver.read_request(index * 8192, 8192, index));
        }
        let completions = driver.drain();
        assert_eq!(completions.len(), 32);
        for Completion { request, result } in completions {
            assert_eq!(result, Ok(()));
            let data = request.data.expect("a read came back as another operation");
            let mut expected = vec![0; data.len()];
            fill(&mut expected, request.offset, 5);
            assert!(data[..] == expected[..], "at {}", request.offset);
            assert_eq!(request.offset, request.token * 8192);
        }
        driver.verify_all(&model);
    });
}

#[test]
fn failure_below_comes_back_at_its_time_and_no_other_request_suffers() {
    let make = || delayed(faulty(devices::ram().unwrap(), &["read:nth=2"]), "read=2ms");
    over_each(make, |mut driver| {
        let start = Instant::now();
        (0..3).for_each(|index| driver.submit(driver.read_request(index * 4096, 512, index)));
        let results: Vec<_> = driver.drain().iter().map(|one| one.result).collect();
        assert_eq!(results, [Ok(()), Err(Fault::Io(Errno::IO)), Ok(())]);
        assert!(start.elapsed() >= Duration::from_millis(2));
    });
}

#[test]
fn lost_write_below_latches_the_slow_device() {
    let make = || delayed(faulty(devices::ram().unwrap(), &["write:nth=1"]), "write=1ms,flush=1ms");
    over_each(make, |mut driver| {
        assert_eq!(driver.run(driver.write_request(0, 512, 1, 1)).result, Err(Fault::Io(Errno::IO)));
        assert_eq!(driver.run(Request::flush(2)).result, Err(Fault::Latched));
    });
}

#[test]
fn dropping_a_queue_with_slow_work_loses_no_buffer() {
    for setup in Setup::ALL {
        for make in [slow_ram, slow_file] {
            let fresh = devices::crypt(make("read=1s,write=1s"), &AES_512);
            let arena = Arena::new(4096, 8).unwrap();
            let mut ring = Ring::new(setup.backend, 16).unwrap();
            let mut queue = fresh.gate.open_queue(&mut ring).unwrap();
            for index in 0..4 {
                let buffer = || arena.take().unwrap();
                let read = Request::read(index * 4096, buffer(), index);
                let write = Request::write(index * 4096, buffer(), false, 100 + index);
                for request in [read, write] {
                    assert!(matches!(queue.submit(&mut ring, request), Submitted::Pending));
                }
            }
            assert_eq!((queue.in_flight(), arena.available()), (8, 0));
            drop(queue);
            drop(ring);
            assert_eq!(arena.available(), 8);
        }
    }
}

#[test]
fn slow_device_says_what_it_is() {
    let ram = devices::ram().unwrap();
    assert!(ram.gate.geometry().answers_at_once);
    let slow = slow_ram("read=1us");
    assert!(!slow.gate.geometry().answers_at_once && !slow.gate.geometry().rotational);
    assert_eq!(slow.gate.geometry().size, ram.gate.geometry().size);
    assert!(slow_ram("seek=4ms").gate.geometry().rotational);
    // The volume above is what its medium is.
    let volume = devices::crypt(slow_ram("seek=4ms"), &AES_512);
    assert!(volume.gate.geometry().rotational && !volume.gate.geometry().answers_at_once);
}

fn token(completion: &Completion) -> u64 {
    completion.request.token
}
