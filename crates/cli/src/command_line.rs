//! The command line: one subcommand for each verb.

use std::ffi::OsStr;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, Parser, Subcommand};

use crate::CliError;
use crate::cmd;
use crate::harden::{protect_process, warn_of_unlocked_keys};
use crate::verb::{self, CEPH, CPU, Verb};

pub(crate) const PROGRAM: Verb = Verb {
    examples: "\
# try it out with a 1 GiB encrypted RAM disk
cryptline serve
# a new LUKS2 volume
cryptline create disk.img --size 1G
# the same, filled with the contents of a disk
cryptline create disk.img --from old.raw
# the decrypted disk in a file
cryptline copy disk.img out.raw
# show its header; needs no passphrase
cryptline info disk.img
# check whether a passphrase unlocks it
cryptline check disk.img
# serve the decrypted disk over NBD
cryptline serve disk.img
# the decrypted disk as the file /mnt/disk.img
cryptline mount disk.img /mnt
# the decrypted disk for a virtual machine
cryptline vhost-user disk.img",
    notes: "\
Run `cryptline help COMMAND` for details, and `cryptline help testing` for options that make media fail or slow.",
    exit: "0 success, 1 invalid parameters, or a feature that is not supported, 2 no key available: wrong passphrase or \
        volume key, 3 out of memory, 4 wrong device, damaged header, or I/O error, 5 already exists, or in use by \
        another program; they are cryptsetup's",
    environment: &[CPU],
    files: &[CEPH],
    see: "cryptsetup(8), dmsetup(8), nbd(4)",
    ..Verb::EMPTY
};

/// Open encrypted disks (LUKS2, LUKS1, plain dm-crypt) in user space and serve them.
///
/// cryptline opens an encrypted disk from a file, a block device or RAM and gives the decrypted
/// disk to NBD clients, virtual machines, programs that want a file, or the kernel: without
/// device-mapper, and all but the last without root. It runs the cipher on the thread that handles
/// the request. Its volumes are byte-compatible with dm-crypt and cryptsetup in both directions.
#[derive(Parser, Debug)]
#[command(name = "cryptline", version, long_version = crate::version::LONG.as_str())]
pub struct Cli {
    #[command(flatten)]
    pub(crate) common: CommonArgs,

