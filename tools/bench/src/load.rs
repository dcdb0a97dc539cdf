//! The load generator for media of this process and for virtqueues, which fio cannot load: streams of requests.
//!
//! ```text
//! stream   one thread, one transport, `depth` slots
//!
//!          wanted: slots without a request, oldest first ◄────────────────────────┐
//!             │ submit                                                            │
//!             ├─ ended at once ───────────────────────────────────── note latency ┤
//!             └─ in flight ─► collect, waiting when every slot has a request ─────┘
//! ```
//!
//! A stream always wants `depth` requests. The moment one ends, the next is wanted, and its latency
//! counts from then, not from the call of `submit`: the time that requests of one stream wait for
//! each other is part of it, as it is for a client of a server.
//!
//! A running stream allocates nothing and takes no lock.

use std::collections::VecDeque;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use cryptline_cipher::ceiling::median;
use cryptline_engine::{BackendChoice, Buffer, Channel, Completion, Gate, Request, Submitted};
use cryptline_sys::Waker;
use hdrhistogram::Histogram;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::contents::random;
use crate::error::{Of as _, Result, fail};
use crate::report::{DataDirection, Latency, LoadShape, Pattern, TurnResults};

/// Entries of a ring beyond the stream's own requests: a layer may split one.
const RING_SLACK: u32 = 64;
/// Requests between two looks at the clock where latencies are not wanted.
pub const CLOCK_EVERY: u32 = 32;
/// Where latencies are not wanted, the rate of a stream is the median over windows of this length.
/// A window is shorter than a time slice of the scheduler, so most are either undisturbed or lost.
pub const WINDOW: Duration = Duration::from_millis(1);

/// Work to do, and its duration.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadJob {
    pub shape: LoadShape,
    /// Load before the measurement: caches, threads and clocks reach their usual state.
    pub warm_up: Duration,
    pub time: Duration,
    /// Where sequential streams begin, in blocks, and the seed of random ones.
    pub start: u64,
    /// Set if each request is timed, which takes a look at the clock for each. The rate is then that of the whole time;
    /// otherwise it is the median of windows of a millisecond.
    pub latency: bool,
    /// The processor that all streams stay on.
    pub cpu: Option<usize>,
}

impl LoadJob {
    /// One whose requests are timed. `start` is the seed where they are random; requests in order begin with the disk.
    pub fn timed(shape: LoadShape, warm_up: Duration, time: Duration, start: u64) -> Self {
        Self {
            shape,
            warm_up,
            time,
            start: match shape.pattern {
                Pattern::Random => start,
                Pattern::Sequential => 0,
            },
            latency: true,
            cpu: None,
        }
    }
}

/// Carrier of a stream's requests.
pub trait LoadTransport {
    /// Requests between two looks at the clock where latencies are not wanted.
    const CLOCK_EVERY: u32 = CLOCK_EVERY;

    /// Bytes of the disk.
    fn size(&self) -> u64;

    /// Starts the request of a slot; whether it has already ended.
    fn submit(&mut self, slot: usize, offset: u64) -> Result<bool>;

    /// Adds the slots whose requests have ended. With `wait`, nothing else is left to do, and all
    /// that was submitted must be on its way.
    fn collect(&mut self, wait: bool, ended: &mut Vec<usize>) -> Result<()>;
}

/// Runs a job on the volume behind `gate`.
pub fn run(gate: &Gate, job: &LoadJob) -> Result<TurnResults> {
    drive(job, |_| ChannelCalls::open(gate, job.shape))
}

