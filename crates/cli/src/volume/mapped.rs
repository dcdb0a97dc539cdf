//! `pmem:PATH`, `btt:PATH` and `zoned:PATH`: media that are no plain image, and reading and writing headers
//! on them.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;

use cryptline_engine::base::{DirectMode, PersistentMemory, PmemDevice};
use cryptline_engine::blocking::Blocking;
use cryptline_engine::btt::{Btt, BttDevice, Medium, locate};
use cryptline_engine::{BackendChoice, Gate};
use cryptline_sys::Buffer;

use crate::CliError;

/// Bytes of a header that are read at a time.
const READ_AHEAD: usize = 64 * 1024;

/// A mapped file or DAX device, perhaps with a block translation table on it, or emulated zones.
pub struct Mapped {
    /// The way in.
    pub gate: Gate,
    /// What it is, for people.
    pub how: String,
    /// What the user should know, one line each.
    pub warnings: Vec<String>,
    /// Where the data lies in what is mapped; not told for zones.
    pub data: Vec<Range<u64>>,
}

impl Mapped {
    /// Opens `target`, if it begins with `pmem:`, `btt:` or `zoned:`. Only the last can be `direct`.
    ///
    /// # Errors
    /// Exit code 4 for what can not be mapped, holds no sound table or has no such zones, 5 for
    /// what is in use.
    pub fn open(
        target: &str,
        read_only: bool,
        direct: DirectMode,
    ) -> Result<Option<Self>, CliError> {
        if let Some(text) = target.strip_prefix("zoned:") {
            return super::zoned::open(text, read_only, direct).map(Some);
        }
        if let Some(path) = target.strip_prefix("pmem:") {
            let memory = PersistentMemory::open(Path::new(path), read_only)?;
            let how = memory.how().to_owned();
            return Ok(Some(Self {
                data: std::iter::once(0..memory.size()).collect(),
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
        let failed = |error| CliError::device(format!("{path}: {error}"));
        let arenas = locate(&memory).map_err(failed)?;
        let data = arenas.iter().map(|arena| {
            let layout = arena.info.layout;
            let first = layout.block_offset(0);
            arena.start + first..arena.start + layout.block_offset(layout.internal_nlba)
        });
        let table = Btt::open(memory, read_only).map_err(failed)?;
        Ok(Some(Self {
            data: data.collect(),
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
        let geometry = self.gate.geometry();
        if geometry.zones.is_some() {
            return Ok(());
        }
        let sector = geometry.logical_block;
        if bytes < sector {
            Err(CliError::device(format!(
                "the volume is read and written in units of {bytes} bytes, the BTT below it has sectors of {sector}; make a table with --sector-size 512, or a volume with larger sectors"
            )))
        } else {
            Ok(())
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
    pub fn reader(&self) -> Result<MappedBytes, CliError> {
        let memory = |error: io::Error| CliError::memory(format!("no memory to read: {error}"));
        Ok(MappedBytes {
            blocking: Blocking::new(&self.gate, BackendChoice::Syscalls)?,
            buffer: Buffer::alloc(READ_AHEAD).map_err(memory)?,
            held: 0..0,
            block: u64::from(self.gate.geometry().logical_block),
            size: self.gate.geometry().size,
            position: 0,
            is_written: false,
        })
    }
}

/// Reads and writes a device at any byte.
pub struct MappedBytes {
    blocking: Blocking,
    buffer: Buffer,
    /// The bytes of the device that are in the buffer.
    held: std::ops::Range<u64>,
    block: u64,
    size: u64,
    position: u64,
    is_written: bool,
}

impl MappedBytes {
    /// Whether anything has been written through it.
    pub fn is_written(&self) -> bool {
        self.is_written
    }
}

impl Read for MappedBytes {
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

impl Seek for MappedBytes {
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

impl Write for MappedBytes {
    /// Writes as much as fits into the buffer with the rest of the first and the last block, which is read
    /// before. For headers: nobody else writes meanwhile.
    fn write(&mut self, source: &[u8]) -> io::Result<usize> {
        let block = self.block;
        let start = self.position - self.position % block;
        let before = usize::try_from(self.position - start).map_err(io::Error::other)?;
        let left = usize::try_from(self.size.saturating_sub(self.position)).unwrap_or(usize::MAX);
        let len = source.len().min(left).min(READ_AHEAD - before);
        let end = (self.position + len as u64).next_multiple_of(block);
        let area = usize::try_from(end - start).map_err(io::Error::other)?;
        (self.held, self.is_written) = (0..0, true);
        let area = &mut self.buffer[..area];
        self.blocking
            .read_at(start, area)
            .map_err(io::Error::other)?;
        area[before..before + len].copy_from_slice(&source[..len]);
        let written = self.blocking.write_at(start, area, false);
        written.map_err(io::Error::other)?;
        self.position += len as u64;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.blocking.flush().map_err(io::Error::other)
    }
}
