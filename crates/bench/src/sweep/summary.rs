//! From rows to tables and figures.

use cryptline_engine::dispatch::Mode;

use super::plan::Plan;
use crate::machine::cores;
use crate::report::{Direction, Figure, Report, Row, median};
use crate::table::{Table, block, megabytes, microseconds, percent};

/// Cores that the goal for one large request supposes to be idle.
const IDLE_CORES: usize = 2;
/// Share of the processors that others may have had when they count as idle.
const IDLE: f64 = 0.05;
/// Bytes of that large request.
const LARGE: u32 = 1 << 20;
const ALL_MODES: &str = "needs --dispatch inline,queue,auto";

/// The rows of a sweep, as [`Plan::rows`] has laid them out.
pub struct Rows<'a> {
    /// For each point, its rows in the order of the modes.
    points: Vec<&'a [Row]>,
    /// The rows of small reads alone, and of those beside hogs. May be empty.
    alone: &'a [Row],
    loaded: &'a [Row],
}

impl<'a> Rows<'a> {
    pub fn new(plan: &Plan, rows: &'a [Row]) -> Self {
        let modes = plan.modes.len();
        let of_loaded_part = if plan.hogs > 0 { 2 * modes } else { 0 };
        let (points, last) = rows.split_at(rows.len() - of_loaded_part);
        let (alone, loaded) = last.split_at(last.len() / 2);
        Self {
            points: points.chunks(modes).collect(),
            alone,
            loaded,
        }
    }

    /// The rows of a point of the first cipher.
    pub fn find(
        &self,
        direction: Direction,
        streams: u32,
        depth: u32,
        block: u32,
    ) -> Option<&'a [Row]> {
        // Those of the first cipher come first.
        let mut points = self.points.iter().copied();
        points.find(|point| {
            let shape = point[0].shape;
            (shape.direction, shape.streams, shape.depth, shape.block)
                == (direction, streams, depth, block)
        })
    }

    /// The rows of the loaded part and their names, each mode alone and then beside hogs.
    pub fn loaded(&self) -> impl Iterator<Item = (String, &'a Row)> {
        let pairs = self.alone.iter().zip(self.loaded);
        pairs.flat_map(|(alone, loaded)| {
            [
                (format!("{}, alone", alone.name), alone),
                (loaded.name.clone(), loaded),
            ]
        })
    }
}

/// Fills the report, but for its plots. `others` has the share of other programs at each point.
pub fn fill(report: &mut Report, plan: &Plan, others: &[Option<f64>]) {
    report.notes = notes(plan, report.runs);
    let rows = Rows::new(plan, &report.rows);
    let over_best = worst(plan, &rows, auto_over_best, f64::lt);
    let p99_over_best = worst(plan, &rows, auto_p99_over_best, f64::gt);
    let figures = vec![
        match over_best {
            Some((worst, note)) => Figure::at_least("auto_over_best_min", worst, 0.97).noted(note),
            None => Figure::missing("auto_over_best_min", ALL_MODES),
        },
        match p99_over_best {
            Some((worst, note)) => {
                Figure::at_most("auto_p99_over_best_max", worst, 1.1).noted(note)
            }
            None => Figure::missing("auto_p99_over_best_max", ALL_MODES).lower(),
        },
        large_alone(plan, &rows, others),
        under_load("inline_p99_loaded_over_idle", Mode::Inline, plan, &rows),
        under_load("queue_p99_loaded_over_idle", Mode::Queue, plan, &rows),
    ];
    // A table for each cipher, direction and number of streams.
    let together = |a: &&[Row], b: &&[Row]| {
        let of = |point: &[Row]| (point[0].shape.direction, point[0].shape.streams);
        a[0].cipher == b[0].cipher && of(a) == of(b)
    };
    let tables = rows.points.chunk_by(together);
    let mut tables: Vec<Table> = tables.map(|points| table(plan, points)).collect();
    if plan.hogs > 0 {
        tables.push(loaded_table(plan, &rows));
    }
    (report.figures, report.tables) = (figures, tables);
}

