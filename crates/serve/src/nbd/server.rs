//! The server: accepts clients, gives each a thread, and stops without losing what it was told.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cryptline_engine::{BackendChoice, Fault};
use cryptline_nbd::{ExportLimits, Negotiated, ProtocolError, ServerOffer};
use cryptline_net::TimedStream;
use cryptline_sys::lock;

use super::ask::ExportFlushed;
use super::event::{ClientError, NbdClient, NbdEvent};
use super::export::Export;
use super::exports::{Closing, ExportStatus, Exports, RemoveError, Retired};
use super::handshake::negotiate;
use super::wire::{NbdWire, Terms};
use crate::flush::{FinalFlush, Flushed, flush_all, flush_last};
use crate::lane::{Lane, Poll, Tally};
use crate::net::clients::{ClientLimits, ClientPlace, Clients, DISMISSED_WITHIN, NoPlace, Whom};
use crate::net::{Connected, CurrentTls, Listener, Socket, StopHandle, wait_for_client};

/// How to serve.
pub struct NbdServerOptions {
    /// How connections do their I/O.
    pub backend: BackendChoice,
    /// Policy by which connections look out for the next request before they wait.
    pub poll: Poll,
    /// Certificates, where TLS is offered.
    pub tls: Option<Arc<CurrentTls>>,
    /// Clients in transmission at a time, and of each export; further clients are refused. One that has left, and whose thread still
    /// waits for the medium, counts only with its export.
    pub max_connections: usize,
    /// The same, also counting those who have left: for a server whose memory is limited, no fewer than above.
    pub max_lanes: usize,
    /// Handshakes at a time. When there are more, the oldest of the peer (an address or a user) that
    /// has the most gives way to the newest.
    pub max_handshakes: usize,
    /// How long a client may take for its handshake.
    pub handshake_timeout: Duration,
    /// How long a stopping server finishes requests and waits for clients to read their last replies. What
    /// is unfinished then ends at its next chunk.
    pub grace: Duration,
    /// Is told of each connection's beginning and end, and of those that did not come about.
    pub log: Box<dyn Fn(&NbdEvent) + Send + Sync>,
}

/// Outcome for an export that was to go.
#[derive(Debug, PartialEq, Eq)]
pub enum Removed {
    /// Goes with the last of its clients.
    Later {
        /// How many there are.
        clients: usize,
    },
    /// Gone; tells if all of it is durable.
    Closed(Flushed),
}

/// Serves exports to any number of clients.
pub struct NbdServer {
    exports: Arc<Exports>,
    options: NbdServerOptions,
    clients: Arc<Clients>,
    /// The first export that went with its last client, and whose last flush failed.
    lost: Mutex<Option<(String, Fault)>>,
}

impl NbdServer {
    /// A server; nothing happens before [`run`](Self::run).
    #[must_use]
    pub fn new(exports: Arc<Exports>, options: NbdServerOptions) -> Arc<Self> {
        let clients = Clients::new(ClientLimits {
            handshakes: options.max_handshakes.max(1),
            transmissions: options.max_connections,
            lanes: options.max_lanes.max(options.max_connections),
        });
        Arc::new(Self { exports, options, clients, lost: Mutex::default() })
    }

    /// Accepts clients until `stop` is used; then lets the connections finish the requests that they have
    /// taken, and flushes every export. Where a flush fails, the result names the first such export; so it does where the
    /// last flush of one that went with its last client has failed, now or before.
    ///
    /// Stopping takes no longer than [`grace`](ServerOptions::grace), what one connection has under way
    /// when that is over (a chunk of 256 KiB in the cipher, 64 small reads), a second for what the system is
    /// carrying out, and as long as the grace again for the flushes, whatever the clients have asked for and whether the media
    /// answer. Where a medium has answered nothing until then, one more second shows whether it is only slow, and one more is
    /// given to those who still wait for it. Each export is flushed when its own clients have left.
    pub fn run(self: &Arc<Self>, listeners: &[Listener], stop: &StopHandle) -> io::Result<Flushed> {
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
        let flushed = self.end_all();
        Ok(lock(&self.lost).take().map_or(flushed, Err))
    }

    /// Has everybody leave, and flushes each export once its own clients have left.
    fn end_all(&self) -> Flushed {
        let grace = self.options.grace;
        self.clients.tell_to_leave(Whom::All);
        let last = |status: ExportStatus| {
            let (clients, id) = (Arc::clone(&self.clients), status.id);
            FinalFlush {
                name: status.export.name.clone(),
                gate: status.export.gate.clone(),
                before: Some((Box::new(move || clients.dismiss(Whom::Using(id), grace)), grace + DISMISSED_WITHIN)),
            }
        };
        let exports = self.exports.status().into_iter().map(last);
        let flushed = flush_last(exports.collect(), self.options.backend, grace);
        // By now only those are left that use nothing, or what does not answer.
        self.clients.dismiss(Whom::All, Duration::ZERO);
        flushed
    }

    /// Returns what it offers.
    #[must_use]
    pub fn exports(&self) -> &Arc<Exports> {
        &self.exports
    }

    /// Makes all that was written to the export called `name`, or to each, durable, side by side.
    #[must_use]
    pub fn flush(&self, name: Option<&str>) -> Vec<ExportFlushed> {
        self.exports.flush(name, self.options.backend)
    }

