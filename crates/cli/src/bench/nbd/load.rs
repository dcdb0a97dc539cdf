//! Requests as fast as they are answered, for a time.
//!
//! ```text
//! barrier   warm-up        measured                        drained
//! |---------|--------------|-------------------------------|------> goodbye
//!                          first batch of answers          last batch
//! ```
//!
//! The clock is read twice for each batch of answers. The measurement lasts from one batch to another,
//! so its length is exact however long a batch takes.

use std::io::{ErrorKind, IoSlice, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use cryptline_nbd::wire::{REQUEST_LEN, cmd};
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

use super::connect::{Connection, describe};
use super::flight::Flight;
use super::receive::{Receiver, Sink};
use super::{Contents, Job};
use crate::CliError;
use crate::bench::report::{Direction, Pattern, histogram};

/// Pieces of memory in one send.
const PIECES: usize = 64;

/// What one connection did.
pub struct Part {
    /// Requests answered within the measurement.
    pub requests: u64,
    /// Length of the measurement, nanoseconds.
    measured_ns: u64,
    /// Nanoseconds.
    pub latency: Histogram<u64>,
    /// Processor time of this thread.
    pub cpu: Duration,
    /// Time of this thread, warm-up and all.
    pub wall: Duration,
}

impl Part {
    /// Requests in a second.
    #[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
    pub fn per_second(&self) -> f64 {
        match self.measured_ns {
            0 => 0.0,
            time => self.requests as f64 * 1e9 / time as f64,
        }
    }
}

/// Does `job` over connection number `index`.
pub fn run(connection: Connection, job: &Job<'_>, index: u32) -> Result<Part, CliError> {
    let name = connection.name.clone();
    Load::new(connection, job, index)
        .run()
        .map_err(|why| CliError::device(format!("{name}: {why}")))
}

struct Load {
    connection: Connection,
    start: Instant,
    /// Nanoseconds from the start to the measurement's, and to its end.
    begin: u64,
    end: u64,
    /// When to give up.
    late: u64,
    places: Places,
    flight: Flight,
    outgoing: Outgoing,
    receiver: Receiver,
    tally: Tally,
}

impl Load {
    fn new(connection: Connection, job: &Job<'_>, index: u32) -> Self {
        let depth = job.shape.depth as usize;
        let block = job.shape.block as usize;
        let begin = nanoseconds(job.warm_up);
        let (command, payload, data) = match job.shape.direction {
            Direction::Read => (cmd::READ, 0, block),
            Direction::Write => (cmd::WRITE, block, 0),
        };
        let end = begin.saturating_add(nanoseconds(job.duration));
        Self {
            begin,
            end,
            late: end.saturating_add(nanoseconds(job.patience)),
            places: Places::new(job, index, connection.size),
            flight: Flight::new(depth, command, job.shape.block),
            outgoing: Outgoing::new(depth, payload, job.seed),
            receiver: Receiver::new(data),
            tally: Tally {
                since: None,
                last: 0,
                is_over: false,
                requests: 0,
                latency: histogram(),
                expect: job.expect,
                landed: Vec::with_capacity(depth),
            },
            connection,
            start: Instant::now(),
        }
    }

    fn run(mut self) -> Result<Part, String> {
        let cpu = thread_cpu_time();
        self.start = Instant::now();
        let mut now = 0;
        loop {
            if !self.tally.is_over {
                self.ask(now)?;
            }
            if self.flight.is_empty() {
                break;
            }
            self.receiver.receive(&self.connection.stream)?;
            self.receiver.take(&mut self.flight, &mut self.tally)?;
            now = nanoseconds(self.start.elapsed());
            self.tally.count(now, self.begin, self.end);
            if now > self.late {
                return Err("the server is too slow to be measured".into());
            }
        }
        self.connection.disconnect();
        Ok(Part {
            requests: self.tally.requests,
            measured_ns: self.tally.last - self.tally.since.unwrap_or(self.tally.last),
            latency: self.tally.latency,
            cpu: thread_cpu_time().saturating_sub(cpu),
            wall: self.start.elapsed(),
        })
    }

    /// Sends a request from every free slot.
    fn ask(&mut self, now: u64) -> Result<(), String> {
        while !self.flight.is_full() {
            let offset = self.places.next();
            if let Some((_, header)) = self.flight.launch(offset, now) {
                self.outgoing.push(header);
            }
        }
        self.outgoing.send(&self.connection.stream)
    }
}

/// Where the next request goes.
struct Places {
    pattern: Pattern,
    block: u64,
    /// First block of this connection's part, and how many it has. Random requests go anywhere.
    first: u64,
    count: u64,
    next: u64,
    random: u64,
}

impl Places {
    fn new(job: &Job<'_>, index: u32, size: u64) -> Self {
        let block = u64::from(job.shape.block);
        let blocks = size / block;
        let (parts, index) = (u64::from(job.shape.streams), u64::from(index));
        let (first, count) = match job.shape.pattern {
            Pattern::Random => (0, blocks),
            // At least one block: the connection was checked.
            Pattern::Sequential => (blocks / parts * index, blocks / parts),
        };
        Self {
            pattern: job.shape.pattern,
            block,
            first,
            count,
            next: 0,
            random: (job.seed ^ (index << 32)) | 1,
        }
    }

    fn next(&mut self) -> u64 {
        let chosen = match self.pattern {
            Pattern::Random => below(xorshift(&mut self.random), self.count),
            Pattern::Sequential => {
                let next = self.next;
                self.next = if next + 1 < self.count { next + 1 } else { 0 };
                next
            }
        };
        (self.first + chosen) * self.block
    }
}

/// The next random number. Source: Marsaglia, "Xorshift RNGs", 2003; scrambled as xorshift64*.
fn xorshift(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

/// A random number below `bound`, without a division.
fn below(random: u64, bound: u64) -> u64 {
    let product = u128::from(random) * u128::from(bound);
    u64::try_from(product >> 64).unwrap_or(0)
}

/// Requests to be sent together, and the data that each carries.
struct Outgoing {
    headers: Vec<u8>,
    /// Room for all slots, so it is never reallocated.
    payload: Vec<u8>,
}

impl Outgoing {
    fn new(depth: usize, payload: usize, seed: u64) -> Self {
        let mut outgoing = Self {
            headers: Vec::with_capacity(depth * REQUEST_LEN),
            payload: vec![0; payload],
        };
        Contents::new(!seed).fill(0, &mut outgoing.payload);
        outgoing
    }

    fn push(&mut self, header: [u8; REQUEST_LEN]) {
        self.headers.extend_from_slice(&header);
    }

    /// Sends all, each header with the payload behind it.
    fn send(&mut self, mut stream: &UnixStream) -> Result<(), String> {
        let sent = if self.payload.is_empty() {
            stream.write_all(&self.headers)
        } else {
            let mut batches = self.headers.chunks(REQUEST_LEN * PIECES / 2);
            batches.try_for_each(|batch| {
                let mut pieces = [IoSlice::new(&[]); PIECES];
                for (pair, header) in pieces.chunks_mut(2).zip(batch.chunks(REQUEST_LEN)) {
                    pair[0] = IoSlice::new(header);
                    pair[1] = IoSlice::new(&self.payload);
                }
                let count = batch.len() / REQUEST_LEN * 2;
                write_all_vectored(stream, &mut pieces[..count])
            })
        };
        self.headers.clear();
        sent.map_err(|error| describe(&error))
    }
}

pub fn write_all_vectored(
    mut stream: &UnixStream,
    mut pieces: &mut [IoSlice<'_>],
) -> std::io::Result<()> {
    while !pieces.is_empty() {
        match stream.write_vectored(pieces) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(len) => IoSlice::advance_slices(&mut pieces, len),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What has been answered.
struct Tally {
    /// When the first batch within the measurement came; the next one is the first to count.
    since: Option<u64>,
    /// When the last batch that counts came.
    last: u64,
    is_over: bool,
    requests: u64,
    latency: Histogram<u64>,
    expect: Option<Contents>,
    /// Times at which the requests answered by this batch were sent.
    landed: Vec<u64>,
}

impl Tally {
    /// Counts a batch that came `now`. At least one counts, however short the measurement.
    fn count(&mut self, now: u64, begin: u64, end: u64) {
        if !self.landed.is_empty() && !self.is_over && now >= begin {
            match self.since {
                None => self.since = Some(now),
                Some(_) => {
                    for &sent in &self.landed {
                        self.latency.saturating_record((now - sent).max(1));
                    }
                    self.requests += self.landed.len() as u64;
                    self.last = now;
                    self.is_over = now >= end;
                }
            }
        }
        self.landed.clear();
    }
}

impl Sink for Tally {
    fn data(&mut self, _: usize, offset: u64, bytes: &[u8]) -> Result<(), String> {
        let wrong = self
            .expect
            .and_then(|contents| contents.first_difference(offset, bytes));
        match wrong {
            None => Ok(()),
            Some(offset) => Err(format!("the server gave wrong data at byte {offset}")),
        }
    }

    fn done(&mut self, flight: &Flight, slot: usize) {
        self.landed.push(flight.slot(slot).sent);
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn thread_cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
