//! Foundation of a volume: a target opened and locked, before anybody has looked at what it holds.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cryptline_engine::base::{
    Blank, BlankDevice, DirectMode, Image, NbdDevice, PersistentMemory, PmemDevice, RamDevice, RbdDevice, ZonedDevice,
    ZonedFile,
};
use cryptline_engine::btt::{Btt, BttDevice, BttMedium as _, locate};
use cryptline_engine::layer::linear::{Segment, joined};
use cryptline_engine::{Gate, OpenError};
use cryptline_sys::lock;

use crate::bytes::{GateBytes, WindowBytes};
use crate::durable::identity;
use crate::error::Problem;
use crate::info::BaseInfo;
use crate::medium::{Medium, MediumDevice};
use crate::places::open_unwaiting;
use crate::target::{Target, ZoneBacking, Zoned};
use crate::volume::LEAST_BLOCK;
use crate::window::{Slice, Window};
use crate::{Result, Warning};
use cryptline_luks::ReadSeek;

/// A target that is open. All but memory is locked against others.
pub(crate) struct Base {
    pub store: BaseStore,
    /// Bytes that it has of that, where it is a part. No device lies between: whatever is laid over it begins further on.
    pub range: Option<Range<u64>>,
    /// Of the table that told where it is.
    pub warnings: Vec<Warning>,
}

/// Medium of a base.
pub(crate) enum BaseStore {
    /// A file or block device, whose smallest transfer is not known yet.
    Image(Image),
    /// Everything else.
    Device(BaseDevice),
}

impl From<Image> for Base {
    fn from(image: Image) -> Self {
        Self { store: BaseStore::Image(image), range: None, warnings: Vec::new() }
    }
}

impl From<BaseDevice> for Base {
    fn from(device: BaseDevice) -> Self {
        Self { store: BaseStore::Device(device), range: None, warnings: Vec::new() }
    }
}

/// A target that needs no more to be known of it.
pub(crate) struct BaseDevice {
    pub gate: Gate,
    pub info: BaseInfo,
    pub warnings: Vec<Warning>,
    /// Where the data lies in a file that is all there is of it, or in what is mapped.
    pub data: Vec<Range<u64>>,
    /// Identity of the file that has this data.
    pub file: Option<(u64, u64)>,
    /// Bytes that are there. The gate has whole blocks of them.
    pub bytes: u64,
    /// Bytes of the sectors that a partition table on it counts in, where that is known.
    table_sector: Option<u32>,
}

/// Where a volume lies, or will.
pub(crate) enum BaseSource {
    Target(Target),
    Medium(Arc<dyn Medium>),
    Device(Gate),
    /// A file that the caller has opened; not there once it was taken.
    Image(Mutex<Option<Image>>),
}

impl BaseSource {
    /// Opened and locked.
    pub fn open(&self, access: Access) -> Result<Base> {
        match self {
            Self::Target(target) => Base::open(target, access),
            Self::Medium(_) | Self::Device(_) | Self::Image(_) if access.shared => {
                Err(Problem::NotShareable.on(MEDIUM))
            }
            Self::Image(image) => take(image).map(Base::from),
            other => other.open_device(access).map(Base::from),
        }
    }

    /// The same, for transfers of any size.
    pub fn open_device(&self, access: Access) -> Result<BaseDevice> {
        match self {
            Self::Target(target) => BaseDevice::open(target, access),
            Self::Medium(medium) => BaseDevice::medium(medium, access),
            Self::Device(gate) => Ok(BaseDevice::own(gate, access)),
            Self::Image(image) => BaseDevice::of_image(take(image)?, access.direct),
        }
    }

    /// Opened for a look.
    pub fn look(&self) -> Result<Look> {
        match self {
            Self::Target(Target::Path(path)) => Look::file(path),
            Self::Target(target) if target.is_memory() => Err(Problem::HoldsNothing.on(target)),
            Self::Target(Target::Slice(slice)) => Look::slice(slice),
            other => Look::device(other),
        }
    }

