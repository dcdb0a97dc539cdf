//! Connections over stream sockets, in the clear or through TLS, as a server or as a client. They know no protocol.
//!
//! ```text
//! stream      while it is negotiated, and where somebody waits for each answer: blocking, with a deadline
//! names       from the name of a host to one
//! socket      what both sides ask of one
//! connection  while it is served: over a ring, with all that is to be sent in batches
//! records     TLS between a ring and whoever reads and sends
//! pem, key    certificates and keys in files, and why they cannot be used
//! verifier    what a peer has signed in a handshake
//! ```

#![forbid(unsafe_code)]

mod connection;
mod key;
mod names;
mod pem;
mod records;
mod socket;
mod stream;
mod verifier;

pub use connection::{BatchedConnection, ConnectionEvent};
pub use names::{addresses, connect_tcp};
pub use pem::{OLD_VERSION, PemFiles, ReadPem, TlsConfigError, is_old_version, read_file};
pub use records::{Records, provider};
pub use socket::{KEEPALIVE_COUNT, KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, send, set_up_tcp};
pub use stream::TimedStream;
