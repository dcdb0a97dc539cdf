//! A virtqueue as a lane sees it.
//!
//! ```text
//! ring ─► Chain ─► judge ─► take ─► lane
//! guest memory ─► bring (a copy, once) ─► lane ─► give (a copy) ─► guest memory
//! ring ◄─ used element, status ◄─ end;   arm: publish, interrupt, wait for a kick
//! ```
//!
//! The cipher never works in guest memory: bytes are copied out before they are encrypted and copied in after they
//! were decrypted. Whoever changes them meanwhile spoils their own data only, and nobody sees ciphertext.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cryptline_engine::{Buffer, Fault, Ring};
use cryptline_sys::{GuestFault, GuestMemory, GuestRange};

use super::config::{SERIAL, SectorLimits};
use super::doorbell::Doorbell;
use super::mailbox::{Letter, Mailbox};
use super::queue::{DescriptorChain, RingError, Virtqueue, VirtqueueLayout};
use super::request::{DATA_AT, RequestStatus, RequestVerdict, judge};
use crate::lane::{Brought, JOBS_MAX, LaneRoom, Wire, WireInput, WriteChunk};

/// Questions that are answered here in one look at the ring: the lane has its orders to read in between.
const ANSWERS_MAX: u32 = 256;

/// How long memory that was taken back may take to come again. Where a machine has it unplugged, it never does.
const GAP: Duration = Duration::from_secs(2);

/// Takes a line.
pub(super) type LogFn = Box<dyn Fn(&str) + Send>;

/// Parts of one virtqueue, and what it is told from then on.
pub(super) struct VirtqueueStart {
    pub layout: VirtqueueLayout,
    pub memory: Arc<GuestMemory>,
    /// Parts of it were taken back, and may come again.
    pub lacks_memory: bool,
    pub inflight: Option<GuestRange>,
    pub kick: Option<Arc<OwnedFd>>,
    pub call: Option<Arc<OwnedFd>>,
    pub error: Option<Arc<OwnedFd>>,
    pub is_enabled: bool,
    pub limits: SectorLimits,
    pub serial: [u8; SERIAL],
    pub mailbox: Arc<Mailbox>,
    /// Takes the reason why the ring is served no further.
    pub log: LogFn,
}

/// A request that the lane has; a tag is a place among these.
struct VhostSlot {
    chain: DescriptorChain,
    /// Bytes written to the chain.
    written: u64,
    has_failed: bool,
    /// The memory that it was taken in, where that has changed since.
    older: Option<Arc<GuestMemory>>,
}

pub(super) struct VringWire<Q> {
    start: VirtqueueStart,
    ring: Q,
    doorbell: Doorbell,
    slots: Vec<VhostSlot>,
    free: Vec<usize>,
    /// Moment until which memory that was taken back may come again.
    lacks_until: Option<Instant>,
    /// The next request lies in such memory.
    awaits_memory: bool,
    is_stopped: bool,
    is_broken: bool,
    /// The front-end does not know that the ring is broken.
    owes_alarm: bool,
}

impl<Q: Virtqueue> VringWire<Q> {
    pub fn new(ring: &mut Ring, mut start: VirtqueueStart) -> io::Result<Self> {
        let queue = Q::open(start.layout, &start.memory, start.inflight.take());
        let queue = queue.map_err(|error| io::Error::other(error.to_string()))?;
        start.mailbox.set_base(queue.base());
        start.mailbox.open();
        let slot = |_| VhostSlot { chain: DescriptorChain::new(), written: 0, has_failed: false, older: None };
        // One more than jobs: the next request is read before it is known to be one for the lane.
        let count = JOBS_MAX + 1;
        Ok(Self {
            ring: queue,
            doorbell: Doorbell::new(ring, start.kick.take(), start.call.take()),
            lacks_until: gap(start.lacks_memory),
            start,
            slots: (0..count).map(slot).collect(),
            free: (0..count).rev().collect(),
            awaits_memory: false,
            is_stopped: false,
            is_broken: false,
            owes_alarm: false,
        })
    }

    /// Tells if requests are taken at all. A ring that stops takes what is left of an earlier server, also where it is
    /// disabled: no base could say that this has been taken.
    fn is_open(&self) -> bool {
        let is_wanted =
            if self.is_stopped { self.ring.has_left() } else { self.start.is_enabled && !self.awaits_memory };
        is_wanted && !self.is_broken && !self.start.mailbox.is_gone()
    }

