//! The gate: the one checked passage between any two devices.
//!
//! Every device stands behind a gate, and every request to it passes here, whether it comes from
//! a socket or from the layer above. What holds below a gate:
//!
//! * I1 **range**: offset and length lie inside the device, without overflow. It may grow, and never
//!   shrinks;
//! * I2 **alignment**: both are multiples of the logical block, and the length is not zero;
//! * I3 **capability**: no write on a read-only device, nothing the geometry does not offer. On a
//!   zoned device no range crosses from one zone into the next, and appends and actions name a zone
//!   by its start;
//! * I4 **latch**: once a write or flush has failed, no later flush succeeds, and no durable write.
//!   The kernel reports a lost write to one `fsync` only; a second one that succeeded would be a lie.
//!   A durable write is a write and an `fsync`: its failure can be the report of earlier writes, so
//!   it is judged as a flush, unless the device knows that the write itself was refused, for want of
//!   room too ([`Fault::NoSpace`]). A sync that the medium refuses is told to have failed. On a zoned device plain writes do not set the
//!   latch: the write pointers tell what of them is there;
//! * I5 **once**: each submitted request comes back exactly once.
//!
//! Foreign input is refused with a [`Fault`]; what would be our own bug is asserted.
//!
//! The size is one atomic word for all queues, loaded once by each request. [`Gate::grow`] asks the device, which asks
//! the one below, down to the file; each raises its own size before the one above raises its. A file grows only for a
//! volume whose size nothing states (LUKS1, a `dynamic` segment, a plain volume without a size), so no flush depends on
//! bytes of others. Requests never look for growth: control threads, greetings and questions for attributes do.

use std::any::Any;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use cryptline_sys::Ring;
use rustix::io::Errno;

use crate::Submitted;
use crate::queue::AtOnce;
use crate::zone::Zone;
use crate::{Completion, Device, Extent, Fault, Geometry, Op, OpenError, Queue, Request, Traits};

/// A device with its gate. Cheap to clone; clones share the device, its size and the latch.
#[derive(Clone)]
pub struct Gate {
    device: Arc<dyn Device>,
    traits: Arc<Traits>,
    shared: Arc<GateShared>,
}

/// State common to all gates and queues of one device.
struct GateShared {
    latch: Latch,
    size: AtomicU64,
    kept: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl GateShared {
    /// Whoever sees a size sees those of the devices below that made it possible.
    #[inline]
    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }
}

impl Gate {
    /// Puts a gate before `device`.
    pub fn new(device: impl Device + 'static) -> Self {
        let traits = device.traits();
        let geometry = &traits.geometry;
        let block = u64::from(geometry.logical_block);
        assert!(block.is_power_of_two(), "logical block not a power of two");
        assert_eq!(geometry.size % block, 0, "size not a multiple of the block");
        if let Some(zones) = &geometry.zones {
            assert!(zones.zone_size.is_power_of_two(), "odd zone size");
            assert!(zones.zone_size >= block, "zones smaller than blocks");
        }
        Self {
            shared: Arc::new(GateShared {
                latch: Latch::default(),
                size: AtomicU64::new(geometry.size),
                kept: OnceLock::new(),
            }),
            device: Arc::new(device),
            traits: Arc::new(traits),
        }
    }

    /// Keeps `thing`, such as a lock, for as long as there is a gate or queue of this device. The first one is kept.
    #[must_use]
    pub fn keeping(self, thing: impl Any + Send + Sync) -> Self {
        let _ = self.shared.kept.set(Box::new(thing));
        self
    }

