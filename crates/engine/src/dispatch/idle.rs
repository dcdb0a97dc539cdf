//! How many cores have nothing to do, of those that the helpers may run on.
//!
//! Measured from `/proc/stat` over the last tenth of a second, by whoever asks when that time is over. What the helpers
//! themselves used counts as idle: without them it would have been. Other people's cores do not count, idle or not: a
//! container has a set of its own, and perhaps a quota ([`Quota`]).

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};
use rustix::time::{ClockId, clock_gettime};

use super::pool::THREADS_MAX;
use super::quota::Quota;
use super::ticks::CpuTicks;

/// Time over which idleness is measured.
const INTERVAL: Duration = Duration::from_millis(100);
/// A measurement may cost this part of the time between two.
const COST_SHARE: u32 = 500;
/// Idle time counts in units of so many milliseconds on every Linux (`USER_HZ`, 100 a second).
const TICK_MS: u64 = 10;
/// A core idle three quarters of the time is worth a helper.
const ENOUGH: f64 = 0.25;

/// Watches the cores.
pub(super) struct Idle {
    began: Instant,
    /// When the next measurement is due, in nanoseconds since `began`.
    due: AtomicU64,
    cores: AtomicUsize,
    gauge: Mutex<Gauge>,
    /// Processor time that each helper has used, in nanoseconds. Not the time that it was awake: helpers that wait for
    /// a core would take that for an idle one, and go on.
    helped: [AtomicU64; THREADS_MAX],
    /// The thread whose cores count: a helper. 0 is whoever asks.
    whose: AtomicI32,
}

/// Source of the measurements, and the last one.
struct Gauge {
    stat: Option<File>,
    /// Room for the lines of all cores.
    text: Vec<u8>,
    quota: Quota,
    last: IdleSample,
}

#[derive(Clone, Copy)]
struct IdleSample {
    at: Instant,
    /// Those that count.
    cores: CpuSet,
    /// Of all of them together.
    idle: Duration,
    helped: u64,
    /// Processor time of this process.
    used: Duration,
    /// Cores' worth of time that this process may use.
    quota: f64,
}

impl Idle {
    pub fn new() -> Self {
        let stat = File::open("/proc/stat").ok();
        let now = Instant::now();
        // The numbers grow, so twice the room.
        let lines = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let text = vec![0; 2 * lines.find("intr").unwrap_or(lines.len()) + 256];
        let last = IdleSample {
            at: now,
            cores: CpuSet::new(),
            idle: Duration::ZERO,
            helped: 0,
            used: Duration::ZERO,
            quota: f64::INFINITY,
        };
        let mut gauge = Gauge { stat, text, quota: Quota::find(), last };
        if let Some(first) = gauge.measure(None, 0) {
            gauge.last = first;
        }
        Self {
            began: now,
            due: AtomicU64::new(nanos(INTERVAL)),
            cores: AtomicUsize::new(0),
            gauge: Mutex::new(gauge),
            helped: [const { AtomicU64::new(0) }; THREADS_MAX],
            whose: AtomicI32::new(0),
        }
    }

    /// So many idle cores, always.
    pub fn always(cores: usize) -> Self {
        let idle = Self::new();
        idle.due.store(u64::MAX, Ordering::Relaxed);
        idle.cores.store(cores, Ordering::Relaxed);
        idle
    }

    /// Says that the calling thread is a helper: the cores it may run on are those that count.
    pub fn count_mine(&self) {
        let this = rustix::thread::gettid().as_raw_nonzero().get();
        self.whose.store(this, Ordering::Relaxed);
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
        let Ok(mut gauge) = self.gauge.try_lock() else {
            return;
        };
        let now = Instant::now();
        let whose = Pid::from_raw(self.whose.load(Ordering::Relaxed));
        let helped = self.helped.iter().map(|it| it.load(Ordering::Relaxed)).sum();
        let cores = match gauge.measure(whose, helped) {
            Some(next) => {
                let last = std::mem::replace(&mut gauge.last, next);
                spare(&last, &next)
            }
            None => 0,
        };
        self.cores.store(cores, Ordering::Relaxed);
        // On a machine with very many cores the file is long, and made anew for each reader.
        let pause = INTERVAL.max(now.elapsed() * COST_SHARE);
        self.due.store(elapsed + nanos(pause), Ordering::Relaxed);
    }

