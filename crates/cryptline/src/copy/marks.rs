//! How far a copy is without a gap, though its chunks end in any order.
//!
//! A worker says which is the first chunk that it may have in hand *before* it takes one from the counter. So whoever
//! reads the counter first and the workers' words then misses none.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::Thread;

use super::feed::{CHUNK, Feed};

/// Reports of all workers.
pub(super) struct WorkerMarks {
    /// By worker; everything for one that has nothing in hand.
    floors: Vec<AtomicU64>,
    count: AtomicUsize,
    /// Everything before this is durable.
    durable: AtomicU64,
    /// Is told when that has changed.
    caller: Thread,
}

impl WorkerMarks {
    pub fn new(workers: usize, from: u64) -> Self {
        Self {
            floors: (0..workers).map(|_| AtomicU64::new(u64::MAX)).collect(),
            count: AtomicUsize::new(0),
            durable: AtomicU64::new(from),
            caller: std::thread::current(),
        }
    }

    /// Everything before this is written: whole chunks.
    pub fn reached(&self, feed: &Feed<'_>) -> u64 {
        let Feed::Device { next, end, .. } = feed else {
            return 0;
        };
        let next = next.load(Ordering::Acquire).min(*end);
        let floors = self.floors.iter();
        let floor = floors.map(|floor| floor.load(Ordering::Acquire)).min();
        let reached = next.min(floor.unwrap_or(0));
        reached - reached % CHUNK as u64
    }

    /// Everything before `mark` is durable now.
    pub fn note(&self, mark: u64) {
        if self.durable.fetch_max(mark, Ordering::Relaxed) < mark {
            self.caller.unpark();
        }
    }

    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Relaxed)
    }
}

/// Chunks that one worker has in hand.
pub(super) struct HeldChunks<'a> {
    floor: &'a AtomicU64,
    offsets: Vec<u64>,
}

impl<'a> HeldChunks<'a> {
    /// Of one more worker, which never has more than so many requests in hand.
    pub fn new(marks: &'a WorkerMarks, most: usize) -> Self {
        let number = marks.count.fetch_add(1, Ordering::Relaxed);
        Self { floor: &marks.floors[number], offsets: Vec::with_capacity(most) }
    }

    /// A chunk will be taken from the counter.
    pub fn about_to_take(&self, feed: &Feed<'_>) {
        if let Feed::Device { next, .. } = feed {
            let next = next.load(Ordering::Acquire);
            self.floor.store(self.first().min(next), Ordering::Release);
        }
    }

    pub fn add(&mut self, offset: u64) {
        self.offsets.push(offset);
    }

    pub fn remove(&mut self, offset: u64) {
        if let Some(place) = self.offsets.iter().position(|&it| it == offset) {
            self.offsets.swap_remove(place);
        }
    }

    /// Nothing is about to be taken.
    pub fn publish(&self) {
        self.floor.store(self.first(), Ordering::Release);
    }

    fn first(&self) -> u64 {
        self.offsets.iter().copied().min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_never_goes_back_and_the_caller_is_told_of_a_new_one() {
        let marks = WorkerMarks::new(1, 5);
        assert_eq!(marks.durable(), 5, "from where it goes on");
        marks.note(8);
        // Returns since that was told; it would wait for good.
        std::thread::park();
        assert_eq!(marks.durable(), 8);
        marks.note(7);
        assert_eq!(marks.durable(), 8);
    }

    #[test]
    fn gap_in_what_is_written_holds_the_mark_back() {
        const CHUNKS: u64 = CHUNK as u64;
        let gate = cryptline_engine::base::RamDevice::new(16 * CHUNKS).unwrap();
        let gate = cryptline_engine::Gate::new(gate);
        let next = AtomicU64::new(0);
        let end = 16 * CHUNKS - 512;
        let feed = Feed::Device { gate: &gate, next, end };
        let Feed::Device { next, .. } = &feed else { unreachable!() };
        let marks = WorkerMarks::new(2, 0);
        let (mut one, two) = (HeldChunks::new(&marks, 4), HeldChunks::new(&marks, 4));
        one.about_to_take(&feed);
        next.fetch_add(CHUNKS, Ordering::AcqRel);
        one.add(70_000);
        two.about_to_take(&feed);
        next.fetch_add(CHUNKS, Ordering::AcqRel);
        assert_eq!(marks.reached(&feed), 0);
        one.about_to_take(&feed);
        next.fetch_add(CHUNKS, Ordering::AcqRel);
        one.add(2 * CHUNKS);
        one.publish();
        one.remove(70_000);
        one.publish();
        assert_eq!(marks.reached(&feed), CHUNKS, "the other's is not written");
        two.publish();
        assert_eq!(marks.reached(&feed), 2 * CHUNKS);
        one.remove(2 * CHUNKS);
        one.publish();
        assert_eq!(marks.reached(&feed), 3 * CHUNKS);
        next.store(99 * CHUNKS, Ordering::Release);
        assert_eq!(marks.reached(&feed), 15 * CHUNKS, "whole chunks only");
    }
}
