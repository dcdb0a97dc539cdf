//! Every unsafe operating-system touch of cryptline, and nothing else.
//!
//! The other crates forbid `unsafe`. What they need from the kernel beyond the safe wrappers of
//! `rustix` is here, in pieces small enough to be read in one sitting:
//!
//! ```text
//! secret   key memory: locked, not dumped, wiped; bytes, values, and stacks of threads
//! buffer   I/O memory: page-aligned arenas, owned buffers that are free again when dropped
//! mapping  files and persistent memory in memory: durable stores, lost pages
//! guest    memory that another process shares: its tables, words and copies
//! shared   the memory of a RAM disk: read and written by many threads at once
//! racing   copies of bytes that others may be writing at the same moment
//! ring     one thread's I/O: io_uring, or plain system calls where io_uring is forbidden
//! ublk     block devices whose requests a ring serves
//! file     what std and rustix lack: open-file-description locks, O_DIRECT alignment, ioctls
//! counters instructions and allocations of a piece of work, for measurements
//! zone     zoned block devices: reports and commands
//! fuse     mounts of /dev/fuse, and their requests on a ring
//! confine  rights given up by all threads, and the proof
//! namespace  mounts that a process sees and nobody else does
//! inherit  sockets passed by the process that started this one
//! isolate  programs that get nothing of this process
//! rbd      images of a Ceph cluster, by Ceph's own library
//! ```
//!
//! There is no policy in this crate: it does not know what a disk or a request is.

use std::sync::{Mutex, MutexGuard, PoisonError};

mod buffer;
mod confine;
mod counters;
mod file;
mod fuse;
mod guest;
mod inherit;
mod isolate;
mod loops;
mod mapping;
mod namespace;
mod peer;
mod racing;
#[cfg(feature = "rbd")]
mod rbd;
mod ring;
mod secret;
mod shared;
mod turns;
mod ublk;
mod zone;

pub use buffer::{Arena, Buffer};
pub use confine::{
    Attempt, Landlock, Restriction, attempts, confined_threads_have_capabilities, landlock_version, on_confined_thread,
};
pub use counters::Counter;
pub use file::{
    DirectAlignment, block_device_size, cached_bytes, direct_alignment, discard_blocks, is_locked, is_read_only_device,
    lock_file, sync_all, sync_data, write_cached,
};
pub use fuse::{
    FUSE_ASK, FUSE_ASK_LEN, FuseEntry, FuseMount, FuseQueues, Mounted, Unmount, ask_fuse, clone_fuse, find_fuse_mount,
    unmount, unmount_by_helper,
};
pub use guest::{DirtyLog, GuestFault, GuestMemory, GuestRange, GuestRegion};
pub use inherit::{duplicate_fd, keep_descriptors, take_listen_fds, take_passed_fd};
pub use isolate::isolate;
pub use loops::{LoopRange, loop_backing_file, refuse_other_users};
pub use mapping::{Lost, Mapping};
pub use namespace::{forget_mounts_of_disks, leave_mount_namespace};
pub use peer::{PeerProcess, peer_of};
#[cfg(feature = "rbd")]
pub use rbd::{
    Cluster, RbdCall, RbdChanges, RbdDone, RbdError, RbdImage, RbdIo, RbdLimits, RbdOwnSetting, RbdOwner, RbdPresence,
    RbdQueue, RbdWatch, exit_without_destructors, visit_ceph,
};
/// Does nothing: no library is loaded.
#[cfg(not(feature = "rbd"))]
pub fn exit_without_destructors() {}
pub use ring::{
    Allocate, Backend, BackendChoice, FileId, HandedOver, Io, Mark, NextEvent, ReceiveBatch, RequestSource, Ring,
    RingDone, RoamingRing, SendBatch, SimulatedKernel, Simulation, Stopwatch, Waker,
};
pub use secret::{
    GUARDED_STACK, NotStarted, SecretBox, SecretBuf, SecretThread, StackGuard, key_memory_is_locked, on_secret_stack,
    on_secret_thread,
};
pub use shared::SharedMemory;
pub use turns::InTurn;
pub use ublk::{UblkControl, UblkDevice, UblkPayload, UblkQueue};
pub use zone::{RawZone, ZoneCommand, report_zones, zone_command, zone_size};

/// Tells if all bytes are zero. Ciphertext shows in its first words that it is not.
#[must_use]
pub fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}

/// The guard of `mutex`, whatever became of its last owner. For state that is whole between any two
/// statements, so that a panic elsewhere leaves nothing half done.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The size of a memory page in bytes.
#[must_use]
pub fn page_size() -> usize {
    // Not `rustix`'s: it looks through the program's ELF headers, which valgrind has moved.
    // SAFETY: takes no memory and changes nothing.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

#[cfg(test)]
mod few_threads;

/// Says that the running test does not apply to this machine, and why.
#[cfg(test)]
fn skip(why: &str) {
    use std::io::Write as _;
    let thread = std::thread::current();
    // Not `eprintln!`, which the test harness hides when the test passes.
    _ = writeln!(std::io::stderr(), "SKIP {}: {why}", thread.name().unwrap_or("?"));
}