    /// The same device, which this gate lets nobody change.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        let geometry = &mut Arc::make_mut(&mut self.traits).geometry;
        *geometry = Geometry { read_only: true, discard: false, write_zeroes: false, ..*geometry };
        self
    }

    /// Size, alignment and abilities, as the device was opened. Only the size can change ([`size`](Self::size)).
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.traits.geometry
    }

    /// Properties of the device.
    #[must_use]
    pub fn traits(&self) -> &Traits {
        &self.traits
    }

    /// Bytes that requests reach. They may become more by [`grow`](Self::grow), and never less.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.shared.size()
    }

    /// Looks whether the medium has grown, where the device grows with it, and lets requests reach what is new; the
    /// size now. Costs a system call at most, and no memory.
    pub fn grow(&self) -> u64 {
        let size = self.device.grow();
        let size = size - size % u64::from(self.geometry().logical_block);
        debug_assert!(self.geometry().zones.is_none() || size == self.geometry().size);
        let before = self.shared.size.fetch_max(size, Ordering::AcqRel);
        before.max(size)
    }

    /// A queue for the calling thread, whose I/O goes over `ring`.
    pub fn open_queue(&self, ring: &mut Ring) -> Result<GatedQueue, OpenError> {
        let queue = self.device.open_queue(ring)?;
        Ok(GatedQueue {
            queue,
            at_once: self.traits.at_once,
            geometry: self.traits.geometry,
            shared: Arc::clone(&self.shared),
            in_flight: 0,
        })
    }

    /// The allocation state at `offset`, for at most `len` bytes (see [`Device::extent`]).
    pub fn extent(&self, offset: u64, len: u64) -> Result<Extent, Fault> {
        let end = offset.checked_add(len).ok_or(Fault::OutOfRange)?;
        if len == 0 || end > self.size() {
            return Err(Fault::OutOfRange);
        }
        let extent = self.device.extent(offset, len)?;
        debug_assert!(extent.len > 0 && extent.len <= len);
        Ok(extent)
    }

    /// Fills `zones` from the zone that holds `offset` on; how many there were.
    ///
    /// Errors: [`Fault::OutOfRange`], or [`Fault::NotSupported`] on a device without zones.
    pub fn report_zones(&self, offset: u64, zones: &mut [Zone]) -> Result<usize, Fault> {
        match self.geometry().zones {
            None => Err(Fault::NotSupported),
            Some(_) if offset >= self.geometry().size => Err(Fault::OutOfRange),
            Some(_) => self.device.report_zones(offset, zones),
        }
    }

    /// Tells if both are gates of one device, so clones of each other.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// The open files that each queue opens again, here and below.
    #[must_use]
    pub fn files(&self) -> Vec<BorrowedFd<'_>> {
        let below = self.device.below().iter().flat_map(Self::files);
        self.device.file().into_iter().chain(below).collect()
    }

    /// How many files so many queues at a time open, here and below.
    #[must_use]
    pub fn files_taken(&self, queues: usize) -> usize {
        let own = if self.device.file().is_some() { queues } else { 0 };
        let below = self.traits.queues_below(queues);
        self.device.below().iter().fold(own, |all, lower| all.saturating_add(lower.files_taken(below)))
    }

    /// Opens the files of so many queues at a time, here and below, for a process that can open none later. As many can
    /// then be opened again until [`close_spare`](Self::close_spare).
    pub fn reserve_files(&self, queues: usize) -> Result<(), OpenError> {
        self.device.reserve_files(queues)?;
        let below = self.traits.queues_below(queues);
        self.device.below().iter().try_for_each(|lower| lower.reserve_files(below))
    }

    /// Closes the files that are kept open for queues to come, here and below. The next queues open
    /// their own.
    pub fn close_spare(&self) {
        self.device.close_spare();
        self.device.below().iter().for_each(Self::close_spare);
    }

    /// Tells if a write or flush has failed since the device was opened, or [`latch`](Self::latch) was called (I4).
    #[must_use]
    pub fn is_latched(&self) -> bool {
        self.shared.latch.is_set()
    }

    /// Lets no flush succeed any more, as after a failed one: for who knows of a loss that this device does not know of,
    /// such as one before it was opened.
    pub fn latch(&self) {
        self.shared.latch.set(None);
    }

    /// Has `tell` called once the latch is set, with the fault that did it, on the thread that met the fault. Of several
    /// calls the first counts.
    pub fn when_latched(&self, tell: impl Fn(Option<Fault>) + Send + Sync + 'static) {
        let _ = self.shared.latch.observer.set(Box::new(tell));
    }
}

