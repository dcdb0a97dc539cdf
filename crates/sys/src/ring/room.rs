//! Room for operations in flight.

use std::collections::VecDeque;

use super::{Ring, RingEngine};

impl Ring {
    /// Makes room for more operations in flight: for a layer that makes several of one. To be
    /// called before the queues that use them are opened.
    pub fn reserve(&mut self, more: u32) {
        self.depth = (self.depth + more as usize).min(u32::MAX as usize);
        let all = self.depth;
        make_room(&mut self.slots, all);
        make_room(&mut self.free_slots, all);
        make_room(&mut self.finished, all);
        if let RingEngine::Uring(uring) = &mut self.engine {
            uring.reserve(all);
        }
        for inbox in &mut self.inboxes {
            if inbox.is_empty() {
                *inbox = VecDeque::with_capacity(all);
            } else {
                inbox.reserve(all.saturating_sub(inbox.len()));
            }
        }
    }

    /// How many operations can be in flight.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// How many operations are in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free_slots.len()
    }
}

/// Makes room for so many in all. What is empty is made anew, since to grow it would copy memory that nobody has used.
fn make_room<T>(table: &mut Vec<T>, all: usize) {
    if table.is_empty() {
        *table = Vec::with_capacity(all);
    } else {
        table.reserve(all.saturating_sub(table.len()));
    }
}
