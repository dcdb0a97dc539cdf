//! Where a mount can be made.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cryptline::Target;
use cryptline_serve::fuse::{self, MountedOver};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::CliError;
use crate::serve::cleanup::folder_of;

/// A mount point that can be used.
pub struct MountPoint {
    /// From the root, without links.
    pub point: PathBuf,
    pub over: MountedOver,
}

impl MountPoint {
    /// With a descriptor of what is there.
    pub fn find(point: &Path) -> Result<(Self, OwnedFd), CliError> {
        let shown = point.display();
        let failed = |error: io::Error| {
            if Errno::from_io_error(&error) == Some(Errno::NOTCONN) {
                return CliError::busy(format!(
                    "{shown}: the server of a mount has died here; `cryptline detach {shown}` removes it"
                ));
            }
            let advice = match error.kind() {
                io::ErrorKind::NotFound => "; make a folder there first",
                _ => "",
            };
            CliError::parameters(format!("{shown}: {error}{advice}"))
        };
        let kind = fs::metadata(point).map_err(failed)?;
        let over = if kind.is_dir() {
            if fs::read_dir(point).map_err(failed)?.next().is_some() {
                return Err(CliError::parameters(format!("{shown}: the folder is not empty; use an empty one")));
            }
            MountedOver::Folder
        } else if kind.is_file() {
            MountedOver::File
        } else {
            return Err(CliError::parameters(format!("{shown}: neither a folder nor a file; use an empty folder")));
        };
        let point = fs::canonicalize(point).map_err(failed)?;
        // A folder with a mount is not empty.
        if over == MountedOver::File && fuse::identity_at(&point).is_some() {
            return Err(CliError::busy(format!(
                "{shown}: a volume is mounted there already; `cryptline detach {shown}` ends that"
            )));
        }
        let how = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = rustix::fs::open(&point, how, Mode::empty());
        let found = fs::File::from(found.map_err(|error| failed(error.into()))?);
        let now = found.metadata().map_err(failed)?;
        if (now.dev(), now.ino()) != (kind.dev(), kind.ino()) {
            return Err(CliError::busy(format!("{shown}: it was replaced meanwhile; try again")));
        }
        Ok((Self { point, over }, found.into()))
    }

    /// Refuses to hide what a volume lies on: others could not reach it any more.
    pub fn check_targets(&self, targets: &[OsString], header: Option<&Path>) -> Result<(), CliError> {
        let identity = |path: &Path| {
            let found = fs::metadata(path).ok()?;
            Some((found.dev(), found.ino()))
        };
        let own = identity(&self.point);
        let parsed: Vec<_> = targets.iter().flat_map(Target::parse).collect();
        let mut paths = parsed.iter().filter_map(Target::path).chain(header);
        if paths.any(|path| identity(path) == own) {
            return Err(CliError::parameters(format!(
                "{}: that is the target; use an empty folder or another file",
                self.point.display()
            )));
        }
        Ok(())
    }

    /// Tells if `path` will be in the mount, or is what the mount is over.
    pub fn contains(&self, path: &Path) -> bool {
        let Ok(folder) = fs::canonicalize(folder_of(path)) else {
            return false;
        };
        let whole = path.file_name().map(|name| folder.join(name));
        folder.starts_with(&self.point) || whole.as_ref() == Some(&self.point)
    }
}
