//! The runner: all ways take turns, run after run.
//!
//! ```text
//! for each run
//!     for each group                   ways that are compared with each other
//!         as often as the group says
//!             for each way             warm up, measure: one Sample for its Row
//! ```
//!
//! The runs are outermost: what disturbs the machine for a while disturbs one run of many ways, and
//! the medians leave it out. The ways of a group are innermost: what a ratio compares lies close
//! together in time. The order of the turns changes from run to run, so that each way has now this
//! and now that neighbour before it.
//!
//! # A plan
//!
//! A bench is data and one function:
//!
//! * `Report::rows`, a [`Row`] for each way under each load, named and shaped before anything runs;
//! * the [`Group`]s they take their turns in, often a single one;
//! * a function that gives a way its turn, mostly [`load::run`](super::load::run) or
//!   [`load::drive`](super::load::drive), and adds the [`Sample`](super::report::Sample) to its row.
//!
//! Tables, plots and figures are then read out of the rows: [`Report::ratio`], [`Table::of`],
//! [`Plot::of`]. What a plan must check before anything is timed, it checks before it calls [`run`].
//!
//! [`Table::of`]: super::table::Table::of
//! [`Plot::of`]: super::plot::Plot::of

use std::time::Duration;

use crate::Error;
use crate::machine::{Moment, Others, Watch};
use crate::progress::Progress;
use crate::report::{Report, Row};

/// Ways that take their turns one right after the other.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// For the progress bar.
    pub name: String,
    /// The ways. As a rule a way is the number of its row.
    pub ways: Vec<usize>,
    /// Turns that each way has in a run: several short ones where ways differ by little.
    pub times: u32,
}

/// One turn.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    pub way: usize,
    pub run: u32,
    /// How many turns its group has had before, each of all its ways.
    pub nth: u32,
}

impl Group {
    /// All ways from 0 on in one group.
    pub fn all(ways: usize) -> Vec<Self> {
        vec![Self::once("", 0..ways)]
    }

    /// Ways with one turn in each run.
    pub fn once(name: impl Into<String>, ways: impl IntoIterator<Item = usize>) -> Self {
        Self { name: name.into(), ways: ways.into_iter().collect(), times: 1 }
    }
}

/// Gives every way its turns, `report.runs` times, and sums up the rows. Each notes what share of the processors other
/// programs had in its turns.
pub fn run(
    report: &mut Report,
    groups: &[Group],
    mut turn: impl FnMut(&mut [Row], Turn) -> Result<(), Error>,
) -> Result<(), Error> {
    report.others = Others::look();
    let progress = Progress::new(groups.len() * report.runs as usize);
    let mut all = Watch::default();
    for run in 0..report.runs {
        for group in groups {
            let of = report.runs;
            progress.now(format!("run {} of {of}  {}", run + 1, group.name));
            for time in 0..group.times {
                let nth = run * group.times + time;
                for place in order(nth, group.ways.len()) {
                    let way = group.ways[place];
                    let start = Moment::now();
                    turn(&mut report.rows, Turn { way, run, nth })?;
                    let mut watch = Watch::default();
                    watch.add(start, Moment::now());
                    all.add_all(&watch);
                    report.rows.iter_mut().for_each(|row| row.watch(&watch));
                }
            }
            progress.step();
        }
    }
    report.others.during = all.share();
    report.rows.iter_mut().for_each(Row::settle);
    Ok(())
}

/// Longest turn, in seconds.
const SECONDS_MAX: f64 = 3600.0;

/// `--seconds` as a length of time.
pub fn seconds(given: f64) -> Result<Duration, Error> {
    if given > 0.0 && given <= SECONDS_MAX {
        Ok(Duration::from_secs_f64(given))
    } else {
        Err(Error::parameters(format!("--seconds {given}: give more than 0 and at most {SECONDS_MAX}")))
    }
}

/// In this order, each once.
pub fn unique<T: PartialEq>(all: Vec<T>) -> Vec<T> {
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
    use crate::report::Sample;

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
        let mut report = Report::new("inline", "a title");
        report.runs = 4;
        report.rows = vec![Row::default(), Row::default(), Row::default()];
        let mut several = Group::once("several", [2]);
        several.times = 3;
        let groups = [Group::once("once", [0, 1]), several];
        let mut seen = BTreeSet::new();
        let ran = run(&mut report, &groups, |rows, turn| {
            assert!(seen.insert((turn.way, turn.nth)), "{turn:?} came twice");
            rows[turn.way].take(Sample { bytes_per_second: f64::from(turn.run + 1), ..Sample::default() });
            Ok(())
        });
        ran.expect("nothing failed");
        let counts = report.rows.iter().map(|row| row.samples.len());
        assert_eq!(counts.collect::<Vec<_>>(), [4, 4, 12]);
        assert_eq!(report.rows[0].bytes_per_second, 2.5);
    }

    #[test]
    fn a_turn_that_fails_ends_the_bench() {
        let mut report = Report::new("inline", "a title");
        report.runs = 4;
        let mut turns = 0;
        let failed = run(&mut report, &Group::all(3), |_, turn| {
            turns += 1;
            if turn.run == 1 { Err(Error::device("on purpose")) } else { Ok(()) }
        });
        assert!(failed.is_err());
        assert_eq!(turns, 4);
    }

    #[test]
    fn a_time_that_is_none_is_refused() {
        assert_eq!(seconds(0.5).ok(), Some(Duration::from_millis(500)));
        for wrong in [0.0, -1.0, 3601.0, f64::NAN, f64::INFINITY] {
            let error = seconds(wrong).expect_err("no length of time");
            assert!(error.to_string().starts_with("--seconds "), "{error}");
        }
    }
}
