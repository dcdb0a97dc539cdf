//! Threads of a process that may fork.

use std::mem;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two looks whether a thread has ended.
const PAUSE: Duration = Duration::from_millis(1);

/// A thread of the process that has started it. A forked child has no other thread than its first, so there is nothing to
/// wait for in one.
pub(super) struct OwnThread {
    thread: JoinHandle<()>,
    process: u32,
}

impl OwnThread {
    pub fn new(thread: JoinHandle<()>) -> Self {
        Self { thread, process: std::process::id() }
    }

    pub fn unpark(&self) {
        self.thread.thread().unpark();
    }

    /// Waits for its end; not in another process, where its handle is let go untouched.
    pub fn join(self) {
        if self.process == std::process::id() {
            // A panic has been told by then.
            let _ = self.thread.join();
        } else {
            mem::forget(self.thread);
        }
    }

    /// Waits for its end, for as long as `limit`; then it is left to end by itself. Whether it has ended, or is none of this
    /// process.
    pub fn join_within(self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while self.process == std::process::id() && !self.thread.is_finished() {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
        self.join();
        true
    }
}
