//! An image: a regular file or a block device, opened and locked, before its use is known.
//!
//! ```text
//! Image::open ── its owner reads a header from it ── Image::into_device ──► FileDevice
//! ```
//!
//! Only once the header is read is the smallest transfer known, and that decides whether O_DIRECT
//! can be used.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use cryptline_sys::Buffer;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::file::BlockDevice;
use super::{FileDevice, host_zones};
use crate::{Geometry, OpenError};

/// Use of the page cache, or of O_DIRECT around it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectMode {
    /// O_DIRECT where the file system takes it at the volume's block size.
    #[default]
    Auto,
    /// O_DIRECT or an error.
    On,
    /// Through the page cache.
    Off,
    /// Through the page cache if most of the file is there already, from which O_DIRECT would gain nothing; else as
    /// [`DirectMode::Auto`]. For those who read all of it once.
    Uncached,
}

impl FromStr for DirectMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "on" => Ok(Self::On),
            "off" => Ok(Self::Off),
            other => Err(format!("{other:?} is none of auto, on and off")),
        }
    }
}

impl fmt::Display for DirectMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
            Self::Uncached => "uncached",
        })
    }
}

/// An opened and locked image, before its use is known.
#[derive(Debug)]
pub struct Image {
    file: File,
    path: PathBuf,
    size: u64,
    block: u32,
    is_block_device: bool,
    read_only: bool,
}

impl Image {
    /// Opens a regular file or block device and takes its lock: exclusive for writing, shared
    /// for reading.
    pub fn open(path: &Path, read_only: bool) -> Result<Self, OpenError> {
        Self::open_with(path, read_only, true)
    }

    /// The same beside others that use it: only those that want it alone are kept out, and keep us out.
    pub fn open_shared(path: &Path, read_only: bool) -> Result<Self, OpenError> {
        Self::open_with(path, read_only, false)
    }

    fn open_with(path: &Path, read_only: bool, alone: bool) -> Result<Self, OpenError> {
        let alone = alone && !read_only;
        let metadata = std::fs::metadata(path).map_err(|error| OpenError::system("open", path, error))?;
        let kind = metadata.file_type();
        let wrong = |what| OpenError::WrongKind { path: path.to_owned(), what };
        if kind.is_dir() {
            return Err(wrong("a directory"));
        }
        if !kind.is_file() && !kind.is_block_device() {
            return Err(wrong("neither a regular file nor a block device"));
        }
        let is_block_device = kind.is_block_device();
        // O_EXCL on a block device: not while it is mounted or claimed by device-mapper.
        let exclusive = is_block_device && alone;
        let file = File::options()
            .read(true)
            .write(!read_only)
            .custom_flags(if exclusive { OFlags::EXCL.bits().cast_signed() } else { 0 })
            .open(path)
            .map_err(|error| open_error(path, read_only, error))?;
        lock(&file, path, alone)?;
        if !read_only {
            refuse_other_users(&file, path, alone)?;
        }
        if is_block_device && !read_only {
            refuse_read_only(&file, path)?;
        }
        let (size, block) = if is_block_device {
            cryptline_sys::block_device_size(&file)
                .map_err(|error| OpenError::system("get the size of", path, error))?
        } else {
            // Of the file that was opened and locked: it may have changed since `metadata`.
            let metadata = file.metadata();
            let size = metadata.map_err(|error| OpenError::system("stat", path, error))?;
            (size.len(), 512)
        };
        Ok(Self { file, path: path.to_owned(), size, block, is_block_device, read_only })
    }

