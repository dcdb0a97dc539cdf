//! Where the bytes of a copy come from.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use cryptline_engine::base::{DirectMode, Image};
use cryptline_engine::blocking::Blocking;
use cryptline_engine::{BackendChoice, Gate};

use sha2::{Digest, Sha256};

use super::CopyTrouble;
use crate::base::{Access, BaseDevice, BaseSource};
use crate::error::Problem;
use crate::places::Spot;
use crate::remote;
use crate::stamp::Stamp;
use crate::target::Target;
use crate::volume::Volume;
use crate::{Open, Result, Warning};

/// The clear bytes that are copied.
pub struct CopySource {
    pub(super) name: String,
    pub(super) bytes: SourceBytes,
    /// Identity of the source, to tell whether the copy would overwrite it.
    target: Option<Target>,
    /// File of its separate header, without which nothing opens it.
    header: Option<PathBuf>,
    /// Where it lies, if it has no name.
    spot: Option<Spot>,
    warnings: Vec<Warning>,
    /// State by which a change is noticed, where it is a regular file.
    stamp: Option<Stamp>,
}

pub(super) enum SourceBytes {
    Device {
        gate: Gate,
        /// All of them; the gate has only whole blocks.
        size: u64,
        /// Has what the gate has not.
        file: Option<File>,
    },
    Stream(File),
}

impl CopySource {
    /// The clear disk of an open volume.
    #[must_use]
    pub fn volume(volume: &Volume) -> Self {
        let name = &volume.info().source;
        let target = volume.target().cloned().or_else(|| Target::parse(name).ok());
        Self {
            name: name.clone(),
            // Its owner may have written to it since it was opened.
            stamp: volume.stamp().map(Stamp::again),
            target,
            header: volume.header().map(Path::to_owned),
            spot: None,
            bytes: SourceBytes::Device { gate: volume.gate().clone(), size: volume.size(), file: None },
            warnings: Vec::new(),
        }
    }

    /// All bytes of a target as they are.
    ///
    /// # Errors
    /// Any problem with the target.
    pub fn raw(target: impl AsRef<OsStr>) -> Result<Self> {
        let target = Target::parse(target)?;
        let name = target.to_string();
        let stamp = Stamp::of(&target);
        let (device, size, file) = match &target {
            Target::Path(path) => raw_file(path)?,
            target if target.is_memory() => return Err(Problem::HoldsNothing.on(name)),
            target => {
                let access = Access { read_only: true, ..Access::default() };
                let source = BaseSource::Target(target.clone());
                let device = source.open_device(access)?;
                let size = device.gate.size();
                if device.bytes != size {
                    let behind = device.bytes - size;
                    return Err(Problem::CopyCutsOff(behind, size).on(name));
                }
                (device, size, None)
            }
        };
        if size == 0 {
            return Err(Problem::NothingToCopy.on(name));
        }
        Ok(Self {
            name,
            target: Some(target),
            header: None,
            spot: None,
            stamp,
            bytes: SourceBytes::Device { gate: device.gate, size, file },
            warnings: device.warnings,
        })
    }

    /// Everything up to the end of `stream`, such as a pipe, called `name`.
    #[must_use]
    pub fn stream(stream: File, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            target: None,
            header: None,
            spot: Some(Spot::of_open(&stream)),
            stamp: Stamp::of_open(&stream),
            bytes: SourceBytes::Stream(stream),
            warnings: Vec::new(),
        }
    }

    /// The same by another name, which is that of no file: whether it changes cannot be told.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), target: None, spot: None, stamp: None, ..self }
    }

    /// Bytes that will be copied; `None` where only the end tells.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        match &self.bytes {
            SourceBytes::Device { size, .. } => Some(*size),
            SourceBytes::Stream(_) => None,
        }
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Identifies what is copied, as it was when it was opened, and `how`; `None` where nothing tells whether it
    /// changes.
    pub(crate) fn fingerprint(&self, how: &str) -> Option<[u8; 32]> {
        let stamp = self.stamp.as_ref()?;
        let mut hash = Sha256::new();
        for text in [self.name.as_bytes(), stamp.path.as_os_str().as_bytes(), how.as_bytes()] {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        }
        let size = self.size()?;
        for number in stamp.numbers.iter().chain([&size]) {
            hash.update(number.to_le_bytes());
        }
        Some(hash.finalize().into())
    }

    /// Tells if it is not what it was when it was opened; only a regular file tells.
    pub(crate) fn has_changed(&self) -> bool {
        let stamp = self.stamp.as_ref();
        stamp.is_some_and(|stamp| !stamp.is_unchanged())
    }

    pub(crate) fn take_warnings(&mut self) -> Vec<Warning> {
        std::mem::take(&mut self.warnings)
    }

    /// Refuses a destination that lies on the same file or block device, or has bytes in common with it elsewhere; and its
    /// header. What a stream has read of a file, and will, is not known: it may be all of it.
    pub(crate) fn refuse_same(&self, destination: &Target) -> Result<()> {
        let same = destination.spot().is_some_and(|destination| self.lies_on(&destination));
        let path = self.target.as_ref().and_then(Target::path);
        let same = same || path.is_some_and(|path| destination.is_on(path));
        let same = same || self.target.as_ref().map_or(Ok(false), |own| remote::overlap_there(own, destination))?;
        let is_called_so = match &self.target {
            Some(own) => own.is_called_as(destination),
            None => self.name == destination.to_string(),
        };
        if same || is_called_so {
            return Err(Problem::SameFile.on(destination));
        }
        Ok(())
    }
}

