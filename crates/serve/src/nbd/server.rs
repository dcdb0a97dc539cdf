//! The server: accepts clients, gives each a thread, and stops without losing what it was told.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use cryptline_engine::blocking::Blocking;
use cryptline_engine::{BackendChoice, Fault};
use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustls::ServerConfig;

use super::clients::{Clients, Member, NoPlace, Places};
use super::export::{Export, Exports};
use super::handshake::{Accepted, negotiate};
use super::socket::Socket;
use super::wire::{NbdWire, Start};
use crate::lane::Lane;
use crate::stats::Meter;
use cryptline_nbd::{ExportLimits, Negotiated};

/// A socket to accept clients on.
pub enum Listener {
    /// A Unix socket.
    Unix(UnixListener),
    /// A TCP socket.
    Tcp(TcpListener),
}

impl Listener {
    fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Unix(listener) => Ok(Socket::Unix(listener.accept()?.0)),
            Self::Tcp(listener) => Socket::tcp(listener.accept()?.0),
        }
    }

    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Unix(listener) => listener.set_nonblocking(true),
            Self::Tcp(listener) => listener.set_nonblocking(true),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

/// How to serve.
pub struct ServerOptions {
    /// How connections do their I/O.
    pub backend: BackendChoice,
    /// Certificates, where TLS is offered.
    pub tls: Option<Arc<ServerConfig>>,
    /// Clients in transmission at a time; more are closed as soon as they come.
    pub max_connections: usize,
    /// Handshakes at a time. When there are more, the oldest of the peer (an address or a user) that
    /// has the most gives way to the newest.
    pub max_handshakes: usize,
    /// How long a client may take for its handshake.
    pub handshake_timeout: Duration,
    /// How long clients may take to read their last replies when the server stops, and the server to
    /// finish what they have asked. What is unfinished then ends at its next chunk.
    pub grace: Duration,
    /// Takes a line about each connection that ended badly.
    pub log: Box<dyn Fn(&str) + Send + Sync>,
}

/// Stops a server from any thread.
#[derive(Clone)]
pub struct StopHandle(Arc<OwnedFd>);

