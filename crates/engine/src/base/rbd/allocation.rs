//! Which parts of an image have objects.
//!
//! The library is asked for a range of many objects at a time. The answer is kept for questions about the rest of it:
//! until a change of ours has ended, and for [`FRESH`] at most, since of an image that is only read others may be the
//! writer. An object that is not there reads as zeros; one that is may have any bytes.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use super::RbdShared;
use crate::Extent;

/// How long an answer is good.
const FRESH: Duration = Duration::from_secs(1);
/// Objects that are asked for at a time: where a map tells of them, and where each must be asked itself.
const OBJECTS_MAPPED: u64 = 64 * 1024;
const OBJECTS_ASKED: u64 = 64;
/// Runs of one answer.
const RUNS_MAX: usize = 16 * 1024;

pub(super) struct Allocation {
    /// Where questions begin: at multiples of this. From inside an object, some versions of the library answer for
    /// bytes further on, which would make holes of data.
    period: u64,
    /// Bytes that are asked for at a time; 0 where the library cannot be believed.
    window: u64,
    known: Mutex<Option<KnownExtents>>,
    /// A change of ours has ended since the last question.
    changed: AtomicBool,
}

/// Worth of the library's answers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Answers {
    /// They come from a map of all objects.
    Mapped,
    /// Each object is asked.
    Asked,
    /// They may be without some data, so nobody asks.
    Incomplete,
}

/// One answer.
struct KnownExtents {
    range: Range<u64>,
    /// Where objects are, in order.
    data: Vec<Range<u64>>,
    since: Instant,
}

impl Allocation {
    /// With bytes in an object, and in a round over the objects that a stripe lies on.
    pub fn new(object: u64, period: u64, answers: Answers) -> Self {
        let objects = match answers {
            Answers::Mapped => OBJECTS_MAPPED,
            Answers::Asked => OBJECTS_ASKED,
            Answers::Incomplete => 0,
        };
        Self {
            period: period.max(1),
            window: object.max(4096).saturating_mul(objects),
            known: Mutex::default(),
            changed: AtomicBool::new(true),
        }
    }

    /// Notes that a change has ended. Nobody may be told of its end before.
    pub fn note_change(&self) {
        // A load costs the other queues nothing.
        if !self.changed.load(Ordering::SeqCst) {
            self.changed.store(true, Ordering::SeqCst);
        }
    }

    /// Range to ask for to learn of `offset`, in an image of `size` bytes.
    fn question(&self, offset: u64, size: u64) -> Option<Range<u64>> {
        let start = offset - offset % self.period;
        let end = start.saturating_add(self.window).min(size);
        (start..end).contains(&offset).then_some(start..end)
    }

    fn is_fresh(&self, known: &KnownExtents) -> bool {
        !self.changed.load(Ordering::SeqCst) && known.since.elapsed() < FRESH
    }
}

impl KnownExtents {
    /// The run that `offset` lies in, which is in the range.
    fn find(&self, offset: u64, len: u64) -> Extent {
        let next = self.data.partition_point(|run| run.end <= offset);
        let next = self.data.get(next);
        let is_data = next.is_some_and(|run| run.start <= offset);
        let end = match next {
            Some(run) if is_data => run.end,
            Some(run) => run.start,
            None => self.range.end,
        };
        Extent { len: (end.min(self.range.end) - offset).min(len), hole: !is_data, zero: !is_data }
    }
}

impl RbdShared {
    /// The state of the bytes from `offset` on.
    pub(super) fn extent(&self, offset: u64, len: u64) -> Extent {
        let data = Extent { len, hole: false, zero: false };
        if self.watched.is_lost() || self.is_gone() {
            return data;
        }
        let allocation = &self.allocation;
        // Where another lane asks, which can take as long as the cluster likes, this one need not wait, too.
        let Some(mut known) = try_lock(&allocation.known) else {
            return data;
        };
        let fresh = known.as_ref().filter(|known| allocation.is_fresh(known) && known.range.contains(&offset));
        if let Some(fresh) = fresh {
            return fresh.find(offset, len);
        }
        *known = None;
        // Before the question: a change that ends after this makes the answer good for this question alone.
        allocation.changed.store(false, Ordering::SeqCst);
        let since = Instant::now();
        let Some((range, data_runs)) = self.ask(offset) else {
            return data;
        };
        // Once it is removed, all of it is holes.
        if (self.presence.as_ref()).is_some_and(|presence| !presence.is_there()) {
            return data;
        }
        let answer = known.insert(KnownExtents { range, data: data_runs, since });
        answer.find(offset, len)
    }

    /// Runs of data around `offset`, and the range that they are all of.
    fn ask(&self, offset: u64) -> Option<(Range<u64>, Vec<Range<u64>>)> {
        let size = self.watched.size.load(Ordering::Acquire);
        let asked = self.allocation.question(offset, size)?;
        let mut runs = Vec::with_capacity(RUNS_MAX);
        let len = asked.end - asked.start;
        let is_all = self.watched.image.data(asked.start, len, &mut runs).ok()?;
        let end = match runs.last() {
            // The next run is not among them.
            Some(last) if !is_all => last.end,
            _ => asked.end,
        };
        let range = asked.start..end.min(asked.end);
        // By our own rules, whatever the library says: in order, and apart.
        let is_sound =
            runs.windows(2).all(|two| two[0].end < two[1].start) && runs.iter().all(|run| run.start < run.end);
        (is_sound && range.contains(&offset)).then_some((range, runs))
    }
}

/// `None` where somebody else has it.
fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_begin_with_a_stripe_and_hold_what_is_asked_for() {
        const MIB: u64 = 1 << 20;
        let mapped = Allocation::new(4 * MIB, 12 * MIB, Answers::Mapped);
        assert_eq!(mapped.question(25 * MIB, 64 * MIB), Some(24 * MIB..64 * MIB));
        assert_eq!(mapped.question(11 * MIB, 64 * MIB), Some(0..64 * MIB));
        let asked = Allocation::new(4096, 4096, Answers::Asked);
        let end = 4096 + 64 * 4096;
        assert_eq!(asked.question(5000, 64 * MIB), Some(4096..end));
        assert_eq!(asked.question(64 * MIB, 64 * MIB), None);
        assert_eq!((Allocation::new(4 * MIB, 4 * MIB, Answers::Incomplete)).question(0, 64 * MIB), None);
    }

    #[test]
    fn runs_are_found_between_holes() {
        let known = KnownExtents { range: 100..1000, data: vec![80..200, 300..400, 900..1100], since: Instant::now() };
        for (offset, len, expected, hole) in [
            (100, 1000, 100, false),
            (150, 10, 10, false),
            (200, 1000, 100, true),
            (300, 1000, 100, false),
            (400, 1000, 500, true),
            (400, 7, 7, true),
            (950, 1000, 50, false),
        ] {
            let found = known.find(offset, len);
            assert_eq!((found.len, found.hole, found.zero), (expected, hole, hole));
        }
    }
}
