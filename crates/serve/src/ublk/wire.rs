//! One queue of a ublk device as a lane sees it.
//!
//! ```text
//! fetch ─► kernel ─► arrived ─► take, bring, lend ─► lane ─► give, end ─► ready ─► commit, and fetch the next
//! ```
//!
//! A tag's buffer travels: to the kernel with a command, back with a request, down to the device and up again, and
//! to the kernel with the result. So the kernel's copy is the only one. A write ends below, and its buffer goes
//! back to the arena, where the tag takes another.
//!
//! The data of a device with zones is copied by calls instead: a write's when the lane asks for it, a read's when
//! the lane gives it.
//!
//! Buffers are one chunk long, so a request is one chunk. The driver's commands cannot be cancelled: a device is
//! stopped in the kernel, and only then do its lanes end. The driver waits for what is under way; where the medium does
//! not answer within the grace, the lanes end first, and the driver fails what they had. With zones the kernel wants
//! the place of an append where a buffer's address would be, hence the calls.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cryptline_engine::{Arena, Buffer, Fault, Gate, Op, Ring};
use cryptline_sys::{Io, RequestSource, UblkDevice, UblkPayload, UblkQueue};
use rustix::io::Errno;

use super::OnFailure;
use super::abi::{IoDescriptor, UblkOperation};
use super::zones::ReportInProgress;
use crate::lane::{Brought, LaneRoom, Wire, WireInput, WireRequest, WriteChunk};

/// State of a tag.
#[derive(Default)]
struct UblkSlot {
    /// Here, while it is neither the kernel's nor the lane's.
    buffer: Option<Buffer>,
    /// Where an append was written.
    sector: u64,
    /// Its data could not be copied.
    failed: Option<Errno>,
    /// Bytes, or an error's number below zero.
    result: i32,
    /// Bytes of the request, where its result counts them.
    length: i32,
    /// The kernel has had its first command.
    is_fetched: bool,
}

pub(super) struct UblkWire {
    queue: UblkQueue,
    source: RequestSource,
    gate: Gate,
    arena: Arc<Arena>,
    slots: Vec<UblkSlot>,
    /// Tags with a request that the lane does not have yet.
    arrived: VecDeque<u16>,
    /// Tags for the kernel.
    ready: VecDeque<u16>,
    /// Reports of zones, of which the first is being made.
    reports: VecDeque<ReportInProgress>,
    /// Tags that the kernel has not given up.
    live: usize,
    /// Requests that were not answered; the second is for other threads, which must not rely on it: what the kernel has
    /// for this one is not in it yet.
    in_hand: usize,
    in_hand_now: Arc<AtomicUsize>,
    /// Set once another server is to have the device; the second, once each request that was begun has its answer.
    leaves: Arc<AtomicBool>,
    has_left: bool,
    /// Bytes of the device's blocks.
    block: u64,
    read_only: bool,
    on_failure: OnFailure,
}

impl UblkWire {
    pub fn new(
        device: &UblkDevice,
        number: u16,
        ring: &mut Ring,
        gate: &Gate,
        (in_hand_now, leaves): (Arc<AtomicUsize>, Arc<AtomicBool>),
        on_failure: OnFailure,
    ) -> io::Result<Self> {
        let queue = UblkQueue::open(device, number, ring)?;
        let depth = queue.depth();
        let geometry = gate.geometry();
        let buffers = if queue.copies() { 1 } else { depth.into() };
        let arena = Arena::new(queue.buffer_len(), buffers)?;
        touch(&arena);
        Ok(Self {
            source: ring.add_source(),
            gate: gate.clone(),
            arena,
            slots: (0..depth).map(|_| UblkSlot::default()).collect(),
            arrived: VecDeque::with_capacity(depth.into()),
            ready: (0..depth).collect(),
            reports: VecDeque::with_capacity(depth.into()),
            live: depth.into(),
            in_hand: 0,
            in_hand_now,
            leaves,
            has_left: false,
            block: geometry.logical_block.into(),
            read_only: geometry.read_only,
            on_failure,
            queue,
        })
    }

