//! Memory of another process, a virtual machine's for instance: its owner reads, changes and cuts it short
//! whenever it likes.
//!
//! ```text
//! GuestMemory   a table: guest address ─► region ─► mapping, and user address ─► the same
//! GuestRange    a piece of one mapping, for structures that are looked at again and again
//! DirtyLog      which pages were written, where the owner wants to know
//! ```
//!
//! There is never a reference into it: bytes are copied as [`racing`](crate::racing) does, words are atomics.
//! Addresses come from the owner, so each access is checked, and fails instead of panicking. A page that is gone
//! is replaced by zeros and reported, as in [`Mapping`](crate::Mapping).

mod dirty;
mod mapped;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

pub use dirty::DirtyLog;
use mapped::Mapped;

/// Why memory of another process could not be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestFault {
    /// The range leaves the memory that was shared.
    Outside,
    /// A word does not lie at a multiple of its size.
    Misaligned,
    /// A page is gone: its file was cut short.
    Lost,
}

impl fmt::Display for GuestFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Outside => "an address outside the shared memory",
            Self::Misaligned => "a misaligned address",
            Self::Lost => "shared memory was cut short",
        })
    }
}

impl std::error::Error for GuestFault {}

/// Where a region of memory lies, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestRegion {
    /// First address, as the guest has it.
    pub guest: u64,
    /// First address, as the process has it that runs the guest.
    pub user: u64,
    /// Length.
    pub len: u64,
    /// First byte in the file.
    pub offset: u64,
}

impl GuestRegion {
    /// Tells if it has bytes, all of which have addresses.
    fn is_possible(&self) -> bool {
        let ends = [self.guest, self.user, self.offset].map(|first| first.checked_add(self.len));
        self.len > 0 && ends.iter().all(Option::is_some)
    }

    fn overlaps(&self, other: &Self) -> bool {
        let apart = |ours: u64, theirs: u64| ours >= theirs + other.len || theirs >= ours + self.len;
        !apart(self.guest, other.guest) || !apart(self.user, other.user)
    }
}

#[derive(Clone)]
struct Region {
    place: GuestRegion,
    memory: Arc<Mapped>,
}

/// All memory that one guest shares. A table is not changed while it is in use: a new one is made from it, which
/// shares the mappings of what has stayed.
#[derive(Clone, Default)]
pub struct GuestMemory {
    regions: Vec<Region>,
    log: Option<Arc<DirtyLog>>,
}

impl GuestMemory {
    /// Maps one more region.
    ///
    /// Errors: `InvalidInput` where it is empty, has no addresses or overlaps another; what mmap says.
    pub fn add(&mut self, place: GuestRegion, file: &OwnedFd) -> io::Result<()> {
        let overlaps = |region: &Region| region.place.overlaps(&place);
        if !place.is_possible() || self.regions.iter().any(overlaps) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let memory = Arc::new(Mapped::new(file, place.offset, place.len)?);
        self.regions.push(Region { place, memory });
        Ok(())
    }

    /// Forgets the region at these addresses; whether there was one.
    pub fn remove(&mut self, place: &GuestRegion) -> bool {
        let key = |it: &GuestRegion| (it.guest, it.user, it.len);
        let before = self.regions.len();
        self.regions.retain(|region| key(&region.place) != key(place));
        self.regions.len() < before
    }

    /// Notes in this log what is written from now on, also by ranges that are taken from here.
    pub fn set_log(&mut self, log: Option<Arc<DirtyLog>>) {
        self.log = log;
    }

    /// How many regions there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.regions.len()
    }

    /// Tells if nothing is shared.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// Copies out `target.len()` bytes from a guest address, which may lie in adjacent regions.
    pub fn read(&self, address: u64, target: &mut [u8]) -> Result<(), GuestFault> {
        let (mut address, mut left) = (address, target);
        while !left.is_empty() {
            let (memory, offset, here) = self.find(address, left.len())?;
            let (now, later) = left.split_at_mut(here);
            memory.read(offset, now)?;
            left = later;
            address = address.wrapping_add(here as u64);
        }
        Ok(())
    }

    /// Copies `source` in at a guest address.
    pub fn write(&self, address: u64, source: &[u8]) -> Result<(), GuestFault> {
        match &self.log {
            None => self.copy_in(address, source),
            Some(log) => log.note(address, source.len(), || self.copy_in(address, source)),
        }
    }

    fn copy_in(&self, address: u64, source: &[u8]) -> Result<(), GuestFault> {
        let (mut address, mut left) = (address, source);
        while !left.is_empty() {
            let (memory, offset, here) = self.find(address, left.len())?;
            let (now, later) = left.split_at(here);
            memory.write(offset, now)?;
            left = later;
            address = address.wrapping_add(here as u64);
        }
        Ok(())
    }

    /// Tells if it has `len` bytes from a guest address on, in one region or in adjacent ones.
    #[must_use]
    pub fn has(&self, address: u64, len: u32) -> bool {
        let (mut address, mut left) = (address, len as usize);
        while left > 0 {
            let Ok((_, _, here)) = self.find(address, left) else { return false };
            left -= here;
            address = address.wrapping_add(here as u64);
        }
        true
    }

    /// The memory at a guest address, the place there, and how many of `len` bytes are in it.
    #[inline]
    fn find(&self, address: u64, len: usize) -> Result<(&Mapped, usize, usize), GuestFault> {
        for Region { place, memory } in &self.regions {
            // Where the address lies below, this is larger than any length.
            let offset = address.wrapping_sub(place.guest);
            if offset < place.len {
                // The region is mapped, so its length is a usize.
                let offset = usize::try_from(offset).map_err(|_| GuestFault::Outside)?;
                return Ok((memory, offset, len.min(memory.len() - offset)));
            }
        }
        Err(GuestFault::Outside)
    }

    /// `len` bytes from a user address on, in one region.
    pub fn user_range(&self, user: u64, len: usize) -> Result<GuestRange, GuestFault> {
        for Region { place, memory } in &self.regions {
            let offset = user.wrapping_sub(place.user);
            if offset < place.len {
                let start = usize::try_from(offset).map_err(|_| GuestFault::Outside)?;
                let mut range = GuestRange::new(Arc::clone(memory), start, len)?;
                range.log.clone_from(&self.log);
                // The region ends where addresses end, or before.
                range.guest = place.guest.wrapping_add(offset);
                return Ok(range);
            }
        }
        Err(GuestFault::Outside)
    }
}

