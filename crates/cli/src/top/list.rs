//! The screen of `top`: a line for each export, and all figures of the one that is selected.
//!
//! ```text
//! what each server is
//! keys
//! titles
//! exports, as many as there is room for; the selected one is always among them
//! how many are not shown
//!
//! figures of the selected one, if they are wanted
//! ```

use std::cmp::Ordering;

use clap::ValueEnum;

use super::view::{bandwidth, detail_lines, duration, latency};
use crate::error::on_one_line;
use crate::serve::statistics::{ExportSample, LatencyPercentiles, OperationSample, StatsSample};

/// Columns from which on everything has a column of its own.
const WIDE: usize = 80;
/// Columns of all but the name, there and where there is less room.
const FIGURES: [usize; 2] = [67, 48];
/// Longest part of a name that is shown, in characters.
const NAME_MAX: usize = 40;
/// Legends of what can be pressed.
const KEYS: &str = "q quit  Up/Down select  Enter details  sort: (s)erver (n)ame (i)ops (b)w (l)at";
const NARROW_KEYS: &str = "q  Up/Down  Enter details  sort: s n i b l";

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
pub struct ShownServer {
    /// Its socket.
    pub socket: String,
    /// Last figures that it gave.
    pub sample: StatsSample,
    /// Set if it will say no more.
    pub ended: bool,
}

/// View of the user: the order, and one export.
#[derive(Debug, Default)]
pub struct Focus {
    pub sort: Sort,
    /// The selected export: its server's number and its name. Without one the first is.
    pub selected: Option<(usize, String)>,
    /// Set if its details are wanted; until somebody has said so, those of an only export are.
    pub details: Option<bool>,
}

/// An export and the number of its server.
type ExportRow<'a> = (usize, &'a ExportSample);

impl Focus {
    /// Selects the export so many lines further down, or up.
    pub fn move_by(&mut self, servers: &[ShownServer], lines: isize) {
        let rows = rows(servers, self.sort);
        let place = self.place(&rows).saturating_add_signed(lines).min(rows.len().saturating_sub(1));
        self.selected = rows.get(place).map(|(server, export)| (*server, export.name.clone()));
    }

    /// Shows or hides the details.
    pub fn toggle(&mut self, servers: &[ShownServer]) {
        self.details = Some(!self.has_details(servers));
    }

    fn has_details(&self, servers: &[ShownServer]) -> bool {
        let count: usize = servers.iter().map(|server| server.sample.exports.len()).sum();
        self.details.unwrap_or(count == 1)
    }

    /// The selected row.
    fn place(&self, rows: &[ExportRow<'_>]) -> usize {
        let is_it = |(server, export): &ExportRow<'_>| {
            self.selected.as_ref().is_some_and(|(of, name)| of == server && *name == export.name)
        };
        rows.iter().position(is_it).unwrap_or(0)
    }
}

/// The samples as a screen of so many columns: at most `height` lines from the top.
pub fn screen_lines(servers: &[ShownServer], focus: &Focus, columns: usize, height: usize) -> Vec<String> {
    let is_narrow = columns < WIDE;
    let mut lines: Vec<_> = servers.iter().take((height / 3).max(1)).map(|server| title(server, is_narrow)).collect();
    if lines.len() < servers.len() {
        let more = servers.len() - lines.len() + 1;
        lines.pop();
        lines.push(format!("and {more} more servers"));
    }
    lines.push((if is_narrow { NARROW_KEYS } else { KEYS }).to_owned());
    let rows = rows(servers, focus.sort);
    let place = focus.place(&rows);
    let details = match rows.get(place) {
        Some((_, export)) if focus.has_details(servers) => detail_lines(export, columns),
        _ => Vec::new(),
    };
    let name_width = columns.saturating_sub(FIGURES[usize::from(is_narrow)]).clamp(8, NAME_MAX);
    lines.push(titles(name_width, is_narrow));
    let below = if details.is_empty() { 0 } else { details.len() + 1 };
    let mut room = height.saturating_sub(lines.len() + below).max(1);
    if room < rows.len() {
        // A line for how many there are besides.
        room = room.saturating_sub(1).max(1);
    }
    let first = (place + 1).saturating_sub(room);
    for (index, row) in rows.iter().enumerate().skip(first).take(room) {
        let mark = if index == place { '>' } else { ' ' };
        let server = (servers.len() > 1).then_some(row.0 + 1);
        lines.push(format!("{mark} {}", export_row(row.1, server, name_width, is_narrow)));
    }
    let hidden = rows.len().saturating_sub(room);
    if hidden > 0 {
        lines.push(format!("  {first} more above, {} below", hidden - first));
    }
    if !details.is_empty() {
        lines.push(String::new());
        lines.extend(details);
    }
    lines.truncate(height);
    lines
}

