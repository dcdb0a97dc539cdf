//! The server: for each disk a socket, and one front-end at a time on it.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cryptline_engine::{BackendChoice, Gate, Geometry, OpenError};
use cryptline_sys::lock;

use super::config::{DiskShape, SERIAL};
use super::connection::FrontEndConnection;
use super::control::VhostSession;
use super::event::VhostEvent;
use super::queue::{QUEUE_SIZE_MAX, QUEUE_SIZE_MIN};
use super::running::{Grace, Host};
use crate::facts::Facts;
use crate::lane::Poll;
use crate::net::{StopHandle, is_stopped_within, wait_for_client};
use crate::stats::ExportStats;
use crate::{Flushed, flush_all};

/// Where front-ends come from.
pub enum FrontEnds {
    /// They connect, one after another.
    Listener(UnixListener),
    /// There is one, which has connected already.
    Connected(UnixStream),
}

/// One volume to serve.
pub struct VhostDisk {
    /// Name in messages.
    pub name: String,
    /// The volume.
    pub gate: Gate,
    /// The logical block in bytes that a driver is told, where it is larger than the volume's.
    pub block: u32,
    /// Answer to a driver that asks for the disk's name; 20 bytes of it.
    pub serial: String,
    /// Virtqueues, each served by a thread of its own.
    pub queues: u16,
    /// The size that each virtqueue has at most: a power of two from [`QUEUE_SIZE_MIN`] to [`QUEUE_SIZE_MAX`]. A driver
    /// is told that its requests may have as many segments as fit, up to 254; without it, as fit into one of 128.
    pub queue_size: Option<u16>,
    /// Its counters.
    pub stats: Arc<ExportStats>,
    /// Where its front-ends come from.
    pub front: FrontEnds,
}

/// How to serve.
pub struct VhostServerOptions {
    /// How queues do their I/O.
    pub backend: BackendChoice,
    /// How long a queue looks out for the next request before it waits. Meanwhile the driver need not kick.
    pub poll: Poll,
    /// How long a stopping server finishes requests, from the stop on and for all disks together. What is unfinished
    /// then ends at its next chunk, or is left behind a second later. As long again the last flushes may take.
    pub grace: Duration,
    /// Is told of each front-end that comes and goes, and of what goes wrong.
    pub log: Arc<dyn Fn(&VhostEvent) + Send + Sync>,
}

/// A volume that can not be served.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// Drivers would have to know its zones.
    #[error("{0}: a zoned volume can not be served over vhost-user")]
    Zoned(String),
    /// No guest could use it.
    #[error("{0}: its logical block of {1} bytes is larger than a page")]
    Block(String, u32),
    /// No virtqueue is like that.
    #[error("{0}: a virtqueue can not have {1} places")]
    QueueSize(String, u16),
}

/// Serves disks to virtual machines.
pub struct VhostServer {
    disks: Vec<VhostDisk>,
    options: VhostServerOptions,
}

impl VhostServer {
    /// A server; nothing happens before [`run`](Self::run).
    pub fn new(disks: Vec<VhostDisk>, options: VhostServerOptions) -> Result<Self, DiskError> {
        for disk in &disks {
            let geometry = disk.gate.geometry();
            let block = disk.block.max(geometry.logical_block);
            if geometry.zones.is_some() {
                return Err(DiskError::Zoned(disk.name.clone()));
            }
            if block > 4096 {
                return Err(DiskError::Block(disk.name.clone(), block));
            }
            let is_possible = |size: &u16| size.is_power_of_two() && (QUEUE_SIZE_MIN..=QUEUE_SIZE_MAX).contains(size);
            if let Some(size) = disk.queue_size
                && !is_possible(&size)
            {
                return Err(DiskError::QueueSize(disk.name.clone(), size));
            }
        }
        Ok(Self { disks, options })
    }