    /// A regular file that somebody else has opened, and calls `name`. The lock is the open file's, so it may have it
    /// already; who opened it has seen to it that nobody has it by another name, which a sandbox cannot. For writing, `file` must
    /// be open for that, and nobody else may sync it from here on.
    ///
    /// # Errors
    /// The file is not a regular one, or not open as it must be; or another has the lock.
    pub fn of_file(file: File, name: &Path, read_only: bool) -> Result<Self, OpenError> {
        let wrong = |what| OpenError::WrongKind { path: name.to_owned(), what };
        let failed = |error| OpenError::system("stat", name, error);
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(wrong("not a regular file"));
        }
        let flags = rustix::fs::fcntl_getfl(&file).map_err(|error| failed(error.into()))?;
        let access = flags & OFlags::RWMODE;
        let can_read = access != OFlags::WRONLY && !flags.contains(OFlags::PATH);
        if !can_read || !read_only && access != OFlags::RDWR {
            return Err(wrong("not open for reading and writing"));
        }
        if flags.contains(OFlags::APPEND) {
            return Err(wrong("open for appending"));
        }
        lock(&file, name, !read_only)?;
        Ok(Self { file, path: name.to_owned(), size: metadata.len(), block: 512, is_block_device: false, read_only })
    }

    /// Size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The opened file, to read a header from.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes in a logical block; 512 for a file.
    #[must_use]
    pub fn block(&self) -> u32 {
        self.block
    }

    /// Tells if it is a block device.
    #[must_use]
    pub fn is_block_device(&self) -> bool {
        self.is_block_device
    }

    /// The opened and locked file alone.
    pub(super) fn into_file(self) -> File {
        self.file
    }

    /// A device over the image, for transfers that are multiples of `granularity` bytes at
    /// multiples of `granularity`.
    pub fn into_device(self, granularity: u32, direct: DirectMode) -> Result<FileDevice, OpenError> {
        let alignment = match direct {
            DirectMode::Off => None,
            DirectMode::Uncached if self.is_mostly_cached() => None,
            DirectMode::Auto | DirectMode::On | DirectMode::Uncached => self.try_direct(granularity),
        };
        if direct == DirectMode::On && alignment.is_none() {
            return Err(OpenError::NoDirect { path: self.path, granularity });
        }
        let block = alignment.unwrap_or(512).max(512);
        let zones = if self.is_block_device { host_zones::model_of(&self.file, self.block.max(block)) } else { None };
        if zones.is_some() && alignment.is_none() {
            return Err(OpenError::NeedsDirect { path: self.path });
        }
        let block_device = self
            .is_block_device
            .then(|| BlockDevice { block: self.block, zeroes: self.limit("write_zeroes_max_bytes") != Some(0) });
        let geometry = Geometry {
            size: self.size - self.size % u64::from(block),
            logical_block: block,
            preferred_block: block.max(4096).max(self.block),
            read_only: self.read_only,
            rotational: self.limit("rotational") == Some(1),
            // By zeroing, which also leaves nothing old to be read.
            discard: !self.read_only && block_device.is_none_or(|device| device.zeroes),
            // On a zoned device that would have to be at the write pointer.
            write_zeroes: !self.read_only && zones.is_none(),
            cache: false,
            answers_at_once: false,
            zones,
        };
        let file = OwnedFd::from(self.file);
        Ok(FileDevice::new(file, geometry, block_device, alignment))
    }

    /// Never a block device, which may have zones and then needs O_DIRECT.
    fn is_mostly_cached(&self) -> bool {
        let is_most = |cached| cached > self.size / 2;
        !self.is_block_device && cryptline_sys::cached_bytes(&self.file).is_some_and(is_most)
    }

    /// Switches O_DIRECT on where transfers of `granularity` work; the alignment it needs.
    fn try_direct(&self, granularity: u32) -> Option<u32> {
        let stated = cryptline_sys::direct_alignment(&self.file).map(|align| align.offset);
        if stated.is_some_and(|align| !granularity.is_multiple_of(align)) {
            return None;
        }
        let flags = rustix::fs::fcntl_getfl(&self.file).ok()?;
        rustix::fs::fcntl_setfl(&self.file, flags | OFlags::DIRECT).ok()?;
        // Some file systems accept the flag and refuse the transfer: try one.
        let works = Buffer::alloc(granularity as usize)
            .is_ok_and(|mut buffer| rustix::io::pread(&self.file, &mut buffer[..], u64::from(granularity)).is_ok());
        if works {
            return Some(stated.unwrap_or(granularity));
        }
        let _ = rustix::fs::fcntl_setfl(&self.file, flags);
        None
    }

    /// Reads a limit that the block layer has for a block device, a partition's in its whole disk; a file's medium is
    /// not asked for.
    fn limit(&self, name: &str) -> Option<u64> {
        if !self.is_block_device {
            return None;
        }
        let stat = rustix::fs::fstat(&self.file).ok()?;
        let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
        ["", "../"].iter().find_map(|whole| {
            let path = format!("/sys/dev/block/{major}:{minor}/{whole}queue/{name}");
            std::fs::read_to_string(path).ok()?.trim().parse().ok()
        })
    }
}

/// Refuses what somebody has by another name: the lock of a file is not that of its loop device.
fn refuse_other_users(file: &File, path: &Path, alone: bool) -> Result<(), OpenError> {
    cryptline_sys::refuse_other_users(file, alone).map_err(|error| OpenError::system("use", path, error))
}

/// Refuses a block device that could be opened for writing, and takes no writes.
fn refuse_read_only(device: &File, path: &Path) -> Result<(), OpenError> {
    let is_read_only = cryptline_sys::is_read_only_device(device);
    if is_read_only.map_err(|error| OpenError::system("ask about writing to", path, error))? {
        let source = Errno::ROFS.into();
        return Err(OpenError::NotWritable { path: path.to_owned(), source });
    }
    Ok(())
}

pub(super) fn open_error(path: &Path, read_only: bool, error: io::Error) -> OpenError {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::PermissionDenied | Kind::ReadOnlyFilesystem if !read_only && File::open(path).is_ok() => {
            OpenError::NotWritable { path: path.to_owned(), source: error }
        }
        _ => OpenError::system("open", path, error),
    }
}

pub(super) fn lock(file: &File, path: &Path, alone: bool) -> Result<(), OpenError> {
    match cryptline_sys::lock_file(file, alone) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(OpenError::busy(path)),
        // File systems without locks (some network mounts): as without us.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOLCK) => Ok(()),
        Err(error) => Err(OpenError::system("lock", path, error)),
    }
}
