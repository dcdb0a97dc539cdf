//! `bench sweep`: every block size, queue depth, direction and number of streams, by each dispatch
//! mode, and what a busy machine does to latencies.
//!
//! ```text
//! for each round
//!     for each point (cipher, direction, streams, depth, block)
//!         for each mode, in rotating order       warm up, measure
//!     for each mode: one 4 KiB read at a time    idle, then beside threads that hog the processors
//! ```
//!
//! The rounds are outermost: what disturbs the machine for a while disturbs one round of many
//! points, and the medians leave it out. The modes are innermost: what they are compared by lies
//! next to each other in time.

mod loaded;
mod medium;
mod plan;
mod plots;
mod summary;

use std::time::Duration;

use clap::Args;
use cryptline_engine::Gate;
use cryptline_engine::dispatch::Mode;

use super::load::{self, Job};
use super::machine::{Moment, Others, Watch};
use super::report::{Direction, Latency, Pattern, Row, Shape};
use super::{Output, Progress, Report};
use crate::{CliError, size};
use plan::Plan;

/// Before each measurement: helpers look every 100 ms whether the machine is idle.
const WARM_UP: Duration = Duration::from_millis(200);

/// What to measure.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  cryptline bench sweep --html sweep.html                  everything, in about 7 minutes
  cryptline bench sweep --block-sizes 4k,1M --depths 1 --streams 1
  cryptline bench sweep --medium delay:read=80us,write=20us --json sweep.json
  cryptline bench sweep --medium /mnt/nvme --size 8G       a file there, gone afterwards

The loaded part reads 4 KiB at a time while --hog threads use up the processors. The JSON is
described in docs/bench-json.md.")]
pub struct SweepArgs {
    /// Bytes in a request
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "4k,16k,64k,128k,256k,1M,4M", value_parser = size::parse)]
    pub block_sizes: Vec<u64>,

    /// Requests that each stream has in flight
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1,4,32"
    )]
    pub depths: Vec<u32>,

    /// read, write
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "read,write"
    )]
    pub directions: Vec<String>,

    /// Threads with requests of their own
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1,2"
    )]
    pub streams: Vec<u32>,

    /// Who runs the cipher: inline, queue, auto
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "inline,queue,auto"
    )]
    pub dispatch: Vec<String>,

    /// Ciphers
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "aes-xts-plain64"
    )]
    pub cipher: Vec<String>,

    /// Order of the offsets
    #[arg(long, value_enum, default_value_t = Pattern::Random)]
    pub pattern: Pattern,

    /// What the volumes lie on: `ram`, `delay:SPEC` (RAM that is as slow as SPEC says, such as
    /// delay:read=100us,write=20us..40us), or a folder or new file, which is overwritten and gone
    /// afterwards
    #[arg(long, value_name = "MEDIUM", default_value = "ram")]
    pub medium: String,

    /// Size of the medium
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = size::parse)]
    pub size: u64,

    /// Threads that help large requests, for `auto` [default: one less than there are processors]
    #[arg(long, value_name = "N")]
    pub helpers: Option<usize>,

    /// Threads that use up processor time in the loaded part; 0 leaves it out [default: one for
    /// each processor]
    #[arg(long, value_name = "N")]
    pub hog: Option<usize>,

    /// How often everything is measured
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: u32,

    /// How long each measurement takes, after a warm-up of 0.2 s
    #[arg(long, value_name = "S", default_value_t = 0.1)]
    pub seconds: f64,

    /// Where the report goes.
    #[command(flatten)]
    pub output: Output,
}

/// A combination to be measured by each mode.
struct Point {
    shape: Shape,
    /// Which of the plan's ciphers.
    cipher: usize,
    /// In the order of the plan's modes.
    by_mode: Vec<Samples>,
    /// What other programs had of the processors meanwhile.
    watch: Watch,
}

/// What came of each round.
#[derive(Default)]
struct Samples {
    bytes_per_second: Vec<f64>,
    latencies: Vec<Latency>,
}

/// Volumes of one cipher, in the order of the plan's modes.
type Volumes = Vec<Gate>;

