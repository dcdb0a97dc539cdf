//! `file`: a regular file or a block device, by O_DIRECT where that is possible.
//!
//! [`Image::open`] opens and locks; its owner may then read a header from it. Only then is the
//! smallest transfer known, which decides whether O_DIRECT can be used:
//! [`Image::into_device`].
//!
//! A transfer may come back short (a signal, a limit, a full disk); the rest is submitted again,
//! so that above this file a request is done or failed, never half. Reaching the end of the file
//! inside the announced size means that somebody cut it short: from then on every request fails
//! ([`Fault::Truncated`]), because a hole in the ciphertext would decrypt to noise.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cryptline_sys::{Allocate, Buffer, Done, FileId, Io, Ring, Source};
use rustix::fs::{OFlags, SeekFrom};
use rustix::io::Errno;

use crate::slab::Slab;
use crate::{
    Completion, Device, Extent, Fault, Geometry, OpenError, Operation, Queue, Request, Submitted,
};

/// Whether to bypass the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectMode {
    /// O_DIRECT where the file system takes it at the volume's block size.
    #[default]
    Auto,
    /// O_DIRECT or an error.
    On,
    /// Through the page cache.
    Off,
}

/// An opened and locked image, before its use is known.
#[derive(Debug)]
pub struct Image {
    file: File,
    path: PathBuf,
    size: u64,
    block: u32,
    is_block_device: bool,
    read_only: bool,
}

impl Image {
    /// Opens a regular file or block device and takes its lock: exclusive for writing, shared
    /// for reading.
    pub fn open(path: &Path, read_only: bool) -> Result<Self, OpenError> {
        let metadata =
            std::fs::metadata(path).map_err(|error| OpenError::system("open", path, error))?;
        let kind = metadata.file_type();
        let wrong = |what| OpenError::WrongKind {
            path: path.to_owned(),
            what,
        };
        if kind.is_dir() {
            return Err(wrong("a directory"));
        }
        if !kind.is_file() && !kind.is_block_device() {
            return Err(wrong("neither a regular file nor a block device"));
        }
        let is_block_device = kind.is_block_device();
        // O_EXCL on a block device: not while it is mounted or claimed by device-mapper.
        let exclusive = is_block_device && !read_only;
        let file = File::options()
            .read(true)
            .write(!read_only)
            .custom_flags(if exclusive {
                OFlags::EXCL.bits().cast_signed()
            } else {
                0
            })
            .open(path)
            .map_err(|error| open_error(path, read_only, error))?;
        lock(&file, path, read_only)?;
        let (size, block) = match is_block_device {
            true => cryptline_sys::block_device_size(&file)
                .map_err(|error| OpenError::system("get the size of", path, error))?,
            // Of the file that was opened and locked: it may have changed since `metadata`.
            false => {
                let metadata = file.metadata();
                let size = metadata.map_err(|error| OpenError::system("stat", path, error))?;
                (size.len(), 512)
            }
        };
        Ok(Self {
            file,
            path: path.to_owned(),
            size,
            block,
            is_block_device,
            read_only,
        })
    }

    /// Size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The opened file, to read a header from.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A device over the image, for transfers that are multiples of `granularity` bytes at
    /// multiples of `granularity`.
    pub fn into_device(
        self,
        granularity: u32,
        direct: DirectMode,
    ) -> Result<FileDevice, OpenError> {
        let alignment = match direct {
            DirectMode::Off => None,
            DirectMode::Auto | DirectMode::On => self.try_direct(granularity),
        };
        if direct == DirectMode::On && alignment.is_none() {
            return Err(OpenError::Geometry(format!(
                "{} does not take direct I/O in units of {granularity} bytes; use --direct=auto",
                self.path.display()
            )));
        }
        let block = alignment.unwrap_or(512).max(512);
        let rotational = self.is_rotational();
        Ok(FileDevice {
            shared: Arc::new(Shared {
                size: self.size - self.size % u64::from(block),
                is_block_device: self.is_block_device,
                truncated: AtomicBool::new(false),
                alignment,
            }),
            geometry: Geometry {
                size: self.size - self.size % u64::from(block),
                logical_block: block,
                preferred_block: block.max(4096).max(self.block),
                read_only: self.read_only,
                rotational,
                discard: !self.read_only,
                write_zeroes: !self.read_only,
                answers_at_once: false,
            },
            file: Arc::new(OwnedFd::from(self.file)),
        })
    }

