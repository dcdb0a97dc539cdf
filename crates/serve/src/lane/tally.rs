//! Work that a lane has done, for whoever is told of its end.

use std::time::Duration;

use cryptline_engine::Op;

/// Sums over a lane's requests. Only its own thread has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Requests that failed, or were refused.
    pub errors: u64,
}

impl Tally {
    /// For people, of what has lasted so long.
    #[must_use]
    pub fn after(&self, lasted: Duration) -> String {
        format!(
            "after {:.1} s: {} bytes read, {} written, {} requests failed",
            lasted.as_secs_f64(),
            self.read,
            self.written,
            self.errors
        )
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { read: self.read + other.read, written: self.written + other.written, errors: self.errors + other.errors }
    }

    /// Counts a request that is over.
    pub(super) fn add(&mut self, op: Op, length: u64, failed: bool) {
        match op {
            _ if failed => self.errors += 1,
            Op::Read => self.read += length,
            op if op.has_payload() => self.written += length,
            _ => {}
        }
    }
}
