//! Statistics of each export: requests, bytes, latencies, and the cipher's share of the time.
//!
//! Each lane writes a [`LaneMeter`] of its own with plain relaxed stores: a request takes no lock and touches
//! no shared cache line. A reader adds the meters up. Figures derived from several counters (a rate and its
//! latencies, a share of the time) come from values read together.
//!
//! Unless statistics were requested, no clock is read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cryptline_engine::Op;
use cryptline_sys::lock;

/// Names of the kinds of requests that are counted apart, in the order of [`Snapshot::operations`].
pub const KINDS: [&str; 4] = ["read", "write", "flush", "other"];

/// The place of an operation's kind in [`KINDS`]. Zeros are written too.
fn kind_of(op: Option<Op>) -> usize {
    match op {
        Some(Op::Read) => 0,
        Some(op) if op.has_payload() || op.is_zero() => 1,
        Some(Op::Flush) => 2,
        _ => 3,
    }
}

/// Buckets of a latency histogram: 8 to each doubling of nanoseconds, so within 12.5 %.
pub const BUCKETS: usize = 64 * 8;

/// The bucket of a latency.
fn bucket(nanoseconds: u64) -> usize {
    if nanoseconds < 8 {
        return usize::try_from(nanoseconds).unwrap_or(0);
    }
    let exponent = nanoseconds.ilog2();
    let fraction = (nanoseconds >> (exponent - 3)) & 7;
    (exponent as usize - 2) * 8 + usize::try_from(fraction).unwrap_or(0)
}

/// The middle of a bucket in nanoseconds.
#[must_use]
pub fn bucket_value(index: usize) -> u64 {
    if index < 8 {
        return index as u64;
    }
    let (exponent, fraction) = (index / 8 + 2, index as u64 % 8);
    let width = 1u64 << (exponent - 3);
    (8 + fraction) * width + width / 2
}

struct OperationMeter {
    bytes: AtomicU64,
    errors: AtomicU64,
    /// Requests by latency; their sum is how many there were.
    latency: [AtomicU64; BUCKETS],
}

impl OperationMeter {
    fn new() -> Self {
        Self {
            bytes: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            latency: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

/// One lane's counters; written by its own thread only.
pub struct LaneMeter {
    operations: [OperationMeter; 4],
    /// Locked a few times a second, by the writer, which does not wait for it, and by readers.
    times: Mutex<Times>,
}

/// Use of a lane's time so far, in nanoseconds.
///
/// ```text
/// on the thread's own clock   |──waits──|── active: cipher, the rest ──|──waits──|
/// on the helpers' clocks                     |──cipher──|
///
/// crypto = cipher here + cipher there        active = active here + cipher there
/// ```
///
/// Both are wall-clock times, so the cipher's is always a part of the active one, even when the
/// system gives the processor to another thread in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// In ciphers, on whichever thread.
    pub crypto_ns: u64,
    /// Not waiting: the lane's thread, and helpers in the cipher for it.
    pub active_ns: u64,
    /// Processor time of the lane's thread.
    pub busy_ns: u64,
}

impl Times {
    fn add(&mut self, other: Self) {
        self.crypto_ns += other.crypto_ns;
        self.active_ns += other.active_ns;
        self.busy_ns += other.busy_ns;
    }
}

impl LaneMeter {
    fn new() -> Self {
        Self { operations: std::array::from_fn(|_| OperationMeter::new()), times: Mutex::default() }
    }

    /// Counts one finished request, of an operation that a device has or of another.
    pub fn record(&self, op: Option<Op>, bytes: u64, latency: Duration, failed: bool) {
        let meter = &self.operations[kind_of(op)];
        add(&meter.errors, u64::from(failed));
        if !failed {
            add(&meter.bytes, bytes);
        }
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        add(&meter.latency[bucket(nanoseconds).min(BUCKETS - 1)], 1);
    }

    /// Sets all times at once, unless somebody is reading them.
    pub fn set_times(&self, times: Times) {
        if let Ok(mut kept) = self.times.try_lock() {
            *kept = times;
        }
    }

    /// Sets the last times: waits for readers.
    pub fn set_last_times(&self, times: Times) {
        *lock(&self.times) = times;
    }
}

/// One writer, so a load and a store do; no locked instruction.
fn add(counter: &AtomicU64, value: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
}

/// The sum of one kind of operation.
#[derive(Clone, Debug)]
pub struct OperationTotals {
    /// Requests finished.
    pub requests: u64,
    /// Bytes moved by requests that succeeded.
    pub bytes: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests by latency; see [`bucket_value`].
    pub latency: Vec<u64>,
}

/// The sum over all connections of one export since the server started.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// By kind, in the order of [`KINDS`].
    pub operations: [OperationTotals; 4],
    /// Use of the time.
    pub times: Times,
    /// Open connections.
    pub connections: usize,
}

impl Snapshot {
    fn empty() -> Self {
        let totals = OperationTotals { requests: 0, bytes: 0, errors: 0, latency: vec![0; BUCKETS] };
        Self { operations: std::array::from_fn(|_| totals.clone()), times: Times::default(), connections: 0 }
    }

