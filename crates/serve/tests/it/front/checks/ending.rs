//! Order of waiting: turns between requests, and work that nobody waits for any more. That ends within so many chunks,
//! however much was asked.

use std::time::Duration;

use cryptline_engine::BackendChoice;
use cryptline_testkit::scripted::{Call, Silent};
use cryptline_testkit::suite::{Fresh, devices};

use super::{GRACE, JOBS_MAX, backends, backends_and_dispatches, on_each_backend};
use crate::common::turnstile::Turnstile;
use crate::common::{stack, wait_until};
use crate::front::client::{Ask, Front, How, Range, Zeroing, at};

const GIB: u32 = 1 << 30;
/// Chunks that a lane begins in one turn, and between two looks for its client.
const TURN: u64 = 8;

/// Chunks of [`everything`].
const EVERYTHING: u64 = JOBS_MAX as u64 * (GIB as u64 / (256 << 10));

/// Makes a request for a range.
type Kind = fn(Range) -> Ask;

/// Requests that a client can make with a few bytes.
const ENDLESS: [Kind; 3] =
    [Ask::Cache, |range| Ask::Zero(range, Zeroing::default()), |range| Ask::Discard { range, durable: false }];

/// As many requests as are served at a time, of 1 GiB each: hours of work.
fn everything(ask: Kind) -> Vec<Ask> {
    let ranges = (0..JOBS_MAX as u64).map(|index| at(index * u64::from(GIB), GIB));
    ranges.map(ask).collect()
}

/// Those that its protocol has, and which need turns; clients make others of many, so that nobody knows of how many.
fn endless(front: Front) -> Vec<(Kind, u64)> {
    let server = front(disk().stack(), How { backend: BackendChoice::Auto, grace: GRACE });
    let turns = [TURN, 1, 1];
    let known = ENDLESS.into_iter().zip(turns).filter(|(ask, _)| server.has(&ask(at(0, GIB))));
    let known: Vec<_> = known.collect();
    assert!(!known.is_empty(), "nothing is checked");
    known
}

fn disk() -> Turnstile {
    Turnstile::new(JOBS_MAX as u64 * u64::from(GIB))
}

pub fn server_stops_at_the_next_chunk_of_whatever_was_asked(front: Front) {
    for (backend, (ask, _)) in backends().flat_map(|it| endless(front).into_iter().map(move |ask| (it, ask))) {
        let disk = disk();
        let grace = Duration::ZERO;
        let server = front(disk.stack(), How { backend, grace });
        let mut client = server.connect();
        client.send(&everything(ask));
        disk.let_pass(5);
        disk.wait_for(5);
        server.stop();
        // From now on nothing is worth its while.
        client.wait_until_cut_off();
        // The chunk that is in the medium's hands ends; nothing can take it back.
        disk.let_pass(1);
        wait_until("it stops with no more than that", || server.is_over());
        assert_eq!(disk.passed(), 6, "{backend:?}");
        assert!(disk.flushes() > 0, "what others wrote is safe");
        let log = server.log();
        let count = if server.takes_one_at_a_time() { String::new() } else { format!("{JOBS_MAX} ") };
        let expected = format!("{count}of its requests were not done");
        assert!(log.iter().any(|line| line.contains(&expected)), "{log:?}");
        assert_eq!(server.end(), Ok(()));
    }
}

pub fn server_stops_in_time_over_a_slow_medium(front: Front) {
    for (backend, dispatch) in backends_and_dispatches() {
        let mut begun = 0;
        for ask in &ENDLESS[..2] {
            let disk = disk();
            disk.let_pass(u64::MAX);
            let slow = "read=4ms,write=4ms,discard=4ms,parallel=1";
            let slow = devices::delayed(disk.stack(), slow);
            let over = devices::dispatched(slow, &stack::AES_4096, dispatch);
            let grace = Duration::from_millis(50);
            let server = front(over, How { backend, grace });
            if !server.has(&ask(at(0, GIB))) {
                continue;
            }
            begun += 1;
            let mut client = server.connect();
            client.send(&everything(*ask)[..JOBS_MAX - 1]);
            wait_until("it has begun", || disk.passed() > 0);
            // All of it would take a quarter of an hour.
            assert_eq!(server.end(), Ok(()));
        }
        assert!(begun > 0, "nothing is checked");
    }
}

pub fn server_stops_in_time_over_a_medium_that_never_answers(front: Front) {
    // One request leaves the lane waiting for more of them; as many as it serves, for none.
    for (backend, count) in backends().flat_map(|it| [1, JOBS_MAX].map(|count| (it, count))) {
        let disk = Silent::new(1 << 30);
        let grace = Duration::from_millis(50);
        let server = front(Fresh::new(disk.gate()), How { backend, grace });
        let mut client = server.connect();
        // By now, a kernel has looked for partitions.
        disk.fall_silent(&[Call::Transfer]);
        client.send(&vec![Ask::Read(at(0, 4096)); count]);
        let taken = if server.takes_one_at_a_time() { 1 } else { count };
        wait_until("it has been asked", || disk.taken() >= taken);
        assert_eq!(server.end(), Ok(()));
    }
}

pub fn work_for_a_client_that_is_gone_ends_soon(front: Front) {
    let grace = GRACE;
    for (backend, (ask, _)) in backends().flat_map(|it| endless(front).into_iter().map(move |ask| (it, ask))) {
        let disk = disk();
        let server = front(disk.stack(), How { backend, grace });
        let mut client = server.connect();
        client.send(&everything(ask));
        disk.let_pass(5);
        disk.wait_for(5);
        drop(client);
        let mut turns = 0;
        wait_until("its thread is free", || {
            if turns == 0 || server.is_told_of_the_end() {
                disk.let_pass(TURN + 1);
                turns += 1;
            }
            server.connections() == 0
        });
        let passed = disk.passed();
        assert!(passed <= 5 + turns * (TURN + 1), "{passed}");
        assert!(passed < EVERYTHING / 2, "{passed}");
        disk.let_pass(u64::MAX);
        let mut other = server.connect();
        other.write(0, &[1; 4096]).expect("others are served");
        other.flush().expect("and nothing of theirs is lost");
        assert_eq!(server.end(), Ok(()));
    }
}

pub fn short_request_waits_for_no_more_than_a_turn_of_a_long_one(front: Front) {
    for (ask, turn) in endless(front) {
        let disk = disk();
        let over = || disk.stack();
        on_each_backend(front, over, |server| {
            let mut client = server.connect();
            let short = Ask::Read(at(0, 4096));
            let marks = client.send(&[ask(at(0, GIB)), short]);
            // The long one has had a turn already where the short one is seen later.
            let turns = if server.takes_one_at_a_time() { 2 } else { 1 };
            disk.let_pass(turns * turn + 1);
            let (first, outcome) = client.answer();
            assert_eq!(first, marks[1]);
            assert!(outcome.is_ok());
            disk.let_pass(u64::from(GIB));
            assert!(client.answer().1.is_ok());
            disk.take_back();
        });
    }
}
