//! The packed virtqueue (virtio 1.3, section 2.8).
//!
//! ```text
//! ring           size x { address u64, length u32, id u16, flags u16 }   requests, overwritten by used elements
//! driver's area  place u16, flags u16      where it wants an interrupt
//! device's area  place u16, flags u16      where we want a kick
//! ```
//!
//! Both sides go around the ring, and their wrap counters change with each lap. An element whose `AVAILABLE` is the
//! counter and whose `USED` is not is the device's; one where both are is the driver's again. A request takes as many
//! places as it has descriptors, and its used element, which goes to the oldest place that is not used, stands for all
//! of them.

use std::sync::atomic::{Ordering, fence};

use cryptline_sys::{GuestMemory, GuestRange};

use super::super::inflight::{LeftRequest, PackedInflight};
use super::super::shared::VhostShared;
use super::{DescriptorChain, GuestSegment, QUEUE_SIZE_MAX, RingError, SEGMENTS_MAX, Virtqueue, VirtqueueLayout};

const DESCRIPTOR: usize = 16;
/// Length, id and flags are one word, which is read and written in one piece.
const REST: usize = 8;
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const AVAILABLE: u16 = 1 << 7;
const USED: u16 = 1 << 15;

/// An area's size, and where its flags are.
const AREA: usize = 4;
const FLAGS: usize = 2;
/// In an area's flags: notify always, never, or at the place.
const ENABLE: u16 = 0;
const DISABLE: u16 = 1;
const AT_PLACE: u16 = 2;

/// A place in the ring, with the wrap counter of the lap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct RingPosition {
    pub index: u16,
    pub wrap: bool,
}

impl RingPosition {
    fn decode(bits: u16) -> Self {
        Self { index: bits & 0x7fff, wrap: bits & 0x8000 != 0 }
    }

    fn encode(self) -> u16 {
        self.index | u16::from(self.wrap) << 15
    }

    /// The place `count` further on, no more than a lap.
    fn plus(self, count: u16, size: u16) -> Self {
        let index = self.index + count;
        if index >= size { Self { index: index - size, wrap: !self.wrap } } else { Self { index, ..self } }
    }

    /// How many places behind `earlier`, which is in the ring, it is: less than two laps.
    fn since(self, earlier: Self, size: u16) -> u32 {
        let size = u32::from(size);
        let along = |place: Self| u32::from(place.index) + if place.wrap { 0 } else { size };
        (along(self) + 2 * size - along(earlier)) % (2 * size)
    }

    fn offset(self) -> usize {
        DESCRIPTOR * usize::from(self.index)
    }

    /// Tells if the driver has put a descriptor there in this lap.
    fn is_available(self, flags: u16) -> bool {
        (flags & AVAILABLE != 0) == self.wrap && (flags & USED != 0) != self.wrap
    }

    /// Tells if the device has put a used element there in this lap; the driver may be a lap ahead since.
    fn is_used(self, flags: u16) -> bool {
        (flags & USED != 0) == self.wrap
    }
}

/// A descriptor, but its address.
#[derive(Clone, Copy)]
struct DescriptorRest {
    len: u32,
    id: u16,
    flags: u16,
}

impl DescriptorRest {
    fn decode(word: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
        Self {
            len: u32::from_le_bytes([a, b, c, d]),
            id: u16::from_le_bytes([e, f]),
            flags: u16::from_le_bytes([g, h]),
        }
    }

    fn encode(self) -> u64 {
        u64::from(self.len) | u64::from(self.id) << 32 | u64::from(self.flags) << 48
    }
}

/// A request that is over.
#[derive(Clone, Copy)]
struct FinishedRequest {
    id: u16,
    count: u16,
    written: u32,
    entry: u16,
}

pub(in super::super) struct PackedRing {
    layout: VirtqueueLayout,
    places: PackedPlaces,
    /// The next place to take from.
    next: RingPosition,
    /// Where the next used element goes.
    used: RingPosition,
    /// Places between the two.
    taken: u16,
    /// Requests that are over and not published; not in the ring either, so that no later server finds a part of it
    /// there.
    batch: Vec<FinishedRequest>,
    /// The driver has been told not to kick.
    is_quiet: bool,
    inflight: Option<PackedInflight>,
    /// Requests that were under way when an earlier server ended, last first.
    again: Vec<LeftRequest>,
    /// Where that one may have stored a used element without noting it in the log, which may come later.
    heard: RingPosition,
}

struct PackedPlaces {
    ring: VhostShared,
    driver: VhostShared,
    device: VhostShared,
}

