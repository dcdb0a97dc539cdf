//! The locks that cryptsetup takes while it reads or writes a LUKS2 header.
//!
//! ```text
//! regular file   flock of the file itself
//! block device   flock of /run/cryptsetup/L_MAJOR:MINOR, where that folder is there or can be made
//! reencryption   flock of /run/cryptsetup/LN_LUKS2-reencryption-UUID, from its beginning to its end
//! ```
//!
//! Where that folder is root's and nobody else's, the device itself is locked. cryptsetup does not look
//! there, but others who use this library do. Of reencryption only the header tells there.
//!
//! Whoever has a volume open shares the lock of reencryption; a server in its sandbox leaves the empty file behind.

use std::fs::{DirBuilder, File};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use cryptline_luks::LuksHeader;
use cryptline_luks::format::LuksVersion;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::error::Problem;

/// Where cryptsetup has its locks.
const FOLDER: &str = "/run/cryptsetup";
const PAUSE: Duration = Duration::from_millis(20);

/// Kind of lock that is wanted.
#[derive(Clone, Copy)]
struct LockKind {
    how: FlockOperation,
    patience: Duration,
    /// Somebody else keeps it.
    held: fn() -> Problem,
}

/// Others hold the lock of a header only while they read or write.
const CHANGE: LockKind = LockKind {
    how: FlockOperation::NonBlockingLockExclusive,
    patience: Duration::from_secs(5),
    held: || Problem::HeaderLocked,
};

/// Where locks are of ranges below, as on NFS, what is open for reading takes no other.
const READ: LockKind = LockKind { how: FlockOperation::NonBlockingLockShared, ..CHANGE };

/// Whoever reencrypts keeps it for hours; who removes it, for a moment.
const USE: LockKind = LockKind {
    how: FlockOperation::NonBlockingLockShared,
    patience: Duration::from_secs(1),
    held: || Problem::Reencrypting,
};

/// Held until dropped.
pub(super) enum Lock<'a> {
    File(&'a File),
    Device {
        file: File,
        path: PathBuf,
    },
    /// The file system knows no locks.
    None,
}

impl<'a> Lock<'a> {
    /// Waits for the lock of an open file or device, whose header is to be changed, but not for long.
    pub fn to_change(file: &'a File) -> Result<Self, Problem> {
        Self::take(file, CHANGE)
    }

    /// The same for a header that is to be read, as others may do at the same time.
    pub fn to_read(file: &'a File) -> Result<Self, Problem> {
        Self::take(file, READ)
    }

    fn take(file: &'a File, wanted: LockKind) -> Result<Self, Problem> {
        let action = "lock";
        let metadata = file.metadata().map_err(|source| Problem::Io { action, source })?;
        if !metadata.file_type().is_block_device() {
            return Self::of_file(file, wanted);
        }
        let number = metadata.rdev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let name = format!("L_{major}:{minor}");
        Self::of_device(file, Path::new(FOLDER), &name, wanted)
    }

    fn of_file(file: &'a File, wanted: LockKind) -> Result<Self, Problem> {
        Ok(if wait(file, wanted)? { Self::File(file) } else { Self::None })
    }

    fn of_device(device: &'a File, folder: &Path, name: &str, wanted: LockKind) -> Result<Self, Problem> {
        let path = folder.join(name);
        match named(folder, &path, wanted)? {
            Some(file) => Ok(Self::Device { file, path }),
            None => Self::of_file(device, wanted),
        }
    }
}

/// cryptsetup's lock of whoever uses a LUKS2 volume: nobody reencrypts it while that is kept. Others may use it, too.
///
/// Every open [`Volume`](crate::Volume) keeps one. A program that finds the key of a volume for another process, one
/// that may open nothing, takes it with [`Inspection::in_use`](crate::Inspection::in_use): the lock belongs to the open
/// file, so it goes along with a descriptor of that. There, [`Open::in_use`](crate::Open::in_use) keeps it.
#[derive(Debug)]
pub struct InUse {
    // Closed before the other is dropped.
    file: File,
    _name: LockName,
}

impl AsFd for InUse {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl InUse {
    /// `None` for LUKS1, which is not reencrypted so, and where the folder is not for us.
    pub(crate) fn of(header: &LuksHeader) -> Result<Option<Self>, Problem> {
        match header.version() {
            LuksVersion::Luks1 => Ok(None),
            LuksVersion::Luks2 => Self::in_folder(Path::new(FOLDER), header.uuid()),
        }
    }

    fn in_folder(folder: &Path, uuid: &str) -> Result<Option<Self>, Problem> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if uuid.is_empty() || !uuid.bytes().all(is_plain) {
            return Ok(None);
        }
        let path = folder.join(format!("LN_LUKS2-reencryption-{uuid}"));
        let file = named(folder, &path, USE)?;
        let named = |file| Self { file, _name: LockName(path) };
        Ok(file.map(named))
    }
}

/// Where a lock of those who use a volume is. The last one removes it, as cryptsetup does.
#[derive(Debug)]
struct LockName(PathBuf);

impl Drop for LockName {
    fn drop(&mut self) {
        // Opened anew: another process may share the open file that was closed here, and its lock would become ours.
        // Who may open nothing any more, as a server in a sandbox, leaves it to the next who uses the volume.
        if let Ok(file) = File::open(&self.0) {
            remove_last(&file, &self.0);
        }
    }
}

/// The last one that has a lock removes its file, as cryptsetup does.
fn remove_last(file: &File, path: &Path) {
    let alone = flock(file, FlockOperation::NonBlockingLockExclusive);
    if alone.is_ok() && is_at(file, path) {
        let _ = std::fs::remove_file(path);
    }
}

