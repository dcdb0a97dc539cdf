//! cryptline's engine: a disk as a stack of devices, and the way of a request through it.
//!
//! ```text
//!            shared by all threads                    one thread's own
//!
//! front                                     owns a Channel: a Ring and a GatedQueue
//!   │                                              │ Request       ▲ Completion
//!   ▼                                              ▼               │
//! Gate ── range, alignment, capability, latch ── GatedQueue ───────┤
//!   │                                              │               │
//! CryptDevice (key schedule, read-only) ──────── Layered    encrypt│decrypt
//!   │                                              │               │
//! Gate ───────────────────────────────────────── GatedQueue        │
//!   │                                              │               │
//! FileDevice / RamDevice ─────────────────────── FileQueue ── Ring ┘
//! ```
//!
//! Read in this order: [`Channel`], [`request`], [`device`], [`queue`], [`gate`], then `base/` and
//! `layer/`; for zoned devices [`zone`] and [`layer::zoned`]. Layers for tests are in `test/`.
//!
//! No thread hand-off, no lock and no allocation happens between `submit` and the completion:
//! tests/steady_state proves it.

#![forbid(unsafe_code)]

mod asker;
pub mod base;
pub mod blocking;
pub mod btt;
mod channel;
mod cipher_map;
pub mod device;
pub mod dispatch;
mod error;
pub mod gate;
mod in_flight;
pub mod layer;
mod layered;
mod op;
mod pieces;
pub mod queue;
pub mod request;
pub mod slab;
pub mod table;
mod test;
pub mod units;
pub mod zone;

pub use asker::Asker;
pub use channel::Channel;
pub use cryptline_sys::{Arena, BackendChoice, Buffer, Ring, RoamingRing};
pub use device::{Connections, Device, Extent, Geometry, Traits};
pub use error::OpenError;
pub use gate::{Gate, GatedQueue};
pub use in_flight::InFlight;
pub use op::Op;
pub use queue::{AtOnce, Queue, Submitted};
pub use request::{Combined, Completion, Fault, Request};
pub use zone::{Zone, ZoneAction, ZoneCondition, ZoneModel, ZoneType};

/// Zeros, for whoever writes or looks for them: once in a program, since they take room in it.
pub static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];
