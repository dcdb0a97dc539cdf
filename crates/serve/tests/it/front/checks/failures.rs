//! A medium that fails: each error reaches the request it belongs to, and nobody else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use cryptline_engine::base::DirectMode;
use cryptline_engine::layer::Exclusion;
use cryptline_engine::{Fault, Geometry, Op, Request};
use cryptline_testkit::scripted::{answering, geometry};
use cryptline_testkit::suite::{Fresh, devices};
use rustix::io::Errno;

use super::{GRACE, JOBS_MAX, backends, backends_and_dispatches, on_each_backend};
use crate::common::{pattern, stack};
use crate::front::client::{Ask, Front, How, Server, Zeroing, at};

/// Bytes of the clear disk in these tests' stacks that hold known data.
const KNOWN: usize = 2 << 20;

/// Runs `check` on each stack with these faults, over each backend, whoever runs the cipher. The last
/// flush must end with `expected`.
fn with_faults(front: Front, rules: &[&str], expected: Result<(), Fault>, check: impl Fn(&dyn Server)) {
    for (backend, dispatch) in backends_and_dispatches() {
        for over in stack::faulty(rules, dispatch) {
            println!("{rules:?} {backend:?} {dispatch:?}");
            let server = front(over, How { backend, grace: GRACE });
            check(&*server);
            assert_eq!(server.end(), expected);
        }
    }
}

fn fill(server: &dyn Server) -> Vec<u8> {
    let data = pattern(0, KNOWN, 1);
    server.connect().write(0, &data).expect("written");
    data
}

pub fn failed_read_is_the_only_one_that_fails(front: Front) {
    let rule = format!("read:offset={}", stack::below(17 * 4096 + 5));
    with_faults(front, &[&rule], Ok(()), |server| {
        let data = fill(server);
        let mut client = server.connect();
        let reads: Vec<_> = (0..60).map(|block| Ask::Read(at(block * 4096, 4096))).collect();
        let marks = client.send(&reads);
        let block_of: HashMap<_, _> = marks.into_iter().zip(0..).collect();
        for (mark, answer) in client.answers(60) {
            match block_of[&mark] {
                17 => assert_eq!(answer, Err(Errno::IO)),
                block => assert!(answer.expect("read") == data[block * 4096..][..4096]),
            }
        }
        client.flush().expect("a failed read loses nothing");
    });
}

pub fn large_read_fails_whole(front: Front) {
    let rule = format!("read:offset={}", stack::below(700_000));
    with_faults(front, &[&rule], Ok(()), |server| {
        let data = fill(server);
        let mut client = server.connect();
        let reads = [Ask::Read(at(0, 2 << 20)), Ask::Read(at(1 << 20, 1 << 20))];
        let marks = client.send(&reads);
        let answers = client.answers(2);
        assert_eq!(answers[&marks[0]], Err(Errno::IO));
        assert!(answers[&marks[1]].as_ref().expect("read") == &data[1 << 20..]);
    });
}

pub fn large_write_fails_whole_and_the_next_one_does_not(front: Front) {
    let rule = format!("write:offset={}", stack::below(300_000));
    with_faults(front, &[&rule], Err(Fault::Latched), |server| {
        let mut client = server.connect();
        let data = pattern(0, KNOWN, 5);
        let write = |offset, data: &[u8]| Ask::Write { offset, data: data.to_vec(), durable: false };
        let writes = [write(0, &data), write(KNOWN as u64, &data[..4096])];
        let marks = client.send(&writes);
        let answers = client.answers(2);
        assert_eq!(answers[&marks[0]], Err(Errno::IO));
        assert!(answers[&marks[1]].is_ok());
        assert!(client.read(KNOWN as u64, 4096) == data[..4096]);
    });
}

pub fn failed_write_fails_every_flush_until_the_volume_is_reopened(front: Front) {
    let rule = format!("write:offset={}", stack::below(1 << 20));
    with_faults(front, &[&rule], Err(Fault::Latched), |server| {
        let [mut writer, mut other] = [server.connect(), server.connect()];
        writer.write(0, &pattern(0, 4096, 1)).expect("elsewhere");
        other.flush().expect("nothing has failed yet");
        assert_eq!(writer.write(1 << 20, &[1; 4096]), Err(Errno::IO));
        let mut late = server.connect();
        for client in [&mut writer, &mut other, &mut late] {
            assert_eq!(client.flush(), Err(Errno::IO));
            assert_eq!(client.flush(), Err(Errno::IO));
            assert!(client.read(0, 4096) == pattern(0, 4096, 1));
        }
    });
}

