//! The threads that serve one device.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crate::lane::Orders;
use crate::net::StopHandle;

type EndedLane = Result<(), String>;

/// Threads with a lane each. When the last has ended, the device is of no use any more, and so it is stopped.
pub(crate) struct Crew {
    stop: StopHandle,
    members: Vec<CrewMember>,
    left: Arc<AtomicUsize>,
    ended: (mpsc::Sender<EndedLane>, mpsc::Receiver<EndedLane>),
}

/// Cuts a lane off from the device.
type LaneCut = Arc<dyn Fn() + Send + Sync>;

struct CrewMember {
    orders: Arc<Orders>,
    cut: LaneCut,
}

/// Counts a thread out, however it ends.
struct CountOut {
    left: Arc<AtomicUsize>,
    stop: StopHandle,
    cut: LaneCut,
}

impl Drop for CountOut {
    fn drop(&mut self) {
        // The device must see that nobody is there.
        (self.cut)();
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.stop.stop();
        }
    }
}

impl Crew {
    /// How long a thread may take to end once it is to leave its requests alone.
    const LAST: Duration = Duration::from_secs(1);
    /// How often is looked whether a thread that says nothing has been counted out.
    const LOOK: Duration = Duration::from_millis(5);

    /// Nobody so far.
    pub fn new(stop: StopHandle) -> Self {
        Self { stop, members: Vec::new(), left: Arc::default(), ended: mpsc::channel() }
    }

    /// Starts a thread. `cut` cuts it off from the device, so that neither waits for the other: when it is to abandon
    /// its work, and when it has ended.
    pub fn start(
        &mut self,
        name: String,
        cut: impl Fn() + Send + Sync + 'static,
        work: impl FnOnce(Arc<Orders>) -> EndedLane + Send + 'static,
    ) -> io::Result<()> {
        let orders: Arc<Orders> = Arc::default();
        let cut: LaneCut = Arc::new(cut);
        self.left.fetch_add(1, Ordering::AcqRel);
        let out = CountOut { left: Arc::clone(&self.left), stop: self.stop.clone(), cut: Arc::clone(&cut) };
        let (ended, theirs) = (self.ended.0.clone(), Arc::clone(&orders));
        let thread = move || {
            let _out = out;
            // What the volume's data leaves on the stack is wiped.
            let _stack = cryptline_sys::StackGuard::new();
            // Nobody listens any more where the device could not be made.
            let _ = ended.send(work(theirs));
        };
        std::thread::Builder::new().name(name).stack_size(cryptline_sys::GUARDED_STACK).spawn(thread)?;
        self.members.push(CrewMember { orders, cut });
        Ok(())
    }

    /// Waits for as long as `limit` until all have ended by themselves; whether they have.
    pub fn has_ended_within(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while self.left.load(Ordering::Acquire) > 0 {
            let patience = deadline.saturating_duration_since(Instant::now());
            if patience.is_zero() {
                return false;
            }
            // A thread says how it has ended just before it is counted out; one that has panicked says nothing.
            let _ = self.ended.1.recv_timeout(patience.min(Self::LOOK));
        }
        true
    }

    /// Has each of them look at what it is to do.
    pub fn wake(&self) {
        for member in &self.members {
            member.orders.wake();
        }
    }

    /// Has what is unfinished end at its next chunk, or where it waits.
    pub fn abandon(&self) {
        for member in &self.members {
            member.orders.stop();
            member.orders.abandon();
            (member.cut)();
        }
    }

    /// Waits until all have ended, once the device gives them nothing more. After `grace`, what is unfinished
    /// ends at its next chunk. A thread that has not ended a second later is left behind: it is in the system's hands, and
    /// none of what it has not done was acknowledged. What went wrong, if anything.
    pub fn end(mut self, grace: Duration, cut_off: impl Fn()) -> Vec<String> {
        // Once nobody can send any more, the last thread's word is known to be the last.
        self.ended.0 = mpsc::channel().0;
        for member in &self.members {
            member.orders.stop();
            member.orders.wake();
        }
        let mut troubles = Vec::new();
        let mut left = self.members.len();
        let deadline = Instant::now() + grace;
        while left > 0 {
            let now = Instant::now();
            let patience = deadline.saturating_duration_since(now);
            if patience.is_zero() {
                self.abandon();
                cut_off();
                if now > deadline + Self::LAST {
                    troubles.push(format!(
                        "{left} threads do not end, since a medium does not answer; they are left behind"
                    ));
                    break;
                }
            }
            match self.ended.1.recv_timeout(patience.max(Duration::from_millis(100))) {
                Ok(end) => {
                    left -= 1;
                    troubles.extend(end.err());
                }
                // A thread that has panicked sends nothing.
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    troubles.push("a thread that served the device has failed".to_owned());
                    left = 0;
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
        }
        troubles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_that_never_ends_is_left_behind() {
        let mut crew = Crew::new(StopHandle::new().unwrap());
        for sleeps in [false, true] {
            let work = move |_: Arc<Orders>| {
                if sleeps {
                    std::thread::sleep(Duration::from_secs(3600));
                }
                Ok(())
            };
            crew.start("lane".to_owned(), || {}, work).unwrap();
        }
        let troubles = crew.end(Duration::ZERO, || {});
        assert!(troubles.len() == 1 && troubles[0].starts_with("1 threads do not end"), "{troubles:?}");
    }

    #[test]
    fn crew_has_ended_only_once_each_of_it_has_also_by_a_panic() {
        let moment = Duration::from_millis(1);
        let mut crew = Crew::new(StopHandle::new().unwrap());
        let mut kept = Vec::new();
        for number in 0..3 {
            let (keep, end) = mpsc::channel::<()>();
            kept.push(keep);
            let work = move |_: Arc<Orders>| {
                let _ = end.recv();
                assert_ne!(number, 1, "a test's panic");
                Ok(())
            };
            crew.start("lane".to_owned(), || {}, work).unwrap();
        }
        while let Some(keep) = kept.pop() {
            assert!(!crew.has_ended_within(moment));
            drop(keep);
        }
        assert!(crew.has_ended_within(Duration::from_secs(60)));
    }
}