    /// Returns what a request asks for, if it may.
    fn judge(&self, asked: &IoDescriptor) -> Result<WireRequest<()>, Errno> {
        let UblkOperation::Device(op) = asked.operation else {
            return Err(Errno::OPNOTSUPP);
        };
        if op == Op::Flush {
            return Ok(WireRequest::new(op, 0, 0));
        }
        let offset = asked.offset.ok_or(Errno::INVAL)?;
        let end = offset.checked_add(asked.length).ok_or(Errno::INVAL)?;
        let is_too_long = op.moves_data() && asked.length > self.queue.buffer_len() as u64;
        let is_odd = !offset.is_multiple_of(self.block) || !end.is_multiple_of(self.block);
        if end > self.gate.size() || is_too_long || is_odd {
            return Err(Errno::INVAL);
        }
        if self.read_only && op != Op::Read {
            return Err(Errno::PERM);
        }
        let length = if op.has_range() { asked.length } else { 0 };
        let durable = asked.durable && !op.moves_data();
        Ok(WireRequest { durable, ..WireRequest::new(op, offset, length) })
    }

    /// Returns what goes to the kernel with a tag. A tag has no buffer where its last request was a write.
    fn payload_of(&mut self, tag: u16) -> Option<UblkPayload> {
        let slot = &mut self.slots[usize::from(tag)];
        if self.queue.copies() {
            return Some(UblkPayload::Sector(slot.sector));
        }
        let mut buffer = slot.buffer.take().or_else(|| self.arena.take())?;
        buffer.set_len(self.queue.buffer_len());
        Some(UblkPayload::Buffer(buffer))
    }

    /// Gives a tag to the kernel. `false` where that must wait until something else has ended.
    fn send(&mut self, tag: u16, ring: &mut Ring) -> bool {
        let Some(payload) = self.payload_of(tag) else {
            return false;
        };
        let slot = &mut self.slots[usize::from(tag)];
        let io =
            if slot.is_fetched { self.queue.commit(tag, slot.result, payload) } else { self.queue.fetch(tag, payload) };
        match ring.submit(self.source, u64::from(tag), io) {
            Ok(()) => {
                // The first command of a tag answers nothing.
                self.in_hand -= usize::from(slot.is_fetched);
                slot.is_fetched = true;
                true
            }
            Err(io) => {
                slot.buffer = buffer_in(io);
                false
            }
        }
    }

    /// Tells if requests are left to another server. What has come and was not begun is given to that one.
    fn leaves(&self) -> bool {
        self.leaves.load(Ordering::Acquire)
    }

    /// A request that the lane is to serve, if it is to, or the result of one that is not served.
    fn asked(&mut self, tag: u16) -> Result<Option<WireRequest<u16>>, (i32, Option<Op>)> {
        let asked = IoDescriptor::parse(&self.queue.descriptor(tag));
        let slot = &mut self.slots[usize::from(tag)];
        (slot.sector, slot.failed) = (0, None);
        if asked.operation == UblkOperation::Report {
            let offset = asked.offset.unwrap_or(u64::MAX);
            let report = ReportInProgress::new(tag, offset, asked.zones, self.queue.buffer_len());
            self.reports.push_back(report);
            return Ok(None);
        }
        let judged = self.judge(&asked).map_err(|error| {
            let op = if let UblkOperation::Device(op) = asked.operation { Some(op) } else { None };
            (negative(error), op)
        })?;
        let counted = if judged.op.moves_data() { judged.length } else { 0 };
        self.slots[usize::from(tag)].length = count(counted);
        Ok(Some(judged.tagged(tag)))
    }

    /// Makes a little more of the first report.
    fn report(&mut self) {
        let Some(report) = self.reports.front_mut() else {
            return;
        };
        let (queue, tag) = (&self.queue, report.tag);
        let result = match report.go_on(&self.gate, |at, zones| queue.copy_out(tag, at, zones)) {
            Ok(false) => return,
            // All of the kernel's buffer, which can be longer than the zones that it has asked for.
            Ok(true) => count(queue.buffer_len() as u64),
            Err(error) => negative(error),
        };
        self.reports.pop_front();
        self.slots[usize::from(tag)].result = result;
        self.ready.push_back(tag);
    }
}

/// Writes to all of an arena. Memory that was not written to has to be found first, and when it is short the kernel
/// finds some by writing to us.
fn touch(arena: &Arc<Arena>) {
    let all = std::iter::from_fn(|| arena.take());
    let all = all.map(|mut buffer| {
        buffer.fill(0);
        buffer
    });
    drop(all.collect::<Vec<_>>());
}

/// The number for the kernel, which takes `EAGAIN` for the answer to a request that must not wait.
fn errno_of(fault: Fault) -> Errno {
    if fault == Fault::Busy { Errno::NOMEM } else { fault.errno() }
}

