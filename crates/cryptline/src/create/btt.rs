//! A new block translation table: in a new file, or over what a file or device holds.

use std::path::{Path, PathBuf};

use cryptline_engine::Fault;
use cryptline_engine::base::PersistentMemory;
use cryptline_engine::btt::layout::{ARENA_MIN, START_V1, arenas, is_sector_size};
use cryptline_engine::btt::{Btt, BttMedium, NewTable};
use cryptline_sys::SecretBuf;

use super::draft::Draft;
use super::{MakingStep, Observer, Progress};
use crate::Result;
use crate::error::Problem;
use crate::setters::{setter_of_options, setters};

/// How to make a block translation table.
pub struct CreateBtt {
    path: PathBuf,
    size: Option<u64>,
    sector_size: u32,
    uuid: Option<[u8; 16]>,
    replace: bool,
    observer: Option<Observer>,
}

/// A table that was made, and opened again.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CreatedBtt {
    /// Bytes that it holds.
    pub data_size: u64,
    /// Its UUID, in the byte order of RFC 9562.
    pub uuid: [u8; 16],
}

impl CreateBtt {
    /// A table of 4096-byte sectors in the file or on the device at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), size: None, sector_size: 4096, uuid: None, replace: false, observer: None }
    }

    setter_of_options!();

    setters! {
        /// Makes a new file of this many bytes, table included: whole under its name, or not at all. Without it, the
        /// file or device is there already.
        fn size(bytes: u64) { size = Some(bytes) }

        /// Bytes in a sector: 512 or 4096.
        fn sector_size(bytes: u32) { sector_size = bytes }

        /// The table's UUID; without it, a random one.
        fn uuid(uuid: [u8; 16]) { uuid = Some(uuid) }

        /// Replaces a file that exists; or, without a size, all that the file or device holds.
        fn replace(yes: bool) { replace = yes }

        /// Told what happens. An error from it ends the making of a new file; elsewhere, a table that was begun is finished.
        fn on_progress(observer: impl Fn(Progress<'_>) -> Result<()> + Send + Sync + 'static) {
            observer = Some(Box::new(observer))
        }
    }

    /// Makes the table, and opens it again.
    ///
    /// # Errors
    /// Any problem with the options, or with the place. A new file is not kept then, unless only its name could not be
    /// made durable ([`Problem::NameNotDurable`]).
    pub fn create(self) -> Result<CreatedBtt> {
        if !is_sector_size(self.sector_size) {
            return Err(Problem::BttSectorSize(self.sector_size).into());
        }
        let new = NewTable {
            sector_size: self.sector_size,
            uuid: self.uuid.map_or_else(random_uuid, Ok)?,
            is_zero: self.size.is_some(),
        };
        let sectors = match self.size {
            Some(size) => self.in_new_file(&new, size)?,
            None => self.in_place(&new)?,
        };
        Ok(CreatedBtt { data_size: sectors * u64::from(self.sector_size), uuid: new.uuid })
    }

    fn in_new_file(&self, new: &NewTable, size: u64) -> Result<u64> {
        self.refuse_too_small(size)?;
        let draft = Draft::told(&self.path, self.replace, |progress| self.tell(progress))?;
        self.step(MakingStep::Refuse)?;
        draft.set_size(size, false)?;
        self.step(MakingStep::Head)?;
        let memory = PersistentMemory::open(draft.path(), false)?;
        draft.refuse_another(memory.file())?;
        let sectors = self.write(new, memory)?;
        self.step(MakingStep::Size)?;
        draft.sync()?;
        self.step(MakingStep::Check)?;
        self.check(draft.path())?;
        self.step(MakingStep::Name)?;
        draft.publish()?;
        Ok(sectors)
    }

    fn in_place(&self, new: &NewTable) -> Result<u64> {
        let name = self.path.display();
        if !self.path.exists() {
            return Err(Problem::NoSize.on(name));
        }
        if !self.replace {
            return Err(Problem::Exists { holds: None }.on(name));
        }
        let memory = PersistentMemory::open(&self.path, false)?;
        self.refuse_too_small(memory.size())?;
        self.step(MakingStep::Refuse)?;
        // From here on, what is begun must be ended.
        let _ = self.step(MakingStep::Head);
        let sectors = self.write(new, memory)?;
        let _ = self.step(MakingStep::Check);
        self.check(&self.path)?;
        Ok(sectors)
    }

    fn write(&self, new: &NewTable, memory: PersistentMemory) -> Result<u64> {
        let of = new.work(memory.size());
        let failure = |fault: Fault| Problem::BttWrite(fault).on(self.path.display());
        let sectors = new.write(&memory, |bytes| _ = self.tell(Progress::Done { bytes, of })).map_err(failure)?;
        memory.check().map_err(failure)?;
        Ok(sectors)
    }

    /// Opens the table as whoever uses it next would.
    fn check(&self, path: &Path) -> Result<()> {
        let name = self.path.display();
        let memory = PersistentMemory::open(path, true)?;
        let damaged = |why: String| match self.size {
            Some(_) => Problem::DoesNotOpen(why).on(&name),
            None => Problem::DoesNotOpenInPlace(why).on(&name),
        };
        let table = Btt::open(memory, true).map_err(|error| damaged(error.to_string()))?;
        match table.warnings().first() {
            None => Ok(()),
            Some(lost) => Err(damaged(lost.to_string())),
        }
    }

    fn tell(&self, progress: Progress<'_>) -> Result<()> {
        self.observer.as_ref().map_or(Ok(()), |observer| observer(progress))
    }

    fn step(&self, step: MakingStep) -> Result<()> {
        self.tell(Progress::Step(step))
    }

    fn refuse_too_small(&self, size: u64) -> Result<()> {
        if arenas(size, self.sector_size).is_empty() {
            let least = START_V1 + ARENA_MIN;
            return Err(Problem::BttTooSmall { size, least }.on(self.path.display()));
        }
        Ok(())
    }
}

/// A random one (version 4).
fn random_uuid() -> Result<[u8; 16]> {
    let bytes = SecretBuf::random(16).map_err(Problem::KeyMemory)?;
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&bytes);
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    Ok(uuid)
}
