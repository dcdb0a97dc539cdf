//! The NBD front: volumes served over sockets. The protocol itself is `cryptline_nbd`.
//!
//! ```text
//! server     accepts, one thread a connection, stops cleanly
//! clients    who is connected, and who gives way
//! socket     their sockets
//! handshake  the protocol's state machine over a blocking socket, TLS where asked
//! wire       the transmission phase, served by a lane
//! transport    its bytes, plain or TLS
//! status       its block status replies
//! export     what is served
//! ```

mod clients;
mod export;
mod handshake;
mod server;
mod socket;
mod status;
mod tls;
mod transport;
mod wire;

pub use crate::stats;
pub use export::{Export, Exports};
pub use server::{Listener, Server, ServerOptions, StopHandle};
pub use tls::{Clients, Subject, SubjectError, TlsConfigError, private_key_path, server_config};
