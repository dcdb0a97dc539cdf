//! Samples as text. Nothing in it can move the cursor: names come from outside.

use std::cmp::Ordering;

use clap::ValueEnum;

use crate::error::on_one_line;
use crate::serve::statistics::{ExportSample, Latency, OperationSample, Sample};
use crate::size;

/// Titles of the columns, as wide as [`operation_row`] makes them.
const TITLES: &str = "  operation     IOPS    bandwidth       p50       p90       p99     p99.9       max  errors";
/// The same where there is less room.
const NARROW_TITLES: &str = "  operation     IOPS    bandwidth       p50       p99 errors";
/// Longest name where there is less room.
const NARROW_NAME: usize = 12;
/// Legend of what can be pressed.
const KEYS: &str = "q quits   sort: (s)erver (n)ame (i)ops (b)andwidth (l)atency";

/// The order of exports on the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// As the servers have them
    #[default]
    Server,
    /// By name
    Name,
    /// Most operations a second first
    Iops,
    /// Most bytes a second first
    Bandwidth,
    /// Longest p99 first
    Latency,
}

impl Sort {
    /// Returns what a key asks for.
    pub fn of_key(key: u8) -> Option<Self> {
        match key.to_ascii_lowercase() {
            b's' => Some(Self::Server),
            b'n' => Some(Self::Name),
            b'i' => Some(Self::Iops),
            b'b' => Some(Self::Bandwidth),
            b'l' => Some(Self::Latency),
            _ => None,
        }
    }

    fn compare(self, one: &ExportSample, other: &ExportSample) -> Ordering {
        let sum = |export: &ExportSample, of: fn(&OperationSample) -> f64| {
            export.operations.list().into_iter().map(|(_, operation)| of(operation)).sum::<f64>()
        };
        let most_first = |of: fn(&OperationSample) -> f64| sum(other, of).total_cmp(&sum(one, of));
        match self {
            Self::Server => Ordering::Equal,
            Self::Name => one.name.cmp(&other.name),
            Self::Iops => most_first(|operation| operation.iops),
            Self::Bandwidth => most_first(|operation| operation.bytes_per_second),
            Self::Latency => slowest(other).total_cmp(&slowest(one)),
        }
    }
}

/// The longest p99 of an export's operations.
fn slowest(export: &ExportSample) -> f64 {
    let operations = export.operations.list().into_iter();
    operations.filter_map(|(_, operation)| operation.latency_us.map(|all| all.p99)).fold(0.0, f64::max)
}

/// A server as it is shown.
#[derive(Debug, Default)]
pub struct Shown {
    /// Its socket.
    pub socket: String,
    /// Last figures that it gave.
    pub sample: Sample,
    /// Set if it will say no more.
    pub ended: bool,
}

/// The samples as a screen of so many columns: the lines from the top.
pub fn screen_lines(servers: &[Shown], sort: Sort, columns: usize) -> Vec<String> {
    let is_narrow = columns < TITLES.chars().count();
    let mut lines: Vec<_> = servers.iter().map(|server| title(server, is_narrow)).collect();
    lines.push(KEYS.to_owned());
    let of_server = |server: &'_ Shown| server.sample.exports.len();
    let mut exports = Vec::with_capacity(servers.iter().map(of_server).sum());
    for (number, server) in servers.iter().enumerate() {
        exports.extend(server.sample.exports.iter().map(|export| (number, export)));
    }
    exports.sort_by(|(_, one), (_, other)| sort.compare(one, other));
    for (number, export) in exports {
        lines.push(String::new());
        let whose = (servers.len() > 1).then_some(number + 1);
        lines.push(if is_narrow { narrow_heading(export, whose) } else { wide_heading(export, whose) });
        lines.push((if is_narrow { NARROW_TITLES } else { TITLES }).to_owned());
        let row = if is_narrow { narrow_row } else { operation_row };
        let operations = export.operations.list().into_iter();
        lines.extend(operations.map(|(name, operation)| row(name, operation)));
    }
    lines
}

/// Returns what is said of a server. Where there is little room, its end may be cut off.
fn title(server: &Shown, is_narrow: bool) -> String {
    let (socket, sample) = (on_one_line(&server.socket), &server.sample);
    let time = if server.ended {
        "has ended".to_owned()
    } else {
        format!("up {}   each {:.1} s", duration(sample.uptime_s), sample.interval_s)
    };
    if is_narrow { format!("{time}   {socket}") } else { format!("cryptline  {socket}   {time}") }
}

fn wide_heading(export: &ExportSample, server: Option<usize>) -> String {
    heading(export) + &server.map_or(String::new(), |number| format!("  server {number}"))
}

