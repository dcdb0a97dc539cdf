//! `nbd`: a range of bytes behind any NBD server.
//!
//! ```text
//! request ─► in-flight table ─► batch of headers and payloads ─► socket
//!                  ▲                                               │
//!                  └── header, then data into the request's own buffer
//! ```
//!
//! Each queue has a connection of its own, so nothing is shared on the path of a request. That takes a server that
//! lets one flush cover the writes of all connections (`CAN_MULTI_CONN`); with any other there is one queue at a
//! time.
//!
//! A flush is the server's word, and only as good as its process: one that was started anew knows nothing of writes
//! that its predecessor acknowledged. So a lost connection latches the device, and each new connection is checked against
//! one that was there before any write ([`pool`]). Whoever wants a lost connection made again has each write made durable
//! before it is acknowledged ([`again`]).
//!
//! Where there can be several connections, one more asks for holes ([`status`]).
//!
//! Through TLS ([`tls`]), what is sent and what comes goes through one more pair of buffers.
//!
//! Nothing locks an export: other clients can write to it at the same time, and the protocol cannot prevent that.
//!
//! A queue that goes with a change under way latches the device: servers end a connection before its requests, and the
//! change could overtake a later one. A lane waits for reads as well (`Device::awaits_reads`), since their connection
//! would go with them and the sandbox allows no new one. A server without flush gets every change with FUA; with
//! neither, the export is read-only or refused. Where it has no FUA, a durable write is a write and a flush behind it.
//!
//! A server whose export has grown takes more connections, which use as much of it as older ones know. One that comes
//! back with an export of another size is not taken for the same.

mod again;
mod connect;
mod coverage;
mod goodbye;
mod pending;
mod pool;
mod queue;
mod replies;
mod status;
mod tls;
mod witness;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cryptline_nbd::negotiate::Agreed;
use cryptline_nbd::{NbdUri, TransmissionFlags};
use cryptline_net::TimedStream;
use cryptline_sys::{Buffer, Ring};

use crate::{Connections, Device, Extent, Fault, Geometry, OpenError, Queue, Traits};
use connect::{NbdPeer, OtherEnd};
use pool::{ConnectionPool, Link};
use queue::NbdQueue;
use status::StatusClient;
use witness::Witness;

/// An export of an NBD server as a device.
pub struct NbdDevice(Arc<NbdShared>);

/// State common to all queues.
struct NbdShared {
    server: NbdPeer,
    agreed: Agreed,
    /// Whom the first connection reached.
    peer: OtherEnd,
    geometry: Geometry,
    pool: ConnectionPool,
    status: StatusClient,
    /// For how long a lost connection is made again.
    reconnect: Option<Duration>,
    /// Time that the first connection took.
    took: Duration,
    /// A connection was lost, and with it, perhaps, what the server had acknowledged.
    lost: AtomicBool,
}

impl NbdDevice {
    /// Connects to an export.
    ///
    /// Errors: there is no such server or export, or it cannot hold a disk. An export that is written to must be able
    /// to make writes durable.
    pub fn open(uri: &NbdUri, read_only: bool) -> Result<Self, OpenError> {
        Self::open_again(uri, read_only, None)
    }

    /// The same; a connection that is lost is made again for as long as `reconnect` says, where nothing can have been
    /// lost with it ([`again`]).
    ///
    /// Errors: an export that is written to must be able to make each write durable.
    pub fn open_again(uri: &NbdUri, read_only: bool, reconnect: Option<Duration>) -> Result<Self, OpenError> {
        let server = NbdPeer::new(uri)?;
        let began = Instant::now();
        let (line, agreed, peer) = server.connect()?;
        let took = began.elapsed();
        let geometry = geometry(&agreed, read_only);
        let wrong = |why: String| Err(server.error(why));
        if geometry.size == 0 {
            return wrong(format!("the export has {} bytes, too few", agreed.size));
        }
        if i64::try_from(agreed.size).is_err() {
            return wrong(format!("the export has {} bytes, too many", agreed.size));
        }
        if agreed.block_sizes.maximum < geometry.logical_block {
            return wrong(format!(
                "the server takes requests of at most {} bytes, less than a sector",
                agreed.block_sizes.maximum
            ));
        }
        let can = |flag| agreed.flags.contains(flag);
        let is_durable = can(TransmissionFlags::SEND_FLUSH) || can(TransmissionFlags::SEND_FUA);
        if !geometry.read_only && !is_durable {
            return wrong(
                "the server offers neither flush nor FUA, so nothing could be known to be durable; open it read-only"
                    .to_owned(),
            );
        }
        if reconnect.is_some() && !geometry.read_only && !can(TransmissionFlags::SEND_FUA) {
            return wrong(
                "the server does not make single writes durable (NBD_FLAG_SEND_FUA), so it could forget some with a lost connection; open it without making connections again"
                    .to_owned(),
            );
        }
        let is_shared = can(TransmissionFlags::CAN_MULTI_CONN);
        let witness = if needs_witness(&agreed, &geometry) {
            let (line, _) = server.again(&agreed, peer)?;
            Some(witness(line, reconnect, Instant::now() + connect::PATIENCE))
        } else {
            None
        };
        let first = Link::new(line).map_err(OpenError::Ring)?;
        Ok(Self(Arc::new(NbdShared {
            pool: ConnectionPool::new(first, witness, is_shared),
            status: StatusClient::default(),
            server,
            agreed,
            peer,
            geometry,
            reconnect,
            took,
            lost: AtomicBool::new(false),
        })))
    }

