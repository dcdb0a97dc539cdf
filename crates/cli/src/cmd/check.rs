//! `check`: does this passphrase unlock the volume?

mod list;
mod report;

use std::path::PathBuf;
use std::slice;
use std::sync::Arc;

use clap::Args;
use cryptline::luks::Error as LuksError;
use cryptline::{Contents, Format, KeyRequest, Open, Problem, Unlocked, Zeroes};

use crate::CliError;
use crate::args::{KeyArgs, LUKS_TYPES, TokenArgs, VolumeType, choice};
use crate::error::luks_advice;
use crate::output::{for_shell, warn_of};
use crate::verb::{Group, Verb, Word};
use list::PassphraseList;

pub const VERB: Verb = Verb {
    name: "check",
    words: &[
        Word { option: "--open", ..Word::cryptsetups("open") },
        Word { option: "--open", ..Word::cryptsetups("luksOpen") },
    ],
    group: Some(Group::Volumes),
    is_main: true,
    examples: "\
# ask for the passphrase
cryptline check disk.img
# take the bytes of the file unchanged
cryptline check disk.img --key-file key.bin
cryptline check disk.img --key-file - < key.bin
cryptline check disk.img --key-slot 3 --passphrase-fd 3 3<passphrase.txt
# try each line of a file, and say which one opens
cryptline check disk.img --passphrase-list words.txt
# a report for a case file (docs/open-json.md)
cryptline check --json disk.img > disk.json",
    notes: "\
cryptline makes no device under /dev/mapper. To use the decrypted disk, run `cryptline serve`.",
    exit: "0 unlocked, 1 invalid parameters, 2 no key available with this passphrase, 3 out of memory, 4 wrong \
        device, damaged header, or one whose cipher is missing, broken or not vouched for",
    ..Verb::EMPTY
};

/// Volume to check, and how.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// LUKS file or block device, NBD URI, rbd:POOL/IMAGE, pmem:PATH, btt:PATH or zoned:PATH; a part of any is TARGET?partition=N or TARGET?offset=SIZE&length=SIZE
    pub target: PathBuf,

    /// Nothing else is done.
    #[arg(long, alias = "test-passphrase", hide = true)]
    pub check: bool,

    /// The older name was used, by which a mapping may be meant.
    #[arg(long, hide = true)]
    pub open: bool,

    /// Print a report as JSON: which key it was, the header, its hash, the version and the time
    #[arg(long)]
    pub json: bool,

    /// Try each line of FILE as a passphrase, and say the number of the one that opens. Empty lines are skipped. After the
    /// first try, it says how long all of them will take
    #[arg(long, value_name = "FILE", conflicts_with_all = ["key_file", "passphrase_fd", "passphrase_command", "volume_key_file", "token_id", "token_type", "token_only"])]
    pub passphrase_list: Option<PathBuf>,

    /// Read the LUKS header from FILE instead of the target
    #[arg(long, value_name = "FILE")]
    pub header: Option<PathBuf>,

    /// Accept this version only
    #[arg(long = "type", value_name = "TYPE", value_parser = choice::of(LUKS_TYPES))]
    pub kind: Option<VolumeType>,

    /// Accept key slots with cipher_null, which protects nothing
    #[arg(long)]
    pub allow_null_cipher: bool,

    /// The key slot may keep another key than that of the volume, as any that --key-slot names may.
    #[arg(long, hide = true)]
    pub unbound: bool,

    /// As with cryptsetup, where the size of a volume key is said. It is known here.
    #[arg(long, value_name = "BITS", hide = true)]
    pub key_size: Option<u32>,

    /// As with cryptsetup, where how often is asked is said.
    #[arg(long, value_name = "N", hide = true)]
    pub tries: Option<u32>,

    /// As with cryptsetup: nothing is asked here in any case.
    #[arg(long, short = 'q', hide = true)]
    pub batch_mode: bool,

    #[command(flatten)]
    pub keys: KeyArgs,

    #[command(flatten)]
    pub tokens: TokenArgs,
}