/// One thread's checked way into a device.
pub struct GatedQueue {
    queue: Box<dyn Queue>,
    geometry: Geometry,
    shared: Arc<GateShared>,
    at_once: AtOnce,
    in_flight: usize,
}

impl GatedQueue {
    /// Checks a request and passes it down.
    pub fn submit(&mut self, ring: &mut Ring, mut request: Request) -> Submitted {
        match self.answer_at_once(&mut request) {
            Some(result) => Submitted::Done(request.complete(result)),
            None => self.pass(ring, request),
        }
    }

    /// Checks a request and carries it out where it lies, if the medium answers at once or nothing
    /// may be done. `None` where it must be submitted, and then nothing was done.
    #[inline]
    pub fn answer_at_once(&mut self, request: &mut Request) -> Option<Result<(), Fault>> {
        if let Err(fault) = self.check(request) {
            return Some(Err(fault));
        }
        if self.at_once == AtOnce::None {
            return None;
        }
        let result = self.queue.answer_at_once(request)?;
        Some(self.shared.latch.judge(request, result, &self.geometry))
    }

    /// See [`Traits::at_once`].
    pub(crate) fn at_once(&self) -> AtOnce {
        self.at_once
    }

    /// Moves what has finished since the last call to the end of `done`.
    pub fn poll(&mut self, ring: &mut Ring, done: &mut Vec<Completion>) {
        let before = done.len();
        self.queue.poll(ring, done);
        let finished = done.len() - before;
        assert!(finished <= self.in_flight, "a request came back twice (I5)");
        self.in_flight -= finished;
        for Completion { request, result } in &mut done[before..] {
            *result = self.shared.latch.judge(request, *result, &self.geometry);
        }
    }

    /// Requests submitted and not yet completed.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Size, alignment and abilities, as the device was opened.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Passes down what was not answered at once, for a medium that takes time. Apart, so that one that does not has none
    /// of its preparations.
    #[inline(never)]
    pub(crate) fn pass(&mut self, ring: &mut Ring, request: Request) -> Submitted {
        let mut submitted = self.queue.submit(ring, request);
        match &mut submitted {
            // In its place: taken out and put back it would be copied twice.
            Submitted::Done(Completion { request, result }) => {
                *result = self.shared.latch.judge(request, *result, &self.geometry);
            }
            Submitted::Pending => self.in_flight += 1,
        }
        submitted
    }

    #[inline]
    fn check(&self, request: &Request) -> Result<(), Fault> {
        // Those that nearly all requests are come first and apart from the others.
        match (request.op, &request.data) {
            (Op::Read, Some(data)) if data.len() as u64 == request.len => {}
            (Op::Write | Op::WriteFua, Some(data)) if data.len() as u64 == request.len && !self.geometry.read_only => {}
            _ => return self.check_other(request),
        }
        self.check_range(request.offset, request.len)
    }

    #[inline(never)]
    fn check_other(&self, request: &Request) -> Result<(), Fault> {
        // One is checked and the other moved.
        if !request.is_consistent() {
            return Err(Fault::OutOfRange);
        }
        let geometry = &self.geometry;
        match request.op {
            Op::Flush if self.shared.latch.is_set() => return Err(Fault::Latched),
            Op::Flush => return Ok(()),
            Op::Cache if !geometry.cache => return Err(Fault::NotSupported),
            op if op.is_zoned() => return self.check_zone_operation(request),
            op if op.changes() && geometry.read_only => return Err(Fault::ReadOnly),
            Op::Discard if !geometry.discard => return Err(Fault::NotSupported),
            Op::Zero | Op::ZeroUnmap if !geometry.write_zeroes => return Err(Fault::NotSupported),
            _ => {}
        }
        self.check_range(request.offset, request.len)
    }

    #[inline]
    fn check_range(&self, offset: u64, len: u64) -> Result<(), Fault> {
        self.check_blocks(offset, len)?;
        match &self.geometry.zones {
            Some(zones) if zones.crosses(offset, len) => Err(Fault::CrossesZone),
            _ => Ok(()),
        }
    }

