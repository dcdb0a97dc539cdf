//! Whether the load is what was asked for. Nothing here depends on how fast the machine is.

use std::collections::BTreeSet;

use cryptline_engine::base::RamDevice;
use cryptline_engine::layer::{FaultDevice, FaultPlan, FaultRule};

use super::*;

const SIZE: u64 = 1 << 20;

fn job(direction: Direction, pattern: Pattern, block: u32, depth: u32, streams: u32) -> Job {
    Job {
        shape: Shape {
            direction,
            pattern,
            block,
            depth,
            streams,
        },
        warm_up: Duration::from_millis(1),
        time: Duration::from_millis(5),
        start: 3,
        latency: true,
    }
}

fn ram() -> Gate {
    Gate::new(RamDevice::new(SIZE).expect("memory"))
}

#[test]
fn every_shape_moves_data_and_takes_time() {
    for direction in [Direction::Read, Direction::Write] {
        for pattern in [Pattern::Sequential, Pattern::Random] {
            for (depth, streams) in [(1, 1), (4, 1), (32, 2)] {
                let outcome = run(&ram(), &job(direction, pattern, 4096, depth, streams));
                let outcome = outcome.expect("RAM does not fail");
                let latency = outcome.latency.expect("it was wanted");
                assert!(outcome.bytes_per_second > 0.0, "{outcome:?}");
                assert!(
                    latency.p50_us > 0.0 && latency.p50_us <= latency.max_us,
                    "{latency:?}"
                );
            }
        }
    }
}

#[test]
fn a_stream_with_many_requests_counts_the_time_they_wait_for_each_other() {
    let job = job(Direction::Read, Pattern::Sequential, 65536, 32, 1);
    let outcome = run(&ram(), &job).expect("RAM does not fail");
    let latency = outcome.latency.expect("it was wanted");
    // Little's law: the mean latency is the number in flight over the rate, and the longest is no
    // less; half of it for the edges of the time that counts. However slow the machine is.
    let in_flight = latency.max_us / 1e6 * outcome.bytes_per_second / 65536.0;
    assert!(in_flight > 16.0, "{in_flight}");
}

#[test]
fn without_latencies_the_rate_is_that_of_the_windows() {
    let mut job = job(Direction::Read, Pattern::Sequential, 4096, 1, 1);
    job.latency = false;
    // Shorter than a window, and longer.
    for time in [100, 5000] {
        job.time = Duration::from_micros(time);
        let outcome = run(&ram(), &job).expect("RAM does not fail");
        assert!(outcome.bytes_per_second > 0.0);
        assert!(outcome.latency.is_none());
    }
}

#[test]
fn writes_reach_the_medium() {
    let gate = ram();
    run(
        &gate,
        &job(Direction::Write, Pattern::Sequential, 4096, 4, 1),
    )
    .expect("RAM does not fail");
    assert!(!gate.extent(3 * 4096, 4096).expect("a range").hole);
}

#[test]
fn a_failed_request_ends_the_bench() {
    let rule: FaultRule = "read:nth=3".parse().expect("a rule");
    let gate = Gate::new(FaultDevice::new(ram(), FaultPlan(vec![rule])));
    let error = run(
        &gate,
        &job(Direction::Read, Pattern::Sequential, 4096, 2, 2),
    )
    .expect_err("a fault");
    assert_eq!(error.exit_code(), 4);
    assert!(error.to_string().contains("failed"), "{error}");
}

#[test]
fn sequential_streams_visit_every_block_and_begin_apart() {
    let mut job = job(Direction::Read, Pattern::Sequential, 4096, 1, 2);
    job.start = 0;
    let mut first = Offsets::new(SIZE, &job, 0);
    let mut second = Offsets::new(SIZE, &job, 1);
    assert_eq!((first.take(), second.take()), (0, SIZE / 2));
    let visited: BTreeSet<u64> = (0..SIZE / 4096).map(|_| first.take()).collect();
    assert_eq!(visited.len(), 256);
    assert!(
        visited
            .iter()
            .all(|offset| offset + 4096 <= SIZE && offset % 4096 == 0)
    );
}

#[test]
fn random_streams_stay_inside_and_go_everywhere() {
    let job = job(Direction::Read, Pattern::Random, 65536, 1, 1);
    let mut offsets = Offsets::new(SIZE, &job, 0);
    let visited: BTreeSet<u64> = (0..1000).map(|_| offsets.take()).collect();
    assert_eq!(visited.len(), 16, "{visited:?}");
    assert!(
        visited
            .iter()
            .all(|offset| offset + 65536 <= SIZE && offset % 65536 == 0)
    );
}

#[test]
fn wanted_slots_come_oldest_first() {
    let mut wanted = Wanted::all(3);
    assert_eq!((wanted.take(), wanted.take()), (Some(0), Some(1)));
    wanted.put(1);
    wanted.put(0);
    let rest: Vec<usize> = std::iter::from_fn(|| wanted.take()).collect();
    assert_eq!(rest, [2, 1, 0]);
    assert!(wanted.is_empty());
}
