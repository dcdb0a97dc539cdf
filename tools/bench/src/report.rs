//! A report: what was measured, on what, and the figures that come of it. `docs/bench-json.md` says what each member of
//! its JSON means.
//!
//! ```text
//! Sample  what one turn gave ─► Row  one way under one load ─► Comparison  of rows ─► Figure
//! ```

use std::time::Duration;

use clap::ValueEnum;
use cryptline_cipher::ceiling::{self, spread};
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::figures::{self, Goal};
use crate::machine::{Machine, Others, ProcessorWatch};

/// Above this share of processor time taken by other programs the numbers are not to be trusted.
const BUSY_MAX: f64 = 0.03;

/// Everything one plan found out.
#[derive(Debug, Default, Serialize)]
pub struct PlanReport {
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
    /// Why no goal of this report is worth anything.
    #[serde(skip)]
    pub weak: Option<String>,
}

/// Which way the data goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum DataDirection {
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

/// The shape of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LoadShape {
    pub direction: DataDirection,
    pub pattern: Pattern,
    /// Bytes in a request.
    pub block: u32,
    /// Requests a stream has in flight.
    pub depth: u32,
    /// Threads, each with its own requests.
    pub streams: u32,
}

/// One measured combination.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// In words; no two rows have the same.
    pub name: String,
    pub front: String,
    pub cipher: Option<String>,
    pub dispatch: Option<String>,
    pub server: Option<String>,
    pub generator: Option<String>,
    #[serde(flatten)]
    pub shape: LoadShape,
    pub hogs: u32,
    /// Processors that the server may use together, where a control group limits it.
    pub quota: Option<f64>,
    pub bytes_per_second: f64,
    pub spread: f64,
    pub samples: Vec<f64>,
    pub latency: Option<Latency>,
    /// Share of the processors that other programs had in its turns, where it is known.
    pub others: Option<f64>,
    pub sha256: Option<String>,
    pub instructions: Option<f64>,
    pub allocations: Option<f64>,
    /// Results of each turn, which the members above summarise.
    #[serde(skip)]
    pub turns: Vec<TurnResults>,
    /// Turns in a run: several short ones where ways differ by little.
    #[serde(skip)]
    pub times: u32,
    /// Over those turns.
    #[serde(skip)]
    pub watch: ProcessorWatch,
}

/// Results of one turn of a way.
#[derive(Clone, Copy, Debug, Default)]
pub struct TurnResults {
    /// All streams together.
    pub bytes_per_second: f64,
    pub latency: Option<Latency>,
    /// Processors that the server, or whoever is measured, used on average, where it is known.
    pub busy: Option<f64>,
    /// The block after the last one that stream 0 asked for.
    pub next: u64,
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

/// Property by which two rows are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Quantity {
    #[default]
    Speed,
    /// The time of a request, which is one over the speed.
    Time,
    /// Half of all requests are answered within it.
    P50,
    P99,
    /// For as much data.
    ProcessorTime,
}

/// A number that has, or could have, a goal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    pub name: &'static str,
    /// The figure in words.
    pub sentence: String,
    pub value: Option<f64>,
    pub unit: &'static str,
    pub better: &'static str,
    pub goal: Option<f64>,
    pub met: Option<bool>,
    pub others: Option<f64>,
    pub note: Option<String>,
}

/// Subject of a figure: the worst of some pairs, each of them a row beside the best of others.
#[derive(Debug, Default)]
pub struct FigureSubject {
    pub name: &'static str,
    pub of: Quantity,
    pub pairs: Vec<(String, Vec<String>)>,
    /// The others are one model: each does its part of the work, one after another.
    pub in_sum: bool,
    /// Why it has no value where a row is not there.
    pub needs: String,
    /// Why it has no goal here.
    pub unless: Option<String>,
    /// Said behind where it comes from.
    pub note: Option<&'static str>,
}

impl FigureSubject {
    /// One row's speed beside that of another.
    pub fn new(name: &'static str, of: impl Into<String>, to: impl Into<String>) -> Self {
        let (of, to) = (of.into(), to.into());
        let needs = format!("needs {of} and {to}");
        Self { name, pairs: vec![(of, vec![to])], needs, ..Self::default() }
    }

    /// Under these circumstances it is another measurement than the goal is for.
    pub fn unless(mut self, why: Option<impl Into<String>>) -> Self {
        self.unless = why.map(Into::into);
        self
    }
}

