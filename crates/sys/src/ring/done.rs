//! Marks by which an operation is known while it is in flight, and what comes back.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use super::Io;
#[cfg(doc)]
use super::Ring;

/// A file or socket known to a ring, from [`Ring::add_file`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId(pub(super) u32);

#[cfg(test)]
impl FileId {
    /// Of no ring.
    pub(crate) fn for_test() -> Self {
        Self(u32::MAX)
    }
}

/// A number that no other device of this process has, for one that takes commands.
pub(crate) fn new_mark() -> u64 {
    static MARKS: AtomicU64 = AtomicU64::new(1);
    MARKS.fetch_add(1, Ordering::Relaxed)
}

/// Source of requests: completions are kept apart by it, from [`Ring::add_source`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestSource(pub(super) u16);

/// Words that a submitter wants to know again when its operation has finished. They lie in the operation's slot, so a
/// queue needs no table of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Which operation it is.
    pub token: u64,
    /// Other words that belong to it.
    pub note: [u64; 2],
}

impl From<u64> for Mark {
    fn from(token: u64) -> Self {
        Self { token, note: [0; 2] }
    }
}

/// A finished operation.
#[derive(Debug)]
pub struct RingDone {
    /// As given to [`Ring::submit`].
    pub token: u64,
    /// As given to [`Ring::submit`].
    pub note: [u64; 2],
    /// Bytes moved, or why not.
    pub result: Result<usize, Errno>,
    /// The operation itself, with its memory.
    pub io: Io,
}

impl RingDone {
    pub(super) fn new(mark: Mark, result: Result<usize, Errno>, io: Io) -> Self {
        let Mark { token, note } = mark;
        Self { token, note, result, io }
    }
}
