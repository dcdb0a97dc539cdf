//! A lock that is had in the order in which it was asked for.
//!
//! A mutex goes to whoever is quickest, which is the thread that has just given it back: one that syncs without a pause would
//! keep others from their flush for as long as it likes.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::lock;

/// A value that one thread has at a time, in turn.
pub struct InTurn<T> {
    tickets: Mutex<Tickets>,
    called: Condvar,
    value: Mutex<T>,
}

struct Tickets {
    next: u64,
    serving: u64,
}

/// The turn of a thread, until this is dropped.
struct LockTurn<'a, T>(&'a InTurn<T>);

impl<T> InTurn<T> {
    /// The lock of `value`.
    pub fn new(value: T) -> Self {
        let tickets = Mutex::new(Tickets { next: 0, serving: 0 });
        Self { tickets, called: Condvar::new(), value: Mutex::new(value) }
    }

    /// Does `work` with the value, behind all who have asked before.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let _turn = self.turn();
        // Nobody else has it, or ever waits for it.
        work(&mut lock(&self.value))
    }

    fn turn(&self) -> LockTurn<'_, T> {
        let mut tickets = lock(&self.tickets);
        let own = tickets.next;
        tickets.next += 1;
        while tickets.serving != own {
            tickets = self.called.wait(tickets).unwrap_or_else(PoisonError::into_inner);
        }
        LockTurn(self)
    }
}

impl<T> Drop for LockTurn<'_, T> {
    fn drop(&mut self) {
        let mut tickets = lock(&self.0.tickets);
        tickets.serving += 1;
        if tickets.serving != tickets.next {
            self.0.called.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;

    use super::*;

    #[test]
    fn whoever_asks_first_has_it_first_though_another_never_pauses() {
        let order = InTurn::new(Vec::new());
        thread::scope(|scope| {
            order.with(|held| {
                for number in 0..8 {
                    scope.spawn({
                        let order = &order;
                        move || order.with(|order| order.push(number))
                    });
                    // It has asked before the next one does.
                    while lock(&order.tickets).next < number + 2 {
                        thread::yield_now();
                    }
                }
                held.push(100);
            });
            // This thread asks at once, and comes last.
            order.with(|order| order.push(101));
        });
        assert_eq!(order.with(std::mem::take), [100, 0, 1, 2, 3, 4, 5, 6, 7, 101]);
    }

    #[test]
    fn a_panic_gives_the_turn_to_the_next() {
        let value = InTurn::new(1);
        assert!(catch_unwind(AssertUnwindSafe(|| value.with(|_| panic!("of the work")))).is_err());
        assert_eq!(value.with(|value| *value), 1);
    }
}
