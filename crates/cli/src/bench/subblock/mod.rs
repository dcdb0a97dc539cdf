//! `bench subblock`: writes smaller than a cipher sector, side by side or one after the other.
//!
//! ```text
//!           medium: writes of 100 µs, and RAM
//! cipher    XTS: a small write overwrites          CBC: a small write rewrites its cipher sector
//! exclusion exclusive: one lock for the device     shared: only what touches the same sector
//!
//! and whole sectors with CBC over RAM, with the locking and without: what it costs who needs none
//! ```
//!
//! The shape is that of the figures in the commit that let ext4 overwrite parts of blocks side by side
//! (Linux 6.5, 310ee0902b8d: 8 jobs, 256 deep, 2 KiB writes on 4 KiB blocks, 4328 to 801k IOPS).
//! Each way first writes to its volume, which is read back without this layer.

mod check;
mod summary;

use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use cryptline_engine::Gate;
use cryptline_engine::layer::{DelayDevice, DelaySpec, Exclusion, SubBlockDevice, SubBlockOptions};

use super::load::{self, Job};
use super::machine::{Moment, Others, Watch};
use super::report::{Direction, Latency, Pattern, Row, Shape};
use super::volume::{Cipher, SECTOR_SIZE, ram};
use super::{Output, Progress, Report};
use crate::{CliError, size};

/// A cipher that is cut as one likes, and one that is not.
const XTS: &str = "aes-xts-plain64";
const CBC: &str = "aes-cbc-essiv:sha256";
/// Before each turn: threads and clocks come to their usual state.
const WARM_UP: Duration = Duration::from_millis(50);
/// Turns in a run of the ways that write whole sectors.
const WHOLE_TURNS: u32 = 6;
/// Longest turn, in seconds.
const SECONDS_MAX: f64 = 3600.0;

/// What to measure.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  cryptline bench subblock                                   in about a minute
  cryptline bench subblock --json subblock.json --html subblock.html
  cryptline bench subblock --write 20us --jobs 2 --depth 32  a faster medium, a lighter load

Overwrites random parts of 4096-byte cipher sectors, on RAM and on RAM whose writes take
--write: with one lock for the device, as ext4 had it up to Linux 6.4, and with locks for what
conflicts only. The JSON is described in docs/bench-json.md.")]
pub struct SubBlockArgs {
    /// Size of the volume
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size::parse)]
    pub size: u64,

    /// How long a write takes on the slow medium
    #[arg(long, value_name = "TIME", default_value = "100us")]
    pub write: String,

    /// Bytes in a write: 512, 1024 or 2048
    #[arg(long, value_name = "BYTES", default_value_t = 2048)]
    pub block: u32,

    /// Threads
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub jobs: u32,

    /// Writes that each thread has in flight
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub depth: u32,

    /// How often each way is measured
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: u32,

    /// How long each of those takes
    #[arg(long, value_name = "S", default_value_t = 0.25)]
    pub seconds: f64,

    /// Where the report goes.
    #[command(flatten)]
    pub output: Output,
}

/// What a way writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writes {
    /// Parts of sectors, with this exclusion.
    Parts(Exclusion),
    /// Whole sectors, with or without the locking.
    Whole { locking: bool },
}

/// One way to write to the same RAM.
struct Subject {
    is_slow: bool,
    cipher: &'static str,
    writes: Writes,
    gate: Gate,
    samples: Vec<f64>,
    latencies: Vec<Latency>,
}

/// Measures, and prints when all is done.
///
/// # Errors
/// Exit code 1 for what makes no sense, 4 when a way writes something else than it should.
pub fn run(args: &SubBlockArgs) -> Result<(), CliError> {
    check_options(args)?;
    args.output.check()?;
    let medium = ram(args.size, args.size, "")?;
    let spec = format!("write={}", args.write);
    let spec = DelaySpec::from_str(&spec)
        .map_err(|why| CliError::parameters(format!("--write {}: {why}", args.write)))?;
    let slow = Gate::new(DelayDevice::new(medium.clone(), spec));
    let ciphers = [Cipher::new(XTS)?, Cipher::new(CBC)?];
    let mut subjects = subjects(&medium, &slow, &ciphers, args)?;
    for subject in &subjects {
        let cipher = &ciphers[usize::from(subject.cipher == CBC)];
        check::writes_arrive(subject, &cipher.in_blocks(&medium, SECTOR_SIZE)?)?;
    }
    let mut report = Report::new("subblock", "Writes smaller than a cipher sector");
    report.others = Others::look();
    let progress = Progress::new(u64::from(args.runs));
    let mut watch = Watch::default();
    for run in 0..args.runs {
        progress.now(format!("run {} of {}", run + 1, args.runs));
        let before = Moment::now();
        one_run(run, &mut subjects, args)?;
        watch.add(before, Moment::now());
        progress.step();
    }
    drop(progress);
    report.others.during = watch.share();
    summary::fill(&mut report, args, &subjects);
    args.output.publish(report)
}

