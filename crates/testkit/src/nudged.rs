//! A process that is stopped and goes on again and again, as by job control or a debugger that attaches.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::peer::BackgroundProgram;

/// Between a stop and the next step.
const HALF: Duration = Duration::from_millis(5);

/// A process that is stopped and continued every ten milliseconds, for as long as this lives.
pub struct Nudged {
    is_over: Arc<AtomicBool>,
    stops: Arc<AtomicU32>,
    thread: Option<JoinHandle<()>>,
}

impl Nudged {
    /// Begins.
    ///
    /// # Panics
    /// Where there is no such process.
    #[must_use]
    pub fn new(process: &BackgroundProgram) -> Self {
        let pid = i32::try_from(process.id()).ok().and_then(Pid::from_raw).expect("a process");
        // Never another one that got its number.
        let process: OwnedFd = pidfd_open(pid, PidfdFlags::empty()).expect("it runs");
        let (is_over, stops) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
        let (over, counted) = (Arc::clone(&is_over), Arc::clone(&stops));
        let nudge = move || {
            while !over.load(Ordering::Relaxed) && pidfd_send_signal(&process, Signal::STOP).is_ok() {
                std::thread::sleep(HALF);
                let _ = pidfd_send_signal(&process, Signal::CONT);
                counted.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(HALF);
            }
        };
        Self { is_over, stops, thread: Some(std::thread::spawn(nudge)) }
    }

    /// How often it was stopped and went on.
    #[must_use]
    pub fn stops(&self) -> u32 {
        self.stops.load(Ordering::Relaxed)
    }
}

impl Drop for Nudged {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
