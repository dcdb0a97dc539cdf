//! Parts shared by the fronts that give a volume to this kernel as a block device.
//!
//! ```text
//! attach ─► lanes serve ─► stop ─► write back what is cached ─► take the device away ─► lanes end ─► flush
//! ```
//!
//! A medium that does not answer is given up at each of these steps. What takes the device away has the driver fail what it
//! still had of it, so that a thread which waits for that ends.
//!
//! Both drivers refuse writes as soon as they are told to stop, those that the kernel has still cached as well. So the
//! server syncs its own device while its lanes still serve it.

mod crew;

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use cryptline_engine::{BackendChoice, Fault, Gate, OpenError};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::flush::{UNANSWERED, flush_all, is_silent};

pub(crate) use crew::Crew;

/// A medium that leaves a read unanswered for so long may never answer. What is being written back can delay one for long.
const SILENT_FOR: Duration = Duration::from_secs(60);
/// A device that the kernel asks for nothing for so long, while it writes all that it has for all of them, has it.
const RESTS_FOR: Duration = Duration::from_secs(60);

/// Why a volume did not become a block device.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The kernel has no such driver, or it is not loaded.
    #[error("this kernel has no {0} driver loaded")]
    NoDriver(&'static str),
    /// Insufficient rights.
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
        /// Action that was tried.
        step: &'static str,
        /// Error that was reported.
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
        /// Error that was reported.
        error: io::Error,
    },
    /// Mounted, or below another device, when it was taken away.
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
        /// Error of the system.
        error: io::Error,
    },
}

/// A block device that was written back, and how.
type WrittenBack = (Option<File>, Result<(), EndError>);

/// Has the kernel write what it has cached of a block device, that of a file system on it included. As long as what is
/// given back is kept, nobody can mount it any more. A device that is gone has nothing cached.
///
/// Flushing may take long, and for ever where the medium of the volume answers nothing any more. So after each `grace` it is
/// asked for something else. Where it cannot be asked, or answers that, it has all the time that it takes.
///
/// The device is not flushed, as the volume will be: where nothing is cached, nothing is asked of a medium that may never
/// answer.
pub(crate) fn write_back(path: &Path, gate: &Gate, backend: BackendChoice, grace: Duration) -> WrittenBack {
    write_back_unless(path, grace, || is_silent(gate, backend, SILENT_FOR))
}

fn write_back_unless(path: &Path, grace: Duration, is_silent: impl Fn() -> bool) -> WrittenBack {
    let own = path.to_owned();
    let written = within(move || write_back_now(&own), grace, || !is_silent());
    written.unwrap_or_else(|| {
        let error = io::Error::new(io::ErrorKind::TimedOut, "the volume's medium does not answer");
        (None, Err(EndError::WriteBack { path: path.to_owned(), error }))
    })
}

/// Does some work on a thread of its own, and waits for it and goes on doing so after another `limit` only where
/// `goes_on` says so.
fn within<T: Send + 'static>(
    work: impl Fn() -> T + Send + Sync + 'static,
    limit: Duration,
    goes_on: impl Fn() -> bool,
) -> Option<T> {
    let (tell, done) = mpsc::channel();
    let work = Arc::new(work);
    let own = Arc::clone(&work);
    // Nobody listens any more where it took too long.
    let thread = move || drop(tell.send(own()));
    if std::thread::Builder::new().name("write-back".to_owned()).spawn(thread).is_err() {
        return Some(work());
    }
    loop {
        match done.recv_timeout(limit) {
            Err(mpsc::RecvTimeoutError::Timeout) if goes_on() => {}
            // It may have ended since.
            Err(_) => return done.try_recv().ok(),
            Ok(done) => return Some(done),
        }
    }
}

fn write_back_now(path: &Path) -> WrittenBack {
    let (device, is_free) = match claim(path) {
        Ok(device) => (Ok(device), Ok(())),
        Err(error) if is_claimed_error(&error) => {
            // What a file system has not written yet is not the device's: syncing that would leave it behind.
            // That waits for all disks of this machine, of which one may never answer; the kernel writes all of them meanwhile.
            let last = RefCell::new(completed(path));
            within(rustix::fs::sync, RESTS_FOR, || {
                let now = completed(path);
                // Unknown is no reason to give up.
                last.replace(now) != now || now.is_none()
            });
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

/// Reads and writes that a block device has completed, as the kernel counts them.
fn completed(path: &Path) -> Option<[u64; 2]> {
    let folder = Path::new("/sys/class/block").join(path.file_name()?);
    let text = std::fs::read_to_string(folder.join("stat")).ok()?;
    let number = |place: usize| text.split_ascii_whitespace().nth(place)?.parse().ok();
    Some([number(0)?, number(4)?])
}

/// Tells if somebody has claimed a block device: mounted it, or made another device of it.
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use cryptline_testkit::scripted::{Call, Silent};

    use super::*;

    #[test]
    fn work_that_never_ends_is_waited_for_as_long_as_there_is_hope() {
        let (_kept, never) = mpsc::channel::<()>();
        let never = std::sync::Mutex::new(never);
        let looks = Cell::new(0);
        let hopes = || looks.replace(looks.get() + 1) < 3;
        assert_eq!(within(move || cryptline_sys::lock(&never).recv(), Duration::ZERO, hopes), None);
        assert_eq!(looks.get(), 4);
        assert_eq!(within(|| 7, Duration::ZERO, || true), Some(7));
    }

    #[test]
    fn device_of_a_silent_medium_is_not_written_back_for_ever() {
        let medium = Silent::new(1 << 20);
        medium.fall_silent(&Call::ALL);
        let gate = medium.gate();
        // Opening it for reading waits for somebody who writes.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("device");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
        let moment = Duration::from_millis(10);
        let is_silent = || is_silent(&gate, BackendChoice::Auto, moment);
        let (device, written) = write_back_unless(&path, moment, is_silent);
        assert!(device.is_none());
        assert!(matches!(written, Err(EndError::WriteBack { error, .. }) if error.kind() == io::ErrorKind::TimedOut));
    }
}
