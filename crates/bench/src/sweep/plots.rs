//! Plots of a sweep: throughput by block size, ratios, latency percentiles.

use super::plan::Plan;
use super::summary::{Rows, auto_over_best, streams};
use crate::plot::Plot;
use crate::report::Direction;
use crate::table::block;

/// Blocks whose percentiles are plotted, where they were measured.
const BLOCKS: [u32; 2] = [4096, 1 << 20];

/// All plots that there is data for, of the first cipher.
pub fn of(plan: &Plan, rows: &Rows<'_>) -> Vec<Plot> {
    let mut plots = Vec::new();
    for &direction in &plan.directions {
        plots.push(ratios(plan, rows, direction));
    }
    if plan.hogs > 0 {
        let title = format!(
            "Latency of 4k reads, alone and beside {} threads that use up the processors",
            plan.hogs
        );
        plots.push(Plot::percentiles(title, rows.loaded()));
    }
    for &direction in &plan.directions {
        for bytes in BLOCKS {
            if let Some(point) = rows.find(direction, 1, 1, bytes) {
                let title = format!(
                    "Latency: {} of {}, one at a time",
                    direction.name(),
                    block(bytes)
                );
                let lines = point.iter().map(|row| (row.name.clone(), row));
                plots.push(Plot::percentiles(title, lines));
            }
        }
        for &count in &plan.streams {
            for &depth in &plan.depths {
                plots.push(throughput(plan, rows, direction, count, depth));
            }
        }
    }
    plots
}

fn throughput(plan: &Plan, rows: &Rows<'_>, direction: Direction, count: u32, depth: u32) -> Plot {
    Plot::of(
        format!(
            "Throughput: {}, depth {depth}, {}",
            direction.name(),
            streams(count)
        ),
        ["block size", "GB/s"],
        plan.blocks.iter().map(|&bytes| (block(bytes), bytes)),
        plan.modes
            .iter()
            .enumerate()
            .map(|(place, mode)| (mode.to_string(), place)),
        |&place, &bytes| {
            let point = rows.find(direction, count, depth, bytes)?;
            Some(point[place].bytes_per_second / 1e9)
        },
    )
}

/// Auto to the better mode, a line for each depth and number of streams.
fn ratios(plan: &Plan, rows: &Rows<'_>, direction: Direction) -> Plot {
    let with_depths = |&count| plan.depths.iter().map(move |&depth| (count, depth));
    let lines = plan.streams.iter().flat_map(with_depths);
    let plot = Plot::of(
        format!(
            "Auto over the better of inline and queue: {}",
            direction.name()
        ),
        ["block size", "ratio of throughputs"],
        plan.blocks.iter().map(|&bytes| (block(bytes), bytes)),
        lines.map(|line| (format!("depth {}, {}", line.1, streams(line.0)), line)),
        |&(count, depth), &bytes| auto_over_best(rows.find(direction, count, depth, bytes)?),
    );
    let measured = plot
        .series
        .iter()
        .flat_map(|line| &line.values)
        .any(Option::is_some);
    if measured { plot.guide(1.0) } else { plot }
}
