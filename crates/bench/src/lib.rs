//! `bench` and `benchmark`: comparisons, and how they are reported.
//!
//! ```text
//! inline    the script of the 2020 dm-devel thread ─┐             ┌─ table on standard output
//! sweep     every size, depth and dispatch mode    ─┤             │
//! subblock  writes of parts of cipher sectors      ─┼─► Report ─►─┼─ --json  (docs/bench-json.md)
//! peers     other people's servers, over NBD       ─┤             └─ --html  plots, on one page
//! media     what a request costs beside a copy     ─┤
//! doors     every front, by a client of its own    ─┤
//! zoned     sequential writes to encrypted zones   ─┤
//! images    whole images, encrypted and decrypted   ─┤
//! rbd       images of a Ceph cluster               ─┘
//!
//! benchmark   ciphers and key derivation alone
//!
//! shared by all   runner    turns       load    requests    volume   what is measured
//!                 report, text, html, output         contents   what is written and read
//!                 setting   programs of others       guest      a virtual machine without one
//! ```
//!
//! A report exists only when everything was measured: a bench that fails ends with one line, and
//! writes no file.

#![forbid(unsafe_code)]

mod benchmark;
mod contents;
mod copies;
mod doors;
mod error;
mod foreign;
mod guest;
mod html;
mod images;
mod inline;
mod load;
mod machine;
mod media;
mod nbd;
mod output;
mod peers;
mod pins;
mod plot;
mod process;
mod progress;
mod rbd;
mod report;
mod runner;
mod setting;
mod subblock;
mod sweep;
mod table;
mod text;
mod volume;
mod work;
mod zoned;

use clap::{Args, Subcommand};

pub use benchmark::BenchmarkArgs;
pub use error::Error;
pub use output::Printed;

/// What to measure.
#[derive(Args, Debug)]
#[command(disable_help_subcommand = true)]
#[command(after_help = "\
Examples:
  cryptline bench inline --html inline.html       what a queue before the cipher costs
  cryptline bench sweep --html sweep.html         which mode is best for which requests
  cryptline bench subblock --html subblock.html   what one lock for all small writes costs
  cryptline bench peers --html peers.html         compared with qemu and nbdkit
  cryptline bench doors --html doors.html         vhost-user, NBD and FUSE compared
  cryptline bench media --html media.html         overhead of a request on RAM-like media
  cryptline bench zoned --html zoned.html         cost of encryption on zoned disks
  cryptline bench images --html images.html       compared with cp, qemu-img and nbdcopy
  cryptline bench rbd --html rbd.html             compared with the encryption of Ceph's librbd

Each benchmark prints a table and can write JSON (--json) and a page with plots (--html). What is
compared is measured in turns, several times. Reports say whether other programs kept the machine
busy. `cryptline benchmark` measures only ciphers and key derivation.")]
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
    /// Compare the fronts with each other and with those of qemu-storage-daemon
    Doors(Box<doors::DoorsArgs>),
    /// Measure the overhead of a request on RAM, persistent memory and BTT
    Media(Box<media::MediaArgs>),
    /// Measure ordered writes to encrypted zones
    Zoned(Box<zoned::ZonedArgs>),
    /// Compare the encrypting and decrypting of whole images with other programs
    Images(Box<copies::ImagesArgs>),
    /// Compare encryption of Ceph images with librbd's own
    Rbd(Box<rbd::RbdArgs>),
}

/// Measures. What is left to print is complete.
///
/// # Errors
/// What was asked for makes no sense, what was measured failed, or a file cannot be written.
pub fn run(args: &BenchArgs) -> Result<Printed, Error> {
    match &args.bench {
        BenchCommand::Inline(args) => args.output.of(|| inline::measure(args)),
        BenchCommand::Sweep(args) => args.output.of(|| sweep::measure(args)),
        BenchCommand::Subblock(args) => args.output.of(|| subblock::measure(args)),
        BenchCommand::Peers(args) => args.output.of(|| peers::measure(args)),
        BenchCommand::Doors(args) => args.output.of(|| doors::measure(args)),
        BenchCommand::Media(args) => args.output.of(|| media::measure(args)),
        BenchCommand::Zoned(args) => args.output.of(|| zoned::measure(args)),
        BenchCommand::Images(args) => args.output.of(|| copies::measure(args)),
        BenchCommand::Rbd(args) => args.output.of(|| rbd::measure(args)),
    }
}

/// Measures ciphers and key derivation.
///
/// # Errors
/// What was asked for is not there, or memory is too short for Argon2.
pub fn benchmark(args: &BenchmarkArgs) -> Result<Printed, Error> {
    benchmark::run(args)
}