/// One row over another, turn by turn: what slows down both drops out.
struct Ratios {
    each: Vec<f64>,
    others: Option<f64>,
    said: String,
}

impl Ratios {
    fn median(&self) -> f64 {
        ceiling::median(&self.each).unwrap_or(f64::NAN)
    }
}

impl PlanReport {
    /// The row with a name.
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// The speed of one row to that of another, turn by turn.
    pub fn ratio(&self, of: &str, to: &str) -> Option<f64> {
        Some(self.ratios(of, &[to.to_owned()], Quantity::Speed)?.median()).filter(|ratio| ratio.is_finite())
    }

    /// Why no goal is worth anything, unless there were so many rounds of so many seconds on so large a disk.
    pub fn weak_below(&mut self, rounds: u32, seconds: f64, (size, size_min): (u64, u64)) {
        let reasons = [
            (self.runs < rounds, "no goal: too few rounds"),
            (self.seconds < seconds, "no goal: turns are too short"),
            (size < size_min, "no goal: the disk is too small"),
        ];
        let why = reasons.into_iter().find(|(holds, _)| *holds).map(|(_, why)| why.to_owned());
        self.weak = self.weak.take().or(why);
    }

    /// Adds the figure of a comparison.
    pub fn compare(&mut self, comparison: &FigureSubject) {
        let goal = figures::of(self.bench, comparison.name).goal;
        let ratios = comparison.pairs.iter().map(|(of, to)| {
            if comparison.in_sum { self.ratios_to_sum(of, to) } else { self.ratios(of, to, comparison.of) }
        });
        let ratios: Option<Vec<Ratios>> = ratios.collect();
        let worse = |one: &Ratios, other: &Ratios| match goal {
            Goal::AtLeast(_) | Goal::Higher => one.median().total_cmp(&other.median()),
            Goal::AtMost(_) | Goal::Lower => other.median().total_cmp(&one.median()),
        };
        let mut ratios = ratios.unwrap_or_default();
        ratios.sort_by(worse);
        let Some(worst) = ratios.first().filter(|ratios| ratios.median().is_finite()) else {
            return self.figure(comparison.name, Err(comparison.needs.clone()), None);
        };
        let mut note = format!("{}; spread {:.1} %", worst.said, spread(&worst.each) * 100.0);
        if ratios.len() > 1 {
            let medians: Vec<f64> = ratios.iter().map(Ratios::median).collect();
            let median = ceiling::median(&medians).unwrap_or(0.0);
            note = format!("{note}; the worst of {}, whose median is {median:.3}", ratios.len());
        }
        if let Some(more) = comparison.note {
            note = format!("{note}; {more}");
        }
        let (value, others) = (worst.median(), worst.others);
        self.figure(comparison.name, Ok((value, note)), comparison.unless.clone());
        self.figures.last_mut().expect("it was just added").others = others;
    }

    /// Adds a figure: its value and where that comes from, or why it has none; and why it has no goal.
    pub fn figure(&mut self, name: &'static str, value: Result<(f64, String), String>, unless: Option<String>) {
        let spec = figures::of(self.bench, name);
        let (value, note) = match value {
            Ok((value, note)) => (Some(value), note),
            Err(why) => (None, why),
        };
        let (goal, better) = match spec.goal {
            Goal::AtLeast(goal) => (Some(goal), "higher"),
            Goal::AtMost(goal) => (Some(goal), "lower"),
            Goal::Higher => (None, "higher"),
            Goal::Lower => (None, "lower"),
        };
        let why = unless.or_else(|| self.weak.clone()).filter(|_| goal.is_some() && value.is_some());
        let note = match &why {
            Some(why) if note.is_empty() => why.clone(),
            Some(why) => format!("{why}; {note}"),
            None => note,
        };
        let goal = goal.filter(|_| why.is_none() && value.is_some());
        let met = goal.zip(value).map(|(goal, value)| if better == "lower" { value <= goal } else { value >= goal });
        let shown = value.map_or("?".into(), three_digits);
        let sentence = spec.words.replace("{}", &shown);
        let note = (!note.is_empty()).then_some(note);
        self.figures.push(Figure { name, sentence, value, unit: spec.unit, better, goal, met, others: None, note });
    }

