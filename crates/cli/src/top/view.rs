//! A sample as text. Nothing in it can move the cursor: names come from outside.

use crate::error::on_one_line;
use crate::serve::statistics::{ExportSample, Latency, OperationSample, Sample};
use crate::size;

/// Titles of the columns, as wide as [`operation_row`] makes them.
const TITLES: &str =
    "  operation     IOPS    bandwidth       p50       p90       p99     p99.9       max  errors";

/// The sample as a screen: the lines from the top.
#[must_use]
pub fn screen_lines(sample: &Sample, socket: &str) -> Vec<String> {
    let mut lines = vec![format!(
        "cryptline  {}   up {}   each {:.1} s   q quits",
        on_one_line(socket),
        duration(sample.uptime_s),
        sample.interval_s
    )];
    for export in &sample.exports {
        lines.push(String::new());
        lines.push(heading(export));
        lines.push(TITLES.to_owned());
        let operations = export.operations.list().into_iter();
        lines.extend(operations.map(|(name, operation)| operation_row(name, operation)));
    }
    lines
}

/// The sample as one line for each export, for a log.
#[must_use]
pub fn sample_lines(sample: &Sample) -> String {
    let line = |export: &ExportSample| {
        let mut line = format!("{} {}", duration(sample.uptime_s), heading(export));
        for (name, operation) in export.operations.list() {
            let Some(Latency { p50, p99, .. }) = operation.latency_us else {
                continue;
            };
            line += &format!(
                "  {name}: {:.0}/s {} p50 {} p99 {}",
                operation.iops,
                bandwidth(operation.bytes_per_second),
                latency(p50),
                latency(p99)
            );
            if operation.errors > 0 {
                line += &format!(" {} errors", operation.errors);
            }
        }
        line + "\n"
    };
    sample.exports.iter().map(line).collect()
}

fn heading(export: &ExportSample) -> String {
    let percent = |share: Option<f64>| match share {
        Some(share) => format!("{:.0} %", share * 100.0),
        None => "-".to_owned(),
    };
    format!(
        "export \"{}\"  {}  {} connection{}  cpu {}  cipher {} of it",
        on_one_line(&export.name),
        size::human(export.size),
        export.connections,
        if export.connections == 1 { "" } else { "s" },
        percent(export.busy_share),
        percent(export.crypto_share),
    )
}

fn operation_row(name: &str, operation: &OperationSample) -> String {
    let mut row = format!(
        "  {name:<9}{:>9.0}{:>13}",
        operation.iops,
        bandwidth(operation.bytes_per_second)
    );
    for index in 0..5 {
        let value = operation.latency_us.map(|all| latency(all.list()[index]));
        row += &format!("{:>10}", value.as_deref().unwrap_or("-"));
    }
    row + &format!("{:>8}", operation.errors)
}

/// Three digits and a unit.
fn latency(microseconds: f64) -> String {
    let (value, unit) = match microseconds {
        us if us < 999.5 => (us, "µs"),
        us if us < 999_500.0 => (us / 1e3, "ms"),
        us => (us / 1e6, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

fn bandwidth(bytes_per_second: f64) -> String {
    let units = ["B/s", "KiB/s", "MiB/s", "GiB/s"];
    let (mut value, mut unit) = (bytes_per_second, 0);
    while value >= 1023.5 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", three_digits(value), units[unit])
}

fn three_digits(value: f64) -> String {
    match value {
        value if value == 0.0 || value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

fn duration(seconds: f64) -> String {
    let clock = std::time::Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default();
    let seconds = clock.as_secs();
    let (days, hours, minutes) = (seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60);
    let time = format!("{hours:02}:{minutes:02}:{:02}", seconds % 60);
    match days {
        0 => time,
        days => format!("{days}d {time}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    fn sample() -> Sample {
        let read = json!({
            "requests": 10, "bytes": 40960, "errors": 2, "iops": 12345.6,
            "bytes_per_second": 50_567_577.6,
            "latency_us": {"p50": 52.1, "p90": 120.0, "p99": 1234.0, "p999": 99_960.0, "max": 1e7}
        });
        let flush = json!({"requests": 0, "bytes": 0, "errors": 0, "iops": 0.0,
            "bytes_per_second": 0.0, "latency_us": null});
        from_value(
            json!({"version": 1, "uptime_s": 3661.5, "interval_s": 1.0, "exports": [{
            "name": "a\u{1b}[2J", "size": 1 << 30, "connections": 1, "crypto_share": 0.31,
            "busy_share": 1.5, "operations": {"read": read, "flush": flush}}]}),
        )
        .unwrap()
    }

    #[test]
    fn columns_stand_below_their_titles() {
        let lines = screen_lines(&sample(), "/run/s");
        assert_eq!(
            lines[0],
            "cryptline  /run/s   up 01:01:01   each 1.0 s   q quits"
        );
        assert_eq!(
            lines[2],
            "export \"a\\u{1b}[2J\"  1 GiB  1 connection  cpu 150 %  cipher 31 % of it"
        );
        assert_eq!(lines[3], TITLES);
        assert_eq!(
            lines[4],
            "  read         12346   48.2 MiB/s   52.1 µs    120 µs   1.23 ms    100 ms    10.0 s       2"
        );
        let width = |line: &String| line.chars().count();
        assert!(
            lines[3..]
                .iter()
                .all(|line| width(line) == width(&lines[3]))
        );
    }

    #[test]
    fn a_log_line_has_only_what_happened() {
        assert_eq!(
            sample_lines(&sample()),
            "01:01:01 export \"a\\u{1b}[2J\"  1 GiB  1 connection  cpu 150 %  cipher 31 % of it  \
             read: 12346/s 48.2 MiB/s p50 52.1 µs p99 1.23 ms 2 errors\n"
        );
    }

    #[test]
    fn what_a_sample_lacks_is_shown_as_nothing() {
        let other = json!({"exports": [{}, {"operations": {"x": 1, "read": {}}}]});
        let other: Sample = from_value(other).unwrap();
        assert!(sample_lines(&other).starts_with("00:00:00 export \"\"  0 bytes"));
        assert!(screen_lines(&other, "")[4].starts_with(&format!("  read{:>14}", 0)));
    }
}