fn narrow_heading(export: &ExportSample, server: Option<usize>) -> String {
    let mut name = on_one_line(&export.name);
    if name.chars().count() > NARROW_NAME {
        name = name.chars().take(NARROW_NAME - 1).chain(['…']).collect();
    }
    format!(
        "\"{name}\"{}  {}  {} conn  cpu {}  cipher {}",
        server.map_or(String::new(), |number| format!(" @{number}")),
        size::human(export.size),
        export.connections,
        percent(export.busy_share),
        percent(export.crypto_share),
    )
}

/// The sample as one line for each export, for a log.
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
    use serde_json::{Value, from_value, json};

    fn shown(socket: &str, sample: Sample) -> Shown {
        Shown { socket: socket.to_owned(), sample, ended: false }
    }

    fn sample() -> Sample {
        let read = json!({
            "requests": 10, "bytes": 40960, "errors": 2, "iops": 12345.6,
            "bytes_per_second": 50_567_577.6,
            "latency_us": {"p50": 52.1, "p90": 120.0, "p99": 1234.0, "p999": 99_960.0, "max": 1e7}
        });
        let flush = json!({"requests": 0, "bytes": 0, "errors": 0, "iops": 0.0,
            "bytes_per_second": 0.0, "latency_us": null});
        from_value(json!({"version": 1, "uptime_s": 3661.5, "interval_s": 1.0, "exports": [{
            "name": "a\u{1b}[2J", "size": 1 << 30, "connections": 1, "crypto_share": 0.31,
            "busy_share": 1.5, "operations": {"read": read, "flush": flush}}]}))
        .unwrap()
    }

    #[test]
    fn columns_stand_below_their_titles() {
        let lines = screen_lines(&[shown("/run/s", sample())], Sort::Server, 120);
        assert_eq!(lines[0], "cryptline  /run/s   up 01:01:01   each 1.0 s");
        assert_eq!(lines[3], "export \"a\\u{1b}[2J\"  1 GiB  1 connection  cpu 150 %  cipher 31 % of it");
        assert_eq!(lines[4], TITLES);
        assert_eq!(
            lines[5],
            "  read         12346   48.2 MiB/s   52.1 µs    120 µs   1.23 ms    100 ms    10.0 s       2"
        );
        let width = |line: &String| line.chars().count();
        assert!(lines[4..].iter().all(|line| width(line) == width(&lines[4])));
    }

    #[test]
    fn sixty_columns_are_enough() {
        let mut long = sample();
        long.exports[0].name = "a name that is much longer than there is room for".to_owned();
        let servers = [shown("/run/s", sample()), shown("/run/t", long)];
        let lines = screen_lines(&servers, Sort::Server, 60);
        let widths = lines.iter().map(|line| line.chars().count());
        assert!(widths.max() <= Some(60), "{lines:#?}");
        assert_eq!(lines[0], "up 01:01:01   each 1.0 s   /run/s");
        assert_eq!(lines[5], NARROW_TITLES);
        assert_eq!(lines[6], "  read         12346   48.2 MiB/s   52.1 µs   1.23 ms      2");
        assert!(lines[5..8].iter().all(|line| line.chars().count() == 60));
    }

    #[test]
    fn exports_of_all_servers_are_sorted_together() {
        let export = |name: &str, iops: f64, p99: f64| {
            json!({"name": name, "operations": {"read": {"iops": iops, "bytes_per_second": 9.0 - iops,
                "latency_us": {"p99": p99}}}})
        };
        let of = |exports: Value| from_value::<Sample>(json!({ "exports": exports })).unwrap();
        let servers = [
            shown("one", of(json!([export("b", 1.0, 7.0), export("d", 2.0, 5.0)]))),
            shown("two", of(json!([export("a", 4.0, 1.0), export("c", 3.0, 6.0)]))),
        ];
        for (key, expected) in [(b's', "bdac"), (b'n', "abcd"), (b'I', "acdb"), (b'b', "bdca"), (b'l', "bcda")] {
            let lines = screen_lines(&servers, Sort::of_key(key).unwrap(), 120);
            let headings = lines.iter().filter_map(|line| line.strip_prefix("export \""));
            let order: String = headings.filter_map(|line| line.chars().next()).collect();
            assert_eq!(order, expected, "{}", char::from(key));
            assert!(lines.iter().any(|line| line.contains("\"a\"") && line.ends_with("server 2")));
        }
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
        let lines = screen_lines(&[shown("", other)], Sort::Latency, 120);
        assert!(lines[5].starts_with(&format!("  read{:>14}", 0)));
    }
}
