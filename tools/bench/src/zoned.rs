//! Cost of encryption to a zoned disk, and of restoring order where it was lost.
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
//! The pool is what dm-crypt does not do on zoned disks, and why; it exists in this program only. Each
//! way first writes what is then compared byte by byte on the medium.

mod pool;
mod writer;

use std::str::FromStr;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use cryptline::size;
use cryptline_engine::base::ZonedDevice;
use cryptline_engine::blocking::Blocking;
use cryptline_engine::dispatch::{Dispatch, DispatchMode, HelperThreads};
use cryptline_engine::layer::{CryptOptions, DelayDevice, DelaySpec, zoned};
use cryptline_engine::zone::ZoneLayout;
use cryptline_engine::{BackendChoice, Gate};

use crate::contents::TestPattern;
use crate::error::{Error, Of as _, Result, fail};
use crate::plan::{Plan, RunArgs};
use crate::report::{FigureSubject, PlanReport, Row, TurnResults, word};
use crate::volume::{CipherWord, HelperArgs, ram};
use writer::{ZoneLoad, ZoneWriter, offsets};

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
/// With fewer runs, or shorter ones, there are no goals.
const ENOUGH: (u32, f64) = (3, 0.03);

/// Options of the measurement.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  cryptline-bench zoned                                in about four minutes
  cryptline-bench zoned --slow write=10us,rate=5G      a faster SSD

Writes zones from their start on, 4 KiB and 128 KiB at a time, 1 and 16 in flight, to 1 and 8 zones:
plain, encrypted by who submits, encrypted by who submits and helpers, and encrypted by a pool of
threads whose results are put in order again. The zones are emulated over RAM and over RAM that is as slow as --slow says. Takes twice 8
times --size, which is that of a zone, of memory.")]
pub struct ZonedArgs {
    /// How slow the slow medium is, as for `serve --delay`
    #[arg(long, value_name = "SPEC", default_value = "write=20us,rate=2G")]
    slow: String,

    /// The cipher
    #[arg(long, value_name = "SPEC", default_value = "aes-xts-plain64")]
    cipher: String,

    /// Threads of the pool [default: one more than there are helpers]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(POOL_MAX)))]
    pool: Option<u32>,

    #[command(flatten)]
    helpers: HelperArgs,
}

/// How writes come to the zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ZoneWriters {
    Plain,
    Encrypted,
    Auto,
    Pool,
}

/// All of them, in the order of the tables.
const WAYS: [ZoneWriters; 4] = [ZoneWriters::Plain, ZoneWriters::Encrypted, ZoneWriters::Auto, ZoneWriters::Pool];

impl ZoneWriters {
    /// Returns who runs the cipher, where the engine does.
    fn mode(self) -> Option<DispatchMode> {
        match self {
            Self::Plain | Self::Pool => None,
            Self::Encrypted => Some(DispatchMode::Inline),
            Self::Auto => Some(DispatchMode::Auto),
        }
    }
}

/// A medium, and each way to it, in the order of [`WAYS`].
struct ZonedMedium {
    is_slow: bool,
    zone_size: u64,
    memory: Gate,
    ways: [ZoneWriter; 4],
}

/// Measures.
pub fn measure(args: &ZonedArgs, runs: RunArgs) -> Result<PlanReport> {
    let runs = runs.or(32 << 20, 15, 0.03)?;
    let (zone_size, time) = (runs.size, runs.time);
    if !zone_size.is_power_of_two() || zone_size < ZONE_SIZE_MIN {
        fail!("--size {zone_size}: of a zone; use a power of two, at least {ZONE_SIZE_MIN}, such as 32M");
    }
    let cipher = CipherWord::new(&args.cipher)?;
    let slow = DelaySpec::from_str(&args.slow).of(format_args!("--slow {}", args.slow))?;
    let beside = args.helpers.count()?;
    // As many in the pool as `auto` has with the submitter, unless somebody wants others.
    let pool = args.pool.unwrap_or_else(|| u32::try_from(beside + 1).unwrap_or(u32::MAX).min(POOL_MAX));
    let helpers = HelperThreads::start(beside)?;
    let medium = |slow| ZonedMedium::new(slow, zone_size, &cipher, &helpers, pool);
    let mut media = [medium(None)?, medium(Some(slow))?];
    for medium in &mut media {
        medium.check(&cipher)?;
    }
    let loads: Vec<ZoneLoad> = ZoneLoad::all().collect();
    // Those that are compared come one after the other.
    let mut rows = Vec::new();
    for is_slow in [false, true] {
        for load in &loads {
            rows.extend(WAYS.map(|way| Row {
                cipher: (way != ZoneWriters::Plain).then(|| args.cipher.clone()),
                dispatch: way.mode().map(|mode| mode.to_string()),
                ..Row::new(name(way, is_slow, load), load.shape())
            }));
        }
    }
    let plan = Plan {
        bench: "zoned",
        title: "Sequential writes to encrypted zones",
        medium: format!("emulated zones of {} over RAM, and over RAM as slow as {}", size::human(zone_size), args.slow),
        runs,
        rows,
        notes: notes(beside, pool),
    };
    let mut report = plan.run(|_, turn| {
        let (load, way) = (&loads[turn.row / WAYS.len() % loads.len()], turn.row % WAYS.len());
        let writer = &mut media[turn.row / WAYS.len() / loads.len()].ways[way];
        let mut write = |time| writer.write(load, offsets(*load, zone_size), None, time);
        let (warm, warm_up) = (Instant::now(), WARM_UP.min(WARM_UP_TURNS * time));
        while warm.elapsed() < warm_up {
            write(warm_up)?;
        }
        Ok(TurnResults { bytes_per_second: write(time)?, ..TurnResults::default() })
    })?;
    report.weak_below(ENOUGH.0, ENOUGH.1, (0, 0));
    let other = (!args.cipher.starts_with("aes-xts")).then_some("the goal is for aes-xts");
    compare(&mut report, other, beside);
    Ok(report)
}

