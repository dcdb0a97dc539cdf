//! `bench zoned`: what encryption costs a zoned disk, and what order costs who lost it.
//!
//! ```text
//! media   emulated zones over RAM, and over RAM that is as slow as an SSD
//! ways    plain      no cipher; writes reach each zone in order
//!         encrypted  the submitter encrypts: the order is never lost
//!         pool       threads encrypt, whichever comes first: what comes back is put in order again
//! loads   4k and 128k, 1 and 16 in flight, to 1 and 8 zones
//! ```
//!
//! The pool is what dm-crypt does not do on zoned disks, and why; it exists in this bench only. Each
//! way first writes what is then compared byte by byte on the medium.

mod check;
mod pool;
mod summary;
mod writer;

use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use cryptline_engine::Gate;
use cryptline_engine::base::ZonedDevice;
use cryptline_engine::dispatch::{Dispatch, Mode};
use cryptline_engine::layer::{CryptOptions, DelayDevice, DelaySpec, zoned};
use cryptline_engine::zone::ZoneLayout;

use super::machine::{Moment, Others, Watch};
use super::volume::{Cipher, ram};
use super::{Output, Progress, Report};
use crate::{CliError, size};
use pool::Pool;
use writer::{Load, Writer};

/// Zones of each medium, and the most that are written to side by side.
const ZONES: u64 = 8;
/// Zone sizes that hold a turn.
const ZONE_SIZE_MIN: u64 = 1 << 20;
/// Longest turn, in seconds.
const SECONDS_MAX: f64 = 60.0;

/// What to measure.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  cryptline bench zoned                                in about half a minute
  cryptline bench zoned --json zoned.json --html zoned.html
  cryptline bench zoned --slow write=10us,rate=5G      a faster SSD

Writes zones from their start on, 4 KiB and 128 KiB at a time, 1 and 16 in flight, to 1 and 8 zones:
plain, encrypted by who submits, and encrypted by a pool of threads whose results are put in order
again. The zones are emulated over RAM and over RAM that is as slow as --slow says. Takes twice 8
times --zone-size of memory. The JSON is described in docs/bench-json.md.")]
pub struct ZonedArgs {
    /// Size of a zone, a power of two
    #[arg(long, value_name = "SIZE", default_value = "32M", value_parser = size::parse)]
    pub zone_size: u64,

    /// How slow the slow medium is, as for `serve --delay`
    #[arg(long, value_name = "SPEC", default_value = "write=20us,rate=2G")]
    pub slow: String,

    /// The cipher
    #[arg(long, value_name = "SPEC", default_value = "aes-xts-plain64")]
    pub cipher: String,

    /// Threads of the pool
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub pool: u32,

    /// How often each way is measured
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: u32,

    /// How long each of those takes at most; less where the zones are full before
    #[arg(long, value_name = "S", default_value_t = 0.03)]
    pub seconds: f64,

    /// Where the report goes.
    #[command(flatten)]
    pub output: Output,
}

/// How writes come to the zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    Encrypted,
    Pool,
}

impl Way {
    const ALL: [Self; 3] = [Self::Plain, Self::Encrypted, Self::Pool];

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Encrypted => "encrypted",
            Self::Pool => "pool",
        }
    }
}

/// A medium, and each way to it.
struct Medium {
    is_slow: bool,
    plain: Writer,
    encrypted: Writer,
    pool: Pool,
}

/// One way under one load.
struct Subject {
    medium: usize,
    way: Way,
    load: Load,
    samples: Vec<f64>,
}

