//! A mount namespace of one's own: for servers of block devices, which must keep no file system mounted on them.
//!
//! The last process of a mount namespace unmounts, as it ends, what is mounted there; if that is its own device, it
//! waits for itself. So `attach` leaves its namespace before it has threads, as a slave, which sees others unmount.
//! Where mounts are private it would not see that and keep others' disks in use, so it forgets those once its device is
//! there; open files stay open.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::fuse::{Unmount, unescaped, unmount};

/// Gives the calling thread, and those that it starts later, a mount namespace of their own. What is mounted and
/// unmounted elsewhere shows here as well where mounts are shared, and nothing that is done here shows elsewhere.
///
/// Errors: `PermissionDenied` for who may not. After any error, nothing is to be unmounted.
pub fn leave_mount_namespace() -> io::Result<()> {
    // SAFETY: takes no memory. The thread's view of files becomes its own; descriptors and memory stay shared.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let flags = libc::MS_REC | libc::MS_SLAVE;
    let none = std::ptr::null();
    // SAFETY: a live C string, and no other memory where only the kind of propagation changes.
    if unsafe { libc::mount(none, c"/".as_ptr(), none, flags, none.cast()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Lazily unmounts the file systems of block devices, but not the root and those that have one of the paths in `keep`.
/// Only for a namespace that was left to us: elsewhere they stay, and can be unmounted without us.
pub fn forget_mounts_of_disks(keep: &[PathBuf]) {
    let Ok(table) = std::fs::read("/proc/self/mountinfo") else {
        return;
    };
    for point in mounts_of_disks(&table, keep) {
        // It may have gone with the one below it.
        let _ = unmount(&point, Unmount::Lazy);
    }
}

/// Where they are, the last one first.
fn mounts_of_disks(table: &[u8], keep: &[PathBuf]) -> Vec<PathBuf> {
    let lines = table.split(|byte| *byte == b'\n').rev();
    lines
        .filter_map(point_of_disk)
        .filter(|point| point != Path::new("/") && !keep.iter().any(|it| it.starts_with(point)))
        .collect()
}

/// The mount point in a line of the table, where its source is a device and no other namespace sees what is done to it.
fn point_of_disk(line: &[u8]) -> Option<PathBuf> {
    let mut fields = line.split(|byte| *byte == b' ');
    let point = unescaped(fields.nth(4)?);
    // Behind the options, and up to a lone hyphen: what the mount shares with others.
    let mut shared = fields.by_ref().skip(1).take_while(|it| *it != b"-");
    if shared.any(|it| it.starts_with(b"shared:")) {
        return None;
    }
    let source = fields.nth(1)?;
    let is_disk = source.starts_with(b"/dev/");
    is_disk.then(|| PathBuf::from(OsStr::from_bytes(&point)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
21 1 8:1 / / rw master:1 - ext4 /dev/sda1 rw
22 21 0:20 / /proc rw master:2 - proc proc rw
23 21 8:2 / /home rw,nosuid master:3 - btrfs /dev/sda2 rw
24 21 259:0 / /mnt/a\\040b rw - ext4 /dev/ublkb0 rw
25 21 8:3 / /var rw - xfs /dev/sda3 rw
26 21 43:0 / /mnt/shared rw shared:9 master:4 - ext4 /dev/nbd0 rw
27 21 0:40 / /srv rw - nfs server:/srv rw
nonsense
";

    #[test]
    fn file_systems_of_disks_are_forgotten_where_nobody_needs_or_sees_them() {
        let forgotten = |keep: &[PathBuf]| mounts_of_disks(TABLE, keep);
        let all = ["/var", "/mnt/a b", "/home"].map(PathBuf::from);
        assert_eq!(forgotten(&[]), all);
        let keep = ["/var/run/cryptline", "/homes"].map(PathBuf::from);
        assert_eq!(forgotten(&keep), all[1..]);
    }
}