    pub fn is_memory(&self) -> bool {
        matches!(self, Self::Target(target) if target.is_memory())
    }
}

impl fmt::Display for BaseSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target(target) => target.fmt(f),
            Self::Medium(_) | Self::Device(_) => f.write_str(MEDIUM),
            Self::Image(image) => match &*lock(image) {
                Some(image) => image.path().display().fmt(f),
                None => f.write_str(MEDIUM),
            },
        }
    }
}

fn take(image: &Mutex<Option<Image>>) -> Result<Image> {
    let taken = || Problem::Target("the image has been opened already".to_owned());
    Ok(lock(image).take().ok_or_else(taken)?)
}

/// Bytes in the sectors of a disk, which only a block device tells: the smallest request of a file or a server is not
/// what whoever made a partition table has seen.
fn sector_of(image: &Image) -> Option<u32> {
    image.is_block_device().then(|| image.block())
}

/// Name in messages of a [`BttMedium`], and of a device that the caller has.
const MEDIUM: &str = "the volume";

/// How to open a target.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Access {
    pub read_only: bool,
    pub direct: DirectMode,
    /// Others use it at the same time.
    pub shared: bool,
    /// For how long a lost connection is made again.
    pub reconnect: Option<Duration>,
}

impl Access {
    /// Returns a gate that lets nobody write who may not, though it was opened for that.
    pub fn gate(self, gate: Gate) -> Gate {
        if self.read_only { gate.read_only() } else { gate }
    }
}

impl Base {
    pub fn open(target: &Target, access: Access) -> Result<Self> {
        if let Target::Path(path) = target {
            let image = if access.shared {
                Image::open_shared(path, access.read_only)
            } else {
                Image::open(path, access.read_only)
            };
            return Ok(image?.into());
        }
        if let Target::Slice(slice) = target {
            return Self::slice(slice, access);
        }
        if let Target::Keyed(keyed) = target {
            return Self::open(&keyed.of, access);
        }
        if access.shared {
            return Err(Problem::NotShareable.on(target));
        }
        if access.read_only && target.is_memory() {
            return Err(Problem::StartsEmpty.on(target));
        }
        let device = BaseDevice::open(target, access)?;
        let is_mapped = matches!(device.info, BaseInfo::Pmem { .. } | BaseInfo::Btt { .. });
        if is_mapped && access.direct == DirectMode::On {
            return Err(Problem::Mapped.on(target));
        }
        if access.direct == DirectMode::On && matches!(device.info, BaseInfo::Nbd { .. } | BaseInfo::Rbd { .. }) {
            return Err(Problem::Elsewhere.on(target));
        }
        Ok(device.into())
    }

    fn slice(slice: &Slice, access: Access) -> Result<Self> {
        let of = Self::open(&slice.of, access)?;
        let sector = match &of.store {
            _ if of.range.is_some() => None,
            BaseStore::Image(image) => sector_of(image),
            BaseStore::Device(device) => device.table_sector,
        };
        let name = slice.of.to_string();
        let (range, warning) = slice.window.find(of.reader()?, of.size(), sector, &name)?;
        let start = of.start();
        let warnings = of.warnings.into_iter().chain(warning).collect();
        Ok(Self { store: of.store, range: Some(start + range.start..start + range.end), warnings })
    }

    /// Its first byte on what it is a part of.
    pub fn start(&self) -> u64 {
        self.range.as_ref().map_or(0, |range| range.start)
    }

    /// Bytes on it.
    pub fn size(&self) -> u64 {
        match (&self.range, &self.store) {
            (Some(range), _) => range.end - range.start,
            (None, BaseStore::Image(image)) => image.size(),
            (None, BaseStore::Device(device)) => device.gate.geometry().size,
        }
    }

