//! How fast something runs: warm-up, several samples, their median and spread.
//!
//! ```text
//! each thread:  calibrate (warms up) ─► sample ─► sample ─► ... ─► sample
//!                                    │         │         │
//! all threads:                     barrier   barrier   barrier      sample i = sum over threads
//! ```

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Fewest samples of one measurement.
const SAMPLES_MIN: u32 = 9;
/// The same where a single unit of work is longer than [`SAMPLE_MAX`]: Twofish would take minutes.
const SAMPLES_OF_SLOW_MIN: u32 = 3;
/// Calibration takes about as long as this many samples.
const CALIBRATION: u32 = 3;
/// Shorter samples would measure the clock.
const SAMPLE_MIN: Duration = Duration::from_micros(500);
/// Shorter than a time slice of the scheduler: where other programs run too, most samples are
/// either undisturbed or lost, and the median is one of the former.
const SAMPLE_MAX: Duration = Duration::from_millis(2);

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Units of work in a second, all threads together: the median of the samples.
    pub per_second: f64,
    /// Distance of the samples' quartiles over their median: half of the samples are this close.
    pub spread: f64,
    /// How many samples there were.
    pub samples: u32,
    /// The time of all samples, of all threads together.
    pub wall: Duration,
    /// The processor time the threads got in it; less when others ran.
    pub cpu: Duration,
}

/// One thread's part of one sample.
struct Sample {
    per_second: f64,
    wall: Duration,
    cpu: Duration,
}

/// Measures for about `time` on `threads` threads at once. `make` is called once on each thread
/// and gives the work, which is told how many units to do.
pub fn rate<W>(threads: usize, time: Duration, make: impl Fn() -> W + Sync) -> Measured
where
    W: FnMut(u32),
{
    let length = time / (SAMPLES_MIN + CALIBRATION);
    let length = length.clamp(SAMPLE_MIN, SAMPLE_MAX);
    let barrier = Barrier::new(threads);
    // Nanoseconds of the slowest thread's samples: all threads take the same number of samples.
    let slowest = AtomicU64::new(0);
    let one_thread = || {
        let mut work = make();
        let (units, length) = calibrate(&mut work, length);
        let nanos = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        slowest.fetch_max(nanos, Ordering::Relaxed);
        barrier.wait();
        let length = Duration::from_nanos(slowest.load(Ordering::Relaxed).max(1));
        let samples = (0..sample_count(time, length)).map(|_| {
            barrier.wait();
            sample(&mut work, units)
        });
        samples.collect::<Vec<_>>()
    };
    let of_threads: Vec<Vec<Sample>> = thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|_| scope.spawn(one_thread)).collect();
        let ended = started.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        ended.collect()
    });
    summary(&of_threads)
}

/// The middle value, or the mean of the two in the middle.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        len if len % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// How many samples of `length` make `time`, calibration included.
fn sample_count(time: Duration, length: Duration) -> u32 {
    let count = time.as_nanos() / length.as_nanos();
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let min = if length > SAMPLE_MAX {
        SAMPLES_OF_SLOW_MIN
    } else {
        SAMPLES_MIN
    };
    count.saturating_sub(CALIBRATION).max(min)
}

/// Units of work that take about `length`, and how long they do: longer where a single one does.
/// Finding out warms up caches and clocks.
fn calibrate(work: &mut impl FnMut(u32), length: Duration) -> (u32, Duration) {
    const UNITS_MAX: u32 = 1 << 28;
    let mut units: u32 = 1;
    loop {
        let start = Instant::now();
        work(units);
        let elapsed = start.elapsed();
        if elapsed >= length / 2 || units >= UNITS_MAX {
            let scaled = u128::from(units) * length.as_nanos() / elapsed.as_nanos().max(1);
            return match u32::try_from(scaled).unwrap_or(UNITS_MAX) {
                0 => (1, elapsed / units),
                scaled => (scaled, length),
            };
        }
        units *= 2;
    }
}

fn sample(work: &mut impl FnMut(u32), units: u32) -> Sample {
    let (start, cpu) = (Instant::now(), thread_cpu_time());
    work(units);
    let cpu = thread_cpu_time().saturating_sub(cpu);
    let wall = start.elapsed().max(Duration::from_nanos(1));
    Sample {
        per_second: f64::from(units) / wall.as_secs_f64(),
        wall,
        cpu,
    }
}

fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

fn summary(of_threads: &[Vec<Sample>]) -> Measured {
    let together = |index: usize| {
        let of_all = of_threads.iter().filter_map(|samples| samples.get(index));
        of_all.map(|sample| sample.per_second).sum::<f64>()
    };
    let count = of_threads.first().map_or(0, Vec::len);
    let rates: Vec<f64> = (0..count).map(together).collect();
    let per_second = median(&rates);
    let all = || of_threads.iter().flatten();
    Measured {
        per_second,
        spread: quartile_distance(&rates) / per_second,
        samples: u32::try_from(count).unwrap_or(u32::MAX),
        wall: all().map(|sample| sample.wall).sum(),
        cpu: all().map(|sample| sample.cpu).sum(),
    }
}

/// From the lower to the upper quartile.
#[must_use]
pub fn quartile_distance(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    let at = |quarters: usize| sorted.get(last * quarters / 4).copied().unwrap_or(0.0);
    at(3) - at(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_whatever_the_order() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn one_disturbed_sample_moves_neither_median_nor_spread() {
        let mut rates = [10.0; 9];
        rates[4] = 1.0;
        assert_eq!(median(&rates), 10.0);
        assert_eq!(quartile_distance(&rates), 0.0);
    }

    #[test]
    fn samples_of_threads_are_added_up() {
        let sample = |per_second| Sample {
            per_second,
            wall: Duration::from_secs(2),
            cpu: Duration::from_secs(1),
        };
        let thread = || vec![sample(3.0), sample(5.0), sample(4.0)];
        let summary = summary(&[thread(), thread()]);
        assert_eq!(summary.per_second, 8.0);
        assert_eq!(summary.wall, Duration::from_secs(12));
        assert_eq!(summary.cpu, Duration::from_secs(6));
    }

    #[test]
    fn every_thread_works_and_the_work_is_counted() {
        let done = AtomicU64::new(0);
        let measured = rate(2, Duration::from_millis(12), || {
            |units| {
                thread::sleep(Duration::from_micros(10) * units);
                done.fetch_add(u64::from(units), Ordering::Relaxed);
            }
        });
        // Two threads, nine samples, at least one unit each.
        assert!(done.load(Ordering::Relaxed) >= 18);
        assert!(measured.per_second > 0.0 && measured.spread >= 0.0);
        // Sleeping takes no processor time.
        assert!(measured.cpu < measured.wall);
    }

    #[test]
    fn work_longer_than_a_sample_is_sampled_less_often_in_the_same_time() {
        let samples = |time| {
            let slow = rate(1, Duration::from_millis(time), || {
                |units| thread::sleep(Duration::from_millis(5) * units)
            });
            slow.samples
        };
        // Of the usual length there would be 47 and 9.
        let many = samples(100);
        assert!((3..=17).contains(&many), "{many}");
        assert_eq!(samples(12), 3);
    }
}
