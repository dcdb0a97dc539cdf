//! `copy`: a whole disk from one place to another, decrypted and encrypted on the way.

mod ending;
mod folder;
mod pipe;
mod report;
mod show;
mod source;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use cryptline::{
    Copied, Copy, CopyHash, Create, DispatchMode, DispatchOptions, Holes, Open, PartitionName, Problem, Target, Tokens,
    Zeroes,
};

use crate::CliError;
use crate::args::choice::{self, ChoiceWords};
use crate::args::{KeyArgs, Remembered, Taker, ToArgs, TokenArgs, refuse_shared_input};
use crate::cmd::create::HOLES;
use crate::output::warn_of;
use crate::verb::{Group, Verb};
pub(super) use folder::FileSystem;
pub(super) use report::CopyReport;
pub(super) use show::Show;
pub(super) use source::From;

const ZEROES: &ChoiceWords<Zeroes> = &[
    ("detect", "Zeros, which stay holes: nothing was ever written there, or it was discarded", Zeroes::Detect),
    ("decrypt", "Their decryption, which is noise, as dm-crypt does", Zeroes::Decrypt),
];

/// Extensions in names of encrypted volumes.
const ENCRYPTED: [&str; 3] = ["luks", "luks1", "luks2"];

pub const VERB: Verb = Verb {
    name: "copy",
    group: Some(Group::Volumes),
    is_main: true,
    examples: "\
# decrypt it into a new file
cryptline copy disk.luks out.raw
# the same, verified
cryptline copy disk.luks out.raw --verify
# from one volume into another
cryptline copy disk.luks other.luks --to-key-file key2
# encrypt it into a volume that is there
cryptline copy disk.raw other.luks --to-key-file key2
# encrypt it in a new volume
cryptline copy disk.raw new.luks --encrypt
cryptline copy 'nbd://storage/disk1' disk.raw
# a file system (ext4) with the files of a folder
cryptline copy dir:site site.raw
cryptline copy - 'nbd://storage/disk1' < disk.raw
# go on where the same command was cut off
cryptline copy disk.luks out.raw --resume
# compressed, with hashes of what was decrypted
cryptline copy disk.luks - --hash sha256,md5 | xz > disk.raw.xz
# one partition of the decrypted disk
cryptline copy disk.luks part.raw --partition 2",
    notes: "\
mke2fs makes the file system of dir:DIR in memory, so there must be room for it there. Owners and modes of the files
stay as they are; nothing should change in the folder meanwhile. `create --size` sets the size of the file system, too.

Each side that has a LUKS header is opened, by a token of it where there is one, and anything else is taken as it is. A new
destination is not encrypted unless you use --encrypt, which is `cryptline create DST --from SRC` without its other options.

A new file is written under another name and gets its own once all of it is durable, so whatever has
that name is whole; holes and zeros become holes. With --resume, the unfinished copy stays beside it as
.NAME.cryptline-part, from where the same command goes on; the source, which must be a file, must not
change meanwhile, and that is checked. A volume, a block device or an export that is there already must
have room for all of the source and hold nothing yet, unless you use --force: the place of the copy is
read first, and all of it where only the end of a stream tells how much comes. It keeps a part of the
copy if that ends early.

With `-` as DST the decrypted bytes go to standard output, which must be a file or a pipe, and everything that is said
goes to standard error. --hash prints the hashes of what was decrypted as sha256sum does; their name is `-` unless DST is
a new file, which then has just these bytes.",
    exit: "0 copied, 1 invalid parameters, 2 wrong passphrase, 3 out of memory, 4 a disk or server failed, is full \
        or too small, --verify found a difference, or stopped by a signal, 5 the destination exists or holds data \
        (see --force), or one of them is in use",
    see: "cryptline-create(1), nbdcopy(1), qemu-img(1)",
    ..Verb::EMPTY
};

/// Source and destination of a copy.
#[derive(Args, Debug)]
pub struct CopyArgs {
    /// LUKS volume, raw file or block device, NBD URI, rbd:POOL/IMAGE, pmem:PATH or btt:PATH; `-` for standard input
    #[arg(value_name = "SRC")]
    pub source: PathBuf,

