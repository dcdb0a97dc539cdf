//! The exact cost of a piece of work on this thread, counted by the kernel's performance events
//! (perf_event_open(2)): instructions, and calls of the allocator.
//!
//! ```text
//! instructions   the processor's own counter; few virtual machines have one
//! allocations    a hardware breakpoint on each function that hands out memory: every call traps,
//!                so it is for counting, not for timing
//! ```
//!
//! With breakpoints the program keeps its allocator: a counting one would be part of every run, to be
//! used in one.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libc::{c_int, c_long, c_ulong};

/// `PERF_TYPE_HARDWARE`, `PERF_TYPE_BREAKPOINT`: linux/perf_event.h.
const TYPE_HARDWARE: u32 = 0;
const TYPE_BREAKPOINT: u32 = 5;
/// `PERF_COUNT_HW_INSTRUCTIONS`.
const INSTRUCTIONS: u64 = 1;
/// `HW_BREAKPOINT_X`: linux/hw_breakpoint.h.
const EXECUTE: u32 = 4;
/// Bits of the flags: `pinned` (counts always or fails), `exclude_kernel`, `exclude_hv`.
const FLAGS: u64 = 1 << 2 | 1 << 5 | 1 << 6;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: c_ulong = 8;

/// `struct perf_event_attr` as of its second version (`PERF_ATTR_SIZE_VER1`), which has breakpoints.
#[repr(C)]
#[derive(Default)]
struct CounterAttributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_kind: u32,
    breakpoint_address: u64,
    breakpoint_len: u64,
}

/// Counts for the thread that made it, outside the kernel, from then on. Any thread may read it.
pub struct Counter(Vec<OwnedFd>);

impl Counter {
    /// Instructions.
    ///
    /// # Errors
    /// Where the processor has no such counter, or the system does not let this program use it.
    pub fn instructions() -> io::Result<Self> {
        let event =
            open(&CounterAttributes { kind: TYPE_HARDWARE, config: INSTRUCTIONS, ..CounterAttributes::default() })?;
        Ok(Self(vec![event]))
    }

    /// Calls of `malloc`, `calloc`, `realloc` and `posix_memalign`: all that the standard library's
    /// default allocator takes memory by.
    ///
    /// # Errors
    /// Where the processor has no four breakpoints to spare, or the system does not let this program
    /// use them.
    pub fn allocations() -> io::Result<Self> {
        let functions: [*const (); 4] = [
            libc::malloc as *const (),
            libc::calloc as *const (),
            libc::realloc as *const (),
            libc::posix_memalign as *const (),
        ];
        let events = functions.map(|function| {
            open(&CounterAttributes {
                kind: TYPE_BREAKPOINT,
                breakpoint_kind: EXECUTE,
                breakpoint_address: function.addr() as u64,
                breakpoint_len: size_of::<c_long>() as u64,
                ..CounterAttributes::default()
            })
        });
        Ok(Self(events.into_iter().collect::<io::Result<_>>()?))
    }

    /// The count so far.
    ///
    /// # Errors
    /// Where something else took the processor's counter away.
    pub fn read(&self) -> io::Result<u64> {
        let mut sum = 0;
        for event in &self.0 {
            let mut count = [0; 8];
            let len = rustix::io::read(event, &mut count)?;
            // A pinned event that lost its counter reads as the end of a file.
            if len != count.len() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            sum += u64::from_ne_bytes(count);
        }
        Ok(sum)
    }
}

impl std::fmt::Debug for Counter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(AsRawFd::as_raw_fd)).finish()
    }
}

/// An event of this thread, on whichever processor it runs.
fn open(attributes: &CounterAttributes) -> io::Result<OwnedFd> {
    let size = u32::try_from(size_of::<CounterAttributes>()).map_err(io::Error::other)?;
    let attributes = CounterAttributes { size, flags: FLAGS, ..*attributes };
    let (this_thread, any_processor, no_group): (c_int, c_int, c_int) = (0, -1, -1);
    // SAFETY: the structure is live, laid out as the kernel's and says its own size, so the kernel
    // reads no byte beyond it. The call changes no memory of this process.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            this_thread,
            any_processor,
            no_group,
            CLOSE_ON_EXEC,
        )
    };
    match c_int::try_from(fd) {
        // SAFETY: a new file descriptor that nobody else has.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;
    use crate::skip;

    #[test]
    fn every_allocation_of_this_thread_is_counted_and_none_of_another() {
        // Containers forbid it; what it counts with then says that it is not available.
        let Ok(counter) = Counter::allocations() else {
            return skip("perf counts no calls here");
        };
        let count = |work: &dyn Fn()| {
            let before = counter.read().unwrap();
            work();
            counter.read().unwrap() - before
        };
        assert_eq!(count(&|| _ = black_box(1)), 0);
        assert_eq!(count(&|| _ = black_box(Box::new(1))), 1);
        assert_eq!(count(&|| _ = black_box(vec![0u8; 100])), 1);
        #[repr(align(4096))]
        struct Page(#[allow(dead_code, reason = "only its place matters")] u8);
        assert_eq!(count(&|| _ = black_box(Box::new(Page(1)))), 1);
        let mut grown = black_box(Vec::<u64>::with_capacity(1));
        let before = counter.read().unwrap();
        grown.reserve_exact(black_box(1000));
        assert_eq!(counter.read().unwrap() - before, 1);
        drop(black_box(grown));
        let start = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                drop(black_box(vec![1u8; 100]));
                start.wait();
            });
            let before = counter.read().unwrap();
            start.wait();
            start.wait();
            assert_eq!(counter.read().unwrap() - before, 0);
        });
    }

    #[test]
    fn more_work_is_more_instructions() {
        let Ok(counter) = Counter::instructions() else {
            return skip("perf counts no instructions here");
        };
        let count = |times: u32| {
            let before = counter.read().unwrap();
            (0..times).for_each(|time| _ = black_box(time));
            counter.read().unwrap() - before
        };
        assert!(count(100_000) > count(100));
        assert!(count(100_000) >= 100_000);
    }
}
