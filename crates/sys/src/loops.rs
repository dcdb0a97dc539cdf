//! Loop devices, which show a file or another block device by a name of their own, and who has either.
//!
//! ```text
//! file ◄── loop device ◄── mount, device-mapper, server
//!   ▲
//! server
//! ```
//!
//! A lock of the file keeps nobody from its loop device, nor the other way round. So whoever wants one of them alone looks
//! at the others. A loop device tells its file by device and inode; the path that the kernel keeps of it can lead to another
//! file by now, and in a container to none. Where it cannot be asked, what is not known to be another file is taken for the
//! same, unless nobody else has the own file open.
//!
//! A write lease is the proof of that: the kernel grants one only while nobody else has the file open. A claim
//! (`O_EXCL`) or a lock counts, an attached device does not: it is one more name, as a hard link is. A device is
//! claimed for a moment only where it shows the same bytes, since a claim keeps others out, too. One over a network
//! file system that is not the file's own is not asked: it might never answer.

use std::fs::{self, File, Metadata};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::file::{is_locked, is_open_here_only};

/// From linux/loop.h; part of the kernel's ABI.
const LOOP_GET_STATUS64: libc::c_ulong = 0x4c05;
/// Loop devices have this major number, but their partitions need not.
const LOOP_MAJOR: u32 = 7;
/// Unit in which the kernel counts block devices.
const SECTOR: u64 = 512;
/// File systems whose server may never answer.
const REMOTE: [&str; 7] = ["fuse", "nfs", "cifs", "smb", "9p", "ceph", "afs"];

/// The part of a file or block device that a loop device shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopRange {
    /// Device and inode of the file, or of the node of the block device.
    pub file: (u64, u64),
    /// The number of the block device, where it is one.
    pub device: Option<u64>,
    /// Its bytes there.
    pub bytes: Range<u64>,
}

impl LoopRange {
    /// Asks an open loop device, or a partition of one; `None` for what shows nothing.
    ///
    /// # Errors
    /// Those of the call.
    pub fn by(device: &File) -> io::Result<Option<Self>> {
        System::of_machine().shown_by(device)
    }
}

/// Refuses a file or block device that is open for writing, and was locked, where somebody else has it by another name: a
/// loop device over it, the file below it, or another loop device over the same bytes. Also a file that is swap space.
/// `alone`: whoever has it counts, and who merely attached a loop device does not; else only who wants it alone.
///
/// # Errors
/// `ResourceBusy`, with a text that says who has it. Errors of the system.
pub fn refuse_other_users(file: &File, alone: bool) -> io::Result<()> {
    System::of_machine().refuse_other_users(file, alone)
}

/// Folders in which the kernel tells of its devices, from their root on.
struct System {
    root: PathBuf,
}

/// A loop device that shows something.
struct Loop {
    name: String,
    /// Its folder in sysfs.
    folder: PathBuf,
    number: u64,
}

/// Part of a file or block device.
struct BackingPart<'a> {
    file: (u64, u64),
    /// Bytes of a regular file.
    len: u64,
    /// The numbers of a block device, its disk, and its partitions.
    devices: Vec<u64>,
    bytes: Range<u64>,
    opened: &'a File,
}

impl System {
    fn of_machine() -> Self {
        Self { root: PathBuf::from("/") }
    }

    fn refuse_other_users(&self, file: &File, alone: bool) -> io::Result<()> {
        let metadata = file.metadata()?;
        let mut own = BackingPart {
            file: (metadata.dev(), metadata.ino()),
            len: metadata.len(),
            devices: Vec::new(),
            bytes: 0..u64::MAX,
            opened: file,
        };
        let mut itself = Vec::new();
        if metadata.file_type().is_block_device() {
            itself = self.family(metadata.rdev());
            own.devices.clone_from(&itself);
            if let Some(shown) = self.shown_by(file)? {
                self.refuse_held(&shown, metadata.rdev(), alone)?;
                own.file = shown.file;
                own.bytes = shown.bytes;
                own.devices.extend(shown.device.iter().flat_map(|&number| self.family(number)));
            }
        } else if self.is_swap(own.file) {
            return Err(busy("this machine has it as swap space; switch that off first (swapoff)".to_owned()));
        }
        for device in self.loops()?.iter().filter(|it| !itself.contains(&it.number)) {
            self.refuse_loop(device, &own, alone)?;
        }
        Ok(())
    }