/// Measures, and prints when all is done.
///
/// # Errors
/// Exit code 1 for what makes no sense, 4 when a way writes something else than it should.
pub fn run(args: &ZonedArgs) -> Result<(), CliError> {
    check_options(args)?;
    let cipher = Cipher::new(&args.cipher)?;
    let slow = DelaySpec::from_str(&args.slow)
        .map_err(|why| CliError::parameters(format!("--slow {}: {why}", args.slow)))?;
    args.output.check()?;
    let bytes = args.zone_size.saturating_mul(ZONES);
    let mut media = Vec::new();
    for slow in [None, Some(slow)] {
        let memory = ram(bytes, bytes.saturating_mul(2), " for two media")?;
        media.push(Medium::new(&memory, slow, args, &cipher)?);
        let medium = media.last_mut();
        medium.map_or(Ok(()), |medium| {
            check::writes_arrive(medium, &memory, &cipher)
        })?;
    }
    let mut subjects = subjects(media.len());
    let mut report = Report::new("zoned", "Sequential writes to encrypted zones");
    report.others = Others::look();
    let progress = Progress::new(u64::from(args.runs));
    let mut watch = Watch::default();
    for run in 0..args.runs {
        progress.now(format!("run {} of {}", run + 1, args.runs));
        let before = Moment::now();
        for turn in super::runner::order(run, subjects.len()) {
            let subject = &mut subjects[turn];
            let time = Duration::from_secs_f64(args.seconds);
            let rate = media[subject.medium].write(subject.way, &subject.load, time)?;
            subject.samples.push(rate);
        }
        watch.add(before, Moment::now());
        progress.step();
    }
    drop(progress);
    report.others.during = watch.share();
    summary::fill(&mut report, args, &media, &subjects);
    args.output.publish(report)
}

fn check_options(args: &ZonedArgs) -> Result<(), CliError> {
    if !(args.seconds > 0.0 && args.seconds <= SECONDS_MAX) {
        return Err(CliError::parameters(format!(
            "--seconds {}: give more than 0 and at most {SECONDS_MAX}",
            args.seconds
        )));
    }
    if args.zone_size.is_power_of_two() && args.zone_size >= ZONE_SIZE_MIN {
        Ok(())
    } else {
        Err(CliError::parameters(format!(
            "--zone-size {}: give a power of two, at least {ZONE_SIZE_MIN}, such as 32M",
            args.zone_size
        )))
    }
}

/// Those that are compared come one after the other.
fn subjects(media: usize) -> Vec<Subject> {
    let mut subjects = Vec::new();
    for medium in 0..media {
        for load in Load::all() {
            for way in Way::ALL {
                subjects.push(Subject {
                    medium,
                    way,
                    load,
                    samples: Vec::new(),
                });
            }
        }
    }
    subjects
}

impl Medium {
    /// Three ways over the same memory, each with write pointers of its own.
    fn new(
        memory: &Gate,
        slow: Option<DelaySpec>,
        args: &ZonedArgs,
        cipher: &Cipher,
    ) -> Result<Self, CliError> {
        let is_slow = slow.is_some();
        let below = match slow {
            Some(slow) => Gate::new(DelayDevice::new(memory.clone(), slow)),
            None => memory.clone(),
        };
        let layout = ZoneLayout::new(memory.geometry().size, args.zone_size)
            .map_err(|error| CliError::parameters(format!("--zone-size: {error}")))?;
        let zones = || Ok::<_, CliError>(Gate::new(ZonedDevice::in_memory(below.clone(), layout)?));
        let inline = CryptOptions {
            dispatch: Dispatch::both(Mode::Inline),
            ..CryptOptions::default()
        };
        let encrypted = zoned::encrypted(zones()?, cipher.sectors()?, inline)?;
        let ordered = Writer::new(&zoned::ordered(zones()?)?)?;
        Ok(Self {
            is_slow,
            plain: Writer::new(&zoned::ordered(zones()?)?)?,
            encrypted: Writer::new(&encrypted)?,
            pool: Pool::new(ordered, cipher.sectors()?, args.pool)?,
        })
    }

    /// Writes for `time`, or until the zones are full. Bytes in a second.
    fn write(&mut self, way: Way, load: &Load, time: Duration) -> Result<f64, CliError> {
        match way {
            Way::Plain => self.plain.write(load, time),
            Way::Encrypted => self.encrypted.write(load, time),
            Way::Pool => self.pool.write(load, time),
        }
    }

    fn name(&self) -> &'static str {
        if self.is_slow { "slow" } else { "RAM" }
    }
}