impl PackedPlaces {
    fn find(layout: &VirtqueueLayout, memory: &GuestMemory) -> Result<Self, RingError> {
        let len = DESCRIPTOR * usize::from(layout.size);
        let range = |user, len| memory.user_range(user, len).map(VhostShared::new);
        Ok(Self {
            ring: range(layout.descriptors, len)?,
            driver: range(layout.available, AREA)?,
            device: range(layout.used, AREA)?,
        })
    }

    /// A descriptor's word of length, id and flags, before all that is read later.
    fn rest(&self, place: RingPosition) -> Result<u64, RingError> {
        let word = self.ring.load64(place.offset() + REST)?;
        Ok(u64::from_le(word))
    }

    fn is_used(&self, place: RingPosition) -> Result<bool, RingError> {
        let rest = DescriptorRest::decode(self.rest(place)?);
        Ok(place.is_used(rest.flags))
    }

    /// The one store of a used element.
    fn put_used(&self, place: RingPosition, done: &FinishedRequest) -> Result<(), RingError> {
        let marks = if place.wrap { AVAILABLE | USED } else { 0 };
        let is_written = if done.written > 0 { WRITE } else { 0 };
        let rest = DescriptorRest { len: done.written, id: done.id, flags: marks | is_written };
        let word = rest.encode().to_le();
        Ok(self.ring.store64(place.offset() + REST, word)?)
    }

    /// Takes back used elements of a batch that was not published as a whole: the driver would believe them once it
    /// gets there.
    fn take_back(&self, from: RingPosition, count: u16, size: u16) -> Result<(), RingError> {
        for step in 0..count {
            let place = from.plus(step, size);
            let rest = DescriptorRest::decode(self.rest(place)?);
            if place.is_used(rest.flags) {
                let flags = if place.wrap { AVAILABLE } else { USED };
                let word = DescriptorRest { flags, ..rest }.encode().to_le();
                self.ring.store64(place.offset() + REST, word)?;
            }
        }
        Ok(())
    }
}

impl Virtqueue for PackedRing {
    fn open(layout: VirtqueueLayout, memory: &GuestMemory, inflight: Option<GuestRange>) -> Result<Self, RingError> {
        let size = layout.size;
        if !(1..=QUEUE_SIZE_MAX).contains(&size) {
            return Err(RingError::Size(size));
        }
        let places = PackedPlaces::find(&layout, memory)?;
        let mut next = begin(&layout)?;
        // The mark of a server that has the ring, which says nothing to the driver: where a kick is wanted, if one is wanted at
        // a place.
        places.device.store16(0, next.encode().to_le())?;
        let (mut used, mut again, mut heard) = (next, Vec::new(), next);
        let inflight = inflight.map(|range| {
            PackedInflight::open(range, size, used, |place| {
                // Before the batch is noted as published: its first element may have been stored and not logged.
                heard = place;
                places.ring.touch(place.offset() + REST)?;
                places.is_used(place)
            })
        });
        let inflight = match inflight.transpose()? {
            Some((inflight, left)) => {
                used = inflight.used();
                // What was taken and is not used is under way: no more than there are entries.
                let taken = left.iter().map(|left| left.count).sum();
                next = used.plus(taken, size);
                again = left;
                places.take_back(used, taken, size)?;
                Some(inflight)
            }
            None => None,
        };
        Ok(Self {
            layout,
            places,
            next,
            used,
            taken: u16::try_from(next.since(used, size)).unwrap_or(size),
            batch: Vec::with_capacity(size.into()),
            is_quiet: false,
            inflight,
            again,
            heard,
        })
    }

    fn is_fresh(layout: &VirtqueueLayout, memory: &GuestMemory) -> Result<bool, RingError> {
        let is_first = [0x8000, 0x8000_8000].contains(&layout.base);
        let places = PackedPlaces::find(layout, memory)?;
        let flags = |index| {
            let place = RingPosition { index, wrap: true };
            places.rest(place).map(|rest| DescriptorRest::decode(rest).flags)
        };
        // The driver alone leaves the mark of the first place as it is, and does not reach the last one that soon.
        let last = flags(layout.size.saturating_sub(1))?;
        let is_marked = places.device.load16(0)? != 0 || places.device.load16(FLAGS)? != 0;
        Ok(is_first && flags(0)? & USED == 0 && last == 0 && !is_marked)
    }

    fn remap(&mut self, memory: &GuestMemory) -> Result<(), RingError> {
        self.places = PackedPlaces::find(&self.layout, memory)?;
        Ok(self.places.ring.touch(self.heard.offset() + REST)?)
    }

