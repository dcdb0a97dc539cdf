//! Why a device could not be opened: what was tried, on what, and the cause.

use std::io;
use std::path::{Path, PathBuf};

/// A device could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    System {
        /// What was tried, as a verb: "open", "lock".
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody else has the image open.
    #[error("{} is in use by another program (its lock is held); stop that one, or use --read-only if it only reads", path.display())]
    Busy {
        /// The image.
        path: PathBuf,
    },
    /// Not something that can hold a disk.
    #[error("{} is {what}; give a regular file or a block device", path.display())]
    WrongKind {
        /// The path.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// No permission to write.
    #[error("{} cannot be written ({source}); use --read-only to serve it read-only", path.display())]
    NotWritable {
        /// The image.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The layers do not fit together.
    #[error("{0}")]
    Geometry(String),
    /// A ring could not be set up.
    #[error("cannot set up I/O: {0}")]
    Ring(#[source] io::Error),
    /// Memory ran out.
    #[error("not enough memory: {0}")]
    Memory(String),
}

impl OpenError {
    /// `System` with its context.
    pub(crate) fn system(action: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::System {
            action,
            path: path.to_owned(),
            source: source.into(),
        }
    }

    /// The exit code, as cryptsetup uses them: 3 memory, 4 wrong device, 5 busy.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Memory(_) => 3,
            Self::Busy { .. } => 5,
            Self::System { source, .. } if source.kind() == io::ErrorKind::ResourceBusy => 5,
            _ => 4,
        }
    }
}