    /// Checks that a range is one of whole blocks inside the device: for callers that pass it down in pieces, before the first.
    #[inline]
    pub(crate) fn check_blocks(&self, offset: u64, len: u64) -> Result<(), Fault> {
        let end = offset.checked_add(len).ok_or(Fault::OutOfRange)?;
        if end > self.shared.size() {
            return Err(Fault::OutOfRange);
        }
        let unaligned = (offset | len) & u64::from(self.geometry.logical_block - 1) != 0;
        if unaligned || len == 0 { Err(Fault::Misaligned) } else { Ok(()) }
    }

    /// Appends and actions: their offset is the start of a zone.
    fn check_zone_operation(&self, request: &Request) -> Result<(), Fault> {
        let geometry = &self.geometry;
        let zones = geometry.zones.as_ref().ok_or(Fault::NotSupported)?;
        if geometry.read_only {
            return Err(Fault::ReadOnly);
        }
        if request.offset >= geometry.size {
            return Err(Fault::OutOfRange);
        }
        if !request.offset.is_multiple_of(zones.zone_size) {
            return Err(Fault::Misaligned);
        }
        if !request.op.is_append() {
            return Ok(());
        }
        let (len, block) = (request.len, u64::from(geometry.logical_block));
        if zones.append_limit == 0 {
            return Err(Fault::NotSupported);
        }
        if len > zones.append_limit {
            return Err(Fault::OutOfRange);
        }
        if len == 0 || !len.is_multiple_of(block) { Err(Fault::Misaligned) } else { Ok(()) }
    }
}

/// Set by the first failed write or sync, for good.
#[derive(Default)]
struct Latch {
    is_set: AtomicBool,
    observer: OnceLock<GateObserver>,
}

type GateObserver = Box<dyn Fn(Option<Fault>) + Send + Sync>;

impl Latch {
    fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    #[cold]
    fn set(&self, why: Option<Fault>) {
        if !self.is_set.swap(true, Ordering::AcqRel)
            && let Some(tell) = self.observer.get()
        {
            tell(why);
        }
    }

    /// Sets the latch on a lost write; fails a sync that was under way when it happened.
    ///
    /// Refusals do not latch, and neither does `NoSpace` for a write: nothing that anybody was
    /// told is written was lost, and the cause can be removed while the device is open. A flush writes nothing
    /// of its own, so where it finds no room, what was acknowledged did not get any. Whoever hears that there is no room
    /// waits for some and tries again, which does not help then: so the flush is told to have failed.
    #[inline]
    fn judge(&self, request: &Request, result: Result<(), Fault>, geometry: &Geometry) -> Result<(), Fault> {
        match result {
            Ok(()) if !request.op.is_sync() => result,
            _ => self.judge_sync_or_failure(request, result, geometry.zones.is_some()),
        }
    }

    #[cold]
    fn judge_sync_or_failure(
        &self,
        request: &Request,
        result: Result<(), Fault>,
        has_zones: bool,
    ) -> Result<(), Fault> {
        let is_sync = request.op.is_sync();
        let result = match result {
            Err(Fault::NoSpace) if is_sync && (has_zones || !request.op.changes()) => Err(Fault::Io(Errno::NOSPC)),
            result => result,
        };
        match result {
            Ok(()) if self.is_set() => return Err(Fault::Latched),
            Ok(()) => {}
            Err(_) if !is_sync && !request.op.changes() => {}
            Err(Fault::NoSpace) => {}
            Err(_) if !is_sync && has_zones => {}
            Err(Fault::Busy) => {}
            // Each part was judged below, where it was carried out or refused.
            Err(Fault::Partly) if request.op.changes() => {}
            // Nothing is wrong with a flush, so a refusal of one is a promise that cannot be made.
            Err(fault) if request.op.changes() && fault.is_refusal() => {}
            Err(fault) => {
                self.set(Some(fault));
                return Err(if is_sync { fault.unrefused() } else { fault });
            }
        }
        result
    }
}

#[cfg(test)]
#[path = "gate_tests/mod.rs"]
mod tests;
