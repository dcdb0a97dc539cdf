//! A report: what was measured, on what, and the numbers that have a goal.
//!
//! ```text
//! Row     one measured combination, for JSON ─┐
//! Table   what people read                    ├─ Report ─► table, JSON, HTML
//! Plot    what people see                     │
//! Figure  what has a goal                    ─┘
//! ```

use std::time::Duration;

use clap::ValueEnum;
use hdrhistogram::Histogram;
use serde::Serialize;

use super::machine::{Machine, Others};
use super::plot::Plot;
use super::table::Table;
use super::volume::NULL_CIPHER;

/// Above this share of processor time taken by other programs the numbers are not to be trusted.
const BUSY_MAX: f64 = 0.03;

/// Everything one bench found out; `docs/bench-json.md` says what each member means.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Which bench, such as `inline`.
    pub bench: &'static str,
    /// A heading for people.
    pub title: String,
    /// What the data lies on.
    pub medium: String,
    /// Where it ran.
    pub machine: Machine,
    /// How busy other programs kept the machine.
    pub others: Others,
    /// The exact commands, the one that made this report first.
    pub commands: Vec<String>,
    /// How often each combination was measured.
    pub runs: u32,
    /// How long each of those took, in seconds.
    pub seconds: f64,
    /// Median of the rows' spreads.
    pub spread: f64,
    /// How it was measured, one sentence or two each.
    pub notes: Vec<String>,
    /// Numbers that have a goal.
    pub figures: Vec<Figure>,
    /// Everything measured.
    pub rows: Vec<Row>,
    /// What spoils the numbers, one line each.
    pub warnings: Vec<String>,
    /// For people.
    #[serde(skip)]
    pub tables: Vec<Table>,
    /// For people.
    #[serde(skip)]
    pub plots: Vec<Plot>,
}

/// Which way the data goes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the medium
    #[default]
    Read,
    /// To the medium
    Write,
}

/// In which order offsets come.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, ValueEnum,
)]
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
}

/// The shape of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// Which way.
    pub direction: Direction,
    /// In which order.
    pub pattern: Pattern,
    /// Bytes in a request.
    pub block: u32,
    /// Requests a stream has in flight.
    pub depth: u32,
    /// Threads or connections, each with its own requests.
    pub streams: u32,
}

/// One measured combination.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// What was measured, in a few words.
    pub name: String,
    /// How requests reached it.
    pub front: Front,
    /// The cipher word; `None` where nothing is encrypted.
    pub cipher: Option<String>,
    /// The dispatch mode, where there is one.
    pub dispatch: Option<String>,
    /// Who served, where several servers are compared.
    pub server: Option<String>,
    /// Who made the load, where several generators are compared.
    pub generator: Option<String>,
    /// The load.
    #[serde(flatten)]
    pub shape: Shape,
    /// Threads that did nothing but use up processor time beside it.
    pub hogs: u32,
    /// Median of the samples.
    pub bytes_per_second: f64,
    /// Distance of the samples' quartiles over their median.
    pub spread: f64,
    /// Bytes in a second, each time it was measured.
    pub samples: Vec<f64>,
    /// How long requests took.
    pub latency: Option<Latency>,
    /// SHA-256 of the whole contents as read this way.
    pub sha256: Option<String>,
    /// Instructions outside the kernel for each request, where they were counted.
    pub instructions: Option<f64>,
    /// Calls of the allocator for each request, where they were counted.
    pub allocations: Option<f64>,
    /// What each turn gave, of which the members above are the summary.
    #[serde(skip)]
    pub turns: Vec<Sample>,
}

/// What one turn of a way gave.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// All streams together.
    pub bytes_per_second: f64,
    /// Where it was wanted.
    pub latency: Option<Latency>,
    /// Processor time of the load generator's threads over their whole time. Near 1, the generator is
    /// the limit.
    pub client_busy: Option<f64>,
    /// Processors that the server used, on average, where it is known.
    pub server_busy: Option<f64>,
    /// The block after the last one that stream 0 asked for.
    pub next: u64,
    /// Where latencies were not wanted: windows of all streams, and their largest spread.
    pub windows: usize,
    /// See there.
    pub spread: f64,
}

/// How long requests took: each the median over the runs, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Half of the requests took at most this long.
    pub p50_us: f64,
    /// Nine in ten.
    pub p90_us: f64,
    /// 99 in 100.
    pub p99_us: f64,
    /// 999 in 1000.
    pub p99_9_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// A number that has, or could have, a goal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Its name.
    pub name: &'static str,
    /// The number; `None` where it was not measured.
    pub value: Option<f64>,
    /// Its unit.
    pub unit: &'static str,
    /// `higher` or `lower`: which way is better.
    pub better: &'static str,
    /// What is good enough, if there is a goal under these circumstances.
    pub goal: Option<f64>,
    /// Whether it is good enough.
    pub met: Option<bool>,
    /// Where it comes from, or why there is no value or no goal.
    pub note: Option<String>,
}

