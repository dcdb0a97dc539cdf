//! Counters to Prometheus' text format: since the start, each export with a label of its own.
//!
//! docs/metrics.md describes them.

use std::fmt::{self, Write as _};

use cryptline::{BaseInfo, Info};
use cryptline_serve::stats::{BUCKETS, KINDS, OperationTotals, Snapshot, bucket_value};

use super::expiry;
use super::front::ServedVolume;
use super::process::OwnProcess;

/// Upper bounds of the latency histogram are these powers of two of nanoseconds: 1 µs to 17 s. They are bounds
/// of the buckets that requests are counted in, so nothing is counted on the wrong side.
const BOUNDS: std::ops::RangeInclusive<usize> = 10..=34;

/// Longest value of a label that a header or a table has written, in characters.
const LABEL_MAX: usize = 128;

/// Everything there is to tell of `volumes`, served by `process`.
pub fn text(volumes: &[ServedVolume], process: &OwnProcess) -> String {
    let exports: Vec<_> = volumes.iter().map(ExportMetrics::of).collect();
    let mut text = Text::default();
    text.family("cryptline_build_info", "gauge", "1, with the version.");
    text.line("cryptline_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    for figure in process.figures().chain(expiry::figure()) {
        text.family(figure.name, figure.kind, figure.help);
        text.line(figure.name, &[], figure.value);
    }
    text.family("cryptline_export_info", "gauge", "Always 1; its labels describe the export.");
    for volume in volumes {
        text.info(volume);
    }
    for gauge in GAUGES {
        text.family(gauge.name, gauge.kind, gauge.help);
        for export in &exports {
            text.line(gauge.name, &[export.label()], (gauge.value)(export));
        }
    }
    for counter in COUNTERS {
        text.family(counter.name, "counter", counter.help);
        for export in &exports {
            for (kind, totals) in export.operations() {
                let labels = [export.label(), ("operation", kind)];
                text.line(counter.name, &labels, (counter.value)(totals));
            }
        }
    }
    text.family(DURATION, "histogram", "Time from the arrival of a request to its reply.");
    for export in &exports {
        for (kind, totals) in export.operations() {
            text.histogram(&[export.label(), ("operation", kind)], totals);
        }
    }
    text.0
}

const DURATION: &str = "cryptline_operation_duration_seconds";

/// One value for each export.
struct PerExport {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: fn(&ExportMetrics) -> f64,
}

const GAUGES: &[PerExport] = &[
    PerExport {
        name: "cryptline_export_size_bytes",
        kind: "gauge",
        help: "Size of the decrypted disk.",
        value: |export| float(export.size),
    },
    PerExport {
        name: "cryptline_export_connections",
        kind: "gauge",
        help: "Connections or queues that are open.",
        value: |export| float(export.snapshot.connections as u64),
    },
    PerExport {
        name: "cryptline_export_helpers",
        kind: "gauge",
        help: "Threads that help with large requests.",
        value: |export| float(export.helpers as u64),
    },
    PerExport {
        name: "cryptline_export_failed",
        kind: "gauge",
        help: "1 once a write or flush was lost: no flush succeeds any more.",
        value: |export| f64::from(u8::from(export.is_latched)),
    },
    PerExport {
        name: "cryptline_cipher_seconds_total",
        kind: "counter",
        help: "Time in the cipher, on all threads.",
        value: |export| seconds(export.snapshot.times.crypto_ns),
    },
    PerExport {
        name: "cryptline_active_seconds_total",
        kind: "counter",
        help: "Time in which the threads of connections did not wait, and helpers worked for them.",
        value: |export| seconds(export.snapshot.times.active_ns),
    },
    PerExport {
        name: "cryptline_busy_seconds_total",
        kind: "counter",
        help: "Processor time of the threads of connections.",
        value: |export| seconds(export.snapshot.times.busy_ns),
    },
];

/// One value for each kind of operation of each export.
struct PerOperation {
    name: &'static str,
    help: &'static str,
    value: fn(&OperationTotals) -> u64,
}

const COUNTERS: &[PerOperation] = &[
    PerOperation { name: "cryptline_operations_total", help: "Requests finished.", value: |totals| totals.requests },
    PerOperation {
        name: "cryptline_operation_bytes_total",
        help: "Bytes moved by requests that succeeded.",
        value: |totals| totals.bytes,
    },
    PerOperation {
        name: "cryptline_operation_errors_total",
        help: "Requests that failed.",
        value: |totals| totals.errors,
    },
];

/// An export at one moment.
struct ExportMetrics<'a> {
    name: &'a str,
    size: u64,
    helpers: usize,
    is_latched: bool,
    snapshot: Snapshot,
}

impl<'a> ExportMetrics<'a> {
    fn of(volume: &'a ServedVolume) -> Self {
        Self {
            name: &volume.name,
            size: volume.gate.size(),
            helpers: volume.info.helpers,
            is_latched: volume.gate.is_latched(),
            snapshot: volume.stats.snapshot(),
        }
    }

    fn label(&self) -> (&'static str, &'a str) {
        ("export", self.name)
    }

    fn operations(&self) -> impl Iterator<Item = (&'static str, &OperationTotals)> {
        KINDS.into_iter().zip(&self.snapshot.operations)
    }
}

