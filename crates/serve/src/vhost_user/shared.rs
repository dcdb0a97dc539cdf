//! Words of a ring, or of the buffer for requests under way: memory that others change, and that outlives the server.
//!
//! All stores to it pass here, so a test can have a server killed between any two of them.

use cryptline_sys::{GuestFault, GuestRange};

pub(super) struct VhostShared(GuestRange);

impl VhostShared {
    pub fn new(range: GuestRange) -> Self {
        Self(range)
    }

    pub fn read(&self, at: usize, target: &mut [u8]) -> Result<(), GuestFault> {
        self.0.read(at, target)
    }

    pub fn load16(&self, at: usize) -> Result<u16, GuestFault> {
        self.0.load16(at)
    }

    pub fn load64(&self, at: usize) -> Result<u64, GuestFault> {
        self.0.load64(at)
    }

    pub fn write(&self, at: usize, source: &[u8]) -> Result<(), GuestFault> {
        #[cfg(test)]
        kill::point()?;
        self.0.write(at, source)
    }

    /// Notes the byte as written and leaves it as it is, whoever changes it meanwhile.
    pub fn touch(&self, at: usize) -> Result<(), GuestFault> {
        #[cfg(test)]
        kill::point()?;
        self.0.set_bits(at, 0)
    }

    pub fn store16(&self, at: usize, value: u16) -> Result<(), GuestFault> {
        #[cfg(test)]
        kill::point()?;
        self.0.store16(at, value)
    }

    pub fn store64(&self, at: usize, value: u64) -> Result<(), GuestFault> {
        #[cfg(test)]
        kill::point()?;
        self.0.store64(at, value)
    }
}

/// Servers that are killed before a store.
#[cfg(test)]
pub(super) mod kill {
    use std::cell::Cell;

    use cryptline_sys::GuestFault;

    thread_local! {
        static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    /// Of this thread's stores from now on, so many take place and no other.
    pub fn after(stores: usize) {
        LEFT.set(stores);
    }

    /// No more servers are killed.
    pub fn never() {
        LEFT.set(usize::MAX);
    }

    pub(super) fn point() -> Result<(), GuestFault> {
        let left = LEFT.get();
        if left == 0 {
            return Err(GuestFault::Lost);
        }
        if left != usize::MAX {
            LEFT.set(left - 1);
        }
        Ok(())
    }
}
