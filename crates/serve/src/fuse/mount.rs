//! Mounts: by mount(2) where that is allowed, otherwise by the system's helper.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use cryptline_sys::{FuseMount, Unmount};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::Errno;

use super::TRANSFER_MAX;
use super::nodes::MountedOver;

/// The type of our mounts is `fuse.` and this.
const SUBTYPE: &str = "cryptline";

/// Description of a mount to be made.
#[derive(Debug)]
pub struct MountWanted<'a> {
    /// Where: a file, or an empty folder. An absolute path without links.
    pub point: PathBuf,
    /// Descriptor of what was found there. If the path leads elsewhere by now, nothing is mounted.
    pub place: BorrowedFd<'a>,
    /// Which of the two.
    pub over: MountedOver,
    /// Its name in the table of mounts.
    pub source: String,
    /// Nobody can write.
    pub read_only: bool,
    /// Other users, root among them, may use it.
    pub allow_other: bool,
}

/// Why nothing is mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The system has no FUSE, or keeps it from us.
    #[error("cannot open /dev/fuse: {0}")]
    NoDevice(io::Error),
    /// mount(2) is not allowed, and there is nobody who may.
    #[error("this user may not mount, and there is no fusermount3, which could do it")]
    NoHelper,
    /// The helper refuses.
    #[error("fusermount3: {0}")]
    Helper(io::Error),
    /// Any other error of the system's.
    #[error("{0}")]
    System(io::Error),
    /// The path leads elsewhere.
    #[error("it has been moved or replaced meanwhile")]
    Moved,
    /// In use.
    #[error("it is in use")]
    Busy,
    /// No mount of ours.
    #[error("no volume is mounted there")]
    NotMounted,
}

/// A mount; undone when it is dropped, lazily where it is in use.
#[derive(Debug)]
pub struct Mount {
    point: PathBuf,
    by_helper: bool,
    is_mounted: bool,
    identity: Option<String>,
}

impl Mount {
    /// Mounts, and gives the `lanes` descriptors to serve it with.
    pub fn new(wanted: &MountWanted<'_>, lanes: usize) -> Result<(Self, Vec<OwnedFd>), MountError> {
        check_place(wanted)?;
        let before = identity_at(&wanted.point);
        let (first, by_helper) = Self::begin(wanted)?;
        // From here on an error unmounts, except where it is somewhere else.
        let mounted = Self {
            point: wanted.point.clone(),
            by_helper,
            is_mounted: true,
            identity: identity_at(&wanted.point).filter(|it| before.as_ref() != Some(it)),
        };
        if mounted.identity.is_none() {
            if let Ok(elsewhere) = path_of(wanted.place) {
                let _ = unmount(&elsewhere, true, None);
            }
            return Err(MountError::Moved);
        }
        let mut descriptors = Vec::with_capacity(lanes.max(1));
        for _ in 1..lanes.max(1) {
            let clone = cryptline_sys::clone_fuse(&first);
            descriptors.push(clone.map_err(MountError::System)?);
        }
        descriptors.push(first);
        Ok((mounted, descriptors))
    }