    /// New file, or an existing LUKS volume, block device, NBD URI, rbd:POOL/IMAGE, pmem:PATH or btt:PATH; `-` for standard output
    #[arg(value_name = "DST")]
    pub destination: PathBuf,

    /// Replace an existing file, or overwrite what the destination holds
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub how: How,

    /// Keep what was copied if it ends early, even by kill -9 or a power cut, and go on from there with the same command
    #[arg(long)]
    pub resume: bool,

    /// Hash what is decrypted while it is copied: md5, sha1, sha256, sha512, or several of them
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub hash: Vec<CopyHash>,

    /// Copy only this partition of the decrypted disk: a number, label or UUID. A partition of SRC itself is
    /// `SRC?partition=N`
    #[arg(long, value_name = "N|LABEL|UUID")]
    pub partition: Option<PartitionName>,

    /// Read the LUKS header of the source from FILE
    #[arg(long, value_name = "FILE")]
    pub header: Option<PathBuf>,

    /// Make DST a new LUKS2 volume and encrypt the copy in it. --to-key-file and --to-passphrase-fd say where its passphrase comes
    /// from; without one it is asked for. `create DST --from SRC` has options for everything else
    #[arg(long, conflicts_with_all = ["to_volume_key_file", "to_key_slot", "to_header", "to_token_id", "to_token_type", "to_token_only", "to_pin_file", "to_tpm_device", "to_token_helper"])]
    pub encrypt: bool,

    /// Treatment of holes and zeros where the destination is encrypted; in a clear one they are always kept
    #[arg(long, value_name = "WHAT", default_value = "encrypt", value_parser = choice::of(HOLES))]
    pub holes: Holes,

    #[command(flatten)]
    pub keys: KeyArgs,

    #[command(flatten)]
    pub tokens: TokenArgs,

    #[command(flatten)]
    pub to: ToArgs,
}

/// Options of all copies.
#[derive(Args, Clone, Debug, Default)]
pub struct How {
    /// Take the source as it is, even if it has a LUKS header or is an image in another format
    #[arg(long)]
    pub from_raw: bool,

    /// Read the destination back and compare it with the source
    #[arg(long)]
    pub verify: bool,

    /// Contents of an encrypted source where its medium holds only zeros
    #[arg(long, value_name = "WHAT", default_value = "detect", value_parser = choice::of(ZEROES))]
    pub zeroes: Zeroes,

    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// Copies.
pub fn run(args: &CopyArgs) -> Result<(), CliError> {
    let began = Instant::now();
    let output = pipe::is_meant(&args.destination).then(|| pipe::open(args)).transpose()?;
    let destination = if output.is_some() { pipe::target()? } else { Target::parse(&args.destination)? };
    source::refuse_same(&args.source, &destination)?;
    let from = From {
        name: &args.source,
        how: &args.how,
        header: args.header.as_deref(),
        partition: args.partition.as_ref(),
        is_alone: output.is_some() || !args.hash.is_empty(),
        keys: args.keys.of_target(&args.source),
        tokens: args.tokens.clone(),
        key_option: "--key-file",
        file_system: FileSystem::default(),
    };
    let is_volume = !args.encrypt && output.is_none() && args.is_volume(&destination)?;
    let keys = args.to.keys().of_target(&args.destination);
    if output.is_none() {
        args.check_destination(&destination, is_volume, &keys)?;
    }
    from.refuse_needed(&destination)?;
    let is_luks = from.is_luks()?;
    let [disk, key] = from.takers(is_luks);
    let to_key = Taker {
        what: "the key of the destination",
        instead: "--to-key-file",
        takes: (keys.from_input()).filter(|_| args.encrypt || is_volume && !args.to.tokens().token_only),
    };
    refuse_shared_input(&[disk, key, to_key])?;
    let source = from.open(is_luks)?;
    let show = if args.encrypt { Show::of_create() } else { Show::of_copy() };
    let copy = Copy::new(source)
        .replace(args.force)
        .holes(args.holes)
        .verify(args.how.verify)
        .hashes(args.hash.as_slice())
        .stop(show.stop())
        .on_progress(show.observer());
    let copy = if args.resume { copy.resume(from.choices()) } else { copy };
    let is_piped = output.is_some();
    let copied = if let Some(output) = output {
        copy.into_stream(output, pipe::NAME)
    } else if args.encrypt {
        args.create(copy, &show)
    } else if is_volume {
        let tokens = args.to.tokens().choice(&keys)?;
        let keys = Remembered::new(keys);
        copy.into_volume(|| Ok(args.open_destination(&destination, &keys, tokens.as_ref())))
    } else {
        copy.into_target(&args.destination)
    };
    show.clear();
    let copied = copied.map_err(CliError::of_copy)?;
    warn_of(&copied.warnings);
    let destination = args.destination.as_path();
    let is_file = !args.encrypt && !is_volume && destination.is_file();
    let report = CopyReport { source: &args.source, destination, copied: &copied, began, is_piped, is_file };
    report.print(args.how.json, "")
}

impl CopyArgs {
    /// Tells if the destination is a volume that is there.
    fn is_volume(&self, destination: &Target) -> Result<bool, CliError> {
        if self.to.header.is_some() {
            return Ok(true);
        }
        let is_there = destination.path().is_none_or(Path::exists);
        if !is_there || destination.is_memory() {
            return Ok(false);
        }
        match Open::target(destination.clone()).is_luks() {
            Ok(is_luks) => Ok(is_luks),
            // What it holds is looked for before anything is overwritten.
            Err(error) if matches!(error.problem(), Problem::NotLuks(_)) => Ok(false),
            Err(error) => Err(CliError::of_copy(error)),
        }
    }

