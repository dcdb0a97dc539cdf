//! Random sequences of operations, many in flight, against the model disk.
//!
//! A failure prints a seed; `CRYPTLINE_SEED=<seed>` runs the same sequences again.
//! `CRYPTLINE_SEQUENCES` sets how many sequences each device gets.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cryptline_engine::{Completion, Op, Request};
use cryptline_testkit::model::ModelDisk;
use cryptline_testkit::suite::{Driver, Fresh, Setup, Watchdog, fill, noise};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use crate::covering::*;

/// One step; places and sizes are fractions of whatever device runs it.
#[derive(Clone, Debug)]
enum Step {
    Read(Place),
    Write(Place, u64, bool),
    Discard(Place),
    WriteZeroes(Place, bool),
    Flush,
    /// Wait for everything in flight.
    Drain,
    /// Transfers come back short from here; 0 for whole again.
    Limit(u8),
}

#[derive(Clone, Copy, Debug)]
struct Place {
    at: u16,
    blocks: u16,
}

fn place() -> impl Strategy<Value = Place> {
    // Mostly small, now and then large.
    let blocks = prop_oneof![6 => 1..8u16, 3 => 1..64u16, 1 => 1..300u16];
    (any::<u16>(), blocks).prop_map(|(at, blocks)| Place { at, blocks })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => place().prop_map(Step::Read),
        8 => (place(), any::<u64>(), prop::bool::weighted(0.05))
            .prop_map(|(place, seed, durable)| Step::Write(place, seed, durable)),
        2 => place().prop_map(Step::Discard),
        2 => (place(), any::<bool>()).prop_map(|(place, unmap)| Step::WriteZeroes(place, unmap)),
        1 => Just(Step::Flush),
        1 => Just(Step::Drain),
        1 => (0..4u8).prop_map(Step::Limit),
    ]
}

/// A device, its model, and what is in flight.
struct Bench {
    driver: Driver,
    model: ModelDisk,
    /// Token, start and end of each request in flight.
    ranges: Vec<(u64, u64, u64)>,
    next_token: u64,
}

impl Bench {
    /// The bytes that a place means here.
    fn range(&self, place: Place) -> (u64, u64) {
        let (block, size) = (self.driver.block(), self.driver.size());
        let blocks = u64::from(place.blocks).min(size / block);
        let starts = size / block - blocks + 1;
        let start = u64::from(place.at) * starts / (1 << 16);
        (start * block, blocks * block)
    }

    fn take(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let geometry = *self.driver.channel.geometry();
        match *step {
            Step::Read(place) => {
                let (offset, len) = self.range(place);
                self.settle(offset, len)?;
                let buffer = self.driver.buffer(len);
                self.submit(Request::read(offset, buffer, 0));
            }
            Step::Write(place, seed, durable) => {
                let (offset, len) = self.range(place);
                self.settle(offset, len)?;
                let mut data = self.driver.buffer(len);
                fill(&mut data, offset, seed);
                self.model.write(offset, &data);
                self.submit(Request::write(offset, data, durable, 0));
            }
            Step::Discard(place) if geometry.discard => {
                let (offset, len) = self.range(place);
                self.settle(offset, len)?;
                self.model.discard(offset, len);
                self.submit(Request::new(Op::Discard, offset, len, 0));
            }
            Step::WriteZeroes(place, may_unmap) if geometry.write_zeroes => {
                let (offset, len) = self.range(place);
                self.settle(offset, len)?;
                self.model.zero(offset, len);
                self.submit(Request::new(Op::zero(may_unmap), offset, len, 0));
            }
            Step::Flush => self.submit(Request::flush(0)),
            Step::Drain => self.drain()?,
            Step::Limit(pages) => {
                let limit = usize::from(pages) * 4096;
                let limit = if limit == 0 { usize::MAX } else { limit };
                self.driver.channel.ring_mut().limit_transfer(limit);
            }
            Step::Discard(_) | Step::WriteZeroes(..) => {}
        }
        Ok(())
    }

    /// Waits until nothing in flight touches the range, and there is room for one more.
    fn settle(&mut self, offset: u64, len: u64) -> Result<(), TestCaseError> {
        let end = offset + len;
        while self.ranges.len() >= 32 || (self.ranges.iter()).any(|&(_, from, to)| from < end && offset < to) {
            self.complete_one()?;
        }
        Ok(())
    }

