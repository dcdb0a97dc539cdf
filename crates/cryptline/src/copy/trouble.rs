//! Failures of a copy, before it is known what they mean for the destination.

use std::fmt;
use std::io;

use cryptline_engine::{Fault, OpenError};
use rustix::io::Errno;

use crate::error::{Error, ErrorKind, Problem};

/// Why a copy cannot be made there, or not so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// Zones are not copied.
    #[error("it has zones; disks with zones are not copied")]
    Zones,
    /// No copy can be made there.
    #[error("copies go into files, devices, volumes, Ceph images and to NBD URIs")]
    NoPlace,
    /// A stream cannot be verified.
    #[error("a stream cannot be read back")]
    OneWay,
    /// Copy of one stream into another.
    #[error("a stream is not copied into another one; use `cat`, or `tee` and `sha256sum`")]
    PassesOn,
    /// The end of a pipe has no reader any more.
    #[error("its reader has ended after {written} bytes, which are not all")]
    Unread {
        /// The bytes that were written.
        written: u64,
    },
}

impl CopyError {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::Unread { .. } => ErrorKind::Device,
            _ => ErrorKind::Parameters,
        }
    }
}

/// Why a copy ended early.
#[derive(Debug)]
pub(crate) enum CopyTrouble {
    Open(OpenError),
    Memory(io::Error),
    /// Not one thread could be started.
    Thread(io::Error),
    Ring(io::Error),
    Read {
        offset: u64,
        fault: Fault,
    },
    Write {
        offset: u64,
        fault: Fault,
    },
    Flush(Fault),
    ReadBack {
        offset: u64,
        fault: Fault,
    },
    Differs {
        offset: u64,
    },
    /// The source is not what it was when it was opened.
    Changed,
    Stream(io::Error),
    /// A stream has ended before its first byte.
    Empty,
    /// Whoever read the copy has ended.
    Unread {
        written: u64,
    },
    /// There is more than room for.
    Full {
        room: u64,
    },
    /// The destination could not be made larger.
    Grow(io::Error),
    Stopped,
    /// Whoever was told how far it is has had enough.
    Told(Error),
}

/// Remains of a copy that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyRemains {
    /// Nothing: it was made aside.
    Nothing,
    /// A part of the copy, in this place.
    Part(String),
    /// Everything that is there, for going on later.
    Kept,
}

impl fmt::Display for CopyRemains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing was kept"),
            Self::Part(name) => write!(f, "{name} is incomplete"),
            Self::Kept => f.write_str("what was copied is kept, and the same again goes on from there"),
        }
    }
}

impl CopyTrouble {
    /// The one to tell of: that others have stopped for it is nothing new.
    pub fn or(self, earlier: Option<Self>) -> Self {
        match earlier {
            Some(earlier) if !matches!(earlier, Self::Stopped) => earlier,
            _ => self,
        }
    }

    /// For whoever knows both sides, and what is left.
    pub fn into_error(self, source: &str, dest: &str, left: CopyRemains) -> Error {
        let (name, action, offset, fault) = match self {
            Self::Open(error) => return error.into(),
            Self::Told(error) => return error,
            Self::Memory(error) => {
                return Problem::Device(OpenError::Memory(error.to_string())).on(dest);
            }
            Self::Thread(error) => return Problem::Device(OpenError::Thread(error)).on(dest),
            Self::Stopped => return Problem::CopyStopped(left).on(dest),
            Self::Changed => return Problem::CopyChanged(left).on(source),
            Self::Empty => return Problem::NothingToCopy.on(source),
            Self::Unread { written } => return Problem::Copy(CopyError::Unread { written }).on(dest),
            Self::Full { room } => return Problem::CopyFull { room, left }.on(source),
            Self::Differs { offset } => return Problem::CopyDiffers { offset, left }.on(dest),
            Self::Ring(error) => (dest, "wait for", None, fault(&error)),
            Self::Stream(error) => (source, "read", None, fault(&error)),
            Self::Grow(error) => (dest, "write", None, fault(&error)),
            Self::Read { offset, fault } => (source, "read", Some(offset), fault),
            Self::Write { offset, fault } => (dest, "write", Some(offset), fault),
            Self::ReadBack { offset, fault } => (dest, "read back", Some(offset), fault),
            Self::Flush(fault) => (dest, "flush", None, fault),
        };
        Problem::CopyFault { action, offset, fault, left }.on(name)
    }
}

fn fault(error: &io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Fault::Truncated,
        _ => Errno::from_io_error(error).map_or(Fault::Io(Errno::IO), Fault::from),
    }
}
