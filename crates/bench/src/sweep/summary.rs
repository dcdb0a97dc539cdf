//! From rows to tables, plots and figures.

use cryptline_engine::dispatch::Mode;

use super::SweepArgs;
use super::plan::Plan;
use crate::machine::cores;
use crate::plot::Plot;
use crate::report::{Direction, Figure, Latency, Quantity, Ratios, Report, Row, median, word};
use crate::table::{self, Table, block, megabytes, microseconds, percent};

/// Cores that the goal for one large request supposes to be idle.
const IDLE_CORES: usize = 2;
/// Share of the processors that others may have had when they count as idle.
const IDLE: f64 = 0.05;
/// Bytes of that large request.
const LARGE: u32 = 1 << 20;
/// Blocks whose percentiles are plotted, where they were measured.
const PLOTTED: [u32; 2] = [4096, LARGE];
const ALL_MODES: &str = "needs --dispatch inline,queue,auto";

/// A block size, depth, direction, number of streams and cipher: its rows in the order of the modes.
type Point<'a> = &'a [Row];

/// The rows of a sweep, as [`Plan::rows`] has laid them out.
struct Sweep<'a> {
    plan: &'a Plan,
    points: Vec<Point<'a>>,
    /// Small reads alone, and beside hogs. May be empty.
    alone: Point<'a>,
    loaded: Point<'a>,
}

/// Fills the report.
pub fn fill(report: &mut Report, args: &SweepArgs, plan: &Plan) {
    report.notes = notes(args, plan);
    let sweep = Sweep::new(plan, &report.rows);
    let (over_best, worst) = sweep.worst(auto_over_best, f64::lt);
    let (p99_over_best, worst_p99) = sweep.worst(auto_p99_over_best, f64::gt);
    let (chance, by_chance) = sweep.worst(best_over_itself, f64::lt);
    let (p99_chance, p99_by_chance) = sweep.worst(best_p99_over_itself, f64::gt);
    let figures = vec![
        Figure::of("auto_over_best_min", over_best.as_ref()).at_least(0.97).noted(worst).needs(ALL_MODES),
        Figure::of("auto_p99_over_best_max", p99_over_best.as_ref()).at_most(1.1).noted(worst_p99).needs(ALL_MODES),
        Figure::of("best_over_itself_min", chance.as_ref()).noted(by_chance).needs(ALL_MODES),
        Figure::of("best_p99_over_itself_max", p99_chance.as_ref()).lower().noted(p99_by_chance).needs(ALL_MODES),
        sweep.large_alone(),
        sweep.under_load("inline_p99_loaded_over_idle", Mode::Inline),
        sweep.under_load("queue_p99_loaded_over_idle", Mode::Queue),
    ];
    let (tables, plots) = (sweep.tables(), sweep.plots());
    (report.figures, report.tables, report.plots) = (figures, tables, plots);
}

/// The row of a mode at a point.
fn by(point: Point<'_>, mode: Mode) -> Option<&Row> {
    let mode = mode.to_string();
    let mut rows = point.iter();
    rows.find(|row| row.dispatch.as_ref() == Some(&mode))
}

/// Auto to the better of inline and queue.
fn auto_over_best(point: Point<'_>) -> Option<Ratios> {
    Some(by(point, Mode::Auto)?.beside(faster(point)?, Quantity::Speed))
}

/// The p99 of auto to the lower of the p99 of inline and queue.
fn auto_p99_over_best(point: Point<'_>) -> Option<Ratios> {
    Some(by(point, Mode::Auto)?.beside(steadier(point)?, Quantity::P99))
}

fn best_over_itself(point: Point<'_>) -> Option<Ratios> {
    Some(faster(point)?.beside_itself(Quantity::Speed))
}

fn best_p99_over_itself(point: Point<'_>) -> Option<Ratios> {
    Some(steadier(point)?.beside_itself(Quantity::P99))
}

