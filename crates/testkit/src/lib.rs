//! What the tests stand on: other people's programs and a real kernel to judge our bytes.
//!
//! * [`peer`] finds and runs programs we did not write, bounded in time.
//! * [`oracle`] boots a Debian kernel under QEMU and lets its dm-crypt write and read disk images.
//! * [`model`] is the disk as plainest code has it; [`suite`] checks that a device behaves like it.
//! * [`cache`] is a machine whose page cache loses writes, and which loses power.
//! * [`alloc`] counts heap allocations.
//! * [`memory`] looks through all memory of a process for keys that should not be there.
//!
//! Never part of the shipped program.

// Only `alloc` allows itself unsafe code: a global allocator is an unsafe trait.
#![deny(unsafe_code)]

pub mod alloc;
pub mod cache;
pub mod memory;
pub mod model;
pub mod oracle;
pub mod peer;
pub mod suite;
