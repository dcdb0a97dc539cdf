//! The load generator: streams of requests into a volume, in this process.
//!
//! ```text
//! stream   one thread, one ring, one queue into the volume, `depth` buffers
//!
//!          wanted: slots without a request, oldest first ◄────────────────┐
//!             │ submit                                                    │
//!             ├─ Done ───────────────────────────────────── note latency ─┤
//!             └─ Pending ─► in flight ─► poll, or wait if all are there ──┘
//! ```
//!
//! A stream always wants `depth` requests: the moment one ends, the next is wanted, and its latency
//! counts from then, not from the call of `submit`. So a mode that works inside `submit` cannot
//! hide the time that the other requests of its stream had to wait for it, as no client of a server
//! would let it.
//!
//! Once it runs, a stream allocates nothing and takes no lock.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use cryptline_engine::{
    BackendChoice, Buffer, Completion, Gate, GatedQueue, Operation, Request, Ring, Submitted,
};
use hdrhistogram::Histogram;

use super::report::{Direction, Latency, Pattern, Shape, histogram};
use crate::CliError;
use crate::benchmark::measure::median;

/// Entries of a ring beyond the stream's own requests: a layer may split one.
const RING_SLACK: u32 = 64;
/// Requests between two looks at the clock where latencies are not wanted.
const CLOCK_EVERY: u32 = 32;
/// Where latencies are not wanted, the rate of a stream is the median of those of windows this long:
/// shorter than a time slice of the scheduler, so that where other programs run too, most windows are
/// either undisturbed or lost, and the median is one of the former.
pub const WINDOW: Duration = Duration::from_millis(1);
/// Latencies above this count as this: what the histogram holds.
const LONGEST: Duration = Duration::from_secs(99);

/// What to do, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// The load.
    pub shape: Shape,
    /// How long before it counts: caches, threads and clocks come to their usual state.
    pub warm_up: Duration,
    /// How long it counts.
    pub time: Duration,
    /// Where sequential streams begin, in blocks, and what random ones are random by.
    pub start: u64,
    /// Whether to take the time of each request, which costs a look at the clock for each. The rate
    /// is then that of all the time; otherwise the median of windows of a millisecond.
    pub latency: bool,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// All streams together, in the time that counted.
    pub bytes_per_second: f64,
    /// Where they were wanted.
    pub latency: Option<Latency>,
    /// The block after the last one that stream 0 asked for.
    pub next: u64,
}

/// Runs a job on the volume behind `gate`.
///
/// # Errors
/// Exit code 4 for a request that failed, 3 for lack of memory.
pub fn run(gate: &Gate, job: &Job) -> Result<Outcome, CliError> {
    let streams = job.shape.streams.max(1);
    let start = Barrier::new(usize::try_from(streams).unwrap_or(1));
    let ended: Vec<Result<Counted, CliError>> = match streams {
        // No new thread where one stream is all: what the last job left in caches stays there.
        1 => vec![
            Stream::open(gate, job, 0)
                .map(|stream| stream.run(&start))
                .and_then(|r| r),
        ],
        _ => thread::scope(|scope| {
            let started: Vec<_> = (0..streams)
                .map(|index| {
                    let start = &start;
                    scope.spawn(move || {
                        let stream = Stream::open(gate, job, index);
                        // Each stream comes to the barrier, or the others would wait for ever.
                        match stream {
                            Ok(stream) => stream.run(start),
                            Err(error) => {
                                start.wait();
                                Err(error)
                            }
                        }
                    })
                })
                .collect();
            started
                .into_iter()
                .map(|thread| {
                    thread
                        .join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })
                .collect()
        }),
    };
    let counted = ended.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(sum(&counted, job))
}

/// What one stream did in the time that counted.
struct Counted {
    requests_per_second: f64,
    latency: Option<Histogram<u64>>,
    next: u64,
}

fn sum(streams: &[Counted], job: &Job) -> Outcome {
    let block = f64::from(job.shape.block);
    let mut all = job.latency.then(histogram);
    for stream in streams {
        if let (Some(all), Some(one)) = (&mut all, &stream.latency) {
            // Both have the same bounds, so there is room for every value.
            let _ = all.add(one);
        }
    }
    Outcome {
        bytes_per_second: streams
            .iter()
            .map(|stream| stream.requests_per_second * block)
            .sum(),
        latency: all
            .filter(|all| !all.is_empty())
            .map(|all| Latency::of(&all)),
        next: streams.first().map_or(0, |stream| stream.next),
    }
}