impl CopySource {
    fn lies_on(&self, destination: &Spot) -> bool {
        let own = self.spot.clone().or_else(|| self.target.as_ref()?.spot());
        let header = self.header.as_deref().map(Spot::of);
        own.iter().chain(&header).any(|own| own.overlaps(destination))
    }

    /// Refuses a file that is open and lies on the same bytes, which is called `name`.
    pub(super) fn refuse_same_file(&self, destination: &File, name: &str) -> Result<()> {
        if self.lies_on(&Spot::of_open(destination)) {
            return Err(Problem::SameFile.on(name));
        }
        Ok(())
    }
}

/// A file or block device, with its bytes behind the last whole block.
fn raw_file(path: &Path) -> Result<(BaseDevice, u64, Option<File>)> {
    let image = Image::open(path, true)?;
    let size = image.size();
    let rest = !size.is_multiple_of(u64::from(image.block()));
    let file = if rest && !image.is_block_device() {
        let failed = |source| {
            let action = "open";
            Problem::Io { action, source }.on(path.display())
        };
        // Not by its path, which may lead elsewhere by now.
        Some(image.file().try_clone().map_err(failed)?)
    } else {
        None
    };
    // What was just made is in the page cache, and O_DIRECT would fetch it from the disk.
    let device = BaseDevice::of_image(image, DirectMode::Off)?;
    let size = if file.is_some() { size } else { device.gate.size() };
    Ok((device, size, file))
}

impl Open {
    /// Tells if there is a LUKS header, damaged or not. An image in another format or a compressed file is refused: its
    /// bytes are hardly what is meant.
    ///
    /// # Errors
    /// Any problem with the target or the header; [`Problem::NotLuks`] for another format.
    pub fn is_luks(self) -> Result<bool> {
        use crate::Contents;
        let error = match self.inspect() {
            Ok(_) => return Ok(true),
            Err(error) => error,
        };
        match error.problem() {
            Problem::Luks(cryptline_luks::Error::NotLuks) => Ok(false),
            Problem::NotLuks(Contents::Image { .. } | Contents::Compressed { .. }) => Err(error),
            Problem::NotLuks(_) => Ok(false),
            _ => Err(error),
        }
    }
}

impl CopySource {
    /// Returns the bytes from `end`, where the last whole block ends.
    pub(super) fn rest(&self, end: u64, backend: BackendChoice) -> std::result::Result<Vec<u8>, CopyTrouble> {
        let SourceBytes::Device { gate, size, file } = &self.bytes else {
            return Ok(Vec::new());
        };
        let left = usize::try_from(size - end).expect("less than a block");
        let mut rest = vec![0; left];
        if left == 0 {
            return Ok(rest);
        }
        let whole = usize::try_from(gate.size().min(*size) - end).expect("less than a block");
        let mut source = Blocking::new(gate, backend).map_err(CopyTrouble::Open)?;
        let read = source.read_at(end, &mut rest[..whole]);
        read.map_err(|fault| CopyTrouble::Read { offset: end, fault })?;
        if let Some(file) = file {
            let read = file.read_exact_at(&mut rest[whole..], end + whole as u64);
            read.map_err(CopyTrouble::Stream)?;
        }
        Ok(rest)
    }

    pub(crate) fn gate(&self) -> Option<&Gate> {
        match &self.bytes {
            SourceBytes::Device { gate, .. } => Some(gate),
            SourceBytes::Stream(_) => None,
        }
    }
}