    fn take_next(&mut self, room: &LaneRoom) -> Result<Option<WireInput<usize>>, RingError> {
        for _ in 0..ANSWERS_MAX {
            if !self.is_open() || !room.has_job() {
                return Ok(None);
            }
            let Some(&tag) = self.free.last() else {
                return Ok(None);
            };
            if self.may_get_memory() && !self.is_stopped && !self.has_memory_of_next(tag)? {
                self.awaits_memory = true;
                return Ok(None);
            }
            let slot = &mut self.slots[tag];
            if !self.ring.next(&self.start.memory, &mut slot.chain)? {
                return Ok(None);
            }
            (slot.written, slot.has_failed) = (0, false);
            match judge(&slot.chain, &self.start.memory, &self.start.limits)? {
                RequestVerdict::Serve(asked) => {
                    self.free.pop();
                    return Ok(Some(WireInput::Asked(asked.tagged(tag))));
                }
                RequestVerdict::Identify { length } => {
                    let name = &self.start.serial[..length];
                    slot.chain.write(&self.start.memory, 0, name)?;
                    slot.written = length as u64;
                    self.finish(tag, RequestStatus::Ok)?;
                }
                RequestVerdict::Refuse(status, op) => {
                    self.finish(tag, status)?;
                    return Ok(Some(WireInput::Refused(0, op)));
                }
            }
        }
        Ok(None)
    }

    /// Tells if memory that was taken back may still come again. Once it may not, the request that waits for it fails.
    fn may_get_memory(&mut self) -> bool {
        if self.lacks_until.is_some_and(|until| until <= Instant::now()) {
            self.lacks_until = None;
            self.awaits_memory = false;
        }
        self.lacks_until.is_some()
    }

