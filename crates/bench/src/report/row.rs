//! What was measured: a row for each way under each load, and a sample of it for each turn.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::{BUSY_MAX, Direction, Front, Pattern, median, quartiles, spread, word};
use crate::machine::Watch;
use crate::plot::{Plot, Value};
use crate::table::{megabytes, microseconds, percent};
use crate::volume::NULL_CIPHER;

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
    /// Share of the processors that other programs had in its turns, where it is known.
    pub others: Option<f64>,
    pub sha256: Option<String>,
    pub instructions: Option<f64>,
    pub allocations: Option<f64>,
    /// What each turn gave, of which the members above are the summary.
    #[serde(skip)]
    pub turns: Vec<Sample>,
    /// Over those turns.
    #[serde(skip)]
    pub watch: Watch,
    /// Whether a turn has ended that was not yet watched.
    #[serde(skip)]
    pub is_new: bool,
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

/// What of two rows is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    Speed,
    /// Half of all requests are answered within it.
    P50,
    P99,
    /// Of the server, for as much data.
    ProcessorTime,
}

/// One row over another, turn by turn: what slows down both drops out.
#[derive(Clone, Debug, Default)]
pub struct Ratios {
    each: Vec<f64>,
    /// The larger of the two rows' shares.
    pub others: Option<f64>,
}

impl Shape {
    /// Of one stream.
    pub const fn new(direction: Direction, pattern: Pattern, block: u32, depth: u32) -> Self {
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

    /// Whether requests count, and not bytes.
    pub fn is_small(&self) -> bool {
        self.block <= 4096
    }

    /// Of [`Row::speed`].
    pub fn unit(&self) -> &'static str {
        if self.is_small() { "kIOPS" } else { "MB/s" }
    }
}

impl Row {
    /// Takes what a turn gave.
    pub fn take(&mut self, sample: Sample) {
        self.turns.push(sample);
        self.is_new = true;
    }

    /// Takes the speed of a turn of which nothing else is known.
    pub fn take_rate(&mut self, bytes_per_second: f64) {
        self.take(Sample { bytes_per_second, ..Sample::default() });
    }

    /// Notes how busy the machine was in a turn, if that was one of this row.
    pub fn watch(&mut self, turn: &Watch) {
        if std::mem::take(&mut self.is_new) {
            self.watch.add_all(turn);
        }
    }

    /// Sums up the turns.
    pub fn settle(&mut self) {
        self.samples = self.each(Quantity::Speed);
        self.bytes_per_second = median(&self.samples);
        self.spread = spread(&self.samples);
        self.latency = Latency::each(self.latencies(), median);
        self.others = self.watch.share();
    }

    /// A number of each turn; of none where a turn does not have it.
    fn each(&self, quantity: Quantity) -> Vec<f64> {
        let values = self.turns.iter().map(|turn| quantity.value(turn));
        values.collect::<Option<_>>().unwrap_or_default()
    }

    /// A number of it to that of another.
    pub fn beside(&self, other: &Self, quantity: Quantity) -> Ratios {
        Ratios::of(&self.each(quantity), &other.each(quantity), [self, other])
    }

    /// A number of each turn to that of the next: what chance alone makes of the same thing.
    pub fn beside_itself(&self, quantity: Quantity) -> Ratios {
        let each = self.each(quantity);
        let mut next = each.clone();
        next.rotate_left(each.len().min(1));
        Ratios::of(&each, &next, [self])
    }

    /// Its throughput to that of another.
    pub fn over(&self, other: &Self) -> f64 {
        self.beside(other, Quantity::Speed).median()
    }

    /// The middle of a number of its turns.
    pub fn middle(&self, quantity: Quantity) -> f64 {
        median(&self.each(quantity))
    }

    /// Whether other programs kept the machine too busy during its turns.
    pub fn is_spoiled(&self) -> bool {
        is_spoiled(self.others)
    }

    /// What some rows were measured for, for people: with a star where one of them is spoiled.
    pub fn label<'a>(name: impl Into<String>, rows: impl IntoIterator<Item = &'a Self>) -> String {
        marked(name, rows.into_iter().any(Self::is_spoiled))
    }

    /// What a number made of its speed is, for a plot.
    pub fn plotted(&self, value: impl Fn(f64) -> f64) -> Value {
        let [low, high] = quartiles(&self.samples).map(&value);
        Value {
            at: value(self.bytes_per_second),
            ends: Some([low.min(high), low.max(high)]),
            is_spoiled: self.is_spoiled(),
        }
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

    /// For people, in the [`unit`](Shape::unit) of its shape.
    pub fn speed(&self) -> String {
        if self.shape.is_small() { format!("{:.1}", self.iops() / 1000.0) } else { megabytes(self.bytes_per_second) }
    }

    /// Spread and latency, for people, in columns of these names.
    pub fn steadiness(&self) -> [String; 3] {
        let latency = self.latency.unwrap_or_default();
        let [p50, p99] = [latency.p50_us, latency.p99_us].map(microseconds);
        [percent(self.spread), p50, p99]
    }

    /// The names of [`steadiness`](Self::steadiness).
    pub const STEADINESS: [&str; 3] = ["spread", "p50 µs", "p99 µs"];

    /// The middle of a share that some turns may not have, for people.
    pub fn share(&self, of: fn(&Sample) -> Option<f64>) -> String {
        let known: Vec<f64> = self.turns.iter().filter_map(of).collect();
        if known.is_empty() {
            return "-".into();
        }
        format!("{:.0} %", median(&known) * 100.0)
    }

    fn latencies(&self) -> impl Iterator<Item = Latency> + Clone {
        self.turns.iter().filter_map(|turn| turn.latency)
    }
}

