//! The split virtqueue (virtio 1.3, section 2.7).
//!
//! ```text
//! descriptors  size x { address u64, length u32, flags u16, next u16 }       the driver's
//! available    flags u16, index u16, size x head u16, used_event u16         the driver's
//! used         flags u16, index u16, size x { head u32, length u32 }, avail_event u16      ours
//! ```

use std::sync::atomic::{Ordering, fence};

use cryptline_sys::{GuestMemory, GuestRange};

use super::super::inflight::SplitInflight;
use super::super::shared::VhostShared;
use super::{DescriptorChain, GuestSegment, RingError, SEGMENTS_MAX, Virtqueue, VirtqueueLayout, is_crossed};

const DESCRIPTOR: usize = 16;
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
/// In the available ring's flags: the driver wants no interrupts.
const NO_INTERRUPT: u16 = 1;
/// In the used ring's flags: the device wants no kicks.
const NO_NOTIFY: u16 = 1;
const INDEX: usize = 2;
const ENTRIES: usize = 4;

pub(in super::super) struct SplitRing {
    layout: VirtqueueLayout,
    places: SplitPlaces,
    /// The next entry of the available ring to take.
    next: u16,
    /// The available index as last read.
    seen: u16,
    /// Elements written to the used ring.
    finished: u16,
    /// Elements that the driver has been told of.
    published: u16,
    /// The driver has been told not to kick.
    is_quiet: bool,
    inflight: Option<SplitInflight>,
    /// Requests that were under way when an earlier server ended, last first.
    again: Vec<u16>,
}

struct SplitDescriptor {
    segment: GuestSegment,
    flags: u16,
    next: u16,
}

/// Where descriptors are read from.
#[derive(Clone, Copy)]
enum DescriptorTable {
    Ring,
    Indirect { address: u64, count: u32 },
}

struct SplitPlaces {
    descriptors: VhostShared,
    available: VhostShared,
    used: VhostShared,
}

impl SplitPlaces {
    fn find(layout: &VirtqueueLayout, memory: &GuestMemory) -> Result<Self, RingError> {
        let size = usize::from(layout.size);
        let event = if layout.event_idx { 2 } else { 0 };
        let available = ENTRIES + 2 * size + event;
        let used = ENTRIES + 8 * size + event;
        let range = |user, len| memory.user_range(user, len).map(VhostShared::new);
        Ok(Self {
            descriptors: range(layout.descriptors, DESCRIPTOR * size)?,
            available: range(layout.available, available)?,
            used: range(layout.used, used)?,
        })
    }

    /// Tells if a server has had the ring. The mark is the length in the last used element: a request that is over has
    /// at least its status written, and the driver looks at none before that.
    fn is_marked(&self, size: u16) -> Result<bool, RingError> {
        let mut length = [0; 4];
        self.used.read(mark_at(size), &mut length)?;
        Ok(length != [0; 4])
    }

    fn mark(&self, size: u16) -> Result<(), RingError> {
        if !self.is_marked(size)? {
            self.used.write(mark_at(size), &1u32.to_le_bytes())?;
        }
        Ok(())
    }
}

fn mark_at(size: u16) -> usize {
    ENTRIES + 8 * usize::from(size.saturating_sub(1)) + 4
}

impl Virtqueue for SplitRing {
    fn open(layout: VirtqueueLayout, memory: &GuestMemory, inflight: Option<GuestRange>) -> Result<Self, RingError> {
        if !layout.size.is_power_of_two() {
            return Err(RingError::Size(layout.size));
        }
        let places = SplitPlaces::find(&layout, memory)?;
        // An earlier server may have stored it and ended before it was logged.
        places.used.touch(INDEX)?;
        places.mark(layout.size)?;
        let used = u16::from_le(places.used.load16(INDEX)?);
        let [low, high, ..] = layout.base.to_le_bytes();
        let (mut next, mut again) = (u16::from_le_bytes([low, high]), Vec::new());
        let inflight = inflight.map(|range| SplitInflight::open(range, layout.size, used));
        let inflight = match inflight.transpose()? {
            Some((inflight, left)) => {
                // All that was taken and is not in the used ring is under way.
                next = used.wrapping_add(u16::try_from(left.len()).unwrap_or(u16::MAX));
                again = left;
                Some(inflight)
            }
            None => None,
        };
        Ok(Self { layout, places, next, seen: next, finished: used, published: used, is_quiet: false, inflight, again })
    }