    /// A row beside the best of others, if all of them are there.
    fn ratios(&self, of: &str, to: &[String], quantity: Quantity) -> Option<Ratios> {
        let of = self.row(of)?;
        let best = self.best(to, quantity)?;
        let theirs = if std::ptr::eq(of, best) { of.rotated(quantity) } else { best.each(quantity) };
        let each = of.each(quantity).iter().zip(&theirs).map(|(of, to)| of / to).collect();
        let said = if std::ptr::eq(of, best) { of.name.clone() } else { format!("{} beside {}", of.name, best.name) };
        Some(Ratios { each, others: of.others.into_iter().chain(best.others).reduce(f64::max), said })
    }

    /// A row's speed beside that of others one after another, if all of them are there: their times for as much data are
    /// added up.
    fn ratios_to_sum(&self, of: &str, to: &[String]) -> Option<Ratios> {
        let of = self.row(of)?;
        let parts: Vec<&Row> = to.iter().map(|name| self.row(name)).collect::<Option<_>>()?;
        let mut each = vec![0.0; of.turns.len()];
        for part in &parts {
            let turns = each.iter_mut().zip(of.each(Quantity::Speed)).zip(part.each(Quantity::Speed));
            turns.for_each(|((sum, of), part)| *sum += of / part);
        }
        let others = parts.iter().chain([&of]).filter_map(|row| row.others).reduce(f64::max);
        let names: Vec<&str> = parts.iter().map(|row| row.name.as_str()).collect();
        Some(Ratios { each, others, said: format!("{} beside {}", of.name, names.join(" and then ")) })
    }

    /// The best of some rows, if all of them are there.
    pub fn best(&self, names: &[String], quantity: Quantity) -> Option<&Row> {
        let rows: Option<Vec<&Row>> = names.iter().map(|name| self.row(name)).collect();
        let middle = |row: &Row| ceiling::median(&row.each(quantity)).unwrap_or(0.0);
        rows?.into_iter().max_by(|one, other| {
            let order = middle(one).total_cmp(&middle(other));
            if quantity == Quantity::Speed { order } else { order.reverse() }
        })
    }

    /// Sums up the spread and says what spoils the numbers. Last, when all is measured.
    pub fn finish(&mut self) {
        let spreads: Vec<f64> = self.rows.iter().map(|row| row.spread).collect();
        self.spread = ceiling::median(&spreads).unwrap_or(0.0);
        let measured = self.figures.iter().map(|figure| figure.name);
        let all = figures::ALL.iter().filter(|spec| spec.bench == self.bench).map(|spec| spec.name);
        debug_assert_eq!(measured.collect::<std::collections::BTreeSet<_>>(), all.collect(), "every figure is there");
        match (self.others.before, self.others.during) {
            (Some(before), Some(during)) if before.max(during) > BUSY_MAX => self.warnings.push(format!(
                "this machine was not idle: other programs had {:.0} % of its processors before and {:.0} % during the runs; run it again when it is",
                before * 100.0,
                during * 100.0
            )),
            (Some(_), Some(_)) => {}
            _ => self.warnings.push("/proc/stat cannot be read, so nobody knows whether this machine was idle".into()),
        }
        if cfg!(debug_assertions) {
            self.warnings.push("this is a debug build, which is many times slower than a release build".into());
        }
    }
}

impl LoadShape {
    /// Of one stream.
    pub const fn new(direction: DataDirection, pattern: Pattern, block: u32, depth: u32) -> Self {
        Self { direction, pattern, block, depth, streams: 1 }
    }

    /// `4 KiB random reads, 32 in flight`.
    pub fn title(&self) -> String {
        let block = match self.block {
            0..1024 => format!("{}-byte", self.block),
            block => cryptline::size::human(block.into()),
        };
        let direction = word(&self.direction);
        let requests = match self.pattern {
            Pattern::Random => format!("{block} random {direction}s"),
            Pattern::Sequential => format!("{block} {direction}s in order"),
        };
        match self.depth {
            1 => format!("{requests}, one at a time"),
            depth => format!("{requests}, {depth} in flight"),
        }
    }
}

impl Row {
    /// One under a load, in this process.
    pub fn new(name: impl Into<String>, shape: LoadShape) -> Self {
        Self { name: name.into(), front: "in-process".into(), shape, times: 1, ..Self::default() }
    }

