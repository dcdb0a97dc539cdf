//! The report as tables.

use std::fmt::Write as _;

use super::ciphers::{CipherRow, Direction};
use super::kdfs::KdfRow;
use super::measure::median;
use super::{Comparison, Figure, Report, ceiling};
use crate::size;

/// Bytes in a GB, as speeds are given.
const GB: f64 = 1e9;

/// All that was measured, in this order: KDFs as cryptsetup states them, ciphers, their
/// shares of the ceiling, the comparison.
pub fn render(report: &Report) -> String {
    let mut parts = Vec::new();
    if !report.kdfs.is_empty() {
        parts.push(kdfs(&report.kdfs));
    }
    if !report.ciphers.is_empty() {
        parts.push(ciphers(report));
    }
    let (shares, others): (Vec<_>, Vec<_>) = report
        .figures
        .iter()
        .partition(|figure| ceiling::is_figure(figure.name));
    if !shares.is_empty() {
        parts.push(of_ceiling(&shares));
    }
    if let Some(comparison) = &report.comparison {
        parts.push(compared(comparison, &others));
    }
    if !report.ciphers.is_empty() {
        parts.push(
            "Speeds are medians, 1 GB is 10^9 bytes; half of the samples lie within the spread.\n"
                .to_owned(),
        );
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
            let _ = writeln!(
                text,
                "{rate:>10.0} iterations per second for {bits}-bit key, spread {spread:.0} %"
            );
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
fn ciphers(report: &Report) -> String {
    let width = report.ciphers.iter().map(|row| row.cipher.len()).max();
    let width = width.unwrap_or_default().max("Cipher".len());
    let many = report.cores > 1;
    let cores = format!("{} cores, GB/s", report.cores);
    let mut text = format!(
        "{:<width$}   Key  Sector  Request    1 core, GB/s    ",
        "Cipher"
    );
    text.push_str(&if many {
        format!("{cores:>16}    ")
    } else {
        String::new()
    });
    text.push_str("Spread  Back end\n");
    let _ = write!(
        text,
        "{:<width$}  bits   bytes           encrypt  decrypt",
        ""
    );
    text.push_str(if many { "  encrypt  decrypt\n" } else { "\n" });
    let same = |a: &CipherRow, b: &CipherRow| {
        (&a.cipher, a.key_bits, a.sector_size, a.request)
            == (&b.cipher, b.key_bits, b.sector_size, b.request)
    };
    for rows in report.ciphers.chunk_by(same) {
        let Some(first) = rows.first() else { continue };
        let request = size::human(u64::from(first.request));
        let _ = write!(
            text,
            "{:<width$}  {:>4}  {:>6}  {request:>7}",
            first.cipher, first.key_bits, first.sector_size
        );
        for threads in if many { vec![1, report.cores] } else { vec![1] } {
            for direction in [Direction::Encrypt, Direction::Decrypt] {
                let wanted =
                    |row: &&CipherRow| row.threads == threads && row.direction == direction;
                let speed = rows.iter().find(wanted).map(|row| row.bytes_per_second);
                let _ = write!(text, "  {:>7}", speed.map(gigabytes).unwrap_or_default());
            }
        }
        let spread = rows.iter().map(|row| row.spread).fold(0.0, f64::max) * 100.0;
        let _ = writeln!(text, "  {spread:>4.0} %  {}", first.backend);
    }
    text
}

/// Three digits or more.
fn gigabytes(bytes_per_second: f64) -> String {
    let speed = bytes_per_second / GB;
    match speed {
        0.0..1.0 => format!("{speed:.3}"),
        _ => format!("{speed:.2}"),
    }
}

fn of_ceiling(figures: &[&Figure]) -> String {
    let mut text = String::from(
        "AES-256-XTS, of what the AES instructions of this processor can do at most\n",
    );
    for figure in figures {
        let goal = match (figure.goal, figure.met) {
            (Some(goal), Some(true)) => format!(" (goal: at least {goal}, met)"),
            (Some(goal), _) => format!(" (goal: at least {goal}, missed)"),
            (None, _) => String::new(),
        };
        // Writing to a String does not fail.
        let _ = writeln!(text, "  {:.3} {}{goal}", figure.value, figure.name);
    }
    text
}

fn compared(comparison: &Comparison, figures: &[&Figure]) -> String {
    let Comparison {
        cryptsetup,
        kdf,
        time,
        memory_kib,
        cpus,
        cryptline_ms,
        cryptsetup_ms,
    } = comparison;
    let mut text = format!(
        "Unlocking LUKS2 ({kdf}, {time} iterations, {memory_kib} KiB memory, {cpus} lanes), median of {} runs in turns\n",
        cryptline_ms.len()
    );
    for (name, times) in [
        ("cryptline", cryptline_ms),
        (cryptsetup.as_str(), cryptsetup_ms),
    ] {
        let each: Vec<_> = times.iter().map(|time| format!("{time:.0}")).collect();
        let _ = writeln!(
            text,
            "  {:>6.0} ms  {name} ({})",
            median(times),
            each.join(", ")
        );
    }
    for figure in figures {
        let goal = match (figure.goal, figure.met) {
            (Some(goal), Some(true)) => format!(" (goal: at most {goal}, met)"),
            (Some(goal), _) => format!(" (goal: at most {goal}, missed)"),
            (None, _) => String::new(),
        };
        let _ = writeln!(text, "  {:.2} {}{goal}", figure.value, figure.name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(direction: Direction, threads: usize, bytes_per_second: f64) -> CipherRow {
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
        }
    }

    #[test]
    fn directions_and_threads_of_one_case_share_a_line() {
        let mut report = Report::new(2);
        for (threads, scale) in [(1, 1.0), (2, 2.0)] {
            report
                .ciphers
                .push(row(Direction::Encrypt, threads, 8e9 * scale));
            report
                .ciphers
                .push(row(Direction::Decrypt, threads, 0.5e9 * scale));
        }
        let text = render(&report);
        let line = "aes-xts-plain64   512    4096   64 KiB     8.00    0.500    16.00     1.00     2 %  some back end";
        assert!(text.lines().any(|found| found == line), "{text}");
        assert!(text.contains("2 cores, GB/s"), "{text}");
    }

    #[test]
    fn a_share_of_the_ceiling_has_a_goal_to_reach_and_not_one_to_stay_below() {
        let mut report = Report::new(1);
        report.figures.push(Figure {
            name: "xts256_512_4k_of_ceiling",
            value: 0.88,
            unit: "ratio",
            goal: Some(0.9),
            met: Some(false),
        });
        let text = render(&report);
        let line = "  0.880 xts256_512_4k_of_ceiling (goal: at least 0.9, missed)";
        assert!(text.lines().any(|found| found == line), "{text}");
    }

    #[test]
    fn one_core_has_no_column_for_all_cores() {
        let mut report = Report::new(1);
        report.ciphers.push(row(Direction::Encrypt, 1, 8e9));
        report.ciphers.push(row(Direction::Decrypt, 1, 4e9));
        let text = render(&report);
        assert!(!text.contains("1 cores"), "{text}");
        assert!(text.contains("64 KiB     8.00     4.00     2 %"), "{text}");
    }
}