/// The row of a mode at a point.
fn by(point: &[Row], mode: Mode) -> Option<&Row> {
    let mode = mode.to_string();
    point
        .iter()
        .find(|row| row.dispatch.as_ref() == Some(&mode))
}

/// Auto to the better of inline and queue, which is the one with the better median.
pub fn auto_over_best(point: &[Row]) -> Option<f64> {
    let (inline, queue) = (by(point, Mode::Inline)?, by(point, Mode::Queue)?);
    let better = if inline.bytes_per_second >= queue.bytes_per_second {
        inline
    } else {
        queue
    };
    Some(by(point, Mode::Auto)?.over(better))
}

/// The p99 of auto to the lower of the p99 of inline and queue.
fn auto_p99_over_best(point: &[Row]) -> Option<f64> {
    let p99 = |mode| by(point, mode).map(Row::p99_us);
    let best = p99(Mode::Inline)?.min(p99(Mode::Queue)?);
    Some(p99(Mode::Auto)? / best)
}

/// The worst of a value at all points, and which point that is. None where a point does not have it.
fn worst(
    plan: &Plan,
    rows: &Rows<'_>,
    value: fn(&[Row]) -> Option<f64>,
    is_worse: fn(&f64, &f64) -> bool,
) -> Option<(f64, String)> {
    let values = rows.points.iter().map(|point| value(point));
    let values = values.collect::<Option<Vec<f64>>>()?;
    let pairs = values.iter().zip(&rows.points);
    let (worst, point) = pairs.reduce(|a, b| if is_worse(b.0, a.0) { b } else { a })?;
    let note = format!(
        "the worst of {} points, whose median is {:.2}: {}",
        values.len(),
        median(&values),
        full_name(plan, &point[0])
    );
    Some((*worst, note))
}

/// One request of 1 MiB at a time: what helpers are for.
fn large_alone(plan: &Plan, rows: &Rows<'_>, others: &[Option<f64>]) -> Figure {
    const NAME: &str = "auto_over_inline_1m_qd1";
    let points = rows.points.iter().zip(others);
    let alone = points.filter(|(point, _)| {
        let (cipher, shape) = (&point[0].cipher, point[0].shape);
        *cipher == rows.points[0][0].cipher
            && (shape.block, shape.depth, shape.streams) == (LARGE, 1, 1)
    });
    let ratios = alone.filter_map(|(point, share)| {
        let ratio = by(point, Mode::Auto)?.over(by(point, Mode::Inline)?);
        Some((ratio, &point[0], *share))
    });
    let Some((worst, row, share)) = ratios.min_by(|a, b| a.0.total_cmp(&b.0)) else {
        return Figure::missing(
            NAME,
            "needs --block-sizes 1M, --depths 1, --streams 1 and --dispatch inline,auto",
        );
    };
    let figure = Figure::at_least(NAME, worst, 1.6).noted(full_name(plan, row));
    if cores() < IDLE_CORES || plan.helpers == 0 {
        return figure.without_goal("needs 2 processors and a helper");
    }
    match share {
        Some(share) if share <= IDLE => figure,
        Some(share) => figure.without_goal(format!(
            "no verdict: other programs had {:.0} % of the processors, and the goal is for idle ones",
            share * 100.0
        )),
        None => figure.without_goal("no verdict: nobody knows whether the processors were idle"),
    }
}

fn under_load(name: &'static str, mode: Mode, plan: &Plan, rows: &Rows<'_>) -> Figure {
    let Some((alone, loaded)) = by(rows.alone, mode).zip(by(rows.loaded, mode)) else {
        return Figure::missing(name, format!("needs --hog and --dispatch {mode}")).lower();
    };
    let (alone, loaded) = (alone.p99_us(), loaded.p99_us());
    Figure::reported(name, loaded / alone)
        .lower()
        .noted(format!(
            "4k reads one at a time: {} µs beside {} hogs, {} µs alone",
            microseconds(loaded),
            plan.hogs,
            microseconds(alone)
        ))
}

