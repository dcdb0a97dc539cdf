//! `bench inline`: what the script of the 2020 dm-devel thread does, with a RAM volume.
//!
//! ```text
//! contents   the same random bytes, and SHA-256 of what each way reads ── must be equal
//! subjects   plain, and null cipher and AES by each dispatch mode       ── all on one RAM disk
//! model      memory copy alone, cipher alone                            ── the floor
//! ```
//!
//! Contents are checked first, in passes of their own; the timed runs read the same memory and do
//! not hash. In each run every subject has its turn, and goes on where the one before ended: none
//! may find in the caches what another has just read. The order of the turns rotates from run to run
//! and is backwards in every other one. Turns are short and many, so that what a ratio compares lies
//! close together in time.

mod contents;
mod model;
mod over_nbd;
mod summary;

use std::time::Duration;

use clap::{Args, ValueEnum};
use cryptline_engine::Gate;
use cryptline_engine::dispatch::Mode;

use super::load::{self, Job};
use super::machine::{Moment, Others, Watch};
use super::report::{Direction, Pattern, Row, Shape};
use super::volume::{Cipher, NULL_CIPHER, Settings, helpers, ram};
use super::{Output, Progress, Report};
use crate::{CliError, size};
use model::Model;
use over_nbd::Served;

/// What the thread reads with.
const BLOCK: u32 = 4096;
/// Modes that are measured.
const MODES: [Mode; 3] = [Mode::Inline, Mode::Queue, Mode::Auto];
/// Before each turn: enough to fill the caches again and to wake sleeping threads.
const WARM_UP: Duration = Duration::from_millis(5);
/// Longest turn, in seconds.
const SECONDS_MAX: f64 = 3600.0;

/// How requests reach the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Front {
    /// By the library's calls, in this process
    #[default]
    InProcess,
    /// By NBD, from a server in this process over a Unix socket
    Nbd,
}

/// What to measure.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  cryptline bench inline                                   4 GiB of RAM, in about a minute
  cryptline bench inline --size 512M --json inline.json --html inline.html
  cryptline bench inline --front nbd                       the same through a socket

Reads one RAM disk in 4 KiB requests, one at a time: plain, through the null cipher and through
--cipher, by each dispatch mode. What each reads is hashed first and must be equal. The disk and a
copy for the memory's own speed need twice --size of free memory. The JSON is described in
docs/bench-json.md.")]
pub struct InlineArgs {
    /// Size of the volume
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = size::parse)]
    pub size: u64,

    /// The cipher beside the null cipher
    #[arg(long, value_name = "SPEC", default_value = "aes-xts-plain64")]
    pub cipher: String,

    /// Threads that help large requests, for `auto` [default: one less than there are processors]
    #[arg(long, value_name = "N")]
    pub helpers: Option<usize>,

    /// How requests reach the volume
    #[arg(long, value_enum, default_value_t)]
    pub front: Front,

    /// How often each way is measured
    #[arg(long, value_name = "N", default_value_t = 101, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: u32,

    /// How long each of those takes
    #[arg(long, value_name = "S", default_value_t = 0.02)]
    pub seconds: f64,

    /// Where the report goes.
    #[command(flatten)]
    pub output: Output,
}

/// One way to read the same bytes.
struct Subject {
    name: String,
    /// `None` for the plain disk.
    cipher: Option<String>,
    mode: Option<Mode>,
    gate: Gate,
    sha256: Option<String>,
    samples: Vec<f64>,
}

/// Measures, and prints when all is done.
///
/// # Errors
/// Exit code 1 for what makes no sense, 4 when a way reads other bytes than another.
pub fn run(args: &InlineArgs) -> Result<(), CliError> {
    if !(args.seconds > 0.0 && args.seconds <= SECONDS_MAX) {
        return Err(CliError::parameters(format!(
            "--seconds {}: give more than 0 and at most {SECONDS_MAX}",
            args.seconds
        )));
    }
    let helpers = helpers(args.helpers)?;
    let cipher = Cipher::new(&args.cipher)?;
    if cipher.is_null() {
        return Err(CliError::parameters(format!(
            "--cipher {}: the null cipher is measured anyway; name another, such as aes-xts-plain64",
            args.cipher
        )));
    }
    let null = Cipher::new(NULL_CIPHER)?;
    args.output.check()?;
    let medium = match args.front {
        Front::InProcess => {
            let needed = args.size.saturating_mul(2);
            let why = " (the volume, and a copy to measure the memory by)";
            ram(args.size, needed, why)?
        }
        Front::Nbd => ram(args.size, args.size, "")?,
    };
    let mut subjects = subjects(helpers, &medium, &null, &cipher)?;
    let mut report = Report::new("inline", "Reading inline, by queue, and plain");
    report.others = Others::look();
    let runs = u64::from(args.runs);
    let progress = Progress::new(u64::try_from(subjects.len()).unwrap_or(0) + runs);
    let mut way_in = match args.front {
        Front::InProcess => {
            contents::check(&medium, &mut subjects, &progress, contents::read_all)?;
            WayIn::Calls(Box::new(Model::new(args.size, cipher.sectors()?)?))
        }
        Front::Nbd => {
            let served = Served::start(&subjects)?;
            contents::check(&medium, &mut subjects, &progress, |subject| {
                served.sha256(subject)
            })?;
            WayIn::Nbd(served)
        }
    };
    let mut watch = Watch::default();
    let mut start = 0;
    for run in 0..args.runs {
        progress.now(format!("run {} of {}", run + 1, args.runs));
        let before = Moment::now();
        start = one_run(run, start, &mut subjects, &mut way_in, args)?;
        watch.add(before, Moment::now());
        progress.step();
    }
    drop(progress);
    report.others.during = watch.share();
    let model = match &way_in {
        WayIn::Calls(model) => Some(model.as_ref()),
        WayIn::Nbd(_) => None,
    };
    summary::fill(&mut report, args, &subjects, model);
    args.output.publish(report)
}

