//! Plots of a sweep: throughput by block size, ratios, latency percentiles.

use cryptline_engine::dispatch::Mode;

use super::loaded::Part;
use super::plan::Plan;
use super::summary::latency;
use super::{Point, Samples};
use crate::bench::plot::{Plot, Series};
use crate::bench::report::{Direction, Latency};
use crate::bench::table::block;
use crate::benchmark::measure::median;

/// Blocks whose percentiles are plotted, where they were measured.
const BLOCKS: [u32; 2] = [4096, 1 << 20];

/// All plots that there is data for, of the first cipher.
pub fn of(plan: &Plan, points: &[Point], loaded: &Part) -> Vec<Plot> {
    let mut plots = Vec::new();
    for &direction in &plan.directions {
        plots.push(ratios(plan, points, direction));
    }
    if loaded.is_wanted() {
        plots.push(percentiles_loaded(plan, loaded));
    }
    for &direction in &plan.directions {
        for bytes in BLOCKS {
            let alone = points.iter().find(|point| {
                let shape = point.shape;
                point.cipher == 0
                    && shape.direction == direction
                    && (shape.block, shape.depth, shape.streams) == (bytes, 1, 1)
            });
            plots.extend(alone.map(|point| percentiles_of(plan, point)));
        }
        for &streams in &plan.streams {
            for &depth in &plan.depths {
                let wanted = |point: &&Point| {
                    let shape = point.shape;
                    point.cipher == 0
                        && (shape.direction, shape.streams, shape.depth)
                            == (direction, streams, depth)
                };
                let points: Vec<&Point> = points.iter().filter(wanted).collect();
                plots.push(throughput(plan, &points, direction, streams, depth));
            }
        }
    }
    plots
}

fn throughput(
    plan: &Plan,
    points: &[&Point],
    direction: Direction,
    streams: u32,
    depth: u32,
) -> Plot {
    let of = |(place, mode): (usize, &Mode)| Series {
        name: mode.to_string(),
        values: points
            .iter()
            .map(|point| Some(median(&point.by_mode[place].bytes_per_second) / 1e9))
            .collect(),
    };
    Plot {
        title: format!(
            "Throughput: {}, depth {depth}, {streams} {}",
            direction.name(),
            if streams == 1 { "stream" } else { "streams" }
        ),
        x_label: "block size".into(),
        categories: points
            .iter()
            .map(|point| block(point.shape.block))
            .collect(),
        y_label: "GB/s".into(),
        series: plan.modes.iter().enumerate().map(of).collect(),
        ..Plot::default()
    }
}

/// Auto to the better mode, a line for each depth and number of streams.
fn ratios(plan: &Plan, points: &[Point], direction: Direction) -> Plot {
    let mut series = Vec::new();
    for &streams in &plan.streams {
        for &depth in &plan.depths {
            let of_line = points.iter().filter(|point| {
                let shape = point.shape;
                point.cipher == 0
                    && (shape.direction, shape.streams, shape.depth) == (direction, streams, depth)
            });
            series.push(Series {
                name: format!(
                    "depth {depth}, {streams} {}",
                    if streams == 1 { "stream" } else { "streams" }
                ),
                values: of_line.map(|point| point.auto_over_best(plan)).collect(),
            });
        }
    }
    let measured = series
        .iter()
        .flat_map(|line| &line.values)
        .any(Option::is_some);
    Plot {
        title: format!(
            "Auto over the better of inline and queue: {}",
            direction.name()
        ),
        x_label: "block size".into(),
        categories: plan.blocks.iter().map(|&bytes| block(bytes)).collect(),
        y_label: "ratio of throughputs".into(),
        guide: measured.then_some(1.0),
        series,
        ..Plot::default()
    }
}

fn percentiles_of(plan: &Plan, point: &Point) -> Plot {
    let shape = point.shape;
    let lines = plan.modes.iter().zip(&point.by_mode);
    percentiles(
        format!(
            "Latency: {} of {}, one at a time",
            shape.direction.name(),
            block(shape.block)
        ),
        lines.map(|(mode, samples)| (mode.to_string(), samples)),
    )
}

fn percentiles_loaded(plan: &Plan, loaded: &Part) -> Plot {
    let lines = plan.modes.iter().filter_map(|&mode| {
        let (idle, busy) = loaded.of(plan, mode)?;
        Some([
            (format!("{mode}, alone"), idle),
            (format!("{mode}, loaded"), busy),
        ])
    });
    percentiles(
        format!(
            "Latency of 4k reads, alone and beside {} threads that use up the processors",
            plan.hogs
        ),
        lines.flatten(),
    )
}

fn percentiles<'a>(title: String, lines: impl Iterator<Item = (String, &'a Samples)>) -> Plot {
    let series = lines.filter_map(|(name, samples)| {
        let values = latency(samples)?.points().map(|(_, value)| Some(value));
        Some(Series {
            name,
            values: values.to_vec(),
        })
    });
    Plot {
        title,
        x_label: "percentile".into(),
        categories: Latency::default()
            .points()
            .map(|(name, _)| name.to_owned())
            .to_vec(),
        y_label: "µs, logarithmic".into(),
        logarithmic: true,
        series: series.collect(),
        ..Plot::default()
    }
}
