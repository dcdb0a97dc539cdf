//! The command line: one subcommand for each verb.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::CliError;
use crate::cmd;
use crate::harden::{protect_process, warn_of_unlocked_keys};

/// At the end of the help.
const EXAMPLES: &str = "\
Examples:
  cryptline serve                                  a 1 GiB encrypted RAM disk, to try it out
  cryptline create disk.img --size 1G              a new LUKS2 volume
  cryptline info disk.img                          show its header; needs no passphrase
  cryptline open --check disk.img                  check whether a passphrase unlocks it
  cryptline serve disk.img                         serve the decrypted disk over NBD

Run `cryptline COMMAND --help` for details.";

/// At the end of the long help.
const EXIT_CODES: &str = "\
Exit codes (as cryptsetup's):
  0  success
  1  invalid parameters, or a feature that is not supported
  2  no key available: wrong passphrase or volume key
  3  out of memory
  4  wrong device, damaged header, or I/O error
  5  already exists, or in use by another program";

/// Open encrypted disks (LUKS2, LUKS1, plain dm-crypt) in user space and serve them.
///
/// cryptline opens an encrypted disk from a file, a block device or RAM and serves the decrypted
/// disk over NBD, without root and without device-mapper. It runs the cipher on the thread that
/// handles the request. Its volumes are byte-compatible with dm-crypt and cryptsetup in both
/// directions.
#[derive(Parser, Debug)]
#[command(name = "cryptline", version, disable_help_subcommand = true)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The verbs.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Serve the decrypted disk over NBD
    Serve(Box<cmd::serve::ServeArgs>),
    /// Show a LUKS header (needs no passphrase)
    Info(cmd::info::InfoArgs),
    /// Check whether a passphrase or key unlocks a volume
    Open(cmd::open::OpenArgs),
    /// Create a LUKS volume in a new file
    Create(cmd::create::CreateArgs),
    /// Print the device-mapper table line of a volume
    Table(Box<cmd::table::TableArgs>),
    /// Manage block translation tables, which keep sectors from being torn
    Btt(cmd::btt::BttArgs),
    /// List the zones of a zoned device
    Zones(cmd::zones::ZonesArgs),
    /// Show live statistics of a server
    Top(cmd::top::TopArgs),
    /// Compare ways of encrypting, serving and storing a volume
    Bench(cryptline_bench::BenchArgs),
    /// Measure ciphers and key derivation functions
    Benchmark(cryptline_bench::BenchmarkArgs),
    /// Print a shell completion script
    Completions(cmd::completions::CompletionsArgs),
    /// Write the man pages into a folder
    #[command(hide = true)]
    Man(cmd::man::ManArgs),
}

impl Command {
    /// Runs the verb.
    ///
    /// # Errors
    /// What to tell the user, and the exit code.
    pub fn run(self) -> Result<ExitCode, CliError> {
        let touches_keys = matches!(
            self,
            Self::Serve(_) | Self::Open(_) | Self::Create(_) | Self::Table(_)
        );
        if touches_keys {
            protect_process();
        }
        let done = self.run_verb();
        if touches_keys {
            warn_of_unlocked_keys();
        }
        done
    }

    fn run_verb(self) -> Result<ExitCode, CliError> {
        match self {
            Self::Serve(args) => cmd::serve::run(&args),
            Self::Info(args) => cmd::info::run(&args),
            Self::Open(args) => cmd::open::run(&args),
            Self::Create(args) => cmd::create::run(&args),
            Self::Table(args) => cmd::table::run(&args),
            Self::Top(args) => cmd::top::run(&args),
            Self::Bench(args) => cmd::bench::print(cryptline_bench::run(&args)),
            Self::Benchmark(args) => cmd::bench::print(cryptline_bench::benchmark(&args)),
            Self::Btt(args) => cmd::btt::run(&args),
            Self::Zones(args) => cmd::zones::run(&args),
            Self::Completions(args) => cmd::completions::run(&args, &mut Cli::command()),
            Self::Man(args) => cmd::man::run(&args, Cli::command()),
        }
    }
}
