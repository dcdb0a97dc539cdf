//! The simulated medium: when each request will be done.
//!
//! ```text
//!                     ┌ worker 0 ──[service]──[service]───► free at
//! request ─► draw ─►  ├ worker 1 ──[service]──────────────► free at     the earliest free one
//!                     └ …
//! service = drawn time + seek + length / rate
//! ```
//!
//! With `rate`, all workers share one cable, whose own "free at" no request can beat.
//!
//! Requests are taken in the order of submission, over all queues. Everything shared is a word
//! changed by one atomic step, so queues do not wait for each other: only the times they get do.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::spec::{DelaySpec, SpecTime};
use crate::{Op, Request};

/// Times are nanoseconds since `origin`.
pub(super) struct DelayedMedium {
    spec: DelaySpec,
    size: u64,
    origin: Instant,
    /// Random numbers drawn so far.
    draws: AtomicU64,
    /// Where the last transfer ended, in bytes.
    head: AtomicU64,
    /// When each worker is free again; none where any number work at a time.
    workers: Box<[AtomicU64]>,
    /// When the cable is free again.
    cable: AtomicU64,
}

impl DelayedMedium {
    pub fn new(spec: DelaySpec, size: u64) -> Self {
        let workers = spec.parallel.unwrap_or(0);
        Self {
            spec,
            size,
            origin: Instant::now(),
            draws: AtomicU64::new(0),
            head: AtomicU64::new(0),
            workers: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            cable: AtomicU64::new(0),
        }
    }

    /// Tells if it is a disk that turns.
    pub fn seeks(&self) -> bool {
        self.spec.seek.is_some()
    }

    /// Takes a request at `now`; when it will be done.
    pub fn take(&self, request: &Request, now: Instant) -> Instant {
        let elapsed = now.saturating_duration_since(self.origin).as_nanos();
        let at = u64::try_from(elapsed).unwrap_or(u64::MAX);
        let done = self.take_at(request, at);
        if done <= at { now } else { self.origin + Duration::from_nanos(done) }
    }

    /// As [`take`](Self::take), in nanoseconds since the origin.
    fn take_at(&self, request: &Request, now: u64) -> u64 {
        let carries = request.op.moves_data();
        let time = match request.op {
            Op::Read | Op::Cache => self.spec.read,
            Op::Flush => self.spec.flush,
            op if op.moves_data() => self.spec.write,
            _ => self.spec.discard,
        };
        let mut service = self.draw(time);
        let mut earliest = now;
        if carries {
            service = service.saturating_add(self.seek_to(request));
            let cable_time = self.cable_time(request.len);
            service = service.saturating_add(cable_time);
            if cable_time > 0 {
                earliest = reserve(&self.cable, now, cable_time);
            }
        }
        self.work(now, service).max(earliest)
    }

    /// Gives `service` to the worker that is free first; when it is done.
    fn work(&self, now: u64, service: u64) -> u64 {
        let load = |worker: &AtomicU64| worker.load(Ordering::Relaxed);
        loop {
            let Some(worker) = self.workers.iter().min_by_key(|worker| load(worker)) else {
                return now.saturating_add(service);
            };
            let free = load(worker);
            let end = free.max(now).saturating_add(service);
            // Another queue may have taken this worker: look again.
            let taken = worker.compare_exchange(free, end, Ordering::Relaxed, Ordering::Relaxed);
            if taken.is_ok() {
                return end;
            }
        }
    }

    /// Moves the head over the request; the time it took to get there.
    fn seek_to(&self, request: &Request) -> u64 {
        let Some((shortest, longest)) = self.spec.seek else {
            return 0;
        };
        let end = request.offset.saturating_add(request.len);
        let distance = self.head.swap(end, Ordering::Relaxed).abs_diff(request.offset);
        match distance {
            0 => 0,
            _ => shortest.saturating_add(share(longest - shortest, distance, self.size)),
        }
    }

    fn cable_time(&self, len: u64) -> u64 {
        let time = |rate| share(1_000_000_000, len, rate);
        self.spec.rate.map_or(0, time)
    }

    fn draw(&self, time: SpecTime) -> u64 {
        match time {
            SpecTime::Fixed(time) => time,
            SpecTime::Uniform { least, most } => {
                let within = u128::from(most - least) + 1;
                let part = (u128::from(self.random()) * within) >> 64;
                least.saturating_add(u64::try_from(part).unwrap_or(u64::MAX))
            }
            SpecTime::Normal { mean, deviation } => self.draw_normal(mean, deviation),
        }
    }

    /// The sum of twelve uniform numbers is close to normal and has variance 1 (Irwin-Hall); it
    /// never leaves 6 deviations. Times below zero are zero.
    fn draw_normal(&self, mean: u64, deviation: u64) -> u64 {
        const ONE: u64 = 0xffff;
        let sixteens = |word: u64| (0..4).map(move |index| (word >> (16 * index)) & ONE);
        let sum: u64 = (0..3).flat_map(|_| sixteens(self.random())).sum();
        let distance = share(deviation, sum.abs_diff(6 * ONE), ONE);
        if sum < 6 * ONE { mean.saturating_sub(distance) } else { mean.saturating_add(distance) }
    }

    /// SplitMix64 (Steele, Lea and Flood 2014): number n of the sequence of `seed`.
    fn random(&self) -> u64 {
        let number = self.draws.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let seed = self.spec.seed;
        let mut word = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

/// Takes `time` on something that does one thing at a time; when that is over.
fn reserve(free_at: &AtomicU64, now: u64, time: u64) -> u64 {
    let end = |free: u64| free.max(now).saturating_add(time);
    let taken = free_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| Some(end(free)));
    end(taken.unwrap_or_else(|free| free))
}

/// `whole * part / of`.
fn share(whole: u64, part: u64, of: u64) -> u64 {
    let share = u128::from(whole) * u128::from(part) / u128::from(of.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "medium_tests.rs"]
mod tests;