/// `1 stream`.
pub fn streams(count: u32) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} stream{plural}")
}

/// `read of 4k, depth 1, 1 stream`, or the same beside hogs.
pub fn name(row: &Row) -> String {
    let shape = row.shape;
    format!(
        "{} of {}, depth {}, {}{}",
        shape.direction.name(),
        block(shape.block),
        shape.depth,
        streams(shape.streams),
        if row.hogs > 0 { ", loaded" } else { "" }
    )
}

/// The same with the cipher, where there are several.
fn full_name(plan: &Plan, row: &Row) -> String {
    let cipher = row.cipher.as_ref().filter(|_| plan.ciphers.len() > 1);
    let cipher = cipher.map_or_else(String::new, |cipher| format!(", {cipher}"));
    name(row) + &cipher
}

fn table(plan: &Plan, points: &[&[Row]]) -> Table {
    let first = &points[0][0];
    let title = format!(
        "{}, {}, {}",
        match first.shape.direction {
            Direction::Read => "Reads",
            Direction::Write => "Writes",
        },
        first.cipher.as_deref().unwrap_or_default(),
        streams(first.shape.streams)
    );
    let mut table = Table::new(title, &["block", "depth"]);
    let columns = &mut table.columns;
    columns.extend(plan.modes.iter().map(|mode| format!("{mode} MB/s")));
    columns.push("auto / best".into());
    columns.extend(plan.modes.iter().map(|mode| format!("{mode} p99 µs")));
    columns.push("spread".into());
    for point in points {
        let shape = point[0].shape;
        let mut row = vec![block(shape.block), shape.depth.to_string()];
        row.extend(point.iter().map(|row| megabytes(row.bytes_per_second)));
        let ratio = auto_over_best(point);
        row.push(ratio.map_or("-".into(), |ratio| format!("{ratio:.3}")));
        row.extend(point.iter().map(|row| microseconds(row.p99_us())));
        row.push(percent(
            point.iter().map(|row| row.spread).fold(0.0, f64::max),
        ));
        table.push(row);
    }
    table
}

fn loaded_table(plan: &Plan, rows: &Rows<'_>) -> Table {
    let mut table = Table::new(
        format!(
            "4 KiB reads, one at a time, alone and beside {} threads that use up the processors; µs",
            plan.hogs
        ),
        &["way", "p50", "p90", "p99", "p99.9", "max", "MB/s"],
    );
    for (name, row) in rows.loaded() {
        let latency = row.latency.unwrap_or_default().values().map(microseconds);
        let speed = megabytes(row.bytes_per_second);
        table.push([name].into_iter().chain(latency).chain([speed]));
    }
    table
}

fn notes(plan: &Plan, rounds: u32) -> Vec<String> {
    let mut notes = vec![
        format!(
            "All volumes use the same medium. In each of {rounds} rounds every point has its turn, and at each point every mode, in an order that rotates; each measurement takes {} s after a warm-up of {} s.",
            plan.time.as_secs_f64(),
            super::WARM_UP.as_secs_f64()
        ),
        "Speeds are medians, 1 MB is 10^6 bytes; half of the rounds lie within the spread, which is the widest of the modes. auto / best is the median of the rounds' ratios of auto to the better of inline and queue.".into(),
        "A latency counts from the moment the stream wants the request, so it includes the time that requests of one stream wait for each other. Each percentile is the median of the rounds'; where a round has fewer than 100 requests, its p99 is its longest.".into(),
        format!("{} helpers; offsets are {}.", plan.helpers, plan.pattern.name()),
    ];
    if plan.hogs > 0 {
        notes.push("The threads beside which the loaded part runs belong to this program and have the same priority.".into());
    }
    notes
}
