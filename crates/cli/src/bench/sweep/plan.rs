//! What to measure, checked before anything is.

use std::str::FromStr;
use std::time::Duration;

use cryptline_engine::Gate;
use cryptline_engine::dispatch::Mode;

use super::medium::Medium;
use super::{Job, Point, Samples, SweepArgs, Volumes, WARM_UP};
use crate::CliError;
use crate::bench::machine::{Watch, available_memory, cores};
use crate::bench::report::{Direction, Pattern, Shape};
use crate::bench::volume::{Cipher, SECTOR_SIZE, Settings, helpers};
use crate::size;

/// Largest values that make any sense.
const BLOCK_MAX: u64 = 1 << 30;
const DEPTH_MAX: u32 = 1024;
const STREAMS_MAX: u32 = 256;
const ROUNDS_MAX: u32 = 10_000;
const SECONDS_MAX: f64 = 3600.0;
/// More threads than this for each processor say nothing more.
const HOGS_MAX: usize = 64;

/// A checked [`SweepArgs`].
pub struct Plan {
    pub blocks: Vec<u32>,
    pub depths: Vec<u32>,
    pub directions: Vec<Direction>,
    pub streams: Vec<u32>,
    pub modes: Vec<Mode>,
    pub ciphers: Vec<Cipher>,
    pub pattern: Pattern,
    pub medium: Medium,
    pub size: u64,
    pub helpers: usize,
    pub hogs: usize,
    pub rounds: u32,
    pub time: Duration,
}

impl Plan {
    /// Checks what was asked for.
    ///
    /// # Errors
    /// Exit code 1, naming the option.
    pub fn new(args: &SweepArgs) -> Result<Self, CliError> {
        let cores = cores();
        let hogs = args.hog.unwrap_or(cores);
        if hogs > cores.saturating_mul(HOGS_MAX) {
            return Err(CliError::parameters(format!(
                "--hog {hogs}: give at most {}",
                cores.saturating_mul(HOGS_MAX)
            )));
        }
        let plan = Self {
            blocks: blocks(&args.block_sizes)?,
            depths: counts("--depths", &args.depths, DEPTH_MAX)?,
            directions: words("--directions", &args.directions, direction)?,
            streams: counts("--streams", &args.streams, STREAMS_MAX)?,
            modes: words("--dispatch", &args.dispatch, Mode::from_str)?,
            ciphers: ciphers(&args.cipher)?,
            pattern: args.pattern,
            medium: Medium::parse(&args.medium)?,
            size: args.size,
            helpers: helpers(args.helpers)?,
            hogs,
            rounds: counts("--rounds", &[args.rounds], ROUNDS_MAX)?[0],
            time: seconds(args.seconds)?,
        };
        plan.check_size()?;
        Ok(plan)
    }

    /// The medium, full of data.
    ///
    /// # Errors
    /// Exit code 4 when it cannot be made.
    pub fn open_medium(&self) -> Result<Gate, CliError> {
        self.medium.open(self.size, self.buffers())
    }

    /// For each cipher a volume by each mode, all on the same medium.
    ///
    /// # Errors
    /// Exit code 4 where one does not fit.
    pub fn volumes(&self, medium: &Gate) -> Result<Vec<Volumes>, CliError> {
        let settings = Settings::new(self.helpers)?;
        let of = |cipher: &Cipher| {
            let volumes = self
                .modes
                .iter()
                .map(|&mode| cipher.over(medium, mode, &settings));
            volumes.collect::<Result<Volumes, CliError>>()
        };
        self.ciphers.iter().map(of).collect()
    }

    /// Every combination.
    #[must_use]
    pub fn points(&self) -> Vec<Point> {
        let mut points = Vec::new();
        for cipher in 0..self.ciphers.len() {
            for &direction in &self.directions {
                for &streams in &self.streams {
                    for &depth in &self.depths {
                        for &block in &self.blocks {
                            let shape = Shape {
                                direction,
                                pattern: self.pattern,
                                block,
                                depth,
                                streams,
                            };
                            points.push(Point {
                                shape,
                                cipher,
                                by_mode: self.modes.iter().map(|_| Samples::default()).collect(),
                                watch: Watch::default(),
                            });
                        }
                    }
                }
            }
        }
        points
    }

    /// The `nth` measurement of a point. Each goes elsewhere, so that none finds in the caches what
    /// another has just read.
    #[must_use]
    pub fn job(&self, shape: Shape, nth: u64) -> Job {
        // Fibonacci hashing: steps by the golden ratio of the range spread evenly.
        let start = nth.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Job {
            shape,
            warm_up: WARM_UP,
            time: self.time,
            start: start >> 16,
            latency: true,
        }
    }

    /// Place of a mode among the modes.
    #[must_use]
    pub fn place(&self, mode: Mode) -> Option<usize> {
        self.modes.iter().position(|&other| other == mode)
    }

    /// Most memory that requests take at once, in bytes.
    fn buffers(&self) -> u64 {
        let largest = |values: &[u32]| u64::from(values.iter().copied().max().unwrap_or(0));
        let requests = largest(&self.depths).saturating_mul(largest(&self.streams));
        requests.saturating_mul(largest(&self.blocks))
    }

    fn check_size(&self) -> Result<(), CliError> {
        let largest = u64::from(self.blocks.iter().copied().max().unwrap_or(0));
        let given = format!("--size {}", size::human(self.size));
        if self.size == 0 || !self.size.is_multiple_of(u64::from(SECTOR_SIZE)) {
            return Err(CliError::parameters(format!(
                "{given}: give a multiple of {SECTOR_SIZE} bytes, and not 0, such as 512M"
            )));
        }
        if largest > self.size {
            return Err(CliError::parameters(format!(
                "{given}: a request of {} does not fit; give a larger --size or smaller --block-sizes",
                size::human(largest)
            )));
        }
        match available_memory() {
            Some(available) if self.buffers() > available => Err(CliError::parameters(format!(
                "the buffers of all requests take {}, and {} of memory are free; give smaller --block-sizes, --depths or --streams",
                size::human(self.buffers()),
                size::human(available)
            ))),
            _ => Ok(()),
        }
    }
}

