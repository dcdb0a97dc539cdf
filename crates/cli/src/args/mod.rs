//! The command line: one subcommand for each verb.

mod blocks;
mod choice;
mod dispatch;
mod keys;
mod table;
mod table_argument;
mod volume;

use clap::{Parser, Subcommand};

pub use keys::{KeyArgs, PassphraseSource};
pub use table_argument::{TableArgument, arguments};
pub use volume::{TargetArgs, VolumeType, open};

use crate::cmd;

/// At the end of the help.
const EXAMPLES: &str = "\
Examples:
  cryptline serve                                  a 1 GiB encrypted RAM disk, to try it out
  cryptline create disk.img --size 1G              a new LUKS2 volume
  cryptline info disk.img                          its header; needs no passphrase
  cryptline open --check disk.img                  does this passphrase unlock it?
  cryptline serve disk.img                         the decrypted disk over NBD

`cryptline VERB --help` says more about each.";

/// At the end of the long help.
const EXIT_CODES: &str = "\
Exit codes (as cryptsetup's):
  0  done
  1  wrong parameters, or something that is not supported yet
  2  no key: wrong passphrase or volume key
  3  out of memory
  4  wrong device, damaged header, or an I/O error
  5  it exists already, or another program uses it";

/// Encrypted disks (LUKS2, LUKS1, plain dm-crypt) opened and served in user space.
///
/// cryptline opens an encrypted disk from a file, a block device or RAM and serves the decrypted disk
/// over NBD: without root, without device-mapper, with the cipher run on the thread that has the
/// request. It reads what the kernel's dm-crypt and cryptsetup write, and they read what it writes.
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
    /// Show a LUKS header; needs no passphrase
    Info(cmd::info::InfoArgs),
    /// Check whether a passphrase or key unlocks a volume
    Open(cmd::open::OpenArgs),
    /// Make a new LUKS volume in a file
    Create(cmd::create::CreateArgs),
    /// Print the device-mapper line of a volume
    Table(Box<cmd::table::TableArgs>),
    /// Block translation tables: sectors that are never torn
    Btt(cmd::btt::BttArgs),
    /// List the zones of a zoned device
    Zones(cmd::zones::ZonesArgs),
    /// Show the live statistics of a server
    Top(cmd::top::TopArgs),
    /// Measure the paths of a request through a volume
    Bench(cmd::bench::BenchArgs),
    /// Measure ciphers and key derivation functions on this machine
    Benchmark(cmd::benchmark::BenchmarkArgs),
    /// Print a completion script for a shell
    Completions(cmd::completions::CompletionsArgs),
    /// Write the man pages into a folder
    #[command(hide = true)]
    Man(cmd::man::ManArgs),
}
