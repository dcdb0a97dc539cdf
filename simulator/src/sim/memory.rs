//! Mappings of memory, which the simulation keeps for the next who asks for as much: making one, its first use and its end
//! take longer than most of what a history does with it.
//!
//! ```text
//! mmap ──► the system's, or one of those that are kept ──► used ──► munmap ─┬─► cleared, kept
//!                                                                            └─► the system's: one in [`ENDS`]
//! ```
//!
//! Whoever uses memory that it has given back still dies of it, now and then.

// The functions below are unsafe since their namesakes are; what each asks of its caller is in its manual page.
#![allow(clippy::missing_safety_doc)]

use std::cell::RefCell;
use std::ffi::{c_int, c_uint, c_void};

use libc::{off_t, size_t};

use super::os::real;
use super::sockets::is_active;

/// Bytes of a page. Where the system's are larger nothing is kept.
const PAGE: usize = 4096;
/// Pages of a mapping that are cleared here, and pages that are looked at for that; of those with more the system takes the
/// memory back.
const MOST: usize = 48;
const LOOKED_AT: usize = 256;
/// One mapping in so many is the system's again.
const ENDS: u32 = 16;
/// Bytes up to which a mapping is kept that sets memory aside (without `MAP_NORESERVE`). Larger ones are stacks, with fences.
const RESERVED: usize = 64 << 10;

/// Mappings that are in use, or wait for that: address and bytes.
#[derive(Default)]
struct Mappings {
    used: Vec<(usize, usize)>,
    kept: Vec<(usize, usize)>,
    ended: u32,
}

struct Global(RefCell<Mappings>);

// SAFETY: it is used once a simulation has begun; from then on one thread of the system runs.
unsafe impl Sync for Global {}

static KEPT: Global = Global(RefCell::new(Mappings { used: Vec::new(), kept: Vec::new(), ended: 0 }));

/// A history begins: which of its mappings are the system's again is its seed's business.
pub fn begin(seed: u64) {
    KEPT.0.borrow_mut().ended = super::scheduler::mix(&[seed, 5]) as u32 % ENDS;
}

/// Tells if a mapping is memory that nobody else has, in a way that the next can have it.
fn can_be_kept(address: *mut c_void, len: usize, protection: c_int, flags: c_int) -> bool {
    let is_large = flags & libc::MAP_NORESERVE == 0 && len > RESERVED;
    address.is_null()
        && is_active()
        && !is_large
        && protection == libc::PROT_READ | libc::PROT_WRITE
        && flags & !libc::MAP_NORESERVE == libc::MAP_PRIVATE | libc::MAP_ANONYMOUS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    let map = || {
        real!(mmap64(address, len, protection, flags, fd, offset)
            as fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void)
    };
    if !can_be_kept(address, len, protection, flags) {
        return map();
    }
    let mappings = &mut *KEPT.0.borrow_mut();
    let place = mappings.kept.iter().rposition(|kept| kept.1 == len);
    let mapped = place.map_or_else(map, |place| std::ptr::with_exposed_provenance_mut(mappings.kept.remove(place).0));
    if mapped != libc::MAP_FAILED {
        mappings.used.push((mapped.expose_provenance(), len));
    }
    mapped
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the same function on 64 bits.
    unsafe { mmap64(address, len, protection, flags, fd, offset) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(address: *mut c_void, len: size_t) -> c_int {
    let whole = (address.addr(), len);
    if is_active() {
        let mappings = &mut *KEPT.0.borrow_mut();
        if let Some(place) = mappings.used.iter().rposition(|used| *used == whole) {
            mappings.used.swap_remove(place);
            // SAFETY: a mapping of this length, of which munmap(2) says that nobody uses it any more.
            if unsafe { mappings.clear(address, len) } {
                mappings.kept.push(whole);
                return 0;
            }
        }
    }
    real!(munmap(address, len) as fn(*mut c_void, size_t) -> c_int)
}

impl Mappings {
    /// Makes all of a mapping zeros, as a new one is. `false` where it is to be the system's.
    ///
    /// # Safety
    /// The mapping is private memory, mapped for reading and writing, which nobody uses.
    unsafe fn clear(&mut self, start: *mut c_void, len: usize) -> bool {
        self.ended += 1;
        if self.ended.is_multiple_of(ENDS) {
            return false;
        }
        let pages = len.div_ceil(PAGE);
        // SAFETY: mapped, as the caller says.
        let give_back = || unsafe { libc::madvise(start, len, libc::MADV_DONTNEED) } == 0;
        if pages > LOOKED_AT {
            return give_back();
        }
        let mut there = [0; LOOKED_AT];
        // SAFETY: mapped, as the caller says; there is a byte for each page. It was used a moment ago, so pages that
        // are not in memory were never touched.
        let is_known = unsafe { libc::mincore(start, len, there.as_mut_ptr()) } == 0;
        let is_there = |number: &usize| there[*number] & 1 == 1;
        if !is_known || (0..pages).filter(is_there).count() > MOST {
            return give_back();
        }
        for number in (0..pages).filter(is_there) {
            // SAFETY: a page of the mapping, as the caller says.
            unsafe { start.cast::<u8>().add(number * PAGE).write_bytes(0, PAGE.min(len - number * PAGE)) };
        }
        true
    }
}

// ---- how the system treats memory ----

/// Nothing is locked: it takes longer than all that a history does with a key.
#[unsafe(no_mangle)]
pub extern "C" fn mlock(_: *const c_void, _: size_t) -> c_int {
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn mlock2(_: *const c_void, _: size_t, _: c_uint) -> c_int {
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn munlock(_: *const c_void, _: size_t) -> c_int {
    0
}

/// Nothing is left out of dumps, either, of which there are none.
fn is_ignored(advice: c_int) -> bool {
    advice == libc::MADV_DONTDUMP && is_active()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(start: *mut c_void, len: size_t, advice: c_int) -> c_int {
    if is_ignored(advice) {
        return 0;
    }
    real!(madvise(start, len, advice) as fn(*mut c_void, size_t, c_int) -> c_int)
}

/// Advice that POSIX does not know comes by this name, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_madvise(start: *mut c_void, len: size_t, advice: c_int) -> c_int {
    if is_ignored(advice) {
        return 0;
    }
    real!(posix_madvise(start, len, advice) as fn(*mut c_void, size_t, c_int) -> c_int)
}