/// An error, as a result.
fn negative(errno: Errno) -> i32 {
    errno.raw_os_error().saturating_neg()
}

/// Bytes, as a result.
fn count(bytes: u64) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}

fn buffer_in(io: Io) -> Option<Buffer> {
    match io {
        Io::Command(command) => match command.into_payload() {
            UblkPayload::Buffer(buffer) => Some(buffer),
            // It is in the slot still.
            UblkPayload::Sector(_) => None,
        },
        _ => None,
    }
}

impl Wire for UblkWire {
    type Tag = u16;

    fn take(&mut self, room: &LaneRoom) -> Option<WireInput<u16>> {
        while room.has_job() && !self.leaves() {
            let tag = self.arrived.pop_front()?;
            match self.asked(tag) {
                Ok(Some(asked)) => return Some(WireInput::Asked(asked)),
                Ok(None) => {}
                Err((result, op)) => {
                    self.slots[usize::from(tag)].result = result;
                    self.ready.push_back(tag);
                    return Some(WireInput::Refused(0, op));
                }
            }
        }
        None
    }

    fn bring(&mut self, tag: u16, chunk: WriteChunk, room: &LaneRoom) -> Brought {
        if !self.queue.copies() {
            let own = self.lend(tag, chunk.at, chunk.len);
            return own.map_or(Brought::Never, Brought::Now);
        }
        let Some(mut buffer) = room.buffer(chunk.len) else {
            return Brought::NoRoom;
        };
        // A request is one chunk.
        match self.queue.copy_in(tag, &mut buffer) {
            Ok(()) => Brought::Now(buffer),
            Err(_) => Brought::Never,
        }
    }

    fn lend(&mut self, tag: u16, at: u64, len: usize) -> Option<Buffer> {
        // A request is one chunk: its buffer is no longer.
        let mut buffer = self.slots[usize::from(tag)].buffer.take_if(|_| at == 0)?;
        buffer.set_len(len);
        Some(buffer)
    }

    fn give(&mut self, tag: u16, at: u64, data: Buffer, _last: bool) {
        let slot = &mut self.slots[usize::from(tag)];
        if !self.queue.copies() {
            slot.buffer = Some(data);
            return;
        }
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        if let Err(error) = self.queue.copy_out(tag, at, &data) {
            slot.failed = Some(Errno::from_io_error(&error).unwrap_or(Errno::IO));
        }
    }

    fn placed(&mut self, tag: u16, offset: u64) {
        self.slots[usize::from(tag)].sector = offset / 512;
    }

    fn end(&mut self, tag: u16, result: Result<(), Fault>) {
        let slot = &mut self.slots[usize::from(tag)];
        let failed = result.err().map(errno_of).or(slot.failed);
        slot.result = failed.map_or(slot.length, negative);
        self.ready.push_back(tag);
    }

    fn arm(&mut self, ring: &mut Ring, room: &LaneRoom) -> bool {
        self.report();
        for _ in 0..self.ready.len() {
            let Some(tag) = self.ready.pop_front() else {
                break;
            };
            if !self.send(tag, ring) {
                self.ready.push_front(tag);
                break;
            }
        }
        self.in_hand_now.store(self.in_hand, Ordering::Release);
        if self.leaves() {
            self.has_left = ring.confirm_commands() && self.in_hand == self.arrived.len();
            return false;
        }
        !self.arrived.is_empty() && room.has_job()
    }

    fn has_work(&self) -> bool {
        !self.reports.is_empty()
    }

    fn reap(&mut self, ring: &mut Ring) {
        while let Some(done) = ring.next_done(self.source) {
            let Ok(tag) = u16::try_from(done.token) else {
                continue;
            };
            self.slots[usize::from(tag)].buffer = buffer_in(done.io);
            match done.result {
                Ok(0) => {
                    self.in_hand += 1;
                    self.arrived.push_back(tag);
                }
                // The device is stopped, or waits for another server.
                Err(Errno::NODEV) => self.live -= 1,
                // What was asked of the tag would never be answered.
                refused => {
                    (self.on_failure)(&format!("the kernel does not take tag {tag} back: {refused:?}"));
                    self.live -= 1;
                }
            }
        }
        self.in_hand_now.store(self.in_hand, Ordering::Release);
    }

    fn stop(&mut self) {
        // The device is stopped in the kernel, which writes to us until then.
    }

    fn is_over(&self) -> bool {
        self.live == 0 || self.has_left
    }
}
