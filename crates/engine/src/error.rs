//! Why a device could not be opened: what was tried, on what, and the cause.

use std::io;
use std::path::{Path, PathBuf};

/// A device could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    System {
        /// Action that was tried, as a verb: "open", "lock".
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Error from the system.
        source: io::Error,
    },
    /// Somebody else has the image open.
    #[error("{} is in use by {}", path.display(), holder.as_deref().unwrap_or("another program"))]
    Busy {
        /// The image.
        path: PathBuf,
        /// Holder of the image, where it is known.
        holder: Option<String>,
    },
    /// Not something that can hold a disk.
    #[error("{} is {what}; use a regular file or a block device", path.display())]
    WrongKind {
        /// The path.
        path: PathBuf,
        /// Kind of thing at the path.
        what: &'static str,
    },
    /// No permission to write.
    #[error("{} cannot be written ({source})", path.display())]
    NotWritable {
        /// The image.
        path: PathBuf,
        /// Error from the system.
        source: io::Error,
    },
    /// O_DIRECT was asked for and does not work.
    #[error("{} does not take direct I/O in units of {granularity} bytes", path.display())]
    NoDirect {
        /// The image.
        path: PathBuf,
        /// Bytes in the smallest transfer.
        granularity: u32,
    },
    /// A zoned block device, whose writes need O_DIRECT.
    #[error("{} has zones, and the page cache would write to them in any order", path.display())]
    NeedsDirect {
        /// The device.
        path: PathBuf,
    },
    /// The request does not fit the blocks of O_DIRECT; through the page cache it may.
    #[error("{0}")]
    Blocks(String),
    /// Damaged so that it must not be written. It can be opened read-only.
    #[error("{0}")]
    Damaged(String),
    /// Smaller blocks than those of a zoned device.
    #[error("a zoned device has no smaller blocks than its own")]
    ZonedBlocks,
    /// The layers do not fit together.
    #[error("{0}")]
    Geometry(String),
    /// A server could not be reached, or what it offers cannot hold a disk.
    #[error("{uri}: {why}")]
    Remote {
        /// The server and its export.
        uri: String,
        /// Why not.
        why: String,
    },
    /// A ring could not be set up.
    #[error("cannot set up I/O: {0}")]
    Ring(#[source] io::Error),
    /// A thread could not be started: a limit is reached, and not that of memory.
    #[error(
        "no thread can be started ({0}); end other programs, or raise the limit of processes and threads: `ulimit -u`, or \
         pids.max of the control group"
    )]
    Thread(#[source] io::Error),
    /// Memory ran out.
    #[error("not enough memory: {0}")]
    Memory(String),
}

impl OpenError {
    /// `System` with its context.
    pub(crate) fn system(action: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::System { action, path: path.to_owned(), source: source.into() }
    }

    /// `Busy` with whom nobody names.
    #[must_use]
    pub fn busy(path: impl Into<PathBuf>) -> Self {
        Self::Busy { path: path.into(), holder: None }
    }

    /// `Remote` with its context.
    pub(crate) fn remote(uri: impl ToString, why: impl Into<String>) -> Self {
        Self::Remote { uri: uri.to_string(), why: why.into() }
    }

    /// The file or device that it is about, where it is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::System { path, .. }
            | Self::Busy { path, .. }
            | Self::WrongKind { path, .. }
            | Self::NotWritable { path, .. }
            | Self::NoDirect { path, .. }
            | Self::NeedsDirect { path } => Some(path),
            _ => None,
        }
    }

    /// Tells if somebody else uses it.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        match self {
            Self::Busy { .. } => true,
            Self::System { source, .. } => source.kind() == io::ErrorKind::ResourceBusy,
            _ => false,
        }
    }
}
