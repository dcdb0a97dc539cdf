//! When a lane's thread was not waiting, for the statistics.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// How often the processor time is looked up.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(50);

pub(super) struct Clock {
    awake_since: Instant,
    /// Time awake before that.
    active: Duration,
    published: Instant,
}

impl Clock {
    pub fn start() -> Self {
        let now = Instant::now();
        Self { awake_since: now, active: Duration::ZERO, published: now }
    }

    pub fn fall_asleep(&mut self) {
        self.active += self.awake_since.elapsed();
    }

    pub fn wake_up(&mut self) {
        self.awake_since = Instant::now();
    }

    /// Tells if the last `true` is long enough ago.
    pub fn is_time_to_publish(&mut self) -> bool {
        let is_time = self.published.elapsed() >= PUBLISH_INTERVAL;
        if is_time {
            self.published = Instant::now();
        }
        is_time
    }

    /// Time awake, in nanoseconds.
    pub fn active_ns(&self) -> u64 {
        nanoseconds(self.active + self.awake_since.elapsed())
    }

    /// Processor time of this thread, in nanoseconds.
    pub fn processor_ns(&self) -> u64 {
        let used = clock_gettime(ClockId::ThreadCPUTime);
        nanoseconds(Duration::try_from(used).unwrap_or_default())
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
