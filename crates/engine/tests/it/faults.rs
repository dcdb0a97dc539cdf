//! When the medium fails: the right request fails, nobody else does, nothing hangs, and a flush
//! never promises what was lost.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use cryptline_engine::base::{DirectMode, Image};
use cryptline_engine::{Channel, Completion, Fault, Gate, Op, Request, Ring, Submitted};
use cryptline_testkit::suite::devices::{self, AES_512, AES_4096};
use cryptline_testkit::suite::{Driver, Fresh, Setup, Watchdog};
use rustix::io::Errno;

const EIO: Fault = Fault::Io(Errno::IO);

/// Every base over every setup, and crypt over each, with these rules in between.
fn everywhere(rules: &[&str], test: impl Fn(&Fresh, &mut Driver, Setup)) {
    let _watchdog = Watchdog::start(Duration::from_secs(60));
    for setup in Setup::ALL {
        for base in [devices::ram, devices::file_buffered, devices::file_direct] {
            for encrypted in [false, true] {
                let Some(base) = base() else { continue };
                let faulty = devices::faulty(base, rules);
                let fresh = if encrypted { devices::crypt(faulty, &AES_512) } else { faulty };
                println!("{setup:?}, {:?}", fresh.gate.geometry());
                let mut driver = Driver::new(&fresh.gate, setup);
                test(&fresh, &mut driver, setup);
            }
        }
    }
}

fn discard(offset: u64, len: u64, token: u64) -> Request {
    Request::new(Op::Discard, offset, len, token)
}

/// Submits one request per token and gives the tokens that failed, with why.
fn failures(driver: &mut Driver, requests: Vec<Request>) -> Vec<(u64, Fault)> {
    let mut sent = 0;
    for request in requests {
        driver.submit(request);
        sent += 1;
    }
    let done = driver.drain();
    assert_eq!(done.len(), sent);
    let fault = |done: &Completion| Some((done.request.token, done.result.err()?));
    let mut failed: Vec<_> = done.iter().filter_map(fault).collect();
    failed.sort_by_key(|failure| failure.0);
    failed
}

#[test]
fn read_error_reaches_the_right_request_only() {
    everywhere(&["read:nth=7", "read:nth=20"], |_, driver, _| {
        let model = driver.fill_device(1);
        let reads = (1..=32).map(|token| driver.read_request(token * 4096, 4096, token));
        let reads = reads.collect();
        assert_eq!(failures(driver, reads), [(7, EIO), (20, EIO)]);
        // A failed read is no lost write.
        driver.verify_all(&model);
        assert_eq!(driver.flush(), Ok(()));
    });
}

#[test]
fn failed_request_comes_back_as_it_was_submitted() {
    everywhere(&["read", "write"], |_, driver, _| {
        let completion = driver.run(driver.read_request(3 * 4096, 4096, 3));
        assert_eq!(completion.result, Err(EIO));
        // Nothing was read, so nothing may have been decrypted into the buffer.
        let buffer = completion.request.data.expect("another operation came back");
        assert!(buffer.iter().all(|&byte| byte == 0xee));
        assert_eq!((driver.run(driver.write_request(5 * 4096, 512, 1, 5))).result, Err(EIO));
    });
}

#[test]
fn write_error_reaches_the_right_request_only() {
    everywhere(&["write:nth=7", "write:nth=20"], |_, driver, _| {
        let writes = (1..=32).map(|token| driver.write_request(token * 4096, 4096, 2, token));
        let writes = writes.collect();
        assert_eq!(failures(driver, writes), [(7, EIO), (20, EIO)]);
        for token in (1..=32).filter(|token| ![7, 20].contains(token)) {
            let read = driver.read(token * 4096, 4096).unwrap();
            let mut want = vec![0; 4096];
            cryptline_testkit::suite::fill(&mut want, token * 4096, 2);
            assert!(read == want, "request {token} was told that it is written");
        }
    });
}

#[test]
fn discard_error_reaches_the_right_request_only() {
    everywhere(&["discard:nth=3"], |_, driver, _| {
        let discards = (1..=8).map(|token| discard(token * 65536, 65536, token));
        assert_eq!(failures(driver, discards.collect()), [(3, EIO)]);
    });
}

