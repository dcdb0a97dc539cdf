//! The FUSE front: a volume as a file. Whoever mounts brings the descriptors of `/dev/fuse`.
//!
//! ```text
//! session  agrees with the kernel, starts one lane for each descriptor, stops cleanly
//! wire     calls, served by a lane         intake   messages as they come
//! waiting  those of disks that have their share      entries  requests through the ring
//! calls    what needs no device            replies  answers on their way
//! nodes    the files and folders           abi      bytes and values
//! mount    what a mount is made and undone by
//! last_word  how the last flush went
//! ```
//!
//! The data of a write arrives page-aligned in buffers of the lane, where it is encrypted and from where it is
//! written. The parts of a read leave in the buffers that they were read into.
//!
//! Programs that use a file know no sectors, so the gate of a mount has `layer/subblock` with blocks of one byte on
//! top: two writers in one sector lose nothing, and requests for whole sectors pay one atomic load. Whole sectors
//! behind an odd beginning are moved to the start of the buffer, since direct I/O wants them aligned.

mod abi;
mod calls;
mod entries;
mod intake;
mod last_word;
mod mount;
mod nodes;
mod replies;
mod session;
mod waiting;
mod wire;

use crate::lane::CHUNK;

pub use last_word::{LastFlush, LastWord, SocketName, Waiter};
pub use mount::{Mount, MountError, MountWanted, identity_at, unmount};
pub use nodes::{MountedOver, Nodes, info_name};
pub use session::{FuseOptions, FuseSession, StartError, processors};

/// Buffers for the data of one call.
const PARTS: usize = 4;
/// Bytes of the largest read and write that are agreed on.
const TRANSFER_MAX: u32 = 4 * CHUNK;
const _: () = assert!(TRANSFER_MAX as usize == PARTS * CHUNK as usize);