    /// Sums up the turns.
    pub fn settle(&mut self) {
        self.samples = self.each(Quantity::Speed);
        self.bytes_per_second = ceiling::median(&self.samples).unwrap_or(0.0);
        self.spread = spread(&self.samples);
        self.latency = Latency::middle(self.turns.iter().filter_map(|turn| turn.latency));
        self.others = self.watch.share();
    }

    /// A number of each turn; of none where a turn does not have it.
    pub fn each(&self, quantity: Quantity) -> Vec<f64> {
        let values = self.turns.iter().map(|turn| match quantity {
            Quantity::Speed => Some(turn.bytes_per_second),
            Quantity::Time => Some(f64::from(self.shape.block) / turn.bytes_per_second),
            Quantity::P50 => turn.latency.map(|latency| latency.p50_us),
            Quantity::P99 => turn.latency.map(|latency| latency.p99_us),
            Quantity::ProcessorTime => turn.busy.map(|busy| busy / turn.bytes_per_second),
        });
        values.collect::<Option<_>>().unwrap_or_default()
    }

    /// The same, each in the place of the one before: what chance alone makes of the same thing.
    fn rotated(&self, quantity: Quantity) -> Vec<f64> {
        let mut each = self.each(quantity);
        let by = each.len().min(1);
        each.rotate_left(by);
        each
    }

    /// Tells if its data is not the clear text.
    pub fn is_encrypted(&self) -> bool {
        self.cipher.as_deref().is_some_and(|cipher| cipher != crate::volume::NULL_CIPHER)
    }
}

impl Latency {
    fn from_values([p50_us, p90_us, p99_us, p99_9_us, max_us]: [f64; 5]) -> Self {
        Self { p50_us, p90_us, p99_us, p99_9_us, max_us }
    }

    fn values(&self) -> [f64; 5] {
        [self.p50_us, self.p90_us, self.p99_us, self.p99_9_us, self.max_us]
    }

    /// The percentiles of one run. The histogram counts nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| Duration::from_nanos(histogram.value_at_quantile(quantile)).as_secs_f64() * 1e6;
        Self::from_values([0.50, 0.90, 0.99, 0.999, 1.0].map(at))
    }

    /// The median of each percentile: a run that something disturbed does not count.
    fn middle(runs: impl Iterator<Item = Self> + Clone) -> Option<Self> {
        let one = |place: usize| ceiling::median(&runs.clone().map(|run| run.values()[place]).collect::<Vec<_>>());
        one(0).map(|_| Self::from_values(std::array::from_fn(|place| one(place).unwrap_or(0.0))))
    }
}

/// Tells if other programs had too much of the processors.
pub fn is_busy(others: Option<f64>) -> bool {
    others.is_some_and(|share| share > BUSY_MAX)
}

