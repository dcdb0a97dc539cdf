//! Counters to JSON lines: what each export did since the reader's previous line. `cryptline top` reads them.
//!
//! docs/stats.md describes the lines.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cryptline_serve::lane::Poll;
use cryptline_serve::stats::{ExportStats, OperationTotals, Snapshot, bucket_value};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::front::ServedVolume;
use super::volumes::Volumes;

/// The number of the format; changes when a reader of the old one would be misled.
const VERSION: u32 = 1;

/// A line: what one server did in one interval. docs/stats.md describes the members. A reader takes what is
/// missing as nothing, since the server may be of another version.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StatsSample {
    pub version: u32,
    pub uptime_s: f64,
    pub interval_s: f64,
    pub poll: String,
    pub exports: Vec<ExportSample>,
}

/// Statistics of one export.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ExportSample {
    pub name: String,
    pub size: u64,
    pub connections: usize,
    crypto_ns: u64,
    active_ns: u64,
    busy_ns: u64,
    pub crypto_share: Option<f64>,
    pub busy_share: Option<f64>,
    pub operations: Operations,
}

/// One for each kind of operation.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Operations {
    pub read: OperationSample,
    pub write: OperationSample,
    flush: OperationSample,
    other: OperationSample,
}

/// Statistics of one kind of operation.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OperationSample {
    requests: u64,
    bytes: u64,
    pub errors: u64,
    pub iops: f64,
    pub bytes_per_second: f64,
    pub latency_us: Option<LatencyPercentiles>,
}

/// Percentiles in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LatencyPercentiles {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl LatencyPercentiles {
    /// From the shortest to the longest.
    pub fn list(&self) -> [f64; 5] {
        [self.p50, self.p90, self.p99, self.p999, self.max]
    }
}

impl StatsSample {
    /// The sample that a line of a server stands for.
    pub fn read(line: &[u8]) -> Option<Self> {
        // Not an array, which would do for its members.
        let members: Map<String, Value> = serde_json::from_slice(line).ok()?;
        serde_json::from_value(Value::Object(members)).ok()
    }
}

impl Operations {
    /// Each with its name.
    pub fn list(&self) -> [(&'static str, &OperationSample); 4] {
        [("read", &self.read), ("write", &self.write), ("flush", &self.flush), ("other", &self.other)]
    }
}

/// Description of a server, for all readers.
#[derive(Clone)]
pub struct ServerInfo {
    volumes: Volumes,
    poll: Poll,
    started: Instant,
}

impl ServerInfo {
    /// One that starts now.
    pub fn new(volumes: Volumes, poll: Poll) -> Self {
        let started = Instant::now();
        Self { volumes, poll, started }
    }
}

/// One reader's view: remembers what it was told last.
pub struct Sampler {
    server: ServerInfo,
    /// When the last line was, and whose counters were what then.
    last: (Instant, Vec<(Arc<ExportStats>, Snapshot)>),
}

impl Sampler {
    /// A reader that has been told nothing: its first line covers all since the server started.
    pub fn new(server: ServerInfo) -> Self {
        Self { last: (server.started, Vec::new()), server }
    }

    /// The next line, with its line end.
    pub fn line(&mut self) -> String {
        // Numbers and names always are JSON.
        serde_json::to_string(&self.sample()).unwrap_or_default() + "\n"
    }

    /// The same before it is text.
    pub fn sample(&mut self) -> StatsSample {
        let now = Instant::now();
        let interval = now.duration_since(self.last.0);
        let nothing = ExportStats::new(false).snapshot();
        let (mut exports, mut told) = (Vec::new(), Vec::new());
        for volume in &*self.server.volumes.now() {
            let snapshot = volume.stats.snapshot();
            let mut before = self.last.1.iter();
            let last = before.find(|(stats, _)| volume.counts_in(stats));
            let last = last.map_or(&nothing, |(_, last)| last);
            exports.push(of_export(volume, &snapshot, last, interval));
            told.push((Arc::clone(&volume.stats), snapshot));
        }
        self.last = (now, told);
        StatsSample {
            version: VERSION,
            uptime_s: seconds(now.duration_since(self.server.started)),
            interval_s: seconds(interval),
            poll: self.server.poll.to_string(),
            exports,
        }
    }
}

fn of_export(volume: &ServedVolume, now: &Snapshot, last: &Snapshot, interval: Duration) -> ExportSample {
    let (times, before) = (now.times, last.times);
    let crypto_ns = times.crypto_ns.saturating_sub(before.crypto_ns);
    let active_ns = times.active_ns.saturating_sub(before.active_ns);
    let busy_ns = times.busy_ns.saturating_sub(before.busy_ns);
    let [read, write, flush, other] =
        std::array::from_fn(|kind| of_operation(&now.operations[kind], &last.operations[kind], interval));
    ExportSample {
        name: volume.name.clone(),
        size: volume.gate.size(),
        connections: now.connections,
        crypto_ns: times.crypto_ns,
        active_ns: times.active_ns,
        busy_ns: times.busy_ns,
        crypto_share: share(crypto_ns, active_ns),
        busy_share: share(busy_ns, nanoseconds(interval)),
        operations: Operations { read, write, flush, other },
    }
}

fn of_operation(now: &OperationTotals, last: &OperationTotals, interval: Duration) -> OperationSample {
    OperationSample {
        requests: now.requests,
        bytes: now.bytes,
        errors: now.errors,
        iops: per_second(now.requests.saturating_sub(last.requests), interval),
        bytes_per_second: per_second(now.bytes.saturating_sub(last.bytes), interval),
        latency_us: latency(&now.latency, &last.latency),
    }
}

/// Of the requests since `last`; none where there were none.
fn latency(now: &[u64], last: &[u64]) -> Option<LatencyPercentiles> {
    // 1 ns to about 19 hours in two digits; a longer one counts as the longest.
    let mut histogram = Histogram::<u64>::new_with_bounds(1, 1 << 46, 2).ok()?;
    for (index, (now, last)) in now.iter().zip(last).enumerate() {
        let new = now.saturating_sub(*last);
        if new > 0 {
            histogram.saturating_record_n(bucket_value(index), new);
        }
    }
    let at = |quantile| microseconds(histogram.value_at_quantile(quantile));
    (!histogram.is_empty()).then(|| LatencyPercentiles {
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        max: microseconds(histogram.max()),
    })
}

/// Rounded to three digits after the point: more would be noise.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn seconds(time: Duration) -> f64 {
    rounded(time.as_secs_f64())
}

