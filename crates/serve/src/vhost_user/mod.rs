//! The vhost-user-blk front: volumes as disks of virtual machines, whose memory the server reads and writes itself.
//!
//! ```text
//! server      a socket for each disk, one front-end at a time
//! connection  whole messages, with their descriptors          messages  what they mean
//! control     one front-end: features, queues                  config    what a disk offers
//! control/    its memory, the requests under way, the write cache, a disk that grows
//! running     one queue's thread, with a lane                  mailbox   what the two tell each other
//! wire        a virtqueue as a lane sees it                    doorbell  kicks and interrupts
//! queue/      rings and chains of descriptors                  request   virtio-blk's requests
//! inflight/   what is under way, where a crash does not lose it        shared    the words of both
//! event       what the log is told
//! probe       rings without a server, for a fuzzer
//! ```
//!
//! A request passes through `wire` alone, on its queue's thread. Messages are rare, so `control` may block and
//! allocate.
//!
//! Data is copied. A write is encrypted in our copy, so a guest that changes it meanwhile spoils its own data only; a
//! read is decrypted in our buffer first, so no guest sees ciphertext. A request in flight keeps guest addresses, never
//! pointers, since the table of memory can change. The mailbox costs a request one load.

mod config;
mod connection;
mod control;
mod doorbell;
mod event;
mod inflight;
mod mailbox;
mod messages;
#[doc(hidden)]
pub mod probe;
mod queue;
mod request;
mod running;
mod server;
mod shared;
mod wire;

pub use event::VhostEvent;
pub use queue::{QUEUE_SIZE_MAX, QUEUE_SIZE_MIN};
pub use server::{DiskError, FrontEnds, VhostDisk, VhostServer, VhostServerOptions};