    fn next(&mut self, memory: &GuestMemory, chain: &mut DescriptorChain) -> Result<bool, RingError> {
        if let Some(left) = self.again.pop() {
            self.walk_again(left, memory, chain)?;
            return Ok(true);
        }
        let Some(first) = self.available()? else {
            return Ok(false);
        };
        self.walk(first, memory, chain)?;
        if let Some(inflight) = &mut self.inflight {
            chain.entry = inflight.take()?;
        }
        self.next = self.next.plus(chain.count, self.layout.size);
        self.taken += chain.count;
        self.keep_quiet()?;
        Ok(true)
    }

    fn peek(&mut self, memory: &GuestMemory, chain: &mut DescriptorChain) -> Result<bool, RingError> {
        if let Some(left) = self.again.last() {
            return self.walk_again(*left, memory, chain).map(|()| true);
        }
        match self.available()? {
            Some(first) => self.walk(first, memory, chain).map(|()| true),
            None => Ok(false),
        }
    }

    fn finish(&mut self, chain: &DescriptorChain, written: u32) -> Result<(), RingError> {
        self.batch.push(FinishedRequest { id: chain.head, count: chain.count, written, entry: chain.entry });
        Ok(())
    }

    fn publish(&mut self) -> Result<bool, RingError> {
        if self.batch.is_empty() {
            return Ok(false);
        }
        let (size, old) = (self.layout.size, self.used);
        let count: u16 = self.batch.iter().map(|done| done.count).sum();
        let used = old.plus(count, size);
        let entries = self.batch.iter().map(|done| done.entry);
        if let Some(inflight) = &mut self.inflight {
            inflight.announce(entries.clone(), used)?;
        }
        // The driver looks at no element before the first one, which is stored last.
        let mut place = old;
        for (index, done) in self.batch.iter().enumerate() {
            if index > 0 {
                self.places.put_used(place, done)?;
            }
            place = place.plus(done.count, size);
        }
        self.places.put_used(old, &self.batch[0])?;
        if let Some(inflight) = &mut self.inflight {
            inflight.published(entries, used)?;
        }
        self.used = used;
        self.taken -= count;
        self.batch.clear();
        self.wants_interrupt(old, count)
    }

    fn ask_for_kick(&mut self) -> Result<bool, RingError> {
        if self.has_more()? {
            return Ok(true);
        }
        self.is_quiet = false;
        let device = &self.places.device;
        let flags = if self.layout.event_idx {
            device.store16(0, self.next.encode().to_le())?;
            AT_PLACE
        } else {
            ENABLE
        };
        device.store16(FLAGS, flags.to_le())?;
        // Whoever was in the middle of making it available has not seen that it is to kick.
        fence(Ordering::SeqCst);
        Ok(self.available()?.is_some())
    }

    fn has_more(&mut self) -> Result<bool, RingError> {
        Ok(!self.again.is_empty() || self.available()?.is_some())
    }

    fn has_left(&self) -> bool {
        !self.again.is_empty()
    }

    fn has_unpublished(&self) -> bool {
        !self.batch.is_empty()
    }

    fn base(&self) -> u32 {
        u32::from(self.next.encode()) | u32::from(self.used.encode()) << 16
    }
}

impl PackedRing {
    /// The descriptor that the next request begins with, all but its address.
    fn available(&self) -> Result<Option<u64>, RingError> {
        let word = self.places.rest(self.next)?;
        if !self.next.is_available(DescriptorRest::decode(word).flags) {
            return Ok(None);
        }
        if self.taken == self.layout.size {
            return Err(RingError::Ahead(self.taken.saturating_add(1)));
        }
        Ok(Some(word))
    }

    /// While the device looks by itself, kicks are of no use.
    fn keep_quiet(&mut self) -> Result<(), RingError> {
        if !self.is_quiet {
            self.is_quiet = true;
            self.places.device.store16(FLAGS, DISABLE.to_le())?;
        }
        Ok(())
    }

    /// Reads the chain at the next place, which begins with `first`.
    fn walk(&mut self, first: u64, memory: &GuestMemory, chain: &mut DescriptorChain) -> Result<(), RingError> {
        chain.begin(0);
        if let Some(inflight) = &mut self.inflight {
            inflight.begin();
        }
        let (mut place, mut word) = (self.next, first);
        loop {
            let address = u64::from_le(self.places.ring.load64(place.offset())?);
            if let Some(inflight) = &mut self.inflight {
                inflight.note(address, word)?;
            }
            let rest = DescriptorRest::decode(word);
            self.put(address, rest, memory, chain)?;
            if rest.flags & NEXT == 0 {
                return Ok(());
            }
            let is_room = chain.count < self.layout.size - self.taken;
            if !is_room || usize::from(chain.count) == SEGMENTS_MAX {
                return Err(RingError::Long);
            }
            place = place.plus(1, self.layout.size);
            word = self.places.rest(place)?;
        }
    }

