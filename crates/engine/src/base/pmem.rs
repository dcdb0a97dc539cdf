//! `pmem`: a file or DAX device in memory. It answers at once: a request is done when `submit`
//! returns, and no system call is made for it unless it must be durable and the mapping is only
//! the page cache.
//!
//! Where the mapping is persistent memory (`MAP_SYNC`), every write is durable when it completes,
//! in units of eight bytes: a sector can be torn by a crash, which is what [`btt`](crate::btt) is
//! for. Elsewhere a flush or a durable write is an `msync`.
//!
//! A device that lost a page, was found cut short, or failed to sync fails every request from then
//! on, and no flush succeeds any more, also when the file is as long as ever again.

use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use cryptline_sys::{Lost, Mapping, Ring, Simulation};
use rustix::io::Errno;

use super::Image;
use super::image::{lock, open_error};
use crate::btt::BttMedium;
use crate::queue::Immediate;
use crate::{Device, Fault, Geometry, Op, OpenError, Queue, Request, Traits, ZEROS};

/// A mapped file or DAX device, opened and locked.
pub struct PersistentMemory {
    mapping: Mapping,
    /// Somebody can cut it short.
    is_file: bool,
}

impl PersistentMemory {
    /// Opens, locks and maps a regular file, a block device or a DAX character device.
    ///
    /// # Errors
    /// As [`Image::open`]; and where it can not be mapped.
    pub fn open(path: &Path, read_only: bool) -> Result<Self, OpenError> {
        let metadata = std::fs::metadata(path).map_err(|error| OpenError::system("open", path, error))?;
        let kind = metadata.file_type();
        let (file, size, is_dax) = if kind.is_char_device() {
            let size = dax_size(path, &metadata)?;
            (open_dax(path, read_only)?, size, true)
        } else {
            let image = Image::open(path, read_only)?;
            let size = image.size();
            (image.into_file(), size, false)
        };
        let len = usize::try_from(size).ok().filter(|len| *len >= 512);
        let len = len.ok_or_else(|| {
            OpenError::Geometry(format!(
                "{} has {size} bytes, too few to be a disk; give it a size first (truncate -s)",
                path.display()
            ))
        })?;
        let mapping = Mapping::new(file, len, !read_only, is_dax);
        Ok(Self { mapping: mapping.map_err(|error| OpenError::system("map", path, error))?, is_file: kind.is_file() })
    }

    /// Lets a kernel of a test's making sync it.
    #[must_use]
    pub fn simulate(mut self, simulation: Simulation) -> Self {
        self.mapping = self.mapping.simulate(simulation);
        self
    }

    /// Returns the means by which stores become durable, for people.
    #[must_use]
    pub fn how(&self) -> &'static str {
        match self.mapping.persistent_memory() {
            Some("clwb") => "persistent memory (MAP_SYNC, clwb)",
            Some("clflushopt") => "persistent memory (MAP_SYNC, clflushopt)",
            Some(_) => "persistent memory (MAP_SYNC, clflush)",
            None => "page cache (msync)",
        }
    }

    /// Tells if the mapping is the medium itself.
    #[must_use]
    pub fn is_persistent_memory(&self) -> bool {
        self.mapping.persistent_memory().is_some()
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &File {
        self.mapping.file()
    }

    /// Orders this thread's stores before its later ones, as other threads see them and, where the
    /// mapping is persistent memory, as the medium does.
    pub fn fence(&self) {
        self.mapping.fence();
    }

    /// Why a page was lost.
    fn fault(&self, _: Lost) -> Fault {
        match self.check_size() {
            Err(fault) => fault,
            // The file is as long as ever: a full disk below a hole, or a failed medium.
            Ok(()) => Fault::Io(Errno::IO),
        }
    }

    /// Why the mapping could not be synced.
    fn sync_fault(&self, error: std::io::Error) -> Fault {
        match self.check_size() {
            Err(fault) => fault,
            // Whatever the number, it is no refusal: it may tell of earlier stores, and a write has made its own by now.
            Ok(()) => Fault::Io(Errno::from_io_error(&error).unwrap_or(Errno::IO)).unrefused(),
        }
    }

    /// The bytes behind a file's new end read as zeros up to the end of their page, without a
    /// signal: so its size is looked at too.
    fn check_size(&self) -> Result<(), Fault> {
        if !self.is_file {
            return Ok(());
        }
        let size = rustix::fs::fstat(self.mapping.file())?.st_size;
        match u64::try_from(size) {
            Ok(size) if size >= self.size() => Ok(()),
            _ => {
                self.mapping.lose();
                Err(Fault::Truncated)
            }
        }
    }
}

impl BttMedium for PersistentMemory {
    fn size(&self) -> u64 {
        self.mapping.len() as u64
    }

    fn read(&self, offset: u64, target: &mut [u8]) -> Result<(), Fault> {
        let read = self.mapping.read(position(offset), target);
        read.map_err(|lost| self.fault(lost))
    }

