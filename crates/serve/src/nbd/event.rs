//! What a server tells its log.

use std::io;

use cryptline_engine::OpenError;
use cryptline_nbd::ProtocolError;

use crate::net::NoPlace;

/// Something about a client that whoever runs the server may want to know.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Event {
    /// It could not be accepted.
    #[error("cannot accept a client: {0}")]
    NotAccepted(io::Error),
    /// It was refused.
    #[error("{0}")]
    Refused(NoPlace),
    /// It was refused, since the machine has no more threads.
    #[error("cannot start a thread for a client: {0}")]
    NoThread(io::Error),
    /// Its connection ended badly.
    #[error("client {client}: {why}")]
    Ended {
        /// Its number.
        client: u64,
        /// The cause.
        why: ClientError,
    },
    /// It is served in smaller blocks than the volume has.
    #[error(
        "client {client} did not ask for block sizes, so it may write blocks of {block} bytes: each such write rewrites \
         {minimum} bytes, which a crash meanwhile can damage; if it can be told, tell it {minimum} (nbd-client: -b {minimum})"
    )]
    SmallBlocks {
        /// Its number.
        client: u64,
        /// The block size in bytes that it should keep to.
        minimum: u32,
        /// The one that it may use.
        block: u32,
    },
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The client broke the protocol, or asked for what there is not.
    #[error("{0}")]
    Protocol(#[from] ProtocolError),
    /// It left or stalled before it had chosen an export.
    #[error("client left or stalled during the handshake: {0}")]
    Handshake(#[from] io::Error),
    /// TLS was not agreed on.
    #[error("TLS handshake failed: {0}")]
    Tls(io::Error),
    /// There was no place for it.
    #[error("{0}")]
    NoPlace(#[from] NoPlace),
    /// The volume could not be used on its behalf.
    #[error("{0}")]
    Volume(#[from] OpenError),
    /// The connection broke while it was served.
    #[error("{0}")]
    Connection(io::Error),
}