fn compare(report: &mut PlanReport, other: Option<&str>, helpers: usize) {
    let mut least = |figure,
                     [way, to]: [ZoneWriters; 2],
                     media: &[bool],
                     unless: Option<&str>,
                     chosen: &dyn Fn(&ZoneLoad) -> bool| {
        let pair = |is_slow, load| (name(way, is_slow, &load), vec![name(to, is_slow, &load)]);
        let of_medium = |&is_slow| ZoneLoad::all().filter(chosen).map(move |load| pair(is_slow, load));
        let pairs = media.iter().flat_map(of_medium).collect();
        report.compare(&FigureSubject { name: figure, pairs, ..FigureSubject::default() }.unless(unless));
    };
    use ZoneWriters::{Auto, Encrypted, Plain, Pool};
    let of_shape = |block, depth| move |load: &ZoneLoad| (load.block, load.depth) == (block, depth);
    least("encrypted_over_plain_zoned_4k_qd1", [Encrypted, Plain], &[true], other, &of_shape(4096, 1));
    least("encrypted_over_plain_zoned_128k_qd16", [Encrypted, Plain], &[true], other, &of_shape(128 << 10, 16));
    least("inline_over_resequenced_pool", [Encrypted, Pool], &[false], None, &|load| load.block == 4096);
    let none = (helpers == 0).then_some("no goal: no helpers");
    least("auto_over_resequenced_pool", [Auto, Pool], &[false, true], other.or(none), &|_| true);
}

fn notes(helpers: usize, pool: u32) -> Vec<String> {
    vec![
        "Writes from the start of each zone on, in the order of the zones; all are reset before each turn. All ways have write pointers of their own over the same memory.".into(),
        "Encrypted: who submits a write encrypts it, so that the order is never lost. Auto: helpers take writes of it while cores are idle, and what they have encrypted waits for its turn. Pool: threads encrypt what comes first, and the results are put in order again; it exists in this program only.".into(),
        format!("Threads: {helpers} beside who submits for auto, {pool} in the pool."),
        "Before, each way wrote blocks that were compared on the medium, byte by byte.".into(),
        "On RAM a write is a copy, so that encrypting it is most of the work; the goals are for a medium that takes as long as an SSD.".into(),
    ]
}

/// Builds the name of a row.
fn name(way: ZoneWriters, is_slow: bool, load: &ZoneLoad) -> String {
    format!("{}, {}, {}", word(&way), medium_name(is_slow), load.name())
}

fn medium_name(is_slow: bool) -> &'static str {
    if is_slow { "slow medium" } else { "RAM" }
}

impl ZonedMedium {
    /// All ways over the same memory, each with write pointers of its own.
    fn new(
        slow: Option<DelaySpec>,
        zone_size: u64,
        cipher: &CipherWord,
        helpers: &HelperThreads,
        pool: u32,
    ) -> Result<Self> {
        let bytes = zone_size.saturating_mul(ZONES);
        let memory = ram(bytes, bytes.saturating_mul(2), " for two media")?;
        let is_slow = slow.is_some();
        let below = match slow {
            Some(slow) => Gate::new(DelayDevice::new(memory.clone(), slow)),
            None => memory.clone(),
        };
        let layout = ZoneLayout::new(bytes, zone_size).of("--size")?;
        let zones = || Ok::<_, Error>(Gate::new(ZonedDevice::in_memory(below.clone(), layout)?));
        let sectors = || cipher.sectors();
        let plain = || ZoneWriter::new(&zoned::ordered(zones()?)?);
        let by = |mode| {
            let options = CryptOptions {
                dispatch: Dispatch::both(mode),
                helpers: Some(helpers.clone()),
                ..CryptOptions::default()
            };
            ZoneWriter::new(&zoned::encrypted(zones()?, sectors()?, options)?)
        };
        Ok(Self {
            is_slow,
            zone_size,
            ways: [
                plain()?,
                by(DispatchMode::Inline)?,
                by(DispatchMode::Auto)?,
                plain()?.with_pool(sectors()?, pool, zone_size)?,
            ],
            memory,
        })
    }

    /// Verifies that each way writes what it should: blocks to every zone, looked at in the memory below.
    fn check(&mut self, cipher: &CipherWord) -> Result<()> {
        let sectors = cipher.sectors()?;
        let mut reader = Blocking::new(&self.memory, BackendChoice::Auto)?;
        let load = ZoneLoad { block: 4096, depth: 16, zones: ZONES };
        let (mut found, mut expected) = (vec![0; 4096], vec![0; 4096]);
        for (seed, way) in (1..).zip(WAYS) {
            let contents = TestPattern::new(seed);
            let writer = &mut self.ways[way as usize];
            let checked = || offsets(load, self.zone_size).take(CHECKED);
            writer.write(&load, checked(), Some(contents), Duration::MAX)?;
            for offset in checked() {
                contents.fill(offset, &mut expected);
                if way != ZoneWriters::Plain {
                    sectors.encrypt_in_place(offset / 512, &mut expected);
                }
                reader.read_at(offset, &mut found).of("cannot read the medium")?;
                if found != expected {
                    fail!(
                        "{}, {}: byte {} and what follows is not what was written; this is a bug in cryptline, or the memory is bad",
                        word(&way),
                        medium_name(self.is_slow),
                        offset
                    );
                }
            }
        }
        Ok(())
    }
}
