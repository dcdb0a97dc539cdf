//! Reading and writing a device at any byte, for headers.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;

use cryptline_engine::blocking::Blocking;
use cryptline_engine::{BackendChoice, Buffer, Gate};

use crate::error::{Error, Problem};

/// Bytes that are read at a time.
const READ_AHEAD: usize = 64 * 1024;
/// The same for who reads one piece after another of a whole disk.
const READ_ON: usize = 1024 * 1024;

/// A device as if it were a file.
pub(crate) struct GateBytes {
    blocking: Blocking,
    buffer: Buffer,
    /// The bytes of the device that are in the buffer.
    held: Range<u64>,
    block: u64,
    size: u64,
    position: u64,
    is_written: bool,
}

impl GateBytes {
    pub fn new(gate: &Gate) -> Result<Self, Error> {
        Self::with_buffer(gate, READ_AHEAD)
    }

    /// For long reads from one place on: they are made in larger pieces, as long as each begins where the last one ended.
    pub fn reading_on(gate: &Gate) -> Result<Self, Error> {
        Self::with_buffer(gate, READ_ON)
    }

    fn with_buffer(gate: &Gate, len: usize) -> Result<Self, Error> {
        let geometry = gate.geometry();
        Ok(Self {
            blocking: Blocking::new(gate, BackendChoice::Syscalls)?,
            buffer: Buffer::alloc(len).map_err(Problem::KeyMemory)?,
            held: 0..0,
            block: u64::from(geometry.logical_block),
            size: geometry.size,
            position: 0,
            is_written: false,
        })
    }

    /// Tells if anything has been written through it.
    pub fn is_written(&self) -> bool {
        self.is_written
    }
}

impl Read for GateBytes {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        if self.position >= self.size || target.is_empty() {
            return Ok(0);
        }
        if !self.held.contains(&self.position) {
            let goes_on = !self.held.is_empty() && self.position == self.held.end;
            let ahead = if goes_on { self.buffer.len() } else { READ_AHEAD } as u64;
            let start = self.position - self.position % READ_AHEAD as u64;
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

impl Seek for GateBytes {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.position = moved(self.position, self.size, to)?;
        Ok(self.position)
    }
}

impl Write for GateBytes {
    /// Writes as much as fits into the buffer together with the rest of the first and the last block, which is
    /// read before. Nobody else may write meanwhile.
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
        self.blocking.read_at(start, area).map_err(io::Error::other)?;
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

/// A range of other bytes.
pub(crate) struct WindowBytes<T> {
    of: T,
    range: Range<u64>,
    position: u64,
}

impl<T> WindowBytes<T> {
    pub fn new(of: T, range: Range<u64>) -> Self {
        Self { of, range, position: 0 }
    }

    fn size(&self) -> u64 {
        self.range.end - self.range.start
    }
}

impl<T: Seek> WindowBytes<T> {
    /// Goes to the position in the whole; how many of `wanted` bytes lie in the window from there on.
    fn reach(&mut self, wanted: usize) -> io::Result<usize> {
        let size = self.size();
        let left = size.saturating_sub(self.position);
        // A partition table can lead anywhere.
        let at = SeekFrom::Start(self.range.start + self.position.min(size));
        self.of.seek(at)?;
        Ok(usize::try_from(left).map_or(wanted, |left| left.min(wanted)))
    }
}

impl<T: Write + Seek> Write for WindowBytes<T> {
    fn write(&mut self, source: &[u8]) -> io::Result<usize> {
        let len = self.reach(source.len())?;
        let written = self.of.write(&source[..len])?;
        self.position += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.of.flush()
    }
}

impl<T: Read + Seek> Read for WindowBytes<T> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let len = self.reach(target.len())?;
        let read = self.of.read(&mut target[..len])?;
        self.position += read as u64;
        Ok(read)
    }
}

impl<T> Seek for WindowBytes<T> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.position = moved(self.position, self.size(), to)?;
        Ok(self.position)
    }
}

/// Where `to` leads among `size` bytes.
fn moved(position: u64, size: u64, to: SeekFrom) -> io::Result<u64> {
    let moved = match to {
        SeekFrom::Start(at) => Some(at),
        SeekFrom::End(by) => size.checked_add_signed(by),
        SeekFrom::Current(by) => position.checked_add_signed(by),
    };
    Ok(moved.ok_or(io::ErrorKind::InvalidInput)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_ends_where_it_ends() {
        let all: Vec<u8> = (0..100).collect();
        let mut window = WindowBytes::new(io::Cursor::new(all), 10..20);
        let mut found = Vec::new();
        window.read_to_end(&mut found).unwrap();
        assert_eq!(found, (10..20).collect::<Vec<_>>());
        assert_eq!(window.seek(SeekFrom::End(-2)).unwrap(), 8);
        let mut last = [0; 4];
        assert_eq!(window.read(&mut last).unwrap(), 2);
        assert_eq!(last[..2], [18, 19]);
        assert_eq!(window.seek(SeekFrom::Start(50)).unwrap(), 50);
        assert_eq!(window.read(&mut last).unwrap(), 0);
        assert!(window.seek(SeekFrom::Current(-51)).is_err());
        assert_eq!(window.seek(SeekFrom::Start(u64::MAX)).unwrap(), u64::MAX);
        assert_eq!(window.read(&mut last).unwrap(), 0);
    }
}