impl StopHandle {
    /// A handle not yet pulled.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(Arc::new(rustix::event::eventfd(0, flags)?)))
    }

    /// Asks the server to stop. Stays asked.
    pub fn stop(&self) {
        // A full counter is as good as asked.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

fn never_asked(client: &Member, minimum: u32, block: u32) -> String {
    format!(
        "client {} did not ask for block sizes, so it may write blocks of {block} bytes: each such write rewrites \
         {minimum} bytes, which a crash meanwhile can damage; if it can be told, tell it {minimum} (nbd-client: -b {minimum})",
        client.id()
    )
}

/// Serves exports to any number of clients.
pub struct Server {
    exports: Arc<Exports>,
    options: ServerOptions,
    clients: Arc<Clients>,
}

impl Server {
    /// A server; nothing happens before [`run`](Self::run).
    #[must_use]
    pub fn new(exports: Arc<Exports>, options: ServerOptions) -> Arc<Self> {
        let clients = Clients::new(Places {
            handshakes: options.max_handshakes.max(1),
            transmissions: options.max_connections,
        });
        Arc::new(Self {
            exports,
            options,
            clients,
        })
    }

    /// Accepts clients until `stop` is pulled; then lets the connections finish what they have
    /// taken, and flushes every export. A fault is of that last flush: the first export's that failed,
    /// with its name.
    ///
    /// From the pull it takes no longer than [`grace`](ServerOptions::grace), what one connection has
    /// in the works when that is over (a chunk of 256 KiB in the cipher, 64 small reads, and what the
    /// system is already carrying out), and the flushes; whatever the clients have asked.
    pub fn run(
        self: &Arc<Self>,
        listeners: &[Listener],
        stop: &StopHandle,
    ) -> io::Result<Result<(), (String, Fault)>> {
        for listener in listeners {
            listener.set_nonblocking()?;
        }
        let mut next_id = 0;
        while self.wait_for_client(listeners, stop)? {
            for listener in listeners {
                // One at a time: a flood of them must not keep us from looking for the stop.
                if let Some(socket) = self.accept(listener) {
                    next_id += 1;
                    self.start(next_id, socket);
                }
            }
        }
        self.clients.dismiss(self.options.grace);
        Ok(self.flush_exports())
    }

    /// `false` when the server is to stop.
    fn wait_for_client(&self, listeners: &[Listener], stop: &StopHandle) -> io::Result<bool> {
        let mut polled: Vec<_> = listeners
            .iter()
            .map(|listener| PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN))
            .chain([PollFd::from_borrowed_fd(stop.0.as_fd(), PollFlags::IN)])
            .collect();
        match rustix::event::poll(&mut polled, None) {
            Ok(_) => Ok(polled.last().is_none_or(|stop| stop.revents().is_empty())),
            Err(rustix::io::Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    fn accept(&self, listener: &Listener) -> Option<Socket> {
        match listener.accept() {
            Ok(socket) => Some(socket),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => {
                (self.options.log)(&format!("cannot accept a client: {error}"));
                // Out of descriptors, most likely: give the others time to leave.
                std::thread::sleep(Duration::from_millis(50));
                None
            }
        }
    }

    fn start(self: &Arc<Self>, id: u64, socket: Socket) {
        let member = match self.clients.enter(id, &socket) {
            Ok(member) => member,
            Err(why) => return (self.options.log)(&why.to_string()),
        };
        let server = Arc::clone(self);
        let spawned = std::thread::Builder::new()
            .name(format!("nbd-{id}"))
            .stack_size(cryptline_sys::GUARDED_STACK)
            .spawn(move || {
                if let Err(message) = server.serve(socket, &member) {
                    (server.options.log)(&format!("client {id}: {message}"));
                }
            });
        if let Err(error) = spawned {
            (self.options.log)(&format!("cannot start a thread for a client: {error}"));
        }
    }

    /// One client, from its greeting to its end.
    fn serve(&self, socket: Socket, member: &Member) -> Result<(), String> {
        let offer = self.exports.offer();
        let timeout = self.options.handshake_timeout;
        let accepted = negotiate(socket, member, offer, self.options.tls.as_ref(), timeout)
            .map_err(|error| {
                if member.is_displaced() {
                    NoPlace::Displaced.to_string()
                } else {
                    error.to_string()
                }
            })?;
        let Some(accepted) = accepted else {
            return Ok(());
        };
        // Dropped last but for the place: when the client counts as gone, so are the traces of its
        // work. Not for who never comes this far: locked memory is scarce.
        let _stack = cryptline_sys::StackGuard::new();
        let export = (self.exports.list()).get(accepted.negotiated.export);
        let export = export.ok_or("no such export")?;
        let meter = export.stats.connect();
        let result = self.transmit(accepted, member, export, meter.clone());
        if let Some(meter) = meter {
            export.stats.disconnect(&meter);
        }
        result
    }

    /// The transmission phase: a lane of the client's own.
    fn transmit(
        &self,
        accepted: Accepted,
        member: &Member,
        export: &Export,
        meter: Option<Arc<Meter>>,
    ) -> Result<(), String> {
        let limits = self.limits(&accepted.negotiated, member, export)?;
        let wire = Start {
            socket: Arc::new(OwnedFd::from(accepted.socket)),
            tls: accepted.tls,
            leftover: &accepted.leftover,
            export,
            limits,
            negotiated: accepted.negotiated,
            meter: meter.clone(),
        };
        let orders = Arc::clone(member.orders());
        let backend = self.options.backend;
        let lane = Lane::new(&export.gate, backend, orders, meter, |ring| {
            NbdWire::new(ring, wire)
        });
        let mut lane = lane.map_err(|error| error.to_string())?;
        lane.run().map_err(|error| error.to_string())
    }

    /// What the client's requests must keep to.
    fn limits(
        &self,
        negotiated: &Negotiated,
        member: &Member,
        export: &Export,
    ) -> Result<ExportLimits, String> {
        let infos = self.exports.offer().exports();
        let info = infos.get(negotiated.export).ok_or("no such export")?;
        let geometry = export.gate.geometry();
        let mut limits = ExportLimits::new(info, negotiated, geometry.write_zeroes);
        if !negotiated.block_size_agreed && limits.min_block > geometry.logical_block {
            (self.options.log)(&never_asked(
                member,
                limits.min_block,
                geometry.logical_block,
            ));
            limits.min_block = geometry.logical_block;
        }
        Ok(limits)
    }

    /// Flushes all of them, also behind one that failed.
    fn flush_exports(&self) -> Result<(), (String, Fault)> {
        let mut result = Ok(());
        for export in self.exports.list() {
            if export.gate.geometry().read_only {
                continue;
            }
            let fault = |_| Fault::Io(rustix::io::Errno::IO);
            let flushed = Blocking::new(&export.gate, self.options.backend)
                .map_err(fault)
                .and_then(|mut volume| volume.flush())
                .map_err(|fault| (export.name.clone(), fault));
            result = result.and(flushed);
        }
        result
    }
}
