//! Holders of headers, open: read, locked, and written.

use std::io::{Read, Seek, Write};

use cryptline_luks::edit::{Edit, HeaderChange};
use cryptline_luks::{Area, Error as LuksError, LuksHeader};
use rustix::fs::{FallocateFlags, fallocate};

use super::Edited;
use super::lock::{InUse, Lock};
use super::own_device::OwnDevice;
use crate::Result;
use crate::base::{Access, Base, BaseSource, BaseStore};
use crate::bytes::{GateBytes, WindowBytes};
use crate::create::Durable;
use crate::error::Problem;
use crate::target::Target;

/// Bytes that can be read and written.
pub(super) trait HeaderDevice: Read + Write + Seek {}

impl<T: Read + Write + Seek> HeaderDevice for T {}

fn bytes_of(base: &Base) -> Result<Box<dyn HeaderDevice + '_>> {
    let whole: Box<dyn HeaderDevice + '_> = match &base.store {
        BaseStore::Image(image) => Box::new(Durable(image.file())),
        BaseStore::Device(device) => Box::new(GateBytes::new(&device.gate)?),
    };
    Ok(match &base.range {
        Some(range) => Box::new(WindowBytes::new(whole, range.clone())),
        None => whole,
    })
}

/// Tells the file system that overwritten key material needs no place, so that what lies under a file that is copied when
/// it is written does not keep the old bytes for it. Some cannot be told.
fn give_back(base: &Base, freed: &[Area]) {
    let Some(file) = base.file().filter(|file| file.metadata().is_ok_and(|found| found.is_file())) else {
        return;
    };
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for extent in freed {
        // A header may say more than there is, and what is behind it is somebody else's.
        let size = extent.size.min(base.size().saturating_sub(extent.offset));
        if size > 0 {
            let _ = fallocate(file, hole, base.start() + extent.offset, size);
        }
    }
}

/// Holder of the header.
pub(super) struct OpenedHeader {
    pub base: Base,
    pub name: String,
}

impl OpenedHeader {
    /// The kernel or other readers may use the volume; only who wants it alone is kept out.
    pub fn of(source: &BaseSource, read_only: bool) -> Result<Self> {
        Self::beside(source, read_only, true)
    }

    /// Beside others, or alone.
    pub fn beside(source: &BaseSource, read_only: bool, others: bool) -> Result<Self> {
        if source.is_memory() {
            return Err(Problem::HoldsNothing.on(source));
        }
        let name = source.to_string();
        let own = match OwnDevice::of(source)? {
            Some(own) if own.is_there() => Some(BaseSource::Target(Target::Path(own.path))),
            Some(own) if !read_only => return Err(Problem::NoOwnDevice(own.path).on(name)),
            _ => None,
        };
        let source = own.as_ref().unwrap_or(source);
        let access = Access {
            read_only,
            shared: others && matches!(source, BaseSource::Target(Target::Path(_))),
            ..Access::default()
        };
        let base = source.open(access)?;
        Ok(Self { base, name })
    }

    /// Its bytes. A flush makes durable.
    pub fn device(&self) -> Result<Box<dyn HeaderDevice + '_>> {
        bytes_of(&self.base)
    }

    fn lock(&self) -> Result<Option<Lock<'_>>> {
        self.base.file().map(Lock::to_change).transpose().map_err(|problem| problem.on(&self.name))
    }

    pub fn lock_to_read(&self) -> Result<Option<Lock<'_>>> {
        self.base.file().map(Lock::to_read).transpose().map_err(|problem| problem.on(&self.name))
    }

    pub fn load(&self) -> Result<Edit> {
        let _lock = self.lock_to_read()?;
        self.on(Edit::load(&mut self.device()?, self.base.size()))
    }

    /// The same of a header that may be one to be read only.
    pub fn look(&self) -> Result<Edit> {
        let _lock = self.lock_to_read()?;
        self.on(Edit::look(&mut self.device()?, self.base.size()))
    }

    /// While it is kept, nobody reencrypts the volume of this header.
    fn in_use(&self, header: &LuksHeader) -> Result<Option<InUse>> {
        InUse::of(header).map_err(|problem| problem.on(&self.name))
    }

    /// Locks of who changes the header by which others know the volume.
    pub fn locks(&self, header: &LuksHeader) -> Result<(Option<InUse>, Option<Lock<'_>>)> {
        Ok((self.in_use(header)?, self.lock()?))
    }

    pub fn commit(&self, change: HeaderChange<'_>, slot: Option<u32>) -> Result<Edited> {
        let _locks = self.locks(change.of().header())?;
        self.commit_locked(change, slot)
    }

    pub fn commit_locked(&self, change: HeaderChange<'_>, slot: Option<u32>) -> Result<Edited> {
        let freed = change.freed();
        let header = self.written(change.commit(&mut self.device()?, self.base.size()), &freed)?;
        Ok(Edited::of(header, slot))
    }

    /// The header that was written. What nothing uses any more is given back, above all where it could not be overwritten.
    pub fn written(&self, done: std::result::Result<LuksHeader, LuksError>, freed: &[Area]) -> Result<LuksHeader> {
        if matches!(done, Ok(_) | Err(LuksError::NotWiped { .. })) {
            give_back(&self.base, freed);
        }
        self.on(done)
    }

    pub fn on<T>(&self, done: std::result::Result<T, cryptline_luks::Error>) -> Result<T> {
        done.map_err(|error| Problem::Luks(error).on(&self.name))
    }
}
