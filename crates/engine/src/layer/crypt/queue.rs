//! One thread's way into a crypt device that runs the cipher itself.
//!
//! Finished reads are first all taken from the layer below and then decrypted, small ones before large
//! ones, and of the large ones only so much at a time: a long decryption must not hold up a short one
//! that ends meanwhile. (In the kernel's inline mode the tasklet and `cond_resched` have this part.)
//!
//! A queue with more work keeps its ring from waiting.

use std::collections::VecDeque;
use std::sync::Arc;

use cryptline_sys::{Ring, Stopwatch};

use crate::cipher_map::CipherMap;
use crate::gate::GatedQueue;
use crate::queue::AtOnce;
use crate::{Completion, Fault, Op, Queue, Request, Submitted};

/// A read of more bytes than this is decrypted after the smaller ones.
const LARGE: usize = 64 * 1024;
/// Bytes decrypted in one `poll` beyond the small reads: about 50 microseconds.
pub(super) const TURN: usize = 256 * 1024;

/// The queue of `inline`, and of what `SharedQueue` does not share.
pub(super) struct InlineQueue {
    pub lower: GatedQueue,
    cipher: InlineCipher,
    at_once: AtOnce,
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

/// The cipher, run by the thread that has the request.
struct InlineCipher {
    cipher_map: Arc<CipherMap>,
    /// First byte of the data on the lower device.
    start: u64,
    watch: Arc<Stopwatch>,
}

impl InlineQueue {
    pub fn new(lower: GatedQueue, cipher_map: Arc<CipherMap>, start: u64, watch: Arc<Stopwatch>) -> Self {
        Self {
            at_once: lower.at_once(),
            lower,
            cipher: InlineCipher { cipher_map, start, watch },
            reaped: Vec::new(),
            ripe: VecDeque::new(),
        }
    }
}

impl Queue for InlineQueue {
    fn answer_at_once(&mut self, request: &mut Request) -> Option<Result<(), Fault>> {
        let is_write = request.op.is_write();
        // A write that is not answered would have been encrypted for nothing.
        if self.at_once == AtOnce::None || (is_write && self.at_once != AtOnce::All) {
            return None;
        }
        self.cipher.descend(request);
        let Some(result) = self.lower.answer_at_once(request) else {
            self.cipher.shift_back(request);
            return None;
        };
        self.cipher.ascend(request, result);
        Some(result)
    }

    fn submit(&mut self, ring: &mut Ring, mut request: Request) -> Submitted {
        self.cipher.descend(&mut request);
        let mut submitted = self.lower.submit(ring, request);
        if let Submitted::Done(Completion { request, result }) = &mut submitted {
            self.cipher.ascend(request, *result);
        }
        submitted
    }

    fn poll(&mut self, ring: &mut Ring, done: &mut Vec<Completion>) {
        self.lower.poll(ring, &mut self.reaped);
        self.decrypt_small(done);
        self.decrypt_large(ring, TURN, done);
    }
}

impl InlineQueue {
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

impl InlineCipher {
    /// Encrypts and shifts on the way down.
    fn descend(&mut self, request: &mut Request) {
        if let (Op::Write | Op::WriteFua, Some(data)) = (request.op, &mut request.data) {
            let started = self.watch.start();
            self.cipher_map.encrypt(request.offset, data);
            self.watch.stop(started);
        }
        // The gate has checked the sum for all but a flush, which has no range and any offset.
        request.offset = request.offset.wrapping_add(self.start);
    }

    /// Undoes on the way up what `descend` did on the way down.
    fn ascend(&mut self, request: &mut Request, result: Result<(), Fault>) {
        self.shift_back(request);
        // Who found no place may come again, with what it came with before.
        let is_to_be_clear =
            matches!((request.op, result), (Op::Read, Ok(())) | (Op::Write | Op::WriteFua, Err(Fault::Busy)));
        if let (true, Some(data)) = (is_to_be_clear, &mut request.data) {
            self.decrypt(request.offset, data);
        }
    }

    fn shift_back(&self, request: &mut Request) {
        request.offset = request.offset.wrapping_sub(self.start);
    }

    fn decrypt(&mut self, offset: u64, data: &mut [u8]) {
        let started = self.watch.start();
        self.cipher_map.decrypt(offset, data);
        self.watch.stop(started);
    }
}

fn is_large(completion: &Completion) -> bool {
    let request = &completion.request;
    completion.result.is_ok() && request.op == Op::Read && request.len > LARGE as u64
}
