//! Events that a server tells its log.

use std::fmt;
use std::io;
use std::time::Duration;

use cryptline_engine::OpenError;
use cryptline_nbd::{OptionRefusal, ProtocolError};

use crate::lane::Tally;
use crate::net::{NoPlace, PeerAddress};

/// A connection, as far as it has come.
#[derive(Clone, Debug)]
pub struct NbdClient {
    /// Its number.
    pub number: u64,
    /// Where it is.
    pub place: PeerAddress,
    /// Over TLS.
    pub tls: bool,
    /// The export that it has chosen.
    pub export: Option<String>,
}

impl fmt::Display for NbdClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {} ({})", self.number, self.place)
    }
}

/// Something about a client that whoever runs the server may want to know.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NbdEvent {
    /// Client that could not be accepted.
    #[error("cannot accept a client: {0}")]
    NotAccepted(io::Error),
    /// Client that was refused.
    #[error("{why} ({place})")]
    Refused {
        /// Where it is.
        place: PeerAddress,
        /// Why there is no place for it here.
        why: NoPlace,
    },
    /// Client that was refused, since the machine has no more threads.
    #[error("cannot start a thread for a client: {0}")]
    NoThread(io::Error),
    /// Client that is connected, with nothing agreed on.
    #[error("{0}: connected")]
    Accepted(NbdClient),
    /// Client that begins to use an export.
    #[error("{0}: uses export {name:?}{how}", name = export_of(.0), how = if .0.tls { " over TLS" } else { "" })]
    Began(NbdClient),
    /// Client that has left, or whose connection ended badly.
    #[error("{client}: {how}", how = ending(.client, .tally, .lasted, .why.as_ref()))]
    Ended {
        /// The client.
        client: NbdClient,
        /// Work that it did.
        tally: Tally,
        /// How long it was connected.
        lasted: Duration,
        /// The cause, unless it has said goodbye.
        why: Option<ClientError>,
    },
    /// Client that is served in smaller blocks than the volume has.
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

impl NbdEvent {
    /// Tells if something went wrong, at either end.
    #[must_use]
    pub fn is_trouble(&self) -> bool {
        match self {
            Self::Accepted(_) | Self::Began(_) => false,
            Self::Ended { why, .. } => why.is_some(),
            _ => true,
        }
    }
}

fn export_of(client: &NbdClient) -> &str {
    client.export.as_deref().unwrap_or_default()
}

fn ending(client: &NbdClient, tally: &Tally, lasted: &Duration, why: Option<&ClientError>) -> String {
    match why {
        Some(why) => why.to_string(),
        None if client.export.is_none() => "left without choosing an export".to_owned(),
        None => format!("left {}", tally.after(*lasted)),
    }
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The client broke the protocol, or asked for what there is not.
    #[error("{0}")]
    Protocol(#[from] ProtocolError),
    /// Departure or stall before an export was chosen.
    #[error("client left or stalled during the handshake: {0}")]
    Handshake(#[from] io::Error),
    /// Departure after what it asked for was refused.
    #[error("{0}")]
    Refused(OptionRefusal),
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