pub fn full_disk_is_told_and_does_not_fail_later_flushes(front: Front) {
    with_faults(front, &["write:nth=2:error=ENOSPC"], Ok(()), |server| {
        let mut client = server.connect();
        client.write(0, &[1; 4096]).expect("there is room");
        let full = client.number(Errno::NOSPC);
        assert_eq!(client.write(4096, &[2; 4096]), Err(full));
        client.write(4096, &[3; 4096]).expect("there is room again");
        client.flush().expect("nothing that was promised is lost");
        assert!(client.read(4096, 4096) == [3; 4096]);
    });
}

/// A client may wait for room, and try again; not where something was lost.
pub fn parts_that_fail_differently_are_told_as_the_worse(front: Front) {
    let [full, lost] = ["ENOSPC", "EIO"];
    for (first, second) in [(full, lost), (lost, full)] {
        let rules = [(1, first), (2, second)].map(|(nth, error)| format!("write:nth={nth}:error={error}:late"));
        with_faults(front, &[&rules[0], &rules[1]], Err(Fault::Latched), |server| {
            let mut client = server.connect();
            assert_eq!(client.write(0, &pattern(0, 1 << 20, 5)), Err(Errno::IO));
            assert_eq!(client.flush(), Err(Errno::IO));
        });
    }
}

pub fn failed_flush_is_told_and_no_later_one_lies(front: Front) {
    with_faults(front, &["flush:nth=1"], Err(Fault::Latched), |server| {
        let [mut first, mut second] = [server.connect(), server.connect()];
        first.write(0, &[1; 4096]).expect("written");
        assert_eq!(first.flush(), Err(Errno::IO));
        assert_eq!(second.flush(), Err(Errno::IO));
    });
}

pub fn failed_discard_zeroing_and_durable_write_are_told(front: Front) {
    let rules = ["discard:nth=1", "write:nth=3"];
    with_faults(front, &rules, Err(Fault::Latched), |server| {
        let mut client = server.connect();
        let (range, durable) = (at(0, 8192), false);
        let discard = Ask::Discard { range, durable };
        if server.has(&discard) {
            assert_eq!(client.run(discard), Err(Errno::IO));
        }
        client.write(0, &[1; 4096]).expect("written");
        client.write(4096, &[1; 4096]).expect("written");
        assert_eq!(client.write_as(0, &[2; 4096], true), Err(Errno::IO));
    });
    with_faults(front, &["write:nth=3"], Err(Fault::Latched), |server| {
        let zeros = Ask::Zero(at(0, 1 << 20), Zeroing::default());
        assert_eq!(server.connect().run(zeros), Err(Errno::IO));
    });
}

pub fn zeroing_that_the_medium_cannot_do_is_written_unless_it_must_be_fast(front: Front) {
    let plan = ["write:nth=1:error=EOPNOTSUPP", "write:nth=2:error=EOPNOTSUPP"];
    let over = || devices::crypt(devices::faulty(stack::ram(3 << 20), &plan), &stack::NULL);
    on_each_backend(front, over, |server| {
        let mut client = server.connect();
        let zero = |fast| {
            let how = Zeroing { fast, durable: !fast, may_unmap: true };
            Ask::Zero(at(0, 1 << 20), how)
        };
        if client.knows_fast_zeroing() {
            assert_eq!(client.run(zero(true)), Err(Errno::OPNOTSUPP));
        } else {
            client.write(0, &[1; 512]).expect_err("the first one fails");
        }
        assert_eq!(client.run(zero(false)), Ok(vec![]));
        assert!(client.read(0, 1 << 20).iter().all(|byte| *byte == 0));
    });
}

/// Where the request begins and ends within sectors, and where the device gives up behind the first step.
pub fn fast_zeroing_that_is_refused_has_changed_nothing(front: Front) {
    /// Bytes of one step of a lane.
    const STEP: u32 = 64 << 20;
    const LAYOUT: devices::Layout = devices::Layout { sector_size: 4096, ..stack::NULL };
    let how = Zeroing { fast: true, durable: false, may_unmap: true };
    let refusing = || Store::new(KNOWN as u64 + LAYOUT.start, 0).stack();
    let over = || devices::in_blocks(refusing(), &LAYOUT, 512, Exclusion::Shared, devices::INLINE);
    on_each_backend(front, over, |server| {
        let mut client = server.connect();
        if !client.knows_fast_zeroing() {
            return;
        }
        let data = fill(server);
        assert_eq!(client.run(Ask::Zero(at(512, 3 * 4096), how)), Err(Errno::OPNOTSUPP));
        let read = client.read(0, u32::try_from(KNOWN).expect("small"));
        assert!(read == data, "it was refused, and has changed something");
    });
    let step = u64::from(STEP);
    on_each_backend(
        front,
        || Store::new(2 * step, step).stack(),
        |server| {
            let mut client = server.connect();
            if !client.knows_fast_zeroing() {
                return;
            }
            for place in [0, step] {
                client.write(place, &[7; 4096]).expect("written");
            }
            let zeroed = client.run(Ask::Zero(at(0, STEP + (1 << 20)), how));
            let left = [0, step].map(|place| client.read(place, 4096)[0]);
            assert_eq!((zeroed, left), (Ok(vec![]), [0, 0]), "half of it was done already");
        },
    );
}

