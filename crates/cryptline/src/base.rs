//! What a volume lies on: a target opened and locked, before anybody has looked at what it holds.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use cryptline_engine::base::{
    DirectMode, Image, PersistentMemory, PmemDevice, RamDevice, ZonedDevice, ZonedFile,
};
use cryptline_engine::btt::{Btt, BttDevice, Medium as _, locate};
use cryptline_engine::{Gate, OpenError};
use rustix::fs::OFlags;

use crate::bytes::{GateBytes, ReadSeek};
use crate::error::Problem;
use crate::info::BaseInfo;
use crate::medium::{Medium, MediumDevice};
use crate::target::{Place, Target, Zoned};
use crate::{Result, Warning};

/// A target that is open. All but memory is locked against others.
pub(crate) enum Base {
    /// A file or block device, whose smallest transfer is not known yet.
    Image(Image),
    /// Everything else.
    Device(BaseDevice),
}

/// A target that needs no more to be known of it.
pub(crate) struct BaseDevice {
    pub gate: Gate,
    pub info: BaseInfo,
    pub warnings: Vec<Warning>,
    /// Where the data lies in what is mapped.
    pub data: Vec<Range<u64>>,
}

/// Where a volume lies, or will.
pub(crate) enum Source {
    Target(Target),
    Medium(Arc<dyn Medium>),
}

impl Source {
    /// Opened and locked.
    pub fn open(&self, access: Access) -> Result<Base> {
        match self {
            Self::Target(target) => Base::open(target, access),
            Self::Medium(_) if access.shared => Err(Problem::NotShareable.on(MEDIUM)),
            Self::Medium(medium) => BaseDevice::medium(medium, access).map(Base::Device),
        }
    }

    /// The same, for transfers of any size.
    pub fn open_device(&self, access: Access) -> Result<BaseDevice> {
        match self {
            Self::Target(target) => BaseDevice::open(target, access),
            Self::Medium(medium) => BaseDevice::medium(medium, access),
        }
    }

    /// Opened for a look.
    pub fn look(&self) -> Result<Look> {
        match self {
            Self::Target(Target::Path(path)) => Look::file(path),
            Self::Target(target) if target.is_memory() => Err(Problem::HoldsNothing.on(target)),
            other => Look::device(other),
        }
    }

    pub fn is_memory(&self) -> bool {
        matches!(self, Self::Target(target) if target.is_memory())
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target(target) => target.fmt(f),
            Self::Medium(_) => f.write_str(MEDIUM),
        }
    }
}

/// What messages call a [`Medium`].
const MEDIUM: &str = "the volume";

/// How to open a target.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Access {
    pub read_only: bool,
    pub direct: DirectMode,
    /// Others use it at the same time.
    pub shared: bool,
}

impl Base {
    pub fn open(target: &Target, access: Access) -> Result<Self> {
        if let Target::Path(path) = target {
            let image = if access.shared {
                Image::open_shared(path, access.read_only)
            } else {
                Image::open(path, access.read_only)
            };
            return Ok(Self::Image(image?));
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
        Ok(Self::Device(device))
    }

    /// Bytes on it.
    pub fn size(&self) -> u64 {
        match self {
            Self::Image(image) => image.size(),
            Self::Device(device) => device.gate.geometry().size,
        }
    }

    /// The file of an image.
    pub fn file(&self) -> Option<&File> {
        match self {
            Self::Image(image) => Some(image.file()),
            Self::Device(_) => None,
        }
    }

    /// Its bytes, to read a header from.
    pub fn reader(&self) -> Result<Box<dyn ReadSeek + '_>> {
        Ok(match self {
            Self::Image(image) => Box::new(image.file()),
            Self::Device(device) => Box::new(GateBytes::new(&device.gate)?),
        })
    }
}

impl BaseDevice {
    fn new(gate: Gate, info: BaseInfo) -> Self {
        Self {
            gate,
            info,
            warnings: Vec::new(),
            data: Vec::new(),
        }
    }

    fn medium(medium: &Arc<dyn Medium>, access: Access) -> Result<Self> {
        let device = MediumDevice::new(Arc::clone(medium), access.read_only)?;
        Ok(Self::new(Gate::new(device), BaseInfo::Medium))
    }