    fn submit(&mut self, request: Request) {
        let token = self.next_token;
        self.next_token += 1;
        self.ranges.push((token, request.offset, request.offset + request.len));
        self.driver.submit(Request { token, ..request });
    }

    fn complete_one(&mut self) -> Result<(), TestCaseError> {
        let completion = self.driver.next_completion();
        self.judge(&completion.expect("something is in flight"))
    }

    fn drain(&mut self) -> Result<(), TestCaseError> {
        for completion in self.driver.drain() {
            self.judge(&completion)?;
        }
        Ok(())
    }

    /// Nothing in flight overlapped, so the model is now what it was at submission.
    fn judge(&mut self, completion: &Completion) -> Result<(), TestCaseError> {
        let request = &completion.request;
        prop_assert_eq!(completion.result, Ok(()), "{:?}", request);
        self.ranges.retain(|range| range.0 != request.token);
        if let (Op::Read, Some(buffer)) = (request.op, &request.data) {
            let checked = self.model.check(request.offset, buffer);
            prop_assert_eq!(checked, Ok(()), "{:?}", request);
        }
        Ok(())
    }
}

fn run_sequence(fresh: &Fresh, setup: Setup, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut bench = Bench {
        driver: Driver::new(&fresh.gate, setup),
        model: ModelDisk::new(fresh.gate.geometry().size),
        ranges: Vec::new(),
        next_token: 0,
    };
    for step in steps {
        bench.take(step)?;
    }
    bench.drain()?;
    // Through a queue that has seen none of it.
    let mut reader = Driver::new(&fresh.gate, setup);
    let whole = reader.read(0, reader.size());
    let whole = whole.map_err(|fault| TestCaseError::fail(fault.to_string()))?;
    prop_assert_eq!(bench.model.check(0, &whole), Ok(()), "at the end");
    Ok(())
}

/// Random sequences over each setup, on a fresh device each.
fn against_the_model(make: impl Fn() -> Option<Fresh>) {
    let _watchdog = Watchdog::start(Duration::from_secs(300));
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = number("CRYPTLINE_SEED").unwrap_or_else(|| noise(since.as_secs() ^ u64::from(since.subsec_nanos())));
    let cases = number("CRYPTLINE_SEQUENCES").unwrap_or(10);
    for setup in Setup::ALL {
        let bytes: Vec<u8> = (0..4).flat_map(|word| noise(seed ^ word).to_le_bytes()).collect();
        let config = Config {
            cases: u32::try_from(cases).unwrap(),
            failure_persistence: None,
            max_shrink_time: 60_000,
            ..Config::default()
        };
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(config, rng);
        let steps = prop::collection::vec(step(), 1..160);
        let result = runner.run(&steps, |steps| match make() {
            Some(fresh) => run_sequence(&fresh, setup, &steps),
            None => Ok(()),
        });
        if let Err(failure) = result {
            panic!("CRYPTLINE_SEED={seed} over {setup:?}: {failure}");
        }
    }
}

macro_rules! devices_behave_like_the_model {
    ($($device:ident [$($ability:ident),*] => $make:expr;)+) => { $(
        #[test]
        fn $device() {
            against_the_model($make);
        }
    )+ };
}

covering_array!(devices_behave_like_the_model);

#[test]
fn device_that_loses_one_write_is_caught() {
    let steps: Vec<Step> = (0..40)
        .map(|index| {
            let place = Place { at: index * 1500, blocks: 3 };
            Step::Write(place, u64::from(index), false)
        })
        .collect();
    // The fault layer reports its errors, which is noticed at once.
    let failing = devices::faulty(devices::ram().unwrap(), &["write:nth=20"]);
    assert!(run_sequence(&failing, Setup::ALL[0], &steps).is_err());
    // Silent damage behind the device's back is noticed by content.
    let fresh = devices::ram().unwrap();
    let mut bench = Bench {
        driver: Driver::new(&fresh.gate, Setup::ALL[0]),
        model: ModelDisk::new(fresh.gate.geometry().size),
        ranges: Vec::new(),
        next_token: 0,
    };
    steps.iter().for_each(|step| bench.take(step).unwrap());
    bench.drain().unwrap();
    let (offset, _) = bench.range(Place { at: 4500, blocks: 3 });
    let mut other = Driver::new(&fresh.gate, Setup::ALL[0]);
    assert_eq!(other.run(other.write_request(offset, 512, 99, 1)).result, Ok(()));
    bench.take(&Step::Read(Place { at: 4500, blocks: 3 })).unwrap();
    assert!(bench.drain().is_err());
}
