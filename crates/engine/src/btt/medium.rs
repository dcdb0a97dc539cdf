//! Medium of a block translation table: bytes with ordered stores and persistence points.
//!
//! Stores may reach the medium in any order and, in units of eight aligned bytes, in part. A
//! persistence point orders them: what was stored before it is durable before anything that is
//! stored after it.

use cryptline_sys::SharedMemory;

use crate::Fault;

/// Bytes that answer at once and can be made durable in order. Shared by threads.
///
/// Every range lies inside the medium and the words are aligned to their size: the table's
/// geometry was checked when it was opened.
pub trait BttMedium: Send + Sync {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// Copies out `target.len()` bytes from `offset`.
    fn read(&self, offset: u64, target: &mut [u8]) -> Result<(), Fault>;

    /// The little-endian word at `offset`, in one piece, before all later reads.
    fn load32(&self, offset: u64) -> Result<u32, Fault>;

    /// Copies in `source` at `offset`.
    fn store(&self, offset: u64, source: &[u8]) -> Result<(), Fault>;

    /// Stores a little-endian word at `offset` in one piece, after all earlier stores.
    fn store32(&self, offset: u64, word: u32) -> Result<(), Fault>;

    /// As [`store32`](Self::store32), eight bytes.
    fn store64(&self, offset: u64, word: u64) -> Result<(), Fault>;

    /// The persistence point for everything this thread has stored.
    fn persist(&self) -> Result<(), Fault>;

    /// Makes a range read as zeros, durably; by giving its space back where that works.
    fn clear(&self, offset: u64, len: u64) -> Result<(), Fault>;

    /// Checks that the medium still is what it was when it was opened, and has lost nothing that was stored. Once it is
    /// not, it never is again.
    fn check(&self) -> Result<(), Fault>;
}

impl BttMedium for SharedMemory {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read(&self, offset: u64, target: &mut [u8]) -> Result<(), Fault> {
        SharedMemory::read(self, position(offset), target);
        Ok(())
    }

    fn load32(&self, offset: u64) -> Result<u32, Fault> {
        Ok(u32::from_le(SharedMemory::load32(self, position(offset))))
    }

    fn store(&self, offset: u64, source: &[u8]) -> Result<(), Fault> {
        SharedMemory::write(self, position(offset), source);
        Ok(())
    }

    fn store32(&self, offset: u64, word: u32) -> Result<(), Fault> {
        SharedMemory::store32(self, position(offset), word.to_le());
        Ok(())
    }

    fn store64(&self, offset: u64, word: u64) -> Result<(), Fault> {
        SharedMemory::store64(self, position(offset), word.to_le());
        Ok(())
    }

    fn persist(&self) -> Result<(), Fault> {
        Ok(())
    }

    fn clear(&self, offset: u64, len: u64) -> Result<(), Fault> {
        SharedMemory::clear(self, position(offset), position(len));
        Ok(())
    }

    fn check(&self) -> Result<(), Fault> {
        Ok(())
    }
}

/// The table's geometry lies inside the medium, so it fits.
fn position(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a range inside memory fits in usize")
}
