//! Connections over stream sockets, in the clear or through TLS, as a server or as a client. They know no protocol.
//!
//! ```text
//! stream      while it is negotiated, and where somebody waits for each answer: blocking, with a deadline
//! socket      what both sides ask of one
//! records     TLS between a ring and whoever reads and sends
//! ```

#![forbid(unsafe_code)]

mod records;
mod socket;
mod stream;

pub use records::{Records, provider};
pub use socket::{KEEPALIVE_COUNT, KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, send, set_up_tcp};
pub use stream::TimedStream;
