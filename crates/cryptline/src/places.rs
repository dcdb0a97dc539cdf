//! Comparison of names that may lead to the same bytes: by links, open files, loop devices, a partition and its disk,
//! or a mapping and what it lies on.
//!
//! Files and devices are told apart by their numbers. Of a loop device the kernel tells those of its file; the path that it
//! keeps may lead elsewhere.

use std::fs::{self, File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use cryptline_sys::LoopRange;
use rustix::fs::OFlags;

/// Devices over devices that are followed.
const DEPTH_MAX: usize = 8;
/// Places of one name that are looked at: more than the largest arrays have.
const PARTS_MAX: usize = 1024;
/// Unit in which the kernel counts partitions.
const SECTOR: u64 = 512;
const SYSFS: &str = "/sys";

/// A file or device, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileOrDevice {
    File {
        device: u64,
        inode: u64,
    },
    Device(u64),
    /// More than was looked at, so any.
    Unknown,
}

/// Bytes that lie in a place.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileRange {
    place: FileOrDevice,
    bytes: Range<u64>,
    /// All of these bytes. A mapping has only some of those of its devices.
    is_all: bool,
}

/// Opens a file to be read, whatever it is: a FIFO must not make us wait for its writer.
pub(crate) fn open_unwaiting(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)
}

/// All places in which the bytes of a name lie: its own, and those below.
#[derive(Clone, Debug)]
pub(crate) struct Spot(Vec<FileRange>);

impl Spot {
    /// Of what `path` leads to; nowhere, if that is nothing.
    pub fn of(path: &Path) -> Self {
        Self::with(fs::metadata(path), || open_unwaiting(path))
    }

    /// Of a file that is open.
    pub fn of_open(file: &File) -> Self {
        Self::with(file.metadata(), || file.try_clone())
    }

    fn with(metadata: io::Result<Metadata>, open: impl FnOnce() -> io::Result<File>) -> Self {
        let Ok(metadata) = metadata else {
            return Self(Vec::new());
        };
        let mut parts = Vec::new();
        if metadata.file_type().is_block_device() {
            add(Path::new(SYSFS), metadata.rdev(), open().ok(), (0..u64::MAX, true), 0, &mut parts);
        } else {
            parts.push(FileRange { place: place_of(&metadata), bytes: 0..u64::MAX, is_all: true });
        }
        Self(parts)
    }

    /// These bytes of it.
    pub fn part(self, range: &Range<u64>) -> Self {
        // Where in the devices of a mapping they lie is not known.
        let inside =
            |part: FileRange| if part.is_all { FileRange { bytes: within(&part.bytes, range), ..part } } else { part };
        Self(self.0.into_iter().map(inside).collect())
    }

    /// Tells if what is written to one is written to the other.
    pub fn overlaps(&self, other: &Self) -> bool {
        let own = self.0.iter().enumerate();
        own.flat_map(|it| std::iter::repeat(it).zip(other.0.iter().enumerate())).any(|((n, one), (m, other))| {
            // Two mappings have a disk in common, and need no byte of it.
            let is_known = n == 0 || m == 0 || one.is_all && other.is_all;
            let meet = one.bytes.start < other.bytes.end && other.bytes.start < one.bytes.end;
            let is_one = one.place == other.place || [one.place, other.place].contains(&FileOrDevice::Unknown);
            is_one && is_known && meet
        })
    }
}

/// Tells if what is written to one is written to the other.
pub(crate) fn overlap(one: &Path, other: &Path) -> bool {
    Spot::of(one).overlaps(&Spot::of(other))
}

fn place_of(metadata: &Metadata) -> FileOrDevice {
    match metadata.rdev() {
        0 => FileOrDevice::File { device: metadata.dev(), inode: metadata.ino() },
        device => FileOrDevice::Device(device),
    }
}

/// `range` of `whole`.
fn within(whole: &Range<u64>, range: &Range<u64>) -> Range<u64> {
    let at = |offset: u64| whole.start.saturating_add(offset).min(whole.end);
    at(range.start)..at(range.end)
}

