//! The kernel's own device for a part of a disk: `/dev/sdb1` for `/dev/sdb?partition=1`.
//!
//! Other programs lock the header by it, and what the kernel keeps in memory of the disk is not what it keeps of the
//! partition. So a header that lies on just what the kernel has as a partition is read and changed by that.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::Result;
use crate::base::BaseSource;
use crate::target::Target;

/// Unit in which the kernel counts partitions, whatever the sectors of the disk.
const SECTOR: u64 = 512;

/// The device of a partition.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OwnDevice {
    pub path: PathBuf,
    /// `MAJOR:MINOR`.
    number: String,
}

impl OwnDevice {
    /// Where `source` is a part of a block device.
    pub fn of(source: &BaseSource) -> Result<Option<Self>> {
        let BaseSource::Target(Target::Slice(slice)) = source else {
            return Ok(None);
        };
        if !matches!(slice.of, Target::Path(_)) {
            return Ok(None);
        }
        let look = source.look()?;
        let disk = look.device_number.as_ref().map(|number| Path::new("/sys/dev/block").join(number));
        Ok(disk.and_then(|disk| Self::find(&disk, look.start, look.size)))
    }

    /// In what the kernel says of a disk.
    fn find(disk: &Path, start: u64, size: u64) -> Option<Self> {
        let folders = fs::read_dir(disk).ok()?.flatten().map(|it| it.path());
        let is_it = |folder: &PathBuf| {
            let sectors = |name: &str| text(folder, name)?.parse::<u64>().ok();
            let is_at = |name: &str, bytes: u64| sectors(name).and_then(|it| it.checked_mul(SECTOR)) == Some(bytes);
            folder.join("partition").exists() && is_at("start", start) && is_at("size", size)
        };
        let folder = folders.into_iter().find(is_it)?;
        let known = text(&folder, "uevent")?;
        let name = known.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
        Some(Self { path: Path::new("/dev").join(name), number: text(&folder, "dev")? })
    }

    /// A container need not have it.
    pub fn is_there(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|found| {
            let number = found.rdev();
            let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
            found.file_type().is_block_device() && self.number == format!("{major}:{minor}")
        })
    }
}

fn text(folder: &Path, name: &str) -> Option<String> {
    let text = fs::read_to_string(folder.join(name)).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_is_found_by_just_its_range() {
        let disk = tempfile::tempdir().unwrap();
        let put = |folder: &str, files: &[(&str, &str)]| {
            fs::create_dir(disk.path().join(folder)).unwrap();
            for (name, text) in files {
                fs::write(disk.path().join(folder).join(name), text).unwrap();
            }
        };
        for (name, start) in [("sdb1", "2048\n"), ("sdb2", "10240\n")] {
            let event = format!("MAJOR=8\nDEVNAME={name}\nPARTN=1\n");
            let files = [("start", start), ("size", "8192\n"), ("partition", "1\n")];
            put(name, &files);
            fs::write(disk.path().join(name).join("uevent"), event).unwrap();
            fs::write(disk.path().join(name).join("dev"), "8:18\n").unwrap();
        }
        put("queue", &[("size", "8192\n")]);
        let find = |start, size| OwnDevice::find(disk.path(), start, size);
        let found = find(10240 * 512, 8192 * 512).unwrap();
        assert_eq!(found.path, Path::new("/dev/sdb2"));
        assert_eq!(found.number, "8:18");
        assert_eq!(find(2048 * 512, 8191 * 512), None);
        assert_eq!(find(0, 8192 * 512), None);
        let elsewhere = disk.path().join("none");
        assert_eq!(OwnDevice::find(&elsewhere, 0, 512), None);
    }
}
