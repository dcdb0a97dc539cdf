//! `benchmark`: how fast ciphers and key derivation functions are on this machine.

use std::thread::available_parallelism;
use std::time::Duration;

use clap::Args;
use cryptline_luks::format::KdfCost;

use super::{Report, ciphers, compare, kdfs};
use crate::output::Printed;
use crate::{Error, Progress};

/// Longest measurement, in seconds.
const SECONDS_MAX: f64 = 3600.0;
/// One PBKDF2 hash takes as long as this many measurements of a cipher.
const SHARES_OF_PBKDF2: u32 = 4;

/// What to measure, and for how long.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cryptline benchmark                                      everything, in about 20 seconds
  cryptline benchmark --cipher aes-xts-plain64 --key-size 512
  cryptline benchmark --kdf argon2id --kdf pbkdf2-sha512
  cryptline benchmark --json | jq '.ciphers[] | select(.threads == 1)'
  cryptline benchmark --compare-cryptsetup --no-cipher     unlocking, compared with cryptsetup

No disk is read or written. --cipher alone measures only ciphers and --kdf alone only key derivation
functions; give both to measure both. Each speed is the median of several samples after a warm-up,
with buffers that fit the L2 cache. CRYPTLINE_CPU selects the cipher implementation.
docs/benchmark-json.md describes the JSON.")]
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

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Measures.
pub fn run(args: &BenchmarkArgs) -> Result<Printed, Error> {
    let plan = Plan::new(args)?;
    let cores = available_parallelism().map_or(1, std::num::NonZero::get);
    let mut report = Report::new(cores);
    plan.measure(args, &mut report)?;
    report.finish();
    let text = if args.json {
        serde_json::to_string_pretty(&report)
            .map(|text| text + "\n")
            .map_err(|error| Error::device(format!("cannot make the JSON: {error}")))?
    } else {
        report.text()
    };
    Ok(Printed {
        stdout: text,
        stderr: String::new(),
        warnings: report.warnings,
    })
}

/// What to measure, checked before anything is.
struct Plan {
    ciphers: Vec<ciphers::Case>,
    kdfs: Vec<kdfs::Case>,
    time: Duration,
    cost: KdfCost,
}

impl Plan {
    fn new(args: &BenchmarkArgs) -> Result<Self, Error> {
        if !(args.seconds > 0.0 && args.seconds <= SECONDS_MAX) {
            return Err(Error::parameters(format!(
                "--seconds {}: give more than 0 and at most {SECONDS_MAX}",
                args.seconds
            )));
        }
        if args.no_cipher && args.no_kdf && !args.compare_cryptsetup {
            return Err(Error::parameters(
                "nothing is left to measure; leave out --no-cipher or --no-kdf",
            ));
        }
        // As cryptsetup: naming one thing is asking for that alone.
        let ciphers = !args.no_cipher && (!args.cipher.is_empty() || args.kdf.is_empty());
        let kdfs = !args.no_kdf && (!args.kdf.is_empty() || args.cipher.is_empty());
        let plan = Self {
            ciphers: if ciphers {
                ciphers::cases(&args.cipher, args.key_size)?
            } else {
                Vec::new()
            },
            kdfs: if kdfs {
                kdfs::cases(&args.kdf)?
            } else {
                Vec::new()
            },
            time: Duration::from_secs_f64(args.seconds),
            cost: KdfCost {
                target: Duration::from_millis(args.iter_time),
                iterations: None,
                memory_kib: args.pbkdf_memory,
                cpus: args.pbkdf_parallel,
            },
        };
        Ok(plan)
    }

    fn measure(&self, args: &BenchmarkArgs, report: &mut Report) -> Result<(), Error> {
        let of_ciphers = ciphers::count(&self.ciphers, report.cores);
        let of_ciphers = u32::try_from(of_ciphers).unwrap_or(u32::MAX);
        let is_pbkdf2 = |case: &&kdfs::Case| matches!(case, kdfs::Case::Pbkdf2(_));
        let pbkdf2s = self.kdfs.iter().filter(is_pbkdf2).count();
        let pbkdf2s = u32::try_from(pbkdf2s).unwrap_or(u32::MAX);
        let shares = of_ciphers.saturating_add(pbkdf2s.saturating_mul(SHARES_OF_PBKDF2));
        let share = self.time / shares.max(1);

        let steps = u64::from(of_ciphers) + u64::try_from(self.kdfs.len()).unwrap_or(0);
        let progress = Progress::new(steps + u64::from(args.compare_cryptsetup));
        for &case in &self.kdfs {
            progress.now(case.name());
            kdfs::measure(report, case, share * SHARES_OF_PBKDF2, &self.cost)?;
            progress.step();
        }
        for case in &self.ciphers {
            progress.now(case.name());
            ciphers::measure(report, case, share, &|| progress.step())?;
        }
        if args.compare_cryptsetup {
            progress.now("unlocking, beside cryptsetup");
            compare::measure(report, &self.cost)?;
        }
        Ok(())
    }
}
