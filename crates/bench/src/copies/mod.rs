//! `bench images`: what it takes to encrypt an image, and to decrypt one, beside the programs that people use for it.
//!
//! ```text
//! ways      who makes which file of which, and by which command line
//! cuts      changes of headers that are cut off
//! summary   table and figures
//! ```
//!
//! Each turn makes a new file, and ends when that is durable. Ours are checked first: what they have made has all
//! bytes of the source.

mod cuts;
mod summary;
mod ways;

use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use cryptline::luks::format::Version;
use cryptline::{DirectMode, Open, size};

use crate::Error;
use crate::contents::sha256_of;
use crate::foreign::Programs;
use crate::images::{Images, private_folder};
use crate::machine::children_time;
use crate::output::Output;
use crate::process::{Process, Stop};
use crate::report::{Ratios, Report, Row, Shape};
use crate::runner::{self, Group};
use crate::setting::Setting;
use ways::Way;

/// Where the images go unless told otherwise: a disk, as a rule.
const FOLDER: &str = "/var/tmp";
const SIZE_MIN: u64 = 1 << 20;
/// How often a program is started that could not measure the machine's speed.
const TRIES: u32 = 8;
/// Bytes of each read of a check.
const PIECE: usize = 1 << 20;

/// What to measure.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  cryptline bench images                                  everything, in a few minutes
  cryptline bench images --size 4G --rounds 5 --dir /data
  cryptline bench images --size 16M --rounds 1            only to see that it works
  cryptline bench images --json images.json --html images.html

Encrypts a raw image of random bytes with `cryptline create --from`, with `qemu-img convert` to
LUKS1, with `nbdcopy` into a volume that cryptline serves, and with `cryptsetup reencrypt` in place, and
decrypts one with `cryptline copy`, in turns with `cp`. Every turn makes a new file and ends when it is
durable. Needs about four times --size in --dir, and for `cryptsetup reencrypt` root. Headers are also
changed in memory, and each change cut off wherever a crash could.

Needs the Debian packages qemu-utils, libnbd-bin and cryptsetup-bin. What is missing is named, and its figures have
no value. The JSON is described in docs/bench-json.md.")]
pub struct ImagesArgs {
    /// Size of the clear disk
    #[arg(long, value_name = "SIZE", default_value = "2G", value_parser = size::parse_disk)]
    pub size: u64,

    /// Folder for the images; they are removed at the end
    #[arg(long, value_name = "DIR", default_value = FOLDER)]
    pub dir: PathBuf,

    /// How often each way has its turn
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: u32,

    /// Where the report goes.
    #[command(flatten)]
    pub output: Output,
}

/// What all turns need.
pub struct Bench<'a> {
    args: &'a ImagesArgs,
    setting: Setting<'a>,
    /// Seconds of processors that each turn took, with its server's.
    cpu: RefCell<Vec<(Way, f64)>>,
    /// Bytes on the medium of what was nearly all holes.
    sparse: Cell<u64>,
}

/// Measures.
pub fn measure(args: &ImagesArgs) -> Result<Report, Error> {
    if args.size < SIZE_MIN || !args.size.is_multiple_of(SIZE_MIN) {
        return Err(Error::parameters(format!("--size {}: give a multiple of 1M", args.size)));
    }
    let programs = Programs::find()?;
    let stop = Stop::watch()?;
    let folder = private_folder(&args.dir, "cryptline-images-")?;
    let images = Images::make(folder.path(), args.size, &[Version::Luks2])?;
    let bench = Bench {
        args,
        setting: Setting::new((&images, &programs), None, folder.path(), &stop),
        cpu: RefCell::default(),
        sparse: Cell::default(),
    };
    bench.check()?;
    let ways: Vec<Way> = Way::ALL.into_iter().filter(|way| way.missing(&programs).is_none()).collect();
    let mut report = Report::new("images", "Encrypting and decrypting images");
    report.runs = args.rounds;
    report.rows = ways.iter().map(|way| bench.row(*way)).collect();
    let (mut all, mut turns) = (0.0, 0.0);
    runner::run(&mut report, &Group::all(ways.len()), |rows, turn| {
        let seconds = bench.turn(ways[turn.way])?;
        (all, turns) = (all + seconds, turns + 1.0);
        rows[turn.way].take_rate(bench.bytes(ways[turn.way]) / seconds);
        Ok(())
    })?;
    stop.check()?;
    report.seconds = (all / turns * 1000.0).round() / 1000.0;
    summary::fill(&mut report, &bench, cuts::count()?);
    Ok(report)
}