/// One stream, opened but not yet running.
struct Stream<'a> {
    job: &'a Job,
    ring: Ring,
    queue: GatedQueue,
    slots: Vec<Slot>,
    /// Slots that want a request, oldest first, in a circle.
    wanted: Wanted,
    done: Vec<Completion>,
    offsets: Offsets,
    latency: Option<Histogram<u64>>,
    /// Requests in a second, of each window that is over. Has room for all.
    windows: Vec<f64>,
    /// Ended since counting, or this window, began.
    requests: u32,
    counting: bool,
}

/// Place for one request.
struct Slot {
    buffer: Option<Buffer>,
    wanted_since: Instant,
}

impl<'a> Stream<'a> {
    fn open(gate: &Gate, job: &'a Job, index: u32) -> Result<Self, CliError> {
        let Shape { block, depth, .. } = job.shape;
        let no_memory =
            |error: std::io::Error| CliError::memory(format!("no memory to measure with: {error}"));
        let mut ring = Ring::new(BackendChoice::Auto, depth.saturating_add(RING_SLACK))
            .map_err(|error| CliError::device(format!("cannot set up I/O: {error}")))?;
        let queue = gate.open_queue(&mut ring)?;
        let now = Instant::now();
        let len = usize::try_from(block).unwrap_or(usize::MAX);
        let slot = |_| {
            let mut buffer = Buffer::alloc(len)?;
            // Touched, and no run of zeros.
            buffer.fill(0x5a);
            Ok(Slot {
                buffer: Some(buffer),
                wanted_since: now,
            })
        };
        let slots = (0..depth)
            .map(slot)
            .collect::<Result<Vec<_>, _>>()
            .map_err(no_memory)?;
        Ok(Self {
            job,
            ring,
            queue,
            wanted: Wanted::all(slots.len()),
            done: Vec::with_capacity(slots.len()),
            slots,
            offsets: Offsets::new(gate.geometry().size, job, index),
            latency: job.latency.then(histogram),
            windows: Vec::with_capacity(windows(job)),
            requests: 0,
            counting: false,
        })
    }

    fn run(mut self, start: &Barrier) -> Result<Counted, CliError> {
        start.wait();
        let now = Instant::now();
        // What was wanted before is not counted from before.
        let from = self.until(now + self.job.warm_up, None)?;
        self.counting = true;
        self.requests = 0;
        let window = (!self.job.latency).then_some(from);
        let ended = self.until(from + self.job.time, window)?;
        self.counting = false;
        let requests_per_second = if self.windows.is_empty() {
            f64::from(self.requests) / (ended - from).as_secs_f64().max(1e-9)
        } else {
            median(&self.windows)
        };
        let counted = Counted {
            requests_per_second,
            latency: self.latency.take(),
            next: self.offsets.next,
        };
        self.drain()?;
        Ok(counted)
    }

    /// Keeps requests coming until `end`, and while it counts, until one has ended: on a busy machine
    /// all of the time may pass before the first does. Gives the moment it stopped. Notes the rate of
    /// each window where the first one's begin is given; a window lasts until a request has ended.
    fn until(&mut self, end: Instant, mut window: Option<Instant>) -> Result<Instant, CliError> {
        loop {
            let mut now = Instant::now();
            if let Some(begun) = window
                && now - begun >= WINDOW
                && self.requests > 0
                && self.windows.len() < self.windows.capacity()
            {
                let rate = f64::from(self.requests) / (now - begun).as_secs_f64();
                self.windows.push(rate);
                self.requests = 0;
                window = Some(now);
            }
            if now >= end && self.has_something_to_tell() {
                return Ok(now);
            }
            for _ in 0..CLOCK_EVERY {
                let Some(slot) = self.wanted.take() else {
                    break;
                };
                now = self.submit(slot, now)?;
                if self.job.latency && now >= end && self.has_something_to_tell() {
                    return Ok(now);
                }
            }
            if self.queue.in_flight() > 0 {
                self.collect(self.wanted.is_empty())?;
            }
        }
    }

    fn has_something_to_tell(&self) -> bool {
        !self.counting || self.requests > 0 || !self.windows.is_empty()
    }

    /// Submits the next request of a slot. Gives the last known time.
    fn submit(&mut self, slot: usize, now: Instant) -> Result<Instant, CliError> {
        let offset = self.offsets.take();
        let token = u64::try_from(slot).unwrap_or(0);
        let Some(buffer) = self.slots[slot].buffer.take() else {
            return Err(CliError::device("a request came back without its buffer"));
        };
        let request = match self.job.shape.direction {
            Direction::Read => Request::read(offset, buffer, token),
            Direction::Write => Request::write(offset, buffer, false, token),
        };
        match self.queue.submit(&mut self.ring, request) {
            Submitted::Pending => Ok(now),
            Submitted::Done(completion) => {
                let now = self.clock().unwrap_or(now);
                self.end(completion, now)?;
                Ok(now)
            }
        }
    }

