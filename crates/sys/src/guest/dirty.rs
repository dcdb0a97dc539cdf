//! Which pages of a guest's memory were written: a log that its owner shares, and reads when it moves the guest.
//!
//! The log belongs to the table of memory, so data, status and rings are noted behind the same call, and without a log
//! a write pays one look at a field. A page is noted after it was written, and even if its bit is set: its owner clears
//! the bit first and copies the page then. A write to a page that the log cannot record is refused. A server can be
//! killed between the two, so the next one notes where a batch was published.

use std::io;
use std::os::fd::OwnedFd;

use super::{GuestFault, GuestRange};

/// A bit of the log stands for a page of this size, whatever the page size of the machine is.
const PAGE: u64 = 4096;
const PAGES_IN_BYTE: u64 = 8;

/// A bit for each page of guest memory, from address 0 on.
///
/// Its owner clears a bit, then copies the page. So a bit is set after its page was written, and even where it is set
/// already: the write of a page and the look at its bit could change places.
pub struct DirtyLog {
    bits: GuestRange,
}

impl DirtyLog {
    /// Maps `len` bytes of a file that the owner shares.
    ///
    /// Errors: `InvalidInput` for no bytes; what mmap says.
    pub fn map(file: &OwnedFd, offset: u64, len: u64) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let bits = GuestRange::map(file, offset, len)?;
        Ok(Self { bits })
    }

    /// Writes `len` bytes at a guest address by `write`, and notes their pages. What has no place in the log is not
    /// written.
    #[inline(never)]
    pub(super) fn note(
        &self,
        address: u64,
        len: usize,
        write: impl FnOnce() -> Result<(), GuestFault>,
    ) -> Result<(), GuestFault> {
        let Some(last) = (len as u64).checked_sub(1) else {
            return write();
        };
        let last = address.checked_add(last).ok_or(GuestFault::Outside)?;
        let (first, last) = (address / PAGE, last / PAGE);
        if last / PAGES_IN_BYTE >= self.bits.len as u64 {
            return Err(GuestFault::Outside);
        }
        // What has failed may have written some of the bytes.
        let written = write();
        self.mark(first, last)?;
        written
    }

    fn mark(&self, first: u64, last: u64) -> Result<(), GuestFault> {
        for byte in first / PAGES_IN_BYTE..=last / PAGES_IN_BYTE {
            let pages = byte * PAGES_IN_BYTE;
            let low = first.saturating_sub(pages);
            let high = (last - pages).min(PAGES_IN_BYTE - 1);
            let mask = u8::MAX << low & u8::MAX >> (PAGES_IN_BYTE - 1 - high);
            let byte = usize::try_from(byte).map_err(|_| GuestFault::Outside)?;
            self.bits.set_bits(byte, mask)?;
        }
        Ok(())
    }
}

#[cfg(all(test, not(miri)))]
#[path = "dirty_tests.rs"]
mod tests;
