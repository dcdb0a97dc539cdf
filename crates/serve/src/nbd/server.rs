//! The server: accepts clients, gives each a thread, and stops without losing what it was told.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use cryptline_engine::blocking::Blocking;
use cryptline_engine::{BackendChoice, Fault};
use cryptline_nbd::{ExportLimits, Negotiated};
use rustls::ServerConfig;

use super::export::{Export, Exports};
use super::handshake::negotiate;
use super::wire::{NbdWire, Start};
use crate::lane::Lane;
use crate::net::clients::{Clients, Member, NoPlace, Places};
use crate::net::{Connected, Listener, Socket, StopHandle, Stream, wait_for_client};
use crate::stats::Meter;

/// How to serve.
pub struct ServerOptions {
    /// How connections do their I/O.
    pub backend: BackendChoice,
    /// Certificates, where TLS is offered.
    pub tls: Option<Arc<ServerConfig>>,
    /// Clients in transmission at a time; further clients are refused.
    pub max_connections: usize,
    /// Handshakes at a time. When there are more, the oldest of the peer (an address or a user) that
    /// has the most gives way to the newest.
    pub max_handshakes: usize,
    /// How long a client may take for its handshake.
    pub handshake_timeout: Duration,
    /// How long a stopping server finishes requests and waits for clients to read their last replies. What
    /// is unfinished then ends at its next chunk.
    pub grace: Duration,
    /// Takes a line about each connection that ended badly.
    pub log: Box<dyn Fn(&str) + Send + Sync>,
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

    /// Accepts clients until `stop` is used; then lets the connections finish the requests that they have
    /// taken, and flushes every export. Where a flush fails, the result names the first such export.
    ///
    /// Stopping takes no longer than [`grace`](ServerOptions::grace), what one connection has under way
    /// when that is over (a chunk of 256 KiB in the cipher, 64 small reads, and what the system is already
    /// carrying out), and the flushes, whatever the clients have asked for.
    pub fn run(
        self: &Arc<Self>,
        listeners: &[Listener],
        stop: &StopHandle,
    ) -> io::Result<Result<(), (String, Fault)>> {
        for listener in listeners {
            listener.set_nonblocking()?;
        }
        let mut next_id = 0;
        while wait_for_client(listeners, stop)? {
            for listener in listeners {
                // One at a time: a flood of clients must not keep us from seeing the stop.
                if let Some(socket) = self.accept(listener) {
                    next_id += 1;
                    self.start(next_id, socket);
                }
            }
        }
        self.clients.dismiss(self.options.grace);
        Ok(self.flush_exports())
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
        let stream = Stream::new(socket, self.options.handshake_timeout);
        let (offer, tls) = (self.exports.offer(), self.options.tls.as_ref());
        let negotiated = negotiate(stream, member, offer, tls).map_err(|error| {
            if member.is_displaced() {
                NoPlace::Displaced.to_string()
            } else {
                error.to_string()
            }
        })?;
        let Some((negotiated, connected)) = negotiated else {
            return Ok(());
        };
        // Dropped before the place is given up: when the client counts as gone, the traces of its work
        // are wiped. Only for clients in transmission, since locked memory is scarce.
        let _stack = cryptline_sys::StackGuard::new();
        let export = self.exports.list().get(negotiated.export);
        let export = export.ok_or("no such export")?;
        let meter = export.stats.connect();
        let result = self.transmit(&negotiated, connected, member, export, meter.clone());
        if let Some(meter) = meter {
            export.stats.disconnect(&meter);
        }
        result
    }

    /// The transmission phase: a lane of the client's own.
    fn transmit(
        &self,
        negotiated: &Negotiated,
        connected: Connected,
        member: &Member,
        export: &Export,
        meter: Option<Arc<Meter>>,
    ) -> Result<(), String> {
        let start = Start {
            connected,
            gate: export.gate.clone(),
            limits: self.limits(negotiated, member, export)?,
            context: negotiated.base_allocation.unwrap_or(0),
            meter: meter.clone(),
        };
        let orders = Arc::clone(member.orders());
        let backend = self.options.backend;
        let lane = Lane::new(&export.gate, backend, orders, meter, |ring| {
            NbdWire::new(ring, start)
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

    /// Flushes all of them, even after one has failed.
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