    /// Notes what the calling thread has used, the helper of this number.
    pub fn note_help(&self, helper: usize) {
        let used = clock_gettime(ClockId::ThreadCPUTime);
        let used = Duration::try_from(used).unwrap_or_default();
        if let Some(helped) = self.helped.get(helper) {
            helped.store(nanos(used), Ordering::Relaxed);
        }
    }
}

impl Gauge {
    /// Takes a sample of now, for the cores that a thread may run on. They are asked for each time: whoever runs a
    /// container may change them while it runs.
    fn measure(&mut self, whose: Option<Pid>, helped: u64) -> Option<IdleSample> {
        let cores = sched_getaffinity(whose).ok()?;
        let at = Instant::now();
        let len = self.stat.as_ref()?.read_at(&mut self.text, 0).ok()?;
        // The buffer may end in the middle of what follows the cores.
        let idle = self.text[..len].utf8_chunks().next().and_then(|chunk| idle_time(chunk.valid(), &cores))?;
        let used = clock_gettime(ClockId::ProcessCPUTime);
        Some(IdleSample {
            at,
            cores,
            idle,
            helped,
            used: Duration::try_from(used).unwrap_or_default(),
            quota: self.quota.cores(),
        })
    }
}

/// The cores to spare: those that are idle, but no more than the quota leaves.
fn spare(last: &IdleSample, next: &IdleSample) -> usize {
    let elapsed = next.at.duration_since(last.at).as_secs_f64();
    // Times of other cores can not be compared.
    if elapsed <= 0.0 || last.cores != next.cores {
        return 0;
    }
    let idle = next.idle.saturating_sub(last.idle).as_secs_f64();
    let used = next.used.saturating_sub(last.used).as_secs_f64();
    let helped = Duration::from_nanos(next.helped.saturating_sub(last.helped)).as_secs_f64();
    let left = next.quota * elapsed - used;
    let cores = ((idle.min(left) + helped) / elapsed + ENOUGH).floor();
    (0..=THREADS_MAX).rev().find(|&count| count as f64 <= cores).unwrap_or(0)
}

