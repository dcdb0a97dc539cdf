//! One connection's transmission phase: one thread, one ring, no locks.
//!
//! ```text
//! loop {
//!     take_requests    intake   parse what has arrived into jobs; stops when out of room
//!     pump             work     begin chunks of jobs while buffers last
//!     transport.send            all replies so far, one message
//!     (again, where what pump has finished made room for requests that are here already)
//!     receive          intake   more requests, or a payload into its own buffer
//!     ring.wait                 submits all of this and waits: a busy loop's only system call
//!     reap             work     socket first, then the device: completions become replies
//! }                    answer   the replies
//! ```
//!
//! The way of a 4 KiB read: [`Session::take_requests`] → [`Session::pump`] → gate, crypt, file →
//! [`Session::complete`] → [`Transport::send`]. All memory is allocated when the session starts.
//!
//! Bounds: [`JOBS_MAX`] requests and the two arenas bound a connection's memory. A request is
//! taken from the socket only while there is a free job and room in the reply batch for whatever
//! all jobs can add, so nothing here ever has to wait for room in the middle of a request; a client
//! that does not read its replies is simply not read from. A request is served in chunks, and between
//! them the session looks at its [`Orders`] and for its client, so neither the length of what was asked
//! nor the speed of the medium decides how long it stays when nobody wants its answers any more.

mod answer;
mod intake;
mod work;

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cryptline_engine::slab::Slab;
use cryptline_engine::{BackendChoice, Completion, Gate, GatedQueue, OpenError};
use cryptline_sys::{Arena, Buffer, Ring};
use rustls::ServerConnection;

use super::clients::Orders;
use super::export::Export;
use super::job::{CHUNK, Job};
use super::stats::{Meter, Times};
use super::transport::Transport;
use cryptline_nbd::{ExportLimits, NbdError, Negotiated};

/// Requests of one connection served at a time.
pub const JOBS_MAX: usize = 64;
/// Bytes of a small buffer, of which there is one for each job.
const SMALL: usize = 16 * 1024;
/// Chunk buffers: enough for one largest read (32 MiB) to be gathered whole.
const LARGE_COUNT: usize = 128;
/// Every buffer may be in flight below, plus a flush or discard for each job, plus the socket.
const RING_DEPTH: u32 = 512;
/// Room in the reply batch kept for the jobs already accepted: 64 largest reads, all holes.
const REPLY_HEADER_RESERVE: usize = 300 * 1024;
const REPLY_PARTS_RESERVE: usize = 480;
/// How often the processor time is looked up for the statistics.
const TIMES_INTERVAL: Duration = Duration::from_millis(50);

/// What a session needs to begin.
pub(super) struct Start<'a> {
    pub socket: Arc<OwnedFd>,
    pub tls: Option<ServerConnection>,
    /// Bytes that arrived behind the handshake.
    pub leftover: &'a [u8],
    pub export: &'a Export,
    pub negotiated: Negotiated,
    pub limits: ExportLimits,
    pub backend: BackendChoice,
    pub orders: Arc<Orders>,
}

/// What the next bytes from the client are.
enum Expect {
    Header,
    /// The payload of a write; `buffer` is away while it is received into.
    Payload {
        job: usize,
        buffer: Option<Buffer>,
        filled: usize,
    },
    /// The payload of a write that was refused.
    Drain {
        left: usize,
        cookie: u64,
        error: NbdError,
    },
}

/// A large read gathered for a client without structured replies.
struct Gathering {
    job: Option<usize>,
    parts: Vec<Option<Buffer>>,
}

pub(super) struct Session {
    ring: Ring,
    queue: GatedQueue,
    gate: Gate,
    transport: Transport,
    limits: ExportLimits,
    context: u32,
    jobs: Slab<Job>,
    /// Jobs with chunks still to begin, oldest first; each once ([`Job::is_pending`]).
    pending: VecDeque<usize>,
    /// Chunks begun since the last look for the client.
    begun_unwatched: u32,
    expect: Expect,
    gathering: Gathering,
    /// A large read waits until it can have all its buffers; nobody may take any before it.
    reserving: bool,
    small: Arc<Arena>,
    large: Arc<Arena>,
    done: Vec<Completion>,
    /// No more requests are taken: the client said goodbye, is gone, or made no sense.
    closing: bool,
    /// What the server wants of this session.
    orders: Arc<Orders>,
    meter: Option<Arc<Meter>>,
    clock: Clock,
}

/// When this thread was not waiting, for the statistics.
struct Clock {
    awake_since: Instant,
    /// Time awake before that.
    active: Duration,
    published: Instant,
}