    /// Refuses what a loop device shows as well, if somebody has that.
    fn refuse_loop(&self, device: &Loop, own: &BackingPart<'_>, alone: bool) -> io::Result<()> {
        let name = &device.name;
        if self.may_hang(device, own) {
            return Ok(());
        }
        // Not exclusively: that would keep others from a device that has nothing to do with this.
        let node = self.open_node(device, false);
        let shown = node.as_ref().ok().and_then(|node| self.shown_by(node).transpose());
        let is_same = match (&node, shown) {
            (Ok(_), Some(Ok(shown))) => own.is_in(&shown),
            // It was detached meanwhile.
            (Ok(_), None) => false,
            // Who shows it has it open.
            _ => self.may_show(device, own) && !is_open_here_only(own.opened),
        };
        if !is_same {
            return Ok(());
        }
        let Ok(node) = node else {
            return Err(busy(format!(
                "/dev/{name} may show the same file, and there is no way to tell from here; close the file in other programs, or detach the device (losetup -d)"
            )));
        };
        let is_claimed = alone && self.open_node(device, true).is_err();
        if is_claimed || is_locked(&node, alone)? || self.has_locked_partition(device, alone) {
            return Err(busy(format!(
                "/dev/{name} shows the same and is in use; end that, or detach it (losetup -d), first"
            )));
        }
        Ok(())
    }

    /// Tells if somebody has a lock of a partition, who need not have claimed it.
    fn has_locked_partition(&self, device: &Loop, alone: bool) -> bool {
        let folders = fs::read_dir(&device.folder).into_iter().flatten().flatten();
        let parts = folders.filter(|folder| folder.path().join("partition").exists());
        let mut nodes = parts.filter_map(|part| open(&self.root.join("dev").join(part.file_name()), false).ok());
        nodes.any(|node| !matches!(is_locked(&node, alone), Ok(false)))
    }