fn blocks(given: &[u64]) -> Result<Vec<u32>, CliError> {
    let fits = |&&bytes: &&u64| {
        bytes > 0 && bytes <= BLOCK_MAX && bytes.is_multiple_of(u64::from(SECTOR_SIZE))
    };
    let good: Vec<u32> = given
        .iter()
        .filter(fits)
        .filter_map(|&bytes| u32::try_from(bytes).ok())
        .collect();
    match given.iter().find(|bytes| !fits(bytes)) {
        Some(bytes) => Err(CliError::parameters(format!(
            "--block-sizes {bytes}: give multiples of {SECTOR_SIZE} bytes, and not 0, up to {}, such as 4k,1M",
            size::human(BLOCK_MAX)
        ))),
        None => Ok(once(good)),
    }
}

fn counts(option: &str, given: &[u32], most: u32) -> Result<Vec<u32>, CliError> {
    match given.iter().find(|&&count| count == 0 || count > most) {
        Some(count) => Err(CliError::parameters(format!(
            "{option} {count}: give numbers from 1 to {most}"
        ))),
        None => Ok(once(given.to_vec())),
    }
}

fn words<T: PartialEq>(
    option: &str,
    given: &[String],
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, CliError> {
    let parsed = given.iter().map(|word| {
        parse(word).map_err(|why| CliError::parameters(format!("{option} {word}: {why}")))
    });
    parsed.collect::<Result<Vec<T>, _>>().map(once)
}

fn direction(word: &str) -> Result<Direction, String> {
    match word {
        "read" => Ok(Direction::Read),
        "write" => Ok(Direction::Write),
        _ => Err("there is no such direction; read and write are".into()),
    }
}

fn ciphers(given: &[String]) -> Result<Vec<Cipher>, CliError> {
    once(given.to_vec())
        .iter()
        .map(|word| Cipher::new(word))
        .collect()
}

fn seconds(given: f64) -> Result<Duration, CliError> {
    if given > 0.0 && given <= SECONDS_MAX {
        Ok(Duration::from_secs_f64(given))
    } else {
        Err(CliError::parameters(format!(
            "--seconds {given}: give more than 0 and at most {SECONDS_MAX}"
        )))
    }
}

/// Each value once, in the order given.
fn once<T: PartialEq>(values: Vec<T>) -> Vec<T> {
    let mut kept = Vec::new();
    for value in values {
        if !kept.contains(&value) {
            kept.push(value);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        sweep: SweepArgs,
    }

    fn plan(options: &[&str]) -> Result<Plan, CliError> {
        let line = Line::try_parse_from(["sweep"].iter().chain(options));
        Plan::new(&line.expect("a command line").sweep)
    }

    #[test]
    fn without_options_every_point_of_the_goal_is_measured() {
        let plan = plan(&[]).expect("a plan");
        assert_eq!(plan.points().len(), 7 * 3 * 2 * 2);
        assert_eq!(plan.modes, [Mode::Inline, Mode::Queue, Mode::Auto]);
        assert_eq!(plan.blocks.first(), Some(&4096));
        assert_eq!(plan.blocks.last(), Some(&(4 << 20)));
    }

    #[test]
    fn each_axis_can_be_narrowed() {
        let options = [
            "--block-sizes=4k,64k,4k",
            "--depths=1",
            "--directions=write",
            "--streams=2",
            "--dispatch=auto",
        ];
        let plan = plan(&options).expect("a plan");
        let shapes: Vec<_> = plan.points().iter().map(|point| point.shape).collect();
        assert_eq!(shapes.len(), 2);
        assert!(
            shapes
                .iter()
                .all(|shape| shape.direction == Direction::Write && shape.streams == 2)
        );
        assert_eq!(plan.place(Mode::Auto), Some(0));
        assert_eq!(plan.place(Mode::Queue), None);
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        let helpers = format!("--helpers={}", cores() + 1);
        for (option, text) in [
            ("--dispatch=outline", "--dispatch outline"),
            ("--directions=sideways", "--directions sideways"),
            ("--block-sizes=0", "--block-sizes 0"),
            ("--block-sizes=5000", "--block-sizes 5000"),
            ("--depths=0", "--depths 0"),
            ("--streams=0", "--streams 0"),
            ("--streams=1000", "--streams 1000"),
            ("--rounds=0", "--rounds 0"),
            ("--seconds=0", "--seconds 0"),
            ("--seconds=NaN", "--seconds NaN"),
            ("--size=0", "--size 0"),
            ("--size=1M", "does not fit"),
            ("--cipher=rot13", "--cipher rot13"),
            ("--hog=100000", "--hog 100000"),
            ("--medium=delay:soon", "--medium delay:soon"),
            (helpers.as_str(), "--helpers"),
        ] {
            let error = plan(&[option]).map(drop).expect_err(option);
            assert_eq!(error.exit_code(), 1, "{option}");
            assert!(error.to_string().contains(text), "{option}: {error}");
        }
        let greedy = [
            "--block-sizes=1G",
            "--depths=1024",
            "--streams=256",
            "--size=1G",
        ];
        let error = plan(&greedy).map(drop).expect_err("too much memory");
        assert!(error.to_string().contains("memory are free"), "{error}");
    }
}
