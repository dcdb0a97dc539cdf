//! Figures as text, and a sample as lines of a log. Nothing in them can move the cursor: names come from outside.

use crate::error::on_one_line;
use crate::serve::statistics::{ExportSample, LatencyPercentiles, OperationSample, StatsSample};
use crate::size;

/// Titles of the columns, as wide as [`operation_row`] makes them.
const TITLES: &str = "  operation     IOPS    bandwidth       p50       p90       p99     p99.9       max  errors";
/// The same where there is less room.
const NARROW_TITLES: &str = "  operation     IOPS    bandwidth       p50       p99 errors";

/// All that is known of one export, as lines for so many columns.
pub fn detail_lines(export: &ExportSample, columns: usize) -> Vec<String> {
    let is_narrow = columns < TITLES.chars().count();
    let mut lines = vec![heading(export), (if is_narrow { NARROW_TITLES } else { TITLES }).to_owned()];
    let row = if is_narrow { narrow_row } else { operation_row };
    lines.extend(export.operations.list().into_iter().map(|(name, operation)| row(name, operation)));
    lines
}

/// The sample as one line for each export, for a log.
pub fn sample_lines(sample: &StatsSample) -> String {
    let line = |export: &ExportSample| {
        let mut line = format!("{} {}", duration(sample.uptime_s), heading(export));
        for (name, operation) in export.operations.list() {
            let Some(LatencyPercentiles { p50, p99, .. }) = operation.latency_us else {
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

fn percent(share: Option<f64>) -> String {
    match share {
        Some(share) => format!("{:.0} %", share * 100.0),
        None => "-".to_owned(),
    }
}

fn operation_row(name: &str, operation: &OperationSample) -> String {
    row(name, operation, &[0, 1, 2, 3, 4]) + &format!("{:>8}", operation.errors)
}

fn narrow_row(name: &str, operation: &OperationSample) -> String {
    row(name, operation, &[0, 2]) + &format!("{:>7}", operation.errors)
}

/// With these of the latencies.
fn row(name: &str, operation: &OperationSample, latencies: &[usize]) -> String {
    let mut row = format!("  {name:<9}{:>9.0}{:>13}", operation.iops, bandwidth(operation.bytes_per_second));
    for &index in latencies {
        let value = operation.latency_us.map(|all| latency(all.list()[index]));
        row += &format!("{:>10}", value.as_deref().unwrap_or("-"));
    }
    row
}

/// Three digits and a unit.
pub fn latency(microseconds: f64) -> String {
    let (value, unit) = match microseconds {
        us if us < 999.5 => (us, "µs"),
        us if us < 999_500.0 => (us / 1e3, "ms"),
        us => (us / 1e6, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

pub fn bandwidth(bytes_per_second: f64) -> String {
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

pub fn duration(seconds: f64) -> String {
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
#[path = "view_tests.rs"]
mod tests;
