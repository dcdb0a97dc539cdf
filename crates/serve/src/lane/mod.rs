//! A lane: one thread that serves one connection, virtqueue, ublk queue or FUSE clone, with a channel
//! into the device and buffers of its own. It takes no lock and shares nothing with other lanes but the
//! device, and a count of those that look out.
//!
//! ```text
//! loop {
//!     take_requests   requests, and bytes of writes, from the wire; stops when out of room
//!     pump            begins chunks of jobs while buffers last
//!     wire.arm        all replies so far, and the next receive
//!     (again, where more has arrived already; a few times, then the ring is looked at first)
//!     look out        for a moment, where that is wanted: to be woken costs more than a small request
//!     ring.wait       submits all of this and waits: a busy loop's only system call
//!     reap            the wire first, then the device: completions become replies
//! }
//! ```
//!
//! A front brings a [`Wire`], which knows its protocol. Everything else is the same for all fronts: cutting
//! requests into chunks, writing zeros where the device cannot zero, the flush that a durable discard
//! owes, turns between long and short jobs, stopping when nobody waits for the answers, the meter.
//!
//! The way of a 4 KiB read: [`Wire::take`] → `pump` → gate, crypt, file → `complete` → [`Wire::give`],
//! [`Wire::end`] → [`Wire::arm`]. Memory is bounded from the start: [`JOBS_MAX`] jobs and the two arenas of
//! its [`LaneRoom`]. Tables grow to what was under way at a time, so that a lane that has nothing to do
//! holds little; after that nothing is allocated. A wire takes a request only while there is a free job, so
//! nothing has to wait in the middle of one. Between two chunks the lane looks at its [`Orders`] and for its peer, so that
//! neither the length of a request nor the speed of the medium delays a stop.
//!
//! Requests that were taken are finished as long as replies can be sent, even to a client that has closed only its
//! sending side. Once the client is gone, no chunk begins. A lane that is to abandon its work is woken, since its
//! medium may never answer.

mod clock;
mod job;
mod lookout;
mod orders;
mod poll;
mod seats;
mod tally;
mod wire;
mod work;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cryptline_engine::slab::Slab;
use cryptline_engine::{Arena, BackendChoice, Channel, Completion, Gate, OpenError, Ring};
use cryptline_sys::Backend;

use self::clock::Clock;
use self::job::LaneJob;
use self::lookout::Lookout;
use crate::stats::{LaneMeter, Times};

pub use self::job::CHUNK;
pub use self::orders::Orders;
pub use self::poll::{Poll, Why};
pub use self::tally::Tally;
pub use self::wire::{Brought, JobId, LaneRoom, Wire, WireInput, WireRequest, WriteChunk};

/// Requests of one lane served at a time.
pub const JOBS_MAX: usize = 64;
/// Bytes of a small buffer, of which there is one for each job.
pub const SMALL: usize = 16 * 1024;
/// Chunk buffers: enough for one read of 32 MiB that is wanted whole.
pub const LARGE_COUNT: usize = 128;
/// Every buffer may be in flight below, plus a flush or discard for each job, plus the wire's own.
const RING_DEPTH: u32 = 512;

/// Turns in a row that take what has arrived without a look at the ring. Over a medium that answers at once, a peer that
/// goes on asking makes each turn such a one. Meanwhile completions are not taken in, and what was submitted, such as
/// an interrupt, is not handed over. A look is a system call at most, so it costs these turns little.
const TURNS_UNLOOKED: u32 = 8;

/// One thread's hold on a device, or on several, and the wire that it serves.
pub struct Lane<W: Wire> {
    channel: Channel,
    wire: W,
    jobs: Slab<LaneJob<W::Tag>>,
    /// Jobs with chunks to begin, oldest first; each once ([`LaneJob::is_pending`]).
    pending: VecDeque<usize>,
    /// Chunks begun since the last look for the peer.
    begun_unwatched: u32,
    /// Turns since the last look at the ring.
    unlooked: u32,
    room: LaneRoom,
    done: Vec<Completion>,
    orders: Arc<Orders>,
    /// Reads that nobody waits for are waited for nevertheless.
    awaits_reads: bool,
    /// One for each device, or none.
    meters: Vec<Arc<LaneMeter>>,
    clock: Clock,
    tally: Tally,
    lookout: Lookout,
}

impl<W: Wire> Lane<W> {
    /// A lane into the device behind `gate`, for the calling thread. `open` makes the wire.
    pub fn new(
        gate: &Gate,
        backend: BackendChoice,
        orders: Arc<Orders>,
        meter: Option<Arc<LaneMeter>>,
        open: impl FnOnce(&mut Ring) -> io::Result<W>,
    ) -> Result<Self, OpenError> {
        let meters = meter.into_iter().collect();
        Self::over(gate, &[], backend, orders, meters, open)
    }

    /// The same into several devices. [`Wire::device`] tells them apart. There is a meter for each, or none.
    pub fn over(
        gate: &Gate,
        others: &[Gate],
        backend: BackendChoice,
        orders: Arc<Orders>,
        meters: Vec<Arc<LaneMeter>>,
        open: impl FnOnce(&mut Ring) -> io::Result<W>,
    ) -> Result<Self, OpenError> {
        let mut channel = Channel::open_apart(gate, others, backend, RING_DEPTH)?;
        channel.stopwatch().switch(!meters.is_empty());
        let small = channel.buffers(SMALL, JOBS_MAX).map_err(OpenError::Ring)?;
        let large = Arena::new(CHUNK as usize, LARGE_COUNT).map_err(OpenError::Ring)?;
        // Before the wire tells anybody that it is there, who may have orders for it at once.
        orders.are_heard_by(channel.ring_mut().waker().map_err(OpenError::Ring)?);
        let wire = open(channel.ring_mut()).map_err(OpenError::Ring)?;
        Ok(Self {
            channel,
            wire,
            jobs: Slab::new(JOBS_MAX),
            pending: VecDeque::new(),
            begun_unwatched: 0,
            unlooked: 0,
            room: LaneRoom::new(small, large, JOBS_MAX),
            done: Vec::new(),
            orders,
            awaits_reads: gate.traits().awaits_reads || others.iter().any(|gate| gate.traits().awaits_reads),
            meters,
            clock: Clock::start(),
            tally: Tally::default(),
            lookout: Lookout::default(),
        })
    }

