//! From samples to the table of the thread, the plots and the figures.

use cryptline::size;

use super::{BLOCK, InlineArgs, Model};
use crate::plot::Plot;
use crate::report::{Figure, Front, Report, Row, median, ratio};
use crate::table::{self, Table, megabytes};
use crate::volume::NULL_CIPHER;

/// Fills the report.
pub fn fill(report: &mut Report, args: &InlineArgs, model: Option<&Model>) {
    report.medium = format!("RAM, {}", size::human(args.size));
    report.notes = notes(report, args);
    let rates = model.map(Model::rates).unwrap_or_default();
    report.tables.push(table(&report.rows, model, &rates));
    report.plots = plots(report, args);
    report.figures = figures(report, args, &rates);
}

fn notes(report: &Report, args: &InlineArgs) -> Vec<String> {
    let sum = report.rows.first().and_then(|row| row.sha256.as_deref());
    let (way_in, more): (_, &[&str]) = match args.front {
        Front::InProcess => (
            "in this process",
            &[
                "Each turn goes on where the one before ended, so that no way finds in the caches what another has just read.",
                "The speed of a run is the median of windows of a millisecond, so that other programs disturb it little.",
                "Model: a bare copy of each block out of other memory of the same size, in the same order, and the bare cipher on one block in the first-level cache; of the model is 1 where a read takes no longer than both.",
            ],
        ),
        Front::Nbd => (
            "over NBD: a server in this process, one connection over a Unix socket",
            &[
                "Each read takes two system calls and two changes of threads more than a call in this process, for plain and encrypted alike.",
            ],
        ),
    };
    let mut notes = vec![
        format!(
            "Reads of 4 KiB, one at a time, from the first block on, {way_in}. All ways use the same RAM disk and take turns in each run, in an order that changes."
        ),
        format!(
            "Before the runs, each way read all of the same random contents the same way in; SHA-256 was {} for all.",
            sum.unwrap_or("?")
        ),
        "Speeds are medians, 1 MB is 10^6 bytes; half of the runs lie within the spread. A ratio is the median of the ratios of the runs.".to_owned(),
    ];
    notes.extend(more.iter().map(|&note| note.to_owned()));
    notes.push("The 2020 dm-devel thread has 202 MB/s plain, 80.7 by queue (0.40 of plain) and 201 inline (0.995), with the null cipher.".into());
    notes
}

fn table(rows: &[Row], model: Option<&Model>, rates: &[f64]) -> Table {
    let of_model = |row: &Row| {
        if row.is_encrypted() {
            table::ratio(ratio(&row.samples, rates))
        } else {
            String::new()
        }
    };
    let mut table = Table::of(
        "4 KiB reads from RAM, one at a time",
        &[
            ("way", &|row: &&Row| row.name.clone()),
            ("MB/s", &|row| megabytes(row.bytes_per_second)),
            ("µs a read", &|row| format!("{:.3}", 1e6 / row.iops())),
            ("of plain", &|row| table::ratio(row.over(&rows[0]))),
            ("of the model", &|row| of_model(row)),
            ("spread", &|row| table::percent(row.spread)),
        ],
        rows,
    );
    let costs = model.map(|model| [("copy", &model.copy), ("cipher", &model.decrypt)]);
    for (name, seconds) in costs.into_iter().flatten() {
        let each = median(seconds);
        let block = f64::from(u32::try_from(BLOCK).unwrap_or(0));
        let mut cells = vec![
            format!("model: {name} alone"),
            megabytes(block / each),
            format!("{:.3}", each * 1e6),
        ];
        cells.resize(table.columns.len(), String::new());
        table.push(cells);
    }
    table
}

/// Columns side by side: the modes and plain, for each cipher.
fn plots(report: &Report, args: &InlineArgs) -> Vec<Plot> {
    let ciphers = [(NULL_CIPHER, "null cipher"), (&args.cipher, &args.cipher)];
    let modes = super::MODES.map(|mode| mode.to_string());
    let series = modes.into_iter().chain(["plain".to_owned()]);
    let plot = |title, label, value: &dyn Fn(&Row) -> f64| {
        Plot::of(
            title,
            ["cipher", label],
            ciphers.map(|(word, short)| (word.to_owned(), short)),
            series.clone().map(|mode| (mode.clone(), mode)),
            |mode, short| {
                let found = report.row(&format!("{mode}, {short}"));
                found.or_else(|| report.row(mode)).map(value)
            },
        )
        .columns()
    };
    vec![
        plot("Throughput of 4 KiB reads, one at a time", "GB/s", &|row| {
            row.bytes_per_second / 1e9
        }),
        plot("Compared with plain", "ratio", &|row| {
            row.over(&report.rows[0])
        })
        .guide(1.0),
    ]
}

fn figures(report: &Report, args: &InlineArgs, model: &[f64]) -> Vec<Figure> {
    let cipher = &args.cipher;
    let (inline, queue) = (format!("inline, {cipher}"), format!("queue, {cipher}"));
    let over_plain = |way| report.ratio(way, "plain");
    let over_model = match report.row(&inline).filter(|_| !model.is_empty()) {
        Some(row) => Figure::at_least("inline_over_model", ratio(&row.samples, model), 0.90)
            .noted("a read that takes as long as the bare copy and the bare cipher is 1"),
        None => Figure::missing("inline_over_model", "needs --front in-process"),
    };
    let mut figures = vec![
        Figure::at_least(
            "inline_over_plain_null",
            over_plain("inline, null cipher"),
            0.97,
        )
        .noted("the thread: 201/202 = 0.995"),
        Figure::reported("queue_over_plain_null", over_plain("queue, null cipher"))
            .noted("the thread: 80.7/202 = 0.40"),
        Figure::at_least("inline_over_queue_aes", report.ratio(&inline, &queue), 2.0),
        over_model,
    ];
    let why = match args.front {
        Front::Nbd => "over NBD; the goal is for calls in this process",
        Front::InProcess => "the goal is for aes-xts",
    };
    for figure in &mut figures {
        let other_cipher = !cipher.starts_with("aes-xts") && !figure.name.ends_with("null");
        if figure.value.is_some() && (args.front == Front::Nbd || other_cipher) {
            *figure = figure.clone().without_goal(why);
        }
    }
    figures
}
