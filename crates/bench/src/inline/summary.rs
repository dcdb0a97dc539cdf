//! From samples to the table of the thread, the plots and the figures.

use cryptline::size;

use super::model::Model;
use super::{BLOCK, InlineArgs};
use crate::plot::{Plot, Value};
use crate::report::{Figure, Front, Quantity, Ratios, Report, Row, median};
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
        _ => (
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
        if row.is_encrypted() { table::ratio(Ratios::of(&row.samples, rates, []).median()) } else { String::new() }
    };
    let mut table = Table::of(
        "4 KiB reads from RAM, one at a time",
        &[
            ("way", &|row: &&Row| Row::label(&row.name, [*row])),
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
        let mut cells = vec![format!("model: {name} alone"), megabytes(block / each), format!("{:.3}", each * 1e6)];
        cells.resize(table.columns.len(), String::new());
        table.push(cells);
    }
    table
}

/// Columns side by side: the modes and plain, for each cipher.
fn plots(report: &Report, args: &InlineArgs) -> Vec<Plot> {
    let plot = |title, label, value: &dyn Fn(&Row) -> Value| {
        let values = report.rows.iter().flat_map(|row| {
            // Plain stands beside each cipher.
            let ciphers = match &row.cipher {
                Some(cipher) => vec![cipher.as_str()],
                None => vec![NULL_CIPHER, &args.cipher],
            };
            let way = row.dispatch.as_ref().unwrap_or(&row.name);
            ciphers.into_iter().map(move |cipher| (cipher, way, value(row)))
        });
        Plot::of(title, ["cipher", label], values).columns()
    };
    let over_plain = |row: &Row| row.beside(&report.rows[0], Quantity::Speed).plotted();
    vec![
        plot("Throughput of 4 KiB reads, one at a time", "GB/s", &|row| row.plotted(|rate| rate / 1e9)),
        plot("Compared with plain", "ratio", &over_plain).guide(1.0),
    ]
}

fn figures(report: &Report, args: &InlineArgs, model: &[f64]) -> Vec<Figure> {
    let cipher = &args.cipher;
    let (inline, queue) = (format!("inline, {cipher}"), format!("queue, {cipher}"));
    let over_model = report.row(&inline);
    let over_model = over_model.map(|row| Ratios::of(&row.samples, model, [row]));
    let over_nbd = (args.front == Front::Nbd).then_some("over NBD; the goal is for calls in this process");
    let other_cipher = (!cipher.starts_with("aes-xts")).then_some("the goal is for aes-xts");
    let why = over_nbd.or(other_cipher);
    vec![
        report
            .figure("inline_over_plain_null", "inline, null cipher", "plain")
            .at_least(0.97)
            .noted("the thread: 201/202 = 0.995")
            .unless(over_nbd),
        report.figure("queue_over_plain_null", "queue, null cipher", "plain").noted("the thread: 80.7/202 = 0.40"),
        report.figure("inline_over_queue_aes", &inline, &queue).at_least(2.0).unless(why),
        Figure::of("inline_over_model", over_model.as_ref())
            .at_least(0.90)
            .noted("a read that takes as long as the bare copy and the bare cipher is 1")
            .unless(why)
            .needs("needs --front in-process"),
    ]
}
