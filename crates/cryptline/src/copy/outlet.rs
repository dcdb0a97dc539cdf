//! Copies into what takes bytes one after another, such as a pipe.
//!
//! One thread has several chunks of the source under way and writes each when its turn has come, so nobody waits for a
//! chunk behind it, and no more than these are in memory. A pipe that nobody reads holds a `write` for as long as that
//! lasts; so it is opened once more, not to wait, or gets only as much at a time as it says that it takes. Then the copy
//! can be stopped, and it ends when the reader does.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use cryptline_engine::{Arena, Channel, Fault, Gate, Request, Submitted};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::PIPE_BUF;

use super::feed::{CHUNK, Feed, SourcePiece, is_set};
use super::hashes::Hashes;
use super::source::SourceBytes;
use super::transfer::Moved;
use super::turns::{OrderedChunk, Turns};
use super::{Copied, Copy, CopyError, CopyRemains, CopyTrouble, ResumeError};
use crate::Result;
use crate::create::Progress;
use crate::durable;
use crate::error::Problem;

/// Chunks in hand.
const BUFFERS: usize = 8;
/// Chunks that are begun, of which those that are known to be zeros have no buffer.
const BEGUN: usize = 64;
/// How long a wait may keep from noticing that the copy is over.
const PATIENCE: Duration = Duration::from_millis(200);
const SILENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// How often the caller is told how far it is.
const TICK: Duration = Duration::from_millis(250);
/// Size that a pipe is asked to have.
const PIPE: usize = 1 << 20;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

impl Copy {
    /// Into `to`, called `name`: the decrypted bytes, one after another, such as into a pipe. Zeros are written like all
    /// others. A file or a disk has all of it durable at the end; nobody looks first at what a disk holds. Nothing can be
    /// verified or resumed there.
    ///
    /// # Errors
    /// Any problem with either side, such as a reader that has ended; a part was written then.
    pub fn into_stream(mut self, to: File, name: &str) -> Result<Copied> {
        if self.resume.is_some() {
            return Err(Problem::Resume(ResumeError::Destination).on(name));
        }
        let SourceBytes::Device { gate, size, .. } = &self.source.bytes else {
            return Err(Problem::Copy(CopyError::PassesOn).on(self.source.name()));
        };
        if self.verify {
            return Err(Problem::Copy(CopyError::OneWay).on(name));
        }
        self.refuse_zones(None, name)?;
        self.source.refuse_same_file(&to, name)?;
        let outlet = CopyOutlet::new(to, &self.stop);
        let moved = Pump::new(&self, gate, *size, outlet).and_then(Pump::run);
        let left = CopyRemains::Part(name.to_owned());
        let moved = moved.map_err(|trouble| trouble.into_error(self.source.name(), name, left))?;
        Ok(self.copied(moved, Vec::new()))
    }
}

/// A copy on its way.
struct Pump<'a> {
    copy: &'a Copy,
    channel: Channel,
    arena: Arc<Arena>,
    feed: Feed<'a>,
    size: u64,
    /// Behind the last whole block.
    end: u64,
    /// Chunks that are begun, in their order.
    turns: Turns,
    hashes: Option<Hashes>,
    outlet: CopyOutlet<'a>,
    told: Instant,
}

impl<'a> Pump<'a> {
    fn new(
        copy: &'a Copy,
        gate: &'a Gate,
        size: u64,
        outlet: CopyOutlet<'a>,
    ) -> std::result::Result<Self, CopyTrouble> {
        let end = size - size % u64::from(gate.geometry().logical_block);
        let depth = u32::try_from(BUFFERS).expect("a few");
        let mut channel = Channel::open(gate, copy.backend, depth).map_err(CopyTrouble::Open)?;
        let arena = channel.buffers(CHUNK, BUFFERS).map_err(CopyTrouble::Memory)?;
        let hashes = Hashes::start(&copy.hashes)?;
        let feed = Feed::Device { gate, next: AtomicU64::new(0), end };
        let turns = Turns::with_capacity(BEGUN);
        Ok(Self { copy, channel, arena, feed, size, end, turns, hashes, outlet, told: Instant::now() })
    }

    /// Writes everything.
    fn run(mut self) -> std::result::Result<Moved, CopyTrouble> {
        let mut done = Vec::with_capacity(BUFFERS);
        self.tell()?;
        loop {
            let is_fed = self.begin(&mut done)?;
            while let Some(completion) = done.pop() {
                let Request { offset, data, .. } = completion.request;
                completion.result.map_err(|fault| CopyTrouble::Read { offset, fault })?;
                let buffer = data.expect("only reads were submitted");
                self.turns.arrived(offset, buffer);
            }
            if is_set(&self.copy.stop) {
                return Err(CopyTrouble::Stopped);
            }
            let has_written = self.write_next()?;
            if self.told.elapsed() >= TICK {
                self.tell()?;
            }
            if has_written {
                self.channel.poll(&mut done).map_err(CopyTrouble::Ring)?;
            } else if self.channel.in_flight() > 0 {
                self.channel.ring_mut().wake_by(Instant::now() + PATIENCE);
                self.channel.wait(&mut done).map_err(CopyTrouble::Ring)?;
            } else if !is_fed && self.turns.is_empty() {
                return self.end();
            }
        }
    }

