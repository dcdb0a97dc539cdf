//! One line of statistics (docs/stats.md). Whatever is missing or of another kind reads as nothing:
//! the server may be of another version.

use serde_json::Value;

/// What one server did in one interval.
#[derive(Debug, Default)]
pub struct Sample {
    /// Seconds since the server started.
    pub uptime_s: f64,
    /// Seconds that the rates cover.
    pub interval_s: f64,
    /// By export.
    pub exports: Vec<ExportSample>,
}

/// What one export did.
#[derive(Debug, Default)]
pub struct ExportSample {
    /// Its name.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Open connections.
    pub connections: u64,
    /// The cipher's part of the active time.
    pub crypto_share: Option<f64>,
    /// Processor time of the connections' threads, in processors.
    pub busy_share: Option<f64>,
    /// By operation, in the server's order.
    pub operations: Vec<(String, OperationSample)>,
}

/// What one kind of operation did.
#[derive(Debug, Default)]
pub struct OperationSample {
    /// Requests a second.
    pub iops: f64,
    /// Bytes a second.
    pub bytes_per_second: f64,
    /// Failed requests since the start.
    pub errors: u64,
    /// Microseconds: p50, p90, p99, p99.9, longest.
    pub latency_us: Option<[f64; 5]>,
}

impl Sample {
    /// Reads a parsed line.
    #[must_use]
    pub fn new(value: &Value) -> Self {
        Self {
            uptime_s: number(value, "uptime_s"),
            interval_s: number(value, "interval_s"),
            exports: list(value, "exports").iter().map(export).collect(),
        }
    }
}

fn export(value: &Value) -> ExportSample {
    let name = value.get("name").and_then(Value::as_str).unwrap_or("?");
    let operations = value.get("operations").and_then(Value::as_object);
    ExportSample {
        name: name.to_owned(),
        size: count(value, "size"),
        connections: count(value, "connections"),
        crypto_share: value.get("crypto_share").and_then(Value::as_f64),
        busy_share: value.get("busy_share").and_then(Value::as_f64),
        operations: operations
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.clone(), operation(value)))
            .collect(),
    }
}

fn operation(value: &Value) -> OperationSample {
    let latency = value.get("latency_us").filter(|value| value.is_object());
    let names = ["p50", "p90", "p99", "p999", "max"];
    OperationSample {
        iops: number(value, "iops"),
        bytes_per_second: number(value, "bytes_per_second"),
        errors: count(value, "errors"),
        latency_us: latency.map(|latency| names.map(|name| number(latency, name))),
    }
}

fn number(value: &Value, name: &str) -> f64 {
    value.get(name).and_then(Value::as_f64).unwrap_or(0.0)
}

fn count(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or(0)
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value
        .get(name)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}