    /// Tells if all of the next request, if there is one, lies in memory that is shared. It stays in its ring.
    fn has_memory_of_next(&mut self, tag: usize) -> Result<bool, RingError> {
        let (chain, memory) = (&mut self.slots[tag].chain, &self.start.memory);
        match self.ring.peek(memory, chain) {
            Ok(false) => Ok(true),
            Ok(true) => Ok(chain.lies_in(memory)),
            // A table of descriptors.
            Err(RingError::Memory(GuestFault::Outside)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The memory changes. Requests under way keep what they lie in.
    fn change_memory(&mut self, memory: Arc<GuestMemory>) {
        let before = std::mem::replace(&mut self.start.memory, memory);
        for (tag, slot) in self.slots.iter_mut().enumerate() {
            if !self.free.contains(&tag) {
                slot.older.get_or_insert_with(|| Arc::clone(&before));
            }
        }
    }

    /// Copies to where the driver reads. A request that was taken before the memory has changed may lie where it was.
    fn copy_in(&self, tag: usize, at: u64, data: &[u8]) -> Result<(), GuestFault> {
        let slot = &self.slots[tag];
        let written = slot.chain.write(&self.start.memory, at, data);
        match (&slot.older, written) {
            (Some(older), Err(_)) => slot.chain.write(older, at, data),
            (_, written) => written,
        }
    }

    /// Writes the status and the used element.
    fn finish(&mut self, tag: usize, status: RequestStatus) -> Result<(), RingError> {
        let status_at = self.slots[tag].chain.writable_len() - 1;
        self.copy_in(tag, status_at, &[status as u8])?;
        let VhostSlot { chain, written, .. } = &self.slots[tag];
        let written = u32::try_from(written + 1).unwrap_or(u32::MAX);
        self.ring.finish(chain, written)
    }

    /// Serves the ring no further: nothing that follows could be understood.
    fn give_up(&mut self, error: RingError) {
        if std::mem::replace(&mut self.is_broken, true) {
            return;
        }
        (self.start.log)(&error.to_string());
        self.owes_alarm = true;
    }

    fn hold(&mut self, result: Result<(), RingError>) {
        if let Err(error) = result {
            self.give_up(error);
        }
    }

    fn read_letters(&mut self) {
        let mailbox = Arc::clone(&self.start.mailbox);
        mailbox.read(|letter| match letter {
            Letter::Memory(memory, lacks) => {
                // Where this fails, requests still come, and their data lies where the ring does. Both are still
                // mapped, and the next letter may put it right.
                if self.ring.remap(&memory).is_ok() {
                    self.change_memory(memory);
                    self.lacks_until = gap(lacks);
                }
                self.awaits_memory = false;
            }
            Letter::Call(file) => self.doorbell.call_at(file),
            Letter::Error(file) => self.start.error = file,
            Letter::Enable(on) => self.start.is_enabled = on,
            Letter::Size(bytes) => self.start.limits.size = bytes,
        });
    }

    /// Publishes what is over, and interrupts the driver if it wants that.
    fn publish(&mut self, ring: &mut Ring) {
        if self.is_broken {
            return;
        }
        match self.ring.publish() {
            Ok(true) => self.doorbell.ring(),
            Ok(false) => {}
            Err(error) => self.give_up(error),
        }
        let sent = self.doorbell.send(ring);
        self.hold(sent);
    }

    /// Where the next server is to begin, while nothing is under way.
    fn note_base(&self) {
        if self.free.len() == self.slots.len() {
            self.start.mailbox.set_base(self.ring.base());
        }
    }

    /// Tells if there is more to take right now; otherwise a kick is waited for.
    fn look_or_listen(&mut self, ring: &mut Ring, room: &LaneRoom) -> Result<bool, RingError> {
        if !self.is_open() {
            if let Some(until) = self.lacks_until.filter(|_| self.awaits_memory) {
                ring.wake_by(until);
            }
            return Ok(false);
        }
        if !room.has_job() || self.free.is_empty() {
            // What ends makes room, and then the ring is looked at again.
            return Ok(false);
        }
        if self.ring.ask_for_kick()? {
            return Ok(true);
        }
        self.doorbell.listen(ring);
        Ok(false)
    }

    fn copy_out(&self, tag: usize, at: u64, to: &mut [u8]) -> Result<(), GuestFault> {
        let slot = &self.slots[tag];
        let read = slot.chain.read(&self.start.memory, DATA_AT + at, to);
        match (&slot.older, read) {
            (Some(older), Err(_)) => slot.chain.read(older, DATA_AT + at, to),
            (_, read) => read,
        }
    }
}

/// Moment until which memory is waited for, where some is lacking.
fn gap(lacks_memory: bool) -> Option<Instant> {
    lacks_memory.then(|| Instant::now() + GAP)
}

impl<Q: Virtqueue> Wire for VringWire<Q> {
    type Tag = usize;

    fn take(&mut self, room: &LaneRoom) -> Option<WireInput<usize>> {
        if self.start.mailbox.has_news() {
            self.read_letters();
        }
        if self.awaits_memory {
            self.may_get_memory();
        }
        match self.take_next(room) {
            Ok(taken) => taken,
            Err(error) => {
                self.give_up(error);
                None
            }
        }
    }

    fn bring(&mut self, tag: usize, chunk: WriteChunk, room: &LaneRoom) -> Brought {
        let Some(mut buffer) = room.buffer(chunk.len) else {
            return Brought::NoRoom;
        };
        match self.copy_out(tag, chunk.at, &mut buffer) {
            Ok(()) => Brought::Now(buffer),
            Err(_) => Brought::Never,
        }
    }

    fn give(&mut self, tag: usize, at: u64, data: Buffer, _last: bool) {
        let written = self.copy_in(tag, at, &data);
        let slot = &mut self.slots[tag];
        match written {
            Ok(()) => slot.written += data.len() as u64,
            Err(_) => slot.has_failed = true,
        }
    }

    fn end(&mut self, tag: usize, result: Result<(), Fault>) {
        let status = match result {
            _ if self.slots[tag].has_failed => RequestStatus::IoError,
            Ok(()) => RequestStatus::Ok,
            Err(Fault::NotSupported) => RequestStatus::Unsupported,
            Err(_) => RequestStatus::IoError,
        };
        // Nobody is told by a ring that makes no sense, or by one that others may have by now.
        if !self.is_broken && !self.start.mailbox.is_gone() {
            let finished = self.finish(tag, status);
            self.hold(finished);
        }
        self.free.push(tag);
        self.slots[tag].older = None;
    }

    fn arm(&mut self, ring: &mut Ring, room: &LaneRoom) -> bool {
        self.publish(ring);
        self.note_base();
        let more = self.look_or_listen(ring, room).unwrap_or_else(|error| {
            self.give_up(error);
            false
        });
        if std::mem::take(&mut self.owes_alarm)
            && let Some(file) = self.start.error.take()
        {
            self.doorbell.alarm(ring, file);
        }
        more
    }

    /// Without asking for kicks, which a virtual machine pays dearly for.
    fn arm_to_look(&mut self, ring: &mut Ring, room: &LaneRoom) -> bool {
        if !self.is_open() || !room.has_job() || self.free.is_empty() {
            return self.arm(ring, room);
        }
        self.publish(ring);
        self.note_base();
        false
    }

    fn has_more(&mut self) -> bool {
        // What is wrong with a ring is told by `take`.
        self.is_open() && self.ring.has_more().unwrap_or(true)
    }

    fn reap(&mut self, ring: &mut Ring) {
        let reaped = self.doorbell.reap(ring);
        self.hold(reaped);
    }

    fn stop(&mut self) {
        self.is_stopped = true;
    }

    fn is_over(&self) -> bool {
        let is_told = !self.ring.has_unpublished() && self.doorbell.is_silent();
        let is_done = is_told && !self.ring.has_left();
        self.is_broken || self.start.mailbox.is_gone() || self.is_stopped && is_done
    }

    fn is_gone(&self) -> bool {
        self.is_broken || self.start.mailbox.is_gone()
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