#[test]
fn mixed_requests_fail_by_their_own_rules() {
    let rules = ["read:nth=2", "write:nth=3:error=ENOSPC", "discard:nth=1:error=EOPNOTSUPP"];
    everywhere(&rules, |_, driver, _| {
        let mut requests = Vec::new();
        for lane in 0..5 {
            let offset = lane * 3 * 65536;
            requests.push(driver.read_request(offset, 4096, lane * 3));
            requests.push(driver.write_request(offset + 65536, 4096, 1, lane * 3 + 1));
            requests.push(discard(offset + 2 * 65536, 4096, lane * 3 + 2));
        }
        let expected = [(2, Fault::NotSupported), (3, EIO), (7, Fault::NoSpace)];
        assert_eq!(failures(driver, requests), expected);
        // None of them has lost anything.
        assert_eq!(driver.flush(), Ok(()));
    });
}

#[test]
fn failed_write_fails_every_later_flush_on_every_queue_and_thread() {
    everywhere(&["write:nth=2"], |fresh, driver, setup| {
        let mut other = Driver::new(&fresh.gate, setup);
        assert_eq!(driver.run(driver.write_request(0, 512, 1, 1)).result, Ok(()));
        assert_eq!(other.flush(), Ok(()));
        assert_eq!(driver.run(driver.write_request(0, 512, 1, 2)).result, Err(EIO));
        for _ in 0..3 {
            assert_eq!(driver.flush(), Err(Fault::Latched));
            assert_eq!(other.flush(), Err(Fault::Latched));
        }
        let gate = &fresh.gate;
        let elsewhere = std::thread::scope(|scope| {
            let flush = || Driver::new(gate, setup).flush();
            scope.spawn(flush).join().unwrap()
        });
        assert_eq!(elsewhere, Err(Fault::Latched));
        assert!(gate.is_latched());
        // Reads and writes go on: what can be saved can be saved.
        assert_eq!(driver.run(driver.write_request(512, 512, 1, 3)).result, Ok(()));
        assert!(driver.read(512, 512).is_ok());
        assert_eq!(driver.flush(), Err(Fault::Latched));
    });
}

#[test]
fn write_that_fails_during_a_flush_fails_that_flush() {
    everywhere(&["write:nth=1"], |fresh, driver, setup| {
        let mut other = Driver::new(&fresh.gate, setup);
        driver.submit(Request::flush(1));
        // RAM has flushed by now; a file's flush is still in the ring.
        let in_flight = driver.channel.in_flight() == 1;
        assert_eq!(other.run(other.write_request(0, 512, 1, 2)).result, Err(EIO));
        let flushed = driver.next_completion().unwrap().result;
        let expected = if in_flight { Err(Fault::Latched) } else { Ok(()) };
        assert_eq!(flushed, expected);
    });
}

#[test]
fn failed_flush_fails_every_later_one() {
    everywhere(&["flush:nth=2"], |fresh, driver, _| {
        let (tell, told) = std::sync::mpsc::channel();
        fresh.gate.when_latched(move |fault| tell.send(fault).unwrap());
        assert_eq!(driver.flush(), Ok(()));
        assert!(told.try_recv().is_err());
        assert_eq!(driver.flush(), Err(EIO));
        assert_eq!(driver.flush(), Err(Fault::Latched));
        assert!(fresh.gate.is_latched());
        fresh.gate.latch();
        // Once, by whom it was.
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [Some(EIO)]);
    });
}

#[test]
fn loss_that_the_device_is_told_of_fails_every_later_flush() {
    everywhere(&[], |fresh, driver, _| {
        assert_eq!(driver.flush(), Ok(()));
        fresh.gate.latch();
        assert!(fresh.gate.is_latched());
        assert_eq!(driver.flush(), Err(Fault::Latched));
        let write = durable(driver, 0);
        assert_eq!(driver.result(write), Err(Fault::Latched));
        let plain = driver.write_request(0, 4096, 1, 1);
        assert_eq!(driver.run(plain).result, Ok(()));
        assert_eq!(driver.flush(), Err(Fault::Latched));
    });
}

