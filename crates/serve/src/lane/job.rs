//! A client's request while it is served: what was asked, how far it is, how it goes.
//!
//! ```text
//! Asked ─► Job ─► chunk, chunk, chunk ─► (flush, or an action on zones) ─► end
//! ```
//!
//! A large request is served in chunks of [`CHUNK`] bytes. That bounds a lane's memory, a chunk is
//! decrypted and sent while the next is being read, and in between its data stays in the second-level
//! cache. Between two chunks the lane checks whether anybody still wants the rest.

use std::time::Instant;

use cryptline_engine::{Combined, Fault, Op};

use super::wire::WireRequest;

/// Bytes of one chunk.
pub const CHUNK: u32 = 256 * 1024;
/// Chunks that a job begins in one turn, and chunks of one read in flight at a time.
const TURN: u32 = 8;
/// Bytes of one step of a request that the device serves without a transfer: a whole one can be
/// 4 GiB and more, and nothing ends a step early. Steps end at multiples of this, so that no medium
/// finds its own units cut.
const STEP: u32 = 64 << 20;

#[derive(Debug)]
pub(super) struct LaneJob<T> {
    pub asked: WireRequest<T>,
    /// Bytes for which a chunk has begun.
    pub begun: u64,
    /// Chunks in flight.
    pub in_flight: u32,
    /// Set if it is among those that have chunks to begin.
    pub is_pending: bool,
    /// The wire has put off the next chunk's bytes.
    pub is_awaited: bool,
    pub outcome: Combined,
    /// The device cannot do it by itself: zeros are written, or bytes are read for its caches.
    pub transfers: bool,
    /// The device has zeroed a part by itself, which only a flush makes durable.
    pub flush_owed: bool,
    /// Set if what comes last has begun ([`last`](Self::last)).
    pub is_last_begun: bool,
    pub started: Option<Instant>,
}

impl<T> LaneJob<T> {
    pub fn new(asked: WireRequest<T>, started: Option<Instant>) -> Self {
        let outcome = Combined::new(asked.op.changes());
        Self {
            asked,
            begun: 0,
            in_flight: 0,
            is_pending: false,
            is_awaited: false,
            outcome,
            transfers: false,
            flush_owed: false,
            is_last_begun: false,
            started,
        }
    }

    /// Tells if it must wait for another turn, or for some of its chunks to end.
    pub fn is_turn_over(&self, begun: u32) -> bool {
        // A stream has nothing else to read before the payload is through.
        let is_full = !self.asked.op.has_payload() && self.in_flight >= self.depth();
        // All buffers of a whole read are there.
        !self.asked.whole && (is_full || begun >= self.depth())
    }

    /// Tells if it could begin a chunk.
    pub fn is_ready(&self) -> bool {
        self.in_flight < self.depth()
    }

    fn depth(&self) -> u32 {
        if self.is_stepped() { 1 } else { TURN }
    }

    fn is_stepped(&self) -> bool {
        match self.asked.op {
            Op::Discard => true,
            Op::Zero | Op::ZeroUnmap | Op::Cache => !self.transfers,
            _ => false,
        }
    }

    /// The chunks for which a read that is wanted whole needs buffers before it begins.
    pub fn reservation(&self) -> Option<u64> {
        let is_long = self.asked.length > u64::from(CHUNK);
        (self.asked.whole && is_long && self.begun == 0).then(|| self.asked.length.div_ceil(CHUNK.into()))
    }

    /// Tells if giving up what is in flight leaves the device as it was.
    pub fn only_reads(&self) -> bool {
        matches!(self.asked.op, Op::Read | Op::Cache)
    }

    /// Operation that the statistics count.
    pub fn counted(&self) -> Op {
        if self.asked.op == Op::Cache && self.transfers { Op::Read } else { self.asked.op }
    }

    /// Length in bytes of the next chunk; `None` when all have begun, or more are not worth it.
    pub fn next_chunk(&self) -> Option<u32> {
        let left = self.asked.length - self.begun;
        // A stream's payload must be received whatever has happened to the first chunks.
        let is_wanted = !self.outcome.has_failed() || self.asked.op.has_payload();
        if left == 0 || self.is_awaited || !is_wanted {
            return None;
        }
        let most = if self.is_stepped() {
            let offset = self.asked.offset + self.begun;
            // A remainder is below STEP, which is a u32.
            STEP - u32::try_from(offset % u64::from(STEP)).unwrap_or(0)
        } else {
            CHUNK
        };
        Some(u32::try_from(left).unwrap_or(u32::MAX).min(most))
    }

    /// Tells if nothing is in flight and nothing is left to begin.
    pub fn is_done(&self) -> bool {
        self.in_flight == 0 && !self.is_awaited && self.next_chunk().is_none()
    }

    /// Returns what is still to be done before the end, once all chunks are: a flush, asked for or owed, or the action.
    pub fn last(&self) -> Option<Op> {
        let WireRequest { op, durable, .. } = self.asked;
        // Zeros that were written are durable, but not what the device had zeroed before.
        let is_durable = op.is_zero() && self.transfers && !self.flush_owed;
        let flush = (durable && !is_durable).then_some(Op::Flush);
        let last = if op.has_range() { flush } else { Some(op) };
        last.filter(|_| !self.outcome.has_failed() && !self.is_last_begun)
    }

    /// Tells if the zeros that are written must be durable each.
    pub fn zeros_durably(&self) -> bool {
        self.asked.durable && !self.flush_owed
    }

    /// The device cannot do it by itself after all, as it has said by `fault`: bytes are to be moved, unless that is not
    /// wanted.
    pub fn transfer_instead(&mut self, fault: Fault) -> bool {
        let WireRequest { op, durable, fast, .. } = self.asked;
        if op.is_zero() {
            let has_zeroed = self.outcome.has_changed() || !fault.is_refusal();
            // What is refused has changed nothing. So what the device has begun is done to its end.
            if fast && !has_zeroed {
                self.fail(fault);
                return false;
            }
            if has_zeroed {
                self.outcome.add(Ok(()));
            }
            // What the device has zeroed so far is not durable, and durable writes of the rest do not
            // make it so.
            self.flush_owed = durable && has_zeroed;
        }
        self.transfers = true;
        true
    }

    /// A part of it has failed.
    pub fn fail(&mut self, fault: Fault) {
        self.outcome.add(Err(fault));
    }

    /// Begins no more chunks, and fails.
    pub fn cut_short(&mut self, fault: Fault) {
        self.asked.length = self.begun;
        self.fail(fault);
    }
}

#[cfg(test)]
#[path = "job_tests.rs"]
mod tests;
