//! A channel: one thread's ring and its queue into a device, or into several, as one handle.
//!
//! ```text
//! loop of its own                         loop of somebody else's (epoll, asyncio)
//!
//! channel.submit(request)                 watch channel.descriptor()
//! channel.wait(&mut done)                 when it is readable: channel.poll(&mut done)
//! ```
//!
//! [`submit`](Channel::submit) gives a request back where the medium answers at once. All others come
//! out of [`poll`](Channel::poll) or [`wait`](Channel::wait), in any order.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use cryptline_sys::{Arena, BackendChoice, Ring, Stopwatch};

use crate::gate::{Gate, GatedQueue};
use crate::{Completion, Geometry, OpenError, Request, Submitted};

/// One thread's way into a device, with the I/O below it.
pub struct Channel {
    // Before the queue: what is in flight has ended when the queue goes.
    ring: Ring,
    queue: GatedQueue,
    /// Into more devices, numbered from 1.
    others: Vec<GatedQueue>,
}

impl Channel {
    /// Opens a queue into the device behind `gate`, for at most `depth` requests in flight.
    pub fn open(gate: &Gate, backend: BackendChoice, depth: u32) -> Result<Self, OpenError> {
        Self::open_all(gate, &[], backend, depth)
    }

    /// The same with queues into `others` on the same ring; `depth` is for all of them together.
    pub fn open_all(gate: &Gate, others: &[Gate], backend: BackendChoice, depth: u32) -> Result<Self, OpenError> {
        let ring = Ring::new(backend, depth).map_err(OpenError::Ring)?;
        Self::open_on(ring, gate, others)
    }

    /// The same where users of one device must not wait for the medium of another: this thread copies nothing for it.
    pub fn open_apart(gate: &Gate, others: &[Gate], backend: BackendChoice, depth: u32) -> Result<Self, OpenError> {
        let mut ring = Ring::new(backend, depth).map_err(OpenError::Ring)?;
        if !others.is_empty() {
            ring.serve_several();
        }
        Self::open_on(ring, gate, others)
    }

    fn open_on(mut ring: Ring, gate: &Gate, others: &[Gate]) -> Result<Self, OpenError> {
        let queue = gate.open_queue(&mut ring)?;
        let others = others.iter().map(|gate| gate.open_queue(&mut ring));
        let others = others.collect::<Result<_, _>>()?;
        Ok(Self { ring, queue, others })
    }

    /// Makes `count` buffers of `len` bytes, registered with the kernel with the first transfer where that is possible.
    pub fn buffers(&mut self, len: usize, count: usize) -> io::Result<Arc<Arena>> {
        let arena = Arena::new(len, count)?;
        self.ring.register_when_used(&arena);
        Ok(arena)
    }

    /// Takes a request. It reaches the kernel with the next [`poll`](Self::poll) or
    /// [`wait`](Self::wait).
    #[inline]
    pub fn submit(&mut self, request: Request) -> Submitted {
        self.queue.submit(&mut self.ring, request)
    }

    /// The same for a device by its number: 0 for the first, from 1 on for the others.
    #[inline]
    pub fn submit_to(&mut self, device: usize, request: Request) -> Submitted {
        match device.checked_sub(1) {
            None => self.queue.submit(&mut self.ring, request),
            Some(other) => self.others[other].submit(&mut self.ring, request),
        }
    }

    /// Hands over what was submitted, and moves what has ended to the end of `done`, without waiting. What has
    /// ended is there even if the ring fails.
    pub fn poll(&mut self, done: &mut Vec<Completion>) -> io::Result<()> {
        let polled = self.ring.poll();
        self.take(done);
        polled
    }

    /// Hands over what was submitted, waits until something has happened, and moves what has ended to
    /// the end of `done`. That may be nothing: something else can end the wait.
    pub fn wait(&mut self, done: &mut Vec<Completion>) -> io::Result<()> {
        let waited = self.ring.wait();
        self.take(done);
        waited
    }

    /// Moves what has ended to the end of `done`, without a call into the kernel: for fronts that
    /// [`poll`](Ring::poll) and [`wait`](Ring::wait) with the ring.
    pub fn take(&mut self, done: &mut Vec<Completion>) {
        self.queue.poll(&mut self.ring, done);
        for queue in &mut self.others {
            queue.poll(&mut self.ring, done);
        }
    }

    /// A descriptor that is readable while [`poll`](Self::poll) has something to do: to hand over
    /// what was submitted, or to give what has ended. A loop that waits for nothing else misses
    /// nothing. It stays the same one.
    pub fn descriptor(&mut self) -> io::Result<BorrowedFd<'_>> {
        self.ring.descriptor()
    }

    /// The ring, for fronts whose sockets share it.
    pub fn ring_mut(&mut self) -> &mut Ring {
        &mut self.ring
    }

    /// The ring, to ask.
    #[must_use]
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Size, alignment and abilities of the first device.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        self.queue.geometry()
    }

    /// Requests submitted and not yet completed.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.queues().map(|it| it.in_flight()).sum()
    }

    /// Measures the ciphers that work for requests of this channel.
    #[must_use]
    pub fn stopwatch(&self) -> &Stopwatch {
        self.ring.stopwatch()
    }

    fn queues(&self) -> impl Iterator<Item = &GatedQueue> {
        std::iter::once(&self.queue).chain(&self.others)
    }
}
