//! What every front has that gives a volume to this kernel as a block device.
//!
//! ```text
//! attach ─► lanes serve ─► stop ─► write back what is cached ─► take the device away ─► lanes end ─► flush
//! ```

mod crew;

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cryptline_engine::{BackendChoice, Fault, Gate, OpenError};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::flush::{UNANSWERED, flush_all};

pub(crate) use crew::Crew;

/// Why a volume did not become a block device.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The kernel has no such driver, or it is not loaded.
    #[error("this kernel has no {0} driver loaded")]
    NoDriver(&'static str),
    /// It takes more rights.
    #[error("no permission to make a block device: it takes CAP_SYS_ADMIN")]
    NoPermission,
    /// The device that was asked for has a disk.
    #[error("{0} is in use")]
    InUse(PathBuf),
    /// A device was made, and its node is not the user's who has made it.
    #[error("{0} was not given to the user who has made it")]
    NotGiven(PathBuf),
    /// The kernel allows no more of them.
    #[error("there are as many ublk devices as the kernel allows")]
    TooMany,
    /// The volume has zones, or such as the driver does not take.
    #[error("the volume is zoned, and a device of the {0} driver cannot have its zones")]
    Zoned(&'static str),
    /// The volume has zones, and this kernel's ublk driver knows none.
    #[error("the volume is zoned, and the ublk driver of this kernel knows no zones")]
    NoZones,
    /// The volume's blocks are larger than a page.
    #[error("the volume's blocks of {0} bytes are larger than the kernel takes")]
    Blocks(u32),
    /// The device is of another volume, or was made by another program.
    #[error("{0} does not have the size and blocks of this volume")]
    Different(PathBuf),
    /// The driver does not answer.
    #[error("the ublk driver does not answer (Linux 6.17 has such a fault)")]
    Hangs,
    /// No thread could serve it.
    #[error("{0}")]
    Lane(#[from] OpenError),
    /// The system refused a step.
    #[error("cannot {step}: {error}")]
    System {
        /// What was tried.
        step: &'static str,
        /// What it said.
        error: io::Error,
    },
}

impl AttachError {
    pub(crate) fn at(step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| match Errno::from_io_error(&error) {
            Some(Errno::PERM | Errno::ACCESS) => Self::NoPermission,
            _ => Self::System { step, error },
        }
    }
}

/// How a device ended that could not be taken away in peace.
#[derive(Debug, thiserror::Error)]
pub enum EndError {
    /// The kernel could not write back what it had cached.
    #[error("the kernel could not write back what it has cached of {path}: {error}")]
    WriteBack {
        /// The device.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
    /// It was mounted, or had another device over it, when it was taken away.
    #[error("{0} was still in use, so what was written while it was taken away is lost")]
    InUse(PathBuf),
    /// The last flush of the volume failed.
    #[error("the last flush failed: {0}")]
    Flush(Fault),
    /// The last flush of the volume was not made.
    #[error("the last flush was not made, since the medium did not answer within {0:?}")]
    NotFlushed(Duration),
    /// The device could not be taken away.
    #[error("cannot remove {path}: {error}")]
    Remove {
        /// The device.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
}

/// Has the kernel write what it has cached of a block device, that of a file system on it included. As long as what is
/// given back is kept, nobody can mount it any more. A device that is gone has nothing cached.
///
/// The device is not flushed, as the volume will be: where nothing is cached, nothing is asked of a medium that may never
/// answer.
pub(crate) fn write_back(path: &Path) -> (Option<File>, Result<(), EndError>) {
    let (device, is_free) = match claim(path) {
        Ok(device) => (Ok(device), Ok(())),
        Err(error) if is_claimed_error(&error) => {
            // What a file system has not written yet is not the device's: syncing that would leave it behind.
            rustix::fs::sync();
            (File::open(path), Err(EndError::InUse(path.to_owned())))
        }
        Err(error) => (Err(error), Ok(())),
    };
    let (device, synced) = match device {
        Ok(device) => {
            let synced = cryptline_sys::write_cached(&device);
            (Some(device), synced)
        }
        Err(error) => (None, Err(error)),
    };
    let written = match synced {
        Err(error) if !is_gone(&error) => Err(EndError::WriteBack { path: path.to_owned(), error }),
        _ => Ok(()),
    };
    (device, written.and(is_free))
}

/// Whether somebody has claimed a block device: mounted it, or made another device of it.
#[must_use]
pub fn is_claimed(device: &Path) -> bool {
    claim(device).is_err_and(|error| is_claimed_error(&error))
}

/// Opens a block device that nobody else has claimed, and claims it.
fn claim(device: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.custom_flags(OFlags::EXCL.bits().cast_signed());
    options.read(true).open(device)
}

fn is_claimed_error(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ResourceBusy
}

fn is_gone(error: &io::Error) -> bool {
    let gone = [Errno::NOENT, Errno::NXIO, Errno::NODEV, Errno::NOMEDIUM];
    Errno::from_io_error(error).is_some_and(|errno| gone.contains(&errno))
}

/// Flushes the volume itself, for the last time. Where that fails, or takes longer than `grace`, it is latched.
pub(crate) fn flush(gate: &Gate, backend: BackendChoice, grace: Duration) -> Result<(), EndError> {
    let flushed = flush_all([("", gate)], backend, grace);
    flushed.inspect_err(|_| gate.latch()).map_err(|(_, fault)| match fault {
        UNANSWERED => EndError::NotFlushed(grace),
        fault => EndError::Flush(fault),
    })
}
