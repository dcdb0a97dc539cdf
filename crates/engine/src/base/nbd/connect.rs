//! From a URI to a connection in transmission.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cryptline_nbd::negotiate::{Agreed, NegotiateError, greet, negotiate, negotiate_allocation, start_tls};
use cryptline_nbd::uri::Address;
use cryptline_nbd::{NbdUri, TransmissionFlags};
use cryptline_net::{
    KEEPALIVE_COUNT, KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, TimedStream, addresses, connect_tcp, set_up_tcp,
};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use super::tls::{self, Secure};
use crate::OpenError;

/// How long connecting and the handshake may take together.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// The same for a connection that only asks for block status, which can be done without.
const PATIENCE_FOR_STATUS: Duration = Duration::from_secs(5);
/// Bytes of the smallest requests, however small they may be.
pub(super) const SECTOR: u32 = 512;
/// How long a Unix server may leave its queue of clients full before we look again.
const PAUSE: Duration = Duration::from_millis(20);

/// Other end of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OtherEnd {
    /// A name can have several addresses, and each another server.
    Tcp(SocketAddr),
    /// Whoever listens at the path.
    Unix,
}

/// A server, and how to speak with it.
pub(super) struct NbdPeer {
    pub uri: NbdUri,
    /// Where it is, wherever this process works by the time it connects again.
    address: Address,
    secure: Option<Secure>,
}

impl NbdPeer {
    /// Certificates are read here, once.
    pub fn new(uri: &NbdUri) -> Result<Self, OpenError> {
        let secure = uri.tls.then(|| Secure::new(uri)).transpose();
        Ok(Self {
            uri: uri.clone(),
            address: absolute(&uri.address),
            secure: secure.map_err(|why| OpenError::remote(uri, why))?,
        })
    }

    /// An error of this server.
    pub fn error(&self, why: impl Into<String>) -> OpenError {
        OpenError::remote(&self.uri, why.into())
    }

    /// Connects to the export and negotiates it.
    pub fn connect(&self) -> Result<(TimedStream, Agreed, OtherEnd), OpenError> {
        self.connect_to(None, PATIENCE, |stream| negotiate(stream, &self.uri.export))
    }

    /// One more connection to the export, which must not have become another meanwhile.
    /// At the address of the first, and with who is there now.
    pub fn again(&self, before: &Agreed, peer: OtherEnd) -> Result<(TimedStream, OtherEnd), OpenError> {
        self.again_until(before, peer, Instant::now() + PATIENCE)
    }

    /// The same, for at most as long as usual.
    pub fn again_until(
        &self,
        before: &Agreed,
        peer: OtherEnd,
        until: Instant,
    ) -> Result<(TimedStream, OtherEnd), OpenError> {
        self.connect_if(peer, until, |now| is_still(before, now))
    }

    /// The same for a volume that has lost its server. Another one may be there by now, with another disk: an export of
    /// another size is not taken for the same.
    pub fn anew_until(
        &self,
        before: &Agreed,
        peer: OtherEnd,
        until: Instant,
    ) -> Result<(TimedStream, OtherEnd), OpenError> {
        self.connect_if(peer, until, |now| is_still(before, now) && now.size == before.size)
    }

    fn connect_if(
        &self,
        peer: OtherEnd,
        until: Instant,
        is_good: impl Fn(&Agreed) -> bool,
    ) -> Result<(TimedStream, OtherEnd), OpenError> {
        let negotiate = |stream: &mut TimedStream| negotiate(stream, &self.uri.export);
        let patience = PATIENCE.min(until.saturating_duration_since(Instant::now()));
        let (line, now, peer) = self.connect_to(Some(peer), patience, negotiate)?;
        if is_good(&now) {
            Ok((line, peer))
        } else {
            Err(self.error(
                "the export has changed since it was opened: it has another size now, or can do less; open it again",
            ))
        }
    }

    /// A connection for block status, and the number of `base:allocation` there. `None` where the server tells
    /// nothing of it, or has another export there now.
    ///
    /// Errors: it is not there, or takes no more connections.
    pub fn for_status(
        &self,
        before: &Agreed,
        peer: OtherEnd,
    ) -> Result<Option<(TimedStream, u32, OtherEnd)>, OpenError> {
        let negotiate = |stream: &mut TimedStream| negotiate_allocation(stream, &self.uri.export);
        let made = self.connect_to(Some(peer), PATIENCE_FOR_STATUS, negotiate);
        let (line, (now, context), peer) = made?;
        let context = context.filter(|_| is_still(before, &now));
        Ok(context.map(|context| (line, context, peer)))
    }