#[test]
fn full_medium_does_not_latch() {
    let rules = ["write:nth=1:error=ENOSPC"];
    everywhere(&rules, |fresh, driver, _| {
        assert_eq!(driver.run(driver.write_request(0, 4096, 1, 1)).result, Err(Fault::NoSpace));
        assert!(!fresh.gate.is_latched());
        assert_eq!(driver.flush(), Ok(()));
        // Space was made: the same write succeeds and is kept.
        let model = driver.fill_device(1);
        assert_eq!(driver.flush(), Ok(()));
        driver.verify_all(&model);
    });
}

fn durable(driver: &Driver, offset: u64) -> Request {
    let mut data = driver.buffer(4096);
    data.fill(7);
    Request::write(offset, data, true, 0)
}

/// The failure can be the report of earlier writes, which were acknowledged; and there is no other.
#[test]
fn full_medium_that_a_sync_was_told_of_latches() {
    let lost = Fault::Io(Errno::NOSPC);
    assert_eq!(lost.errno(), Errno::IO, "whoever hears that there is no room waits for some");
    for rule in ["write:nth=2:error=ENOSPC:late", "flush:nth=1:error=ENOSPC", "flush:nth=1:error=ENOSPC:late"] {
        everywhere(&[rule], |fresh, driver, setup| {
            let mut other = Driver::new(&fresh.gate, setup);
            let plain = driver.write_request(0, 4096, 1, 1);
            assert_eq!(driver.run(plain).result, Ok(()));
            let sync = if rule.starts_with("flush") { Request::flush(0) } else { durable(driver, 4096) };
            assert_eq!(driver.result(sync), Err(lost));
            assert!(fresh.gate.is_latched());
            for driver in [driver, &mut other] {
                assert_eq!(driver.flush(), Err(Fault::Latched));
            }
        });
    }
}

/// Nothing was lost: once there is room, the same write is made and everything is durable.
#[test]
fn full_medium_that_refuses_a_durable_write_does_not_latch() {
    everywhere(&["write:nth=2:error=ENOSPC"], |fresh, driver, _| {
        assert_eq!(driver.run(driver.write_request(0, 4096, 1, 1)).result, Ok(()));
        for expected in [Err(Fault::NoSpace), Ok(())] {
            let write = durable(driver, 4096);
            assert_eq!(driver.result(write), expected);
            assert!(!fresh.gate.is_latched());
            assert_eq!(driver.flush(), Ok(()));
        }
        assert!(driver.read(4096, 4096).unwrap().iter().all(|byte| *byte == 7));
    });
}

#[test]
fn refused_durable_write_does_not_latch() {
    everywhere(&["write:nth=1:error=EOPNOTSUPP"], |fresh, driver, _| {
        let write = durable(driver, 0);
        assert_eq!(driver.result(write), Err(Fault::NotSupported));
        assert!(!fresh.gate.is_latched());
        assert_eq!(driver.flush(), Ok(()));
    });
}

#[test]
fn durable_write_promises_nothing_after_a_lost_write() {
    everywhere(&["write:nth=1"], |fresh, driver, setup| {
        let mut other = Driver::new(&fresh.gate, setup);
        let lost = driver.write_request(0, 4096, 1, 1);
        assert_eq!(driver.run(lost).result, Err(EIO));
        for driver in [driver, &mut other] {
            let write = durable(driver, 4096);
            assert_eq!(driver.result(write), Err(Fault::Latched));
        }
    });
}

#[test]
fn short_transfers_are_carried_on_to_the_end() {
    let _watchdog = Watchdog::start(Duration::from_secs(60));
    for setup in Setup::ALL {
        // Through the page cache a transfer may stop at any byte, directly at any block.
        for limit in [1, 511, 513, 1000, 4096, 65536 + 7] {
            let fresh = devices::crypt(devices::file_buffered().unwrap(), &AES_4096);
            short_transfers(&fresh, setup, limit);
        }
        for limit in [4096, 5 * 4096, 65536] {
            if let Some(file) = devices::file_direct_4096() {
                short_transfers(&devices::crypt(file, &AES_4096), setup, limit);
            }
        }
    }
}