    /// Reads a chain as it was when an earlier server took it.
    fn walk_again(
        &self,
        left: LeftRequest,
        memory: &GuestMemory,
        chain: &mut DescriptorChain,
    ) -> Result<(), RingError> {
        let inflight = self.inflight.as_ref().ok_or(RingError::Inflight)?;
        chain.begin(0);
        chain.entry = left.entry;
        let mut entry = left.entry;
        for _ in 0..left.count {
            let (address, word, next) = inflight.descriptor(entry)?;
            self.put(address, DescriptorRest::decode(word), memory, chain)?;
            entry = next;
        }
        Ok(())
    }

    /// Puts what a descriptor has into a chain.
    fn put(
        &self,
        address: u64,
        rest: DescriptorRest,
        memory: &GuestMemory,
        chain: &mut DescriptorChain,
    ) -> Result<(), RingError> {
        let DescriptorRest { len, id, flags } = rest;
        chain.head = id;
        chain.count += 1;
        let segment = GuestSegment { address, len };
        if flags & INDIRECT != 0 {
            let is_alone = chain.count == 1 && flags & NEXT == 0;
            if !self.layout.indirect || !is_alone {
                return Err(RingError::Indirect);
            }
            return put_table(segment, memory, chain);
        }
        if len > 0 {
            chain.push(segment, flags & WRITE != 0)?;
        }
        Ok(())
    }

    /// Tells if the driver wants an interrupt for `count` places from `old` on.
    fn wants_interrupt(&self, old: RingPosition, count: u16) -> Result<bool, RingError> {
        // The driver stores what it wants, then looks at the ring; so the ring goes first here.
        fence(Ordering::SeqCst);
        let driver = &self.places.driver;
        let flags = u16::from_le(driver.load16(FLAGS)?);
        if flags != AT_PLACE || !self.layout.event_idx {
            return Ok(flags != DISABLE);
        }
        let wanted = RingPosition::decode(u16::from_le(driver.load16(0)?));
        Ok(wanted.since(old, self.layout.size) < count.into())
    }
}

/// Where the next request is taken from. The next used element goes there too: only the buffer of requests under way
/// tells of any.
fn begin(layout: &VirtqueueLayout) -> Result<RingPosition, RingError> {
    let [a, b, c, d] = layout.base.to_le_bytes();
    let [next, used] = [[a, b], [c, d]].map(|bits| RingPosition::decode(u16::from_le_bytes(bits)));
    for place in [next, used] {
        if place.index >= layout.size {
            return Err(RingError::Index(place.index.into()));
        }
    }
    // Some front-ends tell the first of the two only, and what they leave out could be a place as well.
    Ok(next)
}

/// All descriptors of an indirect table, whatever they say of a next one.
fn put_table(table: GuestSegment, memory: &GuestMemory, chain: &mut DescriptorChain) -> Result<(), RingError> {
    let len = usize::try_from(table.len).map_err(|_| RingError::Indirect)?;
    if len == 0 || !len.is_multiple_of(DESCRIPTOR) {
        return Err(RingError::Indirect);
    }
    if len / DESCRIPTOR > SEGMENTS_MAX {
        return Err(RingError::Long);
    }
    for at in (0..len).step_by(DESCRIPTOR) {
        let at = table.address.checked_add(at as u64);
        let mut bytes = [0; DESCRIPTOR];
        memory.read(at.ok_or(RingError::Indirect)?, &mut bytes)?;
        let [address, rest] = halves(bytes);
        let DescriptorRest { len, flags, .. } = DescriptorRest::decode(rest);
        if flags & INDIRECT != 0 {
            return Err(RingError::Indirect);
        }
        if len > 0 {
            chain.push(GuestSegment { address, len }, flags & WRITE != 0)?;
        }
    }
    Ok(())
}

fn halves(bytes: [u8; DESCRIPTOR]) -> [u64; 2] {
    let word = u128::from_le_bytes(bytes);
    [0, 64].map(|shift| u64::try_from(word >> shift & u128::from(u64::MAX)).unwrap_or(0))
}

#[cfg(test)]
#[path = "packed_tests.rs"]
mod tests;
