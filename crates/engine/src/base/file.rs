//! `file`: a regular file or a block device, by O_DIRECT where that is possible.
//!
//! A transfer may come back short (a signal, a limit, a full disk); the rest is submitted again,
//! so that above this file a request is done or failed, never half. Reaching the end of the file
//! inside the announced size means that somebody cut it short: from then on every request fails
//! ([`Fault::Truncated`]), because a hole in the ciphertext would decrypt to noise.
//!
//! What makes a flush or a durable write believable is told in [`syncs`](super::syncs).

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cryptline_sys::{Allocate, Buffer, Done, FileId, Io, Ring, Source};
use rustix::fs::{FsWord, OFlags, SeekFrom};
use rustix::io::Errno;

use super::descriptors::Descriptors;
use super::host_zones;
use super::syncs::{Keeper, Syncs};
use crate::slab::Slab;
use crate::zone::{Zone, ZoneModel};
use crate::{
    Completion, Device, Extent, Fault, Geometry, OpenError, Operation, Queue, Request, Submitted,
};

/// A file or block device as a device.
pub struct FileDevice {
    descriptors: Descriptors,
    geometry: Geometry,
    shared: Arc<Shared>,
}

/// What all queues of one file share.
struct Shared {
    keeper: Keeper,
    size: u64,
    block_device: Option<BlockDevice>,
    truncated: AtomicBool,
    /// O_DIRECT's alignment of offsets in bytes; `None` through the page cache.
    alignment: Option<u32>,
    /// The file system is memory, so every transfer is a copy.
    in_memory: bool,
    zones: Option<ZoneModel>,
}

/// What a block device can zero.
#[derive(Clone, Copy)]
pub(super) struct BlockDevice {
    /// Bytes of its logical block: only whole ones.
    pub block: u32,
    /// By a command of its own, as unmapping needs it.
    pub zeroes: bool,
}

impl FileDevice {
    /// A device over an open file; `alignment` is O_DIRECT's, where that is switched on. The open
    /// file is the device's alone from here on, and nobody else may sync it.
    pub(super) fn new(
        file: OwnedFd,
        geometry: Geometry,
        block_device: Option<BlockDevice>,
        alignment: Option<u32>,
    ) -> Self {
        let in_memory = is_in_memory(&file);
        Self {
            descriptors: Descriptors::default(),
            geometry,
            shared: Arc::new(Shared {
                keeper: Keeper::new(file),
                size: geometry.size,
                block_device,
                truncated: AtomicBool::new(false),
                alignment,
                in_memory,
                zones: geometry.zones,
            }),
        }
    }

    /// Whether O_DIRECT is in use.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.shared.alignment.is_some()
    }

    fn file(&self) -> &Arc<OwnedFd> {
        self.shared.keeper.file()
    }

    /// Another open file for one queue; `None` where there is no `/proc`, no permission any more, or
    /// no descriptor left.
    fn reopen(&self) -> Option<Arc<OwnedFd>> {
        let path = format!("/proc/self/fd/{}", self.file().as_raw_fd());
        let reopened = self.descriptors.take(|| {
            let kept = OFlags::RWMODE | OFlags::DIRECT;
            let flags = (rustix::fs::fcntl_getfl(self.file())? & kept) | OFlags::CLOEXEC;
            rustix::fs::open(path, flags, rustix::fs::Mode::empty())
        });
        reopened.ok()
    }

    /// A queue over an open file of its own, or over the keeper's.
    fn queue(&self, ring: &mut Ring, own: Option<Arc<OwnedFd>>) -> FileQueue {
        let doubt = match own {
            Some(_) => Doubt::OfFlushes,
            None => Doubt::Shared,
        };
        let fd = own.unwrap_or_else(|| Arc::clone(self.file()));
        let source = ring.add_source();
        ring.tell_of_lost(source, self.shared.keeper.mark());
        FileQueue {
            file: ring.add_file(Arc::clone(&fd)),
            fd,
            source,
            keeper: (ring.add_file(Arc::clone(self.file())), ring.add_source()),
            doubt,
            syncs: Syncs::new(ring.depth()),
            stalled: VecDeque::new(),
            in_flight: Slab::new(ring.depth()),
            shared: Arc::clone(&self.shared),
        }
    }
}

