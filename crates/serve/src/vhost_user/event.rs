//! Events that a server tells its log of the front-ends of its disks.

use std::io;
use std::time::Duration;

use crate::lane::Tally;

/// Something about a front-end that whoever runs the server may want to know.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VhostEvent {
    /// Front-end that could not be accepted.
    #[error("cannot accept a front-end: {0}")]
    NotAccepted(io::Error),
    /// Front-end that is there.
    #[error("{disk}: front-end {number}: connected")]
    Connected {
        /// Name of the disk.
        disk: String,
        /// The number of the front-end.
        number: u64,
    },
    /// Front-end that was refused something, or a queue of which ended badly.
    #[error("{disk}: front-end {number}: {line}")]
    Trouble {
        /// Name of the disk.
        disk: String,
        /// The number of the front-end.
        number: u64,
        /// Description of what happened.
        line: String,
    },
    /// Front-end that has left, or was sent away.
    #[error("{disk}: front-end {number}: disconnected{how}", how = ending(.tally, .lasted, .why.as_deref()))]
    Disconnected {
        /// Name of the disk.
        disk: String,
        /// The number of the front-end.
        number: u64,
        /// Work of its queues.
        tally: Tally,
        /// How long it was connected.
        lasted: Duration,
        /// The cause, unless it has left by itself.
        why: Option<String>,
    },
}

impl VhostEvent {
    /// Tells if something went wrong, at either end.
    #[must_use]
    pub fn is_trouble(&self) -> bool {
        match self {
            Self::Connected { .. } => false,
            Self::Disconnected { why, .. } => why.is_some(),
            _ => true,
        }
    }
}

fn ending(tally: &Tally, lasted: &Duration, why: Option<&str>) -> String {
    match why {
        Some(why) => format!(": {why}"),
        None => format!(" {}", tally.after(*lasted)),
    }
}