    /// Switches O_DIRECT on where transfers of `granularity` work; the alignment it needs.
    fn try_direct(&self, granularity: u32) -> Option<u32> {
        let stated = cryptline_sys::direct_alignment(&self.file).map(|align| align.offset);
        if stated.is_some_and(|align| !granularity.is_multiple_of(align)) {
            return None;
        }
        let flags = rustix::fs::fcntl_getfl(&self.file).ok()?;
        rustix::fs::fcntl_setfl(&self.file, flags | OFlags::DIRECT).ok()?;
        // Some file systems accept the flag and refuse the transfer: try one.
        let works = Buffer::alloc(granularity as usize).is_ok_and(|mut buffer| {
            rustix::io::pread(&self.file, &mut buffer[..], u64::from(granularity)).is_ok()
        });
        if works {
            return Some(stated.unwrap_or(granularity));
        }
        let _ = rustix::fs::fcntl_setfl(&self.file, flags);
        None
    }

    /// What the block layer says of a block device; a file's medium is not asked for.
    fn is_rotational(&self) -> bool {
        let Ok(stat) = rustix::fs::fstat(&self.file) else {
            return false;
        };
        if !self.is_block_device {
            return false;
        }
        let (major, minor) = (
            rustix::fs::major(stat.st_rdev),
            rustix::fs::minor(stat.st_rdev),
        );
        let path = format!("/sys/dev/block/{major}:{minor}/queue/rotational");
        std::fs::read(path).is_ok_and(|text| text.starts_with(b"1"))
    }
}

fn open_error(path: &Path, read_only: bool, error: io::Error) -> OpenError {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::PermissionDenied | Kind::ReadOnlyFilesystem
            if !read_only && File::open(path).is_ok() =>
        {
            OpenError::NotWritable {
                path: path.to_owned(),
                source: error,
            }
        }
        _ => OpenError::system("open", path, error),
    }
}

fn lock(file: &File, path: &Path, read_only: bool) -> Result<(), OpenError> {
    match cryptline_sys::lock_file(file, !read_only) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(OpenError::Busy {
            path: path.to_owned(),
        }),
        // File systems without locks (some network mounts): as without us.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOLCK) => Ok(()),
        Err(error) => Err(OpenError::system("lock", path, error)),
    }
}

/// A file or block device as a device.
pub struct FileDevice {
    file: Arc<OwnedFd>,
    geometry: Geometry,
    shared: Arc<Shared>,
}

/// What all queues of one file share.
struct Shared {
    size: u64,
    is_block_device: bool,
    truncated: AtomicBool,
    /// O_DIRECT's alignment of offsets in bytes; `None` through the page cache.
    alignment: Option<u32>,
}

impl FileDevice {
    /// Whether O_DIRECT is in use.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.shared.alignment.is_some()
    }
}

impl FileDevice {
    /// Another open file for one queue. The kernel reports a lost write to the first `fsync` of
    /// each open file: with one of its own, no queue's flush can take the report from another's.
    /// Where `/proc` is not mounted the queues share one, and only the gate's latch tells them.
    fn reopen(&self) -> Arc<OwnedFd> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let reopened = rustix::fs::fcntl_getfl(&self.file).and_then(|flags| {
            let kept = OFlags::RWMODE | OFlags::DIRECT;
            let flags = (flags & kept) | OFlags::CLOEXEC;
            rustix::fs::open(path, flags, rustix::fs::Mode::empty())
        });
        reopened.map_or_else(|_| Arc::clone(&self.file), Arc::new)
    }
}