impl Device for FileDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn open_queue(&self, ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        let own = self.reopen();
        Ok(Box::new(self.queue(ring, own)))
    }

    fn extent(&self, offset: u64, len: u64) -> Result<Extent, Fault> {
        let end = offset + len;
        let data = Extent {
            len,
            hole: false,
            zero: false,
        };
        if self.shared.block_device.is_some() {
            // It knows of no holes, and refuses SEEK_DATA.
            return Ok(data);
        }
        let found = |result: Result<u64, Errno>| match result {
            Ok(position) => Ok(Some(position.min(end))),
            // No data up to the end of the file; which must not have come nearer.
            Err(Errno::NXIO) => self.shared.check_size(self.file()).map(|()| None),
            Err(error) => Err(error.into()),
        };
        let begins = match rustix::fs::seek(self.file(), SeekFrom::Data(offset)) {
            // A file system that does not know its holes: all of it may be data.
            Err(Errno::INVAL | Errno::NOTTY | Errno::NOTSUP | Errno::NOSYS) => return Ok(data),
            begins => found(begins)?.unwrap_or(end),
        };
        if begins > offset {
            return Ok(Extent {
                len: begins - offset,
                hole: true,
                zero: true,
            });
        }
        let hole = found(rustix::fs::seek(self.file(), SeekFrom::Hole(offset)))?.unwrap_or(end);
        Ok(Extent {
            len: hole.max(offset + 1) - offset,
            ..data
        })
    }

    fn report_zones(&self, offset: u64, zones: &mut [Zone]) -> Result<usize, Fault> {
        host_zones::report(&**self.file(), offset, zones)
    }
}

/// A request and how far it got.
struct InFlight {
    /// Without its buffer, which is in the ring.
    kind: Kind,
    offset: u64,
    token: u64,
    done: usize,
    /// Its number among the syncs of the queue's open file, where it is one.
    sync: Option<u64>,
}

enum Kind {
    Read,
    Write { durable: bool },
    Other(Operation),
}

/// What the queue's own open file may not have been told, so that the keeper must be asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doubt {
    None,
    /// Of what was lost before the queue was opened: flushes are in doubt.
    OfFlushes,
    /// An interrupted sync may have used a report up: all syncs are in doubt.
    OfAll,
    /// The file is the keeper's own: it is only ever synced by asking.
    Shared,
}

struct FileQueue {
    file: FileId,
    fd: Arc<OwnedFd>,
    source: Source,
    /// The keeper's file on this ring, and an inbox for its answers. A block device is claimed by this
    /// file, and drops cached pages that are still to be written only through it, as discarding and
    /// zeroing want it; to others it says EBUSY.
    keeper: (FileId, Source),
    doubt: Doubt,
    syncs: Syncs<Completion>,
    /// Begun and to be continued, when the ring has a place again.
    stalled: VecDeque<(usize, Option<Buffer>)>,
    in_flight: Slab<InFlight>,
    shared: Arc<Shared>,
}

