//! A plan, and how it is carried out: all ways take turns, run after run.
//!
//! ```text
//! for each run
//!     for each group                   ways that are compared with each other
//!         as often as its rows say
//!             for each way             warm up, measure: one Sample for its Row
//! ```
//!
//! The runs are outermost: what disturbs the machine for a while disturbs one run of many ways, and the medians leave it
//! out. The ways of a group are innermost: what a ratio compares lies close together in time. The order of the turns
//! changes from run to run, so that each way has now this and now that neighbour before it.
//!
//! A plan is data (rows, which are named and shaped before anything runs, in groups), a function that gives a way its
//! turn, and then comparisons of its rows: [`PlanReport::compare`]. What must be checked before anything is timed is checked
//! before [`Plan::run`].

use std::ops::Range;
use std::time::{Duration, Instant};

use clap::Args;
use cryptline::size;
use indicatif::{ProgressBar, ProgressStyle};

use crate::error::{Result, fail};
use crate::machine::{Machine, MachineMoment, Others, ProcessorWatch, this_command};
use crate::report::{PlanReport, Row, TurnResults};

/// Measurements to be made.
#[derive(Debug)]
pub struct Plan {
    pub bench: &'static str,
    pub title: &'static str,
    pub medium: String,
    pub runs: PlannedRuns,
    /// Those that follow each other with the same load and limit are a group.
    pub rows: Vec<Row>,
    pub notes: Vec<String>,
}

/// How often, and how long.
#[derive(Args, Clone, Copy, Debug)]
pub struct RunArgs {
    /// Size of the disk or medium [default: that of the plan]
    #[arg(long, value_name = "SIZE", global = true, value_parser = size::parse)]
    size: Option<u64>,

    /// How often each way is measured [default: that of the plan]
    #[arg(long, visible_alias = "rounds", value_name = "N", global = true, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: Option<u32>,

    /// How long each of those takes [default: that of the plan]
    #[arg(long, value_name = "S", global = true)]
    seconds: Option<f64>,
}

/// The same, without anything open.
#[derive(Clone, Copy, Debug)]
pub struct PlannedRuns {
    pub size: u64,
    pub runs: u32,
    pub seconds: f64,
    /// In seconds.
    pub time: Duration,
}

impl RunArgs {
    /// Returns what was asked for, or else what is usual for a plan.
    pub fn or(self, size: u64, runs: u32, seconds: f64) -> Result<PlannedRuns> {
        let seconds = self.seconds.unwrap_or(seconds);
        if !(seconds > 0.0 && seconds <= SECONDS_MAX) {
            fail!("--seconds {seconds}: use more than 0 and at most {SECONDS_MAX}");
        }
        let (size, runs) = (self.size.unwrap_or(size), self.runs.unwrap_or(runs));
        Ok(PlannedRuns { size, runs, seconds, time: Duration::from_secs_f64(seconds) })
    }
}

/// One turn.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// The place of its row.
    pub row: usize,
    pub run: u32,
    /// How many turns its group has had before, each of all its ways.
    pub nth: u32,
}

impl Plan {
    /// Gives every way its turns, and sums up the rows. Each notes what share of the processors other programs had.
    pub fn run(mut self, mut turn: impl FnMut(&Row, Turn) -> Result<TurnResults>) -> Result<PlanReport> {
        let mut groups: Vec<Range<usize>> = Vec::new();
        let alike = |one: &Row, other: &Row| one.shape == other.shape && one.quota == other.quota;
        for (row, one) in self.rows.iter().enumerate() {
            match groups.last_mut() {
                Some(group) if alike(&self.rows[group.start], one) => group.end = row + 1,
                _ => groups.push(row..row + 1),
            }
        }
        let mut others = Others::look();
        let progress = progress(groups.len() * self.runs.runs as usize);
        let mut all = ProcessorWatch::default();
        let (begun, mut told) = (Instant::now(), Instant::now());
        for run in 0..self.runs.runs {
            for group in &groups {
                let Row { name, times, .. } = &self.rows[group.start];
                progress.set_message(format!("run {} of {}  {name}", run + 1, self.runs.runs));
                progress.tick();
                let times = *times;
                for time in 0..times {
                    let nth = run * times + time;
                    for place in order(nth, group.len()) {
                        let row = group.start + place;
                        let start = MachineMoment::now();
                        let sample = turn(&self.rows[row], Turn { row, run, nth })?;
                        let mut watch = ProcessorWatch::default();
                        watch.add(start, MachineMoment::now());
                        all.add_all(&watch);
                        self.rows[row].turns.push(sample);
                        self.rows[row].watch.add_all(&watch);
                    }
                }
                progress.inc(1);
            }
            // Without a terminal there is no bar.
            if progress.is_hidden() && told.elapsed() >= SILENCE {
                told = Instant::now();
                let (done, gone) = (run + 1, begun.elapsed());
                let left = gone * (self.runs.runs - done) / done;
                let [gone, left] = [gone, left].map(|it| it.as_secs());
                eprintln!("run {done} of {} is done after {gone} s, about {left} s left", self.runs.runs);
            }
        }
        progress.finish_and_clear();
        others.during = all.share();
        self.rows.iter_mut().for_each(Row::settle);
        Ok(PlanReport {
            bench: self.bench,
            title: self.title,
            medium: self.medium,
            machine: Machine::here(),
            others,
            commands: vec![this_command()],
            runs: self.runs.runs,
            seconds: self.runs.seconds,
            notes: self.notes,
            rows: self.rows,
            ..PlanReport::default()
        })
    }
}

