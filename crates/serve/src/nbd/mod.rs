//! The NBD front: volumes served over sockets. The protocol itself is `cryptline_nbd`.
//!
//! ```text
//! server     accepts, one thread a connection, stops cleanly
//! handshake  until client and server agree on an export
//! wire       the transmission phase, served by a lane
//! status       its block status replies
//! export     what is served
//! ```

mod export;
mod handshake;
mod server;
mod status;
mod wire;

pub use crate::net::{
    Clients, Listener, StopHandle, Subject, SubjectError, TlsConfigError, private_key_path,
    server_config,
};
pub use crate::stats;
pub use export::{Export, Exports};
pub use server::{Server, ServerOptions};
