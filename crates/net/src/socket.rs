//! Sockets of both sides.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendFlags, sockopt};

/// A TCP peer that says nothing for so long is asked whether it is there.
pub const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// And then every so often; after the last time the connection counts as dead.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// How many times.
pub const KEEPALIVE_COUNT: u32 = 3;

/// Sets up a TCP connection for prompt messages, which are batched already, and to notice peers that vanish.
///
/// # Errors
/// As `setsockopt`.
pub fn set_up_tcp(stream: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_tcp_nodelay(stream, true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_COUNT)
}

/// Sends some bytes. A library must not count on a program that ignores `SIGPIPE`. By `sendmsg`, the one call for sending
/// that a server keeps when it gives up its rights.
///
/// # Errors
/// As `sendmsg`.
pub fn send(socket: impl AsFd, bytes: &[u8], flags: SendFlags) -> io::Result<usize> {
    let nothing = &mut SendAncillaryBuffer::default();
    let pieces = [io::IoSlice::new(bytes)];
    Ok(rustix::net::sendmsg(socket, &pieces, nothing, flags | SendFlags::NOSIGNAL)?)
}
