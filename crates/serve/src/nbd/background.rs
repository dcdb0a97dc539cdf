//! One volume served by a thread of its own, for libraries that serve while their caller goes on.

use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::thread::JoinHandle;
use std::time::Duration;

use cryptline_engine::{BackendChoice, Gate};
use cryptline_nbd::TlsMode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};

use super::{Export, Exports, Listener, NbdServer, NbdServerOptions, StopHandle};
use crate::flush::Flushed;
use crate::lane::Poll;
use crate::stats::ExportStats;

/// Clients at a time.
const CLIENTS: usize = 64;

/// A server that runs. Dropping it stops it, but for the copy that a forked process gets.
pub struct Background {
    stop: StopHandle,
    thread: Option<JoinHandle<io::Result<Flushed>>>,
    /// The process that has the thread.
    process: u32,
}

impl Background {
    /// Serves `gate` under `name` to all who connect to `listener`, without TLS.
    ///
    /// # Errors
    /// Fails on what NBD cannot describe, such as zones, and where there is no thread to be had.
    pub fn start(gate: &Gate, minimum_block: u32, name: &str, listener: Listener) -> io::Result<Self> {
        let export = Export {
            name: name.to_owned(),
            description: String::new(),
            gate: gate.clone(),
            minimum_block,
            stats: ExportStats::new(false),
        };
        let exports = Exports::new(vec![export], TlsMode::Off);
        let exports = exports.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let options = NbdServerOptions {
            backend: BackendChoice::Auto,
            poll: Poll::default(),
            tls: None,
            max_connections: CLIENTS,
            max_lanes: CLIENTS,
            max_handshakes: CLIENTS,
            handshake_timeout: Duration::from_secs(10),
            grace: Duration::from_secs(5),
            // A library has nobody to tell.
            log: Box::new(|_| {}),
        };
        let stop = StopHandle::new()?;
        let (server, stopped) = (NbdServer::new(exports, options), stop.clone());
        let thread =
            std::thread::Builder::new().name("nbd".to_owned()).spawn(move || server.run(&[listener], &stopped))?;
        let thread = Some(thread);
        Ok(Self { stop, thread, process: std::process::id() })
    }

    /// Tells if it runs in this process. A forked one has a copy of this, but the server's thread is its parent's.
    #[must_use]
    pub fn runs_here(&self) -> bool {
        self.process == std::process::id()
    }

    /// Lets the clients' requests end, for 5 seconds at most, and makes everything durable.
    ///
    /// # Errors
    /// `EBADF` where it [runs elsewhere](Self::runs_here), and goes on; where the server has failed; in the result, where
    /// it is not known that everything is durable.
    pub fn stop(mut self) -> io::Result<Flushed> {
        self.end()
    }

    fn end(&mut self) -> io::Result<Flushed> {
        if !self.runs_here() {
            // What would stop it is the parent's, too, and there is no thread that could be given up.
            std::mem::forget(self.thread.take());
            return Err(Errno::BADF.into());
        }
        self.stop.stop();
        let joined = self.thread.take().map(JoinHandle::join);
        joined.map_or(Ok(Ok(())), |joined| joined.unwrap_or_else(|_| Err(io::Error::other("the server has panicked"))))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

impl Listener {
    /// A Unix or TCP socket that listens already.
    ///
    /// # Errors
    /// `InvalidInput` for anything else.
    pub fn of_socket(socket: OwnedFd) -> io::Result<Self> {
        let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why);
        let listens = sockopt::socket_type(&socket).is_ok_and(|kind| kind == SocketType::STREAM)
            && sockopt::socket_acceptconn(&socket).unwrap_or(false);
        if !listens {
            return Err(invalid("it is no stream socket that listens"));
        }
        match sockopt::socket_domain(&socket)? {
            AddressFamily::UNIX => Ok(Self::Unix(UnixListener::from(socket))),
            AddressFamily::INET | AddressFamily::INET6 => Ok(Self::Tcp(TcpListener::from(socket))),
            _ => Err(invalid("it is neither a Unix nor a TCP socket")),
        }
    }
}
