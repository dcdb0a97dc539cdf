//! Orders of a server to one lane.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use cryptline_sys::Waker;

/// Orders from another thread. The lane reads them between two chunks, so they are one word.
#[derive(Default)]
pub struct Orders {
    what: AtomicU8,
    /// Ends a wait of the lane, once it is open.
    waker: OnceLock<Waker>,
}

const STOP: u8 = 1;
const ABANDON: u8 = 2;

impl Orders {
    /// Take no more requests. A lane that waits sees this when something happens, or when it is woken.
    pub fn stop(&self) {
        self.what.fetch_max(STOP, Ordering::Relaxed);
    }

    /// End now, whatever is unfinished. Nothing else may ever happen on the lane: its medium may never answer.
    pub fn abandon(&self) {
        self.what.fetch_max(ABANDON, Ordering::Relaxed);
        self.wake();
    }

    /// Has the lane look at its orders now.
    pub fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// The orders are those of a lane that `waker` wakes.
    pub(crate) fn are_heard_by(&self, waker: Waker) {
        // There is one lane for one set of orders.
        let _ = self.waker.set(waker);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.what.load(Ordering::Relaxed) >= STOP
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.what.load(Ordering::Relaxed) >= ABANDON
    }
}
