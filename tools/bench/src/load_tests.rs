//! Tests that the load is what was asked for. Nothing here depends on how fast the machine is.

use std::collections::BTreeSet;

use cryptline_engine::base::RamDevice;
use cryptline_engine::layer::{FaultDevice, FaultPlan, FaultRule};

use super::*;
use crate::error::Error;

const SIZE: u64 = 1 << 20;

fn job(direction: DataDirection, pattern: Pattern, block: u32, depth: u32, streams: u32) -> LoadJob {
    LoadJob {
        shape: LoadShape { direction, pattern, block, depth, streams },
        warm_up: Duration::from_millis(1),
        time: Duration::from_millis(5),
        start: 3,
        latency: true,
        cpu: None,
    }
}

fn ram() -> Gate {
    Gate::new(RamDevice::new(SIZE).expect("memory"))
}

#[test]
fn every_shape_moves_data_and_takes_time() {
    for direction in [DataDirection::Read, DataDirection::Write] {
        for pattern in [Pattern::Sequential, Pattern::Random] {
            for (depth, streams) in [(1, 1), (4, 1), (32, 2)] {
                let sample = run(&ram(), &job(direction, pattern, 4096, depth, streams));
                let sample = sample.expect("RAM does not fail");
                let latency = sample.latency.expect("it was wanted");
                assert!(sample.bytes_per_second > 0.0, "{sample:?}");
                assert!(latency.p50_us > 0.0 && latency.p50_us <= latency.max_us, "{latency:?}");
            }
        }
    }
}

#[test]
fn a_stream_with_many_requests_counts_the_time_they_wait_for_each_other() {
    let mut job = job(DataDirection::Read, Pattern::Sequential, 65536, 32, 1);
    job.time = Duration::from_millis(50);
    let in_flight = || {
        let sample = run(&ram(), &job).expect("RAM does not fail");
        let latency = sample.latency.expect("it was wanted");
        latency.max_us / 1e6 * sample.bytes_per_second / 65536.0
    };
    // Little's law: the mean latency is the number in flight over the rate, and the longest is no less; half of it for the
    // edges of the time that counts. A thread that loses its processor for all of that time has counted next to nothing.
    let tries: Vec<f64> = (0..8).map(|_| in_flight()).collect();
    assert!(tries.iter().any(|&it| it > 16.0), "{tries:?}");
}

#[test]
fn without_latencies_the_rate_is_that_of_the_windows() {
    let mut job = job(DataDirection::Read, Pattern::Sequential, 4096, 1, 1);
    job.latency = false;
    // Shorter than a window, and longer.
    for time in [100, 5000] {
        job.time = Duration::from_micros(time);
        let sample = run(&ram(), &job).expect("RAM does not fail");
        assert!(sample.bytes_per_second > 0.0);
        assert!(sample.latency.is_none());
    }
}

#[test]
fn the_next_job_can_go_on_where_one_ended() {
    let mut job = job(DataDirection::Read, Pattern::Sequential, 4096, 1, 1);
    (job.warm_up, job.time) = (Duration::ZERO, Duration::ZERO);
    let sample = run(&ram(), &job).expect("RAM does not fail");
    assert_eq!(sample.next, 4);
}

#[test]
fn writes_reach_the_medium() {
    let gate = ram();
    let job = job(DataDirection::Write, Pattern::Sequential, 4096, 4, 1);
    run(&gate, &job).expect("RAM does not fail");
    assert!(!gate.extent(3 * 4096, 4096).expect("a range").hole);
}

#[test]
fn a_failed_request_ends_the_bench() {
    let rule: FaultRule = "read:nth=3".parse().expect("a rule");
    let gate = Gate::new(FaultDevice::new(ram(), FaultPlan(vec![rule])));
    let job = job(DataDirection::Read, Pattern::Sequential, 4096, 2, 2);
    let error = run(&gate, &job).expect_err("a fault");
    assert!(error.to_string().contains("failed"), "{error}");
}

#[test]
fn a_stream_that_cannot_be_opened_does_not_keep_the_others_waiting() {
    let job = job(DataDirection::Read, Pattern::Sequential, 4096, 1, 3);
    let error = drive(&job, |index| match index {
        1 => Err(Error("on purpose".into())),
        _ => ChannelCalls::open(&ram(), job.shape),
    });
    assert_eq!(error.expect_err("one of them").to_string(), "on purpose");
}

#[test]
fn a_processor_that_does_not_exist_is_refused() {
    let mut job = job(DataDirection::Read, Pattern::Sequential, 4096, 1, 1);
    job.cpu = Some(usize::MAX);
    let error = run(&ram(), &job).expect_err("no such processor");
    assert!(error.to_string().contains("--no-pin"), "{error}");
}

/// A transport that always holds one request back.
#[derive(Default)]
struct Slow {
    held: Option<usize>,
}

impl LoadTransport for Slow {
    fn size(&self) -> u64 {
        SIZE
    }

    fn submit(&mut self, slot: usize, _: u64) -> Result<bool> {
        let is_held = self.held.is_none();
        if is_held {
            self.held = Some(slot);
        }
        Ok(!is_held)
    }

    fn collect(&mut self, wait: bool, ended: &mut Vec<usize>) -> Result<()> {
        if wait {
            ended.extend(self.held.take());
        }
        Ok(())
    }
}

#[test]
fn every_request_has_ended_when_the_job_has() {
    for depth in [1, 2, 100] {
        let job = job(DataDirection::Read, Pattern::Random, 4096, depth, 1);
        let mut stream = LoadStream::new(Slow::default(), &job, 0);
        stream.until(Instant::now()).expect("nothing fails");
        stream.drain().expect("nothing fails");
        assert_eq!(stream.wanted.len(), stream.since.len());
        let sample = drive(&job, |_| Ok(Slow::default())).expect("nothing fails");
        assert!(sample.bytes_per_second > 0.0);
    }
}

#[test]
fn sequential_streams_visit_every_block_and_begin_apart() {
    let mut job = job(DataDirection::Read, Pattern::Sequential, 4096, 1, 2);
    job.start = 0;
    let mut first = Offsets::new(SIZE, &job, 0);
    let mut second = Offsets::new(SIZE, &job, 1);
    assert_eq!((first.take(), second.take()), (0, SIZE / 2));
    let visited: BTreeSet<u64> = (0..SIZE / 4096).map(|_| first.take()).collect();
    assert_eq!(visited.len(), 256);
    assert!(visited.iter().all(|offset| offset + 4096 <= SIZE && offset % 4096 == 0));
}

#[test]
fn random_streams_stay_inside_and_go_everywhere() {
    let job = job(DataDirection::Read, Pattern::Random, 65536, 1, 1);
    let mut offsets = Offsets::new(SIZE, &job, 0);
    let visited: BTreeSet<u64> = (0..1000).map(|_| offsets.take()).collect();
    assert_eq!(visited.len(), 16, "{visited:?}");
    assert!(visited.iter().all(|offset| offset + 65536 <= SIZE && offset % 65536 == 0));
}
