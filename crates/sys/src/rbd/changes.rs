//! Reasons to look at an image again: changes that the library reports on its own (somebody has changed its size, its
//! snapshots or its settings), and questions of those who must know that there is none.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{Waker, lock};

/// Changes of an image by others, for one thread that looks at them, and for those that wait until it has.
#[derive(Default)]
pub struct RbdChanges {
    /// So many were looked at. Apart from the rest, since every queue reads it.
    looked_at: AtomicU64,
    /// Process whose thread looks and has a share of the image; 0 where there is none. A forked child has not got it, and
    /// may have been forked while the lock below was held.
    watched_by: AtomicU32,
    told: Mutex<Told>,
    more: Condvar,
}

#[derive(Default)]
struct Told {
    count: u64,
    is_over: bool,
    /// Nobody looks any more.
    is_given_up: bool,
    /// Whom to call once more were looked at.
    wakers: Vec<Waker>,
}

impl RbdChanges {
    /// Has the image looked at from now on. Called by the library's threads, and by whoever
    /// [waits](Self::wake_then) for the number that this returns.
    pub fn note(&self) -> u64 {
        let mut told = lock(&self.told);
        told.count += 1;
        self.more.notify_all();
        told.count
    }

    /// Waits until there are more than `seen`; how many, or `None` at the end.
    #[must_use]
    pub fn wait(&self, seen: u64) -> Option<u64> {
        let told = lock(&self.told);
        let waited = self.more.wait_while(told, |told| told.count <= seen && !told.is_over);
        let told = waited.unwrap_or_else(PoisonError::into_inner);
        (!told.is_over).then_some(told.count)
    }

    /// Says that the first `seen` were looked at.
    pub fn looked_at(&self, seen: u64) {
        let told = lock(&self.told);
        self.looked_at.store(seen, Ordering::Release);
        wake(told);
    }

    /// Has `waker` called once, when number `noted` and perhaps others were looked at, or nobody
    /// [looks](Self::give_up) any more.
    pub fn wake_then(&self, noted: u64, waker: &Waker) {
        let mut told = lock(&self.told);
        if !told.wakers.iter().any(|other| other.is(waker)) {
            told.wakers.push(waker.clone());
        }
        if told.is_given_up || self.is_looked_at(noted) {
            wake(told);
        }
    }

    /// Tells if somebody waits for a look.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        !lock(&self.told).wakers.is_empty()
    }

    /// Says that nobody looks any more: those who wait are called, and those who would wait, too.
    pub fn give_up(&self) {
        let mut told = lock(&self.told);
        told.is_given_up = true;
        wake(told);
    }

    /// Tells if number `noted` was looked at.
    #[must_use]
    pub fn is_looked_at(&self, noted: u64) -> bool {
        self.looked_at.load(Ordering::Acquire) >= noted
    }

    /// Waits for as long, or until the end.
    pub fn pause(&self, time: Duration) {
        let told = lock(&self.told);
        let _waited = self.more.wait_timeout_while(told, time, |told| !told.is_over);
    }

    /// Says whether there is a thread that looks, and that has a share of the image.
    pub fn be_watched(&self, is_watched: bool) {
        let _told = lock(&self.told);
        self.watched_by.store(if is_watched { std::process::id() } else { 0 }, Ordering::Release);
        self.more.notify_all();
    }

    /// Has those who wait do so no more, and waits until the thread that looks has let go of the image.
    pub fn end(&self, at_most: Duration) {
        let is_watched = || self.watched_by.load(Ordering::Acquire) == std::process::id();
        if !is_watched() {
            return;
        }
        let mut told = lock(&self.told);
        told.is_over = true;
        self.more.notify_all();
        let _late = self.more.wait_timeout_while(told, at_most, |_| is_watched());
    }
}

/// The lock is given back before anybody is called.
fn wake(mut told: MutexGuard<'_, Told>) {
    let wakers = std::mem::take(&mut told.wakers);
    drop(told);
    wakers.iter().for_each(Waker::wake);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BackendChoice, Ring};

    #[test]
    fn change_that_comes_while_another_is_looked_at_is_looked_at_later() {
        let changes = RbdChanges::default();
        let first = changes.note();
        let seen = changes.wait(0).expect("not the end");
        let second = changes.note();
        changes.looked_at(seen);
        assert!(changes.is_looked_at(first) && !changes.is_looked_at(second));
        let all = changes.wait(seen).expect("not the end");
        changes.looked_at(all);
        assert!(changes.is_looked_at(second));
        changes.be_watched(true);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| changes.wait(all));
            changes.end(Duration::ZERO);
            assert_eq!(waits.join().expect("no panic"), None);
        });
    }

    #[test]
    fn who_waits_for_a_look_is_called_once_it_was_taken() {
        let mut ring = Ring::new(BackendChoice::Auto, 8).expect("a ring");
        let waker = ring.waker().expect("a waker");
        let changes = RbdChanges::default();
        let noted = changes.note();
        changes.wake_then(noted, &waker);
        changes.wake_then(noted, &waker);
        assert_eq!(lock(&changes.told).wakers.len(), 1);
        assert!(changes.is_waited_for());
        std::thread::scope(|scope| {
            scope.spawn(|| changes.looked_at(noted));
            ring.wait().expect("it is woken");
        });
        // Nothing is left to be looked at.
        changes.wake_then(noted, &waker);
        ring.wait().expect("it is woken");
        assert!(!changes.is_waited_for());
    }

    #[test]
    fn who_would_wait_when_nobody_looks_any_more_is_called() {
        let mut ring = Ring::new(BackendChoice::Auto, 8).expect("a ring");
        let waker = ring.waker().expect("a waker");
        let changes = RbdChanges::default();
        let noted = changes.note();
        changes.give_up();
        changes.wake_then(noted, &waker);
        assert!(lock(&changes.told).wakers.is_empty());
        ring.wait().expect("it is woken");
    }

    #[test]
    fn end_waits_until_the_thread_that_looks_has_let_go() {
        let changes = RbdChanges::default();
        changes.be_watched(true);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(changes.wait(0), None);
                changes.be_watched(false);
            });
            changes.end(Duration::from_secs(60));
            assert_eq!(changes.watched_by.load(Ordering::Relaxed), 0);
        });
        // One that does not come back keeps nobody, and a pause ends with all else.
        changes.be_watched(true);
        changes.end(Duration::from_millis(1));
        changes.pause(Duration::from_secs(60));
    }
}
