//! The report as text: what cryptsetup says of KDFs in its words, and tables.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use cryptline::size;
use cryptline_cipher::ceiling::median;

use super::ciphers::{CipherRow, DIRECTIONS};
use super::compare::ComparedTimes;
use super::kdfs::KdfRow;
use super::report::{BenchmarkFigure, BenchmarkReport};
use super::table;

/// Bytes in a GB, as speeds are given.
const GB: f64 = 1e9;

/// All that was measured, in this order: KDFs as cryptsetup states them, ciphers, the comparison, the
/// figures, with their goals or without.
pub fn render(report: &BenchmarkReport, goals: bool) -> String {
    let mut parts = Vec::new();
    if !report.kdfs.is_empty() {
        parts.push(kdfs(&report.kdfs));
    }
    if !report.ciphers.is_empty() {
        parts.push(ciphers(report));
        parts.push(backends(report));
    }
    parts.extend(report.comparison.iter().map(compared));
    if !report.figures.is_empty() {
        parts.push(figures(&report.figures, goals));
    }
    if !report.ciphers.is_empty() {
        parts.push("Speeds are medians, 1 GB is 10^9 bytes; half of the samples lie within the spread.\n".to_owned());
    }
    parts.join("\n")
}

fn kdfs(rows: &[KdfRow]) -> String {
    let mut text = String::new();
    for row in rows {
        let name = match row.hash {
            Some(hash) => format!("{}-{hash}", row.kdf),
            None => row.kdf.clone(),
        };
        // Writing to a String does not fail.
        let _ = write!(text, "{name:<19}");
        if let (Some(rate), Some(spread)) = (row.iterations_per_second, row.spread) {
            let (bits, spread) = (row.key_bits, spread * 100.0);
            let _ = writeln!(text, "{rate:>10.0} iterations per second for {bits}-bit key, spread {spread:.0} %");
        }
        if let (Some(time), Some(memory), Some(cpus)) = (row.time, row.memory_kib, row.cpus) {
            let _ = writeln!(
                text,
                "{time:>10} iterations, {memory} KiB memory, {cpus} parallel lanes for {}-bit key: {:.0} ms (requested {} ms)",
                row.key_bits,
                row.took_ms.unwrap_or_default(),
                row.target_ms.unwrap_or_default(),
            );
        }
    }
    text
}

/// One line for each cipher, key, cipher sector and request.
fn ciphers(report: &BenchmarkReport) -> String {
    let same = |a: &CipherRow, b: &CipherRow| {
        (&a.cipher, a.key_bits, a.sector_size, a.request) == (&b.cipher, b.key_bits, b.sector_size, b.request)
    };
    let columns = |threads: usize| {
        let plural = if threads > 1 { "s" } else { "" };
        ["encrypt", "decrypt"].map(|way| format!("{way}, {threads} core{plural}"))
    };
    let threads = BTreeSet::from([1, report.cores]);
    let heads = ["cipher", "key", "sector", "request"].map(str::to_owned);
    let heads = heads.into_iter().chain(threads.iter().copied().flat_map(columns)).chain(["spread".to_owned()]);
    let line = |rows: &[CipherRow]| {
        let first = &rows[0];
        let speed = |threads, direction| {
            let mut rows = rows.iter();
            let row = rows.find(|row| (row.threads, row.direction) == (threads, direction));
            row.map_or_else(String::new, |row| gigabytes(row.bytes_per_second))
        };
        let speeds = |&threads| DIRECTIONS.map(|direction| speed(threads, direction));
        let spread = rows.iter().map(|row| row.spread).fold(0.0, f64::max) * 100.0;
        let cells = [
            first.cipher.clone(),
            first.key_bits.to_string(),
            first.sector_size.to_string(),
            size::human(u64::from(first.request)),
        ];
        cells.into_iter().chain(threads.iter().flat_map(speeds)).chain([format!("{spread:.0} %")]).collect()
    };
    let lines: Vec<Vec<String>> = report.ciphers.chunk_by(same).map(line).collect();
    table::text("Ciphers, GB/s", &heads.collect::<Vec<_>>(), &lines)
}

