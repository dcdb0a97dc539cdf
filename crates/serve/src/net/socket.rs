//! A connected client's socket, Unix or TCP: shutdown, and who is at the other end.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use cryptline_net::set_up_tcp;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, Shutdown, getpeername, sockopt};

/// Party that connects, as far as can be told. Limits are shared fairly between peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ClientPeer {
    /// By an address; of IPv6 the first 64 bits, since one machine has all the rest.
    Address(IpAddr),
    /// By a user of this machine.
    User(u32),
    /// The system did not say.
    Unknown,
}

impl ClientPeer {
    fn at(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = address.to_bits() & !u128::from(u64::MAX);
                IpAddr::V6(Ipv6Addr::from_bits(network))
            }
            v4 => v4,
        })
    }
}

/// Where a client is, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAddress {
    /// Elsewhere, or at a port of this machine.
    Address(SocketAddr),
    /// On this machine, by its user.
    User(u32),
    /// The system did not say.
    Unknown,
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::User(uid) => write!(f, "user {uid}"),
            Self::Unknown => f.write_str("an unknown place"),
        }
    }
}

/// A connected client, Unix or TCP. A clone is the same descriptor, by which the connection can be shut down from elsewhere.
#[derive(Clone)]
pub(crate) struct Socket(Arc<OwnedFd>);

impl Socket {
    pub fn unix(stream: UnixStream) -> Self {
        Self(Arc::new(stream.into()))
    }

    /// A TCP connection set up for prompt replies, and to notice peers that vanish.
    pub fn tcp(stream: TcpStream) -> io::Result<Self> {
        set_up_tcp(&stream)?;
        Ok(Self(Arc::new(stream.into())))
    }

    /// Tells if the other end sends no more.
    pub fn has_left(&self) -> bool {
        let mut polled = [PollFd::new(&self.0, PollFlags::RDHUP)];
        rustix::event::poll(&mut polled, Some(&Timespec::default())).is_ok_and(|found| found > 0)
    }

    /// Ends what the other end sends, or all.
    pub fn shutdown(&self, how: Shutdown) {
        // Failing means that the connection is down already.
        let _ = rustix::net::shutdown(&self.0, how);
    }

    /// Where the other end is.
    pub fn place(&self) -> PeerAddress {
        match (self.address(), self.user()) {
            (Some(address), _) => PeerAddress::Address(SocketAddr::new(address.ip().to_canonical(), address.port())),
            (None, Some(uid)) => PeerAddress::User(uid),
            (None, None) => PeerAddress::Unknown,
        }
    }

    /// Returns who is at the other end.
    pub fn peer(&self) -> ClientPeer {
        match self.place() {
            PeerAddress::Address(address) => ClientPeer::at(address.ip()),
            PeerAddress::User(uid) => ClientPeer::User(uid),
            PeerAddress::Unknown => ClientPeer::Unknown,
        }
    }

    fn address(&self) -> Option<SocketAddr> {
        getpeername(&self.0).ok()??.try_into().ok()
    }

    fn user(&self) -> Option<u32> {
        let is_unix = sockopt::socket_domain(&self.0) == Ok(AddressFamily::UNIX);
        let peer = cryptline_sys::peer_of(&self.0).ok().filter(|_| is_unix);
        peer.map(|peer| peer.uid.as_raw())
    }
}

impl From<Socket> for Arc<OwnedFd> {
    fn from(Socket(fd): Socket) -> Self {
        fd
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    use cryptline_net::{KEEPALIVE_COUNT, KEEPALIVE_IDLE, KEEPALIVE_INTERVAL};

    #[test]
    fn addresses_of_one_network_are_one_peer() {
        let peer = |text: &str| ClientPeer::at(text.parse().unwrap());
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::2:3:4:5"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
        assert_eq!(peer("::ffff:192.0.2.1"), peer("192.0.2.1"));
        assert_ne!(peer("192.0.2.1"), peer("192.0.2.2"));
    }

    #[test]
    fn unix_peers_are_users_and_tcp_peers_addresses_that_are_asked_for_life() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let me = rustix::process::getuid().as_raw();
        assert_eq!(Socket::unix(ours).peer(), ClientPeer::User(me));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = listener.accept().unwrap().0;
        let watched = stream.try_clone().unwrap();
        let socket = Socket::tcp(stream).unwrap();
        assert_eq!(socket.peer(), ClientPeer::at("127.0.0.1".parse().unwrap()));
        let theirs = theirs.local_addr().unwrap();
        assert_eq!(socket.place().to_string(), theirs.to_string());
        assert!(sockopt::socket_keepalive(&watched).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&watched).unwrap(), KEEPALIVE_IDLE);
        assert_eq!(sockopt::tcp_keepintvl(&watched).unwrap(), KEEPALIVE_INTERVAL);
        assert_eq!(sockopt::tcp_keepcnt(&watched).unwrap(), KEEPALIVE_COUNT);
    }
}