    fn connect_to<T>(
        &self,
        known: Option<OtherEnd>,
        patience: Duration,
        negotiate: impl FnOnce(&mut TimedStream) -> Result<T, NegotiateError>,
    ) -> Result<(TimedStream, T, OtherEnd), OpenError> {
        let failed = |why: String| self.error(why);
        let deadline = Instant::now() + patience;
        let found = match &self.address {
            Address::Tcp { host, port } => match known {
                Some(OtherEnd::Tcp(address)) => tcp(host, &[address], deadline),
                _ => addresses(host, *port, deadline)
                    .map_err(|error| format!("host {host} is not known: {error}"))
                    .and_then(|found| tcp(host, &found, deadline)),
            },
            Address::Unix(path) => unix(path, deadline).map(|socket| (socket, OtherEnd::Unix)),
        };
        let (socket, peer) = found.map_err(failed)?;
        let mut line = TimedStream::new(Arc::new(socket));
        let explained = |error: NegotiateError| failed(explain(&error));
        greet(line.until(deadline)).map_err(explained)?;
        if let Some(secure) = &self.secure {
            start_tls(line.until(deadline)).map_err(explained)?;
            line.secure(secure.connection().map_err(failed)?, Vec::new());
        }
        let agreed = negotiate(line.until(deadline)).map_err(|error| {
            let is_cut = self.secure.is_some() && is_hang_up(&error);
            failed(if is_cut { tls::cut() } else { explain(&error) })
        })?;
        Ok((line, agreed, peer))
    }
}

/// Tells if a connection is good for who relies on what was agreed on before: the export has at least its size and its
/// abilities, and blocks that are no larger. What is more is not used.
fn is_still(before: &Agreed, now: &Agreed) -> bool {
    // A hint.
    let relied_on = TransmissionFlags::from_bits(before.flags.bits() & !TransmissionFlags::ROTATIONAL.bits());
    let is_read_only = |agreed: &Agreed| agreed.flags.contains(TransmissionFlags::READ_ONLY);
    now.size >= before.size
        && now.flags.contains(relied_on)
        && is_read_only(now) == is_read_only(before)
        && now.block_sizes.minimum <= before.block_sizes.minimum.max(SECTOR)
        && now.block_sizes.maximum >= before.block_sizes.maximum
        && now.structured_replies == before.structured_replies
}

fn absolute(address: &Address) -> Address {
    match address {
        Address::Unix(path) if !path.as_os_str().as_bytes().starts_with(&[0]) => {
            Address::Unix(std::path::absolute(path).unwrap_or_else(|_| path.clone()))
        }
        other => other.clone(),
    }
}

fn is_hang_up(error: &NegotiateError) -> bool {
    let NegotiateError::Io(error) = error else {
        return false;
    };
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe)
}

fn explain(error: &NegotiateError) -> String {
    match error {
        NegotiateError::TlsRequired => {
            format!("{error}; write nbds:// or nbds+unix://, and tls-certificates=DIR")
        }
        NegotiateError::NoTls(_) => {
            format!("{error}; write nbd:// or nbd+unix:// if the way there is safe without")
        }
        NegotiateError::Io(failure) => {
            let inner = failure.get_ref();
            let of_tls = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
            of_tls.map_or_else(|| error.to_string(), tls::explained)
        }
        other => other.to_string(),
    }
}

fn tcp(host: &str, found: &[SocketAddr], deadline: Instant) -> Result<(OwnedFd, OtherEnd), String> {
    match connect_tcp(found, deadline) {
        Ok((stream, address)) => {
            watch(&stream).map_err(|errno| format!("cannot set up its socket: {errno}"))?;
            Ok((stream.into(), OtherEnd::Tcp(address)))
        }
        Err(Some((address, error))) => Err(refused(&format!("port {} of {}", address.port(), address.ip()), &error)),
        Err(None) => Err(format!("host {host} has no address")),
    }
}

