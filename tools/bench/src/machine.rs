//! Which machine it is, and how busy other programs keep it.

use std::fs;
use std::thread::{available_parallelism, sleep};
use std::time::Duration;

use cryptline_engine::dispatch::CpuTicks;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// How long [`Others::before`] is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Circumstances that the numbers depend on.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub memory: u64,
    pub kernel: String,
    pub backend: String,
    pub cryptline: String,
}

/// Share of processor time that other programs had, 0 to 1; `None` when it cannot be known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Others {
    pub before: Option<f64>,
    pub during: Option<f64>,
}

/// Adds up processor time while measurements run.
#[derive(Clone, Debug, Default)]
pub struct ProcessorWatch {
    others: f64,
    all: f64,
}

/// A moment in [`ProcessorWatch`]'s accounts. Seconds of processor time.
#[derive(Clone, Copy, Debug)]
pub struct MachineMoment {
    /// Used or stolen, by whomever.
    busy: f64,
    /// Used or not.
    all: f64,
    /// Used by this process and by the children that it has waited for.
    own: f64,
}

impl Machine {
    /// This one.
    pub fn here() -> Self {
        let build = if cfg!(debug_assertions) { "debug" } else { "release" };
        Self {
            cpu: cpu_model().unwrap_or_else(|| "unknown processor".into()),
            cores: cores(),
            memory: memory("MemTotal:").unwrap_or(0),
            kernel: kernel().unwrap_or_else(|| "?".into()),
            backend: crate::volume::aes_backend().to_owned(),
            cryptline: format!("{} ({build})", env!("CARGO_PKG_VERSION")),
        }
    }
}

impl Others {
    /// Looks for half a second, in which this program does nothing.
    pub fn look() -> Self {
        let mut watch = ProcessorWatch::default();
        let start = MachineMoment::now();
        sleep(LOOK);
        watch.add(start, MachineMoment::now());
        Self { before: watch.share(), during: None }
    }
}

impl ProcessorWatch {
    /// Counts what lies between two moments.
    pub fn add(&mut self, start: Option<MachineMoment>, end: Option<MachineMoment>) {
        if let (Some(start), Some(end)) = (start, end) {
            let busy = end.busy - start.busy;
            // The kernel counts in ticks: less than nothing now makes up for too much another time.
            self.others += busy - (end.own - start.own);
            self.all += end.all - start.all;
        }
    }

    /// Counts what another has counted.
    pub fn add_all(&mut self, other: &Self) {
        self.others += other.others;
        self.all += other.all;
    }

    /// The share of others in all that was counted.
    pub fn share(&self) -> Option<f64> {
        (self.all > 0.0).then(|| (self.others / self.all).clamp(0.0, 1.0))
    }
}

impl MachineMoment {
    /// Now; `None` where there is no `/proc/stat`.
    pub fn now() -> Option<Self> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let (busy, all) = processor_time(&stat)?;
        let own = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).ok()?;
        Some(Self { busy, all, own: (own + children_time()?).as_secs_f64() })
    }
}

/// Processor time of all programs that this one has started and that have ended.
pub fn children_time() -> Option<Duration> {
    let children = getrusage(UsageWho::RUSAGE_CHILDREN).ok()?;
    let used = (children.user_time() + children.system_time()).num_microseconds();
    Some(Duration::from_micros(u64::try_from(used).ok()?))
}

/// Processors this program may use.
pub fn cores() -> usize {
    available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Memory that can be had without swapping, in bytes.
pub fn available_memory() -> Option<u64> {
    memory("MemAvailable:")
}

/// This process's command line, as one would type it.
pub fn this_command() -> String {
    let words = std::env::args_os().enumerate().map(|(index, word)| {
        let word = word.to_string_lossy().into_owned();
        match index {
            // How the program was found is no part of what it did.
            0 => "cryptline-bench".to_owned(),
            _ => quoted(&word),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// A word as a shell wants it.
pub fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_=.,:/+@%".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Busy and all processor time in seconds, from the first line of `/proc/stat`.
fn processor_time(stat: &str) -> Option<(f64, f64)> {
    let CpuTicks { idle, all, .. } = CpuTicks::parse(stat.lines().next()?)?;
    let seconds = |ticks: u64| Duration::from_millis(ticks).as_secs_f64() * 1000.0;
    let per_second = seconds(clock_ticks_per_second().max(1));
    Some((seconds(all.saturating_sub(idle)) / per_second, seconds(all) / per_second))
}

fn cpu_model() -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    let model = line.split_once(':')?.1.trim();
    Some(crate::error::on_one_line(model))
}

fn kernel() -> Option<String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    Some(crate::error::on_one_line(release.trim()))
}

fn memory(name: &str) -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_not_busy_and_guest_time_does_not_count_twice() {
        let ticks = f64::from(u32::try_from(clock_ticks_per_second()).expect("small"));
        let stat = "cpu  100 0 50 800 40 0 5 5 100 0\ncpu0 1 2 3\n";
        let (busy, all) = processor_time(stat).expect("a line");
        assert!((busy - 160.0 / ticks).abs() < 1e-9, "{busy}");
        assert!((all - 1000.0 / ticks).abs() < 1e-9, "{all}");
        assert!(processor_time("intr 1 2").is_none());
        assert!(processor_time("cpu  1 2").is_none());
    }

    #[test]
    fn own_time_is_not_that_of_others() {
        let at = |busy, all, own| Some(MachineMoment { busy, all, own });
        let mut watch = ProcessorWatch::default();
        assert_eq!(watch.share(), None);
        watch.add(at(10.0, 100.0, 1.0), at(14.0, 108.0, 3.0));
        assert_eq!(watch.share(), Some(0.25));
        watch.add(None, at(0.0, 1.0, 0.0));
        assert_eq!(watch.share(), Some(0.25));
        let mut both = watch.clone();
        both.add_all(&watch);
        assert_eq!(both.share(), Some(0.25));
    }

    #[test]
    fn commands_can_be_pasted() {
        assert_eq!(quoted("--size=16M"), "--size=16M");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }
}