    /// Bytes of the export, which need not end with a block.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.agreed.size
    }

    /// Tells if there can be more than one queue at a time.
    #[must_use]
    pub fn takes_connections(&self) -> bool {
        self.0.can(TransmissionFlags::CAN_MULTI_CONN)
    }

    /// Tells if a change under way to this server can go out once more, since its end can be known.
    #[must_use]
    pub fn repeats_changes(&self) -> bool {
        self.0.reconnect.is_some() && self.0.pool.knows_process()
    }
}

impl Device for NbdDevice {
    /// A connection goes with the reads on it, and there may be no other. It makes those that take the place of lost
    /// ones.
    fn traits(&self) -> Traits {
        let is_again = self.0.reconnect.is_some();
        let is_tcp = matches!(self.0.peer, OtherEnd::Tcp(_));
        Traits {
            queues: if self.takes_connections() { usize::MAX } else { 1 },
            awaits_reads: true,
            connects: Connections { tcp: is_again && is_tcp, unix: is_again && !is_tcp, by_library: false },
            ..Traits::base(self.0.geometry)
        }
    }

    fn open_queue(&self, ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        // Before there is a connection that could get lost.
        let received = Buffer::alloc(replies::SIZE).map_err(OpenError::Ring)?;
        let waker = self.0.reconnect.map(|_| ring.waker()).transpose();
        let waker = waker.map_err(OpenError::Ring)?;
        let link = self.0.link()?;
        // Later others would wait for the answer.
        let link = if ring.serves_several() { self.0.confirmed(link) } else { link };
        Ok(Box::new(NbdQueue::new(&self.0, link, ring, received, waker)))
    }

    /// Asks the server and waits for it. What it does not tell is data.
    fn extent(&self, offset: u64, len: u64) -> Result<Extent, Fault> {
        Ok(self.0.extent(offset, len))
    }
}

impl NbdShared {
    fn can(&self, flag: TransmissionFlags) -> bool {
        self.agreed.flags.contains(flag)
    }

    fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// Tells if writes are made durable one by one: because the server knows no flush, or so that it can forget none.
    fn writes_through(&self) -> bool {
        !self.can(TransmissionFlags::SEND_FLUSH) || self.reconnect.is_some()
    }

    fn needs_witness(&self) -> bool {
        needs_witness(&self.agreed, &self.geometry)
    }
}

/// Of a server whose lost connections are made again, the process is to be known, too.
fn witness(line: TimedStream, reconnect: Option<Duration>, until: Instant) -> Witness {
    let mut witness = Witness::new(line);
    if reconnect.is_some() {
        witness.find_process(until);
    }
    witness
}

/// Tells if one more connection is needed to learn whether the server is still the same.
fn needs_witness(agreed: &Agreed, geometry: &Geometry) -> bool {
    let can = |flag| agreed.flags.contains(flag);
    let is_shared = can(TransmissionFlags::CAN_MULTI_CONN);
    is_shared && !geometry.read_only && can(TransmissionFlags::SEND_FLUSH)
}

fn geometry(agreed: &Agreed, read_only: bool) -> Geometry {
    let can = |flag| agreed.flags.contains(flag);
    let read_only = read_only || can(TransmissionFlags::READ_ONLY);
    let logical_block = agreed.block_sizes.minimum.max(connect::SECTOR);
    let preferred_block = agreed.block_sizes.preferred.clamp(4096, 1 << 20);
    Geometry {
        size: agreed.size - agreed.size % u64::from(logical_block),
        logical_block,
        preferred_block: preferred_block.max(logical_block),
        read_only,
        rotational: can(TransmissionFlags::ROTATIONAL),
        discard: !read_only && can(TransmissionFlags::SEND_TRIM),
        write_zeroes: !read_only && can(TransmissionFlags::SEND_WRITE_ZEROES),
        cache: can(TransmissionFlags::SEND_CACHE),
        answers_at_once: false,
        zones: None,
    }
}

#[cfg(test)]
#[path = "again_tests.rs"]
mod again_tests;
#[cfg(test)]
#[path = "tests/apart.rs"]
mod apart;
#[cfg(test)]
#[path = "tests/later.rs"]
mod later;
#[cfg(test)]
#[path = "queues_tests.rs"]
mod queues_tests;
#[cfg(test)]
#[path = "tests/scripted.rs"]
mod scripted;
#[cfg(test)]
#[path = "tests/spare.rs"]
mod spare;
#[cfg(test)]
#[path = "status_tests.rs"]
mod status_tests;
#[cfg(test)]
#[path = "hostile_tests.rs"]
mod tests;
