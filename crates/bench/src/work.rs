//! How fast some work is: the load generator, with work that ends at once for its requests.

use std::time::{Duration, Instant};

use crate::Error;
use crate::load::{self, Job, Transport};
use crate::report::{Sample, Shape};

/// Shortest measurement: a few windows.
const TIME_MIN: Duration = Duration::from_millis(8);
/// Work is done in steps that take about as long, so that what a call costs does not count.
const STEP: Duration = load::WINDOW;

/// Work as requests, each of so many units.
struct Work<W> {
    work: W,
    units: u32,
}

impl<W: FnMut(u32)> Transport for Work<W> {
    const CLOCK_EVERY: u32 = 1;

    fn size(&self) -> u64 {
        u64::from(self.units)
    }

    fn submit(&mut self, _: usize, _: u64) -> Result<bool, Error> {
        (self.work)(self.units);
        Ok(true)
    }

    fn collect(&mut self, _: bool, _: &mut Vec<usize>) -> Result<(), Error> {
        Ok(())
    }
}

/// Measures for about `time` on `threads` threads at once. `make` is called once on each thread and
/// gives the work, which is told how many units to do. The speed that comes of it is in units.
pub fn rate<W>(threads: usize, time: Duration, make: impl Fn() -> Result<W, Error> + Sync) -> Result<Sample, Error>
where
    W: FnMut(u32),
{
    let units = units(&mut make()?);
    let time = time.max(TIME_MIN);
    let job = Job {
        shape: Shape {
            block: units,
            depth: 1,
            streams: u32::try_from(threads).unwrap_or(u32::MAX),
            ..Shape::default()
        },
        warm_up: time / 4,
        time: time - time / 4,
        ..Job::default()
    };
    load::drive(&job, |_| {
        let work = make()?;
        Ok(Work { work, units })
    })
}

/// Units of work that take about as long as a step.
fn units(work: &mut impl FnMut(u32)) -> u32 {
    const UNITS_MAX: u32 = 1 << 20;
    let mut units = 1;
    loop {
        let start = Instant::now();
        work(units);
        let elapsed = start.elapsed();
        if elapsed >= STEP / 2 || units >= UNITS_MAX {
            let scaled = u128::from(units) * STEP.as_nanos() / elapsed.as_nanos().max(1);
            return u32::try_from(scaled).unwrap_or(UNITS_MAX).clamp(1, UNITS_MAX);
        }
        units *= 2;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn every_thread_works_and_the_work_is_counted() {
        let (made, done) = (AtomicU64::new(0), AtomicU64::new(0));
        let measured = rate(2, Duration::from_millis(12), || {
            made.fetch_add(1, Ordering::Relaxed);
            Ok(|units| {
                thread::sleep(Duration::from_micros(10) * units);
                done.fetch_add(u64::from(units), Ordering::Relaxed);
            })
        });
        let measured = measured.expect("it does not fail");
        // The work that the units are found by, and that of each thread.
        assert_eq!(made.load(Ordering::Relaxed), 3);
        assert!(done.load(Ordering::Relaxed) >= 3);
        assert!(measured.bytes_per_second > 0.0 && measured.spread >= 0.0);
        // Sleeping takes no processor time.
        assert!(measured.client_busy.is_some_and(|busy| busy < 1.0));
    }

    #[test]
    fn a_step_of_work_that_is_longer_than_a_step_is_one_unit() {
        let mut work = |units| thread::sleep(Duration::from_millis(2) * units);
        assert_eq!(units(&mut work), 1);
    }
}
