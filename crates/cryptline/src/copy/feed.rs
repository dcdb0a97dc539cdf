//! Parts to be copied next: the workers take them chunk by chunk, in any order.

use std::fs::File;
use std::io::Read;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cryptline_engine::{Buffer, Gate};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::CopyTrouble;

/// Bytes that are read at a time.
pub(super) const CHUNK: usize = 1 << 20;
/// A stream ends with zeros up to a multiple of this and of the destination's blocks, as far as there is room.
pub(super) const PADDED: usize = 4096;
/// How long a stream may be silent before somebody looks whether it is still wanted.
const SILENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Makes room up to this byte.
pub(crate) type Grow<'a> = &'a (dyn Fn(u64) -> Result<(), CopyTrouble> + Sync);

pub(super) enum Feed<'a> {
    Device {
        gate: &'a Gate,
        next: AtomicU64,
        /// Behind the last whole block.
        end: u64,
    },
    /// There is one end to read from, so the workers take turns; each encrypts while the next one reads.
    Stream(Mutex<SourceStream<'a>>),
}

pub(super) struct SourceStream<'a> {
    pub file: &'a File,
    /// Bytes that came.
    pub position: u64,
    /// No more than these have room, unless more can be made.
    pub room: u64,
    pub grow: Option<Grow<'a>>,
    /// A multiple of this is written.
    pub block: usize,
    pub is_over: bool,
}

/// A part of the source.
pub(super) enum SourcePiece {
    /// To be read.
    Read { offset: u64, len: usize },
    /// Known to be zeros.
    Zeros { offset: u64, len: usize },
    /// In the buffer, and of it what came: behind that are zeros.
    Here { offset: u64, len: usize, came: usize },
}

impl Feed<'_> {
    /// The next piece; `None` at the end. Of a stream it is read into `buffer`.
    pub fn next(&self, buffer: &mut Buffer, is_over: impl Fn() -> bool) -> Result<Option<SourcePiece>, CopyTrouble> {
        match self {
            Self::Device { gate, next, end } => Ok(next_of_device(gate, next, *end)),
            Self::Stream(stream) => cryptline_sys::lock(stream).next(buffer, is_over),
        }
    }
}

fn next_of_device(gate: &Gate, next: &AtomicU64, end: u64) -> Option<SourcePiece> {
    let offset = next.fetch_add(CHUNK as u64, Ordering::AcqRel);
    let left = end.checked_sub(offset).filter(|left| *left > 0)?;
    let len = usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK));
    // What cannot be told is read, which tells.
    let extent = gate.extent(offset, len as u64).ok();
    let is_zero = extent.is_some_and(|extent| extent.zero && extent.len == len as u64);
    Some(if is_zero { SourcePiece::Zeros { offset, len } } else { SourcePiece::Read { offset, len } })
}

impl SourceStream<'_> {
    fn next(&mut self, buffer: &mut Buffer, is_over: impl Fn() -> bool) -> Result<Option<SourcePiece>, CopyTrouble> {
        if self.is_over {
            return Ok(None);
        }
        let offset = self.position;
        let wanted = offset + CHUNK as u64;
        if wanted > self.room
            && let Some(grow) = self.grow
        {
            // In large steps, where these are possible.
            let ample = wanted.max(self.room.saturating_mul(2));
            let grown = grow(ample).map(|()| ample);
            self.room = grown.or_else(|_| grow(wanted).map(|()| wanted))?;
        }
        let room = self.room - offset;
        let wanted = usize::try_from(room).map_or(CHUNK, |room| room.min(CHUNK));
        buffer.set_len(CHUNK);
        let mut len = 0;
        // One byte more than there is room for must be the end.
        while len < wanted.max(1) {
            let read = self.read(&mut buffer[len..wanted.max(1)], &is_over)?;
            len += read;
            if read == 0 {
                self.is_over = true;
                break;
            }
        }
        if len > wanted {
            return Err(CopyTrouble::Full { room: self.room });
        }
        self.position += len as u64;
        // The end may lie inside a block; the buffer has other bytes from before there.
        buffer[len..].fill(0);
        let came = len;
        let len = len.next_multiple_of(self.block).min(wanted.max(len));
        Ok((len > 0).then_some(SourcePiece::Here { offset, len, came }))
    }

    /// Waits for bytes, and for nothing else once they are no longer wanted.
    fn read(&self, target: &mut [u8], is_over: &impl Fn() -> bool) -> Result<usize, CopyTrouble> {
        loop {
            if is_over() {
                return Err(CopyTrouble::Stopped);
            }
            let mut polled = [PollFd::new(self.file, PollFlags::IN)];
            match rustix::event::poll(&mut polled, Some(&SILENCE)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(errno) => return Err(CopyTrouble::Stream(errno.into())),
            }
            let mut file = self.file;
            match file.read(target) {
                Ok(read) => return Ok(read),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(CopyTrouble::Stream(error)),
            }
        }
    }
}

/// Tells if the caller wants no more.
pub(super) fn is_set(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed)
}