/// Checks, and says which key slot it was.
///
/// # Errors
/// Exit code 2 for a wrong passphrase.
pub fn run(args: &CheckArgs) -> Result<(), CliError> {
    if args.open && !args.check && !args.json {
        return Err(CliError::parameters(format!(
            "open makes no mapping under /dev/mapper; to use the decrypted disk: cryptline serve {0}; to try a passphrase: cryptline check {0}",
            for_shell(&args.target.display().to_string())
        )));
    }
    let version = args.kind.and_then(VolumeType::version);
    let keys = args.keys.of_target(&args.target);
    let list = args.passphrase_list.as_deref().map(PassphraseList::open).transpose()?.map(Arc::new);
    let tokens = if list.is_some() { None } else { args.tokens.choice(&keys)? };
    let open = Open::new(&args.target);
    let open = args
        .keys
        .trusting(open, Open::accept_cipher, Open::header_rules)
        .format(Format::Luks(version))
        .keys(keys)
        .on_warning(|warning| warn_of(slice::from_ref(warning)))
        .kdf_limits(args.keys.kdf_limits())
        .allow_null_cipher(args.allow_null_cipher)
        .examine(args.json)
        .with(list.clone(), |open, list| open.keys(move |request: &KeyRequest<'_>| list.key(request)))
        .with(tokens, Open::tokens)
        .with(args.header.as_ref(), Open::header)
        .with(args.keys.key_slot, Open::key_slot);
    let unlocked = open.unlock().map_err(|error| match &list {
        Some(list) if matches!(error.problem(), Problem::Luks(LuksError::NoKey)) => {
            CliError::new(error.kind(), format!("{}: {}", args.target.display(), list.none_opens()))
        }
        _ => error.into(),
    })?;
    let line = list.map(|list| list.line());
    let doubted = unlocked.doubted.clone().map(LuksError::DoubtedCipher);
    let why = unlocked.usable.as_ref().err().or(doubted.as_ref());
    let told = why.map(|why| {
        let advice = luks_advice(why);
        format!("the key is right, but the volume can not be served: {why}{advice}")
    });
    if args.json {
        let why = why.map(|why| format!("{why}{}", luks_advice(why)));
        report::print(&unlocked, args.contents(&unlocked).as_ref(), line, args.header.as_deref(), why.as_deref())?;
    }
    // Who asks whether all is well must not hear that it is.
    if let (Some(told), Some(LuksError::NullCipher(_) | LuksError::ClearSegment(_) | LuksError::DoubtedCipher(_))) =
        (&told, why)
    {
        return Err(CliError::device(told));
    }
    if args.json {
        return Ok(());
    }
    // Which passphrase it was is what was asked for.
    let tell = if line.is_some() { crate::output::print } else { crate::output::report };
    tell(&match unlocked.slot {
        Some(slot) => match line {
            Some(line) => format!("Key slot {slot} unlocked by line {line}.\n"),
            None => format!("Key slot {slot} unlocked.\n"),
        },
        None => "The volume key fits.\n".to_owned(),
    })?;
    crate::output::warn(told.as_slice());
    Ok(())
}

impl CheckArgs {
    /// Names what the decrypted disk has; `None` also where the volume cannot be read now, such as one that is served.
    fn contents(&self, unlocked: &Unlocked) -> Option<Contents> {
        let open = Open::new(&self.target)
            .key(&*unlocked.key)
            .read_only(true)
            .zeroes(Zeroes::Detect)
            .allow_null_cipher(self.allow_null_cipher)
            .with(self.header.as_ref(), Open::header);
        let open = self.keys.trusting(open, Open::accept_cipher, Open::header_rules);
        open.open().and_then(|volume| volume.contents()).ok().flatten()
    }
}