impl Queue for FileQueue {
    fn submit(&mut self, ring: &mut Ring, request: Request) -> Submitted {
        if self.shared.truncated.load(Ordering::Relaxed) {
            return Submitted::Done(request.complete(Err(Fault::Truncated)));
        }
        if let (Operation::Zone(action), Some(model)) = (&request.operation, &self.shared.zones) {
            // There is no such thing in io_uring: this thread waits for it.
            let result =
                host_zones::act(&*self.fd, model, self.shared.size, request.offset, *action);
            return Submitted::Done(request.complete(result));
        }
        if self.shared.cannot_zero(&request) {
            return Submitted::Done(request.complete(Err(Fault::NotSupported)));
        }
        if request.is_sync() && self.shared.keeper.is_lost() {
            return Submitted::Done(request.complete(Err(Fault::Latched)));
        }
        if let (Operation::Flush, Doubt::Shared) = (&request.operation, self.doubt) {
            let flushed = self.ask_keeper(ring);
            let result = flushed.and_then(|()| self.shared.check_size(&self.fd));
            return Submitted::Done(request.complete(result));
        }
        if self.in_flight.is_full() {
            return Submitted::Done(request.complete(Err(Fault::Busy)));
        }
        let is_sync = request.is_sync() && self.doubt != Doubt::Shared;
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
            sync: is_sync.then(|| self.syncs.begin()),
        };
        let Ok(index) = self.in_flight.insert(entry) else {
            unreachable!("a place was free a moment ago")
        };
        match self.start(ring, index, buffer) {
            Ok(()) => Submitted::Pending,
            // More requests than the ring has places for: the front's bug.
            Err(buffer) => {
                let entry = self.in_flight.remove(index);
                let entry = entry.expect("the entry was made a moment ago");
                if let Some(number) = entry.sync {
                    self.syncs.end(number);
                }
                Submitted::Done(entry.into_request(buffer).complete(Err(Fault::Busy)))
            }
        }
    }

    fn poll(&mut self, ring: &mut Ring, done: &mut Vec<Completion>) {
        for _ in 0..self.stalled.len() {
            if let Some((index, buffer)) = self.stalled.pop_front() {
                self.go_on(ring, index, buffer);
            }
        }
        while let Some(finished) = ring.next_done(self.source) {
            if let Some(completion) = self.finish(ring, finished) {
                done.push(completion);
            }
        }
        while let Some(mut completion) = self.syncs.release() {
            if self.shared.keeper.is_lost() {
                completion.result = Err(Fault::Latched);
            }
            done.push(completion);
        }
    }

    fn measure(&mut self, _on: bool) {}

    fn crypto_time_ns(&self) -> u64 {
        0
    }
}

impl FileQueue {
    /// Submits what is left of a request; gives its buffer back where the ring has no place.
    fn start(
        &mut self,
        ring: &mut Ring,
        index: usize,
        buffer: Option<Buffer>,
    ) -> Result<(), Option<Buffer>> {
        let Some(entry) = self.in_flight.get_mut(index) else {
            unreachable!("the caller has just found or made this entry")
        };
        let file = match &entry.kind {
            Kind::Other(Operation::Discard { .. } | Operation::WriteZeroes { .. }) => self.keeper.0,
            _ => self.file,
        };
        let io = entry.io(file, buffer);
        if self.shared.copies_at_once(&io) {
            ring.submit_at_once(self.source, index as u64, io);
            return Ok(());
        }
        ring.submit(self.source, index as u64, io)
            .map_err(buffer_of)
    }

    /// Continues a request that was begun, as soon as there is a place for it.
    fn go_on(&mut self, ring: &mut Ring, index: usize, buffer: Option<Buffer>) {
        if let Err(buffer) = self.start(ring, index, buffer) {
            self.stalled.push_back((index, buffer));
        }
    }

    /// What a finished operation means for its request: the end, or another round.
    fn finish(&mut self, ring: &mut Ring, finished: Done) -> Option<Completion> {
        let index = usize::try_from(finished.token).ok()?;
        let entry = self.in_flight.get_mut(index)?;
        let buffer = buffer_of(finished.io);
        let len = buffer.as_ref().map_or(0, |buffer| buffer.len());
        let verdict = match (finished.result, &entry.kind) {
            (Err(Errno::INTR | Errno::AGAIN), _) => {
                if entry.sync.is_some() {
                    // It may have been the report of a lost write that has this number.
                    self.doubt = Doubt::OfAll;
                }
                None
            }
            // Somebody else has claimed the block device and pages wait to be written: nothing was done.
            (
                Err(Errno::BUSY),
                Kind::Other(Operation::Discard { .. } | Operation::WriteZeroes { .. }),
            ) if self.shared.block_device.is_some() => Some(Err(Fault::NotSupported)),
            (Err(errno), _) if self.shared.zones.is_some() => {
                Some(Err(host_zones::fault_of(errno)))
            }
            (Err(errno), _) if entry.sync.is_some() => Some(Err(self.shared.keeper.lose(errno))),
            (Err(errno), _) => Some(Err(Fault::from(errno))),
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
        let Some(result) = verdict else {
            self.go_on(ring, index, buffer);
            return None;
        };
        let entry = self.in_flight.remove(index)?;
        let number = entry.sync;
        let request = entry.into_request(buffer);
        if !request.is_sync() {
            return Some(request.complete(result));
        }
        let result = result.and_then(|()| self.confirm(ring, &request));
        if let Some(number) = number {
            self.syncs.end(number);
        }
        match result {
            Ok(()) => {
                self.syncs.hold(request.complete(Ok(())));
                None
            }
            Err(fault) => {
                self.shared.note_failed_sync(fault);
                Some(request.complete(Err(fault)))
            }
        }
    }

    /// What else a sync that succeeded on this queue's file must be good on.
    fn confirm(&mut self, ring: &mut Ring, request: &Request) -> Result<(), Fault> {
        let is_flush = matches!(request.operation, Operation::Flush);
        let must_ask = match self.doubt {
            Doubt::None => false,
            Doubt::OfFlushes => is_flush,
            Doubt::OfAll | Doubt::Shared => true,
        };
        if must_ask {
            self.ask_keeper(ring)?;
            if self.doubt != Doubt::Shared {
                self.doubt = Doubt::None;
            }
        }
        if is_flush {
            self.shared.check_size(&self.fd)?;
        }
        Ok(())
    }

    /// Syncs the keeper's file and waits for it: once for a queue, unless it has no file of its own.
    fn ask_keeper(&self, ring: &mut Ring) -> Result<(), Fault> {
        let (file, inbox) = self.keeper;
        self.shared.keeper.ask(|| {
            ring.submit_at_once(inbox, 0, Io::Sync { file });
            let answer = ring.next_done(inbox);
            answer.map_or(Err(Errno::IO), |done| done.result.map(drop))
        })
    }
}

impl Shared {
    /// Notes that the file ended before its announced size.
    fn cut_short(&self) -> Fault {
        self.truncated.store(true, Ordering::Relaxed);
        Fault::Truncated
    }