/// Names what runs each cipher.
fn backends(report: &BenchmarkReport) -> String {
    let mut rows: Vec<Vec<String>> =
        report.ciphers.iter().map(|row| vec![row.cipher.clone(), row.backend.to_owned()]).collect();
    rows.dedup();
    table::text("Implementations", &["cipher", "back end"].map(str::to_owned), &rows)
}

/// The figures, with their goals or without, and why one has no value or no goal.
fn figures(figures: &[BenchmarkFigure], goals: bool) -> String {
    let row = |figure: &BenchmarkFigure| {
        let value = figure.value.map_or("-".into(), |value| format!("{value:.3}"));
        let goal = if goals { figure.goal_text() } else { figure.unit.to_owned() };
        let note = figure.note.clone().filter(|_| goals || figure.value.is_none());
        vec![figure.name.to_owned(), value, goal, note.unwrap_or_default()]
    };
    let heads = ["", "value", if goals { "goal" } else { "" }, ""].map(str::to_owned);
    table::text("Figures", &heads, &figures.iter().map(row).collect::<Vec<_>>())
}

/// Three digits or more.
fn gigabytes(bytes_per_second: f64) -> String {
    let speed = bytes_per_second / GB;
    match speed {
        0.0..1.0 => format!("{speed:.3}"),
        _ => format!("{speed:.2}"),
    }
}

fn compared(comparison: &ComparedTimes) -> String {
    let ComparedTimes { cryptsetup, kdf, time, memory_kib, cpus, cryptline_ms, cryptsetup_ms } = comparison;
    let row = |(name, times): (&str, &Vec<f64>)| {
        let each: Vec<_> = times.iter().map(|time| format!("{time:.0}")).collect();
        vec![name.to_owned(), format!("{:.0}", median(times).unwrap_or(0.0)), each.join(", ")]
    };
    let title = format!("Unlocking LUKS2 ({kdf}, {time} iterations, {memory_kib} KiB memory, {cpus} lanes), in turns");
    let rows = [("cryptline", cryptline_ms), (cryptsetup.as_str(), cryptsetup_ms)].map(row);
    table::text(&title, &["program", "median ms", "each ms"].map(str::to_owned), &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::benchmark::ciphers::CipherDirection;

    fn row(direction: CipherDirection, threads: usize, bytes_per_second: f64) -> CipherRow {
        CipherRow {
            cipher: "aes-xts-plain64".into(),
            key_bits: 512,
            sector_size: 4096,
            request: 65536,
            direction,
            threads,
            bytes_per_second,
            spread: 0.02,
            samples: 9,
            backend: "some back end",
            busy: 1.0,
        }
    }

    #[test]
    fn directions_and_threads_of_one_case_share_a_line() {
        let mut report = BenchmarkReport { cores: 2, ..BenchmarkReport::default() };
        for (threads, scale) in [(1, 1.0), (2, 2.0)] {
            report.ciphers.push(row(CipherDirection::Encrypt, threads, 8e9 * scale));
            report.ciphers.push(row(CipherDirection::Decrypt, threads, 0.5e9 * scale));
        }
        let text = render(&report, false);
        let words = "aes-xts-plain64 512 4096 64 KiB 8.00 0.500 16.00 1.00 2 %";
        let has = |line: &str| line.split_whitespace().eq(words.split(' '));
        assert!(text.lines().any(has), "{text}");
        assert!(text.contains("  aes-xts-plain64  some back end\n"), "{text}");
        assert!(text.contains("  2 cores   2 cores"), "{text}");
    }

    #[test]
    fn one_core_has_no_column_for_all_cores() {
        let mut report = BenchmarkReport { cores: 1, ..BenchmarkReport::default() };
        report.ciphers.push(row(CipherDirection::Encrypt, 1, 8e9));
        report.ciphers.push(row(CipherDirection::Decrypt, 1, 4e9));
        let text = render(&report, false);
        assert_eq!(text.matches("encrypt, ").count(), 1, "{text}");
        assert!(text.contains("  1 core    1 core  spread\n"), "{text}");
    }
}
