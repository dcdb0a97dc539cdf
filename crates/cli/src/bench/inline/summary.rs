//! From samples to the table of the thread, the plots and the figures.

use super::{Front, InlineArgs, Model, Subject};
use crate::bench::plot::{Plot, Series};
use crate::bench::report::{Figure, Report, ratio};
use crate::bench::table::{Table, megabytes};
use crate::bench::volume::NULL_CIPHER;
use crate::benchmark::measure::median;
use crate::size;

/// The thread's figures: plain, by queue and inline, MB/s.
const THREAD: &str = "The 2020 dm-devel thread has 202 MB/s plain, 80.7 by queue (0.40 of plain) and 201 inline (0.995), with the null cipher.";

/// Fills the report.
pub fn fill(report: &mut Report, args: &InlineArgs, subjects: &[Subject], model: Option<&Model>) {
    report.medium = format!("RAM, {}", size::human(args.size));
    report.runs = args.runs;
    report.seconds = args.seconds;
    report.rows = subjects
        .iter()
        .map(|subject| subject.row(args.front))
        .collect();
    report.notes = notes(args, subjects);
    let rates = model.map(Model::rates).unwrap_or_default();
    table(report, subjects, model, &rates);
    plots(report, subjects);
    report.figures = figures(subjects, &rates);
    for figure in &mut report.figures {
        let other = match (args.front, args.cipher.starts_with("aes-xts")) {
            (Front::Nbd, _) => "over NBD; the goal is for calls in this process",
            (Front::InProcess, false) if !figure.name.ends_with("null") => {
                "the goal is for aes-xts"
            }
            (Front::InProcess, _) => continue,
        };
        if figure.value.is_some() {
            *figure = figure.clone().without_goal(other);
        }
    }
}

fn notes(args: &InlineArgs, subjects: &[Subject]) -> Vec<String> {
    let sum = subjects
        .first()
        .and_then(|subject| subject.sha256.as_deref());
    let way_in = match args.front {
        Front::InProcess => "in this process",
        Front::Nbd => "over NBD: a server in this process, one connection over a Unix socket",
    };
    let mut notes = vec![
        format!(
            "Reads of 4 KiB, one at a time, from the first block on, {way_in}. All ways lie on the same RAM disk and have their turns in each run, in an order that changes."
        ),
        format!(
            "Before, in passes of their own, each way read all of the same random contents the same way in; SHA-256 was {} for all.",
            sum.unwrap_or("?")
        ),
        "Speeds are medians, 1 MB is 10^6 bytes; half of the runs lie within the spread. A ratio is the median of the ratios of the runs.".into(),
    ];
    match args.front {
        Front::InProcess => notes.extend([
            "Each turn goes on where the one before ended, so that none finds in the caches what another has just read.".into(),
            "A run's speed is the median of windows of a millisecond, so that other programs disturb it little.".into(),
            "Model: a bare copy of each block out of other memory of the same size, in the same order, and the bare cipher on one block in the first-level cache; of the model is 1 where a read takes no longer than both.".into(),
        ]),
        Front::Nbd => notes.push("Each read is two system calls and two changes of threads more than a call in this process, for plain and encrypted alike.".into()),
    }
    notes.push(THREAD.into());
    notes
}

fn table(report: &mut Report, subjects: &[Subject], model: Option<&Model>, rates: &[f64]) {
    let mut table = Table::new(
        "4 KiB reads from RAM, one at a time",
        &[
            "way",
            "MB/s",
            "µs a read",
            "of plain",
            "of the model",
            "spread",
        ],
    );
    let plain = subjects
        .first()
        .map(|plain| plain.samples.as_slice())
        .unwrap_or_default();
    for (row, subject) in report.rows.iter().zip(subjects) {
        let encrypted = subject
            .cipher
            .as_deref()
            .is_some_and(|cipher| cipher != NULL_CIPHER);
        table.push([
            row.name.clone(),
            megabytes(row.bytes_per_second),
            format!("{:.3}", 1e6 / row.iops()),
            format!("{:.3}", ratio(&subject.samples, plain)),
            if encrypted && model.is_some() {
                format!("{:.3}", ratio(&subject.samples, rates))
            } else {
                String::new()
            },
            format!("{:.1} %", row.spread * 100.0),
        ]);
    }
    let costs = model.map(|model| {
        [
            ("model: copy alone", &model.copy),
            ("model: cipher alone", &model.decrypt),
        ]
    });
    for (name, seconds) in costs.into_iter().flatten() {
        let each = median(seconds);
        table.push([
            name.to_owned(),
            megabytes(f64::from(super::BLOCK) / each),
            format!("{:.3}", each * 1e6),
            String::new(),
            String::new(),
            String::new(),
        ]);
    }
    report.tables.push(table);
}

