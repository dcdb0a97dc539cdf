//! Counters to JSON lines: what each export did since the reader's previous line.
//!
//! docs/stats.md describes the lines.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cryptline_serve::nbd::Exports;
use cryptline_serve::nbd::stats::{OperationKind, OperationTotals, Snapshot, Times, bucket_value};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// The number of the format; changes when a reader of the old one would be misled.
const VERSION: u32 = 1;

/// One reader's view: remembers what it was told last.
pub struct Sampler {
    exports: Arc<Exports>,
    started: Instant,
    /// When the last line was, and the counters then.
    last: (Instant, Vec<Option<Snapshot>>),
}

impl Sampler {
    /// A reader that has been told nothing: its first line covers all since `started`.
    #[must_use]
    pub fn new(exports: Arc<Exports>, started: Instant) -> Self {
        let nothing = vec![None; exports.list().len()];
        Self {
            exports,
            started,
            last: (started, nothing),
        }
    }

    /// The next line, with its line end.
    pub fn line(&mut self) -> String {
        let now = Instant::now();
        let interval = now.duration_since(self.last.0);
        let mut exports = Vec::with_capacity(self.exports.list().len());
        for (export, last) in self.exports.list().iter().zip(&mut self.last.1) {
            let snapshot = export.stats.snapshot();
            let size = export.gate.geometry().size;
            exports.push(export_value(
                &export.name,
                size,
                &snapshot,
                last.as_ref(),
                interval,
            ));
            *last = Some(snapshot);
        }
        self.last.0 = now;
        let line = json!({
            "version": VERSION,
            "uptime_s": seconds(now.duration_since(self.started)),
            "interval_s": seconds(interval),
            "exports": exports,
        });
        format!("{line}\n")
    }
}

fn export_value(
    name: &str,
    size: u64,
    now: &Snapshot,
    last: Option<&Snapshot>,
    interval: Duration,
) -> Value {
    let before = last.map_or_else(Times::default, |last| last.times);
    let crypto_ns = now.times.crypto_ns.saturating_sub(before.crypto_ns);
    let active_ns = now.times.active_ns.saturating_sub(before.active_ns);
    let busy_ns = now.times.busy_ns.saturating_sub(before.busy_ns);
    let operations: serde_json::Map<String, Value> = OperationKind::ALL
        .iter()
        .enumerate()
        .map(|(index, kind)| {
            let last = last.map(|last| &last.operations[index]);
            let value = operation_value(&now.operations[index], last, interval);
            (kind.name().to_owned(), value)
        })
        .collect();
    json!({
        "name": name,
        "size": size,
        "connections": now.connections,
        "crypto_ns": now.times.crypto_ns,
        "active_ns": now.times.active_ns,
        "busy_ns": now.times.busy_ns,
        "crypto_share": share(crypto_ns, active_ns),
        "busy_share": share(busy_ns, nanoseconds(interval)),
        "operations": operations,
    })
}

fn operation_value(
    now: &OperationTotals,
    last: Option<&OperationTotals>,
    interval: Duration,
) -> Value {
    let requests = now.requests - last.map_or(0, |last| last.requests.min(now.requests));
    let bytes = now.bytes - last.map_or(0, |last| last.bytes.min(now.bytes));
    json!({
        "requests": now.requests,
        "bytes": now.bytes,
        "errors": now.errors,
        "iops": per_second(requests, interval),
        "bytes_per_second": per_second(bytes, interval),
        "latency_us": latency_value(&now.latency, last.map(|last| last.latency.as_slice())),
    })
}

/// Percentiles of the requests since `last` in microseconds; null where there were none.
fn latency_value(now: &[u64], last: Option<&[u64]>) -> Value {
    // 1 ns to about 19 hours in two digits; a longer one counts as the longest.
    let Ok(mut histogram) = Histogram::<u64>::new_with_bounds(1, 1 << 46, 2) else {
        return Value::Null;
    };
    for (index, &count) in now.iter().enumerate() {
        let before = last.and_then(|last| last.get(index)).copied();
        let new = count.saturating_sub(before.unwrap_or(0));
        if new > 0 {
            histogram.saturating_record_n(bucket_value(index), new);
        }
    }
    if histogram.is_empty() {
        return Value::Null;
    }
    let at = |quantile| microseconds(histogram.value_at_quantile(quantile));
    json!({
        "p50": at(0.5),
        "p90": at(0.9),
        "p99": at(0.99),
        "p999": at(0.999),
        "max": microseconds(histogram.max()),
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
    if seconds > 0.0 {
        rounded(float(count) / seconds)
    } else {
        0.0
    }
}

/// `part / whole`; null where there is no whole.
fn share(part: u64, whole: u64) -> Value {
    match whole {
        0 => Value::Null,
        whole => json!(rounded(float(part) / float(whole))),
    }
}

/// Exact up to 2^53, which is a day of nanoseconds a hundred times over; then to 16 digits.
#[expect(clippy::cast_precision_loss, reason = "for display; see above")]
fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use cryptline_engine::Gate;
    use cryptline_engine::base::RamDevice;
    use cryptline_nbd::TlsMode;
    use cryptline_serve::nbd::Export;
    use cryptline_serve::nbd::stats::ExportStats;

    fn exports() -> Arc<Exports> {
        let export = Export {
            name: "disk".into(),
            description: String::new(),
            gate: Gate::new(RamDevice::new(1 << 20).unwrap()),
            minimum_block: 512,
            stats: ExportStats::new(true),
        };
        Exports::new(vec![export], TlsMode::Off).unwrap()
    }

    #[test]
    fn totals_grow_and_rates_and_latencies_are_of_the_interval() {
        let exports = exports();
        let started = Instant::now().checked_sub(Duration::from_secs(2)).unwrap();
        let mut sampler = Sampler::new(Arc::clone(&exports), started);
        let meter = exports.list()[0].stats.connect().unwrap();
        for _ in 0..100 {
            let latency = Duration::from_micros(50);
            meter.record(OperationKind::Read, 4096, latency, false);
        }
        meter.record(OperationKind::Write, 4096, Duration::from_millis(1), true);
        meter.set_times(Times {
            crypto_ns: 250,
            active_ns: 1000,
            busy_ns: 200,
        });
        let first: Value = serde_json::from_str(&sampler.line()).unwrap();
        let export = &first["exports"][0];
        let read = &export["operations"]["read"];
        assert_eq!(export["name"], "disk");
        assert_eq!(
            (&export["connections"], &read["requests"]),
            (&json!(1), &json!(100))
        );
        assert_eq!(export["crypto_share"], 0.25);
        let iops = read["iops"].as_f64().unwrap();
        assert!((40.0..=50.0).contains(&iops), "{iops}");
        let p50 = read["latency_us"]["p50"].as_f64().unwrap();
        assert!((43.0..57.0).contains(&p50), "{p50}");
        let write = &export["operations"]["write"];
        assert_eq!((&write["errors"], &write["bytes"]), (&json!(1), &json!(0)));

        let second: Value = serde_json::from_str(&sampler.line()).unwrap();
        let read = &second["exports"][0]["operations"]["read"];
        assert_eq!(
            (&read["requests"], &read["iops"]),
            (&json!(100), &json!(0.0))
        );
        assert_eq!(read["latency_us"], Value::Null);
    }
}
