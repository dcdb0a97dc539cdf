//! `bench zoned`: what encryption costs a zoned disk, and what order costs who lost it.
//!
//! ```text
//! media   emulated zones over RAM, and over RAM that is as slow as an SSD
//! ways    plain      no cipher; writes reach each zone in order
//!         encrypted  the submitter encrypts: the order is never lost
//!         auto       helpers encrypt ahead of the write pointer while cores are idle; in order by tickets
//!         pool       threads encrypt, whichever comes first: what comes back is put in order again
//! loads   4k and 128k, 1 and 16 in flight, to 1 and 8 zones
//! ```
//!
//! The pool is what dm-crypt does not do on zoned disks, and why; it exists in this bench only. Each
//! way first writes what is then compared byte by byte on the medium.

mod pool;
mod summary;
mod writer;

use std::str::FromStr;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use cryptline::size;
use cryptline_engine::base::ZonedDevice;
use cryptline_engine::blocking::Blocking;
use cryptline_engine::dispatch::{Dispatch, Helpers, Mode};
use cryptline_engine::layer::{CryptOptions, DelayDevice, DelaySpec, zoned};
use cryptline_engine::zone::ZoneLayout;
use cryptline_engine::{BackendChoice, Gate};

use crate::Error;
use crate::contents::Contents;
use crate::output::Output;
use crate::report::{Direction, Pattern, Report, Row, Shape, word};
use crate::runner::{self, Group};
use crate::volume::{Cipher, HelperArgs, ram};
use writer::{Load, Writer, places};

/// Zones of each medium, and the most that are written to side by side.
const ZONES: u64 = 8;
/// Zone sizes that hold a turn.
const ZONE_SIZE_MIN: u64 = 1 << 20;
/// Before each turn: helpers look every 100 ms whether cores are idle, and may have to look twice. The other ways get as
/// much, since memory and processor are faster once they are warm.
const WARM_UP: Duration = Duration::from_millis(210);
/// Where turns are shorter than usual, no longer than so many of them.
const WARM_UP_TURNS: u32 = 7;
/// Writes that are compared with what they should be: some to every zone.
const CHECKED: usize = 64;
const POOL_MAX: u32 = 64;

/// What to measure.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  cryptline bench zoned                                in about four minutes
  cryptline bench zoned --json zoned.json --html zoned.html
  cryptline bench zoned --slow write=10us,rate=5G      a faster SSD

Writes zones from their start on, 4 KiB and 128 KiB at a time, 1 and 16 in flight, to 1 and 8 zones:
plain, encrypted by who submits, encrypted by who submits and helpers, and encrypted by a pool of
threads whose results are put in order again. The zones are emulated over RAM and over RAM that is as slow as --slow says. Takes twice 8
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

    /// Threads of the pool [default: one more than there are helpers]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(POOL_MAX)))]
    pub pool: Option<u32>,

    /// For `auto`.
    #[command(flatten)]
    pub helpers: HelperArgs,

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    Plain,
    Encrypted,
    Auto,
    Pool,
}

/// All of them, in the order of the tables.
const WAYS: [Way; 4] = [Way::Plain, Way::Encrypted, Way::Auto, Way::Pool];

impl Way {
    /// Who runs the cipher, where the engine does.
    fn mode(self) -> Option<Mode> {
        match self {
            Self::Plain | Self::Pool => None,
            Self::Encrypted => Some(Mode::Inline),
            Self::Auto => Some(Mode::Auto),
        }
    }
}

/// A medium, and each way to it, in the order of [`WAYS`].
struct Medium {
    is_slow: bool,
    zone_size: u64,
    memory: Gate,
    ways: [Writer; 4],
}

/// One way over one medium under one load.
#[derive(Clone, Copy)]
struct Subject {
    is_slow: bool,
    way: Way,
    load: Load,
}

/// How many threads encrypt beside the one that submits, or instead of it.
#[derive(Clone, Copy)]
struct Threads {
    helpers: usize,
    pool: u32,
}

impl Threads {
    /// As many in the pool as `auto` has, unless somebody wants others.
    fn of(args: &ZonedArgs) -> Result<Self, Error> {
        let helpers = args.helpers.count()?;
        let with_submitter = u32::try_from(helpers + 1).unwrap_or(u32::MAX);
        let pool = args.pool.unwrap_or(with_submitter.min(POOL_MAX));
        Ok(Self { helpers, pool })
    }
}