impl Device for FileDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn open_queue(&self, ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        let file = self.reopen();
        Ok(Box::new(FileQueue {
            file: ring.add_file(Arc::clone(&file)),
            fd: file,
            source: ring.add_source(),
            in_flight: Slab::new(ring.depth()),
            shared: Arc::clone(&self.shared),
        }))
    }

    fn extent(&self, offset: u64, len: u64) -> Result<Extent, Fault> {
        let end = offset + len;
        let found = |result: Result<u64, Errno>| match result {
            Ok(position) => Ok(Some(position.min(end))),
            // No data up to the end of the file; which must not have come nearer.
            Err(Errno::NXIO) => self.shared.check_size(&self.file).map(|()| None),
            Err(error) => Err(Fault::from(error)),
        };
        let data = found(rustix::fs::seek(&self.file, SeekFrom::Data(offset)))?.unwrap_or(end);
        if data > offset {
            return Ok(Extent {
                len: data - offset,
                hole: true,
                zero: true,
            });
        }
        let hole = found(rustix::fs::seek(&self.file, SeekFrom::Hole(offset)))?.unwrap_or(end);
        Ok(Extent {
            len: hole.max(offset + 1) - offset,
            hole: false,
            zero: false,
        })
    }
}

/// A request and how far it got.
struct InFlight {
    /// Without its buffer, which is in the ring.
    kind: Kind,
    offset: u64,
    token: u64,
    done: usize,
}

enum Kind {
    Read,
    Write { durable: bool },
    Other(Operation),
}

struct FileQueue {
    file: FileId,
    fd: Arc<OwnedFd>,
    source: Source,
    in_flight: Slab<InFlight>,
    shared: Arc<Shared>,
}

impl Queue for FileQueue {
    fn submit(&mut self, ring: &mut Ring, request: Request) -> Submitted {
        if self.shared.truncated.load(Ordering::Relaxed) {
            return Submitted::Done(request.complete(Err(Fault::Truncated)));
        }
        let Request {
            operation,
            offset,
            token,
        } = request;
        let (kind, buffer) = match operation {
            Operation::Read(buffer) => (Kind::Read, Some(buffer)),
            Operation::Write { data, durable } => (Kind::Write { durable }, Some(data)),
            other => (Kind::Other(other), None),
        };
        let entry = InFlight {
            kind,
            offset,
            token,
            done: 0,
        };
        let index = match self.in_flight.insert(entry) {
            Ok(index) => index,
            Err(entry) => return refused(entry, buffer),
        };
        self.start(ring, index, buffer)
    }

    fn poll(&mut self, ring: &mut Ring, done: &mut Vec<Completion>) {
        while let Some(finished) = ring.next_done(self.source) {
            if let Some(completion) = self.finish(ring, finished) {
                done.push(completion);
            }
        }
    }

    fn measure(&mut self, _on: bool) {}

    fn crypto_time_ns(&self) -> u64 {
        0
    }
}

impl FileQueue {
    /// Submits what is left of a request.
    fn start(&mut self, ring: &mut Ring, index: usize, buffer: Option<Buffer>) -> Submitted {
        let Some(entry) = self.in_flight.get_mut(index) else {
            unreachable!("the caller has just found or made this entry")
        };
        let io = entry.io(self.file, buffer);
        if self.shared.copies_at_once(&io) {
            ring.submit_at_once(self.source, index as u64, io);
            return Submitted::Pending;
        }
        match ring.submit(self.source, index as u64, io) {
            Ok(()) => Submitted::Pending,
            Err(io) => {
                let Some(entry) = self.in_flight.remove(index) else {
                    unreachable!("the entry was there a moment ago")
                };
                refused(entry, buffer_of(io))
            }
        }
    }

    /// What a finished operation means for its request: the end, or another round.
    fn finish(&mut self, ring: &mut Ring, finished: Done) -> Option<Completion> {
        let index = usize::try_from(finished.token).ok()?;
        let entry = self.in_flight.get_mut(index)?;
        let buffer = buffer_of(finished.io);
        let len = buffer.as_ref().map_or(0, |buffer| buffer.len());
        let verdict = match (finished.result, &entry.kind) {
            (Err(Errno::INTR | Errno::AGAIN), _) => None,
            (Err(errno), _) => Some(Err(Fault::from(errno))),
            (Ok(_), Kind::Other(Operation::Flush)) => Some(self.shared.check_size(&self.fd)),
            (Ok(_), Kind::Other(_)) => Some(Ok(())),
            (Ok(moved), kind) => {
                entry.done += moved;
                match kind {
                    _ if entry.done >= len => Some(Ok(())),
                    Kind::Read if moved == 0 || self.shared.is_off_grid(entry.done) => {
                        Some(Err(self.shared.cut_short()))
                    }
                    _ if moved == 0 => Some(Err(Fault::NoSpace)),
                    _ => None,
                }
            }
        };
        match verdict {
            Some(result) => {
                let entry = self.in_flight.remove(index)?;
                Some(entry.into_request(buffer).complete(result))
            }
            None => match self.start(ring, index, buffer) {
                Submitted::Done(completion) => Some(completion),
                Submitted::Pending => None,
            },
        }
    }
}