impl Report {
    /// An empty one, about this machine and this command.
    pub fn new(bench: &'static str, title: impl Into<String>) -> Self {
        Self {
            bench,
            title: title.into(),
            medium: String::new(),
            machine: Machine::here(),
            others: Others::default(),
            commands: vec![super::machine::this_command()],
            runs: 0,
            seconds: 0.0,
            spread: 0.0,
            notes: Vec::new(),
            figures: Vec::new(),
            rows: Vec::new(),
            warnings: Vec::new(),
            tables: Vec::new(),
            plots: Vec::new(),
        }
    }

    /// The row with a name.
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// Throughput of one row to that of another, by name: the median of the ratios of the runs. Not a
    /// number where one of them was not measured.
    pub fn ratio(&self, of: &str, to: &str) -> f64 {
        match (self.row(of), self.row(to)) {
            (Some(of), Some(to)) => of.over(to),
            _ => f64::NAN,
        }
    }

    /// Sums up the spread and says what spoils the numbers. Last, when all is measured.
    pub fn finish(&mut self) {
        let spreads: Vec<f64> = self.rows.iter().map(|row| row.spread).collect();
        self.spread = median(&spreads);
        let mut warn = |warning: String| self.warnings.push(warning);
        match (self.others.before, self.others.during) {
            (Some(before), Some(during)) if before.max(during) > BUSY_MAX => warn(format!(
                "this machine was not idle: other programs had {:.0} % of its processors before and {:.0} % during the runs; run it again when it is",
                before * 100.0,
                during * 100.0
            )),
            (Some(_), Some(_)) => {}
            _ => warn(
                "/proc/stat cannot be read, so nobody knows whether this machine was idle".into(),
            ),
        }
        if cfg!(debug_assertions) {
            warn("this is a debug build, which is many times slower than a release build".into());
        }
    }
}

impl Row {
    /// Takes what a turn gave.
    pub fn take(&mut self, sample: Sample) {
        self.turns.push(sample);
    }

    /// Sums up the turns.
    pub fn settle(&mut self) {
        let rates = self.turns.iter().map(|turn| turn.bytes_per_second);
        self.samples = rates.collect();
        self.bytes_per_second = median(&self.samples);
        self.spread = spread(&self.samples);
        let latencies = self.turns.iter().filter_map(|turn| turn.latency);
        self.latency = Latency::median(&latencies.collect::<Vec<_>>());
    }

    /// Its throughput to that of another, round by round.
    pub fn over(&self, other: &Self) -> f64 {
        ratio(&self.samples, &other.samples)
    }

    /// The 99th percentile of its latency in microseconds; not a number where it was not measured.
    pub fn p99_us(&self) -> f64 {
        self.latency.map_or(f64::NAN, |latency| latency.p99_us)
    }

    /// Whether its data is not the clear text.
    pub fn is_encrypted(&self) -> bool {
        let cipher = self.cipher.as_deref();
        cipher.is_some_and(|cipher| cipher != NULL_CIPHER)
    }

    /// Requests in a second.
    pub fn iops(&self) -> f64 {
        self.bytes_per_second / f64::from(self.shape.block.max(1))
    }
}

impl Latency {
    /// The percentiles, in order.
    pub const NAMES: [&str; 5] = ["p50", "p90", "p99", "p99.9", "max"];

    /// The percentiles of one run. The histogram counts nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile: f64| microseconds(histogram.value_at_quantile(quantile));
        Self {
            p50_us: at(0.50),
            p90_us: at(0.90),
            p99_us: at(0.99),
            p99_9_us: at(0.999),
            max_us: microseconds(histogram.max()),
        }
    }

    /// Each percentile's median over several runs: a run that something disturbed does not count.
    pub fn median(runs: &[Self]) -> Option<Self> {
        let middle = |of: fn(&Self) -> f64| median(&runs.iter().map(of).collect::<Vec<_>>());
        (!runs.is_empty()).then(|| Self {
            p50_us: middle(|run| run.p50_us),
            p90_us: middle(|run| run.p90_us),
            p99_us: middle(|run| run.p99_us),
            p99_9_us: middle(|run| run.p99_9_us),
            max_us: middle(|run| run.max_us),
        })
    }

    /// What each of the [`NAMES`](Self::NAMES) stands for here.
    pub fn values(&self) -> [f64; 5] {
        [
            self.p50_us,
            self.p90_us,
            self.p99_us,
            self.p99_9_us,
            self.max_us,
        ]
    }
}

impl Figure {
    /// A ratio that should be at least `goal`.
    pub fn at_least(name: &'static str, value: f64, goal: f64) -> Self {
        Self::reported(name, value).with_goal(goal, value >= goal)
    }

    /// A ratio that should be at most `goal`.
    pub fn at_most(name: &'static str, value: f64, goal: f64) -> Self {
        Self::reported(name, value)
            .with_goal(goal, value <= goal)
            .lower()
    }

    fn with_goal(mut self, goal: f64, met: bool) -> Self {
        (self.goal, self.met) = (Some(goal), self.value.map(|_| met));
        self
    }

