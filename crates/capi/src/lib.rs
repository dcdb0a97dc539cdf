//! libcryptline: encrypted disks for programs in C. `include/cryptline.h` is made from this crate by cbindgen.
//!
//! ```text
//! handle    what a pointer of the caller stands for: a number in a table, so none is ever followed
//! call      the frame of each call: its result as a number, its text kept by thread, no panic passes
//! options   structs that the caller fills, as large as its header says
//! disk      open, read, write, flush, ...      keys    key slots, create
//! queue     many requests at a time            server  NBD on a socket
//! ```
//!
//! Unsafe code is here only to touch memory that the caller names. What it must promise is in each function's
//! `# Safety`, and in the header.

#![allow(non_camel_case_types, reason = "they are C's names")]

mod call;
mod disk;
mod handle;
mod keys;
mod options;
mod queue;
mod server;

pub use call::*;
pub use disk::*;
pub use keys::*;
pub use options::*;
pub use queue::*;
pub use server::*;
