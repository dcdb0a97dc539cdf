//! Foundations of the tests: independent programs and a real kernel that check our bytes.
//!
//! * [`peer`] finds and runs programs we did not write, bounded in time.
//! * [`blkio`] drives vhost-user disks with libblkio's driver.
//! * [`ceph`] is a storage cluster of one machine.
//! * [`pki`] makes certificates.
//! * [`oracle`] boots a Debian kernel under QEMU and lets its dm-crypt write and read disk images.
//! * [`model`] is a disk in the plainest code; [`suite`] checks that a device behaves like it.
//! * [`scripted`] are devices that do what a test says, when it says so.
//! * [`cache`] is a machine whose page cache loses writes, and which loses power.
//! * [`fuse`] is the kernel's side of FUSE; [`fuse_uring`] has the kernel offer FUSE over io_uring.
//! * [`vhost`] is the driver's side of vhost-user: memory, messages and rings of a virtual machine.
//! * [`alloc`] counts heap allocations; [`harness`] gives a test the process to itself.
//! * [`nudged`] stops a process and lets it go on, again and again.
//! * [`volatile`] is a disk in memory that loses what was not flushed.
//! * [`memory`] searches all memory of a process for keys that should not be there.
//!
//! Never part of the shipped program.

// Only `alloc` allows itself unsafe code: a global allocator is an unsafe trait.
#![deny(unsafe_code)]

pub mod alloc;
pub mod blkio;
pub mod cache;
pub mod ceph;
pub mod fuse;
pub mod fuse_uring;
pub mod harness;
pub mod memory;
pub mod model;
pub mod nudged;
pub mod oracle;
pub mod pki;
pub mod scripted;
pub mod suite;
pub mod vhost;
pub mod volatile;

pub use cryptline_peers as peer;