fn rows(servers: &[ShownServer], sort: Sort) -> Vec<ExportRow<'_>> {
    let of_server = |(number, server): (usize, &'_ ShownServer)| (number, server.sample.exports.len());
    let mut rows = Vec::with_capacity(servers.iter().enumerate().map(|it| of_server(it).1).sum());
    for (number, server) in servers.iter().enumerate() {
        rows.extend(server.sample.exports.iter().map(|export| (number, export)));
    }
    rows.sort_by(|(_, one), (_, other)| sort.compare(one, other));
    rows
}

/// Returns what is said of a server. Where there is little room, its end may be cut off.
fn title(server: &ShownServer, is_narrow: bool) -> String {
    let (socket, sample) = (on_one_line(&server.socket), &server.sample);
    let time = if server.ended {
        "has ended".to_owned()
    } else {
        format!("up {}   each {:.1} s", duration(sample.uptime_s), sample.interval_s)
    };
    if is_narrow { format!("{time}   {socket}") } else { format!("cryptline  {socket}   {time}") }
}

fn titles(name: usize, is_narrow: bool) -> String {
    if is_narrow {
        format!(
            "  {:<name$}{:>5}{:>8}{:>8}{:>11}{:>8}{:>6}",
            "export", "conn", "read/s", "write/s", "bandwidth", "p99", "err"
        )
    } else {
        format!(
            "  {:<name$}{:>5}{:>7}{:>11}{:>8}{:>11}{:>8}{:>8}{:>7}",
            "export", "conn", "read/s", "read", "write/s", "write", "p50", "p99", "errors"
        )
    }
}

/// Latencies are those of the slowest kind of operation.
fn export_row(export: &ExportSample, server: Option<usize>, width: usize, is_narrow: bool) -> String {
    let name = name_of(export, server, width - 1);
    let (read, write) = (&export.operations.read, &export.operations.write);
    let all = export.operations.list();
    let errors: u64 = all.iter().map(|(_, operation)| operation.errors).sum();
    let slowest = all.iter().filter_map(|(_, it)| it.latency_us).max_by(|one, other| one.p99.total_cmp(&other.p99));
    let of = |which: fn(LatencyPercentiles) -> f64| slowest.map_or_else(|| "-".to_owned(), |all| latency(which(all)));
    let (p50, p99) = (of(|all| all.p50), of(|all| all.p99));
    if is_narrow {
        let sum = bandwidth(all.iter().map(|(_, operation)| operation.bytes_per_second).sum());
        return format!(
            "{name:<width$}{:>5}{:>8.0}{:>8.0}{sum:>11}{p99:>8}{errors:>6}",
            export.connections, read.iops, write.iops
        );
    }
    format!(
        "{name:<width$}{:>5}{:>7.0}{:>11}{:>8.0}{:>11}{p50:>8}{p99:>8}{errors:>7}",
        export.connections,
        read.iops,
        bandwidth(read.bytes_per_second),
        write.iops,
        bandwidth(write.bytes_per_second),
    )
}

/// The name, cut to so many characters, and which server has it.
fn name_of(export: &ExportSample, server: Option<usize>, width: usize) -> String {
    let end = server.map_or_else(String::new, |number| format!("@{number}"));
    let mut name = if export.name.is_empty() { "\"\"".to_owned() } else { on_one_line(&export.name) };
    let room = width.saturating_sub(end.chars().count());
    if name.chars().count() > room {
        name = name.chars().take(room.saturating_sub(1)).chain(['…']).collect();
    }
    name + &end
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
