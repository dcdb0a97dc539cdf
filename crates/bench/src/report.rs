//! A report: what was measured, on what, and the numbers that have a goal. `docs/bench-json.md` says what
//! each member of its JSON means.
//!
//! ```text
//! Row     one measured combination, for JSON ─┐
//! Table   what people read                    ├─ Report ─► text, JSON, HTML
//! Plot    what people see                     │
//! Figure  what has a goal                    ─┘
//! ```

use std::time::Duration;

use clap::ValueEnum;
use cryptline_cipher::ceiling;
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::machine::{Machine, Others, this_command};
use crate::plot::Plot;
use crate::table::Table;
use crate::volume::{NULL_CIPHER, aes_backend};

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
}

/// The shape of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Shape {
    pub direction: Direction,
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
    pub name: String,
    pub front: Front,
    pub cipher: Option<String>,
    pub dispatch: Option<String>,
    pub server: Option<String>,
    pub generator: Option<String>,
    #[serde(flatten)]
    pub shape: Shape,
    pub hogs: u32,
    pub bytes_per_second: f64,
    pub spread: f64,
    pub samples: Vec<f64>,
    pub latency: Option<Latency>,
    pub sha256: Option<String>,
    pub instructions: Option<f64>,
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
    pub spread: f64,
}

/// How long requests took, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p99_9_us: f64,
    pub max_us: f64,
}

/// A number that has, or could have, a goal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    pub name: &'static str,
    pub value: Option<f64>,
    pub unit: &'static str,
    pub better: &'static str,
    pub goal: Option<f64>,
    pub met: Option<bool>,
    pub note: Option<String>,
}

impl Report {
    /// An empty one, about this machine and this command.
    pub fn new(bench: &'static str, title: &'static str) -> Self {
        Self {
            bench,
            title,
            machine: Machine::here(aes_backend()),
            commands: vec![this_command()],
            ..Self::default()
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
        match (self.others.before, self.others.during) {
            (Some(before), Some(during)) if before.max(during) > BUSY_MAX => {
                self.warnings.push(format!(
                    "this machine was not idle: other programs had {:.0} % of its processors before and {:.0} % during the runs; run it again when it is",
                    before * 100.0,
                    during * 100.0
                ));
            }
            (Some(_), Some(_)) => {}
            _ => self.warnings.push(
                "/proc/stat cannot be read, so nobody knows whether this machine was idle".into(),
            ),
        }
        self.warnings.extend(debug_build());
    }
}

/// A warning, where this was not built for speed.
pub fn debug_build() -> Option<String> {
    let why = "this is a debug build, which is many times slower than a release build";
    cfg!(debug_assertions).then(|| why.to_owned())
}

impl Row {
    /// Takes what a turn gave.
    pub fn take(&mut self, sample: Sample) {
        self.turns.push(sample);
    }

    /// Takes the speed of a turn of which nothing else is known.
    pub fn take_rate(&mut self, bytes_per_second: f64) {
        self.take(Sample {
            bytes_per_second,
            ..Sample::default()
        });
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

    /// Of what each of the [`NAMES`](Self::NAMES) stands for.
    pub fn from_values([p50_us, p90_us, p99_us, p99_9_us, max_us]: [f64; 5]) -> Self {
        Self {
            p50_us,
            p90_us,
            p99_us,
            p99_9_us,
            max_us,
        }
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

    /// The percentiles of one run. The histogram counts nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| Duration::from_nanos(histogram.value_at_quantile(quantile));
        let microseconds = |quantile| at(quantile).as_secs_f64() * 1e6;
        Self::from_values([0.50, 0.90, 0.99, 0.999, 1.0].map(microseconds))
    }

    /// Each percentile's median over several runs: a run that something disturbed does not count.
    pub fn median(runs: &[Self]) -> Option<Self> {
        let middle = |place: usize| {
            let values: Vec<f64> = runs.iter().map(|run| run.values()[place]).collect();
            median(&values)
        };
        (!runs.is_empty()).then(|| Self::from_values(std::array::from_fn(middle)))
    }

    /// A line of the percentiles for each row that has them.
    pub fn plot<'a>(
        title: impl Into<String>,
        rows: impl IntoIterator<Item = (String, &'a Row)>,
    ) -> Plot {
        let values = rows.into_iter().flat_map(|(name, row)| {
            let latency = row.latency.map(|latency| latency.values());
            let each = Self::NAMES.into_iter().zip(latency.into_iter().flatten());
            each.map(move |(percentile, value)| (percentile, name.clone(), value))
        });
        Plot::of(title, ["percentile", "µs, logarithmic"], values).logarithmic()
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
            note: value.is_none().then(|| "could not be measured".into()),
        }
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
            let why = why.into();
            self.note = Some(match self.note {
                Some(note) => format!("{why}; {note}"),
                None => why,
            });
            (self.goal, self.met) = (None, None);
        }
        self
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

/// As on the command line, and in JSON.
pub fn word(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// The middle value, or the mean of the two in the middle; 0 of none.
pub fn median(values: &[f64]) -> f64 {
    ceiling::median(values).unwrap_or(0.0)
}

/// Distance of the quartiles over the median: half of the values are this close together.
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
        assert_eq!(Figure::new("x", 0.97).at_least(0.97).met, Some(true));
        assert_eq!(Figure::new("x", 0.96).at_least(0.97).met, Some(false));
        assert_eq!(Figure::new("x", 1.1).at_most(1.1).met, Some(true));
        assert_eq!(Figure::new("x", 1.2).at_most(1.1).met, Some(false));
        let gone = Figure::new("x", 0.5)
            .at_least(0.97)
            .unless(Some("another front"));
        assert_eq!((gone.goal, gone.met), (None, None));
    }

    #[test]
    fn a_number_that_is_none_is_no_value() {
        let figure = Figure::new("x", f64::NAN).at_least(0.97);
        assert_eq!(figure.value, None);
        assert_eq!(figure.met, None);
        assert_eq!(Figure::new("x", None).needs("left out").met, None);
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

    #[test]
    fn goals_say_their_side() {
        let least = Figure::new("inline_over_plain_null", 0.99).at_least(0.97);
        let most = Figure::new("auto_p99_over_best_max", 1.3).at_most(1.1);
        assert_eq!(
            (least.goal_text().as_str(), least.verdict()),
            ("at least 0.97", "met")
        );
        assert_eq!(
            (most.goal_text().as_str(), most.verdict()),
            ("at most 1.1", "missed")
        );
    }
}
