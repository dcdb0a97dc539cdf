//! The report as text: what the figures say, and a compact table.

use std::fmt::Write as _;

use cryptline::size;

use crate::report::{PlanReport, Row, is_busy, three_digits};

/// Columns of a terminal that a line of text takes at most.
const WIDTH: usize = 100;

/// With what the figures should be and where they come from, or without.
pub fn render(report: &PlanReport, goals: bool) -> String {
    let mut text = String::new();
    paragraph(&mut text, "", &format!("{}: {}", report.title, report.medium));
    text.push('\n');
    for figure in &report.figures {
        let sentence = match (&figure.note, figure.value) {
            (Some(why), None) => format!("{}: not measured, {why}", figure.name),
            _ => figure.sentence.clone(),
        };
        let mark = match (goals, figure.met) {
            (true, Some(true)) => "+ ",
            (true, Some(false)) => "- ",
            _ => "  ",
        };
        paragraph(&mut text, mark, &sentence);
        if goals && figure.value.is_some() {
            let side = if figure.better == "lower" { "most" } else { "least" };
            let goal = figure.goal.map_or(String::new(), |goal| format!(", goal at {side} {goal}"));
            let note = figure.note.as_ref().map_or(String::new(), |note| format!("; {note}"));
            paragraph(&mut text, "      ", &format!("{}{goal}{note}", figure.name));
        }
    }
    text.push('\n');
    table(&mut text, &report.rows);
    let machine = &report.machine;
    let share = |share: Option<f64>| share.map_or("?".into(), |share| format!("{:.0} %", share * 100.0));
    text.push('\n');
    let more = [
        format!(
            "{}, {} processors, {} of memory, Linux {}; AES-XTS by {}.",
            machine.cpu,
            machine.cores,
            size::human(machine.memory),
            machine.kernel,
            machine.backend
        ),
        format!(
            "{} runs of {} s each, in turns; spread {:.1} %. Other programs had {} of the processors before the runs and {} during them.",
            report.runs,
            report.seconds,
            report.spread * 100.0,
            share(report.others.before),
            share(report.others.during)
        ),
        "Speeds are medians, 1 MB is 10^6 bytes; half of the runs lie within the spread. A ratio is the median of the ratios of the runs.".to_owned(),
    ];
    more.iter().chain(&report.notes).for_each(|note| paragraph(&mut text, "", note));
    text
}

/// A line for each row, with a star where other programs had too much of the processors.
fn table(text: &mut String, rows: &[Row]) {
    let heads = ["", "MB/s", "IOPS", "spread", "p50 µs", "p99 µs"].map(str::to_owned);
    let of = |row: &Row| {
        let latency =
            |of: fn(&crate::report::Latency) -> f64| row.latency.as_ref().map_or("-".into(), |it| three_digits(of(it)));
        let star = if is_busy(row.others) { " *" } else { "" };
        [
            format!("{}{star}", row.name),
            three_digits(row.bytes_per_second / 1e6),
            three_digits(row.bytes_per_second / f64::from(row.shape.block.max(1))),
            format!("{:.1} %", row.spread * 100.0),
            latency(|it| it.p50_us),
            latency(|it| it.p99_us),
        ]
    };
    let lines: Vec<_> = std::iter::once(heads).chain(rows.iter().map(of)).collect();
    let width = |place: usize| lines.iter().map(|line| line[place].chars().count()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    let numbers: usize = widths[1..].iter().map(|width| width + 2).sum();
    for line in &lines {
        // A name that has no room beside the numbers has lines of its own.
        let room = WIDTH - numbers;
        let mut name = wrapped(&line[0], room);
        let last = name.pop().unwrap_or_default();
        name.iter().for_each(|part| *text += &format!("{part}\n"));
        let cells = line[1..].iter().zip(&widths[1..]);
        let cells = cells.map(|(cell, width)| format!("  {cell:>width$}")).collect::<String>();
        let width = widths[0].min(room);
        // Writing to a String does not fail.
        let _ = writeln!(text, "{last:<width$}{cells}");
    }
    if rows.iter().any(|row| is_busy(row.others)) {
        text.push_str("* Other programs had more than 3 % of the processors in these turns.\n");
    }
}

/// Adds a text in lines of [`WIDTH`], the first behind `mark` and the others below it.
fn paragraph(text: &mut String, mark: &str, words: &str) {
    let mut before = mark.to_owned();
    for line in wrapped(words, WIDTH - mark.len()) {
        *text += &format!("{before}{line}\n");
        before = " ".repeat(mark.len());
    }
}

/// The lines of a text that is broken between words, where it is longer than that.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::LoadShape;

    #[test]
    fn goals_are_shown_to_those_who_ask_and_no_line_is_too_long() {
        let rows = vec![Row::new("a way with a name of very many words, ".repeat(5), LoadShape::default())];
        let mut report = PlanReport { bench: "inline", rows, ..PlanReport::default() };
        let note = "where it comes from, ".repeat(8);
        report.figure("inline_over_plain_null", Ok((0.5, note.clone())), None);
        report.figure("inline_over_model", Err("needs something".into()), None);
        let [without, with] = [false, true].map(|goals| render(&report, goals));
        for word in ["0.97", "inline_over_plain_null", "comes from"] {
            assert!(with.contains(word) && !without.contains(word), "{word}: {with}");
        }
        for text in [with, without] {
            assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
            assert!(text.contains("reads are 0.500 times as fast"), "{text}");
            assert!(text.contains("inline_over_model: not measured, needs something"), "{text}");
        }
    }
}