    /// Command to run.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every verb.
#[derive(Args, Debug)]
pub(crate) struct CommonArgs {
    /// Print only what was asked for, warnings and errors
    ///
    /// There is no banner, no hint, no report of success and no progress; the exit code tells what came of it.
    #[arg(long, global = true, hide_short_help = true)]
    pub(crate) quiet: bool,
}

type WithOptions = fn(clap::Command) -> clap::Command;

/// Verbs that are started often: the options of all verbs are hundreds, and take two milliseconds to describe.
const OFTEN: [(&str, WithOptions); 9] = [
    ("serve", cmd::serve::ServeArgs::augment_args),
    ("vhost-user", cmd::vhost_user::VhostUserArgs::augment_args),
    ("mount", cmd::mount::MountArgs::augment_args),
    ("attach", cmd::attach::AttachArgs::augment_args),
    ("detach", cmd::detach::DetachArgs::augment_args),
    ("info", cmd::info::InfoArgs::augment_args),
    ("check", cmd::check::CheckArgs::augment_args),
    ("create", cmd::create::CreateArgs::augment_args),
    ("copy", cmd::copy::CopyArgs::augment_args),
];

impl Cli {
    /// The options of this verb alone, where it is one of [`OFTEN`]; else the whole command line. No help texts are in it.
    pub(crate) fn of_verb(name: Option<&OsStr>) -> clap::Command {
        match OFTEN.into_iter().find(|(verb, _)| name.is_some_and(|name| name == *verb)) {
            Some((verb, options)) => {
                CommonArgs::augment_args(clap::Command::new("cryptline")).subcommand(options(clap::Command::new(verb)))
            }
            None => Self::command(),
        }
    }
}

/// The verbs.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Serve the decrypted disk over NBD
    Serve(Box<cmd::serve::ServeArgs>),
    /// Serve the decrypted disk to virtual machines (vhost-user-blk)
    VhostUser(Box<cmd::vhost_user::VhostUserArgs>),
    /// Mount the decrypted disk as a file (FUSE)
    Mount(Box<cmd::mount::MountArgs>),
    /// Make the decrypted disk a block device of this machine
    Attach(Box<cmd::attach::AttachArgs>),
    /// Unmount a disk or remove a block device, once everything is written
    Detach(cmd::detach::DetachArgs),
    /// List the block devices made by `attach`
    Devices(cmd::devices::DevicesArgs),
    /// Show a LUKS header (needs no passphrase)
    Info(cmd::info::InfoArgs),
    /// Check whether a passphrase or key unlocks a volume
    Check(Box<cmd::check::CheckArgs>),
    /// Create a LUKS volume in a new file
    Create(Box<cmd::create::CreateArgs>),
    /// Copy a disk, and encrypt or decrypt it on the way
    Copy(Box<cmd::copy::CopyArgs>),
    /// Make a LUKS volume of an unencrypted disk
    Encrypt(Box<cmd::encrypt::EncryptArgs>),
    /// Make a volume larger, or smaller
    Resize(cmd::resize::ResizeArgs),
    /// Manage the key slots of a volume
    #[command(subcommand)]
    Key(Box<cmd::key::KeyCommand>),
    /// Manage tokens, which say where passphrases come from (LUKS2)
    #[command(subcommand)]
    Token(cmd::token::TokenCommand),
    /// Back up, restore, repair and label LUKS headers
    #[command(subcommand)]
    Header(cmd::header::HeaderCommand),
    /// Print the device-mapper table line of a volume
    Table(Box<cmd::table::TableArgs>),
    /// Manage block translation tables, which keep sectors from being torn
    #[command(subcommand)]
    Btt(cmd::btt::BttCommand),
    /// Show live statistics of a server
    Top(cmd::top::TopArgs),
    /// Control a running server: list, add, remove, flush and grow its exports
    Ctl(Box<cmd::ctl::CtlArgs>),
    /// Measure ciphers and key derivation functions
    Benchmark(cmd::benchmark::BenchmarkArgs),
    /// Options for tests and measurements: failing and slow media (a page of help)
    Testing(cmd::testing::TestingArgs),
    /// Make certificates for TLS: an authority, a server and a client
    Certs(cmd::certs::CertsArgs),
    /// Print a shell completion script
    Completions(cmd::completions::CompletionsArgs),
    #[command(flatten)]
    Word(Box<cmd::words::VerbWord>),
}

impl Command {
    /// Runs the verb, whose first word is `name`.
    pub fn run(self, name: &str) -> Result<ExitCode, CliError> {
        let touches_keys = verb::row(name).is_none_or(|row| !row.keyless);
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
            Self::Serve(mut args) => return cmd::serve::run(&mut args),
            Self::VhostUser(mut args) => return cmd::vhost_user::run(&mut args),
            Self::Mount(mut args) => return cmd::mount::run(&mut args),
            Self::Attach(mut args) => return cmd::attach::run(&mut args),
            Self::Word(word) => return word.run(),
            Self::Detach(args) => cmd::detach::run(&args),
            Self::Devices(args) => cmd::devices::run(&args),
            Self::Info(args) => cmd::info::run(&args),
            Self::Check(args) => cmd::check::run(&args),
            Self::Create(args) => cmd::create::run(&args),
            Self::Copy(args) => cmd::copy::run(&args),
            Self::Encrypt(args) => cmd::encrypt::run(*args),
            Self::Resize(args) => cmd::resize::run(&args),
            Self::Key(verb) => verb.run(),
            Self::Token(verb) => verb.run(),
            Self::Header(verb) => verb.run(),
            Self::Table(args) => cmd::table::run(&args),
            Self::Top(args) => cmd::top::run(&args),
            Self::Ctl(args) => cmd::ctl::run(&args),
            Self::Benchmark(args) => cmd::benchmark::run(&args),
            Self::Btt(args) => args.run(),
            Self::Testing(args) => cmd::testing::run(&args, verb::program()),
            Self::Certs(args) => cmd::certs::run(&args),
            Self::Completions(args) => cmd::completions::run(&args, verb::program()),
        }?;
        Ok(ExitCode::SUCCESS)
    }
}