/// Runs a job over the transports that `open` gives, one for each stream.
pub fn drive<T: LoadTransport>(job: &LoadJob, open: impl Fn(u32) -> Result<T> + Sync) -> Result<TurnResults> {
    let streams = job.shape.streams.max(1);
    let barrier = Barrier::new(usize::try_from(streams).unwrap_or(1));
    let stream = |index| {
        let pinned = job.cpu.map_or(Ok(()), pin);
        let opened = pinned.and_then(|()| Ok(LoadStream::new(open(index)?, job, index)));
        // A stream that cannot run comes here too, or the others would wait for ever.
        barrier.wait();
        opened?.run()
    };
    let counted = if streams == 1 && job.cpu.is_none() {
        // On this thread: what its last job left in the caches is still there.
        vec![stream(0)?]
    } else {
        thread::scope(|scope| {
            let stream = &stream;
            let start = |index| scope.spawn(move || stream(index));
            let started: Vec<_> = (0..streams).map(start).collect();
            let ended = started.into_iter().map(|thread| {
                let ended = thread.join();
                ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            ended.collect::<Result<Vec<_>, _>>()
        })?
    };
    Ok(sum(&counted, job))
}

/// A request at each of `offsets`, `depth` of them in flight, until all have ended; `look`s at the slot of each.
pub fn each<T: LoadTransport>(
    client: &mut T,
    depth: u32,
    offsets: impl IntoIterator<Item = u64>,
    look: impl Fn(&T, usize) -> Result<()>,
) -> Result<()> {
    let depth = depth as usize;
    let mut offsets = offsets.into_iter().fuse();
    let mut free: Vec<usize> = (0..depth).collect();
    let mut ended = Vec::with_capacity(depth);
    loop {
        while let Some(&slot) = free.last()
            && let Some(offset) = offsets.next()
        {
            free.pop();
            if client.submit(slot, offset)? {
                ended.push(slot);
            }
        }
        if free.len() == depth {
            return Ok(());
        }
        if ended.is_empty() {
            client.collect(true, &mut ended)?;
        }
        ended.iter().try_for_each(|&slot| look(client, slot))?;
        free.append(&mut ended);
    }
}

/// Keeps the calling thread, and what it starts, on one processor.
pub fn pin(cpu: usize) -> Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        fail!("cannot stay on processor {cpu}: this machine has fewer; use --no-pin");
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).of(format_args!("cannot stay on processor {cpu} (use --no-pin)"))
}

/// Results of one stream in the time that counted.
struct StreamCounts {
    requests_per_second: f64,
    latency: Option<Histogram<u64>>,
    next: u64,
}

fn sum(streams: &[StreamCounts], job: &LoadJob) -> TurnResults {
    let mut latency = job.latency.then(histogram);
    for stream in streams {
        if let (Some(all), Some(one)) = (&mut latency, &stream.latency) {
            // Both have the same bounds, so there is room for every value.
            let _ = all.add(one);
        }
    }
    let rate: f64 = streams.iter().map(|one| one.requests_per_second).sum();
    TurnResults {
        bytes_per_second: rate * f64::from(job.shape.block),
        latency: latency.filter(|all| !all.is_empty()).map(|all| Latency::of(&all)),
        busy: None,
        next: streams.first().map_or(0, |stream| stream.next),
    }
}

/// One stream, opened but not yet running.
struct LoadStream<'a, T> {
    job: &'a LoadJob,
    transport: T,
    /// Slots that want a request, oldest first. Has room for all.
    wanted: VecDeque<usize>,
    /// Since when each slot has wanted its request to end.
    since: Vec<Instant>,
    ended: Vec<usize>,
    offsets: Offsets,
    latency: Option<Histogram<u64>>,
    /// Requests per second of each window that is over. Has room for all.
    windows: Vec<f64>,
    /// Ended since the measurement, or this window, began.
    requests: u32,
    counting: bool,
}

impl<'a, T: LoadTransport> LoadStream<'a, T> {
    fn new(transport: T, job: &'a LoadJob, index: u32) -> Self {
        let depth = usize::try_from(job.shape.depth).unwrap_or(usize::MAX);
        let windows = job.time.as_nanos() / WINDOW.as_nanos();
        Self {
            job,
            wanted: (0..depth).collect(),
            since: vec![Instant::now(); depth],
            ended: Vec::with_capacity(depth),
            offsets: Offsets::new(transport.size(), job, index),
            latency: job.latency.then(histogram),
            windows: Vec::with_capacity(usize::try_from(windows).unwrap_or(0)),
            requests: 0,
            counting: false,
            transport,
        }
    }