/// As on the command line, and in JSON.
pub fn word(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// A number for people.
pub fn three_digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        0.0..1.0 => format!("{value:.3}"),
        1.0..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, rates: &[f64]) -> Row {
        let mut row = Row::new(name, LoadShape::new(DataDirection::Read, Pattern::Random, 4096, 1));
        let sample = |&bytes_per_second| TurnResults { bytes_per_second, ..TurnResults::default() };
        row.turns = rates.iter().map(sample).collect();
        row.settle();
        row
    }

    fn report(rows: Vec<Row>) -> PlanReport {
        PlanReport { bench: "inline", rows, ..PlanReport::default() }
    }

    #[test]
    fn a_ratio_is_that_of_the_same_turn() {
        // The machine is half as fast from the second run on; the ratio does not change.
        let mut report = report(vec![row("of", &[8.0, 4.0, 4.0]), row("to", &[10.0, 5.0, 5.0]), row("none", &[])]);
        for to in ["to", "none", "another"] {
            report.compare(&FigureSubject::new("inline_over_plain_null", "of", to));
        }
        let values: Vec<_> = report.figures.iter().map(|figure| figure.value).collect();
        assert_eq!(values, [Some(0.8), None, None]);
        assert_eq!(report.figures[0].met, Some(false));
        assert!(report.figures[0].sentence.contains(" 0.800 times"), "{}", report.figures[0].sentence);
        assert_eq!(report.figures[2].note.as_deref(), Some("needs of and another"));
    }

    #[test]
    fn a_figure_is_the_worst_pair_and_the_best_of_others() {
        let rows = vec![row("a", &[3.0]), row("b", &[9.0]), row("x", &[2.0]), row("y", &[6.0])];
        let mut report = report(rows);
        let beside = |of: &str| (of.to_owned(), vec!["x".to_owned(), "y".to_owned()]);
        let pairs = vec![beside("b"), beside("a")];
        report.compare(&FigureSubject { name: "queue_over_plain_null", pairs, ..FigureSubject::default() });
        let pairs = vec![beside("b"), beside("a")];
        report.compare(&FigureSubject {
            name: "inline_over_model",
            of: Quantity::Time,
            pairs,
            ..FigureSubject::default()
        });
        assert_eq!(report.figures[0].value, Some(0.5));
        let note = report.figures[0].note.as_deref().expect("where it comes from");
        assert!(note.starts_with("a beside y; ") && note.contains("the worst of 2"), "{note}");
        // Of times, the best is the shortest, so the fastest again.
        assert!((report.figures[1].value.expect("a value") - 2.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_row_beside_itself_shows_chance() {
        let mut report = report(vec![row("a", &[2.0, 4.0])]);
        report.compare(&FigureSubject::new("queue_over_plain_null", "a", "a"));
        assert_eq!(report.figures[0].value, Some(1.25));
    }

    #[test]
    fn a_row_beside_a_model_is_beside_all_of_its_parts_one_after_another() {
        let mut report = report(vec![row("of", &[8.0, 3.0]), row("plain", &[20.0, 6.0]), row("cipher", &[20.0, 12.0])]);
        for parts in [["plain", "cipher"], ["plain", "none"]] {
            let pairs = vec![("of".to_owned(), parts.map(str::to_owned).to_vec())];
            let comparison =
                FigureSubject { name: "inline_over_model", in_sum: true, pairs, ..FigureSubject::default() };
            report.compare(&comparison);
        }
        let value = report.figures[0].value.expect("a value");
        assert!((value - 0.775).abs() < 1e-9, "{value}");
        assert_eq!(report.figures[1].value, None);
    }

    #[test]
    fn goals_are_for_their_own_circumstances() {
        let mut report = report(vec![row("a", &[2.0]), row("b", &[2.0])]);
        let compared = || FigureSubject::new("inline_over_plain_null", "a", "b");
        report.compare(&compared().unless(Some("another cipher")));
        report.runs = 1;
        report.weak_below(3, 0.0, (0, 0));
        report.compare(&compared());
        for (figure, why) in report.figures.iter().zip(["another cipher; ", "no goal: too few rounds; "]) {
            assert_eq!((figure.value, figure.goal, figure.met), (Some(1.0), None, None));
            assert!(figure.note.as_deref().is_some_and(|note| note.starts_with(why)), "{figure:?}");
        }
    }

    #[test]
    fn percentiles_are_those_of_the_requests_and_a_disturbed_run_does_not_count() {
        let mut histogram = crate::load::histogram();
        for nanoseconds in 1..=1000u64 {
            histogram.record(nanoseconds * 1000).expect("in range");
        }
        let latency = Latency::of(&histogram);
        assert!((latency.p50_us - 500.0).abs() < 1.0, "{latency:?}");
        assert!((latency.p99_us - 990.0).abs() < 1.0, "{latency:?}");
        assert!((latency.max_us - 1000.0).abs() < 1.0, "{latency:?}");
        let runs = [10.0, 5000.0, 11.0].map(|p99_us| Latency { p99_us, ..latency });
        assert_eq!(Latency::middle(runs.into_iter()).map(|it| it.p99_us), Some(11.0));
        assert_eq!(Latency::middle([].into_iter()), None);
    }

    #[test]
    fn shapes_have_the_names_that_people_give_them() {
        use {DataDirection::*, Pattern::*};
        for (shape, title) in [
            (LoadShape::new(Read, Random, 4096, 1), "4 KiB random reads, one at a time"),
            (LoadShape::new(Write, Random, 512, 32), "512-byte random writes, 32 in flight"),
            (LoadShape::new(Read, Sequential, 1 << 20, 4), "1 MiB reads in order, 4 in flight"),
        ] {
            assert_eq!(shape.title(), title);
        }
    }

    #[test]
    fn a_busy_machine_is_a_warning() {
        let mut report =
            PlanReport { others: Others { before: Some(0.0), during: Some(0.5) }, ..PlanReport::default() };
        report.finish();
        assert!(report.warnings[0].contains("50 % during"));
    }
}