/// Columns side by side: the modes and plain, for each cipher.
fn plots(report: &mut Report, subjects: &[Subject]) {
    let Some((plain, layered)) = subjects.split_first() else {
        return;
    };
    let mut ciphers: Vec<&str> = Vec::new();
    let mut modes: Vec<String> = Vec::new();
    for subject in layered {
        let cipher = subject.cipher.as_deref().unwrap_or_default();
        if !ciphers.contains(&cipher) {
            ciphers.push(cipher);
        }
        let mode = subject
            .mode
            .map(|mode| mode.to_string())
            .unwrap_or_default();
        if !modes.contains(&mode) {
            modes.push(mode);
        }
    }
    let plot = |title: &str, label: &str, guide, value: &dyn Fn(&Subject) -> f64| {
        let of_mode = |mode: &String| Series {
            name: mode.clone(),
            values: ciphers
                .iter()
                .map(|&cipher| {
                    let found = layered.iter().find(|subject| {
                        subject.cipher.as_deref() == Some(cipher)
                            && subject.mode.map(|mode| mode.to_string()).as_ref() == Some(mode)
                    });
                    found.map(value)
                })
                .collect(),
        };
        let mut series: Vec<Series> = modes.iter().map(of_mode).collect();
        series.push(Series {
            name: plain.name.clone(),
            values: ciphers.iter().map(|_| Some(value(plain))).collect(),
        });
        Plot {
            title: title.to_owned(),
            x_label: "cipher".into(),
            categories: ciphers.iter().map(|&cipher| cipher.to_owned()).collect(),
            y_label: label.to_owned(),
            columns: true,
            guide,
            series,
            ..Plot::default()
        }
    };
    let speed = |subject: &Subject| median(&subject.samples) / 1e9;
    let compared = |subject: &Subject| ratio(&subject.samples, &plain.samples);
    report.plots = vec![
        plot(
            "Throughput of 4 KiB reads, one at a time",
            "GB/s",
            None,
            &speed,
        ),
        plot("Compared with plain", "ratio", Some(1.0), &compared),
    ];
}

fn figures(subjects: &[Subject], model: &[f64]) -> Vec<Figure> {
    let samples = |mode: Option<&str>, null: bool| {
        let found = subjects.iter().find(|subject| {
            subject.mode.map(|mode| mode.to_string()).as_deref() == mode
                && (mode.is_none() || (subject.cipher.as_deref() == Some(NULL_CIPHER)) == null)
        });
        found
            .map(|subject| subject.samples.as_slice())
            .unwrap_or_default()
    };
    let plain = samples(None, true);
    let inline_null = ratio(samples(Some("inline"), true), plain);
    let queue_null = ratio(samples(Some("queue"), true), plain);
    let inline_aes = samples(Some("inline"), false);
    vec![
        Figure::at_least("inline_over_plain_null", inline_null, 0.97)
            .noted("the thread: 201/202 = 0.995"),
        Figure::reported("queue_over_plain_null", queue_null).noted("the thread: 80.7/202 = 0.40"),
        Figure::at_least(
            "inline_over_queue_aes",
            ratio(inline_aes, samples(Some("queue"), false)),
            2.0,
        ),
        if model.is_empty() {
            Figure::missing("inline_over_model", "needs --front in-process")
        } else {
            Figure::at_least("inline_over_model", ratio(inline_aes, model), 0.90)
                .noted("a read that takes as long as the bare copy and the bare cipher is 1")
        },
    ]
}