    /// The file of an image, from its first byte on.
    pub fn file(&self) -> Option<&File> {
        match &self.store {
            BaseStore::Image(image) => Some(image.file()),
            BaseStore::Device(_) => None,
        }
    }

    /// Its bytes, to read a header from.
    pub fn reader(&self) -> Result<Box<dyn ReadSeek + '_>> {
        let whole: Box<dyn ReadSeek + '_> = match &self.store {
            BaseStore::Image(image) => Box::new(image.file()),
            BaseStore::Device(device) => Box::new(GateBytes::new(&device.gate)?),
        };
        Ok(match &self.range {
            Some(range) => Box::new(WindowBytes::new(whole, range.clone())),
            None => whole,
        })
    }
}

impl BaseDevice {
    fn new(gate: Gate, info: BaseInfo) -> Self {
        let bytes = gate.geometry().size;
        Self { gate, info, warnings: Vec::new(), data: Vec::new(), file: None, bytes, table_sector: None }
    }

    /// A file or block device that is open, for transfers of any size.
    pub fn of_image(image: Image, direct: DirectMode) -> Result<Self> {
        let (bytes, table_sector) = (image.size(), sector_of(&image));
        let all = (!image.is_block_device()).then_some(0..bytes);
        let file = identity(image.file().metadata());
        let device = image.into_device(LEAST_BLOCK, direct)?;
        let direct = device.is_direct();
        let data = all.into_iter().collect();
        Ok(Self { bytes, data, file, table_sector, ..Self::new(Gate::new(device), BaseInfo::File { direct }) })
    }

    fn medium(medium: &Arc<dyn Medium>, access: Access) -> Result<Self> {
        let device = MediumDevice::new(Arc::clone(medium), access.read_only)?;
        Ok(Self::new(Gate::new(device), BaseInfo::Medium))
    }

    fn own(gate: &Gate, access: Access) -> Self {
        Self::new(access.gate(gate.clone()), BaseInfo::Medium)
    }

    /// Opens what is no plain file or block device; that, too, where its smallest transfer may be any.
    pub fn open(target: &Target, access: Access) -> Result<Self> {
        let Access { read_only, direct, .. } = access;
        match target {
            Target::Path(path) => Self::of_image(Image::open(path, read_only)?, direct),
            Target::Ram(size) => Ok(Self::new(Gate::new(RamDevice::new(*size)?), BaseInfo::Ram)),
            Target::Pmem(path) => {
                let memory = PersistentMemory::open(path, read_only)?;
                let (how, all) = (memory.how(), 0..memory.size());
                let file = identity(memory.file().metadata());
                let gate = Gate::new(PmemDevice::new(memory, read_only));
                Ok(Self { data: std::iter::once(all).collect(), file, ..Self::new(gate, BaseInfo::Pmem { how }) })
            }
            Target::Btt(path) => Self::btt(path, read_only),
            Target::Zoned(zoned) => match &zoned.place {
                ZoneBacking::Ram(size) => Self::zones_in_memory(zoned, *size),
                ZoneBacking::File(path) => {
                    let opened = ZonedFile::open(path, &zoned.options, read_only, direct)?;
                    let warnings = opened.warnings.into_iter().map(Warning::Zones);
                    Ok(Self {
                        warnings: warnings.collect(),
                        ..Self::new(Gate::new(opened.device), BaseInfo::Zoned(opened.layout))
                    })
                }
            },
            Target::Nbd(uri) => {
                let device = NbdDevice::open_again(uri, read_only, access.reconnect)?;
                let multi_conn = device.takes_connections();
                let repeats = device.repeats_changes();
                let bytes = device.bytes();
                let gate = Gate::new(device);
                let is_written = !gate.geometry().read_only;
                let loses = access.reconnect.is_some() && is_written && !repeats;
                let warning = if multi_conn { Warning::EndUnknown } else { Warning::OnlyReadsAgain };
                Ok(Self {
                    warnings: loses.then_some(warning).into_iter().collect(),
                    bytes,
                    ..Self::new(gate, BaseInfo::Nbd { multi_conn })
                })
            }
            Target::Rbd(rbd) => {
                let device = RbdDevice::open(&rbd.name, read_only)?;
                let stripe_period = device.stripe_period();
                let gone = device.gone_owner().map(str::to_owned);
                let warning = gone.map(|owner| Warning::CephLockLeft { owner });
                Ok(Self {
                    warnings: warning.into_iter().collect(),
                    ..Self::new(Gate::new(device), BaseInfo::Rbd { stripe_period })
                })
            }
            Target::Table(_) => Err(Problem::Target("a table is no device".to_owned()).into()),
            Target::Slice(slice) => Self::slice(slice, access),
            Target::Keyed(keyed) => Self::open(&keyed.of, access),
        }
    }