fn short_transfers(fresh: &Fresh, setup: Setup, limit: usize) {
    let mut whole = Driver::new(&fresh.gate, setup);
    let mut short = Driver::new(&fresh.gate, setup);
    short.channel.ring_mut().limit_transfer(limit);
    let mut model = whole.fill_device(1);
    let len = (limit as u64 * 40).clamp(3 * 4096, 512 * 1024).next_multiple_of(4096);
    // Written in pieces, read in one; and the other way round.
    short.write(&mut model, 8192, len, 2);
    whole.verify_all(&model);
    short.verify(&model, 4096, len + 8192);
    // Many at once, each in pieces that take turns.
    for token in 0..16 {
        short.submit(short.read_request(token * 16384, 16384, token));
    }
    for completion in short.drain() {
        assert_eq!(completion.result, Ok(()));
        let buffer = completion.request.data.as_ref().expect("another operation came back");
        model.check(completion.request.offset, buffer).unwrap();
    }
}

/// Between two pieces others may have taken all places of the ring.
#[test]
fn transfer_that_was_begun_goes_on_when_the_ring_has_a_place_again() {
    let fresh = devices::file_buffered().unwrap();
    let mut whole = Driver::new(&fresh.gate, Setup::ALL[0]);
    let model = whole.fill_device(3);
    for setup in Setup::ALL {
        let mut ring = Ring::new(setup.backend, 2).unwrap();
        ring.limit_transfer(1024);
        let mut queues = [(); 2].map(|()| fresh.gate.open_queue(&mut ring).unwrap());
        let mut done = Vec::new();
        for (token, queue) in (0..).zip(&mut queues) {
            let read = whole.read_request(token * 8192, 8192, token);
            assert!(matches!(queue.submit(&mut ring, read), Submitted::Pending));
        }
        let mut more = 2;
        while queues.iter().any(|queue| queue.in_flight() > 0) {
            ring.wait().unwrap();
            // The second comes first, and takes what places there are.
            let [first, second] = &mut queues;
            second.poll(&mut ring, &mut done);
            if more < 8 {
                let read = whole.read_request(more * 8192, 8192, more);
                match second.submit(&mut ring, read) {
                    Submitted::Done(refused) => assert_eq!(refused.result, Err(Fault::Busy)),
                    Submitted::Pending => more += 1,
                }
            }
            first.poll(&mut ring, &mut done);
        }
        assert!(done.iter().any(|done| done.request.token == 0));
        for completion in done {
            assert_eq!(completion.result, Ok(()));
            let buffer = completion.request.data.as_ref().expect("another operation came back");
            model.check(completion.request.offset, buffer).unwrap();
        }
    }
}

#[test]
fn durable_write_in_pieces_is_whole() {
    let fresh = devices::file_buffered().unwrap();
    for setup in Setup::ALL {
        let mut driver = Driver::new(&fresh.gate, setup);
        driver.channel.ring_mut().limit_transfer(700);
        let mut data = driver.buffer(8192);
        data.fill(3);
        assert_eq!(driver.result(Request::write(512, data, true, 0)), Ok(()));
        assert!(driver.read(512, 8192).unwrap().iter().all(|&byte| byte == 3));
    }
}

/// A filled image that is then cut short behind the device's back.
fn cut(path: &Path, setup: Setup, direct: DirectMode, size: u64) -> (Fresh, Driver) {
    let device = Image::open(path, false).unwrap().into_device(4096, direct);
    let file = Fresh::new(Gate::new(device.unwrap()));
    let fresh = devices::crypt(file, &AES_4096);
    let mut driver = Driver::new(&fresh.gate, setup);
    driver.fill_device(1);
    File::options().write(true).open(path).unwrap().set_len(size).unwrap();
    (fresh, driver)
}

/// Cuts at a block, inside a sector, at the header and at nothing.
fn cuts(test: impl Fn(&Fresh, &mut Driver, u64)) {
    let _watchdog = Watchdog::start(Duration::from_secs(60));
    for setup in Setup::ALL {
        for direct in [DirectMode::Auto, DirectMode::Off] {
            for size in [devices::SIZE - 1, 1024 * 1024, 1024 * 1024 + 1234, 512, 0] {
                let (path, _folder) = devices::image_file();
                let (fresh, mut driver) = cut(&path, setup, direct, size);
                println!("{setup:?} {direct:?} cut to {size}");
                test(&fresh, &mut driver, size);
            }
        }
    }
}

