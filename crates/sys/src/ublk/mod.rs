//! ublk: block devices whose requests a ring serves.
//!
//! ```text
//! /dev/ublk-control   add, start, stop, delete            UblkControl
//! /dev/ublkcN         one descriptor for each tag         UblkDevice, UblkQueue
//!                     fetch ─► a request, with its data in a buffer ─► commit, and fetch the next
//! ```
//!
//! A buffer goes to the kernel with each command, and comes back with the request, like that of any other
//! operation of a [`Ring`](crate::Ring). A device made for it has no buffers instead: its data is copied by reading
//! and writing its file, as those with zones need it. Where the driver can, the commands of many tags go to it together
//! ([`batch`]). What the kernel's descriptors mean is for the caller to know.
//!
//! Source: Linux's include/uapi/linux/ublk_cmd.h and Documentation/block/ublk.rst.

mod batch;
mod control;
mod queue;

pub(crate) use batch::{Batch, Part};
pub use control::UblkControl;
pub(crate) use queue::UblkCommand;
pub use queue::{Payload as UblkPayload, UblkDevice, UblkQueue};

/// The path of a device's own side.
fn node(id: u32) -> String {
    format!("/dev/ublkc{id}")
}

/// `_IOR('u', number, …)` of a structure of `size` bytes.
const fn read_code(number: u32, size: u32) -> u32 {
    (2 << 30) | (size << 16) | ((b'u' as u32) << 8) | number
}

/// `_IOWR('u', number, …)`.
const fn code(number: u32, size: u32) -> u32 {
    (1 << 30) | read_code(number, size)
}
