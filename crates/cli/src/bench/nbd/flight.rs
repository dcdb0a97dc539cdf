//! The requests in flight: a fixed table of slots.
//!
//! A cookie is a slot's number and how often that slot was used before, so an answer that comes twice
//! or too late is not taken for another's.

use cryptline_nbd::client;
use cryptline_nbd::request::RequestHeader;
use cryptline_nbd::wire::REQUEST_LEN;

/// Bits of a cookie that hold the slot.
const SLOT_BITS: u32 = 32;

/// One request in flight, or room for one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slot {
    /// Where on the disk.
    pub offset: u64,
    /// When it was sent, in nanoseconds on the clock of the load.
    pub sent: u64,
    generation: u32,
    in_flight: bool,
}

/// All slots of a connection.
#[derive(Debug)]
pub struct Flight {
    slots: Vec<Slot>,
    /// Slots without a request. Never reallocated: there is room for all.
    free: Vec<usize>,
    command: u16,
    length: u32,
}

impl Flight {
    /// `depth` slots for requests of one kind and length.
    pub fn new(depth: usize, command: u16, length: u32) -> Self {
        Self {
            slots: vec![Slot::default(); depth],
            // Slot 0 first.
            free: (0..depth).rev().collect(),
            command,
            length,
        }
    }

    /// Whether nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Whether all slots are taken.
    pub fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Puts a request for `offset` into a free slot; its header, and the slot. `None` when all are taken.
    pub fn launch(&mut self, offset: u64, now: u64) -> Option<(usize, [u8; REQUEST_LEN])> {
        let index = self.free.pop()?;
        let slot = &mut self.slots[index];
        slot.offset = offset;
        slot.sent = now;
        slot.in_flight = true;
        let cookie = u64::from(slot.generation) << SLOT_BITS | index as u64;
        let header = RequestHeader {
            flags: 0,
            command: self.command,
            cookie,
            offset,
            length: self.length,
        };
        Some((index, client::request(&header)))
    }

    /// The slot that `cookie` belongs to; `None` for a cookie that nobody waits for.
    pub fn find(&self, cookie: u64) -> Option<usize> {
        let index = usize::try_from(cookie & ((1 << SLOT_BITS) - 1)).ok()?;
        let slot = self.slots.get(index)?;
        let is_asked = slot.in_flight && u64::from(slot.generation) == cookie >> SLOT_BITS;
        is_asked.then_some(index)
    }

    /// A request that was found.
    pub fn slot(&self, index: usize) -> &Slot {
        &self.slots[index]
    }

    /// Ends a request that was found.
    pub fn land(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.in_flight = false;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
    }
}