/// The time that `cores` together have been idle, or waited for a disk, since the machine started. The
/// first line is about all of the machine.
///
/// lxcfs shows a container its own cores alone, and numbers them from 0: where there are as many lines
/// as cores and they do not match, they all count.
fn idle_time(text: &str, cores: &CpuSet) -> Option<Duration> {
    let (mut ours, mut all) = ((0, 0), (0, 0));
    for line in text.lines() {
        if !line.starts_with("cpu") {
            break;
        }
        let ticks = CpuTicks::parse(line)?;
        let Some(core) = ticks.core else {
            continue;
        };
        let count = |sum: &mut (u64, u32)| *sum = (sum.0.saturating_add(ticks.idle), sum.1 + 1);
        count(&mut all);
        if core < CpuSet::MAX_CPU && cores.is_set(core) {
            count(&mut ours);
        }
    }
    let (ticks, lines) = if all.1 <= cores.count() { all } else { ours };
    (lines > 0).then(|| Duration::from_millis(ticks.saturating_mul(TICK_MS)))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "cpu  4 4 4 9000 80 0 0 0 0 0
cpu0 1 1 1 1000 10 0 0 0 0 0
cpu1 1 1 1 2000 20 0 0 0 0 0
cpu2 1 1 1 3000 30 0 0 0 0 0
cpu3 1 1 1 3000 20 0 0 0 0 0
intr 7 0 0
cpu4 1 1 1 5000 5000
";

    fn set(cores: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        cores.iter().for_each(|&core| set.set(core));
        set
    }

    #[test]
    fn only_the_cores_we_may_run_on_count_as_idle() {
        let time = |cores: &[usize]| idle_time(TEXT, &set(cores));
        assert_eq!(time(&[1]), Some(Duration::from_millis(20_200)));
        assert_eq!(time(&[0, 2]), Some(Duration::from_millis(40_400)));
        assert_eq!(time(&[0, 1, 2, 3]), Some(Duration::from_millis(90_800)));
        // A core without a line is not there.
        assert_eq!(time(&[1, 900]), Some(Duration::from_millis(20_200)));
        assert_eq!(time(&[900]), None);
    }

    #[test]
    fn container_that_sees_its_own_cores_from_zero_counts_them_all() {
        let own = set(&[64, 65, 66, 67]);
        assert_eq!(idle_time(TEXT, &own), Some(Duration::from_millis(90_800)));
    }

    #[test]
    fn file_of_another_shape_says_nothing() {
        let own = set(&[0]);
        assert_eq!(idle_time("intr 7", &own), None);
        assert_eq!(idle_time("cpu  1 2 3 4 5", &own), None);
        assert_eq!(idle_time("cpu0 1 2", &own), None);
        assert_eq!(idle_time("cpu0 1 2 3 x 5", &own), None);
        assert_eq!(idle_time("", &own), None);
    }

    #[test]
    fn this_machine_can_be_measured() {
        let idle = Idle::new();
        idle.count_mine();
        let whose = Pid::from_raw(idle.whose.load(Ordering::Relaxed));
        let mut gauge = idle.gauge.lock().unwrap();
        let (first, then) = (gauge.last, gauge.measure(whose, 0).unwrap());
        assert!(first.idle <= then.idle && first.used <= then.used);
        assert!(then.quota > 0.0);
    }

    #[test]
    fn helper_that_waits_has_used_no_core() {
        let idle = Idle::new();
        let used = || idle.helped[3].load(Ordering::Relaxed);
        idle.note_help(3);
        let before = used();
        std::thread::sleep(Duration::from_millis(100));
        idle.note_help(3);
        assert!(used() - before < nanos(Duration::from_millis(50)));
        let began = clock_gettime(ClockId::ThreadCPUTime).tv_nsec;
        while clock_gettime(ClockId::ThreadCPUTime).tv_nsec == began {}
        idle.note_help(3);
        assert!(used() > before);
        idle.note_help(THREADS_MAX);
    }

    fn sample(ms: u64, idle_ms: u64, helped_ms: u64, used_ms: u64) -> IdleSample {
        static BEGAN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        IdleSample {
            at: *BEGAN.get_or_init(Instant::now) + Duration::from_millis(ms),
            cores: set(&[0, 1]),
            idle: Duration::from_millis(idle_ms),
            helped: helped_ms * 1_000_000,
            used: Duration::from_millis(used_ms),
            quota: f64::INFINITY,
        }
    }

    #[test]
    fn what_the_helpers_used_is_idle_too() {
        let zero = sample(0, 0, 0, 0);
        assert_eq!(spare(&zero, &sample(100, 0, 0, 0)), 0);
        assert_eq!(spare(&zero, &sample(100, 100, 0, 0)), 1);
        assert_eq!(spare(&zero, &sample(100, 30, 70, 100)), 1);
        assert_eq!(spare(&zero, &sample(100, 60, 0, 0)), 0);
        assert_eq!(spare(&zero, &sample(100, 380, 0, 20)), 4);
        assert_eq!(spare(&zero, &zero), 0);
        let mut moved = sample(100, 200, 0, 0);
        moved.cores = set(&[1, 2]);
        assert_eq!(spare(&zero, &moved), 0);
    }

    #[test]
    fn idle_cores_beyond_the_quota_are_not_ours() {
        let zero = sample(0, 0, 0, 0);
        let under = |quota, next: IdleSample| spare(&zero, &IdleSample { quota, ..next });
        assert_eq!(under(2.0, sample(100, 800, 0, 100)), 1);
        assert_eq!(under(1.0, sample(100, 800, 0, 100)), 0);
        assert_eq!(under(0.5, sample(100, 800, 0, 40)), 0);
        // A helper's own time does not stand in its way.
        assert_eq!(under(2.0, sample(100, 800, 100, 200)), 1);
        assert_eq!(under(4.0, sample(100, 200, 0, 100)), 2);
    }
}