    fn run(mut self) -> Result<StreamCounts> {
        let start = Instant::now();
        // What was wanted before the start does not count from before it.
        self.since.fill(start);
        let from = self.until(start + self.job.warm_up)?;
        (self.counting, self.requests) = (true, 0);
        let ended = self.until(from + self.job.time)?;
        self.counting = false;
        let whole = || f64::from(self.requests) / (ended - from).as_secs_f64().max(1e-9);
        let requests_per_second = median(&self.windows).unwrap_or_else(whole);
        self.drain()?;
        Ok(StreamCounts { requests_per_second, latency: self.latency, next: self.offsets.next })
    }

    /// Keeps requests coming until `end`, and while it counts, until one has ended: on a busy machine
    /// all of the time may pass before the first does. Gives the moment it stopped.
    fn until(&mut self, end: Instant) -> Result<Instant> {
        let mut window = Instant::now();
        loop {
            let mut now = Instant::now();
            if self.counting && !self.job.latency {
                self.note_window(&mut window, now);
            }
            if self.is_over(now, end) {
                return Ok(now);
            }
            for _ in 0..T::CLOCK_EVERY {
                let Some(slot) = self.wanted.pop_front() else {
                    break;
                };
                if self.transport.submit(slot, self.offsets.take())? {
                    if self.job.latency {
                        now = Instant::now();
                    }
                    self.end(slot, now);
                }
                if self.job.latency && self.is_over(now, end) {
                    return Ok(now);
                }
            }
            if self.wanted.len() < self.since.len() {
                self.collect(self.wanted.is_empty())?;
            }
        }
    }

    /// Waits for what is in flight.
    fn drain(&mut self) -> Result<()> {
        while self.wanted.len() < self.since.len() {
            self.collect(true)?;
        }
        Ok(())
    }

    fn is_over(&self, now: Instant, end: Instant) -> bool {
        let something = !self.counting || self.requests > 0 || !self.windows.is_empty();
        now >= end && something
    }

    /// Ends a window that is long enough and in which a request has ended.
    fn note_window(&mut self, begun: &mut Instant, now: Instant) {
        let length = now - *begun;
        if length >= WINDOW && self.requests > 0 && self.windows.len() < self.windows.capacity() {
            let rate = f64::from(self.requests) / length.as_secs_f64();
            self.windows.push(rate);
            (self.requests, *begun) = (0, now);
        }
    }

    fn collect(&mut self, wait: bool) -> Result<()> {
        self.transport.collect(wait, &mut self.ended)?;
        if self.ended.is_empty() {
            return Ok(());
        }
        let now = if self.job.latency { Instant::now() } else { self.since[0] };
        while let Some(slot) = self.ended.pop() {
            self.end(slot, now);
        }
        Ok(())
    }

    /// The request of a slot has ended: it wants the next.
    fn end(&mut self, slot: usize, now: Instant) {
        if self.counting {
            self.requests = self.requests.saturating_add(1);
            if let Some(latency) = &mut self.latency {
                let took = now.saturating_duration_since(self.since[slot]);
                let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
                latency.saturating_record(nanoseconds.max(1));
            }
        }
        self.since[slot] = now;
        self.wanted.push_back(slot);
    }
}

/// A buffer that has been touched and holds no run of zeros.
pub fn buffer(len: u32) -> Result<Buffer> {
    let mut buffer = Buffer::alloc(usize::try_from(len).unwrap_or(usize::MAX)).of("no memory to measure with")?;
    buffer.fill(0x5a);
    Ok(buffer)
}

/// Room for latencies from 1 ns to 100 s with three digits.
pub fn histogram() -> Histogram<u64> {
    const LONGEST: u64 = 100_000_000_000;
    let mut histogram = Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are in order");
    histogram.auto(false);
    histogram
}

/// Requests by calls: a channel into a volume, and a buffer for each slot.
pub struct ChannelCalls {
    channel: Channel,
    direction: DataDirection,
    /// Away while a request has them.
    buffers: Vec<Option<Buffer>>,
    done: Vec<Completion>,
}