/// Adds a block device, which is open if it can be and has `depth` others over it, and what it lies on.
fn add(
    sysfs: &Path,
    number: u64,
    open: Option<File>,
    (bytes, is_all): (Range<u64>, bool),
    depth: usize,
    parts: &mut Vec<FileRange>,
) {
    if depth >= DEPTH_MAX || parts.len() >= PARTS_MAX {
        if !parts.iter().any(|part| part.place == FileOrDevice::Unknown) {
            parts.push(FileRange { place: FileOrDevice::Unknown, bytes: 0..u64::MAX, is_all: false });
        }
        return;
    }
    parts.push(FileRange { place: FileOrDevice::Device(number), bytes: bytes.clone(), is_all });
    let folder = folder_of(sysfs, number);
    let (mut disk, mut on_disk) = (folder.clone(), bytes.clone());
    if folder.join("partition").exists()
        && let Some(whole) = number_in(&folder.join(".."))
    {
        let sectors = |name: &str| number_of(&folder.join(name)).and_then(|it| it.checked_mul(SECTOR));
        // Where it lies is not known: anywhere.
        let (lies, is_known) = match sectors("start").zip(sectors("size")) {
            Some((start, size)) => (start..start.saturating_add(size), true),
            None => (0..u64::MAX, false),
        };
        on_disk = within(&lies, &bytes);
        parts.push(FileRange {
            place: FileOrDevice::Device(whole),
            bytes: on_disk.clone(),
            is_all: is_all && is_known,
        });
        disk = folder.join("..");
    }
    if disk.join("loop").exists() {
        let shown = open.as_ref().and_then(|file| LoopRange::by(file).ok().flatten());
        match shown {
            Some(LoopRange { device: Some(below), bytes: lies, .. }) => {
                let node = open_number(sysfs, below);
                add(sysfs, below, node, (within(&lies, &on_disk), is_all), depth + 1, parts);
            }
            Some(LoopRange { file: (device, inode), device: None, bytes: lies }) => {
                let place = FileOrDevice::File { device, inode };
                parts.push(FileRange { place, bytes: within(&lies, &on_disk), is_all });
            }
            // Nobody asks it who cannot open it. A file that was removed has " (deleted)" behind its name.
            None => parts.extend(named_below(&disk).map(|place| FileRange { place, bytes: 0..u64::MAX, is_all })),
        }
    }
    let slaves = fs::read_dir(disk.join("slaves")).into_iter().flatten().flatten();
    for below in slaves.filter_map(|entry| number_in(&entry.path())) {
        add(sysfs, below, open_number(sysfs, below), (0..u64::MAX, false), depth + 1, parts);
    }
}

/// Returns what a loop device is said to show.
fn named_below(folder: &Path) -> Option<FileOrDevice> {
    let path = cryptline_sys::loop_backing_file(folder)?;
    fs::metadata(path).ok().as_ref().map(place_of)
}

fn folder_of(sysfs: &Path, number: u64) -> PathBuf {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    sysfs.join(format!("dev/block/{major}:{minor}"))
}

fn open_number(sysfs: &Path, number: u64) -> Option<File> {
    let known = fs::read_to_string(folder_of(sysfs, number).join("uevent")).ok()?;
    let name = known.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
    let file = File::open(Path::new("/dev").join(name)).ok()?;
    let is_it = file.metadata().is_ok_and(|it| it.file_type().is_block_device() && it.rdev() == number);
    is_it.then_some(file)
}