    /// The first descriptor, and whether the helper has mounted.
    fn begin(wanted: &MountWanted<'_>) -> Result<(OwnedFd, bool), MountError> {
        let mount = FuseMount {
            point: &wanted.point,
            place: wanted.place,
            is_file: wanted.over == MountedOver::File,
            source: &wanted.source,
            subtype: SUBTYPE,
            read_only: wanted.read_only,
            allow_other: wanted.allow_other,
            read_max: TRANSFER_MAX,
        };
        match mount.mount() {
            Ok(first) => Ok((first, false)),
            Err(error) if !Path::new("/dev/fuse").exists() => Err(MountError::NoDevice(error)),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let first = mount.mount_by_helper().map_err(|error| match error.kind() {
                    io::ErrorKind::NotFound => MountError::NoHelper,
                    _ => MountError::Helper(error),
                });
                Ok((first?, true))
            }
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NODEV) => Err(MountError::NoDevice(error)),
            Err(error) => Err(MountError::System(error)),
        }
    }

    /// Returns what tells this mount from any other, for [`unmount`].
    #[must_use]
    pub fn identity(&self) -> Option<&str> {
        self.identity.as_deref()
    }

    /// Somebody else has unmounted it.
    pub fn let_go(&mut self) {
        self.is_mounted = false;
    }

    /// A way to fail what others wait for, from any thread.
    pub fn breaker(&self) -> impl Fn() + Send + Sync + use<> {
        let (point, by_helper) = (self.point.clone(), self.by_helper);
        let identity = self.identity.clone();
        move || {
            if !by_helper && is_there(&point, identity.as_deref()) {
                // Where it fails, the end of the server does the same a little later.
                let _ = cryptline_sys::unmount(&point, Unmount::Force);
            }
        }
    }

    /// Unmounts; lazily where it is in use.
    pub fn end(&mut self) -> Result<(), MountError> {
        // Where somebody else has unmounted it, something else may be there now.
        let is_there = is_there(&self.point, self.identity.as_deref());
        if !std::mem::take(&mut self.is_mounted) || !is_there {
            return Ok(());
        }
        match undo(&self.point, self.by_helper, false) {
            Err(MountError::Busy | MountError::Helper(_)) => undo(&self.point, self.by_helper, true),
            // Somebody else has been faster.
            Err(MountError::NotMounted) => Ok(()),
            ended => ended,
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Nobody is left to be told.
        let _ = self.end();
    }
}

fn undo(point: &Path, by_helper: bool, lazily: bool) -> Result<(), MountError> {
    if by_helper {
        return cryptline_sys::unmount_by_helper(point, lazily).map_err(|error| {
            match error.kind() {
                io::ErrorKind::NotFound => MountError::NoHelper,
                // As it says itself behind the path: it may also be somebody else's mount.
                _ if !lazily && error.to_string().ends_with("resource busy") => MountError::Busy,
                _ => MountError::Helper(error),
            }
        });
    }
    let how = if lazily { Unmount::Lazy } else { Unmount::Idle };
    cryptline_sys::unmount(point, how).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => MountError::Busy,
        io::ErrorKind::InvalidInput => MountError::NotMounted,
        _ => MountError::System(error),
    })
}

/// Unmounts the volume that is mounted over `point`, an absolute path: also one whose server has died. With an
/// `identity`, no other mount than that one.
pub fn unmount(point: &Path, lazily: bool, identity: Option<&str>) -> Result<(), MountError> {
    let found = identity_at(point).ok_or(MountError::NotMounted)?;
    if identity.is_some_and(|identity| identity != found) {
        return Err(MountError::NotMounted);
    }
    match undo(point, false, lazily) {
        Err(MountError::System(error)) if error.kind() == io::ErrorKind::PermissionDenied => undo(point, true, lazily),
        ended => ended,
    }
}

/// Returns what tells the top mount over `point`, an absolute path, from any other, where it is one of ours.
#[must_use]
pub fn identity_at(point: &Path) -> Option<String> {
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    let found = cryptline_sys::find_fuse_mount(&table, point)?;
    let unique = unique_number(point).unwrap_or(0);
    (found.subtype == SUBTYPE).then(|| format!("{} {unique}", found.numbers))
}

/// Numbers of mounts and devices are used again at once. Linux 6.8 also has one that is not. The file system itself
/// is not asked: its server may have died, or may not have begun.
fn unique_number(point: &Path) -> Option<u64> {
    /// `STATX_MNT_ID_UNIQUE`
    const UNIQUE: u32 = 0x4000;
    let how = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    let wanted = StatxFlags::from_bits_retain(UNIQUE);
    let found = rustix::fs::statx(CWD, point, how, wanted).ok()?;
    (found.stx_mask & UNIQUE != 0).then_some(found.stx_mnt_id)
}

/// A mount without an identity is nobody's.
fn is_there(point: &Path, identity: Option<&str>) -> bool {
    identity.is_some() && identity_at(point).as_deref() == identity
}

fn check_place(wanted: &MountWanted<'_>) -> Result<(), MountError> {
    let path = path_of(wanted.place).map_err(MountError::System)?;
    (path == wanted.point).then_some(()).ok_or(MountError::Moved)
}

/// Where a file or folder is now.
fn path_of(descriptor: BorrowedFd<'_>) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
}

#[cfg(test)]
#[path = "mount_tests.rs"]
mod tests;