impl ChannelCalls {
    /// For requests of this shape to the volume behind `gate`.
    pub fn open(gate: &Gate, shape: LoadShape) -> Result<Self> {
        let depth = shape.depth.saturating_add(RING_SLACK);
        let buffers = (0..shape.depth).map(|_| buffer(shape.block).map(Some));
        let buffers = buffers.collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            channel: Channel::open(gate, BackendChoice::Auto, depth)?,
            direction: shape.direction,
            done: Vec::with_capacity(buffers.len()),
            buffers,
        })
    }

    /// Changes the length of later requests, to at most that of the shape.
    pub fn set_block(&mut self, block: u32) {
        for buffer in self.buffers.iter_mut().flatten() {
            buffer.set_len(usize::try_from(block).unwrap_or(0));
        }
    }

    /// The buffer of a slot that has no request; it must be back before the next.
    pub fn buffer(&mut self, slot: usize) -> &mut Option<Buffer> {
        &mut self.buffers[slot]
    }

    /// Wakes who waits in [`collect`](Transport::collect).
    pub fn waker(&mut self) -> std::io::Result<Waker> {
        self.channel.ring_mut().waker()
    }
}

impl LoadTransport for ChannelCalls {
    fn size(&self) -> u64 {
        self.channel.geometry().size
    }

    fn submit(&mut self, slot: usize, offset: u64) -> Result<bool> {
        let token = u64::try_from(slot).unwrap_or(0);
        let Some(buffer) = self.buffers[slot].take() else {
            fail!("a request came back without its buffer");
        };
        let request = request(self.direction, offset, buffer, token);
        match self.channel.submit(request) {
            Submitted::Pending => Ok(false),
            Submitted::Done(completion) => take_back(&mut self.buffers, completion).map(|_| true),
        }
    }

    fn collect(&mut self, wait: bool, ended: &mut Vec<usize>) -> Result<()> {
        let entered = if wait { self.channel.wait(&mut self.done) } else { self.channel.poll(&mut self.done) };
        entered.of("cannot wait for I/O")?;
        for completion in self.done.drain(..) {
            ended.push(take_back(&mut self.buffers, completion)?);
        }
        Ok(())
    }
}

/// A transfer of all of a buffer.
pub fn request(direction: DataDirection, offset: u64, buffer: Buffer, token: u64) -> Request {
    match direction {
        DataDirection::Read => Request::read(offset, buffer, token),
        DataDirection::Write => Request::write(offset, buffer, false, token),
    }
}

/// Puts the buffer of a request that has ended back into its slot; gives the slot.
fn take_back(buffers: &mut [Option<Buffer>], completion: Completion) -> Result<usize> {
    let Completion { request, result } = completion;
    result.of(format_args!("a request of {} bytes at byte {} failed", request.len, request.offset))?;
    let slot = usize::try_from(request.token).unwrap_or(0);
    let Some(buffer) = request.data else {
        fail!("a transfer came back as something else");
    };
    buffers[slot] = Some(buffer);
    Ok(slot)
}

/// Where requests go.
struct Offsets {
    pattern: Pattern,
    block: u64,
    blocks: u64,
    next: u64,
    seed: u64,
    drawn: u64,
}

impl Offsets {
    /// Streams of one job begin far from each other.
    fn new(size: u64, job: &LoadJob, index: u32) -> Self {
        let block = u64::from(job.shape.block.max(1));
        let blocks = (size / block).max(1);
        let apart = blocks / u64::from(job.shape.streams.max(1));
        Self {
            pattern: job.shape.pattern,
            block,
            blocks,
            next: job.start.wrapping_add(apart * u64::from(index)) % blocks,
            seed: random(job.start, u64::from(index)),
            drawn: 0,
        }
    }

    /// Byte offset of the next request.
    fn take(&mut self) -> u64 {
        let block = match self.pattern {
            Pattern::Random => {
                self.drawn += 1;
                let scaled = u128::from(random(self.seed, self.drawn)) * u128::from(self.blocks);
                // Without a division: the high half of the product is below the number of blocks.
                u64::try_from(scaled >> 64).unwrap_or(0)
            }
            Pattern::Sequential => {
                let block = self.next;
                let is_last = block + 1 == self.blocks;
                self.next = if is_last { 0 } else { block + 1 };
                block
            }
        };
        block * self.block
    }
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