fn microseconds(nanoseconds: u64) -> f64 {
    seconds(Duration::from_nanos(nanoseconds).saturating_mul(1_000_000))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn per_second(count: u64, interval: Duration) -> f64 {
    let seconds = interval.as_secs_f64();
    if seconds > 0.0 { rounded(float(count) / seconds) } else { 0.0 }
}

/// `part / whole`, where there is a whole.
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| rounded(float(part) / float(whole)))
}

/// Exact up to 2^53, which is a day of nanoseconds a hundred times over; then to 16 digits.
#[expect(clippy::cast_precision_loss, reason = "for display; see above")]
fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use cryptline::Open;
    use cryptline_engine::Op;
    use cryptline_serve::stats::Times;
    use serde_json::json;

    #[test]
    fn totals_grow_and_rates_and_latencies_are_of_the_interval() {
        let volume = Open::new("ram:1M").open().unwrap();
        let volume = ServedVolume::new("disk".into(), &volume, true).unwrap();
        let started = Instant::now().checked_sub(Duration::from_secs(2)).unwrap();
        let volumes = Volumes::new([volume.clone()].into());
        let mut server = ServerInfo::new(volumes.clone(), Poll::default());
        server.started = started;
        let mut sampler = Sampler::new(server);
        let meter = volume.stats.connect().unwrap();
        for _ in 0..100 {
            let latency = Duration::from_micros(50);
            meter.record(Some(Op::Read), 4096, latency, false);
        }
        meter.record(Some(Op::Write), 4096, Duration::from_millis(1), true);
        meter.set_times(Times { crypto_ns: 250, active_ns: 1000, busy_ns: 200 });
        let first: Value = serde_json::from_str(&sampler.line()).unwrap();
        let export = &first["exports"][0];
        let read = &export["operations"]["read"];
        assert_eq!((&first["poll"], &export["name"]), (&json!("never"), &json!("disk")));
        assert_eq!((&export["connections"], &read["requests"]), (&json!(1), &json!(100)));
        assert_eq!(export["crypto_share"], 0.25);
        let iops = read["iops"].as_f64().unwrap();
        assert!((40.0..=50.0).contains(&iops), "{iops}");
        let p50 = read["latency_us"]["p50"].as_f64().unwrap();
        assert!((43.0..57.0).contains(&p50), "{p50}");
        let write = &export["operations"]["write"];
        assert_eq!((&write["errors"], &write["bytes"]), (&json!(1), &json!(0)));

        let second: Value = serde_json::from_str(&sampler.line()).unwrap();
        let read = &second["exports"][0]["operations"]["read"];
        assert_eq!((&read["requests"], &read["iops"]), (&json!(100), &json!(0.0)));
        assert_eq!(read["latency_us"], Value::Null);

        // One that comes later has its own counts, and one that goes takes them along.
        let later = Open::new("ram:1M").open().unwrap();
        let later = ServedVolume::new("later".into(), &later, true).unwrap();
        volumes.add(later.clone());
        volumes.forget(&volume.stats);
        let third: Value = serde_json::from_str(&sampler.line()).unwrap();
        let exports = third["exports"].as_array().unwrap();
        assert_eq!((exports.len(), &exports[0]["name"]), (1, &json!("later")));
        assert_eq!(exports[0]["operations"]["read"]["requests"], 0);
    }
}