    /// Serves front-ends until `stop` is used, then lets requests end, and flushes every disk. Where a flush fails, the
    /// result names the first such disk.
    ///
    /// A server whose front-ends were all connected from the beginning ends when they have left. One that can not serve
    /// one of its disks stops as a whole, and the error says why: nobody would notice before the others end.
    pub fn run(self, stop: &StopHandle) -> io::Result<Flushed> {
        let server = &self;
        let grace = Arc::new(Grace::new(stop, self.options.grace));
        let grace = &grace;
        let served = std::thread::scope(|scope| {
            let spawn = |disk| {
                let serve = move || stopping_all(stop, server.serve(disk, stop, grace));
                let thread = std::thread::Builder::new().name("vhost-user".to_owned());
                let thread =
                    thread.spawn_scoped(scope, serve).map_err(|error| io::Error::other(OpenError::Thread(error)));
                stopping_all(stop, thread)
            };
            let threads: Vec<_> = self.disks.iter().map(spawn).collect();
            let ends = threads.into_iter().map(|thread| thread?.join().unwrap_or(Ok(())));
            // All of them, whatever the first says.
            ends.fold(Ok(()), Result::and)
        });
        let volumes = self.disks.iter().map(|disk| (disk.name.as_str(), &disk.gate));
        let flushed = flush_all(volumes, self.options.backend, self.options.grace);
        served.map(|()| flushed)
    }

    /// One disk, front-end after front-end.
    fn serve(&self, disk: &VhostDisk, stop: &StopHandle, grace: &Arc<Grace>) -> io::Result<()> {
        let facts = Arc::new(Facts::new());
        let serve_one =
            |stream, number| self.serve_one(disk, &facts, FrontEndConnection::new(stream, stop), grace, number);
        match &disk.front {
            FrontEnds::Connected(stream) => {
                serve_one(stream.try_clone()?, 1);
                // Ours stays open for as long as the server runs.
                let _ = stream.shutdown(Shutdown::Both);
                Ok(())
            }
            FrontEnds::Listener(listener) => {
                listener.set_nonblocking(true)?;
                let mut number = 0;
                while let Some(stream) = self.accept(listener, stop)? {
                    number += 1;
                    serve_one(stream, number);
                }
                Ok(())
            }
        }
    }

    /// The next front-end; `None` when the server is to stop.
    fn accept(&self, listener: &UnixListener, stop: &StopHandle) -> io::Result<Option<UnixStream>> {
        while wait_for_client(std::slice::from_ref(listener), stop)? {
            match listener.accept() {
                Ok((stream, _)) => return Ok(Some(stream)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    (self.options.log)(&VhostEvent::NotAccepted(error));
                    // Out of descriptors, most likely.
                    is_stopped_within(stop, Some(Duration::from_millis(50)));
                }
            }
        }
        Ok(None)
    }

    fn serve_one(
        &self,
        disk: &VhostDisk,
        facts: &Arc<Facts>,
        connection: FrontEndConnection,
        grace: &Arc<Grace>,
        number: u64,
    ) {
        let log = Arc::clone(&self.options.log);
        let name = || disk.name.clone();
        log(&VhostEvent::Connected { disk: name(), number });
        let (since, told) = (Instant::now(), name());
        let trouble = Arc::clone(&log);
        let host = Host {
            gate: disk.gate.clone(),
            facts: Arc::clone(facts),
            serial: serial(&disk.serial),
            stats: Arc::clone(&disk.stats),
            backend: self.options.backend,
            poll: self.options.poll,
            connection,
            grace: Arc::clone(grace),
            tally: Arc::default(),
            log: Arc::new(move |line| {
                trouble(&VhostEvent::Trouble { disk: told.clone(), number, line: line.to_owned() });
            }),
        };
        let shape = DiskShape {
            geometry: Geometry { size: host.size(), ..*disk.gate.geometry() },
            block: disk.block,
            queues: disk.queues.max(1),
            queue_size: disk.queue_size,
        };
        let ended = VhostSession::new(&host, shape).run();
        log(&VhostEvent::Disconnected {
            disk: name(),
            number,
            tally: *lock(&host.tally),
            lasted: since.elapsed(),
            why: ended.err().map(|ended| ended.to_string()),
        });
    }
}

/// The result; where it is an error, all disks stop.
fn stopping_all<T>(stop: &StopHandle, result: io::Result<T>) -> io::Result<T> {
    if result.is_err() {
        stop.stop();
    }
    result
}

/// As many bytes as fit, then zeros.
fn serial(text: &str) -> [u8; SERIAL] {
    let mut serial = [0; SERIAL];
    serial.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
    serial
}