    /// Refuses a loop device whose file, or the device below it, somebody has.
    fn refuse_held(&self, shown: &LoopRange, number: u64, alone: bool) -> io::Result<()> {
        let below = self.folder_of(number).and_then(|folder| loop_backing_file(&folder));
        let opened = below.as_deref().and_then(|path| match open(path, alone && shown.device.is_some()) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Some(Err(error)),
            opened => opened.ok().filter(|file| is_shown(file, shown)).map(Ok),
        });
        let is_held = match opened {
            Some(Ok(file)) => is_locked(&file, alone)?,
            Some(Err(_)) => true,
            // Nobody can tell who has a block device of which there is no node.
            None if shown.device.is_some() => alone,
            None => self.has_lock(shown.file, alone)?,
        };
        if !is_held {
            return Ok(());
        }
        let what = below.map_or_else(|| "its file".to_owned(), |path| path.display().to_string());
        Err(busy(format!("{what}, which it shows, is in use by another program; end that first")))
    }

    /// Returns what an open device shows, where it is a loop device.
    fn shown_by(&self, device: &File) -> io::Result<Option<LoopRange>> {
        let number = device.metadata()?.rdev();
        let is_loop = rustix::fs::major(number) == LOOP_MAJOR || self.folder_of(number).is_some();
        if !is_loop {
            return Ok(None);
        }
        // `struct loop_info64` has 232 bytes.
        let mut status = [0u64; 29];
        // SAFETY: the descriptor is open, and LOOP_GET_STATUS64 writes one `struct loop_info64` to a live array of as many bytes.
        let result = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64 as _, status.as_mut_ptr()) };
        if result != 0 {
            let error = io::Error::last_os_error();
            return if error.raw_os_error() == Some(libc::ENXIO) { Ok(None) } else { Err(error) };
        }
        let [file, inode, device, offset, limit, ..] = status;
        let end = if limit == 0 { u64::MAX } else { offset.saturating_add(limit) };
        Ok(Some(LoopRange { file: (file, inode), device: (device != 0).then_some(device), bytes: offset..end }))
    }

    /// The folder in sysfs of the loop device that has this number, or a partition with it.
    fn folder_of(&self, number: u64) -> Option<PathBuf> {
        let own = self.device(number);
        let disk = own.join("partition").exists().then(|| own.join(".."));
        [Some(own), disk].into_iter().flatten().find(|folder| folder.join("loop").exists())
    }

    fn device(&self, number: u64) -> PathBuf {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        self.root.join(format!("sys/dev/block/{major}:{minor}"))
    }

    /// The number itself, and those of its disk and its partitions, which have bytes in common with it.
    fn family(&self, number: u64) -> Vec<u64> {
        let own = self.device(number);
        let mut family = vec![number];
        if own.join("partition").exists() {
            family.extend(number_in(&own.join("..")));
        }
        let parts = fs::read_dir(&own).into_iter().flatten().flatten().map(|entry| entry.path());
        family.extend(parts.filter(|part| part.join("partition").exists()).filter_map(|part| number_in(&part)));
        family
    }

    /// All loop devices that show something.
    fn loops(&self) -> io::Result<Vec<Loop>> {
        let entries = match fs::read_dir(self.root.join("sys/block")) {
            Ok(entries) => entries,
            // Who sees no devices, as in some containers, is told of none.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        };
        let mut loops = Vec::new();
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| name.starts_with("loop")) else {
                continue;
            };
            let folder = entry.path();
            if folder.join("loop").exists()
                && let Some(number) = number_in(&folder)
            {
                loops.push(Loop { name: name.to_owned(), folder, number });
            }
        }
        Ok(loops)
    }

    /// Opens it, and where that is to be alone, claims it.
    fn open_node(&self, device: &Loop, alone: bool) -> io::Result<File> {
        let file = open(&self.root.join("dev").join(&device.name), alone)?;
        let found = file.metadata()?;
        if found.file_type().is_block_device() && found.rdev() == device.number {
            return Ok(file);
        }
        Err(io::ErrorKind::NotFound.into())
    }

    /// Tells if it lies in a file system on a network that is not the own file's, and so is another file, if the path
    /// tells the truth: asking could take for ever, and everybody would wait for that.
    fn may_hang(&self, device: &Loop, own: &BackingPart<'_>) -> bool {
        let (Some(path), Ok(mounts)) =
            (loop_backing_file(&device.folder), fs::read_to_string(self.root.join("proc/self/mountinfo")))
        else {
            return false;
        };
        let mounts = mounts.lines().filter_map(MountLine::parse).filter(|mount| path.starts_with(&mount.at));
        // The last of several in one place covers the others.
        let mount = mounts.enumerate().max_by_key(|(number, mount)| (mount.at.as_os_str().len(), *number));
        mount.is_some_and(|(_, mount)| {
            let is_remote = REMOTE.iter().any(|name| mount.kind.starts_with(name));
            is_remote && mount.kind != "fuseblk" && mount.device != own.file.0
        })
    }

    // Guard: a loop device that cannot be asked may show the file.
    /// The same where the loop device cannot be asked, as in a container that does not have it.
    fn may_show(&self, device: &Loop, own: &BackingPart<'_>) -> bool {
        let Some(path) = loop_backing_file(&device.folder) else {
            // Either it was detached meanwhile, or its path cannot be told, such as one that is too long.
            return device.folder.join("loop").exists();
        };
        let number = |name: &str| text(&device.folder.join(name))?.parse::<u64>().ok();
        let end = |offset: Option<u64>| Some(offset?.saturating_add(number("size")?.saturating_mul(SECTOR)));
        let Some(end) = end(number("loop/offset")) else {
            return true;
        };
        let is_cut = number("loop/sizelimit") != Some(0);
        let fits = |len: u64| if is_cut { end <= len } else { end == len - len % SECTOR };
        let found = fs::metadata(&path);
        let is_barred = found.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
        match found {
            Ok(found) if (found.dev(), found.ino()) == own.file => return true,
            Ok(found) if found.file_type().is_block_device() => return own.devices.contains(&found.rdev()),
            // That is the file, and not one that has its name here.
            Ok(found) if found.is_file() && fits(found.len()) => return false,
            _ => {}
        }
        let is_named = match fs::read_link(format!("/proc/self/fd/{}", own.opened.as_raw_fd())) {
            Ok(own) => own.file_name() == path.file_name(),
            Err(_) => true,
        };
        // A path that leads where this user may not go is hardly that of a file of this user's, whatever its size.
        let may_be = if is_barred { is_named && fits(own.len) } else { is_named || fits(own.len) };
        own.devices.is_empty() && may_be
    }

    fn is_swap(&self, file: (u64, u64)) -> bool {
        let swaps = fs::read_to_string(self.root.join("proc/swaps")).unwrap_or_default();
        let is_it = |path: &str| fs::metadata(plain(path)).is_ok_and(|it| (it.dev(), it.ino()) == file);
        swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next()).any(is_it)
    }

    /// Tells if anybody has a lock of a file of which there is no name here.
    fn has_lock(&self, file: (u64, u64), alone: bool) -> io::Result<bool> {
        let locks = fs::read_to_string(self.root.join("proc/locks"))?;
        let is_it = |word: &str| {
            let mut parts = word.split(':');
            let mut part = |radix| u64::from_str_radix(parts.next()?, radix).ok();
            let (Some(major), Some(minor), Some(inode)) = (part(16), part(16), part(10)) else {
                return false;
            };
            let (Ok(major), Ok(minor)) = (u32::try_from(major), u32::try_from(minor)) else {
                return false;
            };
            (rustix::fs::makedev(major, minor), inode) == file
        };
        let counts =
            |line: &&str| (line.contains("OFDLCK") || line.contains("POSIX")) && (alone || line.contains("WRITE"));
        Ok(locks.lines().filter(counts).any(|line| line.split_whitespace().any(is_it)))
    }
}