    fn is_fresh(layout: &VirtqueueLayout, memory: &GuestMemory) -> Result<bool, RingError> {
        let places = SplitPlaces::find(layout, memory)?;
        Ok(layout.base == 0 && places.used.load16(INDEX)? == 0 && !places.is_marked(layout.size)?)
    }

    fn remap(&mut self, memory: &GuestMemory) -> Result<(), RingError> {
        self.places = SplitPlaces::find(&self.layout, memory)?;
        // A log may come after the ring: see `open`.
        Ok(self.places.used.touch(INDEX)?)
    }

    fn next(&mut self, memory: &GuestMemory, chain: &mut DescriptorChain) -> Result<bool, RingError> {
        if let Some(head) = self.again.pop() {
            self.walk(head, memory, chain)?;
            return Ok(true);
        }
        if self.seen == self.next && !self.look()? {
            return Ok(false);
        }
        let place = usize::from(self.next % self.layout.size);
        let head = u16::from_le(self.places.available.load16(ENTRIES + 2 * place)?);
        self.walk(head, memory, chain)?;
        self.next = self.next.wrapping_add(1);
        if let Some(inflight) = &mut self.inflight {
            inflight.take(head)?;
        }
        self.keep_quiet()?;
        Ok(true)
    }

    fn peek(&mut self, memory: &GuestMemory, chain: &mut DescriptorChain) -> Result<bool, RingError> {
        let head = match self.again.last().copied() {
            Some(head) => head,
            None if self.seen == self.next && !self.look()? => return Ok(false),
            None => {
                let place = usize::from(self.next % self.layout.size);
                u16::from_le(self.places.available.load16(ENTRIES + 2 * place)?)
            }
        };
        self.walk(head, memory, chain)?;
        Ok(true)
    }

    fn finish(&mut self, chain: &DescriptorChain, written: u32) -> Result<(), RingError> {
        let place = usize::from(self.finished % self.layout.size);
        let element = u64::from(chain.head) | u64::from(written) << 32;
        self.places.used.write(ENTRIES + 8 * place, &element.to_le_bytes())?;
        self.finished = self.finished.wrapping_add(1);
        if let Some(inflight) = &mut self.inflight {
            inflight.finish(chain.head)?;
        }
        Ok(())
    }

    fn publish(&mut self) -> Result<bool, RingError> {
        if self.finished == self.published {
            return Ok(false);
        }
        self.places.used.store16(INDEX, self.finished.to_le())?;
        if let Some(inflight) = &mut self.inflight {
            inflight.published(self.finished)?;
        }
        let old = std::mem::replace(&mut self.published, self.finished);
        // The driver stores what it wants, then looks at the index; so the index goes first here.
        fence(Ordering::SeqCst);
        if self.layout.event_idx {
            let event = ENTRIES + 2 * usize::from(self.layout.size);
            let event = u16::from_le(self.places.available.load16(event)?);
            return Ok(is_crossed(event, self.finished, old));
        }
        let flags = u16::from_le(self.places.available.load16(0)?);
        Ok(flags & NO_INTERRUPT == 0)
    }

    fn ask_for_kick(&mut self) -> Result<bool, RingError> {
        if self.has_seen_more() {
            return Ok(true);
        }
        if self.layout.event_idx {
            let event = ENTRIES + 8 * usize::from(self.layout.size);
            self.places.used.store16(event, self.next.to_le())?;
        } else {
            self.is_quiet = false;
            self.places.used.store16(0, 0)?;
        }
        // Whoever was in the middle of making it available has not seen that it is to kick.
        fence(Ordering::SeqCst);
        self.look()
    }

    fn has_more(&mut self) -> Result<bool, RingError> {
        Ok(self.has_seen_more() || self.look()?)
    }

    fn has_left(&self) -> bool {
        !self.again.is_empty()
    }

