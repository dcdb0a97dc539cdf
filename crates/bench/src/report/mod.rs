//! A report: what was measured, on what, and the numbers that have a goal. `docs/bench-json.md` says what
//! each member of its JSON means.
//!
//! ```text
//! Row     one measured combination, for JSON ─┐
//! Table   what people read                    ├─ Report ─► text, JSON, HTML
//! Plot    what people see                     │
//! Figure  what has a goal                    ─┘
//! ```

mod figure;
mod row;
mod statistics;

use clap::ValueEnum;
use serde::Serialize;

use crate::machine::{Machine, Others, this_command};
use crate::plot::Plot;
use crate::table::Table;
use crate::volume::aes_backend;

pub use figure::{Enough, Figure};
pub use row::{Latency, MARK, Quantity, Ratios, Row, Sample, Shape};
pub use statistics::{median, quartiles, spread};

/// Above this share of processor time taken by other programs the numbers are not to be trusted.
pub const BUSY_MAX: f64 = 0.03;

/// Everything one bench found out.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub bench: &'static str,
    pub title: &'static str,
    pub medium: String,
    pub machine: Machine,
    pub others: Others,
    pub commands: Vec<String>,
    pub runs: u32,
    pub seconds: f64,
    pub spread: f64,
    pub notes: Vec<String>,
    pub figures: Vec<Figure>,
    pub rows: Vec<Row>,
    pub warnings: Vec<String>,
    /// For people.
    #[serde(skip)]
    pub tables: Vec<Table>,
    /// For people.
    #[serde(skip)]
    pub plots: Vec<Plot>,
}

/// Which way the data goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the medium
    #[default]
    Read,
    /// To the medium
    Write,
}

/// In which order offsets come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// One after the other
    #[default]
    Sequential,
    /// Anywhere
    Random,
}

/// How requests reach a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Front {
    /// By the library's calls, in this process
    #[default]
    InProcess,
    /// By NBD, from a server in this process over a Unix socket
    Nbd,
    /// By virtqueues in shared memory, as a virtual machine does
    #[value(skip)]
    VhostUser,
    /// By the file of a FUSE mount
    #[value(skip)]
    Fuse,
    /// By the file of a FUSE mount whose requests come through io_uring
    #[value(skip)]
    FuseUring,
}

impl Report {
    /// An empty one, about this machine and this command.
    pub fn new(bench: &'static str, title: &'static str) -> Self {
        Self { bench, title, machine: Machine::here(aes_backend()), commands: vec![this_command()], ..Self::default() }
    }

    /// The same, whose turns come so often and take so long.
    pub fn of(mut self, runs: u32, seconds: f64) -> Self {
        (self.runs, self.seconds) = (runs, seconds);
        self
    }

    /// The row with a name.
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// Throughput of one row to that of another, by name, where both were measured.
    pub fn ratios(&self, of: &str, to: &str) -> Option<Ratios> {
        Some(self.row(of)?.beside(self.row(to)?, Quantity::Speed))
    }

    /// Their median; not a number where one of them was not measured.
    pub fn ratio(&self, of: &str, to: &str) -> f64 {
        self.ratios(of, to).map_or(f64::NAN, |ratios| ratios.median())
    }

    /// The ratio of two rows, by name.
    pub fn figure(&self, name: &'static str, of: &str, to: &str) -> Figure {
        Figure::of(name, self.ratios(of, to).as_ref())
    }

    /// What the star behind a name means, where there is one.
    pub fn footnote(&self) -> Option<String> {
        let labels = self.figures.iter().map(Figure::label);
        let heads = self.tables.iter().flat_map(|table| &table.rows);
        let heads = heads.filter_map(|row| row.first().cloned());
        let is_there = labels.chain(heads).any(|label| label.ends_with(MARK));
        is_there.then(|| {
            let most = BUSY_MAX * 100.0;
            format!("* Other programs had more than {most:.0} % of the processors in these turns.")
        })
    }

    /// Sums up the spread and says what spoils the numbers. Last, when all is measured.
    pub fn finish(&mut self) {
        let spreads: Vec<f64> = self.rows.iter().map(|row| row.spread).collect();
        self.spread = median(&spreads);
        match (self.others.before, self.others.during) {
            (Some(before), Some(during)) if before.max(during) > BUSY_MAX => {
                self.warnings.push(format!(
                    "this machine was not idle: other programs had {:.0} % of its processors before and {:.0} % during the runs; run it again when it is",
                    before * 100.0,
                    during * 100.0
                ));
            }
            (Some(_), Some(_)) => {}
            _ => self.warnings.push("/proc/stat cannot be read, so nobody knows whether this machine was idle".into()),
        }
        self.warnings.extend(debug_build());
    }
}

/// A warning, where this was not built for speed.
pub fn debug_build() -> Option<String> {
    let why = "this is a debug build, which is many times slower than a release build";
    cfg!(debug_assertions).then(|| why.to_owned())
}

/// As on the command line, and in JSON.
pub fn word(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, rates: &[f64]) -> Row {
        let mut row = Row { name: name.into(), ..Row::default() };
        rates.iter().for_each(|&rate| row.take_rate(rate));
        row.settle();
        row
    }

    #[test]
    fn a_ratio_is_that_of_the_same_run() {
        // The machine is half as fast from the second run on; the ratio does not change.
        let mut report = Report::new("inline", "a title");
        let (of, to) = ([8.0, 4.0, 4.0], [10.0, 5.0, 5.0]);
        report.rows = vec![row("of", &of), row("to", &to), row("none", &[])];
        assert_eq!(report.ratio("of", "to"), 0.8);
        assert!(report.ratio("of", "none").is_nan());
        assert!(report.ratio("of", "another").is_nan());
        assert_eq!(report.figure("x", "of", "to").value, Some(0.8));
    }

    #[test]
    fn a_disturbed_run_does_not_move_the_median() {
        let mut row = Row::default();
        for p99_us in [10.0, 5000.0, 11.0] {
            let latency = Some(Latency { p99_us, ..Latency::default() });
            row.take(Sample { latency, ..Sample::default() });
        }
        row.settle();
        assert_eq!(row.p99_us(), 11.0);
        assert!(Row::default().p99_us().is_nan());
    }

    #[test]
    fn percentiles_are_those_of_the_requests() {
        let mut histogram = crate::load::histogram();
        for nanoseconds in 1..=1000u64 {
            histogram.record(nanoseconds * 1000).expect("in range");
        }
        let latency = Latency::of(&histogram);
        assert!((latency.p50_us - 500.0).abs() < 1.0, "{latency:?}");
        assert!((latency.p99_us - 990.0).abs() < 1.0, "{latency:?}");
        assert!((latency.max_us - 1000.0).abs() < 1.0, "{latency:?}");
    }

    #[test]
    fn shapes_have_the_names_that_people_give_them() {
        use {Direction::*, Pattern::*};
        for (shape, title) in [
            (Shape::new(Read, Random, 4096, 1), "4 KiB random reads, one at a time"),
            (Shape::new(Write, Random, 512, 32), "512-byte random writes, 32 in flight"),
            (Shape::new(Read, Sequential, 1 << 20, 4), "1 MiB reads in order, 4 in flight"),
        ] {
            assert_eq!(shape.title(), title);
        }
    }

    #[test]
    fn a_busy_machine_is_a_warning() {
        let mut report = Report::new("inline", "a title");
        report.others = Others { before: Some(0.0), during: Some(0.5) };
        report.finish();
        assert!(report.warnings[0].contains("50 % during"));
    }
}