/// The number of the device that has this folder.
fn number_in(folder: &Path) -> Option<u64> {
    let text = fs::read_to_string(folder.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

fn number_of(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Tells if a file of one name would be written over by one of the other, though neither may be there yet.
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

    /// A machine whose disk has two partitions, with two logical volumes on the second.
    fn machine() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let put = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        };
        let link = |to: &str, name: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::os::unix::fs::symlink(folder.path().join(to), path).expect("a link");
        };
        for (name, number) in
            [("sda", "8:0"), ("sda/sda1", "8:1"), ("sda/sda2", "8:2"), ("dm-0", "254:0"), ("dm-1", "254:1")]
        {
            put(&format!("devices/{name}/dev"), &format!("{number}\n"));
            link(&format!("devices/{name}"), &format!("dev/block/{number}"));
        }
        for (name, number, start) in [("sda1", "1", "2048"), ("sda2", "2", "6144")] {
            put(&format!("devices/sda/{name}/partition"), number);
            put(&format!("devices/sda/{name}/start"), start);
            put(&format!("devices/sda/{name}/size"), "4096\n");
        }
        for volume in ["dm-0", "dm-1"] {
            link("devices/sda/sda2", &format!("devices/{volume}/slaves/sda2"));
        }
        folder
    }

    #[test]
    fn partitions_of_a_disk_and_mappings_on_it_overlap_with_what_they_lie_on() {
        let machine = machine();
        let [disk, first, second, one, other] =
            [(8, 0), (8, 1), (8, 2), (254, 0), (254, 1)].map(|number| spot(machine.path(), number));
        let mib = |range: Range<u64>| range.start << 20..range.end << 20;
        for (one, other, expected) in [
            (&disk, &first, true),
            (&disk, &second, true),
            (&first, &second, false),
            (&one, &second, true),
            (&one, &disk, true),
            (&one, &first, false),
            // Both lie on one partition.
            (&one, &other, false),
            (&disk.clone().part(&mib(0..1)), &first, false),
            (&disk.clone().part(&mib(0..2)), &first, true),
            (&disk.clone().part(&mib(2..3)), &first.clone().part(&mib(1..2)), true),
            (&disk.clone().part(&mib(2..3)), &first.clone().part(&mib(0..1)), false),
            (&first.clone().part(&mib(0..1)), &first.clone().part(&mib(1..2)), false),
            // A mapping may have any of its bytes anywhere below.
            (&one.clone().part(&mib(0..1)), &second.clone().part(&mib(1..2)), true),
            (&one.clone().part(&mib(0..1)), &disk.clone().part(&mib(4..5)), true),
            (&one.clone().part(&mib(0..1)), &first, false),
        ] {
            assert_eq!(one.overlaps(other), expected, "{one:?} {other:?}");
            assert_eq!(other.overlaps(one), expected, "{one:?} {other:?}");
        }
    }

    /// `number` and what it lies on, by the folder of a machine.
    fn spot(machine: &Path, (major, minor): (u32, u32)) -> Spot {
        let mut parts = Vec::new();
        let number = rustix::fs::makedev(major, minor);
        add(machine, number, None, (0..u64::MAX, true), 0, &mut parts);
        Spot(parts)
    }

    fn put(machine: &Path, (major, minor): (u32, u32), below: impl IntoIterator<Item = (u32, u32)>) {
        let folder = folder_of(machine, rustix::fs::makedev(major, minor));
        fs::create_dir_all(folder.join("slaves")).expect("a folder");
        fs::write(folder.join("dev"), format!("{major}:{minor}\n")).expect("a file");
        for (major, minor) in below {
            let folder = folder.join(format!("slaves/{major}:{minor}"));
            fs::create_dir(&folder).expect("a folder");
            fs::write(folder.join("dev"), format!("{major}:{minor}\n")).expect("a file");
        }
    }

    #[test]
    fn array_of_many_disks_overlaps_with_each_of_them_and_no_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let machine = folder.path();
        for disk in 0..401 {
            put(machine, (8, disk), []);
        }
        put(machine, (9, 0), (0..400).map(|disk| (8, disk)));
        let array = spot(machine, (9, 0));
        for disk in 0..400 {
            let disk = spot(machine, (8, disk));
            assert!(array.overlaps(&disk) && disk.overlaps(&array), "{disk:?}");
        }
        let another = spot(machine, (8, 400));
        assert!(!array.overlaps(&another) && !another.overlaps(&array));
    }

    #[test]
    fn what_is_too_deep_or_too_many_to_look_at_may_lie_anywhere() {
        let folder = tempfile::tempdir().expect("a folder");
        let machine = folder.path();
        put(machine, (8, 0), []);
        for mapping in 1..=9 {
            let below = if mapping == 1 { (8, 1) } else { (254, mapping - 1) };
            put(machine, (254, mapping), [below]);
        }
        put(machine, (8, 1), []);
        put(machine, (9, 0), (0..1024).map(|disk| (7, disk)));
        let disk = spot(machine, (8, 0));
        for (number, expected) in [((254, 7), false), ((254, 8), true), ((254, 9), true), ((9, 0), true)] {
            let stack = spot(machine, number);
            let first = stack.clone().part(&(0..1 << 20));
            let last = disk.clone().part(&(1 << 30..2 << 30));
            for (one, other) in [(&stack, &disk), (&first, &last)] {
                assert_eq!(one.overlaps(other), expected, "{number:?}");
                assert_eq!(other.overlaps(one), expected, "{number:?}");
            }
            assert!(!stack.overlaps(&Spot::of(&machine.join("missing"))));
        }
    }

    #[test]
    fn file_that_is_open_overlaps_with_all_its_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let [path, hard, other] = ["path", "hard", "other"].map(|name| folder.path().join(name));
        fs::write(&path, "x").expect("a file");
        fs::write(&other, "x").expect("a file");
        fs::hard_link(&path, &hard).expect("a link");
        let file = File::open(&path).expect("a file");
        let number = std::os::fd::AsRawFd::as_raw_fd(&file);
        let open = Spot::of_open(&file);
        let names = [format!("/proc/self/fd/{number}"), format!("/dev/fd/{number}")].map(PathBuf::from);
        for name in names.iter().chain([&path, &hard]) {
            assert!(open.overlaps(&Spot::of(name)) && Spot::of(name).overlaps(&open), "{name:?}");
        }
        assert!(!open.overlaps(&Spot::of(&other)));
    }
}
