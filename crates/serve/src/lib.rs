//! Fronts that serve a cryptline volume, and the lane that they share.
//!
//! ```text
//! nbd    a protocol: a server, and a `Wire` ─┐
//! net    sockets and TLS                     ▼
//! lane   one thread's requests, from a wire to a device and back
//! stats  what each export did
//! ```
#![forbid(unsafe_code)]

pub mod lane;
pub mod nbd;
mod net;
pub mod stats;
