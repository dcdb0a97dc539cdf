//! A barrier between threads that costs nothing on the side that runs all the time.
//!
//! membarrier(2) makes every running thread of the process execute a full barrier, wherever it is; so
//! the other threads only need a compiler fence. Where the kernel lacks the call, both sides execute
//! barriers of their own.

use std::sync::atomic::{Ordering, compiler_fence, fence};

use rustix::thread::{MembarrierCommand, membarrier};

/// Agreement of both sides on who makes the barrier.
#[derive(Clone, Copy)]
pub struct Barrier {
    /// The clearer makes the writers pass one.
    by_clearer: bool,
}

impl Barrier {
    /// The cheapest that the kernel offers (membarrier: 4.14).
    pub fn new() -> Self {
        let by_clearer = !cfg!(miri)
            && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
            && membarrier(MembarrierCommand::PrivateExpedited).is_ok();
        Self { by_clearer }
    }

    /// As where the kernel offers none.
    #[cfg(test)]
    pub fn of_both() -> Self {
        Self { by_clearer: false }
    }

    /// Between what a writer has copied and its look at a mark.
    #[inline]
    pub fn of_writer(self) {
        if self.by_clearer { compiler_fence(Ordering::SeqCst) } else { fence(Ordering::SeqCst) }
    }

    /// Between a mark that is cleared and bytes that are dropped. `false` where the writers can not be
    /// made to pass one, as when a sandbox forbids what was allowed at first.
    pub fn of_clearer(self) -> bool {
        fence(Ordering::SeqCst);
        !self.by_clearer || membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    }
}