/// Prometheus' text format, version 0.0.4.
#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String does not fail, here and below.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl fmt::Display) {
        self.0.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{}\"", Escaped(text));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }

    fn info(&mut self, volume: &ServedVolume) {
        let info = &volume.info;
        let cipher: String = info.cipher.chars().take(LABEL_MAX).collect();
        let (kind, sector_size) = (info.kind.to_string(), info.sector_size.to_string());
        let labels = [
            ("export", &*volume.name),
            ("type", &kind),
            ("cipher", &cipher),
            ("sector_size", &sector_size),
            ("read_only", if info.read_only { "true" } else { "false" }),
            ("source", source(info)),
        ];
        self.line("cryptline_export_info", &labels, 1);
    }

    fn histogram(&mut self, labels: &[(&str, &str)], totals: &OperationTotals) {
        let bucket = format!("{DURATION}_bucket");
        for exponent in BOUNDS {
            // The first bucket from this power of two on.
            let beyond = (exponent - 2) * 8;
            let within: u64 = totals.latency[..beyond.min(BUCKETS)].iter().sum();
            let bound = seconds(1 << exponent).to_string();
            self.line(&bucket, &[labels, &[("le", &*bound)]].concat(), within);
        }
        self.line(&bucket, &[labels, &[("le", "+Inf")]].concat(), totals.requests);
        let sum: f64 = (totals.latency.iter().enumerate())
            // The last ones stand for no latency that there is.
            .filter(|(_, count)| **count > 0)
            .map(|(index, count)| seconds(bucket_value(index)) * float(*count))
            // The sum of nothing is -0.
            .fold(0.0, |sum, one| sum + one);
        self.line(&format!("{DURATION}_sum"), labels, sum);
        self.line(&format!("{DURATION}_count"), labels, totals.requests);
    }
}

/// Kind of what a volume lies on.
fn source(info: &Info) -> &'static str {
    match info.base {
        BaseInfo::File { .. } => "file",
        BaseInfo::Ram => "ram",
        BaseInfo::Pmem { .. } => "pmem",
        BaseInfo::Btt { .. } => "btt",
        BaseInfo::Zoned(_) => "zoned",
        BaseInfo::Nbd { .. } => "nbd",
        BaseInfo::Rbd { .. } => "rbd",
        BaseInfo::Nothing => "nothing",
        _ => "other",
    }
}

/// The value of a label.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            c => f.write_char(c),
        })
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    float(nanoseconds) / 1e9
}

/// Exact up to 2^53, which is more than a hundred days of nanoseconds; then to 16 digits.
#[expect(clippy::cast_precision_loss, reason = "the format has doubles; see above")]
pub fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use cryptline::Open;
    use cryptline_engine::Op;
    use std::time::Duration;

    fn value(text: &str, start: &str) -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(start));
        line.unwrap_or_else(|| panic!("no {start} in\n{text}")).trim().parse().unwrap()
    }

    #[test]
    fn counts_bounds_and_names_are_as_recorded() {
        let volume = Open::new("ram:1M").open().unwrap();
        let served = ServedVolume::new("a \"b\"\\\n".into(), &volume, true).unwrap();
        let meter = served.stats.connect().unwrap();
        for micros in [1, 50, 50, 3_000_000] {
            let latency = Duration::from_micros(micros);
            meter.record(Some(Op::Read), 4096, latency, micros == 1);
        }
        // Longer than the last bound.
        meter.record(Some(Op::Flush), 0, Duration::from_secs(60), false);
        let text = text(&[served], &OwnProcess::new());
        assert!(!text.contains(" -"), "{text}");
        let info = r#"cryptline_export_info{export="a \"b\"\\\n",type="random key",cipher="aes-xts-plain64",sector_size="4096",read_only="false",source="ram"} 1"#;
        assert!(text.lines().any(|line| line == info), "{text}");
        let export = r#"export="a \"b\"\\\n""#;
        let of = |name: &str, rest: &str| value(&text, &format!("{name}{{{export}{rest}}}"));
        let read = r#",operation="read""#;
        assert!((of("cryptline_operations_total", read) - 4.0).abs() < 1e-9);
        assert!((of("cryptline_operation_bytes_total", read) - 3.0 * 4096.0).abs() < 1e-9);
        assert!((of("cryptline_operation_errors_total", read) - 1.0).abs() < 1e-9);
        assert!((of("cryptline_export_size_bytes", "") - 1_048_576.0).abs() < 1e-9);
        assert!((of("cryptline_export_connections", "") - 1.0).abs() < 1e-9);
        let within = |kind: &str, le: &str| {
            let rest = format!(r#",operation="{kind}",le="{le}""#);
            of("cryptline_operation_duration_seconds_bucket", &rest)
        };
        // 1 µs is below the first bound, 50 µs are between 32.768 and 65.536 µs.
        for (le, count) in [("0.000001024", 1.0), ("0.000032768", 1.0), ("0.000065536", 3.0)] {
            assert!((within("read", le) - count).abs() < 1e-9, "{le}");
        }
        assert!((within("flush", "17.179869184")).abs() < 1e-9);
        assert!((within("flush", "+Inf") - 1.0).abs() < 1e-9);
        let sum = of("cryptline_operation_duration_seconds_sum", read);
        assert!((2.7..3.3).contains(&sum), "{sum}");
        assert!((of("cryptline_export_failed", "")).abs() < 1e-9);
    }
}
