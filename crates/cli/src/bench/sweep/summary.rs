//! From samples to tables and figures.

use std::fmt::Write as _;

use cryptline_engine::dispatch::Mode;

use super::loaded::Part;
use super::plan::Plan;
use super::{Point, Samples, plots};
use crate::bench::machine::cores;
use crate::bench::report::{Direction, Figure, Latency, Report, ratio};
use crate::bench::table::{Table, block, megabytes, microseconds};
use crate::benchmark::measure::median;

/// Cores that the goal for one large request supposes to be idle.
const IDLE_CORES: usize = 2;
/// Share of the processors that others may have had when they count as idle.
const IDLE: f64 = 0.05;
/// Bytes of that large request.
const LARGE: u32 = 1 << 20;

/// Fills the report.
pub fn fill(report: &mut Report, plan: &Plan, points: &[Point], loaded: &Part) {
    report.medium = plan.medium.describe(plan.size);
    report.runs = plan.rounds;
    report.seconds = plan.time.as_secs_f64();
    report.rows = points.iter().flat_map(|point| point.rows(plan)).collect();
    report.rows.extend(loaded.rows(plan));
    report.notes = notes(plan);
    report.tables = tables(plan, points);
    if loaded.is_wanted() {
        report.tables.push(loaded_table(plan, loaded));
    }
    report.plots = plots::of(plan, points, loaded);
    report.figures = vec![
        best(plan, points),
        best_p99(plan, points),
        large_alone(plan, points),
        under_load("inline_p99_loaded_over_idle", Mode::Inline, plan, loaded),
        under_load("queue_p99_loaded_over_idle", Mode::Queue, plan, loaded),
    ];
}

impl Point {
    fn of(&self, plan: &Plan, mode: Mode) -> Option<&Samples> {
        self.by_mode.get(plan.place(mode)?)
    }

    /// Auto to the better of inline and queue, which is the one with the better median.
    pub fn auto_over_best(&self, plan: &Plan) -> Option<f64> {
        let auto = self.of(plan, Mode::Auto)?;
        let (inline, queue) = (self.of(plan, Mode::Inline)?, self.of(plan, Mode::Queue)?);
        let [inline, queue] = [&inline.bytes_per_second, &queue.bytes_per_second];
        let better = if median(inline) >= median(queue) {
            inline
        } else {
            queue
        };
        Some(ratio(&auto.bytes_per_second, better))
    }

    /// The p99 of auto to the lower of the p99 of inline and queue.
    fn auto_p99_over_best(&self, plan: &Plan) -> Option<f64> {
        let p99 = |mode| self.of(plan, mode).map(Samples::p99_us);
        let (inline, queue) = (p99(Mode::Inline)?, p99(Mode::Queue)?);
        Some(p99(Mode::Auto)? / inline.min(queue))
    }

    /// `read of 4k, depth 1, 1 stream`.
    fn short_name(&self, plan: &Plan) -> String {
        let shape = self.shape;
        let mut name = format!(
            "{} of {}, depth {}, {} {}",
            shape.direction.name(),
            block(shape.block),
            shape.depth,
            shape.streams,
            if shape.streams == 1 {
                "stream"
            } else {
                "streams"
            }
        );
        if plan.ciphers.len() > 1 {
            // Writing to a String does not fail.
            let _ = write!(name, ", {}", plan.ciphers[self.cipher].word());
        }
        name
    }

    /// For the note of a figure that is this point's.
    fn as_worst(&self, plan: &Plan, all: &[f64]) -> String {
        format!(
            "the worst of {} points, whose median is {:.2}: {}",
            all.len(),
            median(all),
            self.short_name(plan)
        )
    }
}

const ALL_MODES: &str = "needs --dispatch inline,queue,auto";

fn best(plan: &Plan, points: &[Point]) -> Figure {
    const NAME: &str = "auto_over_best_min";
    let ratios = points.iter().map(|point| point.auto_over_best(plan));
    let Some(ratios) = ratios.collect::<Option<Vec<f64>>>() else {
        return Figure::missing(NAME, ALL_MODES);
    };
    let worst = ratios
        .iter()
        .zip(points)
        .min_by(|(a, _), (b, _)| a.total_cmp(b));
    match worst {
        Some((&worst, point)) => {
            Figure::at_least(NAME, worst, 0.97).noted(point.as_worst(plan, &ratios))
        }
        None => Figure::missing(NAME, ALL_MODES),
    }
}

fn best_p99(plan: &Plan, points: &[Point]) -> Figure {
    const NAME: &str = "auto_p99_over_best_max";
    let ratios = points.iter().map(|point| point.auto_p99_over_best(plan));
    let Some(ratios) = ratios.collect::<Option<Vec<f64>>>() else {
        return Figure::missing(NAME, ALL_MODES).lower();
    };
    let worst = ratios
        .iter()
        .zip(points)
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    match worst {
        Some((&worst, point)) => {
            Figure::at_most(NAME, worst, 1.1).noted(point.as_worst(plan, &ratios))
        }
        None => Figure::missing(NAME, ALL_MODES).lower(),
    }
}

