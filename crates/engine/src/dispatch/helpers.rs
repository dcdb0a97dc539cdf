//! Helpers: threads that take pieces of large requests while cores are idle. For `auto`.
//!
//! One pool serves all queues of the process. A queue puts pieces into its shared slots, wakes
//! helpers and works on the pieces itself; whoever is first takes one. A helper that comes late finds
//! nothing, so waking one costs no more than the wake-up.
//!
//! Helpers sleep when there is nothing to do; for a moment after their last work they look out for
//! more, since an awake helper is worth having for much smaller requests than one that must be woken.
//! Both times are measured here when the pool starts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::idle::Idle;
use super::job::SharedSlots;
use super::pool::{PoolTask, THREADS_MAX, WorkerPool};
use crate::OpenError;

/// How long a helper looks out for more work.
const LOOKOUT: Duration = Duration::from_micros(60);
/// Hand-offs measured at the start, each way. Whoever starts a server waits for them.
const TRIALS: usize = 3;
/// No request is shared whose cipher takes less than this: the caches pay for moving it.
const LEAST: Duration = Duration::from_micros(6);

/// A pool of helpers. Cheap to clone; the threads end with the last clone.
#[derive(Clone)]
pub struct HelperThreads(Arc<HelpersInner>);

struct HelpersInner {
    pool: WorkerPool<CallReason>,
    work: Arc<HelperWork>,
    /// Cipher time from which a request is worth sharing with a helper that is awake.
    awake: Duration,
    /// The same for one that must be woken.
    asleep: Duration,
}

impl HelperThreads {
    /// Starts `count` threads (at most 64) and measures how long a hand-off to them takes: a
    /// millisecond. With 0, `auto` is `inline`.
    pub fn start(count: usize) -> Result<Self, OpenError> {
        Self::with(count, HelperWork::new(Idle::new()), measure)
    }

    /// Helpers that behave as if every core were idle and a hand-off cost nothing: so that a test
    /// sees requests shared on any machine, and as small as can be.
    pub fn always(count: usize) -> Result<Self, OpenError> {
        let idle = Idle::always(count);
        Self::with(count, HelperWork::new(idle), |_| (Duration::ZERO, Duration::ZERO))
    }

    /// Helpers that take nothing, though every core is idle.
    #[cfg(test)]
    pub(crate) fn deaf(count: usize) -> Self {
        let work = HelperWork { is_deaf: true, ..HelperWork::new(Idle::always(count)) };
        Self::with(count, work, |_| (Duration::ZERO, Duration::ZERO)).expect("threads")
    }

    fn with(
        count: usize,
        work: HelperWork,
        measure: impl Fn(&WorkerPool<CallReason>) -> (Duration, Duration),
    ) -> Result<Self, OpenError> {
        let work = Arc::new(work);
        let pool = WorkerPool::start("helper", count.min(THREADS_MAX), &work);
        let (pool, _) = pool.map_err(OpenError::Thread)?;
        let (awake, asleep) = measure(&pool);
        Ok(Self(Arc::new(HelpersInner { pool, work, awake, asleep })))
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.pool.size()
    }

    /// How many may be called now without taking a core from anybody.
    pub(crate) fn available(&self) -> usize {
        self.0.work.idle.cores().min(self.0.pool.size())
    }

    /// Lets the machine's idleness be measured again where that is due. Reads the clock.
    pub(crate) fn refresh(&self) {
        self.0.work.idle.refresh();
    }

    /// Tells if one is awake.
    pub(crate) fn is_awake(&self) -> bool {
        self.0.pool.is_awake()
    }

    /// Cipher time from which a request is worth sharing: with a helper that is awake, and with one
    /// that must be woken.
    pub(crate) fn thresholds(&self) -> (Duration, Duration) {
        (self.0.awake, self.0.asleep)
    }

    /// Wakes `count` helpers to work on what is in `slots`.
    pub(crate) fn call(&self, slots: &Arc<SharedSlots>, count: usize) {
        for _ in 0..count {
            if self.0.pool.hand_out(CallReason::SharedSlots(Arc::clone(slots))).is_err() {
                return;
            }
        }
    }
}

/// Reason for calling a helper.
enum CallReason {
    SharedSlots(Arc<SharedSlots>),
    /// Only to see how long it takes to come.
    Trial(Arc<AtomicU64>),
}

struct HelperWork {
    idle: Idle,
    #[cfg(test)]
    is_deaf: bool,
}

impl HelperWork {
    fn new(idle: Idle) -> Self {
        Self {
            idle,
            #[cfg(test)]
            is_deaf: false,
        }
    }
}

impl PoolTask<CallReason> for HelperWork {
    fn begin(&self, _thread: usize) -> std::io::Result<()> {
        self.idle.count_mine();
        Ok(())
    }

    fn run(&self, call: CallReason) {
        match call {
            #[cfg(test)]
            CallReason::SharedSlots(_) if self.is_deaf => {}
            CallReason::SharedSlots(slots) => work_on(&slots),
            CallReason::Trial(count) => _ = count.fetch_add(1, Ordering::Release),
        }
    }

    fn lookout(&self) -> Duration {
        LOOKOUT
    }

    fn has_worked(&self, thread: usize) {
        self.idle.note_help(thread);
    }
}

/// Does the jobs in `slots`, and those that come while their queue still adds some.
fn work_on(slots: &SharedSlots) {
    let mut waits_since = None;
    loop {
        if let Some(mut job) = slots.take() {
            job.run();
            slots.give_back(job);
            waits_since = None;
        } else if slots.more_comes() && waits_since.get_or_insert_with(Instant::now).elapsed() < LOOKOUT {
            std::hint::spin_loop();
        } else {
            return;
        }
    }
}

/// The two thresholds: what a hand-off costs, doubled, since half of the work is all it can save.
fn measure(pool: &WorkerPool<CallReason>) -> (Duration, Duration) {
    if pool.size() == 0 {
        return (Duration::MAX, Duration::MAX);
    }
    let count = Arc::new(AtomicU64::new(0));
    let trial = || {
        let (before, start) = (count.load(Ordering::Acquire), Instant::now());
        if pool.hand_out(CallReason::Trial(Arc::clone(&count))).is_err() {
            return Duration::MAX;
        }
        let called = start.elapsed();
        while count.load(Ordering::Acquire) == before {
            std::hint::spin_loop();
        }
        called + start.elapsed()
    };
    let mut asleep = [Duration::ZERO; TRIALS];
    for time in &mut asleep {
        std::thread::sleep(LOOKOUT + LOOKOUT / 4);
        *time = trial();
    }
    // The helper is awake now, and each trial keeps it so.
    let mut awake = [Duration::ZERO; TRIALS];
    awake.fill_with(trial);
    let [awake, asleep] = [awake, asleep].map(|mut times| {
        times.sort_unstable();
        times[TRIALS / 2].saturating_mul(2)
    });
    (awake.max(LEAST), asleep.max(LEAST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_measured_and_bounded_below() {
        let helpers = HelperThreads::start(1).unwrap();
        let (awake, asleep) = helpers.thresholds();
        assert!(awake >= LEAST && asleep >= LEAST);
        assert_eq!(helpers.count(), 1);
    }

    #[test]
    fn without_threads_nothing_is_ever_worth_sharing() {
        let helpers = HelperThreads::start(0).unwrap();
        assert_eq!(helpers.available(), 0);
        assert_eq!(helpers.thresholds(), (Duration::MAX, Duration::MAX));
    }
}