impl Shared {
    /// Notes that the file ended before its announced size.
    fn cut_short(&self) -> Fault {
        self.truncated.store(true, Ordering::Relaxed);
        Fault::Truncated
    }

    /// A short direct read that stopped off the grid stopped at the end of the file.
    fn is_off_grid(&self, done: usize) -> bool {
        self.alignment
            .is_some_and(|align| !(done as u64).is_multiple_of(u64::from(align)))
    }

    /// A write into the page cache is a copy. Most file systems make io_uring give it to a worker
    /// thread, which costs more than the copy; so it is made here. A durable write goes on to
    /// sleep for the medium and is left to the ring.
    fn copies_at_once(&self, io: &Io) -> bool {
        let buffered = self.alignment.is_none() && !self.is_block_device;
        buffered && matches!(io, Io::Write { durable: false, .. })
    }

    /// A flush also makes sure that what it promises to keep is still there.
    fn check_size(&self, fd: &OwnedFd) -> Result<(), Fault> {
        if self.is_block_device {
            return Ok(());
        }
        let size = rustix::fs::fstat(fd.as_fd())?.st_size;
        match u64::try_from(size) {
            Ok(size) if size >= self.size => Ok(()),
            _ => Err(self.cut_short()),
        }
    }
}

impl InFlight {
    fn io(&mut self, file: FileId, buffer: Option<Buffer>) -> Io {
        let (start, offset) = (self.done, self.offset + self.done as u64);
        match (&self.kind, buffer) {
            (Kind::Read, Some(buffer)) => {
                let len = buffer.len() - start;
                Io::Read {
                    file,
                    buffer,
                    start,
                    len,
                    offset,
                }
            }
            (Kind::Write { durable }, Some(buffer)) => {
                let (len, durable) = (buffer.len() - start, *durable);
                Io::Write {
                    file,
                    buffer,
                    start,
                    len,
                    offset,
                    durable,
                }
            }
            (Kind::Other(Operation::Discard { len }), _) => Io::Allocate {
                file,
                what: Allocate::PunchHole,
                offset,
                len: *len,
            },
            (Kind::Other(Operation::WriteZeroes { len, may_unmap }), _) => {
                let what = match may_unmap {
                    true => Allocate::PunchHole,
                    false => Allocate::ZeroRange,
                };
                Io::Allocate {
                    file,
                    what,
                    offset,
                    len: *len,
                }
            }
            _ => Io::Sync { file },
        }
    }

    fn into_request(self, buffer: Option<Buffer>) -> Request {
        let operation = match (self.kind, buffer) {
            (Kind::Read, Some(buffer)) => Operation::Read(buffer),
            (Kind::Write { durable }, Some(data)) => Operation::Write { data, durable },
            (Kind::Other(operation), _) => operation,
            _ => unreachable!("a data operation comes back with its buffer"),
        };
        Request {
            operation,
            offset: self.offset,
            token: self.token,
        }
    }
}

fn buffer_of(io: Io) -> Option<Buffer> {
    match io {
        Io::Read { buffer, .. } | Io::Write { buffer, .. } => Some(buffer),
        _ => None,
    }
}

/// More requests than the ring has places for: the front's bug, answered as a busy system would.
fn refused(entry: InFlight, buffer: Option<Buffer>) -> Submitted {
    let request = entry.into_request(buffer);
    Submitted::Done(request.complete(Err(Fault::Io(Errno::AGAIN))))
}
