//! A number that has, or could have, a goal.

use serde::Serialize;

use super::row::{is_spoiled, marked};
use super::{Ratios, Report};

/// A number that has, or could have, a goal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    pub name: &'static str,
    pub value: Option<f64>,
    pub unit: &'static str,
    pub better: &'static str,
    pub goal: Option<f64>,
    pub met: Option<bool>,
    pub others: Option<f64>,
    pub note: Option<String>,
    /// Why its goal was taken away.
    #[serde(skip)]
    without_goal: Option<String>,
}

/// What there must be of a measurement for its goals to be worth anything.
#[derive(Clone, Copy, Debug)]
pub struct Enough {
    pub rounds: u32,
    pub seconds: f64,
    pub size: u64,
}

impl Enough {
    /// What a report on a disk of so many bytes does not have of it.
    pub fn lacks(self, report: &Report, size: u64) -> Option<&'static str> {
        let reasons = [
            (report.runs < self.rounds, "no goal: too few rounds"),
            (report.seconds < self.seconds, "no goal: turns are too short"),
            (size < self.size, "no goal: the disk is too small"),
        ];
        let mut holds = reasons.into_iter().filter(|(holds, _)| *holds);
        holds.next().map(|(_, reason)| reason)
    }
}

impl Figure {
    /// A ratio of which more is better; it could not be measured where it is none or not a number.
    pub fn new(name: &'static str, value: impl Into<Option<f64>>) -> Self {
        let value = value.into().filter(|value| value.is_finite());
        Self {
            name,
            value,
            unit: "ratio",
            better: "higher",
            goal: None,
            met: None,
            others: None,
            note: value.is_none().then(|| "could not be measured".into()),
            without_goal: None,
        }
    }

    /// What two rows are to each other, where both were measured.
    pub fn of<'a>(name: &'static str, ratios: impl Into<Option<&'a Ratios>>) -> Self {
        let ratios = ratios.into();
        Self { others: ratios.and_then(|ratios| ratios.others), ..Self::new(name, ratios.map(Ratios::median)) }
    }

    /// It should be at least `goal`.
    pub fn at_least(mut self, goal: f64) -> Self {
        self.met = self.value.map(|value| value >= goal);
        self.goal = self.value.map(|_| goal);
        self
    }

    /// It should be at most `goal`.
    pub fn at_most(mut self, goal: f64) -> Self {
        self.met = self.value.map(|value| value <= goal);
        self.goal = self.value.map(|_| goal);
        self.lower()
    }

    /// Less is better.
    pub fn lower(mut self) -> Self {
        self.better = "lower";
        self
    }

    /// It is no ratio but a number of these.
    pub fn in_units(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    /// Says where its value comes from, if it has one.
    pub fn noted(mut self, note: impl Into<String>) -> Self {
        if self.value.is_some() {
            self.note = Some(note.into());
        }
        self
    }

    /// Says why it has no value, if it has none.
    pub fn needs(mut self, why: impl Into<String>) -> Self {
        if self.value.is_none() {
            self.note = Some(why.into());
        }
        self
    }

    /// Takes the goal away for a reason: under these circumstances it is another measurement.
    pub fn unless(mut self, why: Option<impl Into<String>>) -> Self {
        if let Some(why) = why.filter(|_| self.value.is_some()) {
            self.without_goal = Some(why.into());
            (self.goal, self.met) = (None, None);
        }
        self
    }

    /// Says in the note why there is no goal.
    pub fn explain(&mut self) {
        if let Some(why) = self.without_goal.take() {
            self.note = Some(match self.note.take() {
                Some(note) => format!("{why}; {note}"),
                None => why,
            });
        }
    }

    /// The name for people; with a star, where other programs kept the machine too busy.
    pub fn label(&self) -> String {
        marked(self.name, is_spoiled(self.others))
    }

    /// The value for people.
    pub fn value_text(&self) -> String {
        let value = self.value.map(|value| format!("{value:.3}"));
        value.unwrap_or_else(|| "-".into())
    }

    /// `at least 0.97`.
    pub fn goal_text(&self) -> String {
        match (self.goal, self.better) {
            (None, _) => "-".into(),
            (Some(goal), "lower") => format!("at most {goal}"),
            (Some(goal), _) => format!("at least {goal}"),
        }
    }

    /// `met`, `missed` or nothing.
    pub fn verdict(&self) -> &'static str {
        match self.met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_on_its_own_side() {
        assert_eq!(Figure::new("x", 0.97).at_least(0.97).met, Some(true));
        assert_eq!(Figure::new("x", 0.96).at_least(0.97).met, Some(false));
        assert_eq!(Figure::new("x", 1.1).at_most(1.1).met, Some(true));
        assert_eq!(Figure::new("x", 1.2).at_most(1.1).met, Some(false));
        let figure = Figure::new("x", 0.5).noted("of two").at_least(0.97);
        let mut gone = figure.unless(Some("another front"));
        assert_eq!((gone.goal, gone.met), (None, None));
        assert_eq!(gone.note.as_deref(), Some("of two"));
        gone.explain();
        assert_eq!(gone.note.as_deref(), Some("another front; of two"));
    }

    #[test]
    fn a_number_that_is_none_is_no_value() {
        let figure = Figure::new("x", f64::NAN).at_least(0.97);
        assert_eq!(figure.value, None);
        assert_eq!(figure.met, None);
        assert_eq!(Figure::new("x", None).needs("left out").met, None);
    }

    #[test]
    fn goals_say_their_side() {
        let least = Figure::new("inline_over_plain_null", 0.99).at_least(0.97);
        let most = Figure::new("auto_p99_over_best_max", 1.3).at_most(1.1);
        assert_eq!((least.goal_text().as_str(), least.verdict()), ("at least 0.97", "met"));
        assert_eq!((most.goal_text().as_str(), most.verdict()), ("at most 1.1", "missed"));
    }

    #[test]
    fn what_a_busy_machine_spoiled_has_a_star() {
        let mut figure = Figure::new("x", 0.5);
        assert_eq!(figure.label(), "x");
        figure.others = Some(0.02);
        assert_eq!(figure.label(), "x");
        figure.others = Some(0.04);
        assert_eq!(figure.label(), "x *");
    }
}