/// A disk in memory that zeroes only what begins before some byte.
#[derive(Clone)]
struct Store {
    bytes: Arc<Mutex<Vec<u8>>>,
    zeroes_before: u64,
}

impl Store {
    fn new(size: u64, zeroes_before: u64) -> Self {
        let size = usize::try_from(size).expect("small");
        Self { bytes: Arc::new(Mutex::new(vec![0; size])), zeroes_before }
    }

    fn stack(self) -> Fresh {
        let size = self.bytes.lock().expect("no panic").len() as u64;
        let geometry = Geometry { logical_block: 4096, answers_at_once: true, ..geometry(size) };
        Fresh::new(answering(geometry, move |request| Some(self.carry_out(request))))
    }

    fn carry_out(&self, request: &mut Request) -> Result<(), Fault> {
        let start = usize::try_from(request.offset).expect("inside");
        let range = start..start + usize::try_from(request.len).expect("inside");
        let mut bytes = self.bytes.lock().expect("no panic");
        match (request.op, &mut request.data) {
            (Op::Read, Some(buffer)) => buffer.copy_from_slice(&bytes[range]),
            (_, Some(data)) => bytes[range].copy_from_slice(data),
            (op, _) if op.is_zero() && request.offset >= self.zeroes_before => return Err(Fault::NotSupported),
            (op, _) if op.is_zero() => bytes[range].fill(0),
            _ => {}
        }
        Ok(())
    }
}

pub fn refused_flush_behind_a_durable_request_is_a_failure_like_any_other(front: Front) {
    let over = || devices::faulty(stack::ram(3 << 20), &["flush:every=1:error=EOPNOTSUPP"]);
    let (range, durable) = (at(0, 8192), true);
    let zeroing = Zeroing { durable, ..Zeroing::default() };
    for backend in backends() {
        for ask in [Ask::Zero(range, zeroing), Ask::Discard { range, durable }] {
            let server = front(over(), How { backend, grace: GRACE });
            let mut client = server.connect();
            client.write(8192, &[1; 8192]).expect("written");
            client.run(ask).expect_err("nobody knows that it is durable");
            assert!(client.read(8192, 8192) == [1; 8192], "the client is served on");
            drop(client);
            assert!(server.end().is_err());
        }
    }
}

pub fn refused_flush_is_told_as_a_failure_and_not_as_a_refusal(front: Front) {
    let over = || devices::faulty(stack::ram(3 << 20), &["flush:every=1:error=EOPNOTSUPP"]);
    for backend in backends() {
        let server = front(over(), How { backend, grace: GRACE });
        let mut client = server.connect();
        client.write(0, &[1; 8192]).expect("written");
        // Who hears that flushes are not supported believes that none are needed.
        assert_eq!(client.flush(), Err(Errno::IO));
        drop(client);
        assert!(server.end().is_err());
    }
}

pub fn discard_that_the_medium_cannot_do_is_no_error(front: Front) {
    with_faults(front, &["discard:error=EOPNOTSUPP"], Ok(()), |server| {
        let mut client = server.connect();
        client.write(0, &[1; 4096]).expect("written");
        let (range, durable) = (at(0, 8192), true);
        assert_eq!(client.run(Ask::Discard { range, durable }), Ok(vec![]));
        client.flush().expect("nothing is lost");
    });
}

/// A large read that fails while it has chunks to begin frees its place among the jobs; the write
/// that gets the place must be served as a write.
pub fn request_behind_a_failed_large_one_is_not_taken_for_it(front: Front) {
    const LARGE: u32 = 6 << 20;
    const PIECE: usize = 512 << 10;
    let over = || {
        let base = stack::file(LARGE.into(), DirectMode::Auto);
        devices::faulty(base, &["read:nth=2:late"])
    };
    on_each_backend(front, over, |server| {
        let mut client = server.connect();
        // The read and slow flushes take all places, so the write waits for the read's.
        let mut asks = vec![Ask::Read(at(0, LARGE))];
        asks.resize(JOBS_MAX, Ask::Flush);
        let data = pattern(0, PIECE, 7);
        asks.push(Ask::Write { offset: 0, data: data.clone(), durable: false });
        let marks = client.send(&asks);
        let answers = client.answers(asks.len());
        assert_eq!(answers[&marks[0]], Err(Errno::IO));
        assert!(answers[&marks[JOBS_MAX]].is_ok());
        assert!(client.read(0, u32::try_from(PIECE).expect("small")) == data);
    });
}