    fn has_unpublished(&self) -> bool {
        self.finished != self.published
    }

    fn base(&self) -> u32 {
        let waiting = u16::try_from(self.again.len()).unwrap_or(0);
        self.next.wrapping_sub(waiting).into()
    }
}

impl SplitRing {
    /// Tells if the driver has made more available.
    fn look(&mut self) -> Result<bool, RingError> {
        let seen = u16::from_le(self.places.available.load16(INDEX)?);
        let ahead = seen.wrapping_sub(self.next);
        if ahead > self.layout.size {
            return Err(RingError::Ahead(ahead));
        }
        self.seen = seen;
        Ok(ahead > 0)
    }

    /// While the device looks by itself, kicks are of no use.
    fn keep_quiet(&mut self) -> Result<(), RingError> {
        // With event indices an old one is all it takes.
        if !self.layout.event_idx && !self.is_quiet {
            self.is_quiet = true;
            self.places.used.store16(0, NO_NOTIFY.to_le())?;
        }
        Ok(())
    }

    fn walk(&self, head: u16, memory: &GuestMemory, chain: &mut DescriptorChain) -> Result<(), RingError> {
        chain.begin(head);
        let (mut table, mut index) = (DescriptorTable::Ring, head);
        // Segments of no bytes count as well, so a loop of them ends.
        let mut left = SEGMENTS_MAX;
        loop {
            left = left.checked_sub(1).ok_or(RingError::Long)?;
            let SplitDescriptor { segment, flags, next } = self.descriptor(table, index, memory)?;
            if flags & INDIRECT != 0 {
                table = self.indirect(table, segment, flags)?;
                index = 0;
                // It is no segment, and there is one table at most.
                left += 1;
                continue;
            }
            if segment.len > 0 {
                chain.push(segment, flags & WRITE != 0)?;
            }
            if flags & NEXT == 0 {
                return Ok(());
            }
            index = next;
        }
    }

    fn indirect(
        &self,
        table: DescriptorTable,
        segment: GuestSegment,
        flags: u16,
    ) -> Result<DescriptorTable, RingError> {
        let size = u32::try_from(DESCRIPTOR).unwrap_or(u32::MAX);
        let count = segment.len / size;
        let is_first = matches!(table, DescriptorTable::Ring);
        let is_whole = count > 0 && segment.len.is_multiple_of(size) && flags & NEXT == 0;
        if !self.layout.indirect || !is_first || !is_whole {
            return Err(RingError::Indirect);
        }
        Ok(DescriptorTable::Indirect { address: segment.address, count })
    }

    fn descriptor(
        &self,
        table: DescriptorTable,
        index: u16,
        memory: &GuestMemory,
    ) -> Result<SplitDescriptor, RingError> {
        let mut bytes = [0; DESCRIPTOR];
        let offset = usize::from(index) * DESCRIPTOR;
        match table {
            DescriptorTable::Ring if index < self.layout.size => {
                self.places.descriptors.read(offset, &mut bytes)?;
            }
            DescriptorTable::Indirect { address, count } if u32::from(index) < count => {
                let address = address.checked_add(offset as u64);
                let address = address.ok_or(RingError::Indirect)?;
                memory.read(address, &mut bytes)?;
            }
            _ => return Err(RingError::Index(index.into())),
        }
        let word = u128::from_le_bytes(bytes);
        let part = |shift: u32| (word >> shift) & u128::from(u32::MAX);
        let [low, high, len, rest] = [0, 32, 64, 96].map(|at| {
            let part = part(at);
            u32::try_from(part).unwrap_or(0)
        });
        let [flags_low, flags_high, next_low, next_high] = rest.to_le_bytes();
        Ok(SplitDescriptor {
            segment: GuestSegment { address: u64::from(low) | u64::from(high) << 32, len },
            flags: u16::from_le_bytes([flags_low, flags_high]),
            next: u16::from_le_bytes([next_low, next_high]),
        })
    }

    /// Tells if there is more for certain, without a look.
    fn has_seen_more(&self) -> bool {
        !self.again.is_empty() || self.seen != self.next
    }
}

#[cfg(test)]
#[path = "split_tests.rs"]
mod tests;
