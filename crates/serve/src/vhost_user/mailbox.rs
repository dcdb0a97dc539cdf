//! Messages between a front-end's control thread and the thread of one of its queues.
//!
//! ```text
//! control   post: letter ─► news ─► wake ─► wait until it is read, or the queue's thread has ended
//! queue     (one load for each look) news? ─► read the letters ─► go on
//! ```

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cryptline_sys::{GuestMemory, lock};

use crate::lane::Orders;

/// How often who waits looks whether that has become futile.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// Message to a running queue.
pub(super) enum Letter {
    /// The memory lies elsewhere; and whether parts of it were taken back that are to come again, perhaps.
    Memory(Arc<GuestMemory>, bool),
    /// Interrupts go there.
    Call(Option<Arc<OwnedFd>>),
    /// Word of a broken ring goes there.
    Error(Option<Arc<OwnedFd>>),
    /// Turns the serving of requests on or off.
    Enable(bool),
    /// The disk has so many bytes.
    Size(u64),
}

#[derive(Default)]
struct MailboxState {
    letters: Vec<Letter>,
    /// The ring could be served.
    is_open: bool,
    is_over: bool,
    /// Why it could not.
    failure: Option<String>,
}

/// Between one queue's thread and its control thread.
#[derive(Default)]
pub(super) struct Mailbox {
    pub orders: Arc<Orders>,
    state: Mutex<MailboxState>,
    changed: Condvar,
    has_news: AtomicBool,
    is_gone: AtomicBool,
    base: AtomicU32,
}

impl Mailbox {
    /// The queue serves its ring from now on, and hears its orders.
    pub fn open(&self) {
        lock(&self.state).is_open = true;
        self.changed.notify_all();
    }

    /// Waits until the queue serves its ring. `Err` where it has ended before, with the reason; goes on in any case
    /// once `is_futile`.
    pub fn wait_until_open(&self, is_futile: impl Fn() -> bool) -> Result<(), String> {
        let mut state = lock(&self.state);
        while !state.is_open && !state.is_over {
            if is_futile() {
                return Ok(());
            }
            state = self.wait(state);
        }
        match state.failure.take() {
            Some(why) if !state.is_open => Err(why),
            _ => Ok(()),
        }
    }

    fn wait<'a>(&self, state: MutexGuard<'a, MailboxState>) -> MutexGuard<'a, MailboxState> {
        let waited = self.changed.wait_timeout(state, LOOK);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Tells the queue something, and returns when it has read it or has ended, or once `is_futile`.
    pub fn post(&self, letter: Letter, is_futile: impl Fn() -> bool) {
        let mut state = lock(&self.state);
        if state.is_over {
            // Nobody reads it, and it may hold descriptors and memory.
            return;
        }
        state.letters.push(letter);
        self.has_news.store(true, Ordering::Release);
        self.orders.wake();
        while !state.letters.is_empty() && !state.is_over && !is_futile() {
            state = self.wait(state);
        }
    }

    /// Nobody waits for the queue's answers any more.
    pub fn leave(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
        self.orders.stop();
        self.orders.wake();
    }

    /// The queue's thread ends, for this reason. Whether nobody else tells of it.
    pub fn fail(&self, why: &str) -> bool {
        let mut state = lock(&self.state);
        state.failure = Some(why.to_owned());
        state.is_open
    }

    /// Tells if the queue's thread has ended; waits for that as long as `patience`.
    pub fn is_over(&self, patience: Duration) -> bool {
        let mut state = lock(&self.state);
        if !state.is_over {
            let waited = self.changed.wait_timeout(state, patience);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_over
    }

    /// Where the next server of this queue is to begin.
    pub fn base(&self) -> u32 {
        self.base.load(Ordering::Acquire)
    }

    // The queue's side.

    pub fn has_news(&self) -> bool {
        self.has_news.load(Ordering::Acquire)
    }

    /// Reads the letters. Whoever sent them goes on when `read` has returned.
    pub fn read(&self, mut read: impl FnMut(Letter)) {
        let mut state = lock(&self.state);
        self.has_news.store(false, Ordering::Relaxed);
        for letter in state.letters.drain(..) {
            read(letter);
        }
        self.changed.notify_all();
    }

    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    pub fn set_base(&self, base: u32) {
        self.base.store(base, Ordering::Release);
    }

    /// The queue's thread is about to end.
    pub fn end(&self) {
        let mut state = lock(&self.state);
        state.is_over = true;
        state.letters.clear();
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    fn file() -> Arc<OwnedFd> {
        Arc::new(eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd"))
    }

    #[test]
    fn what_an_ended_queue_has_not_read_is_closed() {
        let (mailbox, file) = (Arc::<Mailbox>::default(), file());
        let (sender, letter) = (Arc::clone(&mailbox), Arc::clone(&file));
        let thread = std::thread::spawn(move || sender.post(Letter::Call(Some(letter)), || false));
        while !mailbox.has_news() {
            std::thread::yield_now();
        }
        mailbox.end();
        thread.join().expect("it returns");
        assert_eq!(Arc::strong_count(&file), 1);
    }

    #[test]
    fn letters_to_an_ended_queue_are_not_kept() {
        let (mailbox, file) = (Mailbox::default(), file());
        mailbox.end();
        mailbox.post(Letter::Error(Some(Arc::clone(&file))), || false);
        assert_eq!(Arc::strong_count(&file), 1);
    }

    #[test]
    fn queue_that_reads_nothing_is_not_waited_for_once_that_is_futile() {
        let mailbox = Mailbox::default();
        mailbox.post(Letter::Enable(true), || true);
        assert_eq!(mailbox.wait_until_open(|| true), Ok(()));
    }
}
