//! The NBD front: volumes served over sockets. The protocol itself is `cryptline_nbd`.
//!
//! ```text
//! server     accepts, one thread a connection, stops cleanly
//! handshake  until client and server agree on an export
//! wire       the transmission phase, served by a lane
//! status       its block status replies
//! export     what is served      exports  all of it, while it comes and goes      ask  all of it at once
//! event      what the log is told
//! background one volume served while the caller goes on
//! ```

mod ask;
mod background;
mod event;
pub(crate) mod export;
mod exports;
mod handshake;
mod server;
mod status;
pub(crate) mod wire;

pub use crate::net::{
    AllowedClients, CertificateParts, CertificateSubject, Certificates, CurrentTls, FILES, Listener, NoPlace,
    PeerAddress, StopHandle, SubjectError, private_key_path, server_config,
};
pub use ask::{ExportFlushed, Looked, NotFlushed};
pub use background::Background;
pub use cryptline_net::{TlsConfigError, read_file};
pub use event::{ClientError, NbdClient, NbdEvent};
pub use export::Export;
pub use exports::{ExportStatus, Exports, RemoveError};
pub use server::{NbdServer, NbdServerOptions, Removed};