impl Session {
    pub fn new(start: Start<'_>) -> Result<Self, OpenError> {
        let ring_error = OpenError::Ring;
        let mut ring = Ring::new(start.backend, RING_DEPTH).map_err(ring_error)?;
        let small = Arena::new(SMALL, JOBS_MAX).map_err(ring_error)?;
        let large = Arena::new(CHUNK as usize, LARGE_COUNT).map_err(ring_error)?;
        ring.register(&small);
        let mut queue = start.export.gate.open_queue(&mut ring)?;
        let meter = start.export.stats.connect();
        queue.measure(meter.is_some());
        let transport = Transport::new(&mut ring, start.socket, start.tls, start.leftover)
            .map_err(ring_error)?;
        Ok(Self {
            ring,
            queue,
            gate: start.export.gate.clone(),
            transport,
            limits: start.limits,
            context: start.negotiated.base_allocation.unwrap_or(0),
            jobs: Slab::new(JOBS_MAX),
            pending: VecDeque::with_capacity(JOBS_MAX),
            begun_unwatched: 0,
            expect: Expect::Header,
            gathering: Gathering {
                job: None,
                parts: (0..LARGE_COUNT).map(|_| None).collect(),
            },
            reserving: false,
            small,
            large,
            done: Vec::with_capacity(RING_DEPTH as usize),
            closing: false,
            orders: start.orders,
            meter,
            clock: Clock {
                awake_since: Instant::now(),
                active: Duration::ZERO,
                published: Instant::now(),
            },
        })
    }

    /// Serves the client until it leaves; every request taken is finished first, as far as anybody
    /// waits for its end. A client that is gone is one that can not be sent anything: of its requests
    /// no more chunks are begun. One that only has stopped to ask is answered to the end.
    ///
    /// When the server gives the session up it ends at the next chunk, and what is in flight is left
    /// to the system: none of it was acknowledged.
    pub fn run(&mut self) -> io::Result<()> {
        loop {
            self.take_requests();
            self.pump();
            if self.orders.is_abandoned() {
                return self.given_up();
            }
            self.transport.send(&mut self.ring);
            if self.can_take_more() {
                continue;
            }
            self.receive();
            if self.is_finished() {
                return Ok(());
            }
            if self.can_begin_more() {
                self.ring.poll()?;
            } else {
                self.wait()?;
            }
            self.reap();
            self.publish_times();
        }
    }

    /// The meter this session has written, to the end.
    pub fn last_meter(&self) -> Option<&Arc<Meter>> {
        let meter = self.meter.as_ref();
        meter.inspect(|meter| meter.set_last_times(self.times()))
    }

    /// A read for nobody need not be waited for.
    fn is_finished(&self) -> bool {
        let mut jobs = self.jobs.iter();
        let is_done = self.jobs.is_empty() || self.transport.broken && jobs.all(Job::only_reads);
        self.closing && is_done && !self.transport.has_unsent()
    }

    fn given_up(&self) -> io::Result<()> {
        match self.jobs.len() {
            0 => Ok(()),
            count => Err(io::Error::other(format!(
                "the server stops, and {count} of its requests were not done in time"
            ))),
        }
    }

    /// Waits for something to happen, and counts that time as none of ours.
    fn wait(&mut self) -> io::Result<()> {
        if self.meter.is_none() {
            return self.ring.wait();
        }
        self.clock.active += self.clock.awake_since.elapsed();
        let waited = self.ring.wait();
        self.clock.awake_since = Instant::now();
        waited
    }

    fn reap(&mut self) {
        let arrived = self.transport.reap(&mut self.ring);
        if let (Some((returned, len)), Expect::Payload { buffer, filled, .. }) =
            (arrived.direct, &mut self.expect)
        {
            *buffer = Some(returned);
            *filled += len;
        }
        let mut done = std::mem::take(&mut self.done);
        self.queue.poll(&mut self.ring, &mut done);
        for completion in done.drain(..) {
            self.complete(completion);
        }
        self.done = done;
    }

    fn publish_times(&mut self) {
        if let Some(meter) = &self.meter
            && self.clock.published.elapsed() >= TIMES_INTERVAL
        {
            meter.set_times(self.times());
            self.clock.published = Instant::now();
        }
    }

    /// What the time went into, so far. Read on this thread, so no cipher is in the middle of its work.
    fn times(&self) -> Times {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let active = self.clock.active + self.clock.awake_since.elapsed();
        let elsewhere = self.queue.crypto_time_elsewhere_ns();
        Times {
            crypto_ns: self.queue.crypto_time_ns(),
            active_ns: nanoseconds(active).saturating_add(elsewhere),
            busy_ns: nanoseconds(Duration::try_from(cpu).unwrap_or_default()),
        }
    }
}

/// A buffer of `len` bytes: a small one where that is enough and there is one.
fn take_buffer(small: &Arc<Arena>, large: &Arc<Arena>, len: usize) -> Option<Buffer> {
    let from_small = if len <= SMALL { small.take() } else { None };
    let mut buffer = from_small.or_else(|| large.take())?;
    buffer.set_len(len);
    Some(buffer)
}
