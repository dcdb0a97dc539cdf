//! Results of the measurements; `docs/benchmark-json.md` says what each member means.

use serde::Serialize;

use super::ciphers::CipherRow;
use super::compare::ComparedTimes;
use super::kdfs::KdfRow;

/// Above this share of processor time taken by other programs the numbers are not to be trusted.
const BUSY_MAX: f64 = 0.03;

/// Everything measured.
#[derive(Debug, Default, Serialize)]
pub struct BenchmarkReport {
    pub cores: usize,
    pub busy: f64,
    pub ciphers: Vec<CipherRow>,
    pub kdfs: Vec<KdfRow>,
    pub comparison: Option<ComparedTimes>,
    pub figures: Vec<BenchmarkFigure>,
    pub warnings: Vec<String>,
}

/// A number that has, or could have, a goal.
#[derive(Debug, PartialEq, Serialize)]
pub struct BenchmarkFigure {
    pub name: &'static str,
    pub value: Option<f64>,
    pub unit: &'static str,
    pub better: &'static str,
    pub goal: Option<f64>,
    pub met: Option<bool>,
    pub others: Option<f64>,
    pub note: Option<String>,
}

impl BenchmarkFigure {
    /// One of which more is better.
    pub fn new(name: &'static str, value: Option<f64>, unit: &'static str) -> Self {
        Self { name, value, unit, better: "higher", goal: None, met: None, others: None, note: None }
    }

    /// Sets the goal to at least `goal`, unless that is for other circumstances.
    pub fn at_least(mut self, goal: f64, unless: Option<&str>) -> Self {
        self.judge(goal, unless, |value| value >= goal);
        self
    }

    /// Sets the goal to at most `goal`, with the same reserve.
    pub fn at_most(mut self, goal: f64, unless: Option<&str>) -> Self {
        self.better = "lower";
        self.judge(goal, unless, |value| value <= goal);
        self
    }

    fn judge(&mut self, goal: f64, unless: Option<&str>, is_met: impl Fn(f64) -> bool) {
        let Some(value) = self.value else {
            return;
        };
        match unless {
            Some(why) => self.note = Some(why.to_owned()),
            None => (self.goal, self.met) = (Some(goal), Some(is_met(value))),
        }
    }

    /// `at least 0.97, missed`.
    pub fn goal_text(&self) -> String {
        let Some(goal) = self.goal else {
            return "-".into();
        };
        let side = if self.better == "lower" { "most" } else { "least" };
        format!("at {side} {goal}, {}", if self.met == Some(true) { "met" } else { "missed" })
    }
}

impl BenchmarkReport {
    /// Says what spoils the numbers. Last, when all is measured.
    pub fn finish(&mut self) {
        let kdfs = self.kdfs.iter().filter_map(|row| row.busy);
        let ciphers = self.ciphers.iter().map(|row| row.busy);
        let (count, sum) = kdfs.chain(ciphers).fold((0.0, 0.0), |(count, sum), busy| (count + 1.0, sum + busy));
        if count > 0.0 {
            self.busy = (1.0 - sum / count).max(0.0);
        }
        if self.busy > BUSY_MAX {
            self.warnings.push(format!(
                "this machine is busy: other programs took {:.0} % of the time; run it again when it is idle",
                self.busy * 100.0
            ));
        }
        if cfg!(debug_assertions) {
            self.warnings.push("this is a debug build, which is many times slower than a release build".into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_on_its_own_side_and_a_number_that_is_none_has_none() {
        let figure = |value| BenchmarkFigure::new("x", value, "ratio");
        let least = figure(Some(0.97)).at_least(0.97, None);
        assert_eq!((least.met, least.goal_text().as_str()), (Some(true), "at least 0.97, met"));
        let most = figure(Some(1.4)).at_most(1.3, None);
        assert_eq!((most.met, most.better, most.goal_text().as_str()), (Some(false), "lower", "at most 1.3, missed"));
        assert_eq!(figure(None).at_least(0.97, None).goal, None);
        let other = figure(Some(0.5)).at_least(0.97, Some("other keys"));
        assert_eq!((other.goal, other.met, other.note.as_deref()), (None, None, Some("other keys")));
    }
}
