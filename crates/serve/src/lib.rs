//! Fronts that serve a cryptline volume, and the lane that they share.
//!
//! ```text
//! nbd         a protocol: a server, and a `Wire` ─┐
//! vhost_user  the same for virtual machines       │
//! fuse        another: a file that is the volume  │
//! kernel_nbd  the wire of `nbd`, for this kernel  │
//! ublk        block devices of this kernel        │
//! net         sockets and TLS                     ▼
//! lane        one thread's requests, from a wire to a device and back
//! device      what block devices share
//! stats       what each export did      flush  that all of it is durable     facts  sizes and holes of media
//! ```
#![forbid(unsafe_code)]

pub mod device;
mod facts;
mod flush;
pub mod fuse;
pub mod kernel_nbd;
pub mod lane;
pub mod nbd;
mod net;
pub mod stats;
pub mod ublk;
pub mod vhost_user;

pub use flush::{Flushed, UNANSWERED, flush_all};
pub use net::StopHandle;