/// No delay for small requests, and an end where the peer is gone without a word.
fn watch(stream: &TcpStream) -> rustix::io::Result<()> {
    set_up_tcp(stream)?;
    let silence = KEEPALIVE_IDLE + KEEPALIVE_INTERVAL * KEEPALIVE_COUNT;
    let silence = u32::try_from(silence.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(stream, silence)
}

fn unix(path: &Path, deadline: Instant) -> Result<OwnedFd, String> {
    let shown = path.display();
    let bytes = path.as_os_str().as_bytes();
    let address = match bytes.split_first() {
        Some((0, name)) => SocketAddrUnix::new_abstract_name(name),
        _ => SocketAddrUnix::new(path),
    };
    let address = address.map_err(|_| format!("{shown} is too long for the name of a socket"))?;
    // A server whose queue of clients is full would block us without end.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let socket = socket.map_err(|errno| format!("cannot make a socket: {errno}"))?;
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => break,
            Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            Err(errno) => return Err(refused(&format!("socket {shown}"), &errno.into())),
        }
    }
    let stream = UnixStream::from(socket);
    let blocking = stream.set_nonblocking(false);
    blocking.map_err(|error| format!("cannot set up its socket: {error}"))?;
    Ok(stream.into())
}

fn refused(place: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!("there is no {place}; is the server running?"),
        io::ErrorKind::ConnectionRefused => {
            format!("nobody listens on {place}; is the server running?")
        }
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            format!("{place} does not answer")
        }
        _ => format!("cannot connect to {place}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use cryptline_nbd::BlockSizes;

    use super::*;

    /// A listener whose queue is full: who connects is not answered.
    fn silent() -> (OwnedFd, SocketAddr, Vec<TcpStream>) {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        rustix::net::bind(&socket, &any).unwrap();
        rustix::net::listen(&socket, 0).unwrap();
        let address = rustix::net::getsockname(&socket).unwrap();
        let address = SocketAddr::try_from(address).unwrap();
        let soon = Duration::from_millis(100);
        let waiting = std::iter::from_fn(|| TcpStream::connect_timeout(&address, soon).ok());
        let waiting = waiting.take(16).collect();
        (socket, address, waiting)
    }

    #[test]
    fn export_that_is_larger_or_can_do_more_is_still_the_same_and_one_that_is_less_is_not() {
        use TransmissionFlags as Flags;
        let flags = Flags::HAS_FLAGS.with(Flags::SEND_FLUSH).with(Flags::SEND_FUA).with(Flags::ROTATIONAL);
        let block_sizes = BlockSizes { minimum: 1, preferred: 4096, maximum: 1 << 20 };
        let before = Agreed { size: 1 << 20, flags, block_sizes, structured_replies: true };
        let with_sizes =
            |minimum, maximum| Agreed { block_sizes: BlockSizes { minimum, preferred: 65536, maximum }, ..before };
        let with_flags = |flags| Agreed { flags, ..before };
        let fewer = Flags::HAS_FLAGS.with(Flags::SEND_FLUSH);
        for same in [
            before,
            Agreed { size: 1 << 21, ..before },
            with_flags(flags.with(Flags::SEND_TRIM).with(Flags::CAN_MULTI_CONN)),
            with_flags(fewer.with(Flags::SEND_FUA)),
            with_sizes(512, 1 << 25),
        ] {
            assert!(is_still(&before, &same), "{same:?}");
        }
        for less in [
            Agreed { size: (1 << 20) - 1, ..before },
            Agreed { structured_replies: false, ..before },
            with_flags(fewer),
            with_flags(flags.with(Flags::READ_ONLY)),
            with_sizes(1024, 1 << 20),
            with_sizes(1, (1 << 20) - 1),
        ] {
            assert!(!is_still(&before, &less), "{less:?}");
        }
        let read_only = with_flags(flags.with(Flags::READ_ONLY));
        assert!(is_still(&read_only, &read_only) && !is_still(&read_only, &before));
    }

    #[test]
    fn socket_is_found_wherever_the_process_works_later() {
        let here = std::env::current_dir().unwrap();
        for (path, expected) in [(&b"a/s"[..], here.join("a/s")), (b"/s", "/s".into()), (b"\0name", "\0name".into())] {
            let address = Address::Unix(std::ffi::OsStr::from_bytes(path).into());
            assert!(matches!(absolute(&address), Address::Unix(path) if path == expected));
        }
    }

    #[test]
    fn address_that_does_not_answer_leaves_time_for_the_next() {
        let (_socket, silent, _waiting) = silent();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let found = [silent, listener.local_addr().unwrap()];
        let deadline = Instant::now() + Duration::from_secs(4);
        let (_, peer) = tcp("storage", &found, deadline).unwrap();
        assert!(peer == OtherEnd::Tcp(found[1]));
    }
}