    /// Lets no new client have the export called `name`. It is flushed, and its volume closed, when its last client has
    /// left; with `now`, its clients are made to leave as when the server stops, before this returns.
    ///
    /// # Errors
    /// Where there is no such export, or somebody else is closing it.
    pub fn remove(&self, name: &str, now: bool) -> Result<Removed, RemoveError> {
        match self.exports.retire(name, now)? {
            Retired::Leaving(clients) => Ok(Removed::Later { clients }),
            Retired::Closing(closing) => {
                let whom = Whom::Using(closing.id);
                self.clients.dismiss(whom, self.options.grace);
                Ok(Removed::Closed(self.close(closing)))
            }
        }
    }

    fn close(&self, closing: Closing) -> Flushed {
        let volume = [(closing.export.name.as_str(), &closing.export.gate)];
        let flushed = flush_all(volume, self.options.backend, self.options.grace);
        self.exports.forget(closing, &flushed);
        flushed
    }

    fn accept(&self, listener: &Listener) -> Option<Socket> {
        match listener.accept() {
            Ok(socket) => Some(socket),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => {
                (self.options.log)(&NbdEvent::NotAccepted(error));
                // Out of descriptors, most likely: give the others time to leave.
                std::thread::sleep(Duration::from_millis(50));
                None
            }
        }
    }

    fn start(self: &Arc<Self>, id: u64, socket: Socket) {
        let member = match self.clients.enter(id, &socket) {
            Ok(member) => member,
            Err(why) => {
                let place = socket.place();
                return (self.options.log)(&NbdEvent::Refused { place, why });
            }
        };
        let server = Arc::clone(self);
        let spawned = std::thread::Builder::new()
            .name(format!("nbd-{id}"))
            .stack_size(cryptline_sys::GUARDED_STACK)
            .spawn(move || server.serve(socket, &member));
        if let Err(error) = spawned {
            (self.options.log)(&NbdEvent::NoThread(error));
        }
    }

    /// One client, from its greeting to its end.
    fn serve(&self, socket: Socket, member: &ClientPlace) {
        let since = Instant::now();
        let mut client = NbdClient { number: member.id(), place: socket.place(), tls: false, export: None };
        let log = &self.options.log;
        log(&NbdEvent::Accepted(client.clone()));
        let mut tally = Tally::default();
        let result = self.attend(socket, member, &mut client, &mut tally);
        log(&NbdEvent::Ended { client, tally, lasted: since.elapsed(), why: result.err() });
    }

    fn attend(
        &self,
        socket: Socket,
        member: &ClientPlace,
        client: &mut NbdClient,
        tally: &mut Tally,
    ) -> Result<(), ClientError> {
        let mut stream = TimedStream::new(socket.into());
        stream.until(Instant::now() + self.options.handshake_timeout);
        let offered = self.exports.offered();
        let tls = self.options.tls.as_ref().map(|tls| tls.config());
        let negotiated = negotiate(stream, member, &offered, tls.as_ref())
            .map_err(|error| if member.is_displaced() { NoPlace::Displaced.into() } else { error })?;
        let Some((negotiated, connected)) = negotiated else {
            return Ok(());
        };
        // Dropped before the place is given up: when the client counts as gone, the traces of its work
        // are wiped. Only for clients in transmission, since locked memory is scarce.
        let _stack = cryptline_sys::StackGuard::new();
        let id = offered.id(negotiated.export);
        let id = id.ok_or(ProtocolError::UnknownExport)?;
        // It may have been removed meanwhile.
        let visit = self.exports.enter(id);
        let visit = visit.ok_or(ProtocolError::UnknownExport)?;
        client.tls = negotiated.tls;
        client.export = Some(visit.export.name.clone());
        (self.options.log)(&NbdEvent::Began(client.clone()));
        let limits = self.limits(&offered.offer, &negotiated, member, &visit.export);
        let served =
            limits.and_then(|limits| self.serve_export(&visit.export, (negotiated, connected), limits, member, tally));
        drop(visit);
        if let Some(closing) = self.exports.left(id) {
            // Whoever serves is told by `Exports::on_closed`, too.
            if let Err(lost) = self.close(closing) {
                lock(&self.lost).get_or_insert(lost);
            }
        }
        served
    }

    /// A client in transmission.
    fn serve_export(
        &self,
        export: &Export,
        (negotiated, connected): (Negotiated, Connected),
        limits: ExportLimits,
        member: &ClientPlace,
        tally: &mut Tally,
    ) -> Result<(), ClientError> {
        let terms = |meter| Terms {
            gate: export.gate.clone(),
            limits,
            context: negotiated.base_allocation.unwrap_or(0),
            meter,
        };
        export.stats.metered(|meter| {
            let (orders, terms) = (Arc::clone(member.orders()), terms(meter.clone()));
            let open = |ring: &mut _| NbdWire::new(ring, connected, terms);
            let mut lane = Lane::new(&export.gate, self.options.backend, orders, meter, open)?;
            lane = lane.looking_out(self.options.poll);
            let result = lane.run().map_err(ClientError::Connection);
            *tally = lane.tally();
            result
        })
    }

    /// Returns what the client's requests must keep to, as it was told.
    fn limits(
        &self,
        offer: &ServerOffer,
        negotiated: &Negotiated,
        member: &ClientPlace,
        export: &Export,
    ) -> Result<ExportLimits, ClientError> {
        let info = offer.exports().get(negotiated.export);
        let info = info.ok_or(ProtocolError::UnknownExport)?;
        let geometry = export.gate.geometry();
        let mut limits = ExportLimits::new(info, negotiated, geometry.write_zeroes);
        if !negotiated.block_size_agreed && limits.min_block > geometry.logical_block {
            (self.options.log)(&NbdEvent::SmallBlocks {
                client: member.id(),
                minimum: limits.min_block,
                block: geometry.logical_block,
            });
            limits.min_block = geometry.logical_block;
        }
        Ok(limits)
    }
}
