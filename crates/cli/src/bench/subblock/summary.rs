//! From samples to tables, plots and figures.

use super::{CBC, SubBlockArgs, Subject, Writes, XTS};
use crate::bench::plot::{Plot, Series};
use crate::bench::report::{Figure, Report, ratio};
use crate::bench::table::Table;
use crate::benchmark::measure::median;
use crate::size;
use cryptline_engine::layer::Exclusion;

/// 801k to 4328 IOPS, as the ext4 commit has it.
const EXT4: f64 = 185.0;
/// What locking may cost whole sectors.
const COST_MAX: f64 = 0.01;
/// Below this load the goals say nothing.
const JOBS: u32 = 8;
const DEPTH: u32 = 256;

/// Fills the report.
pub fn fill(report: &mut Report, args: &SubBlockArgs, subjects: &[Subject]) {
    report.medium = format!(
        "RAM, {}; and the same with writes of {}",
        size::human(args.size),
        args.write
    );
    report.runs = args.runs;
    report.seconds = args.seconds;
    report.rows = subjects.iter().map(|subject| subject.row(args)).collect();
    report.notes = vec![
        format!(
            "{} threads with {} random writes of {} bytes in flight each, on cipher sectors of 4096 bytes. All ways lie on the same RAM and have their turns in each run.",
            args.jobs, args.depth, args.block
        ),
        "Before, each way wrote all of an area in small pieces, and it was read back by whole sectors without this layer.".into(),
        "XTS overwrites parts of a sector alone; shared, there is no layer and no lock at all. CBC reads the sector, changes it and writes it. Exclusive is one lock for the device and everything drained, as ext4 had it up to Linux 6.4.".into(),
        "The ext4 commit that made such writes concurrent (Linux 6.5) has 4328 IOPS before and 801k after: 185 times.".into(),
        "Speeds are medians; half of the runs lie within the spread. A ratio is the median of the ratios of the runs.".into(),
    ];
    table(report, args, subjects);
    plot(report, args, subjects);
    report.figures = figures(args, subjects);
}

fn table(report: &mut Report, args: &SubBlockArgs, subjects: &[Subject]) {
    let mut table = Table::new(
        "Random writes",
        &["way", "IOPS", "MB/s", "p50 µs", "p99 µs", "spread"],
    );
    for (row, subject) in report.rows.iter().zip(subjects) {
        let latency = row.latency.unwrap_or_default();
        table.push([
            subject.name(args),
            format!("{:.0}", row.iops()),
            format!("{:.1}", row.bytes_per_second / 1e6),
            format!("{:.0}", latency.p50_us),
            format!("{:.0}", latency.p99_us),
            format!("{:.1} %", row.spread * 100.0),
        ]);
    }
    report.tables.push(table);
}

/// IOPS of both policies, for each cipher and medium.
fn plot(report: &mut Report, args: &SubBlockArgs, subjects: &[Subject]) {
    let places = [(XTS, true), (CBC, true), (XTS, false), (CBC, false)];
    let series = |exclusion, name: &str| Series {
        name: name.to_owned(),
        values: places
            .iter()
            .map(|&(cipher, is_slow)| {
                let samples = samples(subjects, cipher, is_slow, Writes::Parts(exclusion));
                Some(median(samples) / f64::from(args.block) / 1000.0)
            })
            .collect(),
    };
    report.plots.push(Plot {
        title: format!("Random writes of {} bytes in a second", args.block),
        x_label: "cipher and medium".into(),
        categories: places
            .iter()
            .map(|(cipher, is_slow)| {
                let short = if *cipher == XTS { "XTS" } else { "CBC" };
                let medium = if *is_slow { args.write.as_str() } else { "RAM" };
                format!("{short}, {medium}")
            })
            .collect(),
        y_label: "thousands a second".into(),
        columns: true,
        series: vec![
            series(Exclusion::Exclusive, "exclusive"),
            series(Exclusion::Shared, "shared"),
        ],
        ..Plot::default()
    });
}

fn samples<'a>(subjects: &'a [Subject], cipher: &str, is_slow: bool, writes: Writes) -> &'a [f64] {
    let found = subjects.iter().find(|subject| {
        subject.cipher == cipher && subject.is_slow == is_slow && subject.writes == writes
    });
    found.map_or(&[], |subject| subject.samples.as_slice())
}

fn figures(args: &SubBlockArgs, subjects: &[Subject]) -> Vec<Figure> {
    let shared_over_exclusive = |cipher| {
        ratio(
            samples(subjects, cipher, true, Writes::Parts(Exclusion::Shared)),
            samples(subjects, cipher, true, Writes::Parts(Exclusion::Exclusive)),
        )
    };
    let locked = ratio(
        samples(subjects, CBC, false, Writes::Whole { locking: true }),
        samples(subjects, CBC, false, Writes::Whole { locking: false }),
    );
    let is_the_load = args.jobs == JOBS && args.depth == DEPTH && args.write == "100us";
    let xts = Figure::at_least(
        "shared_over_exclusive_xts",
        shared_over_exclusive(XTS),
        EXT4,
    );
    vec![
        if is_the_load {
            xts
        } else {
            xts.without_goal("the goal is for 8 threads, 256 deep, writes of 100us")
        },
        Figure::reported("shared_over_exclusive_cbc", shared_over_exclusive(CBC)),
        Figure::at_most("aligned_cost_of_locking", 1.0 - locked, COST_MAX)
            .noted("whole sectors with CBC over RAM; with XTS there is no locking"),
    ]
}
