//! What a busy machine does to latencies: small reads, one at a time, alone and beside threads that
//! use up the processors.
//!
//! The thread's claim: inline, a request's latency stays near that of device and cipher, whatever
//! else runs; through a queue it waits for a worker to get a processor.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use cryptline_engine::Gate;
use cryptline_engine::dispatch::Mode;

use super::plan::Plan;
use super::{Samples, Volumes, small_reads};
use crate::CliError;
use crate::bench::load;
use crate::bench::report::Row;

/// Idle and loaded samples of each mode, in the order of the plan's modes.
pub struct Part {
    hogs: usize,
    idle: Vec<Samples>,
    loaded: Vec<Samples>,
    /// Measurements so far.
    taken: u64,
}

impl Part {
    /// None taken yet.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let none = || plan.modes.iter().map(|_| Samples::default()).collect();
        Self {
            hogs: plan.hogs,
            idle: none(),
            loaded: none(),
            taken: 0,
        }
    }

    /// Whether it was asked for.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.hogs > 0
    }

    /// Takes one sample of each mode, idle and loaded.
    ///
    /// # Errors
    /// Exit code 4 when a volume fails.
    pub fn measure(&mut self, plan: &Plan, volumes: &[Volumes]) -> Result<(), CliError> {
        let Some(volumes) = volumes.first() else {
            return Ok(());
        };
        let shape = small_reads(plan.pattern);
        let Self {
            idle,
            loaded,
            taken,
            ..
        } = self;
        let mut take = |volume: &Gate, samples: &mut Samples| {
            *taken += 1;
            samples.take(load::run(volume, &plan.job(shape, *taken))?);
            Ok::<_, CliError>(())
        };
        for (volume, samples) in volumes.iter().zip(idle) {
            take(volume, samples)?;
        }
        beside_hogs(self.hogs, || {
            for (volume, samples) in volumes.iter().zip(loaded) {
                take(volume, samples)?;
            }
            Ok(())
        })
    }

    /// Idle and loaded samples of a mode.
    #[must_use]
    pub fn of(&self, plan: &Plan, mode: Mode) -> Option<(&Samples, &Samples)> {
        let place = plan.place(mode)?;
        self.is_wanted()
            .then(|| (&self.idle[place], &self.loaded[place]))
    }

    /// The rows: idle and loaded, for each mode.
    #[must_use]
    pub fn rows(&self, plan: &Plan) -> Vec<Row> {
        let hogs = u32::try_from(self.hogs).unwrap_or(u32::MAX);
        let shape = small_reads(plan.pattern);
        let of = |&mode: &Mode| {
            let (idle, loaded) = self.of(plan, mode)?;
            let row = |samples: &Samples, hogs| samples.row(plan, 0, mode, shape, hogs);
            Some([row(idle, 0), row(loaded, hogs)])
        };
        plan.modes.iter().filter_map(of).flatten().collect()
    }
}

/// Does `work` while `count` threads use up as much processor time as they get.
fn beside_hogs<T>(count: usize, work: impl FnOnce() -> T) -> T {
    /// Ends the threads however `work` ends.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                let mut number = 1u64;
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..1000 {
                        number = black_box(number.wrapping_mul(0x5851_f42d_4c95_7f2d));
                    }
                }
            });
        }
        let _stop = Stop(&stop);
        work()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hogs_end_with_the_work_they_disturb() {
        assert_eq!(beside_hogs(3, || 7), 7);
        let panicked = std::panic::catch_unwind(|| beside_hogs(1, || panic!("on purpose")));
        assert!(panicked.is_err());
    }
}
