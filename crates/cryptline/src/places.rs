//! Whether two paths lead to the same bytes: by links, loop devices, or a partition and its disk.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Loop devices over loop devices that are followed.
const DEPTH_MAX: usize = 8;

/// A file or device, whatever its name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    File { device: u64, inode: u64 },
    Device(u64),
}

/// Whether what is written to one is written to the other.
pub(crate) fn overlap(one: &Path, other: &Path) -> bool {
    let (one, other) = (below(one), below(other));
    let (Some(first), Some(second)) = (one.first(), other.first()) else {
        return false;
    };
    // Two partitions of one disk have the disk in common, and nothing else.
    one.contains(second) || other.contains(first)
}

/// Whether a file of one name would be written over by one of the other, though neither may be there yet.
pub(crate) fn is_one_name(one: &Path, other: &Path) -> bool {
    overlap(one, other) || settled(one) == settled(other)
}

/// `path` with its links resolved, those of its folder at least.
fn settled(path: &Path) -> PathBuf {
    let in_folder = || {
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
        Some(folder.join(path.file_name()?))
    };
    path.canonicalize().ok().or_else(in_folder).unwrap_or_else(|| path.to_owned())
}

/// What `path` is, and what that lies on.
fn below(path: &Path) -> Vec<Place> {
    let mut places = Vec::new();
    let mut next = Some(path.to_owned());
    while let Some(path) = next.take()
        && places.len() < DEPTH_MAX
        && let Ok(metadata) = fs::metadata(&path)
    {
        if !metadata.file_type().is_block_device() {
            places.push(match metadata.rdev() {
                0 => Place::File { device: metadata.dev(), inode: metadata.ino() },
                device => Place::Device(device),
            });
            break;
        }
        let number = metadata.rdev();
        places.push(Place::Device(number));
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let system = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let mut backing = system.join("loop/backing_file");
        if system.join("partition").exists()
            && let Some(disk) = disk_of(&system)
        {
            places.push(Place::Device(disk));
            backing = system.join("../loop/backing_file");
        }
        // A file that was removed has " (deleted)" behind its name, and nobody can name it.
        next = fs::read_to_string(backing).ok().map(|path| PathBuf::from(path.trim_end_matches('\n')));
    }
    places
}

/// The number of the disk that a partition belongs to.
fn disk_of(partition: &Path) -> Option<u64> {
    let text = fs::read_to_string(partition.join("../dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_what_is_not_there_yet_are_one_by_any_way_to_its_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let [real, link] = ["real", "link"].map(|name| folder.path().join(name));
        fs::create_dir(&real).expect("a folder");
        std::os::unix::fs::symlink("real", &link).expect("a link");
        for other in [link.join("new"), real.join("./new"), real.join("../link/new")] {
            assert!(is_one_name(&real.join("new"), &other), "{other:?}");
        }
        assert!(!is_one_name(&real.join("new"), &real.join("other")));
        assert!(!is_one_name(&real.join("new"), &folder.path().join("new")));
        assert!(is_one_name(Path::new("new"), Path::new("./new")));
        let missing = folder.path().join("missing");
        assert!(!is_one_name(&missing.join("a"), &missing.join("b")));
        fs::write(real.join("new"), "x").expect("a file");
        assert!(is_one_name(&real.join("new"), &link.join("new")));
    }

    #[test]
    fn names_of_one_file_overlap_and_two_files_do_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let [one, hard, soft, other, none] =
            ["one", "hard", "soft", "other", "none"].map(|name| folder.path().join(name));
        fs::write(&one, "x").expect("a file");
        fs::write(&other, "x").expect("a file");
        fs::hard_link(&one, &hard).expect("a link");
        std::os::unix::fs::symlink(&one, &soft).expect("a link");
        for name in [&one, &hard, &soft] {
            assert!(overlap(&one, name) && overlap(name, &one));
            assert!(!overlap(name, &other) && !overlap(name, &none));
        }
        let (null, zero) = (Path::new("/dev/null"), Path::new("/dev/zero"));
        assert!(overlap(null, null) && !overlap(null, zero));
    }
}