/// The lock of a file in the folder of locks; `None` where there can be none.
fn named(folder: &Path, path: &Path, wanted: LockKind) -> Result<Option<File>, Problem> {
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
            .open(path);
        let Ok(file) = opened else { return Ok(None) };
        if !wait(&file, wanted)? {
            return Ok(None);
        }
        // Whoever held it has removed it: others will lock another file of this name.
        if is_at(&file, path) {
            return Ok(Some(file));
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let identity = |of: std::io::Result<std::fs::Metadata>| of.map(|metadata| (metadata.dev(), metadata.ino())).ok();
    identity(file.metadata()) == identity(std::fs::symlink_metadata(path))
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        match self {
            Self::File(file) => _ = flock(file, FlockOperation::Unlock),
            Self::Device { file, path } => remove_last(file, path),
            Self::None => {}
        }
    }
}

/// Tells if it is locked now; `false` where nothing can be locked.
fn wait(file: &File, wanted: LockKind) -> Result<bool, Problem> {
    let start = Instant::now();
    loop {
        match flock(file, wanted.how) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK | Errno::INTR) if start.elapsed() < wanted.patience => {
                sleep(PAUSE);
            }
            Err(Errno::WOULDBLOCK | Errno::INTR) => return Err((wanted.held)()),
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
        let lock = Lock::to_change(&one).unwrap();
        assert!(matches!(lock, Lock::File(_)));
        assert_eq!(flock(&two, FlockOperation::NonBlockingLockShared), Err(Errno::WOULDBLOCK));
        drop(lock);
        flock(&two, FlockOperation::NonBlockingLockShared).unwrap();
    }

    #[test]
    fn lock_of_a_device_is_a_file_that_goes_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("L_7:0");
        let device = tempfile::tempfile().unwrap();
        let lock = Lock::of_device(&device, folder.path(), "L_7:0", CHANGE).unwrap();
        let other = File::open(&path).unwrap();
        assert_eq!(flock(&other, FlockOperation::NonBlockingLockExclusive), Err(Errno::WOULDBLOCK));
        drop(lock);
        assert!(!path.exists());
        let missing = folder.path().join("missing");
        assert!(matches!(Lock::of_device(&device, &missing, "L_7:0", CHANGE).unwrap(), Lock::Device { .. }));
    }

    #[test]
    fn device_itself_is_locked_where_the_folder_cannot_be_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = tempfile::NamedTempFile::new().unwrap();
        let (one, two) = (path.reopen().unwrap(), path.reopen().unwrap());
        let nowhere = folder.path().join("not/there");
        let lock = Lock::of_device(&one, &nowhere, "L_7:0", CHANGE).unwrap();
        assert_eq!(flock(&two, FlockOperation::NonBlockingLockExclusive), Err(Errno::WOULDBLOCK));
        drop(lock);
        flock(&two, FlockOperation::NonBlockingLockExclusive).unwrap();
    }

    #[test]
    fn readers_share_a_lock_and_the_last_one_removes_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("L_7:0");
        let file = tempfile::NamedTempFile::new().unwrap();
        let read_only = [(); 2].map(|()| File::open(file.path()).unwrap());
        let readers = read_only.each_ref();
        let shared = readers.map(|file| Lock::to_read(file).unwrap());
        assert_eq!(flock(&file, FlockOperation::NonBlockingLockExclusive), Err(Errno::WOULDBLOCK));
        drop(shared);
        let [one, two] = readers.map(|file| Lock::of_device(file, folder.path(), "L_7:0", READ).unwrap());
        drop(one);
        let locked = flock(File::open(&path).unwrap(), FlockOperation::NonBlockingLockExclusive);
        assert_eq!(locked, Err(Errno::WOULDBLOCK));
        drop(two);
        assert!(!path.exists());
    }

    #[test]
    fn volume_is_used_by_several_and_reencrypted_by_nobody_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let uuid = "01234567-89ab-cdef-0123-456789abcdef";
        let path = folder.path().join(format!("LN_LUKS2-reencryption-{uuid}"));
        let take = || InUse::in_folder(folder.path(), uuid);
        let (one, two) = (take().unwrap().unwrap(), take().unwrap().unwrap());
        let reencrypts = || {
            let file = File::open(&path).unwrap();
            flock(&file, FlockOperation::NonBlockingLockExclusive).map(|()| file)
        };
        drop(one);
        assert_eq!(reencrypts().unwrap_err(), Errno::WOULDBLOCK);
        drop(two);
        assert!(!path.exists());
        std::fs::write(&path, "").unwrap();
        let held = reencrypts().unwrap();
        assert!(matches!(take(), Err(Problem::Reencrypting)));
        drop(held);
        assert!(take().unwrap().is_some());
        for odd in ["", "../x", "a/b"] {
            assert!(InUse::in_folder(folder.path(), odd).unwrap().is_none());
        }
        let nowhere = folder.path().join("not/there");
        assert!(InUse::in_folder(&nowhere, uuid).unwrap().is_none());
    }

    #[test]
    fn lock_that_was_passed_on_stays_when_its_first_holder_goes() {
        let folder = tempfile::tempdir().unwrap();
        let uuid = "01234567-89ab-cdef-0123-456789abcdef";
        let taken = InUse::in_folder(folder.path(), uuid).unwrap().unwrap();
        let path = folder.path().join(format!("LN_LUKS2-reencryption-{uuid}"));
        let passed_on = taken.as_fd().try_clone_to_owned().unwrap();
        drop(taken);
        let file = File::open(&path).expect("it was removed while it is held");
        let alone = || flock(&file, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(alone(), Err(Errno::WOULDBLOCK));
        drop(passed_on);
        alone().unwrap();
    }
}
