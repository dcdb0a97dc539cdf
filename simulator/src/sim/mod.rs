//! One process in which one thread runs at a time, chosen by a seed, under a clock that stands still unless it is asked or
//! everybody waits.
//!
//! ```text
//!  code under test ── std, rustix, libc ──► `calls`, `descriptors`: the C library's names, taken by this program
//!                                              │ would it wait?          └──► `sockets`: what is under way in them
//!                                              ▼
//!                     `scheduler`: who runs next, what time it is ──► `os`: the real system, which never waits
//!                                              │
//!                                              ▼
//!                     `context`: the stacks and thread-locals of who ran, and of who runs now
//! ```
//!
//! Threads are the system's, so thread-locals, stacks and panics are what they are in the program; but only one has its
//! turn, and all of them take theirs on the same thread of the kernel. Sockets and eventfds are the system's, too, but
//! nothing passes through them there: a call that would wait gives the turn away until they are ready. So the code under
//! test is the shipped one, without a seam.

mod calls;
pub mod ceph;
mod context;
mod descriptors;
mod files;
mod heap;
mod memory;
pub(crate) mod os;
mod scheduler;
mod sockets;

pub use calls::{Held, hold};
pub use files::{Files, ask_of_files, descriptors, name_of, set_processors};
pub use heap::Heap;
pub use os::{keep_memory, ring_after};
pub use scheduler::{Ended, bypass, describe, is_managed, kick, me, mix, note, now, rouse, simulate, wait_for};
pub use sockets::is_socket;
