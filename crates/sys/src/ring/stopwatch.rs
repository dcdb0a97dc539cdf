//! The time that ciphers take for the requests of one ring, for whoever has asked for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Sums of the time that ciphers have taken. One thread adds to them: the ring's.
#[derive(Debug, Default)]
pub struct Stopwatch {
    is_on: AtomicBool,
    total_ns: AtomicU64,
    elsewhere_ns: AtomicU64,
}

impl super::Ring {
    /// Measures the ciphers that work for requests of this ring.
    #[must_use]
    pub fn stopwatch(&self) -> &Arc<Stopwatch> {
        &self.stopwatch
    }
}

impl Stopwatch {
    /// Switches the measurement on or off. Off at first: reading the clock costs more than a short request's bookkeeping.
    pub fn switch(&self, on: bool) {
        self.is_on.store(on, Ordering::Relaxed);
    }

    /// Tells if time is measured.
    #[must_use]
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// The moment at which a cipher begins, where it is measured.
    #[must_use]
    #[inline]
    pub fn start(&self) -> Option<Instant> {
        self.is_on().then(Instant::now)
    }

    /// Adds the time since `start`.
    #[inline]
    pub fn stop(&self, started: Option<Instant>) {
        if let Some(started) = started {
            self.add(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
    }

    /// Adds to the whole time.
    pub fn add(&self, nanoseconds: u64) {
        add(&self.total_ns, nanoseconds);
    }

    /// Notes that so much of the whole time was another thread's.
    pub fn note_elsewhere(&self, nanoseconds: u64) {
        add(&self.elsewhere_ns, nanoseconds);
    }

    /// Nanoseconds in ciphers, on whichever thread.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.total_ns.load(Ordering::Relaxed)
    }

    /// The part of them that other threads have spent for this one.
    #[must_use]
    pub fn elsewhere_ns(&self) -> u64 {
        self.elsewhere_ns.load(Ordering::Relaxed)
    }
}

/// One writer, so a load and a store do; no locked instruction.
fn add(sum: &AtomicU64, nanoseconds: u64) {
    sum.store(sum.load(Ordering::Relaxed).saturating_add(nanoseconds), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_added_while_it_is_off() {
        let watch = Stopwatch::default();
        watch.stop(watch.start());
        assert_eq!((watch.is_on(), watch.total_ns()), (false, 0));
        watch.switch(true);
        let started = watch.start();
        assert!(started.is_some());
        watch.stop(started);
        watch.add(u64::MAX);
        watch.note_elsewhere(7);
        assert_eq!((watch.total_ns(), watch.elsewhere_ns()), (u64::MAX, 7));
        watch.switch(false);
        assert_eq!(watch.start(), None);
    }
}
