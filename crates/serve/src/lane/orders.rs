//! What a server wants of one lane.

use std::sync::atomic::{AtomicU8, Ordering};

/// Orders from another thread. The lane reads them between two chunks, so they are one word.
#[derive(Debug, Default)]
pub struct Orders(AtomicU8);

const STOP: u8 = 1;
const ABANDON: u8 = 2;

impl Orders {
    /// Take no more requests.
    pub fn stop(&self) {
        self.0.fetch_max(STOP, Ordering::Relaxed);
    }

    /// End now, whatever is unfinished.
    pub fn abandon(&self) {
        self.0.fetch_max(ABANDON, Ordering::Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= STOP
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= ABANDON
    }
}
