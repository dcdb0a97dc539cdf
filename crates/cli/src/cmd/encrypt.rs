//! `encrypt`: a disk in the clear as a new LUKS volume. It is `create --from` for who thinks of what there is.

use std::path::PathBuf;

use clap::Args;
use cryptline::{Holes, Open, Target};

use super::copy::How;
use super::create::{self, CreateArgs, HOLES, NewVolume};
use crate::CliError;
use crate::args::{FromArgs, choice};
use crate::verb::Verb;

pub const VERB: Verb = Verb {
    name: "encrypt",
    examples: "\
cryptline encrypt disk.raw disk.luks
cryptline encrypt disk.raw disk.luks --verify --key-file key.bin
# take the place of old.luks
cryptline encrypt disk.raw old.luks --force
# onto a block device
cryptline encrypt disk.raw /dev/sdb",
    notes: "\
It is the same as `cryptline create DST --from FILE`, which can do more: take an encrypted source, and
sizes. FILE stays as it is; remove it when you no longer need it. What is encrypted already is refused.",
    exit: "0 encrypted, 1 invalid parameters, 2 the two passphrases differ, 3 out of memory, 4 the disk failed or is \
        full, 5 DST exists or holds data (see --force), or one of them is in use",
    see: "cryptline-create(1), cryptline-copy(1), cryptsetup-reencrypt(8)",
    destroys: true,
    ..Verb::EMPTY
};

/// Source and destination.
#[derive(Args, Debug)]
pub struct EncryptArgs {
    /// Unencrypted raw file, block device or NBD URI
    #[arg(value_name = "FILE")]
    pub source: PathBuf,

    /// New file, or an existing block device
    #[arg(value_name = "DST")]
    pub destination: Option<PathBuf>,

    /// Replace DST if it exists, or overwrite what the device holds
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub how: How,

    /// Treatment of holes and zeros
    #[arg(long, value_name = "WHAT", default_value = "encrypt", value_parser = choice::of(HOLES))]
    pub holes: Holes,

    /// Allocate the disk space now
    #[arg(long)]
    pub preallocate: bool,

    /// Keep what was copied when it ends early, and go on from there when the same command is given again
    #[arg(long, conflicts_with_all = ["volume_key_file", "header"])]
    pub resume: bool,

    #[command(flatten)]
    pub volume: NewVolume,
}

/// Encrypts.
pub fn run(args: EncryptArgs) -> Result<(), CliError> {
    let source = Target::parse(&args.source)?;
    let name = args.source.display();
    let in_place = || {
        CliError::parameters(format!(
            "{name}: encrypting in place is not supported; name a new file, as in `cryptline encrypt FILE DST`"
        ))
    };
    let destination = args.destination.ok_or_else(in_place)?;
    if source.is_same_place(&Target::parse(&destination)?) {
        return Err(in_place());
    }
    if !args.how.from_raw && Open::target(source).is_luks().map_err(CliError::from)? {
        return Err(CliError::parameters(format!(
            "{name}: it is encrypted already; `cryptline create DST --from FILE` makes another volume of it"
        )));
    }
    create::run(&CreateArgs {
        file: destination,
        size: None,
        force: args.force,
        from: Some(args.source),
        how: args.how,
        resume: args.resume,
        holes: args.holes,
        from_keys: FromArgs::default(),
        preallocate: args.preallocate,
        volume: args.volume,
    })
}
