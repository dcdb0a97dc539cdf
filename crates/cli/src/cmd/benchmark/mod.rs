//! `benchmark`: how fast ciphers and key derivation functions are on this machine.
//!
//! ```text
//! ciphers  every cipher of this build ─┐
//! ceiling  AES, of the possible       ─┼─ work ─► Report ─► text, table; or JSON
//! kdfs     PBKDF2, Argon2             ─┤
//! compare  cryptsetup, side by side   ─┘
//! ```

mod ceiling;
mod ciphers;
mod compare;
mod kdfs;
mod report;
mod table;
mod text;
mod work;

use std::cell::RefCell;
use std::time::Duration;

use clap::Args;
use cryptline_luks::format::KdfCost;

use crate::progress::ProgressMeter;
use crate::verb::{CPU, Group, Verb};
use crate::{CliError, output};
use report::BenchmarkReport;

/// One PBKDF2 hash takes as long as this many measurements of a cipher.
const SHARES_OF_PBKDF2: u32 = 4;
/// Longest measurement, in seconds.
const SECONDS_MAX: f64 = 3600.0;

pub const VERB: Verb = Verb {
    name: "benchmark",
    group: Some(Group::Tools),
    environment: &[CPU],
    examples: "\
# everything, in about 20 seconds
cryptline benchmark
cryptline benchmark --cipher aes-xts-plain64 --key-size 512
cryptline benchmark --kdf argon2id --kdf pbkdf2-sha512
cryptline benchmark --json | jq '.ciphers[] | select(.threads == 1)'
# unlocking, compared with cryptsetup
cryptline benchmark --compare-cryptsetup --no-cipher",
    notes: "\
No disk is read or written. --cipher alone measures only ciphers and --kdf alone only key derivation
functions; use both to measure both. Each speed is the median of several samples after a warm-up,
with buffers that fit the L2 cache. CRYPTLINE_CPU selects the cipher implementation.
docs/benchmark-json.md describes the JSON.",
    keyless: true,
    ..Verb::EMPTY
};

/// Options of what to measure, and for how long.
#[derive(Args, Debug)]
pub struct BenchmarkArgs {
    /// Cipher to measure; may be repeated [default: all]
    #[arg(long, value_name = "SPEC")]
    pub cipher: Vec<String>,

    /// Key length in bits [default: the shortest and the longest]
    #[arg(long, value_name = "BITS")]
    pub key_size: Option<usize>,

    /// Key derivation function to measure: argon2id, argon2i, pbkdf2 or pbkdf2-HASH; may be repeated [default: all]
    #[arg(long, value_name = "NAME")]
    pub kdf: Vec<String>,

    /// Skip the ciphers
    #[arg(long, conflicts_with = "cipher")]
    pub no_cipher: bool,

    /// Skip the key derivation functions
    #[arg(long, conflicts_with = "kdf")]
    pub no_kdf: bool,

    /// Total time for the ciphers and PBKDF2; each Argon2 measurement adds about 1.5 times --iter-time
    #[arg(long, value_name = "S", default_value_t = 12.0)]
    pub seconds: f64,

    /// Target time for Argon2, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub iter_time: u64,

    /// Largest amount of memory for Argon2, in KiB
    #[arg(long, value_name = "KIB")]
    pub pbkdf_memory: Option<u32>,

    /// Argon2 lanes [default: one per processor, at most 4]
    #[arg(long, value_name = "N")]
    pub pbkdf_parallel: Option<u32>,

    /// Compare unlocking a new LUKS2 header (Argon2id, 4 iterations, 1 GiB, 4 lanes) with cryptsetup, which must
    /// be installed
    #[arg(long)]
    pub compare_cryptsetup: bool,