    /// Opens what is no plain file or block device; that, too, where its smallest transfer may be any.
    pub fn open(target: &Target, access: Access) -> Result<Self> {
        let Access {
            read_only, direct, ..
        } = access;
        match target {
            Target::Path(path) => {
                let device = Image::open(path, read_only)?.into_device(512, direct)?;
                let direct = device.is_direct();
                Ok(Self::new(Gate::new(device), BaseInfo::File { direct }))
            }
            Target::Ram(size) => Ok(Self::new(Gate::new(RamDevice::new(*size)?), BaseInfo::Ram)),
            Target::Pmem(path) => {
                let memory = PersistentMemory::open(path, read_only)?;
                let (how, all) = (memory.how(), 0..memory.size());
                let gate = Gate::new(PmemDevice::new(memory, read_only));
                Ok(Self {
                    data: std::iter::once(all).collect(),
                    ..Self::new(gate, BaseInfo::Pmem { how })
                })
            }
            Target::Btt(path) => Self::btt(path, read_only),
            Target::Zoned(zoned) => match &zoned.place {
                Place::Ram(size) => Self::zones_in_memory(zoned, *size),
                Place::File(path) => {
                    let opened = ZonedFile::open(path, &zoned.options, read_only, direct)?;
                    let warnings = opened.warnings.into_iter().map(Warning::Zones);
                    Ok(Self {
                        warnings: warnings.collect(),
                        ..Self::new(Gate::new(opened.device), BaseInfo::Zoned(opened.layout))
                    })
                }
            },
            Target::Table(_) => Err(Problem::Target("a table is no device".to_owned()).into()),
        }
    }

    fn btt(path: &Path, read_only: bool) -> Result<Self> {
        let memory = PersistentMemory::open(path, read_only)?;
        let how = memory.how();
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
            info: BaseInfo::Btt { sector_size, how },
            warnings: table.warnings().iter().copied().map(Warning::Btt).collect(),
            gate: Gate::new(BttDevice::new(table, read_only)),
        })
    }

    fn zones_in_memory(zoned: &Zoned, size: u64) -> Result<Self> {
        let layout = zoned.options.layout(size);
        let layout =
            layout.map_err(|error| Problem::Zones(error).on(Target::Zoned(zoned.clone())))?;
        let memory = Gate::new(RamDevice::new(size)?);
        let device = ZonedDevice::in_memory(memory, layout)?;
        Ok(Self::new(Gate::new(device), BaseInfo::Zoned(layout)))
    }

    /// Refuses transfers in units of `unit` bytes where a block translation table has larger sectors.
    pub fn check_sectors(&self, unit: u32) -> Result<()> {
        match self.info {
            BaseInfo::Btt { sector_size, .. } if unit < sector_size => Err(Problem::BttSectors {
                unit,
                sector: sector_size,
            }
            .into()),
            _ => Ok(()),
        }
    }

    /// Whether a crash can tear cipher sectors of `sector` bytes, though a table is there to prevent that.
    pub fn torn_sectors(&self, sector: u32) -> Option<Warning> {
        match self.info {
            BaseInfo::Btt { sector_size, .. } if sector > sector_size => {
                Some(Warning::TornSectors {
                    sector,
                    btt: sector_size,
                })
            }
            _ => None,
        }
    }
}

/// A target opened to be looked at. A file is not locked: looking at a header is allowed while the volume is in
/// use. Everything else is: a table cannot be looked through while somebody changes it.
pub(crate) struct Look {
    bytes: Bytes,
    /// Bytes on it.
    pub size: u64,
    /// `MAJOR:MINOR` of a block device.
    pub device_number: Option<String>,
    /// For messages.
    pub name: String,
}

enum Bytes {
    File(File),
    Device(BaseDevice),
}

impl Look {
    fn device(source: &Source) -> Result<Self> {
        let access = Access {
            read_only: true,
            ..Access::default()
        };
        let device = source.open_device(access)?;
        Ok(Self {
            size: device.gate.geometry().size,
            bytes: Bytes::Device(device),
            device_number: None,
            name: source.to_string(),
        })
    }

    pub fn file(path: &Path) -> Result<Self> {
        let failed = |source: io::Error| OpenError::System {
            action: "open",
            path: path.to_owned(),
            source,
        };
        let wrong = |what| OpenError::WrongKind {
            path: path.to_owned(),
            what,
        };
        let file = File::options()
            .read(true)
            // A FIFO must not make us wait for its writer.
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
            .open(path)
            .map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let kind = metadata.file_type();
        if kind.is_dir() {
            return Err(wrong("a directory").into());
        }
        let (size, device_number) = if kind.is_block_device() {
            let (size, _) = cryptline_sys::block_device_size(&file).map_err(failed)?;
            let number = metadata.rdev();
            let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
            (size, Some(format!("{major}:{minor}")))
        } else if kind.is_file() {
            (metadata.len(), None)
        } else {
            return Err(wrong("neither a regular file nor a block device").into());
        };
        Ok(Self {
            bytes: Bytes::File(file),
            size,
            device_number,
            name: path.display().to_string(),
        })
    }

    /// The bytes.
    pub fn reader(&self) -> Result<Box<dyn ReadSeek + '_>> {
        Ok(match &self.bytes {
            Bytes::File(file) => Box::new(file),
            Bytes::Device(device) => Box::new(GateBytes::new(&device.gate)?),
        })
    }
}
