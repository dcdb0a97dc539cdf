//! `pmem:PATH` and `btt:PATH`: media that answer at once, and reading a header from them.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use cryptline_engine::base::{PersistentMemory, PmemDevice};
use cryptline_engine::blocking::Blocking;
use cryptline_engine::btt::{Btt, BttDevice};
use cryptline_engine::{BackendChoice, Gate};
use cryptline_sys::Buffer;

use crate::CliError;

/// Bytes of a header that are read at a time.
const READ_AHEAD: usize = 64 * 1024;

/// A mapped file or DAX device, perhaps with a block translation table on it.
pub struct Mapped {
    /// The way in.
    pub gate: Gate,
    /// What it is, for people.
    pub how: String,
    /// What the user should know, one line each.
    pub warnings: Vec<String>,
}

impl Mapped {
    /// Opens `target`, if it begins with `pmem:` or `btt:`.
    ///
    /// # Errors
    /// Exit code 4 for what can not be mapped or holds no sound table, 5 for what is in use.
    pub fn open(target: &str, read_only: bool) -> Result<Option<Self>, CliError> {
        if let Some(path) = target.strip_prefix("pmem:") {
            let memory = PersistentMemory::open(Path::new(path), read_only)?;
            let how = memory.how().to_owned();
            return Ok(Some(Self {
                gate: Gate::new(PmemDevice::new(memory, read_only)),
                how,
                warnings: Vec::new(),
            }));
        }
        let Some(path) = target.strip_prefix("btt:") else {
            return Ok(None);
        };
        let memory = PersistentMemory::open(Path::new(path), read_only)?;
        let how = memory.how();
        let table = Btt::open(memory, read_only)
            .map_err(|error| CliError::device(format!("{path}: {error}")))?;
        Ok(Some(Self {
            how: format!("BTT of {}-byte sectors over {how}", table.sector_size()),
            warnings: table.warnings().to_vec(),
            gate: Gate::new(BttDevice::new(table, read_only)),
        }))
    }

    /// Refuses transfers in units of `bytes` where the table has larger sectors.
    ///
    /// # Errors
    /// Exit code 4.
    pub fn check_sectors(&self, bytes: u32) -> Result<(), CliError> {
        let sector = self.gate.geometry().logical_block;
        match bytes < sector {
            true => Err(CliError::device(format!(
                "the volume is read and written in units of {bytes} bytes, the BTT below it has sectors of {sector}; make a table with --sector-size 512, or a volume with larger sectors"
            ))),
            false => Ok(()),
        }
    }

    /// A crash can tear a cipher sector that is larger than a table's.
    pub fn warn_of_torn_sectors(&self, cipher_sector: u32) -> Option<String> {
        let geometry = self.gate.geometry();
        let torn = self.how.starts_with("BTT") && cipher_sector > geometry.logical_block;
        torn.then(|| {
            format!(
                "cipher sectors of {cipher_sector} bytes lie over BTT sectors of {} and can be torn by a crash; a table of {cipher_sector}-byte sectors prevents that",
                geometry.logical_block
            )
        })
    }

    /// Its bytes as a file's.
    ///
    /// # Errors
    /// Exit code 3 when memory runs out.
    pub fn reader(&self) -> Result<MappedReader, CliError> {
        let memory = |error: io::Error| CliError::memory(format!("no memory to read: {error}"));
        Ok(MappedReader {
            blocking: Blocking::new(&self.gate, BackendChoice::Syscalls)?,
            buffer: Buffer::alloc(READ_AHEAD).map_err(memory)?,
            held: 0..0,
            size: self.gate.geometry().size,
            position: 0,
        })
    }
}

/// Reads a device at any byte.
pub struct MappedReader {
    blocking: Blocking,
    buffer: Buffer,
    /// The bytes of the device that are in the buffer.
    held: std::ops::Range<u64>,
    size: u64,
    position: u64,
}

impl Read for MappedReader {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        if self.position >= self.size || target.is_empty() {
            return Ok(0);
        }
        if !self.held.contains(&self.position) {
            let ahead = READ_AHEAD as u64;
            let start = self.position - self.position % ahead;
            let end = (start + ahead).min(self.size);
            let len = usize::try_from(end - start).map_err(io::Error::other)?;
            self.held = 0..0;
            let read = self.blocking.read_at(start, &mut self.buffer[..len]);
            read.map_err(io::Error::other)?;
            self.held = start..end;
        }
        let from = usize::try_from(self.position - self.held.start).map_err(io::Error::other)?;
        let to = usize::try_from(self.held.end - self.held.start).map_err(io::Error::other)?;
        let len = target.len().min(to - from);
        target[..len].copy_from_slice(&self.buffer[from..from + len]);
        self.position += len as u64;
        Ok(len)
    }
}

impl Seek for MappedReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.size.checked_add_signed(by),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}