    /// Whether the kernel would refuse this discarding or zeroing of a block device. It must not be asked: it
    /// may drop cached pages that are still to be written before it finds out.
    fn cannot_zero(&self, request: &Request) -> bool {
        let Some(device) = self.block_device else {
            return false;
        };
        let (len, unmaps) = match request.operation {
            Operation::Discard { len } => (len, true),
            Operation::WriteZeroes { len, may_unmap } => (len, may_unmap),
            _ => return false,
        };
        let is_whole = (request.offset | len).is_multiple_of(u64::from(device.block));
        !is_whole || (unmaps && !device.zeroes)
    }

    /// A short direct read that stopped off the grid stopped at the end of the file.
    fn is_off_grid(&self, done: usize) -> bool {
        self.alignment
            .is_some_and(|align| !(done as u64).is_multiple_of(u64::from(align)))
    }

    /// A write into the page cache is a copy. Most file systems make io_uring give it to a worker
    /// thread, which costs more than the copy; so it is made here. A durable write goes on to
    /// sleep for the medium and is left to the ring. Where the file system is memory, which knows
    /// no transfer that does not block, io_uring would give even reads away, direct or not.
    fn copies_at_once(&self, io: &Io) -> bool {
        let buffered = self.alignment.is_none() && self.block_device.is_none();
        match io {
            Io::Read { .. } | Io::Write { .. } if self.in_memory => true,
            Io::Write { durable: false, .. } => buffered,
            _ => false,
        }
    }

    /// A failed sync leaves nothing durable, unless it was refused before anything was synced.
    fn note_failed_sync(&self, fault: Fault) {
        if !fault.is_refusal() {
            self.keeper.lose(fault.errno());
        }
    }

    /// A flush also makes sure that what it promises to keep is still there.
    fn check_size(&self, fd: &OwnedFd) -> Result<(), Fault> {
        if self.block_device.is_some() {
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
            (Kind::Write { .. }, Some(buffer)) => {
                // Without a number the keeper is asked when all is written.
                let (len, durable) = (buffer.len() - start, self.sync.is_some());
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
                let what = if *may_unmap {
                    Allocate::PunchHole
                } else {
                    Allocate::ZeroRange
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

/// Whether `file` lies in a tmpfs or ramfs (statfs(2)).
fn is_in_memory(file: &OwnedFd) -> bool {
    const TMPFS: FsWord = 0x0102_1994;
    const RAMFS: FsWord = 0x8584_58f6;
    rustix::fs::fstatfs(file).is_ok_and(|stat| [TMPFS, RAMFS].contains(&stat.f_type))
}

fn buffer_of(io: Io) -> Option<Buffer> {
    match io {
        Io::Read { buffer, .. } | Io::Write { buffer, .. } => Some(buffer),
        _ => None,
    }
}