impl Quantity {
    /// What a turn gave, where that is known.
    fn value(self, turn: &Sample) -> Option<f64> {
        match self {
            Self::Speed => Some(turn.bytes_per_second),
            Self::P50 => turn.latency.map(|latency| latency.p50_us),
            Self::P99 => turn.latency.map(|latency| latency.p99_us),
            Self::ProcessorTime => turn.server_busy.map(|busy| busy / turn.bytes_per_second),
        }
    }

    /// Before the load, in a note.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Speed => "",
            Self::P50 => "p50 of ",
            Self::P99 => "p99 of ",
            Self::ProcessorTime => "processor time of ",
        }
    }

    pub fn lower_is_better(self) -> bool {
        self != Self::Speed
    }
}

impl Ratios {
    /// Of the values that each turn of two rows gave.
    pub fn of<'a>(of: &[f64], to: &[f64], rows: impl IntoIterator<Item = &'a Row>) -> Self {
        let others = rows.into_iter().filter_map(|row| row.others);
        Self { each: of.iter().zip(to).map(|(of, to)| of / to).collect(), others: others.reduce(f64::max) }
    }

    /// Not a number where there is none.
    pub fn median(&self) -> f64 {
        if self.each.is_empty() {
            return f64::NAN;
        }
        median(&self.each)
    }

    /// For people.
    pub fn spread(&self) -> String {
        format!("spread {}", percent(spread(&self.each)))
    }

    /// For a plot.
    pub fn plotted(&self) -> Value {
        Value { at: self.median(), ends: Some(quartiles(&self.each)), is_spoiled: is_spoiled(self.others) }
    }
}

/// What stands behind the name of what a busy machine spoiled.
pub const MARK: &str = " *";

/// A name, with the mark of what a busy machine spoiled.
pub fn marked(name: impl Into<String>, is_spoiled: bool) -> String {
    name.into() + if is_spoiled { MARK } else { "" }
}

/// Whether other programs had too much of the processors.
pub fn is_spoiled(others: Option<f64>) -> bool {
    others.is_some_and(|share| share > BUSY_MAX)
}

impl Latency {
    /// The percentiles, in order.
    pub const NAMES: [&str; 5] = ["p50", "p90", "p99", "p99.9", "max"];

    /// Of what each of the [`NAMES`](Self::NAMES) stands for.
    pub fn from_values([p50_us, p90_us, p99_us, p99_9_us, max_us]: [f64; 5]) -> Self {
        Self { p50_us, p90_us, p99_us, p99_9_us, max_us }
    }

    /// What each of the [`NAMES`](Self::NAMES) stands for here.
    pub fn values(&self) -> [f64; 5] {
        [self.p50_us, self.p90_us, self.p99_us, self.p99_9_us, self.max_us]
    }

    /// The percentiles of one run. The histogram counts nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| Duration::from_nanos(histogram.value_at_quantile(quantile));
        let microseconds = |quantile| at(quantile).as_secs_f64() * 1e6;
        Self::from_values([0.50, 0.90, 0.99, 0.999, 1.0].map(microseconds))
    }

    /// One number for each percentile of several runs: with the median, a run that something disturbed does not count.
    pub fn each(runs: impl Iterator<Item = Self> + Clone, of: impl Fn(&[f64]) -> f64) -> Option<Self> {
        let one = |place: usize| {
            let values: Vec<f64> = runs.clone().map(|run| run.values()[place]).collect();
            of(&values)
        };
        let is_some = runs.clone().next().is_some();
        is_some.then(|| Self::from_values(std::array::from_fn(one)))
    }

    /// A line of the percentiles for each row that has them.
    pub fn plot<'a>(title: impl Into<String>, rows: impl IntoIterator<Item = (String, &'a Row)>) -> Plot {
        let values = rows.into_iter().flat_map(|(name, row)| {
            let all = |of: &dyn Fn(&[f64]) -> f64| Self::each(row.latencies(), of);
            let ends = [0, 1].map(|end| all(&|values| quartiles(values)[end]));
            let [low, high] = ends.map(|end| end.unwrap_or_default().values());
            let middle = row.latency.map(|latency| latency.values());
            let each = (0..5).zip(middle.into_iter().flatten());
            each.map(move |(place, at)| {
                let value = Value { at, ends: Some([low[place], high[place]]), is_spoiled: row.is_spoiled() };
                (Self::NAMES[place], name.clone(), value)
            })
        });
        Plot::of(title, ["percentile", "µs, logarithmic"], values).logarithmic()
    }
}