fn check_options(args: &SubBlockArgs) -> Result<(), CliError> {
    if !(args.seconds > 0.0 && args.seconds <= SECONDS_MAX) {
        return Err(CliError::parameters(format!(
            "--seconds {}: give more than 0 and at most {SECONDS_MAX}",
            args.seconds
        )));
    }
    match args.block {
        512 | 1024 | 2048 => Ok(()),
        other => Err(CliError::parameters(format!(
            "--block {other}: give 512, 1024 or 2048, less than a cipher sector of {SECTOR_SIZE}"
        ))),
    }
}

fn subjects(
    medium: &Gate,
    slow: &Gate,
    ciphers: &[Cipher],
    args: &SubBlockArgs,
) -> Result<Vec<Subject>, CliError> {
    let mut subjects = Vec::new();
    let mut add = |is_slow, cipher, writes, gate| {
        subjects.push(Subject {
            is_slow,
            cipher,
            writes,
            gate,
            samples: Vec::new(),
            latencies: Vec::new(),
        });
    };
    for (is_slow, medium) in [(true, slow), (false, medium)] {
        for (cipher, word) in ciphers.iter().zip([XTS, CBC]) {
            for exclusion in [Exclusion::Exclusive, Exclusion::Shared] {
                let clear = cipher.in_blocks(medium, args.block)?;
                // As a volume has it: no layer where the cipher does it alone.
                let gate = if exclusion == Exclusion::Shared
                    && clear.geometry().logical_block == args.block
                {
                    clear
                } else {
                    small_blocks(clear, args.block, exclusion)?
                };
                add(is_slow, word, Writes::Parts(exclusion), gate);
            }
        }
    }
    let clear = || ciphers[1].in_blocks(medium, SECTOR_SIZE);
    add(false, CBC, Writes::Whole { locking: false }, clear()?);
    let locked = small_blocks(clear()?, args.block, Exclusion::Shared)?;
    add(false, CBC, Writes::Whole { locking: true }, locked);
    Ok(subjects)
}

fn small_blocks(clear: Gate, block: u32, exclusion: Exclusion) -> Result<Gate, CliError> {
    let options = SubBlockOptions {
        logical_block: block,
        sector: SECTOR_SIZE,
        exclusion,
    };
    Ok(Gate::new(SubBlockDevice::new(clear, options)?))
}

/// Every subject, forwards and backwards in turns. Those that differ by little have many short turns, close
/// together.
fn one_run(run: u32, subjects: &mut [Subject], args: &SubBlockArgs) -> Result<(), CliError> {
    let (whole, parts): (Vec<_>, Vec<_>) = subjects
        .iter_mut()
        .partition(|subject| matches!(subject.writes, Writes::Whole { .. }));
    one_turn_each(run, parts, args.seconds, args)?;
    let mut whole = whole;
    for turn in 0..WHOLE_TURNS {
        let again = whole.iter_mut().map(|subject| &mut **subject).collect();
        one_turn_each(
            run + turn,
            again,
            args.seconds / f64::from(WHOLE_TURNS),
            args,
        )?;
    }
    Ok(())
}

fn one_turn_each(
    turn: u32,
    mut subjects: Vec<&mut Subject>,
    seconds: f64,
    args: &SubBlockArgs,
) -> Result<(), CliError> {
    if turn % 2 == 1 {
        subjects.reverse();
    }
    for subject in subjects {
        let job = Job {
            shape: subject.shape(args),
            warm_up: WARM_UP,
            time: Duration::from_secs_f64(seconds),
            start: u64::from(turn) + 1,
            // Also: the rate of all the time. A queue may have nothing for milliseconds.
            latency: true,
        };
        let outcome = load::run(&subject.gate, &job)?;
        subject.samples.push(outcome.bytes_per_second);
        subject.latencies.extend(outcome.latency);
    }
    Ok(())
}

impl Subject {
    fn shape(&self, args: &SubBlockArgs) -> Shape {
        Shape {
            direction: Direction::Write,
            pattern: Pattern::Random,
            block: match self.writes {
                Writes::Parts(_) => args.block,
                Writes::Whole { .. } => SECTOR_SIZE,
            },
            depth: args.depth,
            streams: args.jobs,
        }
    }

    fn name(&self, args: &SubBlockArgs) -> String {
        let what = match self.writes {
            Writes::Parts(Exclusion::Exclusive) => "exclusive",
            Writes::Parts(Exclusion::Shared) => "shared",
            Writes::Whole { locking: false } => "whole sectors, no locking",
            Writes::Whole { locking: true } => "whole sectors, with locking",
        };
        let medium = if self.is_slow {
            format!("writes of {}", args.write)
        } else {
            "RAM".to_owned()
        };
        format!("{what}, {}, {medium}", self.cipher)
    }

    fn row(&self, args: &SubBlockArgs) -> Row {
        Row {
            name: self.name(args),
            front: "in-process",
            cipher: Some(self.cipher.to_owned()),
            shape: self.shape(args),
            latency: Latency::median(&self.latencies),
            ..Row::default()
        }
        .sampled(self.samples.clone())
    }
}