#[test]
fn read_past_the_cut_fails_and_everything_after_it() {
    cuts(|_, driver, size| {
        let last = driver.size() - 4096;
        // What is left is still served until the cut is noticed.
        if size > 1024 * 1024 {
            assert!(driver.read(0, 4096).is_ok());
        }
        assert_eq!(driver.read(last, 4096), Err(Fault::Truncated));
        assert_eq!(driver.read(0, 4096), Err(Fault::Truncated));
        let write = driver.write_request(0, 4096, 1, 1);
        assert_eq!(driver.run(write).result, Err(Fault::Truncated));
        assert!(matches!(driver.flush(), Err(Fault::Truncated | Fault::Latched)));
    });
}

#[test]
fn flush_notices_the_cut_by_itself() {
    cuts(|fresh, driver, _| {
        assert_eq!(driver.flush(), Err(Fault::Truncated));
        assert!(fresh.gate.is_latched());
        assert_eq!(driver.flush(), Err(Fault::Latched));
    });
}

#[test]
fn reads_over_the_cut_all_end_and_none_with_false_data() {
    cuts(|_, driver, size| {
        let blocks = driver.size() / 65536;
        for token in 0..blocks.min(48) {
            let offset = (driver.size() - 65536) - token * 65536;
            driver.submit(driver.read_request(offset, 65536, token));
        }
        for completion in driver.drain() {
            let end = completion.request.offset + AES_4096.start + 65536;
            match completion.result {
                Ok(()) => assert!(end <= size, "bytes past the cut were read"),
                Err(fault) => assert_eq!(fault, Fault::Truncated),
            }
        }
    });
}

#[test]
fn extents_past_the_cut_are_not_called_holes() {
    cuts(|fresh, driver, _| {
        let last = driver.size() - 4096;
        // The last block may still be allocated where less than a block was cut off.
        let extent = fresh.gate.extent(last, 4096);
        assert!(matches!(extent, Err(Fault::Truncated)) || extent.is_ok_and(|extent| !extent.hole), "{extent:?}");
    });
}

#[test]
fn more_requests_than_the_ring_has_places_are_refused_and_the_others_complete() {
    let fresh = devices::file_buffered().unwrap();
    let mut channel = Channel::open(&fresh.gate, Setup::ALL[0].backend, 4).unwrap();
    let helper = Driver::new(&fresh.gate, Setup::ALL[0]);
    let mut done = Vec::new();
    for token in 0..6 {
        match channel.submit(helper.read_request(token * 512, 512, token)) {
            Submitted::Done(completion) => done.push(completion),
            Submitted::Pending => {}
        }
    }
    let refused: Vec<_> = done.drain(..).map(|done| (done.request.token, done.result)).collect();
    let busy = Err(Fault::Busy);
    assert_eq!(refused, [(4, busy), (5, busy)]);
    while channel.in_flight() > 0 {
        channel.wait(&mut done).unwrap();
    }
    assert_eq!(done.len(), 4);
    assert!(done.iter().all(|completion| completion.result.is_ok()));
}

/// A write or flush that found no place changed nothing, so nothing was lost.
#[test]
fn requests_refused_because_the_queue_is_full_do_not_latch() {
    for encrypted in [false, true] {
        let fresh = devices::file_buffered().unwrap();
        let fresh = if encrypted { devices::crypt(fresh, &AES_512) } else { fresh };
        let mut channel = Channel::open(&fresh.gate, Setup::ALL[0].backend, 4).unwrap();
        let helper = Driver::new(&fresh.gate, Setup::ALL[0]);
        for token in 0..4 {
            let read = helper.read_request(token * 512, 512, token);
            assert!(matches!(channel.submit(read), Submitted::Pending));
        }
        let mut data = helper.buffer(512);
        data.fill(1);
        let durable = Request::write(0, data, true, 6);
        for request in [helper.write_request(0, 512, 1, 4), Request::flush(5), durable] {
            let Submitted::Done(refused) = channel.submit(request) else { panic!("a fifth request was taken") };
            assert_eq!(refused.result, Err(Fault::Busy));
        }
        let mut done = Vec::new();
        while channel.in_flight() > 0 {
            channel.wait(&mut done).unwrap();
        }
        assert!(!fresh.gate.is_latched());
        let mut other = Driver::new(&fresh.gate, Setup::ALL[0]);
        assert_eq!(other.flush(), Ok(()));
    }
}
