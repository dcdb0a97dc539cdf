//! The NBD front: volumes served over sockets. The protocol itself is `cryptline_nbd`.
//!
//! ```text
//! server     accepts, one thread a connection, stops cleanly
//! clients    who is connected, and who gives way
//! socket     their sockets
//! handshake  the protocol's state machine over a blocking socket, TLS where asked
//! session    the transmission phase: one ring, no locks
//! transport    its bytes, plain or TLS
//! job          its requests
//! status       its block status replies
//! export     what is served      stats  what it did
//! ```

mod clients;
mod export;
mod handshake;
mod job;
mod server;
mod session;
mod socket;
pub mod stats;
mod status;
mod tls;
mod transport;

pub use export::{Export, Exports};
pub use server::{Listener, Server, ServerOptions, StopHandle};
pub use tls::{Clients, Subject, SubjectError, TlsConfigError, private_key_path, server_config};
