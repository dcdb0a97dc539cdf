//! Foundation of the fronts whose clients come over stream sockets. It knows no protocol.
//!
//! ```text
//! listen     sockets to accept clients on, and the stop
//! socket     an accepted one, and who is at its other end
//! clients    who is connected, and who gives way
//! transport  a connection while a lane serves it: over the lane's ring
//! tls        certificates, and whose are accepted
//! ```
//!
//! A connection that is negotiated is a `TimedStream` of `cryptline-net`.

pub(crate) mod clients;
mod listen;
mod socket;
mod tls;
mod transport;

pub use clients::NoPlace;
pub use listen::{Listener, StopHandle};
pub(crate) use listen::{has_hung_up, is_stopped_within, wait_for_client};
pub use socket::PeerAddress;
pub(crate) use socket::{ClientPeer, Socket};
pub(crate) use tls::why_refused;
pub use tls::{
    AllowedClients, CertificateParts, CertificateSubject, Certificates, CurrentTls, FILES, SubjectError,
    private_key_path, server_config,
};
pub(crate) use transport::{Connected, NetTransport};
