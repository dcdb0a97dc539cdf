//! Copies of bytes that others may be writing or reading at the same moment.
//!
//! In Rust, a plain copy that races with a write of another thread is undefined behaviour, whatever
//! the processor does. These copies are the C library's, called from assembly: all that the compiler
//! knows is that memory changes, and on the processor each byte comes out old or new.
//! They are as fast as `memcpy`, since they are `memcpy` (`ratios_to_memcpy` measures it).
//!
//! Under Miri, and on processors for which nobody has written the call, each byte is an atomic.

/// Copies out of memory that is shared.
///
/// # Safety
/// `target.len()` bytes from `from` on can be read and do not overlap `target`. Whoever writes to them
/// meanwhile does so by these functions, by an atomic, or from outside of this process.
#[inline]
pub unsafe fn copy_out(from: *const u8, target: &mut [u8]) {
    // SAFETY: the caller's promise; the target is borrowed exclusively.
    unsafe { way::copy_out(from, target) }
}

/// Copies into memory that is shared.
///
/// # Safety
/// `source.len()` bytes from `to` on can be written and do not overlap `source`. Whoever accesses them
/// meanwhile does so as [`copy_out`] says.
#[inline]
pub unsafe fn copy_in(source: &[u8], to: *mut u8) {
    // SAFETY: the caller's promise; the source is borrowed.
    unsafe { way::copy_in(source, to) }
}

/// Sets `len` bytes to zero.
///
/// # Safety
/// As [`copy_in`]'s.
#[inline]
pub unsafe fn zero(to: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { way::zero(to, len) }
}

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
mod way {
    use super::call::copy;
    pub use super::call::zero;

    pub unsafe fn copy_out(from: *const u8, target: &mut [u8]) {
        // SAFETY: the caller's promise.
        unsafe { copy(from, target.as_mut_ptr(), target.len()) }
    }

