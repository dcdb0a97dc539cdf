//! Which requests a dispatch mode is for.

use std::fmt;

/// Kind of request that a mode was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// All of them.
    Both,
    /// Reads.
    Read,
    /// Writes.
    Write,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Both => "dispatch",
            Self::Read => "read dispatch",
            Self::Write => "write dispatch",
        })
    }
}