    fn load32(&self, offset: u64) -> Result<u32, Fault> {
        let word = self.mapping.load32(position(offset));
        word.map(u32::from_le).map_err(|lost| self.fault(lost))
    }

    fn store(&self, offset: u64, source: &[u8]) -> Result<(), Fault> {
        let stored = self.mapping.store(position(offset), source);
        stored.map_err(|lost| self.fault(lost))
    }

    fn store32(&self, offset: u64, word: u32) -> Result<(), Fault> {
        let stored = self.mapping.store32(position(offset), word.to_le());
        stored.map_err(|lost| self.fault(lost))
    }

    fn store64(&self, offset: u64, word: u64) -> Result<(), Fault> {
        let stored = self.mapping.store64(position(offset), word.to_le());
        stored.map_err(|lost| self.fault(lost))
    }

    fn persist(&self) -> Result<(), Fault> {
        let synced = self.mapping.sync();
        synced.map_err(|error| self.sync_fault(error))
    }

    fn clear(&self, offset: u64, len: u64) -> Result<(), Fault> {
        match self.mapping.punch(position(offset), position(len)) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {}
            Err(error) => return Err(self.sync_fault(error)),
        }
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let piece = &ZEROS[..position(end - at).min(ZEROS.len())];
            self.store(at, piece)?;
            at += piece.len() as u64;
        }
        self.persist()
    }

    fn check(&self) -> Result<(), Fault> {
        self.check_size()?;
        let whole = self.mapping.check_whole();
        whole.map_err(|lost| self.fault(lost))
    }
}

/// Persistent memory as a device.
///
/// No discard and no write-zeroes: memory that was written stays allocated; the `file` base gives
/// space back.
pub struct PmemDevice {
    memory: Arc<PersistentMemory>,
    read_only: bool,
}

impl PmemDevice {
    /// The device over `memory`, which was opened with the same `read_only`.
    #[must_use]
    pub fn new(memory: PersistentMemory, read_only: bool) -> Self {
        Self::over(Arc::new(memory), read_only)
    }

    /// The same over memory that others read and write too.
    #[must_use]
    pub fn over(memory: Arc<PersistentMemory>, read_only: bool) -> Self {
        Self { memory, read_only }
    }
}

impl Device for PmemDevice {
    fn traits(&self) -> Traits {
        let size = self.memory.size();
        Traits::immediate(Geometry {
            preferred_block: 4096,
            read_only: self.read_only,
            ..Geometry::plain(size - size % 512, 512)
        })
    }

    fn open_queue(&self, _ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        Ok(Box::new(PmemQueue { memory: Arc::clone(&self.memory) }))
    }
}

struct PmemQueue {
    memory: Arc<PersistentMemory>,
}

impl PmemQueue {
    fn write(&self, offset: u64, data: &[u8], durable: bool) -> Result<(), Fault> {
        self.memory.store(offset, data)?;
        // Stores that bypass the caches are seen by other threads in order only after this.
        self.memory.fence();
        if durable {
            let (offset, mapping) = (position(offset), &self.memory.mapping);
            let synced = mapping.sync_range(offset, data.len());
            synced.map_err(|error| self.memory.sync_fault(error))
        } else {
            Ok(())
        }
    }

    fn flush(&self) -> Result<(), Fault> {
        self.memory.persist()?;
        self.memory.check()
    }
}

impl Immediate for PmemQueue {
    fn answer(&mut self, request: &mut Request) -> Result<(), Fault> {
        let offset = request.offset;
        match (request.op, &mut request.data) {
            (Op::Read, Some(buffer)) => self.memory.read(offset, buffer),
            (Op::Write | Op::WriteFua, Some(data)) => self.write(offset, data, request.op.is_sync()),
            (Op::Flush, _) => self.flush(),
            // The geometry offers nothing else, so the gate lets nothing through.
            _ => Err(Fault::NotSupported),
        }
    }
}

/// Size of a DAX device in bytes, which the file itself does not know.
fn dax_size(path: &Path, metadata: &std::fs::Metadata) -> Result<u64, OpenError> {
    let number = metadata.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let folder = format!("/sys/dev/char/{major}:{minor}");
    let subsystem = std::fs::canonicalize(format!("{folder}/subsystem"));
    let is_dax = subsystem.is_ok_and(|place| place.ends_with("dax"));
    let size = std::fs::read_to_string(format!("{folder}/size")).unwrap_or_default();
    match (is_dax, size.trim().parse()) {
        (true, Ok(size)) => Ok(size),
        _ => Err(OpenError::WrongKind {
            path: path.to_owned(),
            what: "neither a regular file nor a block or DAX device",
        }),
    }
}

fn open_dax(path: &Path, read_only: bool) -> Result<File, OpenError> {
    let file = File::options().read(true).write(!read_only).open(path);
    let file = file.map_err(|error| open_error(path, read_only, error))?;
    lock(&file, path, !read_only)?;
    Ok(file)
}

/// The range lies inside the mapping, so it fits.
fn position(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a range inside a mapping fits in usize")
}
