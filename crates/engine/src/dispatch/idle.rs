//! How many cores have nothing to do.
//!
//! Measured from `/proc/stat` over the last tenth of a second, by whoever asks when that time is over.
//! What the helpers themselves used counts as idle: without them it would have been.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Time over which idleness is measured.
const INTERVAL: Duration = Duration::from_millis(100);
/// A measurement may cost this part of the time between two.
const COST_SHARE: u32 = 500;
/// Bytes of `/proc/stat` that hold the sum over all cores.
const FIRST_LINE: usize = 256;
/// Idle time counts in units of so many milliseconds on every Linux (`USER_HZ`, 100 a second).
const TICK_MS: u64 = 10;
/// A core idle three quarters of the time is worth a helper.
const ENOUGH: f64 = 0.25;

/// Watches the cores.
pub(super) struct Idle {
    stat: Option<File>,
    began: Instant,
    /// When the next measurement is due, in nanoseconds since `began`.
    due: AtomicU64,
    cores: AtomicUsize,
    last: Mutex<Sample>,
    /// Nanoseconds that the helpers were awake.
    helped: AtomicU64,
}

#[derive(Clone, Copy)]
struct Sample {
    at: Instant,
    idle: Duration,
    helped: u64,
}

impl Idle {
    pub fn new() -> Self {
        let stat = File::open("/proc/stat").ok();
        let now = Instant::now();
        let idle = stat.as_ref().and_then(idle_time).unwrap_or_default();
        Self {
            stat,
            began: now,
            due: AtomicU64::new(nanos(INTERVAL)),
            cores: AtomicUsize::new(0),
            last: Mutex::new(Sample {
                at: now,
                idle,
                helped: 0,
            }),
            helped: AtomicU64::new(0),
        }
    }

    /// So many idle cores, always.
    pub fn always(cores: usize) -> Self {
        let idle = Self::new();
        idle.due.store(u64::MAX, Ordering::Relaxed);
        idle.cores.store(cores, Ordering::Relaxed);
        idle
    }

    /// Cores that were idle, or used by helpers only, when last measured. 0 before the first time, and
    /// where `/proc/stat` can not be read.
    pub fn cores(&self) -> usize {
        self.cores.load(Ordering::Relaxed)
    }

    /// Measures again if it is time to.
    pub fn refresh(&self) {
        let elapsed = nanos(self.began.elapsed());
        if elapsed < self.due.load(Ordering::Relaxed) {
            return;
        }
        let (Some(stat), Ok(mut last)) = (&self.stat, self.last.try_lock()) else {
            return;
        };
        let now = Instant::now();
        let Some(idle) = idle_time(stat) else { return };
        let next = Sample {
            at: now,
            idle,
            helped: self.helped.load(Ordering::Relaxed),
        };
        self.cores.store(spare(&last, &next), Ordering::Relaxed);
        *last = next;
        // On a machine with very many cores the file is long, and made anew for each reader.
        let pause = INTERVAL.max(now.elapsed() * COST_SHARE);
        self.due.store(elapsed + nanos(pause), Ordering::Relaxed);
    }

    /// Notes that a helper was awake for so long.
    pub fn note_help(&self, awake: Duration) {
        self.helped.fetch_add(nanos(awake), Ordering::Relaxed);
    }
}

fn spare(last: &Sample, next: &Sample) -> usize {
    let elapsed = next.at.duration_since(last.at).as_secs_f64();
    if elapsed <= 0.0 {
        return 0;
    }
    let idle = next.idle.saturating_sub(last.idle).as_secs_f64();
    let helped = Duration::from_nanos(next.helped.saturating_sub(last.helped)).as_secs_f64();
    let cores = ((idle + helped) / elapsed + ENOUGH).floor();
    (0..=super::crew::CREW_MAX)
        .rev()
        .find(|&count| count as f64 <= cores)
        .unwrap_or(0)
}

/// The time all cores together have been idle, or waited for a disk, since the machine started.
fn idle_time(stat: &File) -> Option<Duration> {
    let mut text = [0; FIRST_LINE];
    let len = stat.read_at(&mut text, 0).ok()?;
    parse(std::str::from_utf8(&text[..len]).ok()?)
}

/// `cpu  user nice system idle iowait ...`
fn parse(text: &str) -> Option<Duration> {
    let mut words = text.lines().next()?.split_whitespace();
    if words.next()? != "cpu" {
        return None;
    }
    let mut words = words.skip(3).map(str::parse::<u64>);
    let idle = words.next()?.ok()?;
    let waiting = words.next()?.ok()?;
    Some(Duration::from_millis(
        idle.saturating_add(waiting).saturating_mul(TICK_MS),
    ))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_waiting_count_as_idle() {
        let text = "cpu  100 2 30 4000 50 6 7 0 0 0\ncpu0 1 2 3 4";
        assert_eq!(parse(text), Some(Duration::from_millis(40_500)));
        assert_eq!(parse("intr 7"), None);
        assert_eq!(parse("cpu 1 2"), None);
    }

    #[test]
    fn what_the_helpers_used_is_idle_too() {
        let at = Instant::now();
        let sample = |ms: u64, idle_ms: u64, helped_ms: u64| Sample {
            at: at + Duration::from_millis(ms),
            idle: Duration::from_millis(idle_ms),
            helped: helped_ms * 1_000_000,
        };
        let zero = sample(0, 0, 0);
        assert_eq!(spare(&zero, &sample(100, 0, 0)), 0);
        assert_eq!(spare(&zero, &sample(100, 100, 0)), 1);
        assert_eq!(spare(&zero, &sample(100, 30, 70)), 1);
        assert_eq!(spare(&zero, &sample(100, 60, 0)), 0);
        assert_eq!(spare(&zero, &sample(100, 380, 0)), 4);
        assert_eq!(spare(&zero, &zero), 0);
    }
}
