//! Landlock: no file can be opened, made or changed by name but the disks that are open already, no TCP port bound or
//! reached. What the server made in the file system may be removed, and nothing else but what lies beside it and below:
//! Linux knows that right for folders only.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use cryptline_sys::Landlock;
use rustix::fs::{FileType, OFlags};

use crate::serve::cleanup::folder_of;

/// Actions on names that a confined thread may take.
#[derive(Debug, Default)]
pub struct AllowedActions<'fd> {
    /// Disks that each queue opens once more.
    pub disks: Vec<BorrowedFd<'fd>>,
    /// Files and sockets to remove.
    pub files: Vec<PathBuf>,
    /// Empty folders to remove.
    pub folders: Vec<PathBuf>,
    /// A process outside must be signalled.
    pub signals: bool,
    /// TCP ports elsewhere may be reached.
    pub connections: bool,
    /// Unix sockets elsewhere may be reached, by path or abstract name.
    pub unix: bool,
}

impl AllowedActions<'_> {
    /// All else is given up.
    fn forbidden(&self) -> Landlock {
        let mut forbidden = Landlock::ALL;
        if self.unix {
            forbidden.files &= !Landlock::RESOLVE_UNIX;
            forbidden.scopes &= !Landlock::ABSTRACT_UNIX;
        }
        if self.signals {
            forbidden.scopes &= !Landlock::SIGNAL;
        }
        if self.connections {
            forbidden.network &= !Landlock::CONNECT_TCP;
        }
        forbidden
    }
}

/// A ruleset that allows this, to be applied to threads.
pub fn ruleset(allowed: &AllowedActions<'_>) -> io::Result<OwnedFd> {
    let folders = |paths: &[PathBuf], right| {
        let mut options = File::options();
        options.read(true).custom_flags(OFlags::PATH.bits().cast_signed());
        // A folder that cannot be opened now cannot be changed later either.
        let open = |path: &PathBuf| options.open(folder_of(path)).ok();
        paths.iter().filter_map(open).map(|folder| (folder, right)).collect::<Vec<_>>()
    };
    let mut left = folders(&allowed.files, Landlock::REMOVE_FILE);
    left.extend(folders(&allowed.folders, Landlock::REMOVE_FOLDER));
    let mut left: Vec<_> = left.iter().map(|(folder, right)| (folder.as_fd(), *right)).collect();
    left.extend(allowed.disks.iter().filter_map(|disk| Some((*disk, rights(*disk)?))));
    allowed.forbidden().ruleset(&left)
}

/// The rights with which a disk is open; `None` for what is neither a file nor a block device.
fn rights(disk: BorrowedFd<'_>) -> Option<u64> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(disk).ok()?.st_mode);
    let device = match kind {
        FileType::RegularFile => 0,
        FileType::BlockDevice => Landlock::IOCTL_DEVICE,
        _ => return None,
    };
    let writes = rustix::fs::fcntl_getfl(disk).ok()?.contains(OFlags::RDWR);
    Some(Landlock::READ_FILE | if writes { Landlock::WRITE_FILE } else { 0 } | device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_sockets_are_reached_only_where_a_server_below_has_one() {
        for unix in [false, true] {
            let forbidden = AllowedActions { unix, ..AllowedActions::default() }.forbidden();
            assert_eq!(forbidden.files & Landlock::RESOLVE_UNIX == 0, unix);
            assert_eq!(forbidden.scopes & Landlock::ABSTRACT_UNIX == 0, unix);
            assert!(forbidden.scopes & Landlock::SIGNAL != 0);
        }
    }
}
