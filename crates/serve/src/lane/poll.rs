//! Lookout of lanes for what comes next before they wait: whether, for how long, and how many at a time.
//!
//! ```text
//! Readings::take ─► Poll::choose ─► Lane::looking_out
//! ```

use std::fmt;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use cryptline_engine::BackendChoice;
use cryptline_engine::dispatch::usable_cores;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A client that was woken by an answer has this long to think of its next request.
const THINKING: Duration = Duration::from_micros(10);
/// Looks are no shorter and no longer than this.
const LIMITS: [Duration; 2] = [Duration::from_micros(20), Duration::from_micros(200)];
/// Looks where nobody knows what a wake-up costs, but trials can tell whether they pay off.
const UNMEASURED: Duration = Duration::from_micros(100);
/// Round trips over which a wake-up is measured, and how long that may take on a machine that does not answer.
const ROUND_TRIPS: usize = 16;
const MEASURE_MAX: Duration = Duration::from_millis(10);

/// Policy of lanes on looking out before they wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// Never, and why.
    Never(Why),
    /// For this long before each wait.
    Always(Duration),
    /// The same, while it makes a lane's requests faster and the machine is not busy.
    Measured {
        /// How long a look is.
        limit: Duration,
        /// Time to wake a thread here, where that could be measured.
        wake_up: Option<Duration>,
        /// Lanes of this process that look at a time, at most. It leaves a processor to those whom they look out for.
        lanes: usize,
    },
}

/// Why lanes do not look out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// On request.
    Asked,
    /// Whoever looks takes the only processor from those it looks out for.
    OneProcessor,
    /// Would shorten the time that a battery lasts.
    Battery,
    /// Each look is a system call.
    NoRing,
}

/// Facts about a machine that must be known before lanes may look out.
#[derive(Clone, Copy, Debug)]
pub struct Readings {
    /// Processors that this process may keep busy at a time.
    pub processors: f64,
    /// Set if it has been given one of several, and those whom it serves may be on the others.
    pub is_pinned: bool,
    /// The machine runs on a battery.
    pub on_battery: bool,
    /// Time to wake a thread on another processor.
    pub wake_up: Option<Duration>,
}

impl Poll {
    /// Returns what suits this machine. Takes some milliseconds.
    #[must_use]
    pub fn auto() -> Self {
        Self::choose(&Readings::take())
    }

    /// Returns what suits a machine of which this is known.
    #[must_use]
    pub fn choose(readings: &Readings) -> Self {
        if readings.processors < 2.0 && !readings.is_pinned {
            return Self::Never(Why::OneProcessor);
        }
        if readings.on_battery {
            return Self::Never(Why::Battery);
        }
        let limit = match readings.wake_up {
            // A client that was asleep as well is woken first, and thinks; as much again, since neither takes always the same.
            Some(wake_up) => wake_up.saturating_mul(2) + THINKING,
            // It takes two processors to measure it, and a machine that is not too busy just now.
            None => UNMEASURED,
        };
        Self::Measured {
            limit: limit.clamp(LIMITS[0], LIMITS[1]),
            wake_up: readings.wake_up,
            lanes: places(readings.processors).max(1),
        }
    }

    /// Returns what comes of it where I/O is done by `backend`.
    #[must_use]
    pub fn by(self, backend: BackendChoice) -> Self {
        match (self, backend) {
            (Self::Never(why), _) => Self::Never(why),
            (_, BackendChoice::Syscalls) => Self::Never(Why::NoRing),
            (poll, _) => poll,
        }
    }
}

impl Default for Poll {
    fn default() -> Self {
        Self::Never(Why::Asked)
    }
}

