//! A lean NBD client that makes load: one thread and one connection, many requests in flight.
//!
//! ```text
//! run(&Job) ─► connect (one for each connection) ─► thread: pin ─► barrier ─► load
//!
//! load:   free slots ─► 28-byte headers, one send ─► one large receive ─► replies checked ─► slots free
//!               ▲                                                               │
//!               └───────────────────────────────────────────────────────────────┘
//! ```
//!
//! A load generator that is slower than the server measures itself. So this one does what a client
//! must and no more: simple replies, no allocation and no lock for a request, and two system calls
//! for as many requests as there are answers waiting. Data that was read lands in user memory, as it
//! would in any client, and can be compared with a [`Contents`].
//!
//! Servers are not trusted: each reply's magic, cookie and error is checked, memory is bounded by the
//! [`Job`], and a server that falls silent or dribbles ends the run with an error when [`Job::patience`] is at its end.
//!
//! | file | what it knows |
//! |---|---|
//! | `connect` | the handshake |
//! | `flight` | slots, cookies, who waits for what |
//! | `receive` | replies out of a stream |
//! | `load` | requests as fast as they are answered, for a time |
//! | `digest` | the whole disk, in order |
//! | `null` | a server that answers at once, to measure the client's own ceiling |

mod connect;
mod digest;
mod flight;
mod load;
pub mod null;

mod receive;

use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use rustix::thread::{CpuSet, sched_setaffinity};

pub use super::contents::Contents;
use super::report::{Shape, histogram};
use crate::CliError;
pub use connect::Connection;
pub use digest::sha256;

/// How long a server may keep silent as a rule, and how long after the end of the measurement it may
/// take to answer what is still in flight.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Most requests in flight on one connection.
pub const DEPTH_MAX: u32 = 1024;
/// Longest request in bytes, which is what any server takes unless it says otherwise.
pub const BLOCK_MAX: u32 = 32 << 20;
/// Most bytes in flight on one connection.
const IN_FLIGHT_MAX: u64 = 256 << 20;
/// Most connections.
const CONNECTIONS_MAX: u32 = 64;
/// What to ask a server for.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// The server's Unix socket.
    pub socket: &'a Path,
    /// Name of the export.
    pub export: &'a str,
    /// The load. Its streams are connections, each with a thread of its own and, when it goes through
    /// the disk in order, its own part of it.
    pub shape: Shape,
    /// Load before the measurement begins.
    pub warm_up: Duration,
    /// Length of the measurement.
    pub duration: Duration,
    /// The processor that the client's threads stay on; `None` for any.
    pub cpu: Option<usize>,
    /// Where random requests begin; the same seed gives the same requests.
    pub seed: u64,
    /// What reads must give. Checking takes processor time from the client.
    pub expect: Option<Contents>,
    /// How long the server may keep silent, [`PATIENCE`] as a rule.
    pub patience: Duration,
}

/// What came of a [`Job`].
#[derive(Clone, Debug)]
pub struct Measured {
    /// Requests answered within the measurement.
    pub requests: u64,
    /// Their data in bytes.
    pub bytes: u64,
    /// Requests in a second, all connections together.
    pub per_second: f64,
    /// Nanoseconds from a request's send to the receive of its answer's last byte.
    pub latency: Histogram<u64>,
    /// Processor time of the client's threads over their wall time: near 1, the client is the limit.
    pub client_busy: f64,
}

impl Measured {
    /// Bytes in a second.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        match self.requests {
            0 => 0.0,
            // Exact below 2^53, and nobody measures that many.
            #[allow(clippy::cast_precision_loss)]
            requests => self.per_second * (self.bytes / requests) as f64,
        }
    }

    /// The latency in nanoseconds that `share` (0 to 1) of the requests stayed within.
    #[must_use]
    pub fn latency_at(&self, share: f64) -> u64 {
        self.latency.value_at_quantile(share)
    }
}

/// Does what `job` says.
///
/// # Errors
/// Exit code 1 for a job that makes no sense, 4 for a server that fails, lies, or falls silent.
pub fn run(job: &Job<'_>) -> Result<Measured, CliError> {
    job.check()?;
    let connections = (0..job.shape.streams)
        .map(|_| Connection::open(job.socket, job.export, job.patience))
        .collect::<Result<Vec<_>, _>>()?;
    for connection in &connections {
        connection.check(job)?;
    }
    let barrier = Barrier::new(connections.len());
    let results: Vec<_> = thread::scope(|scope| {
        let start = |(index, connection): (u32, Connection)| {
            let barrier = &barrier;
            scope.spawn(move || {
                let pinned = job.cpu.map_or(Ok(()), pin);
                barrier.wait();
                pinned.and_then(|()| load::run(connection, job, index))
            })
        };
        let started: Vec<_> = (0..).zip(connections).map(start).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        started.into_iter().map(join).collect()
    });
    let parts = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(together(&parts, job.shape.block))
}

/// Keeps the calling thread, and what it starts, on one processor.
///
/// # Errors
/// Exit code 1 when there is no such processor.
pub fn pin(cpu: usize) -> Result<(), CliError> {
    let refused = |why: &dyn std::fmt::Display| {
        CliError::parameters(format!(
            "cannot stay on processor {cpu}: {why}; use --no-pin"
        ))
    };
    if cpu >= CpuSet::MAX_CPU {
        return Err(refused(&"there are not so many"));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|error| refused(&error))
}

impl Job<'_> {
    fn check(&self) -> Result<(), CliError> {
        let wrong = |why: String| Err(CliError::parameters(why));
        let Shape {
            block,
            depth,
            streams,
            ..
        } = self.shape;
        if block == 0 || block > BLOCK_MAX {
            return wrong(format!(
                "a block size of {block} bytes: give 1 to {BLOCK_MAX}"
            ));
        }
        if depth == 0 || depth > DEPTH_MAX {
            return wrong(format!("a queue depth of {depth}: give 1 to {DEPTH_MAX}"));
        }
        if streams == 0 || streams > CONNECTIONS_MAX {
            return wrong(format!(
                "{streams} connections: give 1 to {CONNECTIONS_MAX}"
            ));
        }
        let in_flight = u64::from(block) * u64::from(depth);
        if in_flight > IN_FLIGHT_MAX {
            return wrong(format!(
                "{in_flight} bytes in flight on one connection: at most {IN_FLIGHT_MAX} are allowed; use a smaller block size or depth"
            ));
        }
        Ok(())
    }
}

fn together(parts: &[load::Part], block_size: u32) -> Measured {
    let mut parts = parts.iter();
    let mut sum = Measured {
        requests: 0,
        bytes: 0,
        per_second: 0.0,
        latency: histogram(),
        client_busy: 0.0,
    };
    let (mut cpu, mut wall) = (Duration::ZERO, Duration::ZERO);
    for part in &mut parts {
        sum.requests += part.requests;
        sum.per_second += part.per_second();
        // Only fails for bounds that differ, and all have the same.
        let _ = sum.latency.add(&part.latency);
        cpu += part.cpu;
        wall += part.wall;
    }
    sum.bytes = sum.requests * u64::from(block_size);
    if !wall.is_zero() {
        sum.client_busy = cpu.as_secs_f64() / wall.as_secs_f64();
    }
    sum
}

#[cfg(test)]
mod tests;
