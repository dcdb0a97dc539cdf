//! The verbs of `key` that change something.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;

use clap::Args;
use cryptline::Header;
use cryptline::luks::edit::Priority;

use super::recovery;
use super::{
    ConfirmArgs, HeaderArgs, NewSlotArgs, done, may_overwrite, refuse_two_keys, unless_last, unlocking, unlocking_with,
};
use crate::args::choice::{self, ChoiceWords};
use crate::args::{KeyArgs, NewPassphraseSource, Remembered, TokenArgs, bytes_of_key};
use crate::cmd::create::show;
use crate::verb::{LOCALE, Verb, Word};
use crate::{CliError, terminal};

/// The words of `--priority`.
pub const PRIORITIES: &ChoiceWords<Priority> = &[
    ("prefer", "Before the others", Priority::Prefer),
    ("normal", "As usual", Priority::Normal),
    ("ignore", "Only when it is named", Priority::Ignore),
];

pub const ADD: Verb = Verb {
    name: "key add",
    words: &[Word::cryptsetups("luksAddKey")],
    examples: "\
cryptline key add disk.img
cryptline key add disk.img --key-file old --new-key-file new
# where no passphrase is known any more
cryptline key add disk.img --volume-key-file vk
# unlock by slot 0, write slot 5
cryptline key add disk.img --new-key-slot 5 --key-slot 0
# a random recovery key
cryptline key add disk.img --recovery > key.txt
# a passphrase for another key
cryptline key add disk.img --unbound --key-size 256",
    notes: "\
The new key slot is the lowest that is free. --key-slot alone is the new one, as with cryptsetup; with
--new-key-slot it is the one to unlock by.

Tokens unlock the volume on a terminal. Without one they do only where an option names them, so that a script's
passphrases always mean the same.

A recovery key is a passphrase of 256 random bits to print and put away. It is shown once, on a terminal with a
QR code. It opens the volume in small and capital letters, and without its dashes.",
    exit: "0 added, 1 invalid parameters or no free key slot, 2 wrong passphrase, 3 out of memory, 4 wrong device, \
        damaged header or I/O error, 5 in use",
    environment: &[LOCALE],
    ..Verb::EMPTY
};

/// Which volume, by what, and what for.
#[derive(Args, Debug)]
pub struct KeyAddArgs {
    #[command(flatten)]
    pub place: HeaderArgs,

    /// New key file, the same as --new-key-file
    #[arg(conflicts_with_all = ["new_key_file", "new_passphrase_command"])]
    pub key: Option<PathBuf>,

    /// Number of the new key slot [default: the lowest that is free]
    #[arg(long, value_name = "N")]
    pub new_key_slot: Option<u32>,

    /// Add a random recovery key instead, print it, and mark it as systemd-cryptenroll does (LUKS2)
    #[arg(long, conflicts_with_all = [
        "key", "new_key_file", "new_keyfile_offset", "new_keyfile_size", "new_passphrase_fd",
        "new_passphrase_command", "hash", "pbkdf", "iter_time", "pbkdf_memory", "pbkdf_parallel", "pbkdf_force_iterations",
    ])]
    pub recovery: bool,

    /// Keep another key than that of the volume in it: a random one, or that of --volume-key-file (LUKS2)
    #[arg(long, requires = "key_size", conflicts_with = "recovery")]
    pub unbound: bool,

    /// Size of that key in bits
    #[arg(long, value_name = "BITS")]
    pub key_size: Option<u32>,

    /// As with cryptsetup: nothing is asked here in any case.
    #[arg(long, short = 'q', hide = true)]
    pub batch_mode: bool,

    #[command(flatten)]
    pub keys: KeyArgs,

    #[command(flatten)]
    pub tokens: TokenArgs,

    #[command(flatten)]
    pub new: NewPassphraseSource,

    #[command(flatten)]
    pub slot: NewSlotArgs,
}

impl KeyAddArgs {
    /// Adds a key slot.
    pub fn run(&self) -> Result<(), CliError> {
        let mut keys = self.keys.clone();
        let new_slot = self.new_key_slot.or_else(|| keys.key_slot.take());
        refuse_two_keys(&self.place, &keys)?;
        if self.unbound {
            return self.add_unbound(keys, new_slot);
        }
        let header = unlocking_with(&self.place, &keys, &self.tokens)?;
        if self.recovery {
            return recovery::add(header, new_slot);
        }
        let edited = header
            .new_keys(self.new.or_file(self.key.as_deref()))
            .on_progress(show(self.slot.measures()))
            .add_key(&self.slot.new_slot(new_slot)?);
        done(edited, "added")
    }