impl fmt::Display for Poll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never(Why::Asked) => write!(f, "never"),
            Self::Never(why) => write!(f, "never ({why})"),
            Self::Always(limit) => write!(f, "{} µs", limit.as_micros()),
            Self::Measured { limit, wake_up, .. } => {
                write!(f, "up to {} µs when it reduces latency", limit.as_micros())?;
                match wake_up {
                    Some(time) => write!(f, " (waking a thread takes {} µs)", time.as_micros()),
                    None => Ok(()),
                }
            }
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked => "as asked for",
            Self::OneProcessor => "one processor",
            Self::Battery => "on battery",
            Self::NoRing => "it needs io_uring",
        })
    }
}

impl Readings {
    /// Those of this machine. What it takes to wake a thread is measured only where it can matter.
    #[must_use]
    pub fn take() -> Self {
        super::busy::open();
        let processors = usable_cores();
        let affinity = sched_getaffinity(None).map_or(1, |set| set.count());
        Self {
            processors,
            is_pinned: processors >= 1.0 && affinity == 1 && has_several_processors(),
            on_battery: is_on_battery(Path::new("/sys/class/power_supply")),
            wake_up: (processors >= 2.0).then(wake_up).flatten(),
        }
    }
}

/// Tells if the machine has more than one: `0` is one, `0-3` and `0,2` are several.
fn has_several_processors() -> bool {
    let online = fs::read_to_string("/sys/devices/system/cpu/online");
    online.is_ok_and(|list| list.contains(['-', ',']))
}

/// Tells if a battery of the machine is being used up.
fn is_on_battery(supplies: &Path) -> bool {
    let supplies = fs::read_dir(supplies).into_iter().flatten().flatten();
    supplies.into_iter().any(|supply| {
        let says = |name: &str, word: &str| {
            let text = fs::read_to_string(supply.path().join(name)).unwrap_or_default();
            text.trim_end() == word
        };
        // Batteries of a mouse or a pen are not the machine's.
        says("type", "Battery") && says("status", "Discharging") && !says("scope", "Device")
    })
}

/// For how many lanes there is a processor, if one is left to others.
fn places(processors: f64) -> usize {
    let has_own = |lane: &u16| f64::from(*lane) + 1.0 <= processors;
    (1..u16::MAX).take_while(has_own).count()
}

/// Half of what a byte takes to another processor and back, between two threads that sleep.
fn wake_up() -> Option<Duration> {
    let allowed = sched_getaffinity(None).ok()?;
    let mut processors = (0..CpuSet::MAX_CPU).filter(|&processor| allowed.is_set(processor));
    let (here, there) = (processors.next()?, processors.next()?);
    let (mut ours, mut theirs) = UnixStream::pair().ok()?;
    // Without it, a machine that gives one of them no time would keep us.
    ours.set_read_timeout(Some(MEASURE_MAX)).ok()?;
    thread::scope(|scope| {
        let echo = move || {
            let mut byte = [0];
            pin(there)?;
            while matches!(theirs.read(&mut byte), Ok(1)) {
                theirs.write_all(&byte).ok()?;
            }
            Some(())
        };
        let ask = move || {
            pin(here)?;
            let began = Instant::now();
            let mut trips = Vec::with_capacity(ROUND_TRIPS);
            while trips.len() < ROUND_TRIPS && began.elapsed() < MEASURE_MAX {
                let start = Instant::now();
                let mut byte = [0];
                ours.write_all(&byte).ok()?;
                ours.read_exact(&mut byte).ok()?;
                trips.push(start.elapsed());
            }
            trips.sort_unstable();
            // Half of what was wanted is enough to know it.
            let is_enough = trips.len() >= ROUND_TRIPS / 2;
            is_enough.then(|| trips[trips.len() / 2] / 2)
        };
        let builder = || thread::Builder::new().stack_size(64 * 1024);
        builder().spawn_scoped(scope, echo).ok()?;
        builder().spawn_scoped(scope, ask).ok()?.join().ok()?
    })
}

/// Keeps the calling thread on one processor.
fn pin(processor: usize) -> Option<()> {
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set).ok()
}

#[cfg(test)]
#[path = "poll_tests.rs"]
mod tests;
