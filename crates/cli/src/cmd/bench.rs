//! `bench`: how fast volumes are, by each way a request can take through one.

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
  cryptline bench peers --html peers.html         beside qemu and nbdkit
  cryptline bench media --html media.html         what a request costs where media answer at once
  cryptline bench zoned --html zoned.html         what encryption costs where the order must be kept

Each bench prints a table, and writes --json and a page with plots, --html. All that it compares is
measured in turns, several times; a machine that others use at the same time is noticed and told.
`cryptline benchmark` measures ciphers and key derivation alone.")]
pub struct BenchArgs {
    /// Which bench.
    #[command(subcommand)]
    pub bench: BenchCommand,
}

/// The benches.
#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    /// Read RAM plain, inline and by queue, as the 2020 dm-devel thread did
    Inline(Box<inline::InlineArgs>),
    /// Measure every block size, queue depth and dispatch mode
    Sweep(Box<sweep::SweepArgs>),
    /// Write parts of cipher sectors, side by side and one after the other
    Subblock(Box<subblock::SubBlockArgs>),
    /// The same load on cryptline and on other servers of encrypted disks, over NBD
    Peers(Box<peers::PeersArgs>),
    /// What a request costs on RAM, persistent memory and BTT, beside a bare copy
    Media(Box<media::MediaArgs>),
    /// Write encrypted zones in order, beside plain ones and a pool that loses the order
    Zoned(Box<zoned::ZonedArgs>),
}

/// Measures, and prints when all is done.
///
/// # Errors
/// Exit code 1 for what makes no sense or cannot be written, 4 when a volume fails.
pub fn run(args: &BenchArgs) -> Result<ExitCode, CliError> {
    match &args.bench {
        BenchCommand::Inline(args) => args.output.of(|| inline::measure(args))?,
        BenchCommand::Sweep(args) => args.output.of(|| sweep::measure(args))?,
        BenchCommand::Subblock(args) => args.output.of(|| subblock::measure(args))?,
        BenchCommand::Peers(args) => peers::run(args)?,
        BenchCommand::Media(args) => media::run(args)?,
        BenchCommand::Zoned(args) => zoned::run(args)?,
    }
    Ok(ExitCode::SUCCESS)
}