    /// Nothing is to be in clear that somebody takes for encrypted, nor a key or header lost.
    fn check_destination(&self, destination: &Target, is_volume: bool, keys: &KeyArgs) -> Result<(), CliError> {
        if !is_volume && !self.encrypt {
            self.check_clear(destination, keys)?;
        }
        keys.refuse_needed(destination, ("the header of the destination", self.to.header.as_deref()))
    }

    /// As above, where the copy will be in clear.
    fn check_clear(&self, destination: &Target, keys: &KeyArgs) -> Result<(), CliError> {
        self.to.tokens().refuse("the destination has no LUKS header")?;
        if !keys.is_empty() {
            return Err(CliError::parameters(format!(
                "{destination}: it has no LUKS header, so the copy would not be encrypted; make it a volume with --encrypt, or leave the key of the destination out"
            )));
        }
        let extension = destination.path().and_then(Path::extension);
        let is_named = |name: &OsStr| ENCRYPTED.iter().any(|it| name.eq_ignore_ascii_case(it));
        // A volume that is taken as it is stays one.
        if extension.is_some_and(is_named) && !self.how.from_raw {
            return Err(CliError::parameters(format!(
                "{destination}: the copy would not be encrypted although its name says that it is; add --encrypt, or choose another name"
            )));
        }
        Ok(())
    }

    /// Makes the volume that is copied into, as `create` has it if nothing else is said.
    fn create(&self, copy: Copy, show: &Show) -> Result<Copied, cryptline::Error> {
        let passphrase = self.to.keys().of_target(&self.destination).passphrase;
        let create =
            Create::new(&self.destination).replace(self.force).keys(passphrase).fill(copy).on_progress(show.observer());
        let created = create.create()?;
        warn_of(&created.warnings);
        Ok(created.copied.expect("it was filled"))
    }

    fn open_destination(&self, destination: &Target, keys: &Arc<Remembered>, tokens: Option<&Tokens>) -> Open {
        let open = inline(Open::target(destination.clone()));
        self.to
            .keys()
            .trusting(open, Open::accept_cipher, Open::header_rules)
            .keys(keys.keys())
            .with(self.to.header.as_ref(), Open::header)
            .with(tokens.cloned(), Open::tokens)
            .with(self.to.key_slot, Open::key_slot)
    }
}

/// The threads of a copy are as many as there are cores: none is idle that could help.
fn inline(open: Open) -> Open {
    open.dispatch(DispatchOptions { both: Some(DispatchMode::Inline), ..DispatchOptions::default() })
}