/// One request of 1 MiB at a time: what helpers are for.
fn large_alone(plan: &Plan, points: &[Point]) -> Figure {
    const NAME: &str = "auto_over_inline_1m_qd1";
    let alone = points.iter().filter(|point| {
        let shape = point.shape;
        point.cipher == 0 && (shape.block, shape.depth, shape.streams) == (LARGE, 1, 1)
    });
    let ratios = alone.filter_map(|point| {
        let (auto, inline) = (point.of(plan, Mode::Auto)?, point.of(plan, Mode::Inline)?);
        Some((
            ratio(&auto.bytes_per_second, &inline.bytes_per_second),
            point,
        ))
    });
    let Some((worst, point)) = ratios.min_by(|(a, _), (b, _)| a.total_cmp(b)) else {
        return Figure::missing(
            NAME,
            "needs --block-sizes 1M, --depths 1, --streams 1 and --dispatch inline,auto",
        );
    };
    let figure = Figure::at_least(NAME, worst, 1.6).noted(point.short_name(plan));
    if cores() < IDLE_CORES || plan.helpers == 0 {
        return figure.without_goal("needs 2 processors and a helper");
    }
    match point.watch.share() {
        Some(share) if share <= IDLE => figure,
        Some(share) => figure.without_goal(format!(
            "no verdict: other programs had {:.0} % of the processors, and the goal is for idle ones",
            share * 100.0
        )),
        None => figure.without_goal("no verdict: nobody knows whether the processors were idle"),
    }
}

fn under_load(name: &'static str, mode: Mode, plan: &Plan, loaded: &Part) -> Figure {
    match loaded.of(plan, mode) {
        Some((idle, loaded)) => Figure::reported(name, loaded.p99_us() / idle.p99_us())
            .lower()
            .noted(format!(
                "4k reads one at a time: {} µs beside {} hogs, {} µs alone",
                microseconds(loaded.p99_us()),
                plan.hogs,
                microseconds(idle.p99_us())
            )),
        None => Figure::missing(name, format!("needs --hog and --dispatch {mode}")).lower(),
    }
}

/// A table for each cipher, direction and number of streams.
fn tables(plan: &Plan, points: &[Point]) -> Vec<Table> {
    let same = |a: &Point, b: &Point| {
        (a.cipher, a.shape.direction, a.shape.streams)
            == (b.cipher, b.shape.direction, b.shape.streams)
    };
    points
        .chunk_by(same)
        .map(|points| table(plan, points))
        .collect()
}

fn table(plan: &Plan, points: &[Point]) -> Table {
    let title = points.first().map_or_else(String::new, |point| {
        format!(
            "{}, {}, {} {}",
            match point.shape.direction {
                Direction::Read => "Reads",
                Direction::Write => "Writes",
            },
            plan.ciphers[point.cipher].word(),
            point.shape.streams,
            if point.shape.streams == 1 {
                "stream"
            } else {
                "streams"
            },
        )
    });
    let mut table = Table::new(title, &["block", "depth"]);
    let columns = &mut table.columns;
    columns.extend(plan.modes.iter().map(|mode| format!("{mode} MB/s")));
    columns.push("auto / best".into());
    columns.extend(plan.modes.iter().map(|mode| format!("{mode} p99 µs")));
    columns.push("spread".into());
    for point in points {
        let mut row = vec![block(point.shape.block), point.shape.depth.to_string()];
        let speeds = point
            .by_mode
            .iter()
            .map(|samples| median(&samples.bytes_per_second));
        row.extend(speeds.map(megabytes));
        row.push(
            point
                .auto_over_best(plan)
                .map_or("-".into(), |ratio| format!("{ratio:.3}")),
        );
        row.extend(
            point
                .by_mode
                .iter()
                .map(|samples| microseconds(samples.p99_us())),
        );
        let widest = point.rows(plan).map(|row| row.spread).fold(0.0, f64::max);
        row.push(format!("{:.1} %", widest * 100.0));
        table.push(row);
    }
    table
}

fn loaded_table(plan: &Plan, loaded: &Part) -> Table {
    let mut table = Table::new(
        format!(
            "4 KiB reads, one at a time, alone and beside {} threads that use up the processors; µs",
            plan.hogs
        ),
        &["way", "p50", "p90", "p99", "p99.9", "max", "MB/s"],
    );
    for row in loaded.rows(plan) {
        let latency = row.latency.unwrap_or_default();
        let [p50, p90, p99, p99_9, max] = latency.points().map(|(_, value)| microseconds(value));
        let name = match row.hogs {
            0 => format!("{}, alone", row.name),
            _ => row.name,
        };
        table.push([
            name,
            p50,
            p90,
            p99,
            p99_9,
            max,
            megabytes(row.bytes_per_second),
        ]);
    }
    table
}

fn notes(plan: &Plan) -> Vec<String> {
    let mut notes = vec![
        format!(
            "All volumes lie on the same medium. In each of {} rounds every point has its turn, and at each point every mode, in an order that rotates; each measurement takes {} s after a warm-up of {} s.",
            plan.rounds,
            plan.time.as_secs_f64(),
            super::WARM_UP.as_secs_f64()
        ),
        "Speeds are medians, 1 MB is 10^6 bytes; half of the rounds lie within the spread, which is the widest of the modes. auto / best is the median of the rounds' ratios of auto to the better of inline and queue.".into(),
        "A latency counts from the moment the stream wants the request, so it holds the time that requests of one stream wait for each other. Each percentile is the median of the rounds'; where a round has fewer than 100 requests, its p99 is its longest.".into(),
        format!("{} helpers; offsets are {}.", plan.helpers, plan.pattern.name()),
    ];
    if plan.hogs > 0 {
        notes.push("The threads beside which the loaded part runs are of this program and of the same priority.".into());
    }
    notes
}

/// The percentiles of samples, where there are any.
pub fn latency(samples: &Samples) -> Option<Latency> {
    Latency::median(&samples.latencies)
}