    pub unsafe fn copy_in(source: &[u8], to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { copy(source.as_ptr(), to, source.len()) }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod call {
    use std::arch::asm;

    pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: a call of a C function by the C convention: arguments in rdi, rsi and rdx, the
        // registers it may change are given up, the stack is aligned and has no red zone in use
        // (`nostack` is absent), the direction flag is clear. It reads and writes the ranges only.
        unsafe {
            asm!(
                "call {function}",
                function = in(reg) libc::memcpy as *const (),
                inout("rdi") to => _,
                inout("rsi") from => _,
                inout("rdx") len => _,
                clobber_abi("C"),
            );
        }
    }

    pub unsafe fn zero(to: *mut u8, len: usize) {
        // SAFETY: as in `copy`; the byte is in esi.
        unsafe {
            asm!(
                "call {function}",
                function = in(reg) libc::memset as *const (),
                inout("rdi") to => _,
                inout("esi") 0 => _,
                inout("rdx") len => _,
                clobber_abi("C"),
            );
        }
    }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
mod call {
    use std::arch::asm;

    pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: a call of a C function by the C convention: arguments in x0, x1 and x2, the
        // registers it may change, the link register among them, are given up, the stack is
        // aligned (`nostack` is absent). It reads and writes the ranges only.
        unsafe {
            asm!(
                "blr {function}",
                function = in(reg) libc::memcpy as *const (),
                inout("x0") to => _,
                inout("x1") from => _,
                inout("x2") len => _,
                clobber_abi("C"),
            );
        }
    }

    pub unsafe fn zero(to: *mut u8, len: usize) {
        // SAFETY: as in `copy`; the byte is in w1.
        unsafe {
            asm!(
                "blr {function}",
                function = in(reg) libc::memset as *const (),
                inout("x0") to => _,
                inout("w1") 0 => _,
                inout("x2") len => _,
                clobber_abi("C"),
            );
        }
    }
}

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod way {
    use std::sync::atomic::{AtomicU8, Ordering};

    pub unsafe fn copy_out(from: *const u8, target: &mut [u8]) {
        for (at, byte) in target.iter_mut().enumerate() {
            // SAFETY: inside the range, by the caller's promise, and a byte is always aligned.
            let shared = unsafe { AtomicU8::from_ptr(from.add(at).cast_mut()) };
            *byte = shared.load(Ordering::Relaxed);
        }
    }

    pub unsafe fn copy_in(source: &[u8], to: *mut u8) {
        for (at, &byte) in source.iter().enumerate() {
            // SAFETY: as in `copy_out`.
            unsafe { AtomicU8::from_ptr(to.add(at)) }.store(byte, Ordering::Relaxed);
        }
    }

    pub unsafe fn zero(to: *mut u8, len: usize) {
        for at in 0..len {
            // SAFETY: as in `copy_out`.
            unsafe { AtomicU8::from_ptr(to.add(at)) }.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn racing_copy_moves_all_bytes_and_no_others() {
        let longest = if cfg!(miri) { 40 } else { 1100 };
        let source: Vec<u8> = (1..=251).cycle().take(longest + 16).collect();
        for len in (0..longest).step_by(if cfg!(miri) { 13 } else { 1 }) {
            for (from, to) in [(0, 0), (1, 0), (0, 3), (7, 9)] {
                let mut target = vec![0; longest + 16];
                // SAFETY: both ranges lie in vectors of ours, of which nobody else knows.
                unsafe { copy_in(&source[from..from + len], target.as_mut_ptr().add(to)) };
                assert_eq!(target[to..to + len], source[from..from + len]);
                assert!(target[..to].iter().all(|&byte| byte == 0));
                assert!(target[to + len..].iter().all(|&byte| byte == 0));
                let mut back = vec![0; len];
                // SAFETY: as above.
                unsafe { copy_out(target.as_ptr().add(to), &mut back) };
                assert_eq!(back, source[from..from + len]);
                let mut target = source.clone();
                // SAFETY: as above.
                unsafe { zero(target.as_mut_ptr().add(to), len) };
                assert!(target[to..to + len].iter().all(|&byte| byte == 0));
                assert_eq!(target[..to], source[..to]);
                assert_eq!(target[to + len..], source[to + len..]);
            }
        }
    }

    /// Each byte comes out old or new. Under Miri also: no data race.
    #[test]
    fn racing_copies_of_the_same_bytes_mix_them_and_no_more() {
        struct Place(*mut u8);
        // SAFETY: the test accesses what it points to by these functions only, while it lives.
        unsafe impl Sync for Place {}
        let (len, rounds) = if cfg!(miri) { (48, 5) } else { (4096, 5000) };
        let mut shared = vec![0u8; len];
        let place = &Place(shared.as_mut_ptr());
        std::thread::scope(|scope| {
            for byte in [1, 2] {
                scope.spawn(move || {
                    let (place, source) = (place, vec![byte; len]);
                    for _ in 0..rounds {
                        // SAFETY: the vector outlives the scope and is not touched otherwise.
                        unsafe { copy_in(&source, place.0) };
                    }
                });
            }
            let mut seen = vec![9; len];
            for _ in 0..rounds {
                // SAFETY: as above.
                unsafe { copy_out(place.0, &mut seen) };
                assert!(seen.iter().all(|&byte| byte <= 2));
            }
        });
        assert!(shared.iter().all(|&byte| byte == 1 || byte == 2));
    }

    /// Not a check: prints how long these copies take beside `memcpy` and `rep movsb`.
    #[test]
    #[ignore = "a measurement"]
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn ratios_to_memcpy() {
        use std::time::Instant;
        type Way = unsafe fn(*const u8, *mut u8, usize);
        unsafe fn plain(from: *const u8, to: *mut u8, len: usize) {
            // SAFETY: the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(from, to, std::hint::black_box(len)) }
        }
        unsafe fn string(from: *const u8, to: *mut u8, len: usize) {
            // SAFETY: the caller's promise; the direction flag is clear.
            unsafe {
                std::arch::asm!("rep movsb", inout("rcx") len => _, inout("rsi") from => _,
                    inout("rdi") to => _, options(nostack, preserves_flags));
            }
        }
        // In a cache, and in memory: a disk of 64 MiB, walked through.
        for (place, region) in [("cache", 512 << 10), ("memory", 64 << 20)] {
            let (mut disk, mut data) = (vec![1u8; region], vec![2u8; 256 << 10]);
            for len in [512, 4096, 64 << 10, 256 << 10] {
                let ways: [Way; 3] = [plain, call::copy, string];
                let mut best = [[u128::MAX; 3]; 2];
                // In turns, so that each comes after each.
                for turn in 0..45 {
                    let which = (turn + turn / 3) % 3;
                    for (into, best) in best.iter_mut().enumerate() {
                        let start = Instant::now();
                        for _ in 0..((8 << 20) / region).max(1) {
                            for at in (0..region).step_by(len) {
                                let (disk, data) = (&mut disk[at..at + len], &mut data[..len]);
                                // SAFETY: both have `len` bytes.
                                unsafe {
                                    match into {
                                        0 => ways[which](disk.as_ptr(), data.as_mut_ptr(), len),
                                        _ => ways[which](data.as_ptr(), disk.as_mut_ptr(), len),
                                    }
                                }
                            }
                        }
                        best[which] = best[which].min(start.elapsed().as_nanos());
                    }
                }
                for (verb, [plain, ours, string]) in ["read", "write"].iter().zip(best) {
                    let ratio = |time: u128| time as f64 / plain as f64;
                    println!("{place} {verb} {len}: memcpy 1, ours {:.3}, rep movsb {:.3}", ratio(ours), ratio(string));
                }
            }
        }
    }
}
