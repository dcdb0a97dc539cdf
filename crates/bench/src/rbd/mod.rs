//! `bench rbd`: our encryption of Ceph images beside librbd's own, and beside none.
//!
//! ```text
//! load ─► crypt ─► base rbd ─► librbd ─────────► image `ours`
//! load ──────────► base rbd ─► librbd (LUKS2) ─► image `theirs`
//! load ──────────► base rbd ─► librbd ─────────► image `plain`
//!
//! cluster   one of this machine, or a given one
//! images    made, filled, and compared: each encrypted one is read by both
//! summary   table and figures
//! ```
//!
//! It is the same client each time, in one process, so the process's time is what the client costs; the cluster's
//! daemons are others.

mod cluster;
mod images;
mod summary;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use cryptline::size;
use rustix::time::{ClockId, clock_gettime};

use crate::Error;
use crate::load::{self, Job};
use crate::output::Output;
use crate::process::Stop;
use crate::report::{Direction, Pattern, Report, Row, Shape, word};
use crate::runner::{self, Group};
use cluster::Cluster;
use images::Images;

/// Load before each turn counts.
const WARM_UP: Duration = Duration::from_millis(100);
const SIZE_MIN: u64 = 16 << 20;

/// What to measure.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  cryptline bench rbd                                  a cluster of its own, in two minutes
  cryptline bench rbd --conf /etc/ceph/ceph.conf       a real one, over the network
  cryptline bench rbd --json rbd.json --html rbd.html

Gives three images the same load in turns: a plain one, one that librbd decrypts (`rbd
encryption`), and one that cryptline does. Both encrypted ones have the same LUKS2 format, and
each is read by both first. Afterwards three quarters of each are discarded, as fstrim would, and
`rbd du` tells what they still take.

Without --conf it starts a monitor and a storage daemon on loopback, which keep everything in
memory, about six times --size. Ratios of such a cluster say nothing of networks. Needs the Debian
packages ceph-common and librbd1, and without --conf ceph-mon and ceph-osd. The JSON is described
in docs/bench-json.md.")]
pub struct RbdArgs {
    /// Size of each clear disk
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size::parse_disk)]
    pub size: u64,

    /// Configuration of a cluster to measure with, as client.admin [default: a cluster of its own]
    #[arg(long, value_name = "PATH")]
    pub conf: Option<PathBuf>,

    /// Pool for the images; they are removed at the end
    #[arg(long, value_name = "POOL", default_value = cryptline_ceph_node::POOL)]
    pub pool: String,

    /// How often each way has its turn at each load
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: u32,

    /// How long each turn takes
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub seconds: f64,

    /// Where the report goes.
    #[command(flatten)]
    pub output: Output,
}

/// Who encrypts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    Plain,
    #[value(name = "librbd LUKS2")]
    Librbd,
    #[value(name = "cryptline LUKS2")]
    Ours,
}

/// All of them, in the order of the images.
const WAYS: [Way; 3] = [Way::Plain, Way::Librbd, Way::Ours];

/// What is asked of the images.
const RAND_READ: Shape = Shape::new(Direction::Read, Pattern::Random, 4096, 32);
const RAND_WRITE: Shape = Shape::new(Direction::Write, Pattern::Random, 4096, 32);
const READ: Shape = Shape::new(Direction::Read, Pattern::Sequential, 1 << 20, 8);
const WRITE: Shape = Shape::new(Direction::Write, Pattern::Sequential, 1 << 20, 8);
const SECTOR_WRITE: Shape = Shape::new(Direction::Write, Pattern::Random, 512, 32);
const LOADS: [Shape; 5] = [RAND_READ, RAND_WRITE, READ, WRITE, SECTOR_WRITE];

/// What was measured beside the rows.
struct Measured<'a> {
    args: &'a RbdArgs,
    /// Processor seconds of this process for a GiB, for each row and each of its turns.
    cpu: Vec<Vec<f64>>,
    /// Bytes that each way's image takes for data, over those that are live, after the discards.
    used: [f64; 3],
    sha256: String,
    medium: String,
}

/// Measures.
pub fn measure(args: &RbdArgs) -> Result<Report, Error> {
    let time = runner::seconds(args.seconds)?;
    if args.size < SIZE_MIN || !args.size.is_multiple_of(SIZE_MIN) {
        return Err(Error::parameters(format!("--size {}: give a multiple of {}", args.size, size::human(SIZE_MIN))));
    }
    let stop = Stop::watch()?;
    let cluster = Cluster::of(args)?;
    let images = Images::make(&cluster, args.size)?;
    let sha256 = images.check(&stop)?;
    let gates = images.open_all()?;

    let mut report = Report::new("rbd", "Encryption of Ceph images").of(args.rounds, args.seconds);
    report.rows = subjects().map(|(load, way)| row(load, way, &sha256)).collect();
    let mut cpu = vec![Vec::new(); report.rows.len()];
    let ways = WAYS.len();
    let group = |(at, load): (usize, &Shape)| Group::once(load.title(), at * ways..(at + 1) * ways);
    let groups: Vec<Group> = LOADS.iter().enumerate().map(group).collect();
    runner::run(&mut report, &groups, |rows, turn| {
        stop.check()?;
        let job = Job::timed(LOADS[turn.way / ways], WARM_UP, time, u64::from(turn.run) + 1);
        let before = process_time();
        let sample = load::run(&gates[turn.way % ways], &job)?;
        let used = process_time().saturating_sub(before).as_secs_f64();
        let bytes = sample.bytes_per_second * (WARM_UP + time).as_secs_f64();
        cpu[turn.way].push(used / bytes * f64::from(1 << 30));
        rows[turn.way].take(sample);
        Ok(())
    })?;
    if cluster.is_own() {
        // Others are its daemons.
        report.rows.iter_mut().for_each(|row| row.others = None);
    }
    let measured =
        Measured { args, cpu, used: images.used_after_discards(&gates)?, sha256, medium: cluster.describe() };
    summary::fill(&mut report, &measured);
    Ok(report)
}

/// In the order of the rows.
fn subjects() -> impl Iterator<Item = (Shape, Way)> {
    LOADS.into_iter().flat_map(|load| WAYS.map(|way| (load, way)))
}

fn name(load: Shape, way: Way) -> String {
    format!("{}, {}", word(&way), load.title())
}

fn row(load: Shape, way: Way, sha256: &str) -> Row {
    Row {
        name: name(load, way),
        cipher: (way != Way::Plain).then(|| "aes-xts-plain64".to_owned()),
        shape: load,
        sha256: Some(sha256.to_owned()),
        ..Row::default()
    }
}

/// Of all threads, librbd's too.
fn process_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}