    /// Begins as many chunks as may be; `false` at the end of the source.
    fn begin(&mut self, done: &mut Vec<cryptline_engine::Completion>) -> std::result::Result<bool, CopyTrouble> {
        while self.turns.len() < BEGUN
            && let Some(mut buffer) = self.arena.take()
        {
            match self.feed.next(&mut buffer, || is_set(&self.copy.stop))? {
                None => return Ok(false),
                Some(SourcePiece::Zeros { len, .. }) => self.turns.add_zeros(len),
                Some(SourcePiece::Read { offset, len }) => {
                    buffer.set_len(len);
                    self.turns.begin(offset);
                    if let Submitted::Done(completion) = self.channel.submit(Request::read(offset, buffer, 0)) {
                        done.push(completion);
                    }
                }
                Some(SourcePiece::Here { .. }) => unreachable!("the source is a device"),
            }
        }
        Ok(true)
    }

    /// Writes the chunk whose turn it is, if it has come.
    fn write_next(&mut self) -> std::result::Result<bool, CopyTrouble> {
        match self.turns.take() {
            None => return Ok(false),
            Some(OrderedChunk::Read { buffer, .. }) => self.write(&buffer)?,
            Some(OrderedChunk::Zeros(mut left)) => {
                while left > 0 {
                    let some = left.min(ZEROS.len());
                    self.write(&ZEROS[..some])?;
                    left -= some;
                }
            }
        }
        Ok(true)
    }

    fn write(&mut self, bytes: &[u8]) -> std::result::Result<(), CopyTrouble> {
        if let Some(hashes) = &mut self.hashes {
            hashes.add(bytes);
        }
        self.outlet.write(bytes)
    }

    /// Writes what lies behind the last whole block, and has everything durable where that can be.
    fn end(mut self) -> std::result::Result<Moved, CopyTrouble> {
        let rest = self.copy.source.rest(self.end, self.copy.backend)?;
        self.write(&rest)?;
        self.outlet.sync()?;
        if self.copy.source.has_changed() {
            return Err(CopyTrouble::Changed);
        }
        self.tell()?;
        assert_eq!(self.outlet.written, self.size, "all of it was written");
        let hashed = self.hashes.take().map_or_else(Vec::new, Hashes::finish);
        Ok(Moved { bytes: self.size, skipped: 0, sums: Vec::new(), hashed })
    }

    fn tell(&mut self) -> std::result::Result<(), CopyTrouble> {
        self.told = Instant::now();
        let progress = Progress::Copied { bytes: self.outlet.written, of: Some(self.size) };
        self.copy.tell(progress).map_err(CopyTrouble::Told)
    }
}

/// The end into which the bytes go.
struct CopyOutlet<'a> {
    file: File,
    /// A file or a disk, which takes any number of bytes and can have them durable.
    is_stored: bool,
    /// Bytes that it takes at a time without waiting for its reader, once it is ready.
    piece: usize,
    written: u64,
    stop: &'a AtomicBool,
}

impl<'a> CopyOutlet<'a> {
    fn new(file: File, stop: &'a AtomicBool) -> Self {
        let kind = file.metadata().ok().map(|it| it.file_type());
        let is_stored = kind.is_some_and(|kind| kind.is_file() || kind.is_block_device());
        let own = kind.is_some_and(|kind| kind.is_fifo()).then(|| {
            // More at once spares turns with the reader.
            let _ = rustix::pipe::fcntl_setpipe_size(&file, PIPE);
            // Not the flag of the file that others have open, too.
            let flags = OFlags::NONBLOCK.bits().cast_signed();
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            File::options().write(true).custom_flags(flags).open(path).ok()
        });
        let (file, piece) = match own.flatten() {
            Some(own) => (own, usize::MAX),
            None if is_stored => (file, usize::MAX),
            None => (file, PIPE_BUF),
        };
        Self { file, is_stored, piece, written: 0, stop }
    }

    fn write(&mut self, mut bytes: &[u8]) -> std::result::Result<(), CopyTrouble> {
        while !bytes.is_empty() {
            if is_set(self.stop) {
                return Err(CopyTrouble::Stopped);
            }
            let mut polled = [PollFd::new(&self.file, PollFlags::OUT)];
            match rustix::event::poll(&mut polled, Some(&SILENCE)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(errno) => return Err(self.failed(&errno.into())),
            }
            match self.file.write(&bytes[..bytes.len().min(self.piece)]) {
                Ok(0) => return Err(self.failed(&ErrorKind::WriteZero.into())),
                Ok(written) => {
                    self.written += written as u64;
                    bytes = &bytes[written..];
                }
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                Err(error) => return Err(self.failed(&error)),
            }
        }
        Ok(())
    }

    fn failed(&self, error: &io::Error) -> CopyTrouble {
        if error.kind() == ErrorKind::BrokenPipe {
            return CopyTrouble::Unread { written: self.written };
        }
        let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
        CopyTrouble::Write { offset: self.written, fault: Fault::from(errno) }
    }

    fn sync(&self) -> std::result::Result<(), CopyTrouble> {
        if self.is_stored {
            let synced = durable::sync_all(&self.file);
            synced.map_err(|error| CopyTrouble::Flush(Errno::from_io_error(&error).unwrap_or(Errno::IO).into()))?;
        }
        Ok(())
    }
}