/// Measures, and prints when all is done.
///
/// # Errors
/// Exit code 1 for what makes no sense, 4 when a volume fails.
pub fn run(args: &SweepArgs) -> Result<(), CliError> {
    let plan = Plan::new(args)?;
    args.output.check()?;
    let medium = plan.open_medium()?;
    let volumes: Vec<Volumes> = plan.volumes(&medium)?;
    let mut report = Report::new("sweep", "Every size, depth and dispatch mode");
    report.others = Others::look();
    let mut points = plan.points();
    let mut loaded = loaded::Part::new(&plan);
    let steps = u64::try_from(points.len() + usize::from(loaded.is_wanted())).unwrap_or(0);
    let progress = Progress::new(steps * u64::from(plan.rounds));
    let mut watch = Watch::default();
    for round in 0..plan.rounds {
        for point in &mut points {
            progress.now(format!(
                "round {} of {}: {}",
                round + 1,
                plan.rounds,
                point.name(&plan)
            ));
            let start = Moment::now();
            point.measure(round, &plan, &volumes)?;
            watch.add(start, Moment::now());
            progress.step();
        }
        if loaded.is_wanted() {
            progress.now(format!(
                "round {} of {}: idle and loaded",
                round + 1,
                plan.rounds
            ));
            loaded.measure(&plan, &volumes)?;
            progress.step();
        }
    }
    drop(progress);
    report.others.during = watch.share();
    summary::fill(&mut report, &plan, &points, &loaded);
    args.output.publish(report)
}

impl Point {
    /// Measures every mode once. Another one begins each round.
    fn measure(&mut self, round: u32, plan: &Plan, volumes: &[Volumes]) -> Result<(), CliError> {
        let before = Moment::now();
        let modes = self.by_mode.len();
        let first = usize::try_from(round).unwrap_or(0) % modes.max(1);
        for turn in 0..modes {
            let mode = (first + turn) % modes;
            let nth = u64::from(round) * u64::try_from(modes).unwrap_or(1);
            let job = plan.job(self.shape, nth + u64::try_from(turn).unwrap_or(0));
            let outcome = load::run(&volumes[self.cipher][mode], &job)?;
            self.by_mode[mode].take(outcome);
        }
        self.watch.add(before, Moment::now());
        Ok(())
    }

    fn name(&self, plan: &Plan) -> String {
        let Shape {
            direction,
            block,
            depth,
            streams,
            ..
        } = self.shape;
        format!(
            "{} {} of {}, depth {depth}, {streams} streams",
            plan.ciphers[self.cipher].word(),
            direction.name(),
            super::table::block(block)
        )
    }

    /// The rows of all modes.
    fn rows<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = Row> + 'a {
        let modes = plan.modes.iter().zip(&self.by_mode);
        modes.map(|(mode, samples)| samples.row(plan, self.cipher, *mode, self.shape, 0))
    }
}

impl Samples {
    fn take(&mut self, outcome: load::Outcome) {
        self.bytes_per_second.push(outcome.bytes_per_second);
        self.latencies.extend(outcome.latency);
    }

    fn row(&self, plan: &Plan, cipher: usize, mode: Mode, shape: Shape, hogs: u32) -> Row {
        Row {
            name: match hogs {
                0 => mode.to_string(),
                _ => format!("{mode}, loaded"),
            },
            front: "in-process",
            cipher: Some(plan.ciphers[cipher].word().to_owned()),
            dispatch: Some(mode.to_string()),
            shape,
            hogs,
            latency: Latency::median(&self.latencies),
            ..Row::default()
        }
        .sampled(self.bytes_per_second.clone())
    }

    fn p99_us(&self) -> f64 {
        Latency::median(&self.latencies).map_or(f64::NAN, |latency| latency.p99_us)
    }
}

/// The load of the loaded part.
fn small_reads(pattern: Pattern) -> Shape {
    Shape {
        direction: Direction::Read,
        pattern,
        block: 4096,
        depth: 1,
        streams: 1,
    }
}