    /// Looks out for the next request, or the end of one, before it waits, as `poll` says.
    #[must_use]
    pub fn looking_out(mut self, poll: Poll) -> Self {
        // Without io_uring each look is a system call.
        if self.channel.ring().backend() != Backend::Syscalls {
            self.lookout = Lookout::new(poll);
        }
        self
    }

    /// Serves the wire until it is over. Every request taken is finished first, unless the peer is gone:
    /// then no more chunks are begun, and reads in flight are left behind (but see [`Gate::awaits_reads`]). A peer that has only stopped
    /// asking is answered to the end.
    ///
    /// A lane that is told to abandon its work ends at the next chunk, with an error if requests were
    /// unfinished. So does one whose peer [broke the protocol](Wire::breach). What is in flight is left to the system: none of it was acknowledged.
    pub fn run(&mut self) -> io::Result<()> {
        let result = self.serve();
        if let Some(meter) = self.meters.first() {
            meter.set_last_times(self.times());
        }
        result.and_then(|()| self.wire.breach().map_or(Ok(()), |breach| Err(io::Error::other(breach))))
    }

    /// Returns what has been done so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    fn serve(&mut self) -> io::Result<()> {
        loop {
            self.take_requests();
            self.pump();
            if self.orders.is_abandoned() {
                return self.given_up();
            }
            let look = self.lookout.limit();
            let ring = self.channel.ring_mut();
            let more = match look {
                Some(_) => self.wire.arm_to_look(ring, &self.room),
                None => self.wire.arm(ring, &self.room),
            };
            if more && self.unlooked < TURNS_UNLOOKED {
                self.unlooked += 1;
                continue;
            }
            self.unlooked = 0;
            if !more && self.is_finished() {
                return Ok(());
            }
            match look {
                _ if more || self.can_begin_more() || self.wire.has_work() => {
                    self.lookout.needs_no_look();
                    self.channel.ring_mut().poll()?;
                }
                Some(limit) if !self.look_out(limit)? => continue,
                Some(_) => {}
                None => self.wait()?,
            }
            self.reap();
            self.publish_times();
        }
    }

    /// Reads in flight for a peer that is gone are not waited for, unless the queue would be lost with them.
    fn is_finished(&self) -> bool {
        let may_leave = !self.awaits_reads && self.wire.is_gone();
        let is_done = self.jobs.is_empty() || may_leave && self.jobs.iter().all(LaneJob::only_reads);
        is_done && self.wire.is_over()
    }

    fn given_up(&self) -> io::Result<()> {
        match self.jobs.len() {
            0 => Ok(()),
            count => {
                Err(io::Error::other(format!("the server stops, and {count} of its requests were not done in time")))
            }
        }
    }

    /// Looks for something to do, and says whether there is.
    fn look_out(&mut self, limit: Duration) -> io::Result<bool> {
        if self.has_something()? {
            // A wait would have ended at once as well, so it says nothing for looks.
            self.lookout.needs_no_look();
            return Ok(true);
        }
        if !self.lookout.begins() {
            return Ok(false);
        }
        let start = Instant::now();
        loop {
            std::hint::spin_loop();
            let has_found = self.has_something()?;
            let took = start.elapsed();
            if has_found || took >= limit {
                self.lookout.looked(has_found, took);
                return Ok(has_found);
            }
        }
    }

    fn has_something(&mut self) -> io::Result<bool> {
        Ok(self.channel.ring_mut().look()? || self.wire.has_more())
    }

    /// Waits for something to happen. That time does not count as active.
    fn wait(&mut self) -> io::Result<()> {
        self.lookout.waits();
        let is_metered = !self.meters.is_empty();
        if is_metered {
            self.clock.fall_asleep();
        }
        let waited = self.channel.ring_mut().wait();
        if is_metered {
            self.clock.wake_up();
        }
        waited
    }

    fn reap(&mut self) {
        self.wire.reap(self.channel.ring_mut());
        let mut done = std::mem::take(&mut self.done);
        self.channel.take(&mut done);
        for completion in done.drain(..) {
            self.complete(completion);
        }
        self.done = done;
    }

    fn publish_times(&mut self) {
        if let Some(meter) = self.meters.first()
            && self.clock.is_time_to_publish()
        {
            meter.set_times(self.times());
        }
    }

    /// Returns what the time went into, so far. Read on this thread, so no cipher is in the middle of its work.
    fn times(&self) -> Times {
        let elsewhere = self.channel.stopwatch().elsewhere_ns();
        Times {
            crypto_ns: self.channel.stopwatch().total_ns(),
            active_ns: self.clock.active_ns().saturating_add(elsewhere),
            busy_ns: self.clock.processor_ns(),
        }
    }
}

#[cfg(test)]
#[path = "turns_tests.rs"]
mod turns_tests;
#[cfg(test)]
#[path = "zones_tests.rs"]
mod zones_tests;