    /// Adds a key slot that keeps another key.
    fn add_unbound(&self, keys: KeyArgs, slot: Option<u32>) -> Result<(), CliError> {
        let Some(bits) = self.key_size else {
            return Err(CliError::parameters("--unbound: say how long that key is, with --key-size"));
        };
        let rules = keys.rules.rules();
        let given = keys.volume_key_file.is_some().then_some(keys);
        let edited = self
            .place
            .open()
            .header_rules(rules)
            .with(given, Header::keys)
            .new_keys(self.new.or_file(self.key.as_deref()))
            .on_progress(show(self.slot.measures()))
            .add_unbound_key(bytes_of_key("--key-size", bits)?, &self.slot.new_slot(slot)?);
        done(edited, "added; it keeps another key than that of the volume")
    }
}

pub const CHANGE: Verb = Verb {
    name: "key change",
    words: &[Word::cryptsetups("luksChangeKey")],
    examples: "\
cryptline key change disk.img
cryptline key change disk.img --key-file old --new-key-file new
cryptline key change disk.img --key-slot 1 --pbkdf argon2id --iter-time 5000",
    notes: "\
The new passphrase is written to a free place before the old one is destroyed. In LUKS2 the key slot keeps its
number, priority and tokens. In LUKS1 the new passphrase goes to another key slot, if one is free.

Where the header has no room for another key slot, the old one is overwritten in place, after a question or with -q: if
that is cut off, this key slot opens with neither passphrase. The other ones are not touched.",
    exit: "0 changed, 1 invalid parameters or not confirmed, 2 wrong passphrase, 3 out of memory, 4 wrong device, \
        damaged header or I/O error, 5 in use",
    ..Verb::EMPTY
};

/// Which passphrase, and what for.
#[derive(Args, Debug)]
pub struct ChangeArgs {
    #[command(flatten)]
    pub confirm: ConfirmArgs,

    #[command(flatten)]
    pub place: HeaderArgs,

    /// New key file, the same as --new-key-file
    #[arg(conflicts_with_all = ["new_key_file", "new_passphrase_command"])]
    pub key: Option<PathBuf>,

    #[command(flatten)]
    pub keys: KeyArgs,

    #[command(flatten)]
    pub new: NewPassphraseSource,

    #[command(flatten)]
    pub slot: NewSlotArgs,
}

impl ChangeArgs {
    /// Replaces a passphrase.
    pub fn run(&self) -> Result<(), CliError> {
        refuse_two_keys(&self.place, &self.keys)?;
        let edited = unlocking(&self.place, &self.keys)
            .new_keys(self.new.or_file(self.key.as_deref()))
            .may_overwrite(may_overwrite(self.confirm))
            .on_progress(show(self.slot.measures()))
            .change_key(&self.slot.new_slot(None)?);
        done(edited, "opens with the new passphrase")
    }
}

pub const REMOVE: Verb = Verb {
    name: "key remove",
    words: &[Word::cryptsetups("luksRemoveKey")],
    examples: "\
cryptline key remove disk.img
cryptline key remove disk.img --key-file old
# the passphrase in the file old
cryptline key remove disk.img old",
    notes: "\
The last key slot is removed only after a question, or with -q.",
    exit: "0 removed, 1 invalid parameters or the last key slot, 2 wrong passphrase, 3 out of memory, 4 wrong \
        device, damaged header or I/O error, 5 in use",
    destroys: true,
    ..Verb::EMPTY
};

/// Which passphrase.
#[derive(Args, Debug)]
pub struct KeyRemoveArgs {
    #[command(flatten)]
    pub place: HeaderArgs,

    /// Key file with the passphrase, the same as --key-file
    #[arg(conflicts_with_all = ["key_file", "passphrase_fd", "passphrase_command"])]
    pub key: Option<PathBuf>,

    #[command(flatten)]
    pub keys: KeyArgs,

    #[command(flatten)]
    pub confirm: ConfirmArgs,
}

impl KeyRemoveArgs {
    /// Removes the key slot of a passphrase.
    pub fn run(&self) -> Result<(), CliError> {
        let mut keys = self.keys.clone();
        keys.passphrase.key_file = self.key.clone().or(keys.passphrase.key_file);
        refuse_two_keys(&self.place, &keys)?;
        // It is needed again where the slot is the last.
        let typed = Remembered::new(keys.of_target(&self.place.target));
        unless_last(self.confirm, self.place.name(), &|last| {
            unlocking(&self.place, &keys).keys(typed.keys()).remove_key(last)
        })
    }
}

