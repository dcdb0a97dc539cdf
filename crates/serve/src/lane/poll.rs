//! Policy of lanes on looking out for what comes next before they wait: whether, for how long, and how many at a time.

use std::fmt;
use std::fs;
use std::time::Duration;

use cryptline_engine::BackendChoice;
use cryptline_engine::dispatch::usable_cores;
use rustix::thread::sched_getaffinity;

/// A look: about what it takes to wake a client that was asleep, and for that to think of its next request.
const LOOK: Duration = Duration::from_micros(64);

/// Policy of lanes on looking out before they wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// Never, and why.
    Never(Why),
    /// For this long.
    Always(Duration),
    /// The same, by so many lanes of this process at a time.
    Shared {
        /// How long a look is.
        limit: Duration,
        /// Leaves a processor to those whom the lanes look out for.
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
    /// Each look is a system call.
    NoRing,
}

impl Poll {
    /// Returns what suits this machine.
    #[must_use]
    pub fn auto() -> Self {
        let processors = usable_cores();
        let is_alone = sched_getaffinity(None).is_ok_and(|set| set.count() == 1);
        Self::choose(processors, processors >= 1.0 && is_alone && has_several_processors())
    }

    /// Returns what suits a process that may keep so many processors busy. `is_pinned` where it has been given one of
    /// several, and those whom it serves may be on the others.
    #[must_use]
    pub fn choose(processors: f64, is_pinned: bool) -> Self {
        if processors < 2.0 && !is_pinned {
            return Self::Never(Why::OneProcessor);
        }
        Self::Shared { limit: LOOK, lanes: seats(processors).max(1) }
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
            Self::Shared { limit, lanes: 1 } => write!(f, "{} µs, one thread at a time", limit.as_micros()),
            Self::Shared { limit, lanes } => write!(f, "{} µs, {lanes} threads at a time", limit.as_micros()),
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked => "as asked for",
            Self::OneProcessor => "one processor",
            Self::NoRing => "it needs io_uring",
        })
    }
}

/// Tells if the machine has more than one: `0` is one, `0-3` and `0,2` are several.
fn has_several_processors() -> bool {
    let online = fs::read_to_string("/sys/devices/system/cpu/online");
    online.is_ok_and(|list| list.contains(['-', ',']))
}

/// For how many lanes there is a processor, if one is left to others.
fn seats(processors: f64) -> usize {
    let has_own = |lane: &u16| f64::from(*lane) + 1.0 <= processors;
    (1..u16::MAX).take_while(has_own).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARED: Poll = Poll::Shared { limit: LOOK, lanes: 1 };

    #[test]
    fn lanes_leave_a_processor_to_others_and_with_one_processor_none_looks() {
        for (processors, is_pinned, expected) in [
            (0.5, false, Poll::Never(Why::OneProcessor)),
            (1.0, false, Poll::Never(Why::OneProcessor)),
            (1.9, false, Poll::Never(Why::OneProcessor)),
            (1.0, true, SHARED),
            (2.0, false, SHARED),
            (2.9, false, SHARED),
            (3.0, false, Poll::Shared { limit: LOOK, lanes: 2 }),
            (16.0, false, Poll::Shared { limit: LOOK, lanes: 15 }),
        ] {
            assert_eq!(Poll::choose(processors, is_pinned), expected, "{processors}, {is_pinned}");
        }
    }

    #[test]
    fn nobody_looks_out_by_system_calls() {
        for poll in [Poll::Always(LOOK), SHARED] {
            assert_eq!(poll.by(BackendChoice::Syscalls), Poll::Never(Why::NoRing));
            assert_eq!(poll.by(BackendChoice::IoUring), poll);
        }
        assert_eq!(Poll::default().by(BackendChoice::Syscalls), Poll::default());
    }
}