    fn add(&mut self, meter: &LaneMeter) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        for (total, part) in self.operations.iter_mut().zip(&meter.operations) {
            total.bytes += get(&part.bytes);
            total.errors += get(&part.errors);
            for (sum, count) in total.latency.iter_mut().zip(&part.latency) {
                let count = get(count);
                *sum += count;
                total.requests += count;
            }
        }
        self.times.add(*lock(&meter.times));
    }
}

/// The meters of one export.
pub struct ExportStats {
    /// Live connections, and the sum of those that have ended. Locked when a connection comes or
    /// goes and when somebody reads, never by a request.
    inner: Mutex<(Vec<Arc<LaneMeter>>, Snapshot)>,
    enabled: bool,
}

impl ExportStats {
    /// Statistics; where not `enabled`, connections do not measure.
    #[must_use]
    pub fn new(enabled: bool) -> Arc<Self> {
        Arc::new(Self { inner: Mutex::new((Vec::new(), Snapshot::empty())), enabled })
    }

    /// A meter for a new connection, where enabled.
    #[must_use]
    pub fn connect(&self) -> Option<Arc<LaneMeter>> {
        self.enabled.then(|| {
            let meter = Arc::new(LaneMeter::new());
            lock(&self.inner).0.push(Arc::clone(&meter));
            meter
        })
    }

    /// Keeps the counts of a connection that has ended.
    pub fn disconnect(&self, meter: &Arc<LaneMeter>) {
        let mut inner = lock(&self.inner);
        inner.0.retain(|live| !Arc::ptr_eq(live, meter));
        inner.1.add(meter);
    }

    /// Does `work` with a meter for a new connection, where enabled, and keeps its counts afterwards.
    pub(crate) fn metered<T>(&self, work: impl FnOnce(Option<Arc<LaneMeter>>) -> T) -> T {
        let meter = self.connect();
        let done = work(meter.clone());
        meter.inspect(|meter| self.disconnect(meter));
        done
    }

    /// The sum of all connections, live and ended.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let inner = lock(&self.inner);
        let mut sum = inner.1.clone();
        inner.0.iter().for_each(|meter| sum.add(meter));
        sum.connections = inner.0.len();
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_lies_near_its_bucket() {
        for nanoseconds in [0, 1, 7, 8, 9, 15, 16, 1000, 123_456_789, u64::MAX / 2, u64::MAX] {
            let index = bucket(nanoseconds);
            assert!(index < BUCKETS, "{nanoseconds}");
            assert!(bucket_value(index).abs_diff(nanoseconds) <= nanoseconds / 8, "{nanoseconds} -> {index}");
        }
    }

    #[test]
    fn each_operation_counts_as_one_of_four_kinds() {
        let kinds = Op::ALL.map(|op| KINDS[kind_of(Some(op))]);
        let [read, write, flush, other] = KINDS;
        let zones = [other; 5];
        assert_eq!(kinds[..10], [read, write, write, write, write, flush, other, write, write, other]);
        assert_eq!((&kinds[10..], KINDS[kind_of(None)]), (&zones[..], other));
    }

    #[test]
    fn counts_outlive_their_connection() {
        let stats = ExportStats::new(true);
        let meter = stats.connect().unwrap();
        meter.record(Some(Op::Read), 4096, Duration::from_micros(10), false);
        assert_eq!(stats.snapshot().connections, 1);
        stats.disconnect(&meter);
        let sum = stats.snapshot();
        assert_eq!((sum.connections, sum.operations[0].bytes), (0, 4096));
    }
}
