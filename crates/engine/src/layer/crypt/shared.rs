//! One thread's way into a crypt device whose cipher may also run on other threads (`auto`, `queue`).
//!
//! The [`Exchange`] takes what is worth sharing. All else goes as under `inline`.

use cryptline_sys::Ring;

use super::exchange::Exchange;
use super::queue::InlineQueue;
use crate::{Completion, Queue, Request, Submitted};

pub(super) struct SharedQueue {
    inline: InlineQueue,
    exchange: Exchange,
    /// Requests that were submitted and have not ended.
    under_way: usize,
}

impl SharedQueue {
    pub fn new(inline: InlineQueue, exchange: Exchange) -> Self {
        Self { inline, exchange, under_way: 0 }
    }
}

impl Queue for SharedQueue {
    fn submit(&mut self, ring: &mut Ring, request: Request) -> Submitted {
        let (exchange, lower) = (&mut self.exchange, &mut self.inline.lower);
        let submitted = match exchange.submit(ring, lower, request, self.under_way) {
            Ok(submitted) => submitted,
            Err(request) => self.inline.submit(ring, request),
        };
        self.under_way += usize::from(matches!(submitted, Submitted::Pending));
        submitted
    }

    fn poll(&mut self, ring: &mut Ring, done: &mut Vec<Completion>) {
        let before = done.len();
        let inline = &mut self.inline;
        inline.lower.poll(ring, &mut inline.reaped);
        let has_other_work = !inline.reaped.is_empty() || inline.has_ripe();
        self.exchange.sort_out(&mut inline.reaped);
        inline.decrypt_small(done);
        let turn = self.exchange.poll(ring, &mut inline.lower, has_other_work, done);
        inline.decrypt_large(ring, turn, done);
        self.under_way -= done.len() - before;
    }
}
