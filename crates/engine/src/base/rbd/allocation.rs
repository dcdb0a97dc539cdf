//! Which parts of an image have objects.
//!
//! The library is asked for a range of many objects at a time. The answer is kept for questions about the rest of it:
//! until a change of ours has ended, and for [`FRESH`] at most, since of an image that is only read others may be the
//! writer. An object that is not there reads as zeros; one that is may have any bytes.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::Shared;
use crate::Extent;

/// How long an answer is good.
const FRESH: Duration = Duration::from_secs(1);
/// Objects that are asked for at a time: where a map tells of them, and where each must be asked itself.
const OBJECTS_MAPPED: u64 = 64 * 1024;
const OBJECTS_ASKED: u64 = 64;
/// Runs of one answer.
const RUNS_MAX: usize = 16 * 1024;

pub(super) struct Allocation {
    /// Bytes that are asked for at a time.
    window: u64,
    known: Mutex<Option<Known>>,
    /// A change of ours has ended since the last question.
    changed: AtomicBool,
}

/// One answer.
struct Known {
    range: Range<u64>,
    /// Where objects are, in order.
    data: Vec<Range<u64>>,
    since: Instant,
}

impl Allocation {
    pub fn new(object: u64, is_mapped: bool) -> Self {
        let objects = if is_mapped {
            OBJECTS_MAPPED
        } else {
            OBJECTS_ASKED
        };
        Self {
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

    fn is_fresh(&self, known: &Known) -> bool {
        !self.changed.load(Ordering::SeqCst) && known.since.elapsed() < FRESH
    }
}

impl Known {
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
        Extent {
            len: (end.min(self.range.end) - offset).min(len),
            hole: !is_data,
            zero: !is_data,
        }
    }
}

impl Shared {
    /// The state of the bytes from `offset` on.
    pub(super) fn extent(&self, offset: u64, len: u64) -> Extent {
        let data = Extent {
            len,
            hole: false,
            zero: false,
        };
        if self.is_lost() {
            return data;
        }
        let allocation = &self.allocation;
        let mut known = cryptline_sys::lock(&allocation.known);
        let fresh = known
            .as_ref()
            .filter(|known| allocation.is_fresh(known) && known.range.contains(&offset));
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
        let answer = known.insert(Known {
            range,
            data: data_runs,
            since,
        });
        answer.find(offset, len)
    }

    /// Runs of data from `offset` on, and the range that they are all of.
    fn ask(&self, offset: u64) -> Option<(Range<u64>, Vec<Range<u64>>)> {
        let size = self.size.load(std::sync::atomic::Ordering::Acquire);
        let len = self.allocation.window.min(size.checked_sub(offset)?);
        let mut runs = Vec::with_capacity(RUNS_MAX);
        let is_all = self.image.data(offset, len, &mut runs).ok()?;
        let end = match runs.last() {
            // The next run is not among them.
            Some(last) if !is_all => last.end,
            _ => offset + len,
        };
        let range = offset..end.min(offset + len);
        // By our own rules, whatever the library says: in order, and apart.
        let is_sound = runs.windows(2).all(|two| two[0].end < two[1].start)
            && runs.iter().all(|run| run.start < run.end);
        (is_sound && range.contains(&offset)).then_some((range, runs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_between_holes() {
        let known = Known {
            range: 100..1000,
            data: vec![80..200, 300..400, 900..1100],
            since: Instant::now(),
        };
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
