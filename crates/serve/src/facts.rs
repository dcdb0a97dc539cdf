//! Facts of media, such as their sizes and holes, and that all of them is durable: asked in system calls that a hung medium
//! never ends, for threads that have others to serve.
//!
//! ```text
//! lane, greeting ─► question ─► the medium's own thread ─► answer     in time, or none
//!                       └─ no answer is being waited for too long already: none at once
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use cryptline_engine::{Asker, Gate};

/// How long an answer is waited for. One that takes longer delays others once, and no more until it is there.
pub(crate) const PATIENCE: Duration = Duration::from_millis(200);

/// One medium's facts.
pub(crate) struct Facts {
    asker: Asker<()>,
    /// The medium owes an answer that nobody waits for any more.
    owes: Arc<AtomicBool>,
}

/// A question that has been asked.
pub(crate) struct AskedFact<T> {
    answer: Option<mpsc::Receiver<T>>,
    owes: Arc<AtomicBool>,
}

impl Facts {
    pub fn new() -> Self {
        Self { asker: Asker::new("facts"), owes: Arc::default() }
    }

    /// Asks, on the medium's own thread. Only the question is to keep the medium open.
    pub fn begin<T: Send + 'static>(&self, question: impl FnOnce() -> T + Send + 'static) -> AskedFact<T> {
        let (tell, answer) = mpsc::channel();
        let owes = Arc::clone(&self.owes);
        let question = move |()| {
            // Whoever asked may have gone on. It must find the answer if it says only then that one is owed.
            let _ = tell.send(question());
            owes.store(false, Ordering::Release);
        };
        let is_asked = !self.owes.load(Ordering::Acquire) && self.asker.ask((), question).is_ok();
        AskedFact { answer: is_asked.then_some(answer), owes: Arc::clone(&self.owes) }
    }

    /// Asks, and waits for the answer; `None` where the medium does not give it in time.
    pub fn ask<T: Send + 'static>(&self, question: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        self.begin(question).answer_by(Instant::now() + PATIENCE)
    }

    /// Has a volume begin to look whether it has grown.
    pub fn begin_growth(&self, gate: &Gate) -> AskedFact<u64> {
        let gate = gate.clone();
        self.begin(move || gate.grow())
    }

    /// Bytes of a volume, which may have grown. As many as are known of where its medium does not say in time.
    pub fn size_of(&self, gate: &Gate) -> u64 {
        let asked = self.begin_growth(gate);
        asked.answer_by(Instant::now() + PATIENCE).unwrap_or_else(|| gate.size())
    }
}

impl<T> AskedFact<T> {
    /// The answer, if it is there by `deadline`.
    pub fn answer_by(self, deadline: Instant) -> Option<T> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.answer.as_ref()?.recv_timeout(left) {
            Err(mpsc::RecvTimeoutError::Timeout) => self.give_up(),
            answer => answer.ok(),
        }
    }

    /// Notes that an answer is owed, unless it has come meanwhile.
    fn give_up(self) -> Option<T> {
        // Exchanged, so that either the answer is seen here or the note is taken back by whoever answers.
        self.owes.swap(true, Ordering::AcqRel);
        match self.answer?.try_recv() {
            Err(mpsc::TryRecvError::Empty) => None,
            answer => {
                self.owes.swap(false, Ordering::AcqRel);
                answer.ok()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use cryptline_testkit::scripted::{Call, Silent};

    use super::*;

    #[test]
    fn size_that_is_known_is_told_of_a_medium_that_does_not_say_it() {
        let medium = Silent::new(1 << 20);
        let (facts, gate) = (Facts::new(), medium.gate());
        medium.fall_silent(&[Call::Grow]);
        // The second time at once.
        for _ in 0..2 {
            assert_eq!(facts.size_of(&gate), 1 << 20);
        }
    }

    #[test]
    fn medium_that_hangs_delays_once_and_is_asked_again_when_it_has_answered() {
        let facts = Facts::new();
        assert_eq!(facts.ask(|| 1), Some(1));
        let (go_on, hung) = mpsc::channel::<()>();
        let asked = facts.begin(move || hung.recv().is_ok());
        assert_eq!(asked.answer_by(Instant::now()), None);
        // Nothing is asked meanwhile, so nothing piles up.
        let unasked: Option<u8> = facts.ask(|| unreachable!("the medium owes an answer"));
        assert_eq!(unasked, None);
        go_on.send(()).unwrap();
        let answer = std::iter::repeat_with(|| facts.ask(|| 3)).find_map(|answer| answer);
        assert_eq!(answer, Some(3));
    }

    #[test]
    fn answer_that_comes_as_it_is_given_up_is_taken_and_owed_by_nobody() {
        let facts = Facts::new();
        let asked = facts.begin(|| 1);
        // Asked behind it.
        assert_eq!(facts.begin(|| 2).answer_by(Instant::now() + Duration::from_secs(60)), Some(2));
        assert_eq!(asked.give_up(), Some(1));
        let next = facts.begin(|| 3).answer_by(Instant::now() + Duration::from_secs(60));
        assert_eq!(next, Some(3));
    }

    #[test]
    fn thread_that_asks_ends_with_the_facts() {
        let facts = Facts::new();
        let (kept, end) = mpsc::channel::<()>();
        assert_eq!(facts.ask(|| ()), Some(()));
        // Sent behind it, and dropped with it, once it is made.
        let question = facts.begin(move || kept);
        drop(facts);
        drop(question);
        assert!(end.recv().is_err());
    }
}