    /// Takes what has ended; waits for something where nothing else can be done.
    fn collect(&mut self, wait: bool) -> Result<(), CliError> {
        let entered = if wait {
            self.ring.wait()
        } else {
            self.ring.poll()
        };
        entered.map_err(|error| CliError::device(format!("cannot wait for I/O: {error}")))?;
        let mut done = std::mem::take(&mut self.done);
        self.queue.poll(&mut self.ring, &mut done);
        let now = self.clock();
        for completion in done.drain(..) {
            let now = now.unwrap_or(self.slots[0].wanted_since);
            self.end(completion, now)?;
        }
        self.done = done;
        Ok(())
    }

    /// A request has ended: its slot wants the next.
    fn end(&mut self, completion: Completion, now: Instant) -> Result<(), CliError> {
        let Completion { request, result } = completion;
        if let Err(fault) = result {
            return Err(CliError::device(format!(
                "a request of {} bytes at byte {} failed: {fault}",
                request.len(),
                request.offset
            )));
        }
        let slot = usize::try_from(request.token).unwrap_or(0);
        let (Operation::Read(buffer) | Operation::Write { data: buffer, .. }) = request.operation
        else {
            return Err(CliError::device("a transfer came back as something else"));
        };
        let slot_state = &mut self.slots[slot];
        slot_state.buffer = Some(buffer);
        if self.counting {
            self.requests = self.requests.saturating_add(1);
            if let Some(latency) = &mut self.latency {
                let took = now
                    .saturating_duration_since(slot_state.wanted_since)
                    .min(LONGEST);
                let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
                latency.saturating_record(nanoseconds.max(1));
            }
        }
        slot_state.wanted_since = now;
        self.wanted.put(slot);
        Ok(())
    }

    fn drain(&mut self) -> Result<(), CliError> {
        while self.queue.in_flight() > 0 {
            self.collect(true)?;
        }
        Ok(())
    }

    fn clock(&self) -> Option<Instant> {
        self.job.latency.then(Instant::now)
    }
}

/// How many windows a job has at most.
fn windows(job: &Job) -> usize {
    let count = job.time.as_nanos() / WINDOW.as_nanos();
    usize::try_from(count).unwrap_or(0)
}

/// Slots in a circle as long as there are slots: it never grows and is never too short.
struct Wanted {
    circle: Vec<usize>,
    first: usize,
    len: usize,
}

impl Wanted {
    fn all(slots: usize) -> Self {
        Self {
            circle: (0..slots).collect(),
            first: 0,
            len: slots,
        }
    }

    fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn take(&mut self) -> Option<usize> {
        let slot = (self.len > 0).then(|| self.circle[self.first])?;
        self.first = self.after(self.first, 1);
        self.len -= 1;
        Some(slot)
    }

    fn put(&mut self, slot: usize) {
        debug_assert!(self.len < self.circle.len(), "a slot was put back twice");
        let place = self.after(self.first, self.len);
        self.circle[place] = slot;
        self.len += 1;
    }

    /// The place `count` after `place`, both at most the length of the circle.
    fn after(&self, place: usize, count: usize) -> usize {
        let sum = place + count;
        if sum < self.circle.len() {
            sum
        } else {
            sum - self.circle.len()
        }
    }
}

/// Where requests go.
struct Offsets {
    pattern: Pattern,
    block: u64,
    blocks: u64,
    next: u64,
    state: u64,
}

impl Offsets {
    /// Streams of one job begin far from each other.
    fn new(size: u64, job: &Job, index: u32) -> Self {
        let block = u64::from(job.shape.block.max(1));
        let blocks = (size / block).max(1);
        let apart = blocks / u64::from(job.shape.streams.max(1));
        let seed = job.start ^ (u64::from(index) << 32);
        Self {
            pattern: job.shape.pattern,
            block,
            blocks,
            next: job.start.wrapping_add(apart * u64::from(index)) % blocks,
            state: seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1,
        }
    }

    /// Byte offset of the next request.
    fn take(&mut self) -> u64 {
        let block = match self.pattern {
            Pattern::Sequential => {
                let block = self.next;
                self.next = if block + 1 == self.blocks {
                    0
                } else {
                    block + 1
                };
                block
            }
            Pattern::Random => {
                // Marsaglia's xorshift64, "Xorshift RNGs" (2003).
                self.state ^= self.state << 13;
                self.state ^= self.state >> 7;
                self.state ^= self.state << 17;
                let scaled = u128::from(self.state) * u128::from(self.blocks);
                // The high half of the product is below `blocks`.
                u64::try_from(scaled >> 64).unwrap_or(0)
            }
        };
        block * self.block
    }
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
