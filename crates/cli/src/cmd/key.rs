//! `key`: the key slots of a volume.

mod erase;
mod list;
mod recovery;
mod rotate;
mod verbs;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use cryptline::luks::Error as LuksError;
use cryptline::luks::edit::{LastSlot, NewSlot};
use cryptline::{Edited, Header, Inspection, Open, Overwrite, Problem, Target};

pub use erase::EraseArgs;
pub use list::KeyListArgs;
pub use rotate::RotateArgs;
pub use verbs::{ChangeArgs, KeyAddArgs, KeyConvertArgs, KeyRemoveArgs, KillArgs, PRIORITIES, PriorityArgs};

use crate::CliError;
use crate::args::{KeyArgs, PbkdfArgs, SlotCipherArgs, TokenArgs};
use crate::output::{changed, report};
use crate::verb::{Group, LOCKS, Verb};

/// `key`.
const VERB: Verb = Verb {
    name: "key",
    group: Some(Group::Keys),
    is_main: true,
    examples: "\
cryptline key list disk.img
# add a passphrase
cryptline key add disk.img
cryptline key add disk.img --key-file old --new-key-file new
# another passphrase in place of this one
cryptline key change disk.img
# the passphrase that you type
cryptline key remove disk.img
# key slot 3; another passphrase is asked for
cryptline key kill disk.img 3
cryptline key priority disk.img 1 prefer",
    notes: "\
No root is needed. A new key slot is written and flushed before the header names it, both copies of the header
are written one after the other, and a replaced key slot is overwritten last: a crash at any moment leaves a
header that opens. Only where there is no room for another key slot is one overwritten in place, after a
question. A removed key slot is overwritten first: one that is no longer listed is gone.
cryptsetup's own words, such as luksAddKey, work too.",
    files: &[LOCKS],
    see: "cryptline-token(1), cryptsetup-luksAddKey(8)",
    ..Verb::EMPTY
};

/// Rows of it and of the verbs below it.
pub const VERBS: &[Verb] = &[
    VERB,
    verbs::ADD,
    verbs::CHANGE,
    verbs::REMOVE,
    verbs::KILL,
    erase::VERB,
    list::VERB,
    verbs::PRIORITY,
    verbs::CONVERT,
    rotate::VERB,
];

/// Operations on key slots.
#[derive(Subcommand, Debug)]
pub enum KeyCommand {
    /// Add a passphrase
    Add(KeyAddArgs),
    /// Replace a passphrase with another one
    Change(ChangeArgs),
    /// Remove the key slot that a passphrase opens
    Remove(KeyRemoveArgs),
    /// Remove a key slot by its number
    Kill(KillArgs),
    /// Destroy all key slots
    Erase(EraseArgs),
    /// List the key slots
    List(KeyListArgs),
    /// Say when a key slot is tried (LUKS2)
    Priority(PriorityArgs),
    /// Give a key slot another key derivation function or cost, under the same passphrase
    Convert(KeyConvertArgs),
    /// Replace the passphrase behind the token of a helper (LUKS2)
    Rotate(RotateArgs),
}

impl KeyCommand {
    /// Runs one of them.
    pub fn run(&self) -> Result<(), CliError> {
        match self {
            Self::Add(args) => args.run(),
            Self::Change(args) => args.run(),
            Self::Remove(args) => args.run(),
            Self::Kill(args) => args.run(),
            Self::Erase(args) => args.run(),
            Self::List(args) => args.run(),
            Self::Priority(args) => args.run(),
            Self::Convert(args) => args.run(),
            Self::Rotate(args) => args.run(),
        }
    }
}

/// Whose header it is.
#[derive(Args, Clone, Debug)]
pub struct HeaderArgs {
    /// LUKS file or block device, NBD URI, rbd:POOL/IMAGE, pmem:PATH or btt:PATH
    pub target: PathBuf,

    /// Change the LUKS header in FILE; the target holds only data
    #[arg(long, value_name = "FILE")]
    pub header: Option<PathBuf>,
}

impl HeaderArgs {
    /// The header, still closed.
    pub fn open(&self) -> Header {
        Header::new(&self.target).with(self.header.as_ref(), Header::header)
    }

    /// Returns what the header says.
    ///
    /// # Errors
    /// Exit code 4 for a damaged or missing header.
    pub fn inspect(&self) -> Result<Inspection, CliError> {
        Ok(Open::new(&self.target).with(self.header.as_ref(), Open::header).inspect()?)
    }

    /// Returns what messages call it.
    pub fn name(&self) -> &Path {
        self.header.as_deref().unwrap_or(&self.target)
    }
}

