//! From the name of a host to a connection, before a deadline.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Addresses of a name that are tried, at most.
const ADDRESSES_MAX: usize = 16;

/// Addresses of a host, which may be a name or an address.
///
/// # Errors
/// `TimedOut` after the deadline, and where it is not found.
pub fn addresses(host: &str, port: u16, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let host = host.to_owned();
    let search = move || Ok((host.as_str(), port).to_socket_addrs()?.take(ADDRESSES_MAX).collect());
    in_time(deadline, search)?
}

/// Connects to the first of these that answers.
///
/// # Errors
/// Fails with that of the last one that was tried; with none where there is no address, or no time for one.
pub fn connect_tcp(
    found: &[SocketAddr],
    deadline: Instant,
) -> Result<(TcpStream, SocketAddr), Option<(SocketAddr, io::Error)>> {
    let mut failed = None;
    for (tried, &address) in found.iter().enumerate() {
        let Ok(left) = left(deadline) else { break };
        // One that does not answer leaves time for those behind it.
        let to_try = u32::try_from(found.len() - tried).unwrap_or(u32::MAX);
        match TcpStream::connect_timeout(&address, left / to_try) {
            Ok(stream) => return Ok((stream, address)),
            Err(error) => failed = Some((address, error)),
        }
    }
    Err(failed)
}

/// Returns what `work` comes to, which nobody can end, such as the search for a name: after the deadline it is left to
/// itself.
fn in_time<T: Send + 'static>(deadline: Instant, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let left = left(deadline)?;
    let (sender, receiver) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name("names".to_owned());
    thread.spawn(move || {
        // Nobody may be there any more.
        let _ = sender.send(work());
    })?;
    receiver.recv_timeout(left).map_err(|_| ErrorKind::TimedOut.into())
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn work_that_never_ends_is_waited_for_until_the_deadline_only() {
        let (_keeps, receiver) = mpsc::channel::<()>();
        let said = in_time(Instant::now() + Duration::from_millis(50), move || receiver.recv().is_ok());
        assert_eq!(said.unwrap_err().kind(), ErrorKind::TimedOut);
        let (sender, begun) = mpsc::channel();
        let said = in_time(Instant::now(), move || sender.send(()).is_ok());
        assert_eq!(said.unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(begun.recv().is_err(), "it was begun");
        assert_eq!(in_time(Instant::now() + LONG, || 7).unwrap(), 7);
    }

    #[test]
    fn first_address_that_answers_is_taken_and_the_last_failure_is_told() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let there = listener.local_addr().unwrap();
        // Bound, and nobody listens.
        let silent =
            rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
        rustix::net::bind(&silent, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let nobody = SocketAddr::try_from(rustix::net::getsockname(&silent).unwrap()).unwrap();
        let deadline = Instant::now() + LONG;
        assert_eq!(addresses("127.0.0.1", there.port(), deadline).unwrap(), [there]);
        assert_eq!(connect_tcp(&[nobody, there], deadline).unwrap().1, there);
        let (address, error) = connect_tcp(&[nobody], deadline).unwrap_err().unwrap();
        assert_eq!((address, error.kind()), (nobody, ErrorKind::ConnectionRefused));
        assert!(connect_tcp(&[there], Instant::now()).unwrap_err().is_none());
        assert!(connect_tcp(&[], deadline).unwrap_err().is_none());
    }
}
