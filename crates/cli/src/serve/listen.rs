//! Sockets to serve NBD on: private and named Unix sockets, TCP.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};

use cryptline_nbd::uri::{Address, DEFAULT_PORT};
use cryptline_serve::nbd::Listener;
use rustix::fs::Mode;

use super::cleanup::Cleanup;
use super::unix;
use crate::CliError;

/// Where to listen.
#[derive(Debug)]
pub struct ListenWanted {
    /// Unix sockets; `-` is a private one.
    pub unix: Vec<PathBuf>,
    /// Permissions of the Unix sockets that are not private.
    pub mode: Mode,
    /// TCP port; 0 lets the system choose.
    pub port: Option<u16>,
    /// Host name or address for TCP.
    pub address: Option<String>,
    /// The server becomes another user, who cannot enter `$XDG_RUNTIME_DIR` of this one.
    pub changes_user: bool,
}

/// Listening sockets, with what clients call them.
#[derive(Default)]
pub struct Sockets {
    /// To accept on.
    pub listeners: Vec<Listener>,
    /// Of the listeners, in the same order.
    pub addresses: Vec<Address>,
    /// Somebody on another machine could connect.
    pub beyond_loopback: bool,
}

impl ListenWanted {
    /// Finds most mistakes before a passphrase is asked for.
    pub fn check(&self) -> Result<(), CliError> {
        for path in self.unix.iter().filter(|path| !is_private(path)) {
            unix::check(path)?;
        }
        self.bind_tcp().map(drop)
    }

    /// Binds everything; from now on clients can connect.
    pub fn bind(&self, cleanup: &Cleanup) -> Result<Sockets, CliError> {
        let mut sockets = Sockets::default();
        let nothing = self.unix.is_empty() && self.port.is_none() && self.address.is_none();
        let private = nothing.then(|| PathBuf::from("-"));
        for path in self.unix.iter().chain(&private) {
            let (path, listener) = if is_private(path) {
                unix::bind_private("nbd.sock", "--unix", self.changes_user, cleanup)?
            } else {
                (path.clone(), unix::bind(path, self.mode, cleanup)?)
            };
            // For clients everywhere; for those in this folder where the whole path is too long for any of them.
            let whole = std::path::absolute(&path).ok().filter(|path| path.as_os_str().len() <= unix::UNIX_PATH_MAX);
            let path = whole.unwrap_or(path);
            sockets.listeners.push(Listener::Unix(listener));
            sockets.addresses.push(Address::Unix(path));
        }
        for listener in self.bind_tcp()? {
            sockets.add_tcp(listener)?;
        }
        Ok(sockets)
    }

    fn bind_tcp(&self) -> Result<Vec<TcpListener>, CliError> {
        if self.port.is_none() && self.address.is_none() {
            return Ok(Vec::new());
        }
        let host = self.address.as_deref().unwrap_or("127.0.0.1");
        // As in a URI.
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = self.port.unwrap_or(DEFAULT_PORT);
        let found = (host, port).to_socket_addrs().map_err(|error| match host.rsplit_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok() => {
                CliError::parameters(format!("--ip-addr takes no port; use --ip-addr '{host}' --port {port}"))
            }
            _ => CliError::parameters(format!(
                "{host} is not an address of this machine ({error}); use one with --ip-addr"
            )),
        })?;
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for address in found {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        if port == 0 {
            // Each would get a port of its own.
            addresses.truncate(1);
        }
        addresses
            .into_iter()
            .map(|address| TcpListener::bind(address).map_err(|error| tcp_error(address, &error)))
            .collect()
    }
}

impl Sockets {
    /// Adds a TCP socket that listens.
    pub fn add_tcp(&mut self, listener: TcpListener) -> Result<(), CliError> {
        let address = listener.local_addr().map_err(|error| unix::cannot_listen(&"a TCP socket", &error))?;
        self.beyond_loopback |= !address.ip().is_loopback();
        self.addresses.push(Address::Tcp { host: host_for_clients(address.ip()), port: address.port() });
        self.listeners.push(Listener::Tcp(listener));
        Ok(())
    }
}

/// Every address of this machine has no name; clients on it say "localhost".
fn host_for_clients(ip: IpAddr) -> String {
    if ip.is_unspecified() {
        return "localhost".to_owned();
    }
    ip.to_string()
}

fn is_private(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn tcp_error(address: SocketAddr, error: &io::Error) -> CliError {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            CliError::busy(format!("another program listens on {address}; choose another --port"))
        }
        io::ErrorKind::PermissionDenied => {
            CliError::parameters(format!("no permission to listen on {address}; choose a --port from 1024 up"))
        }
        io::ErrorKind::AddrNotAvailable => {
            CliError::parameters(format!("{} is not an address of this machine; use one with --ip-addr", address.ip()))
        }
        _ => CliError::parameters(format!("cannot listen on {address}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_busy() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let wanted = ListenWanted {
            unix: Vec::new(),
            mode: Mode::RUSR,
            port: Some(taken.local_addr().unwrap().port()),
            address: None,
            changes_user: false,
        };
        assert_eq!(wanted.check().unwrap_err().exit_code(), 5);
    }
}
