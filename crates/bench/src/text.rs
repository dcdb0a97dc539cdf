//! The report as text, and what all forms of it say alike.

use std::fmt::Write as _;

use cryptline::size;

use crate::report::{Figure, Report};
use crate::table::{Table, percent};

/// The report as text: tables, figures, and under which conditions.
pub fn render(report: &Report) -> String {
    let mut head = format!("{}\n", report.title);
    for (name, value) in conditions(report) {
        // Writing to a String does not fail.
        let _ = writeln!(head, "  {:<9} {value}", format!("{name}:"));
    }
    let mut parts = vec![head];
    parts.extend(report.tables.iter().map(Table::text));
    parts.push(figures(&report.figures).text());
    let notes = report.notes.iter().map(|note| format!("{note}\n"));
    parts.push(notes.collect());
    parts.join("\n")
}

/// The figures as a table.
pub fn figures(figures: &[Figure]) -> Table {
    let value = |figure: &Figure| figure.value.map(|value| format!("{value:.3}"));
    Table::of(
        "Figures",
        &[
            ("", &|figure: &&Figure| figure.name.to_owned()),
            ("value", &|figure| value(figure).unwrap_or("-".into())),
            ("goal", &|figure| figure.goal_text()),
            ("", &|figure| figure.verdict().to_owned()),
            ("about", &|figure| figure.note.clone().unwrap_or_default()),
        ],
        figures,
    )
}

/// Under which conditions it was measured, by name.
pub fn conditions(report: &Report) -> Vec<(&'static str, String)> {
    let machine = &report.machine;
    let share =
        |share: Option<f64>| share.map_or("?".into(), |share| format!("{:.0} %", share * 100.0));
    let Report {
        runs,
        seconds,
        others,
        ..
    } = report;
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
        (
            "runs",
            format!("{runs} of {seconds} s each, in turns; spread {spread}"),
        ),
        ("others", busy),
    ]
}