/// How requests come to the subjects.
enum WayIn {
    /// By calls, which is what the model is compared with.
    Calls(Box<Model>),
    /// Through a socket.
    Nbd(Served),
}

/// Plain, and each cipher by each mode that there is.
fn subjects(
    helpers: usize,
    medium: &Gate,
    null: &Cipher,
    cipher: &Cipher,
) -> Result<Vec<Subject>, CliError> {
    let subject = |name: String, cipher: Option<&Cipher>, mode, gate| Subject {
        name,
        cipher: cipher.map(|cipher| cipher.word().to_owned()),
        mode,
        gate,
        sha256: None,
        samples: Vec::new(),
    };
    let settings = Settings::new(helpers)?;
    let mut subjects = vec![subject("plain".into(), None, None, medium.clone())];
    for (cipher, short) in [(null, "null cipher"), (cipher, cipher.word())] {
        for mode in MODES {
            let gate = cipher.over(medium, mode, &settings)?;
            subjects.push(subject(
                format!("{mode}, {short}"),
                Some(cipher),
                Some(mode),
                gate,
            ));
        }
    }
    Ok(subjects)
}

/// Every subject and the model once, by calls from block `start` on. Gives the next run's start.
fn one_run(
    run: u32,
    start: u64,
    subjects: &mut [Subject],
    way_in: &mut WayIn,
    args: &InlineArgs,
) -> Result<u64, CliError> {
    let time = Duration::from_secs_f64(args.seconds);
    let mut job = Job {
        shape: shape(),
        warm_up: WARM_UP,
        time,
        start,
        latency: false,
    };
    for turn in order(run, subjects.len() + 1) {
        match (subjects.get_mut(turn), &mut *way_in) {
            (Some(subject), WayIn::Calls(_)) => {
                let outcome = load::run(&subject.gate, &job)?;
                subject.samples.push(outcome.bytes_per_second);
                job.start = outcome.next;
            }
            (Some(subject), WayIn::Nbd(served)) => {
                let rate = served.measure(subject, WARM_UP, time)?;
                subject.samples.push(rate);
            }
            (None, WayIn::Calls(model)) => model.sample(job.start, WARM_UP, time),
            (None, WayIn::Nbd(_)) => {}
        }
    }
    Ok(job.start)
}

/// The order of `turns` turns in a run: forwards and backwards from each, so that each has now this and now
/// that neighbour before it.
pub(super) fn order(run: u32, turns: usize) -> Vec<usize> {
    let first = usize::try_from(run / 2).unwrap_or(0) % turns;
    let mut order: Vec<usize> = (0..turns).map(|turn| (first + turn) % turns).collect();
    if run % 2 == 1 {
        order.reverse();
    }
    order
}

/// The thread's: 4 KiB, one at a time, from the first block to the last.
fn shape() -> Shape {
    Shape {
        direction: Direction::Read,
        pattern: Pattern::Sequential,
        block: BLOCK,
        depth: 1,
        streams: 1,
    }
}

impl Subject {
    fn row(&self, front: Front) -> Row {
        Row {
            name: self.name.clone(),
            front: match front {
                Front::InProcess => "in-process",
                Front::Nbd => "nbd",
            },
            cipher: self.cipher.clone(),
            dispatch: self.mode.map(|mode| mode.to_string()),
            shape: shape(),
            sha256: self.sha256.clone(),
            ..Row::default()
        }
        .sampled(self.samples.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_turn_comes_once_in_each_run_and_at_every_place_in_some() {
        let turns = 8;
        let mut places = BTreeSet::new();
        for run in 0..16 {
            let order = order(run, turns);
            assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), turns);
            places.extend(order.into_iter().enumerate());
        }
        assert_eq!(places.len(), turns * turns);
    }
}
