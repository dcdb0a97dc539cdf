//! Places for lanes that look out: fewer than there are processors, or they would take the time from those whom they
//! look out for, and in a control group with a quota from each other.
//!
//! A lane keeps its place while its looks find something, and gives it back before it sleeps and while it has enough to do
//! without looking.
//!
//! A server that was given one of several processors has one place: its clients may be on the others.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Lanes of this process that have a place.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// So many places.
#[derive(Clone, Copy, Debug)]
pub(super) struct PollSeats {
    taken: &'static AtomicUsize,
    count: usize,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct PollSeat(&'static AtomicUsize);

impl PollSeats {
    /// `count` places for all lanes of this process.
    pub fn of_process(count: usize) -> Self {
        Self::counted(&TAKEN, count)
    }

    /// `count` places, of which so many are `taken`.
    pub fn counted(taken: &'static AtomicUsize, count: usize) -> Self {
        Self { taken, count }
    }

    /// A place, if one is free.
    pub fn take(self) -> Option<PollSeat> {
        // It is a number and guards nothing.
        let one_more = |taken: usize| (taken < self.count).then_some(taken + 1);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let taken = self.taken.fetch_update(set, fetch, one_more);
        taken.ok().map(|_| PollSeat(self.taken))
    }
}

impl Drop for PollSeat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
