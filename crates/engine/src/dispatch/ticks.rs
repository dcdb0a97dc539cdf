//! Processor time, as `/proc/stat` has it.

/// A line about one processor or about all of them, in clock ticks (proc_stat(5)):
/// `cpuN user nice system idle iowait irq softirq steal ...`. What follows is part of `user` already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTicks {
    /// Which processor; none where the line is about all of them.
    pub core: Option<usize>,
    /// Idle, or waiting for a disk.
    pub idle: u64,
    /// Used, stolen, or idle.
    pub all: u64,
}

impl CpuTicks {
    /// None where the line is about something else, or not whole.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let (core, ticks) = line.strip_prefix("cpu")?.split_once(' ')?;
        let (mut idle, mut all, mut words) = (0u64, 0u64, 0);
        for word in ticks.split_whitespace().take(8) {
            let Ok(ticks) = word.parse::<u64>() else {
                break;
            };
            all = all.saturating_add(ticks);
            if matches!(words, 3 | 4) {
                idle = idle.saturating_add(ticks);
            }
            words += 1;
        }
        let core = core.parse().ok();
        (words > 4).then_some(Self { core, idle, all })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_time_does_not_count_twice_and_waiting_is_idle() {
        let all = CpuTicks::parse("cpu  100 0 50 800 40 0 5 5 100 0");
        let expected = |core, idle, all| Some(CpuTicks { core, idle, all });
        assert_eq!(all, expected(None, 840, 1000));
        assert_eq!(CpuTicks::parse("cpu7 1 2 3 4 5"), expected(Some(7), 9, 15));
    }

    #[test]
    fn what_is_no_such_line_says_nothing() {
        for line in ["", "intr 7 0", "cpu", "cpu0 1 2 3 4", "cpu0 1 2 3 x 5"] {
            assert_eq!(CpuTicks::parse(line), None, "{line}");
        }
    }
}
