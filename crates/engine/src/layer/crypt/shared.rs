//! One thread's way into a crypt device whose cipher may also run on other threads (`auto`, `queue`).
//!
//! The [`Exchange`] takes what is worth sharing. All else goes as under `inline`.

use std::collections::VecDeque;

use cryptline_sys::Ring;

use super::exchange::Exchange;
use super::queue::{PlacedCipher, is_large};
use crate::gate::GatedQueue;
use crate::{Completion, Queue, Request, Submitted};

pub(super) struct SharedQueue {
    inline: InlineQueue,
    exchange: Exchange,
    /// Requests that were submitted and have not ended.
    under_way: usize,
}

impl SharedQueue {
    pub fn new(lower: GatedQueue, cipher: PlacedCipher, depth: usize, exchange: Exchange) -> Self {
        Self { inline: InlineQueue::new(lower, cipher, depth), exchange, under_way: 0 }
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

/// The queue of what `SharedQueue` does not share.
struct InlineQueue {
    pub lower: GatedQueue,
    cipher: PlacedCipher,
    /// Requests that the layer below has just finished.
    pub reaped: Vec<Completion>,
    /// Large reads, to be decrypted in turns.
    ripe: VecDeque<Ripe>,
}

/// A large read and how much of it is decrypted, in bytes.
struct Ripe {
    completion: Completion,
    clear: usize,
}

impl InlineQueue {
    /// `depth` is how many requests may be in flight.
    pub fn new(lower: GatedQueue, cipher: PlacedCipher, depth: usize) -> Self {
        Self { lower, cipher, reaped: Vec::with_capacity(depth), ripe: VecDeque::with_capacity(depth) }
    }
}

impl InlineQueue {
    fn submit(&mut self, ring: &mut Ring, mut request: Request) -> Submitted {
        self.cipher.descend(&mut request);
        let mut submitted = self.lower.submit(ring, request);
        if let Submitted::Done(Completion { request, result }) = &mut submitted {
            self.cipher.ascend(request, *result);
        }
        submitted
    }

    /// Tells if large reads are still to be decrypted.
    pub fn has_ripe(&self) -> bool {
        !self.ripe.is_empty()
    }

    /// Ends everything that was reaped but large reads, which join the ripe ones.
    pub fn decrypt_small(&mut self, done: &mut Vec<Completion>) {
        for mut completion in self.reaped.drain(..) {
            if is_large(&completion) {
                self.cipher.shift_back(&mut completion.request);
                self.ripe.push_back(Ripe { completion, clear: 0 });
            } else {
                self.cipher.ascend(&mut completion.request, completion.result);
                done.push(completion);
            }
        }
    }

    /// Decrypts up to `turn` bytes of the ripe reads, the oldest first.
    pub fn decrypt_large(&mut self, ring: &mut Ring, turn: usize, done: &mut Vec<Completion>) {
        let mut left = turn;
        while left > 0
            && let Some(ripe) = self.ripe.front_mut()
        {
            let request = &mut ripe.completion.request;
            let Some(buffer) = &mut request.data else { unreachable!("only reads ripen") };
            let part = left.min(buffer.len() - ripe.clear);
            let offset = request.offset + ripe.clear as u64;
            let range = ripe.clear..ripe.clear + part;
            self.cipher.decrypt(offset, &mut buffer[range]);
            ripe.clear += part;
            left -= part;
            if ripe.clear == buffer.len()
                && let Some(ripe) = self.ripe.pop_front()
            {
                done.push(ripe.completion);
            }
        }
        if !self.ripe.is_empty() {
            ring.stay_awake();
        }
    }
}
