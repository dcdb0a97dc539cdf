//! The report as text, and what all forms of it say alike.

use std::fmt::Write as _;

use cryptline::size;

use crate::report::{Figure, Report};
use crate::table::{Column, Table, WIDTH, percent, wrapped};

/// Before what follows a name.
const INDENT: &str = "      ";

/// The report as text: tables, figures, and under which conditions. With what the figures should be, or without.
pub fn render(report: &Report, goals: bool) -> String {
    let mut head = format!("{}\n", report.title);
    for (name, value) in conditions(report) {
        let lines = wrapped(&value, WIDTH - 12).join("\n            ");
        // Writing to a String does not fail.
        let _ = writeln!(head, "  {:<9} {lines}", format!("{name}:"));
    }
    let mut parts = vec![head];
    parts.extend(report.tables.iter().map(Table::text));
    parts.extend(report.footnote().map(|it| paragraph(&it)));
    parts.push(figures(&report.figures, goals));
    let notes = report.notes.iter().map(|note| paragraph(note));
    parts.push(notes.collect());
    parts.join("\n")
}

fn paragraph(text: &str) -> String {
    wrapped(text, WIDTH).join("\n") + "\n"
}

/// The figures, each with what it is about below it.
pub fn figures(figures: &[Figure], goals: bool) -> String {
    let all: [Column<'_, &Figure>; 4] = [
        ("", &|figure| figure.label()),
        ("value", &|figure| figure.value_text()),
        ("goal", &|figure| figure.goal_text()),
        ("", &|figure| figure.verdict().to_owned()),
    ];
    let columns = if goals { &all[..] } else { &all[..2] };
    let table = Table::of("Figures", columns, figures).text();
    let mut lines = table.lines();
    let mut text: String = lines.by_ref().take(2).map(|line| line.to_owned() + "\n").collect();
    for (line, figure) in lines.zip(figures) {
        text += &format!("{line}\n");
        let note = figure.note.iter();
        for line in note.flat_map(|note| wrapped(note, WIDTH - INDENT.len())) {
            text += &format!("{INDENT}{line}\n");
        }
    }
    text
}

/// Under which conditions it was measured, by name.
pub fn conditions(report: &Report) -> Vec<(&'static str, String)> {
    let machine = &report.machine;
    let share = |share: Option<f64>| share.map_or("?".into(), |share| format!("{:.0} %", share * 100.0));
    let Report { runs, seconds, others, .. } = report;
    let hardware = format!(
        "{}, {} cores, {} of memory, Linux {}",
        machine.cpu,
        machine.cores,
        size::human(machine.memory),
        machine.kernel
    );
    let spread = percent(report.spread);
    let busy = format!(
        "other programs had {} of the processors before the runs and {} during them",
        share(others.before),
        share(others.during)
    );
    vec![
        ("medium", report.medium.clone()),
        ("machine", hardware),
        ("cipher", machine.backend.clone()),
        ("runs", format!("{runs} of {seconds} s each, in turns; spread {spread}")),
        ("others", busy),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_shown_to_those_who_ask_and_no_line_is_too_long() {
        let note = "4 KiB random reads, 32 in flight, ".repeat(8);
        let all = [Figure::new("some_figure", 0.5).at_least(0.97).noted(note), Figure::new("another", 2.0)];
        let [without, with] = [false, true].map(|goals| figures(&all, goals));
        for word in ["0.97", "missed", "goal"] {
            assert!(with.contains(word) && !without.contains(word), "{word}: {with}");
        }
        for text in [with, without] {
            assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
            assert!(text.contains("  some_figure  0.500"), "{text}");
            assert!(text.contains("  another      2.000"), "{text}");
        }
    }
}