    /// Say which figures reach the goals of this project, for its developers; the JSON always does
    #[arg(long)]
    pub goals: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Measures, and prints the report when all of it is there.
///
/// # Errors
/// Fails if what was asked for is not there, memory is too short for Argon2, or standard output takes no more.
pub fn run(args: &BenchmarkArgs) -> Result<(), CliError> {
    let plan = BenchmarkPlan::new(args)?;
    let mut report = BenchmarkReport {
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        ..BenchmarkReport::default()
    };
    plan.measure(args, &mut report)?;
    report.finish();
    output::print_report(args.json, &serde_json::json!(report), &text::render(&report, args.goals))?;
    output::warn(&report.warnings);
    Ok(())
}

/// `--seconds` as a length of time.
fn seconds(given: f64) -> Result<Duration, CliError> {
    if given > 0.0 && given <= SECONDS_MAX {
        Ok(Duration::from_secs_f64(given))
    } else {
        Err(CliError::parameters(format!("--seconds {given}: use more than 0 and at most {SECONDS_MAX}")))
    }
}

/// Measurements to make, checked before any is made.
struct BenchmarkPlan {
    ciphers: Vec<ciphers::CipherCase>,
    kdfs: Vec<kdfs::KdfCase>,
    time: Duration,
    cost: KdfCost,
}

impl BenchmarkPlan {
    fn new(args: &BenchmarkArgs) -> Result<Self, CliError> {
        let time = seconds(args.seconds)?;
        if args.no_cipher && args.no_kdf && !args.compare_cryptsetup {
            return Err(CliError::parameters("nothing is left to measure; leave out --no-cipher or --no-kdf"));
        }
        // As cryptsetup: naming one thing is asking for that alone.
        let ciphers = !args.no_cipher && (!args.cipher.is_empty() || args.kdf.is_empty());
        let kdfs = !args.no_kdf && (!args.kdf.is_empty() || args.cipher.is_empty());
        let plan = Self {
            ciphers: if ciphers { ciphers::cases(&args.cipher, args.key_size)? } else { Vec::new() },
            kdfs: if kdfs { kdfs::cases(&args.kdf)? } else { Vec::new() },
            time,
            cost: KdfCost {
                target: Duration::from_millis(args.iter_time),
                iterations: None,
                memory_kib: args.pbkdf_memory,
                cpus: args.pbkdf_parallel,
            },
        };
        Ok(plan)
    }

    fn measure(&self, args: &BenchmarkArgs, report: &mut BenchmarkReport) -> Result<(), CliError> {
        let of_ciphers = ciphers::count(&self.ciphers, report.cores);
        let is_pbkdf2 = |case: &&kdfs::KdfCase| matches!(case, kdfs::KdfCase::Pbkdf2(_));
        let pbkdf2s = self.kdfs.iter().filter(is_pbkdf2).count();
        let shares = of_ciphers + pbkdf2s * SHARES_OF_PBKDF2 as usize;
        let share = self.time / u32::try_from(shares.max(1)).unwrap_or(u32::MAX);

        let steps = of_ciphers + self.kdfs.len() + usize::from(args.compare_cryptsetup);
        // Drawn only between measurements: a thread that redraws would take time from what is measured.
        let progress = RefCell::new((ProgressMeter::new("Measured", |count| count.to_string()), 0));
        let step = || {
            let (meter, done) = &mut *progress.borrow_mut();
            *done += 1;
            meter.show(*done, Some(steps as u64));
        };
        for &case in &self.kdfs {
            let row = case.measure(share * SHARES_OF_PBKDF2, &self.cost)?;
            report.kdfs.push(row);
            step();
        }
        for case in &self.ciphers {
            report.figures.extend(case.of_ceiling()?);
            let rows = case.measure(report.cores, share, &step)?;
            report.ciphers.extend(rows);
        }
        report.figures.extend(ciphers::speeds(&report.ciphers));
        if args.compare_cryptsetup {
            let (comparison, figure) = compare::measure(&self.cost)?;
            report.comparison = Some(comparison);
            report.figures.push(figure);
        }
        Ok(())
    }
}
