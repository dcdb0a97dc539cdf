//! What the library says of an image on its own: that somebody has changed its size, its snapshots or its settings.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use crate::lock;

/// Changes of an image by others, for one thread that looks at them.
#[derive(Default)]
pub struct RbdChanges {
    /// One came that was not looked at. Apart from the rest, since every queue reads it.
    is_news: AtomicBool,
    told: Mutex<Told>,
    more: Condvar,
}

#[derive(Default)]
struct Told {
    count: u64,
    is_over: bool,
}

impl RbdChanges {
    /// Called by the library's threads.
    pub(super) fn note(&self) {
        let mut told = lock(&self.told);
        told.count += 1;
        self.is_news.store(true, Ordering::Release);
        self.more.notify_all();
    }

    /// Waits until there are more than `seen`; how many, or `None` at the end.
    #[must_use]
    pub fn wait(&self, seen: u64) -> Option<u64> {
        let told = lock(&self.told);
        let waited = self
            .more
            .wait_while(told, |told| told.count <= seen && !told.is_over);
        let told = waited.unwrap_or_else(PoisonError::into_inner);
        (!told.is_over).then_some(told.count)
    }

    /// Says that the first `seen` were looked at.
    pub fn looked_at(&self, seen: u64) {
        let told = lock(&self.told);
        if told.count == seen {
            self.is_news.store(false, Ordering::Release);
        }
    }

    /// Whether one has come that was not looked at.
    #[must_use]
    pub fn is_news(&self) -> bool {
        self.is_news.load(Ordering::Acquire)
    }

    /// Whoever waits is to wait no more.
    pub fn end(&self) {
        lock(&self.told).is_over = true;
        self.more.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_that_comes_while_another_is_looked_at_stays_news() {
        let changes = RbdChanges::default();
        assert!(!changes.is_news());
        changes.note();
        let seen = changes.wait(0).expect("not the end");
        changes.note();
        changes.looked_at(seen);
        assert!(changes.is_news());
        let all = changes.wait(seen).expect("not the end");
        changes.looked_at(all);
        assert!(!changes.is_news());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| changes.wait(all));
            changes.end();
            assert_eq!(waits.join().expect("no panic"), None);
        });
    }
}