    /// Makes a device in which nothing is stored.
    pub fn blank(what: Blank, size: u64, read_only: bool) -> Result<Self> {
        let device = BlankDevice::new(what, size, read_only)?;
        Ok(Self::new(Gate::new(device), BaseInfo::Nothing))
    }

    /// For who lays nothing over it that could begin further on: a device of its own.
    fn slice(slice: &Slice, access: Access) -> Result<Self> {
        let of = Self::open(&slice.of, access)?;
        let (size, name) = (of.gate.size(), slice.of.to_string());
        let bytes = Box::new(GateBytes::new(&of.gate)?);
        let (range, warning) = slice.window.find(bytes, size, of.table_sector, &name)?;
        // A part up to the end includes the bytes behind the last whole block.
        let behind = match slice.window {
            Window::Range { length: None, .. } => of.bytes - size,
            _ => 0,
        };
        let segment = Segment { lower: of.gate, offset: range.start, len: range.end - range.start };
        let gate = joined(vec![segment]).map_err(|error| Problem::Device(error).on(slice))?;
        Ok(Self {
            // Where data lies in what is mapped is not known of a part.
            warnings: of.warnings.into_iter().chain(warning).collect(),
            bytes: gate.size() + behind,
            ..Self::new(gate, of.info)
        })
    }

    fn btt(path: &Path, read_only: bool) -> Result<Self> {
        let memory = PersistentMemory::open(path, read_only)?;
        let (how, file) = (memory.how(), identity(memory.file().metadata()));
        let failed = |error| Problem::Btt(error).on(path.display());
        let arenas = locate(&memory).map_err(failed)?;
        let data = arenas.iter().map(|arena| {
            let layout = arena.info.layout;
            let first = layout.block_offset(0);
            arena.start + first..arena.start + layout.block_offset(layout.internal_nlba)
        });
        let table = Btt::open(memory, read_only).map_err(failed)?;
        let sector_size = table.sector_size();
        Ok(Self {
            data: data.collect(),
            file,
            warnings: table.warnings().iter().copied().map(Warning::Btt).collect(),
            ..Self::new(Gate::new(BttDevice::new(table, read_only)), BaseInfo::Btt { sector_size, how })
        })
    }

    fn zones_in_memory(zoned: &Zoned, size: u64) -> Result<Self> {
        let layout = zoned.options.layout(size);
        let layout = layout.map_err(|error| Problem::Zones(error).on(Target::Zoned(zoned.clone())))?;
        let memory = Gate::new(RamDevice::new(size)?);
        let device = ZonedDevice::in_memory(memory, layout)?;
        Ok(Self::new(Gate::new(device), BaseInfo::Zoned(layout)))
    }

