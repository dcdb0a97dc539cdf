//! The locks that cryptsetup takes while it reads or writes a LUKS2 header.
//!
//! ```text
//! regular file   flock of the file itself
//! block device   flock of /run/cryptsetup/L_MAJOR:MINOR, where that folder is there or can be made
//! ```
//!
//! Where that folder is root's and nobody else's, the device itself is locked. cryptsetup does not look
//! there, but others who use this library do.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::error::Problem;

/// Where cryptsetup has its locks.
const FOLDER: &str = "/run/cryptsetup";
/// Others hold it only while they read or write.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// Held until dropped.
pub(super) enum Lock<'a> {
    File(&'a File),
    Device {
        _file: File,
        path: PathBuf,
    },
    /// The file system knows no locks.
    None,
}

impl<'a> Lock<'a> {
    /// Waits for the lock of an open file or device, but not for long.
    pub fn take(file: &'a File) -> Result<Self, Problem> {
        let action = "lock";
        let metadata = file.metadata();
        let metadata = metadata.map_err(|source| Problem::Io { action, source })?;
        if !metadata.file_type().is_block_device() {
            return Self::of_file(file);
        }
        let number = metadata.rdev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        Self::of_device(file, Path::new(FOLDER), &format!("L_{major}:{minor}"))
    }

    fn of_file(file: &'a File) -> Result<Self, Problem> {
        Ok(if wait(file)? {
            Self::File(file)
        } else {
            Self::None
        })
    }

    fn of_device(device: &'a File, folder: &Path, name: &str) -> Result<Self, Problem> {
        let path = folder.join(name);
        // As cryptsetup does. Without it there would be no lock.
        let _ = DirBuilder::new().mode(0o700).create(folder);
        loop {
            let opened = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
                .open(&path);
            let Ok(file) = opened else {
                return Self::of_file(device);
            };
            if !wait(&file)? {
                return Self::of_file(device);
            }
            // Whoever held it has removed it: others will lock another file of this name.
            let identity = |of: std::io::Result<std::fs::Metadata>| {
                of.map(|metadata| (metadata.dev(), metadata.ino())).ok()
            };
            if identity(file.metadata()) == identity(std::fs::metadata(&path)) {
                return Ok(Self::Device { _file: file, path });
            }
        }
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        match self {
            Self::File(file) => _ = flock(file, FlockOperation::Unlock),
            // Under the lock, as cryptsetup does it.
            Self::Device { path, .. } => _ = std::fs::remove_file(path),
            Self::None => {}
        }
    }
}

/// Whether it is locked now; `false` where nothing can be locked.
fn wait(file: &File) -> Result<bool, Problem> {
    let start = Instant::now();
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK | Errno::INTR) if start.elapsed() < PATIENCE => sleep(PAUSE),
            Err(Errno::WOULDBLOCK | Errno::INTR) => return Err(Problem::HeaderLocked),
            Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(false),
            Err(error) => {
                let (action, source) = ("lock", error.into());
                return Err(Problem::Io { action, source });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_of_a_file_is_one_that_flock_respects_until_it_is_dropped() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let (one, two) = (path.reopen().unwrap(), path.reopen().unwrap());
        let lock = Lock::take(&one).unwrap();
        assert!(matches!(lock, Lock::File(_)));
        let other = flock(&two, FlockOperation::NonBlockingLockShared);
        assert_eq!(other, Err(Errno::WOULDBLOCK));
        drop(lock);
        flock(&two, FlockOperation::NonBlockingLockShared).unwrap();
    }

    #[test]
    fn lock_of_a_device_is_a_file_that_goes_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("L_7:0");
        let device = tempfile::tempfile().unwrap();
        let lock = Lock::of_device(&device, folder.path(), "L_7:0").unwrap();
        let other = File::open(&path).unwrap();
        let locked = flock(&other, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(locked, Err(Errno::WOULDBLOCK));
        drop(lock);
        assert!(!path.exists());
        let missing = folder.path().join("missing");
        let made = Lock::of_device(&device, &missing, "L_7:0").unwrap();
        assert!(matches!(made, Lock::Device { .. }));
    }

    #[test]
    fn device_itself_is_locked_where_the_folder_cannot_be_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = tempfile::NamedTempFile::new().unwrap();
        let (one, two) = (path.reopen().unwrap(), path.reopen().unwrap());
        let nowhere = folder.path().join("not/there");
        let lock = Lock::of_device(&one, &nowhere, "L_7:0").unwrap();
        let other = flock(&two, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(other, Err(Errno::WOULDBLOCK));
        drop(lock);
        flock(&two, FlockOperation::NonBlockingLockExclusive).unwrap();
    }
}