/// Of inline and queue, the one with the better median.
fn faster(point: Point<'_>) -> Option<&Row> {
    let (inline, queue) = (by(point, Mode::Inline)?, by(point, Mode::Queue)?);
    let is_inline = inline.bytes_per_second >= queue.bytes_per_second;
    Some(if is_inline { inline } else { queue })
}

/// Of inline and queue, the one with the lower p99.
fn steadier(point: Point<'_>) -> Option<&Row> {
    let (inline, queue) = (by(point, Mode::Inline)?, by(point, Mode::Queue)?);
    let is_inline = inline.p99_us() <= queue.p99_us();
    Some(if is_inline { inline } else { queue })
}

/// `1 stream`.
fn streams(count: u32) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} stream{plural}")
}

/// `read of 4k, depth 1, 1 stream`, or the same beside hogs.
pub fn name(row: &Row) -> String {
    format!(
        "{} of {}, depth {}, {}{}",
        word(&row.shape.direction),
        block(row.shape.block),
        row.shape.depth,
        streams(row.shape.streams),
        if row.hogs > 0 { ", loaded" } else { "" }
    )
}

impl<'a> Sweep<'a> {
    fn new(plan: &'a Plan, rows: &'a [Row]) -> Self {
        let modes = plan.modes.len();
        let of_loaded_part = if plan.hogs > 0 { 2 * modes } else { 0 };
        let (points, last) = rows.split_at(rows.len() - of_loaded_part);
        let (alone, loaded) = last.split_at(last.len() / 2);
        Self { plan, points: points.chunks(modes).collect(), alone, loaded }
    }

