//! Sockets passed by the program that started us: systemd's protocol, which libnbd's
//! `nbdinfo -- [ cryptline serve ... ]` uses too.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use cryptline_nbd::uri::Address;
use cryptline_serve::nbd::Listener;
use rustix::net::{AddressFamily, SocketType, sockopt};

use super::listen::Sockets;
use crate::CliError;

/// The sockets we were started with; `None` where there are none.
pub fn take() -> Result<Option<Sockets>, CliError> {
    let passed = cryptline_sys::take_listen_fds()
        .map_err(|error| CliError::parameters(format!("socket activation: {error}")))?;
    if passed.is_empty() {
        return Ok(None);
    }
    let mut sockets = Sockets::default();
    for fd in passed {
        add(&mut sockets, fd)?;
    }
    Ok(Some(sockets))
}

fn add(sockets: &mut Sockets, fd: OwnedFd) -> Result<(), CliError> {
    let listens =
        sockopt::socket_acceptconn(&fd).unwrap_or(false) && sockopt::socket_type(&fd) == Ok(SocketType::STREAM);
    let family = sockopt::socket_domain(&fd);
    match family {
        Ok(AddressFamily::UNIX) if listens => {
            let listener = UnixListener::from(fd);
            let address = listener.local_addr().ok();
            let path = address.and_then(|address| address.as_pathname().map(PathBuf::from));
            // A socket without a name can be served, but not found by others.
            sockets.addresses.push(Address::Unix(path.unwrap_or_default()));
            sockets.listeners.push(Listener::Unix(listener));
            Ok(())
        }
        Ok(AddressFamily::INET | AddressFamily::INET6) if listens => sockets.add_tcp(TcpListener::from(fd)),
        _ => Err(CliError::parameters(
            "socket activation: a passed descriptor is no listening Unix or TCP stream socket; \
             use ListenStream= and Accept=no",
        )),
    }
}