pub const KILL: Verb = Verb {
    name: "key kill",
    examples: "\
cryptline key kill disk.img 3
# a passphrase that stays
cryptline key kill disk.img 3 --key-file other
# without a passphrase
cryptline key kill disk.img 3 -q",
    notes: "\
Without -q, a passphrase of another key slot is needed first, so that one is known to be left.",
    exit: "0 removed, 1 invalid parameters or the last key slot, 2 wrong passphrase, 3 out of memory, 4 wrong \
        device, damaged header or I/O error, 5 in use",
    destroys: true,
    ..Verb::EMPTY
};

/// Which slot.
#[derive(Args, Debug)]
pub struct KillArgs {
    #[command(flatten)]
    pub place: HeaderArgs,

    /// Number of the key slot
    pub slot: u32,

    #[command(flatten)]
    pub keys: KeyArgs,

    #[command(flatten)]
    pub confirm: ConfirmArgs,
}

impl KillArgs {
    /// Removes a key slot by its number.
    pub fn run(&self) -> Result<(), CliError> {
        let needs_key = !self.confirm.batch_mode || !self.keys.is_empty();
        self.kill(&|| if needs_key { unlocking(&self.place, &self.keys) } else { self.unasked() })
    }

    /// The same as `luksKillSlot`: a passphrase on standard input that is no terminal counts, with -q too.
    pub fn run_as_word(&self) -> Result<(), CliError> {
        let is_piped = !io::stdin().is_terminal() && self.keys.is_empty();
        if !self.confirm.batch_mode || !is_piped {
            return self.run();
        }
        let typed = terminal::line_of(io::stdin()).ok();
        self.kill(&|| self.unasked().with(typed.as_ref(), |header, typed| header.passphrase(&**typed)))
    }

    /// With no key.
    fn unasked(&self) -> Header {
        self.place.open().header_rules(self.keys.rules.rules())
    }

    fn kill(&self, open: &dyn Fn() -> Header) -> Result<(), CliError> {
        refuse_two_keys(&self.place, &self.keys)?;
        unless_last(self.confirm, self.place.name(), &|last| open().kill_slot(self.slot, last))
    }
}

pub const PRIORITY: Verb = Verb {
    name: "key priority",
    examples: "\
# try key slot 1 first
cryptline key priority disk.img 1 prefer
# try key slot 2 only when it is named
cryptline key priority disk.img 2 ignore",
    exit: "0 changed, 1 invalid parameters or LUKS1, 4 wrong device, damaged header or I/O error, 5 in use",
    ..Verb::EMPTY
};

/// Which slot, and when.
#[derive(Args, Debug)]
pub struct PriorityArgs {
    #[command(flatten)]
    pub place: HeaderArgs,

    /// Number of the key slot
    pub slot: u32,

    /// When it is tried
    #[arg(value_parser = choice::of(PRIORITIES))]
    pub priority: Priority,
}

impl PriorityArgs {
    /// Says when a slot is tried.
    pub fn run(&self) -> Result<(), CliError> {
        let edited = self.place.open().set_priority(self.slot, self.priority);
        done(edited, "has the new priority")
    }
}

pub const CONVERT: Verb = Verb {
    name: "key convert",
    examples: "\
cryptline key convert disk.img --pbkdf argon2id
cryptline key convert disk.img --key-slot 1 --iter-time 5000
cryptline key convert disk.img --key-file key --pbkdf pbkdf2 --hash sha512",
    notes: "\
The passphrase stays the same. The new key slot is written to a free place before the old one is destroyed. Where there
is no such place, the old one is overwritten, after a question or with -q: if that is cut off, it does not open any more.",
    exit: "0 converted, 1 invalid parameters or not confirmed, 2 wrong passphrase, 3 out of memory, 4 wrong device, \
        damaged header or I/O error, 5 in use",
    destroys: true,
    ..Verb::EMPTY
};

/// Which passphrase, and its cost.
#[derive(Args, Debug)]
pub struct KeyConvertArgs {
    #[command(flatten)]
    pub confirm: ConfirmArgs,

    #[command(flatten)]
    pub place: HeaderArgs,

    #[command(flatten)]
    pub keys: KeyArgs,

    #[command(flatten)]
    pub slot: NewSlotArgs,
}

impl KeyConvertArgs {
    /// Makes a key slot anew.
    pub fn run(&self) -> Result<(), CliError> {
        refuse_two_keys(&self.place, &self.keys)?;
        let edited = unlocking(&self.place, &self.keys)
            .may_overwrite(may_overwrite(self.confirm))
            .on_progress(show(self.slot.measures()))
            .convert_key(&self.slot.new_slot(None)?);
        done(edited, "has the new key derivation function")
    }
}