impl Bench<'_> {
    fn row(&self, way: Way) -> Row {
        Row {
            name: way.title().into(),
            cipher: way.cipher().map(Into::into),
            server: Some(way.program().into()),
            shape: Shape { block: 1 << 20, streams: 1, ..Shape::default() },
            ..Row::default()
        }
    }

    /// Bytes that a way is about.
    fn bytes(&self, way: Way) -> f64 {
        let bytes = if way == Way::Sparse { ways::SPARSE } else { self.setting.images.size };
        #[expect(clippy::cast_precision_loss, reason = "a size, for a rate")]
        let bytes = bytes as f64;
        bytes
    }

    /// What we make has the bytes that it should have.
    fn check(&self) -> Result<(), Error> {
        for way in [Way::Create, Way::CopyOut] {
            self.turn_kept(way)?;
            let out = self.out();
            let gate = match way {
                Way::Create => {
                    let key = fs::read(&self.setting.images.key).map_err(|error| Error::device(error.to_string()))?;
                    let open = Open::new(&out).direct(DirectMode::Off).read_only(true);
                    open.passphrase(key).open()?.gate().clone()
                }
                _ => Open::new(&out).direct(DirectMode::Off).base()?.0,
            };
            if sha256_of(&gate, PIECE)? != self.setting.images.sha256 {
                return Err(Error::device(format!("{}: what it made has other bytes than the source", way.title())));
            }
            drop(gate);
            self.remove_out()?;
        }
        Ok(())
    }

    /// The file that every turn makes.
    fn out(&self) -> PathBuf {
        self.setting.folder.join("out.img")
    }

    /// Makes a file, and removes it; seconds that the first took.
    fn turn(&self, way: Way) -> Result<f64, Error> {
        let seconds = self.turn_kept(way)?;
        self.remove_out()?;
        Ok(seconds)
    }

    fn turn_kept(&self, way: Way) -> Result<f64, Error> {
        self.setting.stop.check()?;
        let prepared = way.prepare(self)?;
        let before = children_time().unwrap_or_default();
        let mut began = Instant::now();
        let mut ran = way.run(self);
        for _ in 1..TRIES {
            if !ran.as_ref().is_err_and(ways::is_busy) {
                break;
            }
            began = Instant::now();
            ran = way.run(self);
        }
        ran?;
        let synced = File::open(self.out()).and_then(|out| out.sync_all());
        synced.map_err(|error| Error::device(format!("{}: {error}", way.title())))?;
        let seconds = began.elapsed().as_secs_f64();
        let server = prepared.as_ref().and_then(Process::cpu).unwrap_or(0.0);
        let used = children_time().unwrap_or_default().saturating_sub(before);
        let cpu = used.as_secs_f64() + server;
        self.cpu.borrow_mut().push((way, cpu));
        if way == Way::Sparse {
            let made = fs::metadata(self.out());
            self.sparse.set(made.map_or(0, |made| made.blocks() * 512));
        }
        drop(prepared);
        Ok(seconds.max(1e-6))
    }

    /// Processor time of one way over that of another, in the same turns.
    fn cpu_ratios(&self, report: &Report, of: Way, to: Way) -> Option<Ratios> {
        let all = self.cpu.borrow();
        let times = |way| -> Vec<f64> {
            let of_way = all.iter().filter(|(of, _)| *of == way);
            of_way.map(|(_, seconds)| *seconds).collect()
        };
        let rows = [report.row(of.title())?, report.row(to.title())?];
        // The last ones: what was checked before had turns of its own.
        let [of, to] = [of, to].map(times);
        let last = |times: &'_ Vec<f64>| times.len().saturating_sub(rows[0].samples.len());
        Some(Ratios::of(&of[last(&of)..], &to[last(&to)..], rows))
    }

    fn remove_out(&self) -> Result<(), Error> {
        let out = self.out();
        let removed = fs::remove_file(&out);
        removed.map_err(|error| Error::device(format!("{}: {error}", out.display())))
    }
}
