//! One file of another process in memory.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

use super::GuestFault;
use crate::mapping::sigbus::MappingGuard;
use crate::racing;

/// No file system has larger pages.
const PAGE_MAX: u64 = 1 << 30;

/// `len` bytes of a file, readable and writable, for as long as the value lives.
pub(super) struct Mapped {
    /// The first byte that belongs to it.
    start: NonNull<u8>,
    len: usize,
    /// The mapping, which begins and ends with whole pages.
    whole: NonNull<u8>,
    whole_len: usize,
    guard: MappingGuard,
}

// SAFETY: the mapping lives as long as the value; all access is by bounded racing copies and atomic words.
unsafe impl Send for Mapped {}
// SAFETY: as above. Concurrent copies of the same bytes may mix them, which the contract allows.
unsafe impl Sync for Mapped {}

impl Mapped {
    pub fn new(file: &OwnedFd, offset: u64, len: u64) -> io::Result<Self> {
        let page = page_of(file)?;
        let first = offset - offset % page;
        let end = offset.checked_add(len).and_then(|end| end.checked_next_multiple_of(page));
        let (Some(end), true) = (end, len > 0) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let too_large = |_| io::ErrorKind::OutOfMemory;
        let whole_len = usize::try_from(end - first).map_err(too_large)?;
        let ahead = usize::try_from(offset - first).map_err(too_large)?;
        let pages = usize::try_from(page).map_err(too_large)?;
        let mapped_len = usize::try_from(len).map_err(too_large)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice: it aliases nothing in this process. Others may
        // change its bytes, so no reference is ever made to them.
        let address =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), whole_len, protection, MapFlags::SHARED, file, first) }?;
        let whole = NonNull::new(address.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let guard = MappingGuard::new(whole.as_ptr() as usize, whole_len, pages).inspect_err(|_| {
            // SAFETY: the mapping made above, which nobody else knows yet.
            let _ = unsafe { rustix::mm::munmap(address, whole_len) };
        })?;
        Ok(Self {
            // SAFETY: `ahead` is less than the length of the mapping, as `len` is not 0.
            start: unsafe { whole.add(ahead) },
            len: mapped_len,
            whole,
            whole_len,
            guard,
        })
    }

    pub fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub fn read(&self, offset: usize, target: &mut [u8]) -> Result<(), GuestFault> {
        self.check_whole()?;
        let from = self.at(offset, target.len())?;
        // SAFETY: the range lies in the mapping, which lives; the target is exclusively borrowed and can not overlap
        // it, since no reference into the mapping is ever given out. Others write there from outside of this
        // process, or by these functions and atomics. A lost page comes out as zeros.
        unsafe { racing::copy_out(from, target) };
        self.check_whole()
    }

    #[inline]
    pub fn write(&self, offset: usize, source: &[u8]) -> Result<(), GuestFault> {
        self.check_whole()?;
        let to = self.at(offset, source.len())?;
        // SAFETY: as in `read`; the mapping is writable.
        unsafe { racing::copy_in(source, to) };
        self.check_whole()
    }

    #[inline]
    pub fn load16(&self, offset: usize) -> Result<u16, GuestFault> {
        let word = self.word::<u16>(offset)?;
        // SAFETY: the word lies in the mapping, which lives, and is aligned. Whoever writes to it meanwhile does so
        // from outside of this process, or by an atomic or a racing copy.
        let value = unsafe { AtomicU16::from_ptr(word) }.load(Ordering::Acquire);
        self.check_whole()?;
        Ok(value)
    }

    #[inline]
    pub fn store16(&self, offset: usize, value: u16) -> Result<(), GuestFault> {
        let word = self.word::<u16>(offset)?;
        // SAFETY: as in `load16`; the mapping is writable.
        unsafe { AtomicU16::from_ptr(word) }.store(value, Ordering::Release);
        self.check_whole()
    }

    #[inline]
    pub fn load64(&self, offset: usize) -> Result<u64, GuestFault> {
        let word = self.word::<u64>(offset)?;
        // SAFETY: as in `load16`.
        let value = unsafe { AtomicU64::from_ptr(word) }.load(Ordering::Acquire);
        self.check_whole()?;
        Ok(value)
    }

    #[inline]
    pub fn store64(&self, offset: usize, value: u64) -> Result<(), GuestFault> {
        let word = self.word::<u64>(offset)?;
        // SAFETY: as in `store16`.
        unsafe { AtomicU64::from_ptr(word) }.store(value, Ordering::Release);
        self.check_whole()
    }

    /// Sets bits of a byte, in one order with everything else that this thread does.
    #[inline]
    pub fn set_bits(&self, offset: usize, bits: u8) -> Result<(), GuestFault> {
        let byte = self.word::<u8>(offset)?;
        // SAFETY: as in `store16`; a byte is always aligned.
        unsafe { AtomicU8::from_ptr(byte) }.fetch_or(bits, Ordering::SeqCst);
        self.check_whole()
    }

    /// Clears a byte, as [`set_bits`](Self::set_bits) sets its bits; what it was.
    #[inline]
    pub fn take_bits(&self, offset: usize) -> Result<u8, GuestFault> {
        let byte = self.word::<u8>(offset)?;
        // SAFETY: as in `set_bits`.
        let before = unsafe { AtomicU8::from_ptr(byte) }.swap(0, Ordering::SeqCst);
        self.check_whole()?;
        Ok(before)
    }

    #[inline]
    fn word<T>(&self, offset: usize) -> Result<*mut T, GuestFault> {
        self.check_whole()?;
        let word = self.at(offset, size_of::<T>())?.cast::<T>();
        if word.is_aligned() { Ok(word) } else { Err(GuestFault::Misaligned) }
    }

    /// The address of `len` bytes at `offset`, all of which lie in the mapping.
    #[inline]
    fn at(&self, offset: usize, len: usize) -> Result<*mut u8, GuestFault> {
        match offset.checked_add(len) {
            // SAFETY: not behind the end of the mapping.
            Some(end) if end <= self.len => Ok(unsafe { self.start.as_ptr().add(offset) }),
            _ => Err(GuestFault::Outside),
        }
    }

    /// Before each access as well as after it: each page that is touched after the loss of one would become memory of
    /// this process, and maybe a mapping of its own.
    #[inline]
    fn check_whole(&self) -> Result<(), GuestFault> {
        self.guard.check().map_err(|_| GuestFault::Lost)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // From here a fault in this range is somebody else's.
        self.guard.release();
        // SAFETY: the mapping made in `new`; `&mut self` proves that nobody copies any more.
        let _ = unsafe { rustix::mm::munmap(self.whole.as_ptr().cast(), self.whole_len) };
    }
}

/// Of which size a mapping of the file consists: mappings of huge pages begin and end at multiples of theirs.
fn page_of(file: &OwnedFd) -> io::Result<u64> {
    let block = u64::try_from(rustix::fs::fstat(file)?.st_blksize).unwrap_or(0);
    let base = crate::page_size() as u64;
    let is_huge = block.is_power_of_two() && (base..=PAGE_MAX).contains(&block);
    Ok(if is_huge { block } else { base })
}