/// Bytes that lie together in memory of another process. All offsets are relative to its start.
#[derive(Clone)]
pub struct GuestRange {
    memory: Arc<Mapped>,
    start: usize,
    len: usize,
    log: Option<Arc<DirtyLog>>,
    /// The first guest address, for the log.
    guest: u64,
}

impl GuestRange {
    /// Maps `len` bytes of a file that another process shares.
    ///
    /// Errors: `InvalidInput` for no bytes; what mmap says.
    pub fn map(file: &OwnedFd, offset: u64, len: usize) -> io::Result<Self> {
        let memory = Arc::new(Mapped::new(file, offset, len as u64)?);
        Ok(Self { memory, start: 0, len, log: None, guest: 0 })
    }

    fn new(memory: Arc<Mapped>, start: usize, len: usize) -> Result<Self, GuestFault> {
        match start.checked_add(len) {
            Some(end) if end <= memory.len() => Ok(Self { memory, start, len, log: None, guest: 0 }),
            _ => Err(GuestFault::Outside),
        }
    }

    /// A part of it.
    pub fn part(&self, offset: usize, len: usize) -> Result<Self, GuestFault> {
        let start = self.place(offset, len)?;
        let mut part = Self::new(Arc::clone(&self.memory), start, len)?;
        part.log.clone_from(&self.log);
        part.guest = self.guest.wrapping_add(offset as u64);
        Ok(part)
    }

    /// Where `len` bytes at `offset` lie in the mapping.
    #[inline]
    fn place(&self, offset: usize, len: usize) -> Result<usize, GuestFault> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(self.start + offset),
            _ => Err(GuestFault::Outside),
        }
    }

    /// Writes `len` bytes at `offset` by `write`, which is told their place in the mapping.
    #[inline]
    fn change(
        &self,
        offset: usize,
        len: usize,
        write: impl FnOnce(&Mapped, usize) -> Result<(), GuestFault>,
    ) -> Result<(), GuestFault> {
        let place = self.place(offset, len)?;
        match &self.log {
            None => write(&self.memory, place),
            Some(log) => {
                let address = self.guest.wrapping_add(offset as u64);
                log.note(address, len, || write(&self.memory, place))
            }
        }
    }

    /// Copies out `target.len()` bytes.
    pub fn read(&self, offset: usize, target: &mut [u8]) -> Result<(), GuestFault> {
        self.memory.read(self.place(offset, target.len())?, target)
    }

    /// Copies `source` in.
    pub fn write(&self, offset: usize, source: &[u8]) -> Result<(), GuestFault> {
        self.change(offset, source.len(), |memory, place| memory.write(place, source))
    }

    /// The word at `offset`, in one piece, before all later reads.
    pub fn load16(&self, offset: usize) -> Result<u16, GuestFault> {
        self.memory.load16(self.place(offset, size_of::<u16>())?)
    }

    /// Stores a word in one piece, after all earlier stores.
    pub fn store16(&self, offset: usize, value: u16) -> Result<(), GuestFault> {
        self.change(offset, size_of::<u16>(), |memory, place| memory.store16(place, value))
    }

    /// As [`load16`](Self::load16), eight bytes.
    pub fn load64(&self, offset: usize) -> Result<u64, GuestFault> {
        self.memory.load64(self.place(offset, size_of::<u64>())?)
    }

    /// As [`store16`](Self::store16), eight bytes.
    pub fn store64(&self, offset: usize, value: u64) -> Result<(), GuestFault> {
        self.change(offset, size_of::<u64>(), |memory, place| memory.store64(place, value))
    }

    /// Sets bits of a byte in one piece, after all earlier stores and before all later ones.
    pub fn set_bits(&self, offset: usize, bits: u8) -> Result<(), GuestFault> {
        self.change(offset, 1, |memory, place| memory.set_bits(place, bits))
    }

    /// Clears a byte in one piece; what it was.
    pub fn take_bits(&self, offset: usize) -> Result<u8, GuestFault> {
        let mut before = 0;
        self.change(offset, 1, |memory, place| {
            before = memory.take_bits(place)?;
            Ok(())
        })?;
        Ok(before)
    }
}

#[cfg(all(test, not(miri)))]
#[path = "../guest_tests.rs"]
mod tests;
