//! Room for operations in flight.

use super::Ring;

impl Ring {
    /// Makes room for more operations in flight: for a layer that makes several of one. To be
    /// called before the queues that use them are opened.
    pub fn reserve(&mut self, more: u32) {
        self.depth = (self.depth + more as usize).min(u32::MAX as usize);
    }

    /// How many operations can be in flight.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// How many operations are in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free_slots.len()
    }
}