    /// Refuses transfers in units of `unit` bytes where a block translation table has larger sectors, or a server
    /// larger blocks.
    pub fn check_sectors(&self, unit: u32) -> Result<()> {
        match self.info {
            BaseInfo::Btt { sector_size, .. } if unit < sector_size => {
                Err(Problem::BttSectors { unit, sector: sector_size }.into())
            }
            BaseInfo::Nbd { .. } if unit < self.gate.geometry().logical_block => {
                let block = self.gate.geometry().logical_block;
                Err(Problem::DeviceBlocks { unit, block }.into())
            }
            _ => Ok(()),
        }
    }

    /// Warns if a crash can tear cipher sectors of `sector` bytes, though a table is there to prevent that.
    pub fn torn_sectors(&self, sector: u32) -> Option<Warning> {
        match self.info {
            BaseInfo::Btt { sector_size, .. } if sector > sector_size => {
                Some(Warning::TornSectors { sector, btt: sector_size })
            }
            _ => None,
        }
    }
}

/// A target opened to be looked at. A file is not locked: looking at a header is allowed while the volume is in
/// use. Everything else is: a table cannot be looked through while somebody changes it.
pub(crate) struct Look {
    bytes: BaseBytes,
    /// Bytes on it.
    pub size: u64,
    /// `MAJOR:MINOR` of a block device.
    pub device_number: Option<String>,
    /// For messages.
    pub name: String,
    /// The path of a file, and the name of anything else.
    pub place: String,
    /// Its first byte there.
    pub start: u64,
    /// Bytes in its sectors, where it is known.
    pub sector: Option<u32>,
    /// All of what is there.
    is_whole: bool,
}

enum BaseBytes {
    File(File),
    Device(BaseDevice),
}

impl Look {
    fn device(source: &BaseSource) -> Result<Self> {
        let access = Access { read_only: true, ..Access::default() };
        let device = source.open_device(access)?;
        let geometry = *device.gate.geometry();
        Ok(Self {
            size: geometry.size,
            sector: device.table_sector,
            bytes: BaseBytes::Device(device),
            device_number: None,
            name: source.to_string(),
            place: source.to_string(),
            start: 0,
            is_whole: true,
        })
    }

    fn slice(slice: &Slice) -> Result<Self> {
        let of = BaseSource::Target(slice.of.clone()).look()?;
        let found = slice.window.find(of.reader()?, of.size, of.sector, &of.name);
        let (range, _) = found?;
        Ok(Self {
            size: range.end - range.start,
            name: slice.to_string(),
            start: of.start + range.start,
            sector: None,
            is_whole: false,
            ..of
        })
    }

    pub fn file(path: &Path) -> Result<Self> {
        let failed = |source: io::Error| OpenError::System { action: "open", path: path.to_owned(), source };
        let wrong = |what| OpenError::WrongKind { path: path.to_owned(), what };
        let file = open_unwaiting(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let kind = metadata.file_type();
        if kind.is_dir() {
            return Err(wrong("a directory").into());
        }
        let (size, sector, device_number) = if kind.is_block_device() {
            let (size, block) = cryptline_sys::block_device_size(&file).map_err(failed)?;
            let number = metadata.rdev();
            let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
            (size, Some(block), Some(format!("{major}:{minor}")))
        } else if kind.is_file() {
            (metadata.len(), None, None)
        } else {
            return Err(wrong("neither a regular file nor a block device").into());
        };
        Ok(Self {
            bytes: BaseBytes::File(file),
            size,
            device_number,
            name: path.display().to_string(),
            place: path.display().to_string(),
            start: 0,
            sector,
            is_whole: true,
        })
    }

    /// The bytes.
    pub fn reader(&self) -> Result<Box<dyn ReadSeek + '_>> {
        let all: Box<dyn ReadSeek + '_> = match &self.bytes {
            BaseBytes::File(file) => Box::new(file),
            BaseBytes::Device(device) => Box::new(GateBytes::new(&device.gate)?),
        };
        if self.is_whole {
            return Ok(all);
        }
        let end = self.start + self.size;
        Ok(Box::new(WindowBytes::new(all, self.start..end)))
    }
}
