//! `bench`: how fast volumes are, by each way a request can take through one.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::CliError;
use crate::bench::{inline, media, peers, subblock, sweep, zoned};

/// What to measure.
#[derive(Args, Debug)]
#[command(disable_help_subcommand = true)]
#[command(after_help = "\
Examples:
  cryptline bench inline --html inline.html       what a queue before the cipher costs
  cryptline bench sweep --html sweep.html         which mode is best for which requests
  cryptline bench subblock --html subblock.html   what one lock for all small writes costs
  cryptline bench peers --html peers.html         compared with qemu and nbdkit
  cryptline bench media --html media.html         overhead of a request on RAM-like media
  cryptline bench zoned --html zoned.html         cost of encryption on zoned disks

Each benchmark prints a table and can write JSON (--json) and a page with plots (--html). It measures
everything it compares in alternation, several times, and reports whether other programs kept the
machine busy. `cryptline benchmark` measures only ciphers and key derivation.")]
pub struct BenchArgs {
    /// Which bench.
    #[command(subcommand)]
    pub bench: BenchCommand,
}

/// The benches.
#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    /// Compare inline encryption with work queues, as in the 2020 dm-devel thread
    Inline(Box<inline::InlineArgs>),
    /// Measure every block size, queue depth and dispatch mode
    Sweep(Box<sweep::SweepArgs>),
    /// Compare concurrent and exclusive writes of partial cipher sectors
    Subblock(Box<subblock::SubBlockArgs>),
    /// Compare cryptline with other servers of encrypted disks, over NBD
    Peers(Box<peers::PeersArgs>),
    /// Measure the overhead of a request on RAM, persistent memory and BTT
    Media(Box<media::MediaArgs>),
    /// Measure ordered writes to encrypted zones
    Zoned(Box<zoned::ZonedArgs>),
}

/// Measures, and prints when all is done.
///
/// # Errors
/// Exit code 1 for what makes no sense or cannot be written, 4 when a volume fails.
pub fn run(args: &BenchArgs) -> Result<ExitCode, CliError> {
    let printed = match &args.bench {
        BenchCommand::Inline(args) => args.output.of(|| inline::measure(args))?,
        BenchCommand::Sweep(args) => args.output.of(|| sweep::measure(args))?,
        BenchCommand::Subblock(args) => args.output.of(|| subblock::measure(args))?,
        BenchCommand::Peers(args) => args.output.of(|| peers::measure(args))?,
        BenchCommand::Media(args) => args.output.of(|| media::measure(args))?,
        BenchCommand::Zoned(args) => args.output.of(|| zoned::measure(args))?,
    };
    // Nobody is left to be told when this fails.
    let _ = io::stderr().write_all(printed.stderr.as_bytes());
    crate::output::print(&printed.stdout)?;
    crate::output::warn(&printed.warnings);
    Ok(ExitCode::SUCCESS)
}