    /// A point of the first cipher.
    fn find(&self, direction: Direction, streams: u32, depth: u32, block: u32) -> Option<Point<'a>> {
        // Those of the first cipher come first.
        let mut points = self.points.iter().copied();
        points.find(|point| {
            let shape = point[0].shape;
            (shape.direction, shape.streams, shape.depth, shape.block) == (direction, streams, depth, block)
        })
    }

    /// The name of a point with the cipher, where there are several.
    fn full_name(&self, point: Point<'_>) -> String {
        match &point[0].cipher {
            Some(cipher) if self.plan.ciphers.len() > 1 => format!("{}, {cipher}", name(&point[0])),
            _ => name(&point[0]),
        }
    }

    /// The worst of a value at all points, and which point that is. None where a point does not have it.
    fn worst(
        &self,
        value: fn(Point<'_>) -> Option<Ratios>,
        is_worse: fn(&f64, &f64) -> bool,
    ) -> (Option<Ratios>, String) {
        let values = self.points.iter().map(|point| value(point));
        let values: Vec<Ratios> = values.collect::<Option<_>>().unwrap_or_default();
        let medians: Vec<f64> = values.iter().map(Ratios::median).collect();
        let places = 0..medians.len();
        let worst = places.reduce(|a, b| if is_worse(&medians[b], &medians[a]) { b } else { a });
        let Some(worst) = worst else {
            return (None, String::new());
        };
        let note = format!(
            "the worst of {} points, whose median is {:.2}: {}",
            values.len(),
            median(&medians),
            self.full_name(self.points[worst])
        );
        (values.into_iter().nth(worst), note)
    }

    /// One request of 1 MiB at a time: what helpers are for.
    fn large_alone(&self) -> Figure {
        let alone = self.points.iter().filter(|point| {
            let shape = point[0].shape;
            point[0].cipher == self.points[0][0].cipher && (shape.block, shape.depth, shape.streams) == (LARGE, 1, 1)
        });
        let ratios = alone.filter_map(|&point| {
            let auto = by(point, Mode::Auto)?;
            Some((auto.beside(by(point, Mode::Inline)?, Quantity::Speed), point))
        });
        let worst = ratios.min_by(|a, b| a.0.median().total_cmp(&b.0.median()));
        let (ratios, point) = worst.unzip();
        let spoiled = match ratios.as_ref().and_then(|ratios| ratios.others) {
            _ if cores() < IDLE_CORES || self.plan.helpers == 0 => Some("needs 2 processors and a helper".into()),
            Some(share) if share <= IDLE => None,
            Some(share) => Some(format!(
                "no verdict: other programs had {:.0} % of the processors, and the goal is for idle ones",
                share * 100.0
            )),
            None => Some("no verdict: nobody knows whether the processors were idle".into()),
        };
        Figure::of("auto_over_inline_1m_qd1", ratios.as_ref())
            .at_least(1.6)
            .noted(point.map_or_else(String::new, |point| self.full_name(point)))
            .unless(spoiled)
            .needs("needs --block-sizes 1M, --depths 1, --streams 1 and --dispatch inline,auto")
    }

    fn under_load(&self, name: &'static str, mode: Mode) -> Figure {
        let rows = by(self.loaded, mode).zip(by(self.alone, mode));
        let ratios = rows.map(|(loaded, alone)| loaded.beside(alone, Quantity::P99));
        let p99 = |row: Option<&Row>| microseconds(row.map_or(f64::NAN, Row::p99_us));
        Figure::of(name, ratios.as_ref())
            .lower()
            .noted(format!(
                "4k reads one at a time: {} µs beside {} hogs, {} µs alone",
                p99(by(self.loaded, mode)),
                self.plan.hogs,
                p99(by(self.alone, mode))
            ))
            .needs(format!("needs --hog and --dispatch {mode}"))
    }

    /// A table for each cipher, direction and number of streams, and one of the loaded part.
    fn tables(&self) -> Vec<Table> {
        let together = |a: &Point<'_>, b: &Point<'_>| {
            let of = |point: &Point<'_>| (point[0].shape.direction, point[0].shape.streams);
            a[0].cipher == b[0].cipher && of(a) == of(b)
        };
        let of_points = self.points.chunk_by(together).map(|points| self.table(points));
        let loaded = (self.plan.hogs > 0).then(|| self.loaded_table());
        of_points.chain(loaded).collect()
    }

    fn table(&self, points: &[Point<'a>]) -> Table {
        let Row { cipher, shape, .. } = &points[0][0];
        let direction = match shape.direction {
            Direction::Read => "Reads",
            Direction::Write => "Writes",
        };
        let cipher = cipher.as_deref().unwrap_or_default();
        let title = format!("{direction}, {cipher}, {}", streams(shape.streams));
        let by_mode = |unit| self.plan.modes.iter().map(move |mode| format!("{mode} {unit}"));
        let columns = ["block".to_owned(), "depth".to_owned()].into_iter();
        let columns = columns.chain(by_mode("MB/s")).chain(["auto / best".to_owned()]);
        let columns = columns.chain(by_mode("p99 µs")).chain(["spread".to_owned()]);
        let mut table = Table::new(title, columns);
        for point in points {
            let Row { shape, .. } = point[0];
            let ratio = auto_over_best(point).map_or("-".into(), |it| table::ratio(it.median()));
            let spread = point.iter().map(|row| row.spread).fold(0.0, f64::max);
            let line = [Row::label(block(shape.block), *point), shape.depth.to_string()];
            let line = line.into_iter();
            let line = line.chain(point.iter().map(|row| megabytes(row.bytes_per_second)));
            let line = line.chain([ratio]);
            let line = line.chain(point.iter().map(|row| microseconds(row.p99_us())));
            table.push(line.chain([percent(spread)]));
        }
        table
    }

    /// The rows of the loaded part and their names, each mode alone and then beside hogs.
    fn loaded_rows(&self) -> impl Iterator<Item = (String, &'a Row)> {
        let pairs = self.alone.iter().zip(self.loaded);
        pairs.flat_map(|(alone, loaded)| {
            let name = format!("{}, alone", alone.name);
            [(name, alone), (loaded.name.clone(), loaded)]
        })
    }

    fn loaded_table(&self) -> Table {
        let title = format!(
            "4 KiB reads, one at a time, alone and beside {} threads that use up the processors; µs",
            self.plan.hogs
        );
        let columns = ["way"].into_iter().chain(Latency::NAMES).chain(["MB/s"]);
        let mut table = Table::new(title, columns);
        for (name, row) in self.loaded_rows() {
            let latency = row.latency.unwrap_or_default().values().map(microseconds);
            let speed = megabytes(row.bytes_per_second);
            let name = [Row::label(name, [row])].into_iter();
            table.push(name.chain(latency).chain([speed]));
        }
        table
    }

    /// All plots that there is data for, of the first cipher.
    fn plots(&self) -> Vec<Plot> {
        let plan = self.plan;
        let mut plots = Vec::new();
        plots.extend(plan.directions.iter().map(|&direction| self.ratios(direction)));
        if plan.hogs > 0 {
            let title =
                format!("Latency of 4k reads, alone and beside {} threads that use up the processors", plan.hogs);
            plots.push(Latency::plot(title, self.loaded_rows()));
        }
        for &direction in &plan.directions {
            for bytes in PLOTTED {
                if let Some(point) = self.find(direction, 1, 1, bytes) {
                    let (direction, block) = (word(&direction), block(bytes));
                    let title = format!("Latency: {direction} of {block}, one at a time");
                    let lines = point.iter().map(|row| (row.name.clone(), row));
                    plots.push(Latency::plot(title, lines));
                }
            }
            for &count in &plan.streams {
                for &depth in &plan.depths {
                    plots.push(self.throughput(direction, count, depth));
                }
            }
        }
        plots
    }

    /// The points of the first cipher in a direction.
    fn first_cipher(&self, direction: Direction) -> impl Iterator<Item = Point<'a>> {
        let first = &self.points[0][0].cipher;
        let points = self.points.iter().copied();
        points.filter(move |point| point[0].cipher == *first && point[0].shape.direction == direction)
    }

    fn throughput(&self, direction: Direction, count: u32, depth: u32) -> Plot {
        let points = self.first_cipher(direction);
        let of_line = points.filter(|point| (point[0].shape.streams, point[0].shape.depth) == (count, depth));
        let values =
            of_line.flatten().map(|row| (block(row.shape.block), row.name.clone(), row.plotted(|rate| rate / 1e9)));
        let (word, streams) = (word(&direction), streams(count));
        let title = format!("Throughput: {word}, depth {depth}, {streams}");
        Plot::of(title, ["block size", "GB/s"], values)
    }

    /// Auto to the better mode, a line for each depth and number of streams. Without all modes there is
    /// nothing to draw.
    fn ratios(&self, direction: Direction) -> Plot {
        let values = self.first_cipher(direction).filter_map(|point| {
            let shape = point[0].shape;
            let line = format!("depth {}, {}", shape.depth, streams(shape.streams));
            Some((block(shape.block), line, auto_over_best(point)?.plotted()))
        });
        let title = format!("Auto over the better of inline and queue: {}", word(&direction));
        let plot = Plot::of(title, ["block size", "ratio of throughputs"], values);
        if plot.series.is_empty() { plot } else { plot.guide(1.0) }
    }
}

fn notes(args: &SweepArgs, plan: &Plan) -> Vec<String> {
    let mut notes = vec![
        format!(
            "All volumes use the same medium. In each of {} rounds every point has its turn, and at each point every mode, in an order that rotates; each measurement takes {} s after a warm-up of {} s.",
            args.rounds,
            args.seconds,
            super::WARM_UP.as_secs_f64()
        ),
        "Speeds are medians, 1 MB is 10^6 bytes; half of the rounds lie within the spread, which is the widest of the modes. auto / best is the median of the rounds' ratios of auto to the better of inline and queue.".into(),
        "A latency counts from the moment the stream wants the request, so it includes the time that requests of one stream wait for each other. Each percentile is the median of the rounds'; where a round has fewer than 100 requests, its p99 is its longest.".into(),
        format!("{} helpers; offsets are {}.", plan.helpers, word(&args.pattern)),
    ];
    if plan.hogs > 0 {
        notes.push(
            "The threads beside which the loaded part runs belong to this program and have the same priority.".into(),
        );
    }
    notes
}