/// The last key slot goes only if that was said.
#[derive(Args, Clone, Copy, Debug)]
pub struct ConfirmArgs {
    /// Ask nothing: do it
    #[arg(long, short = 'q')]
    pub batch_mode: bool,
}

/// Options of the new key slot.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "New key options")]
pub struct NewSlotArgs {
    #[command(flatten)]
    pub pbkdf: PbkdfArgs,

    /// Hash for PBKDF2 and the key slot (LUKS2) [default: sha256]
    #[arg(long, value_name = "NAME")]
    pub hash: Option<String>,

    #[command(flatten)]
    pub cipher: SlotCipherArgs,
}

impl NewSlotArgs {
    fn new_slot(&self, slot: Option<u32>) -> Result<NewSlot, CliError> {
        Ok(NewSlot {
            slot,
            kdf: self.pbkdf.pbkdf,
            hash: self.hash.clone(),
            cost: self.pbkdf.cost(),
            cipher: self.cipher.cipher()?,
        })
    }

    fn measures(&self) -> bool {
        self.pbkdf.pbkdf_force_iterations.is_none()
    }
}

/// A key slot that goes must be the one that was meant: not that of the target's own key file where another key is named.
pub(super) fn refuse_two_keys(place: &HeaderArgs, keys: &KeyArgs) -> Result<(), CliError> {
    let is_named = !keys.passphrase.is_prompt() || keys.volume_key_file.is_some();
    match Target::parse(&place.target) {
        Ok(Target::Keyed(keyed)) if is_named => match (keyed.key_file, keyed.passphrase_command) {
            (Some(own), _) => Err(CliError::parameters(format!(
                "{}: the target names its key file, {}, and another key is given; leave one of them out",
                place.target.display(),
                own.display()
            ))),
            (None, Some(_)) => Err(CliError::parameters(format!(
                "{}: the target names its passphrase command, and another key is given; leave one of them out",
                place.target.display()
            ))),
            (None, None) => Ok(()),
        },
        _ => Ok(()),
    }
}

/// With what unlocks it.
pub(super) fn unlocking(place: &HeaderArgs, keys: &KeyArgs) -> Header {
    let header = place.open().keys(keys.of_target(&place.target)).kdf_limits(keys.kdf_limits());
    keys.trusting(header, Header::accept_cipher, Header::header_rules).with(keys.key_slot, Header::key_slot)
}

/// With the tokens, too. Whether the first line of a script's input is the old passphrase must not depend on the
/// keyring.
pub(super) fn unlocking_with(place: &HeaderArgs, keys: &KeyArgs, tokens: &TokenArgs) -> Result<Header, CliError> {
    let header = unlocking(place, keys);
    if !tokens.are_named() && !io::stdin().is_terminal() {
        return Ok(header);
    }
    Ok(header.with(tokens.choice(&keys.of_target(&place.target))?, Header::tokens))
}

/// Tells what was done, in a line.
fn done(edited: cryptline::Result<Edited>, what: &str) -> Result<(), CliError> {
    let slot = changed(edited)?.slot.map_or_else(String::new, |slot| format!("Key slot {slot} "));
    report(&format!("{slot}{what}.\n"))
}

/// Asks before a key slot is overwritten in place.
fn may_overwrite(confirm: ConfirmArgs) -> impl Fn(&Overwrite<'_>) -> cryptline::Result<()> + Send + Sync + 'static {
    move |overwrite| {
        let Overwrite { name, slot, .. } = overwrite;
        let what = if overwrite.is_last {
            "no passphrase opens the volume any more, and its data is lost unless there is a backup of the header \
             (`cryptline header backup`) or the volume key"
        } else {
            "this key slot opens no more; the others are not touched"
        };
        let question = format!(
            "{name}: the header has no room for another key slot, so key slot {slot} is overwritten in place. If that \
             is cut off, {what}."
        );
        super::header::ask(confirm, &question).map_err(CliError::into_keys_error)
    }
}

/// Does it without the last key slot's going; with it only after a question, or where that was said before.
fn unless_last(
    confirm: ConfirmArgs,
    name: &Path,
    remove: &dyn Fn(LastSlot) -> cryptline::Result<Edited>,
) -> Result<(), CliError> {
    let first = if confirm.batch_mode { LastSlot::Remove } else { LastSlot::Keep };
    let removed = match remove(first) {
        Err(error) if matches!(error.problem(), Problem::Luks(LuksError::LastSlot(_))) => {
            let question = format!(
                "{}: this is the last key slot. Without it no passphrase opens the volume, and its data is lost unless you keep a backup of the header or the volume key.",
                name.display()
            );
            super::header::ask(confirm, &question)?;
            remove(LastSlot::Remove)
        }
        done => done,
    };
    done(removed, "removed; its key material is overwritten")
}