    /// A ratio without a goal. More is better unless [`lower`](Self::lower) says otherwise.
    pub fn reported(name: &'static str, value: f64) -> Self {
        let value = Some(value).filter(|value| value.is_finite());
        Self {
            name,
            value,
            unit: "ratio",
            better: "higher",
            goal: None,
            met: None,
            note: value.is_none().then(|| "could not be measured".into()),
        }
    }

    /// A figure that these options leave out.
    pub fn missing(name: &'static str, why: impl Into<String>) -> Self {
        Self {
            note: Some(why.into()),
            ..Self::reported(name, f64::NAN)
        }
    }

    /// It is no ratio but a number of these.
    pub fn in_units(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    /// Less is better.
    pub fn lower(mut self) -> Self {
        self.better = "lower";
        self
    }

    /// Says where it comes from.
    pub fn noted(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// Takes the goal away: under these circumstances it is another measurement.
    pub fn without_goal(mut self, why: impl Into<String>) -> Self {
        (self.goal, self.met) = (None, None);
        self.noted(why)
    }
}

impl Direction {
    /// As in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

impl Pattern {
    /// As in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Random => "random",
        }
    }
}

/// The middle value, or the mean of the two in the middle.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        len if len % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// Distance of the quartiles over the median: half of the values are this close together.
#[must_use]
pub fn spread(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    let at = |quarters: usize| sorted.get(last * quarters / 4).copied().unwrap_or(0.0);
    match median(values) {
        0.0 => 0.0,
        median => (at(3) - at(1)) / median,
    }
}

/// Median of the ratios of the runs: what slows down a whole run drops out.
pub fn ratio(of: &[f64], to: &[f64]) -> f64 {
    let ratios: Vec<f64> = of.iter().zip(to).map(|(of, to)| of / to).collect();
    if ratios.is_empty() {
        f64::NAN
    } else {
        median(&ratios)
    }
}

/// Room for latencies from 1 ns to 100 s with three digits.
pub fn histogram() -> Histogram<u64> {
    const LONGEST: Duration = Duration::from_secs(100);
    let longest = u64::try_from(LONGEST.as_nanos()).expect("100 s fit");
    let mut histogram = Histogram::new_with_bounds(1, longest, 3).expect("the bounds are in order");
    histogram.auto(false);
    histogram
}

fn microseconds(nanoseconds: u64) -> f64 {
    Duration::from_nanos(nanoseconds).as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_whatever_the_order() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn one_disturbed_sample_moves_neither_median_nor_spread() {
        let mut rates = [10.0; 9];
        rates[4] = 1.0;
        assert_eq!((median(&rates), spread(&rates)), (10.0, 0.0));
        assert_eq!(spread(&[]), 0.0);
    }

    #[test]
    fn a_goal_is_met_on_its_own_side() {
        assert_eq!(Figure::at_least("x", 0.97, 0.97).met, Some(true));
        assert_eq!(Figure::at_least("x", 0.96, 0.97).met, Some(false));
        assert_eq!(Figure::at_most("x", 1.1, 1.1).met, Some(true));
        assert_eq!(Figure::at_most("x", 1.2, 1.1).met, Some(false));
        let gone = Figure::at_least("x", 0.5, 0.97).without_goal("another front");
        assert_eq!((gone.goal, gone.met), (None, None));
    }

    #[test]
    fn a_number_that_is_none_is_no_value() {
        let figure = Figure::at_least("x", f64::NAN, 0.97);
        assert_eq!(figure.value, None);
        assert_eq!(figure.met, None);
        assert_eq!(Figure::missing("x", "left out").met, None);
    }

    #[test]
    fn a_disturbed_run_does_not_move_the_median() {
        let run = |p99_us| Latency {
            p99_us,
            ..Latency::default()
        };
        let median = Latency::median(&[run(10.0), run(5000.0), run(11.0)]);
        assert_eq!(median.map(|latency| latency.p99_us), Some(11.0));
        assert_eq!(Latency::median(&[]), None);
    }

    #[test]
    fn percentiles_are_those_of_the_requests() {
        let mut histogram = histogram();
        for nanoseconds in 1..=1000u64 {
            histogram.record(nanoseconds * 1000).expect("in range");
        }
        let latency = Latency::of(&histogram);
        assert!((latency.p50_us - 500.0).abs() < 1.0, "{latency:?}");
        assert!((latency.p99_us - 990.0).abs() < 1.0, "{latency:?}");
        assert!((latency.max_us - 1000.0).abs() < 1.0, "{latency:?}");
    }

    #[test]
    fn a_ratio_is_that_of_the_same_run() {
        // The machine is half as fast from the second run on; the ratio does not change.
        assert_eq!(ratio(&[8.0, 4.0, 4.0], &[10.0, 5.0, 5.0]), 0.8);
        assert!(ratio(&[], &[]).is_nan());
    }

    #[test]
    fn a_busy_machine_is_a_warning() {
        let mut report = Report::new("inline", "a title");
        report.others = Others {
            before: Some(0.0),
            during: Some(0.5),
        };
        report.finish();
        assert!(report.warnings[0].contains("50 % during"));
    }
}