impl BackingPart<'_> {
    /// Tells if it has bytes in common with what a loop device shows.
    fn is_in(&self, shown: &LoopRange) -> bool {
        let is_one = match shown.device {
            Some(number) => self.devices.contains(&number),
            None => self.file == shown.file,
        };
        is_one && self.bytes.start < shown.bytes.end && shown.bytes.start < self.bytes.end
    }
}

/// A line of mountinfo.
struct MountLine {
    device: u64,
    at: PathBuf,
    kind: String,
}

impl MountLine {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let (major, minor) = words.nth(2)?.split_once(':')?;
        let at = plain(words.nth(1)?);
        let kind = words.skip_while(|word| *word != "-").nth(1)?.to_owned();
        Some(Self { device: rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?), at, kind })
    }
}

/// A path of which the kernel has escaped some characters.
fn plain(path: &str) -> PathBuf {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    let plain = escapes.iter().fold(path.to_owned(), |path, (escaped, plain)| path.replace(escaped, plain));
    PathBuf::from(plain)
}

/// Opens it without waiting; exclusively, where it is a block device that nobody may have claimed.
fn open(path: &Path, exclusive: bool) -> io::Result<File> {
    let exclusive = if exclusive { libc::O_EXCL } else { 0 };
    File::options().read(true).custom_flags(libc::O_NONBLOCK | exclusive).open(path)
}

fn busy(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, why)
}

fn is_shown(file: &File, shown: &LoopRange) -> bool {
    let same = |found: Metadata| match shown.device {
        Some(number) => found.file_type().is_block_device() && found.rdev() == number,
        None => (found.dev(), found.ino()) == shown.file,
    };
    file.metadata().is_ok_and(same)
}

/// Returns the path that the kernel has for what a loop device shows; `folder` is the device's in sysfs.
pub fn loop_backing_file(folder: &Path) -> Option<PathBuf> {
    text(&folder.join("loop/backing_file")).map(PathBuf::from)
}

/// The number of the device of this folder.
fn number_in(folder: &Path) -> Option<u64> {
    let text = text(&folder.join("dev"))?;
    let (major, minor) = text.split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim_end_matches('\n').to_owned())
}

#[cfg(test)]
#[path = "loops_tests.rs"]
mod tests;