/// A bar on a terminal, drawn only between measurements: a thread that redraws would take time from what is measured.
pub fn progress(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    match ProgressStyle::with_template("{bar:24} {percent:>3} %  {elapsed} gone, {eta} left  {msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Least time between two lines that say how far a plan is.
const SILENCE: Duration = Duration::from_secs(5);
/// Longest turn, in seconds.
const SECONDS_MAX: f64 = 3600.0;

/// In this order, each once.
pub fn unique<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for one in all {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}

/// The order of `ways` ways in a run: from another one on every second run, and backwards in the other.
fn order(run: u32, ways: usize) -> Vec<usize> {
    let first = usize::try_from(run / 2).unwrap_or(0) % ways.max(1);
    let mut order: Vec<usize> = (0..ways).map(|way| (first + way) % ways).collect();
    if run % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::error::Error;
    use crate::report::LoadShape;

    fn plan(rows: usize) -> Plan {
        let runs = PlannedRuns { runs: 4, ..asked(None).expect("a time") };
        let row = Row::new("a way", LoadShape::default());
        Plan { bench: "inline", title: "", medium: String::new(), runs, rows: vec![row; rows], notes: Vec::new() }
    }

    fn asked(seconds: Option<f64>) -> Result<PlannedRuns> {
        RunArgs { size: None, runs: None, seconds }.or(1, 1, 0.5)
    }

    #[test]
    fn every_way_comes_once_in_each_run_and_at_every_place_in_some() {
        let ways = 8;
        let mut places = BTreeSet::new();
        for run in 0..16 {
            let order = order(run, ways);
            assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), ways);
            places.extend(order.into_iter().enumerate());
        }
        assert_eq!(places.len(), ways * ways);
        assert!(order(3, 0).is_empty());
    }

    #[test]
    fn each_row_has_a_sample_for_each_of_its_turns() {
        let mut plan = plan(3);
        plan.rows[2].shape.block = 4096;
        plan.rows[2].times = 3;
        let mut seen = BTreeSet::new();
        let report = plan.run(|_, turn| {
            assert!(seen.insert((turn.row, turn.nth)), "{turn:?} came twice");
            Ok(TurnResults { bytes_per_second: f64::from(turn.run + 1), ..TurnResults::default() })
        });
        let report = report.expect("nothing failed");
        let counts = report.rows.iter().map(|row| row.samples.len());
        assert_eq!(counts.collect::<Vec<_>>(), [4, 4, 12]);
        assert_eq!(report.rows[0].bytes_per_second, 2.5);
    }

    #[test]
    fn a_turn_that_fails_ends_the_plan() {
        let mut turns = 0;
        let failed = plan(3).run(|_, turn| {
            turns += 1;
            if turn.run == 1 { Err(Error("on purpose".into())) } else { Ok(TurnResults::default()) }
        });
        assert!(failed.is_err());
        assert_eq!(turns, 4);
    }

    #[test]
    fn a_time_that_is_none_is_refused() {
        assert_eq!(asked(None).expect("the usual").time, Duration::from_millis(500));
        for wrong in [0.0, -1.0, 3601.0, f64::NAN, f64::INFINITY] {
            let error = asked(Some(wrong)).expect_err("no length of time");
            assert!(error.to_string().starts_with("--seconds "), "{error}");
        }
    }
}