/// Measures.
pub fn measure(args: &ZonedArgs) -> Result<Report, Error> {
    let time = runner::seconds(args.seconds)?;
    check_zone_size(args.zone_size)?;
    let cipher = Cipher::new(&args.cipher)?;
    let slow =
        DelaySpec::from_str(&args.slow).map_err(|why| Error::parameters(format!("--slow {}: {why}", args.slow)))?;
    let threads = Threads::of(args)?;
    let helpers = Helpers::start(threads.helpers)?;
    let medium = |slow| Medium::new(slow, args.zone_size, &cipher, &helpers, threads.pool);
    let mut media = [medium(None)?, medium(Some(slow))?];
    for medium in &mut media {
        medium.check(&cipher)?;
    }
    let subjects = Subject::all();
    let mut report = Report::new("zoned", "Sequential writes to encrypted zones");
    report = report.of(args.runs, args.seconds);
    report.rows = subjects.iter().map(|subject| subject.row(args)).collect();
    runner::run(&mut report, &Group::all(subjects.len()), |rows, turn| {
        let Subject { is_slow, way, load } = &subjects[turn.way];
        let writer = &mut media[usize::from(*is_slow)].ways[*way as usize];
        let mut write = |time| writer.write(load, places(*load, args.zone_size), None, time);
        let (warm, warm_up) = (Instant::now(), WARM_UP.min(WARM_UP_TURNS * time));
        while warm.elapsed() < warm_up {
            write(warm_up)?;
        }
        rows[turn.way].take_rate(write(time)?);
        Ok(())
    })?;
    summary::fill(&mut report, args, threads);
    Ok(report)
}

fn check_zone_size(size: u64) -> Result<(), Error> {
    if size.is_power_of_two() && size >= ZONE_SIZE_MIN {
        Ok(())
    } else {
        Err(Error::parameters(format!(
            "--zone-size {size}: give a power of two, at least {ZONE_SIZE_MIN}, such as 32M"
        )))
    }
}

impl Subject {
    /// Those that are compared come one after the other.
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for is_slow in [false, true] {
            for load in Load::all() {
                all.extend(WAYS.map(|way| Self { is_slow, way, load }));
            }
        }
        all
    }

    fn name(self) -> String {
        let medium = medium_name(self.is_slow);
        format!("{}, {medium}, {}", word(&self.way), self.load.name())
    }

    fn row(self, args: &ZonedArgs) -> Row {
        Row {
            name: self.name(),
            cipher: (self.way != Way::Plain).then(|| args.cipher.clone()),
            dispatch: self.way.mode().map(|mode| mode.to_string()),
            shape: Shape::new(Direction::Write, Pattern::Sequential, self.load.block, self.load.depth),
            ..Row::default()
        }
    }
}

fn medium_name(is_slow: bool) -> &'static str {
    if is_slow { "slow" } else { "RAM" }
}

impl Medium {
    /// All ways over the same memory, each with write pointers of its own.
    fn new(
        slow: Option<DelaySpec>,
        zone_size: u64,
        cipher: &Cipher,
        helpers: &Helpers,
        pool: u32,
    ) -> Result<Self, Error> {
        let bytes = zone_size.saturating_mul(ZONES);
        let memory = ram(bytes, bytes.saturating_mul(2), " for two media")?;
        let is_slow = slow.is_some();
        let below = match slow {
            Some(slow) => Gate::new(DelayDevice::new(memory.clone(), slow)),
            None => memory.clone(),
        };
        let layout =
            ZoneLayout::new(bytes, zone_size).map_err(|error| Error::parameters(format!("--zone-size: {error}")))?;
        let zones = || Ok::<_, Error>(Gate::new(ZonedDevice::in_memory(below.clone(), layout)?));
        let sectors = || cipher.sectors();
        let plain = || Writer::new(&zoned::ordered(zones()?)?);
        let by = |mode| {
            let options = CryptOptions {
                dispatch: Dispatch::both(mode),
                helpers: Some(helpers.clone()),
                ..CryptOptions::default()
            };
            Writer::new(&zoned::encrypted(zones()?, sectors()?, options)?)
        };
        Ok(Self {
            is_slow,
            zone_size,
            ways: [plain()?, by(Mode::Inline)?, by(Mode::Auto)?, plain()?.with_pool(sectors()?, pool)?],
            memory,
        })
    }

    /// Whether each way writes what it should: blocks to every zone, looked at in the memory below.
    fn check(&mut self, cipher: &Cipher) -> Result<(), Error> {
        let sectors = cipher.sectors()?;
        let failed = |fault| Error::device(format!("cannot read the medium: {fault}"));
        let mut reader = Blocking::new(&self.memory, BackendChoice::Auto)?;
        let load = Load { block: 4096, depth: 16, zones: ZONES };
        let (mut found, mut expected) = (vec![0; 4096], vec![0; 4096]);
        for (seed, way) in (1..).zip(WAYS) {
            let contents = Contents::new(seed);
            let writer = &mut self.ways[way as usize];
            let checked = || places(load, self.zone_size).take(CHECKED);
            writer.write(&load, checked(), Some(contents), Duration::MAX)?;
            for place in checked() {
                contents.fill(place.offset, &mut expected);
                if way != Way::Plain {
                    sectors.encrypt_in_place(place.offset / 512, &mut expected);
                }
                reader.read_at(place.offset, &mut found).map_err(failed)?;
                if found != expected {
                    return Err(Error::device(format!(
                        "{}, {}: byte {} and what follows is not what was written; this is a bug in cryptline, or the memory is bad",
                        word(&way),
                        medium_name(self.is_slow),
                        place.offset
                    )));
                }
            }
        }
        Ok(())
    }
}
