//! A client's request while it is being served: what was asked, how far it is, how it goes.
//!
//! ```text
//! parse ─► Job ─► chunk, chunk, chunk ─► (flush) ─► reply
//! ```
//!
//! A large request is served in chunks of [`CHUNK`] bytes, so that the memory of a connection is
//! bounded, a chunk is decrypted and sent while the next is being read, and the data stays in the
//! second-level cache between the two. Between two chunks the session looks whether anybody still
//! wants the rest.

use std::time::Instant;

use super::stats::OperationKind;
use cryptline_nbd::{NbdError, RequestHeader};

/// Bytes of one chunk.
pub(super) const CHUNK: u32 = 256 * 1024;
/// Chunks of one request in flight at a time.
pub(super) const CHUNKS_IN_FLIGHT: u32 = 8;
/// Bytes of one step of a request that the device serves without a transfer: it may take long for
/// 4 GiB too, and nothing can end it in between. Steps end at multiples of this, so that no medium
/// finds its own units cut.
const STEP: u32 = 64 << 20;

/// How a request is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Read in chunks and send each as it comes, in any order.
    ReadChunks,
    /// Read whole, then send with one header: for clients without structured replies.
    ReadWhole,
    /// Read and forget: warms the caches below.
    Cache,
    /// Write what the client sends.
    Write { durable: bool },
    /// Write zeros, encrypted as any other data.
    WriteZeros { durable: bool },
    /// The device zeroes by itself, step by step; then a flush where `durable`. Where it turns out that it can
    /// not, zeros are written, unless the client wants it `fast` or not at all.
    Zero {
        durable: bool,
        fast: bool,
        may_unmap: bool,
    },
    /// Discard, step by step; then a flush where `durable`.
    Trim { durable: bool },
    /// Flush.
    Flush,
}

#[derive(Debug)]
pub(super) struct Job {
    pub cookie: u64,
    pub work: Work,
    pub offset: u64,
    pub length: u32,
    /// Bytes for which a chunk has been started (or, for a write, received).
    pub begun: u32,
    /// Chunks in flight.
    pub in_flight: u32,
    /// It is among those that have chunks to begin.
    pub is_pending: bool,
    /// The first failure.
    pub error: Option<NbdError>,
    /// A part was zeroed by the device itself, and is durable only after a flush.
    pub flush_owed: bool,
    /// The final flush has been started.
    pub flushed: bool,
    /// The reply is complete.
    pub answered: bool,
    pub started: Option<Instant>,
}

impl Job {
    pub fn new(header: &RequestHeader, work: Work, started: Option<Instant>) -> Self {
        Self {
            cookie: header.cookie,
            work,
            offset: header.offset,
            length: header.length,
            begun: 0,
            in_flight: 0,
            is_pending: false,
            error: None,
            flush_owed: false,
            flushed: false,
            answered: false,
            started,
        }
    }

    /// How many chunks may be in flight at a time.
    pub fn depth(&self) -> u32 {
        if self.is_stepped() {
            1
        } else {
            CHUNKS_IN_FLIGHT
        }
    }

    fn is_stepped(&self) -> bool {
        matches!(self.work, Work::Trim { .. } | Work::Zero { .. })
    }

    /// Whether giving up what is in flight leaves the device as it was.
    pub fn only_reads(&self) -> bool {
        matches!(self.work, Work::ReadChunks | Work::ReadWhole | Work::Cache)
    }

    /// What the statistics call it.
    pub fn kind(&self) -> OperationKind {
        match self.work {
            Work::ReadChunks | Work::ReadWhole | Work::Cache => OperationKind::Read,
            Work::Write { .. } | Work::WriteZeros { .. } | Work::Zero { .. } => {
                OperationKind::Write
            }
            Work::Flush => OperationKind::Flush,
            Work::Trim { .. } => OperationKind::Other,
        }
    }

    /// Offset and length of the next chunk; `None` when all have begun, or no more is worth it.
    pub fn next_chunk(&self) -> Option<(u64, u32)> {
        let left = self.length - self.begun;
        if left == 0 || self.error.is_some() {
            return None;
        }
        let offset = self.offset + u64::from(self.begun);
        let most = if self.is_stepped() {
            // A remainder is below STEP, which is a u32.
            STEP - u32::try_from(offset % u64::from(STEP)).unwrap_or(0)
        } else {
            CHUNK
        };
        Some((offset, left.min(most)))
    }

    /// Whether nothing is in flight and nothing is left to begin.
    pub fn is_done(&self) -> bool {
        let all_begun = match self.work {
            // The client's payload must be received whatever happened to the first chunks.
            Work::Write { .. } => self.begun == self.length,
            Work::Flush => true,
            _ => self.next_chunk().is_none(),
        };
        self.in_flight == 0 && all_begun
    }

    /// Whether a flush is owed before the reply.
    pub fn owes_flush(&self) -> bool {
        let durable = matches!(
            self.work,
            Work::Trim { durable: true } | Work::Zero { durable: true, .. }
        );
        (durable || self.flush_owed) && self.error.is_none() && !self.flushed
    }

    /// Remembers the first failure.
    pub fn fail(&mut self, error: NbdError) {
        self.error.get_or_insert(error);
    }
}
