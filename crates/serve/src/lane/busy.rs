//! Demand of others for the processors: how much of the time some thread has waited for one (`/proc/pressure/cpu`), or,
//! where the kernel does not tell, the load average.
//!
//! The load average of a minute ago says little of now: it kept lanes of an idle machine from looking out, and let them
//! look out on one that had just become busy.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::sys::sysinfo::sysinfo;

/// With threads waiting for so much of the time, in percent, the machine is busy.
const SHARE: u128 = 25;
/// Over less time, a single long wait decides.
const LEAST: Duration = Duration::from_millis(5);

/// The file, opened before the sandbox closes.
static PRESSURE: OnceLock<Option<File>> = OnceLock::new();

/// View of it from one lane.
#[derive(Debug)]
pub(super) struct Busy {
    /// Processors that there are. A load average above that means a busy machine.
    processors: usize,
    since: Option<Stalls>,
}

/// How long threads have waited so far, by some moment.
#[derive(Clone, Copy, Debug)]
struct Stalls {
    at: Instant,
    total: Duration,
}

/// Opens what [`Busy`] reads. Later calls do nothing.
pub(super) fn open() -> bool {
    let opened = PRESSURE.get_or_init(|| {
        let file = File::open("/proc/pressure/cpu").ok()?;
        // It may be there and refuse to be read.
        total(&file).map(|_| file)
    });
    opened.is_some()
}

impl Busy {
    /// Begins to watch a machine of so many processors.
    pub fn new(processors: usize) -> Self {
        Self { processors, since: Stalls::now() }
    }

    /// Watches from now on; what has been does not count.
    pub fn watch(&mut self) {
        self.since = Stalls::now();
    }

    /// Tells if the machine has been busy since the last time this was asked, or since [`watch`](Self::watch). A system
    /// call, which the sandbox allows; where it fails, the load average decides.
    pub fn has_been(&mut self) -> bool {
        let Some((since, now)) = self.since.zip(Stalls::now()) else {
            return is_loaded(self.processors);
        };
        if now.at.saturating_duration_since(since.at) < LEAST {
            return false;
        }
        self.since = Some(now);
        now.is_busy_since(since)
    }

    /// Tells what is known without having watched: nothing, or the load average.
    pub fn at_first(&self) -> bool {
        self.since.is_none() && is_loaded(self.processors)
    }
}

impl Stalls {
    fn now() -> Option<Self> {
        open();
        let total = total(PRESSURE.get()?.as_ref()?)?;
        let at = Instant::now();
        Some(Self { at, total })
    }

    fn is_busy_since(self, earlier: Self) -> bool {
        let stalled = self.total.saturating_sub(earlier.total).as_nanos();
        let elapsed = self.at.saturating_duration_since(earlier.at).as_nanos();
        stalled * 100 > elapsed * SHARE
    }
}

/// More threads ran or wanted to than there are processors, on average over the last minute.
fn is_loaded(processors: usize) -> bool {
    sysinfo().map_or(true, |info| info.load_average().0 > processors as f64)
}

/// How long some thread has waited since the machine was started.
fn total(file: &File) -> Option<Duration> {
    let mut text = [0; 256];
    let len = file.read_at(&mut text, 0).ok()?;
    parse(std::str::from_utf8(&text[..len]).ok()?)
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=1234`, in microseconds.
fn parse(text: &str) -> Option<Duration> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = some.split(' ').find_map(|it| it.strip_prefix("total="))?;
    total.parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_is_that_of_threads_that_wait_for_a_processor() {
        let text = "some avg10=88.86 avg60=43.25 avg300=26.94 total=410831671\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(parse(text), Some(Duration::from_micros(410_831_671)));
        for other in ["", "full total=7\n", "some avg10=1.00\n", "some total=x\n"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn machine_is_busy_where_threads_wait_for_a_quarter_of_the_time() {
        let at = Instant::now();
        let total = Duration::from_secs(5);
        let before = Stalls { at, total };
        let after =
            |stalled| Stalls { at: at + Duration::from_millis(100), total: total + Duration::from_millis(stalled) };
        assert!(!after(0).is_busy_since(before));
        assert!(!after(25).is_busy_since(before));
        assert!(after(26).is_busy_since(before));
    }

    #[test]
    fn what_is_asked_again_at_once_goes_on_from_where_it_began() {
        let Some(now) = Stalls::now() else {
            return cryptline_testkit::peer::skip("the kernel tells no pressure");
        };
        let mut busy = Busy::new(1);
        // However slow this machine is, no time has passed since then.
        let later = now.at + Duration::from_secs(3600);
        busy.since = Some(Stalls { at: later, ..now });
        assert!(!busy.at_first() && !busy.has_been());
        assert_eq!(busy.since.map(|since| since.at), Some(later));
    }

    #[test]
    fn without_pressure_the_load_average_decides() {
        let mut busy = Busy { processors: 1 << 40, since: None };
        assert!(!busy.at_first() && !busy.has_been());
        busy.processors = 0;
        // No machine that runs this has had nothing to do for a minute, or else it is not loaded either.
        assert_eq!(busy.at_first(), is_loaded(0));
    }
}
