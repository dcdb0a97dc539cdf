//! The verbs of `header`.

use std::path::PathBuf;

use clap::Args;
use cryptline::luks::format::LuksVersion;

use super::ask;
use crate::CliError;
use crate::args::choice;
use crate::cmd::create::{VERSIONS, show};
use crate::cmd::key::{ConfirmArgs, HeaderArgs};
use crate::error::on_one_line;
use crate::output::{changed, print, report, say, warn_of};
use crate::verb::{Verb, Word};

pub const BACKUP: Verb = Verb {
    name: "header backup",
    words: &[Word::cryptsetups("luksHeaderBackup")],
    examples: "\
cryptline header backup disk.img --file disk.header
cryptline header backup /dev/sdb --header detached.img --file detached.header",
    notes: "\
The file is new, and only its owner can read it. Whoever has it and one of its passphrases opens the volume, even
after that passphrase was removed: keep it as safe as a key.",
    exit: "0 saved, 1 invalid parameters, 4 wrong device, damaged header or I/O error, 5 the file exists, or in use",
    ..Verb::EMPTY
};

/// Whose, and where to.
#[derive(Args, Debug)]
pub struct BackupArgs {
    #[command(flatten)]
    pub place: HeaderArgs,

    /// The new file
    #[arg(long, value_name = "FILE", alias = "header-backup-file")]
    pub file: PathBuf,
}

impl BackupArgs {
    /// Saves the header.
    pub fn run(&self) -> Result<(), CliError> {
        changed(self.place.open().on_progress(show(false)).backup(&self.file))?;
        let (file, name) = (self.file.display(), self.place.name().display());
        say(&format!("Header of {name} saved to {file}"))
    }
}

pub const RESTORE: Verb = Verb {
    name: "header restore",
    words: &[Word::cryptsetups("luksHeaderRestore")],
    examples: "\
cryptline header restore disk.img --file disk.header
# ask nothing
cryptline header restore disk.img --file disk.header -q",
    notes: "\
The key slots of the backup take the place of those that are there, so this is asked for first, or given with -q. A
backup whose data begins elsewhere, or of another length, is refused. One of a header that could only be read, as before
`repair --force`, is written back as it was. It cannot be done in one step: if it is cut off, use the same command again.",
    exit: "0 restored, 1 invalid parameters, not confirmed, or the backup does not fit, 4 wrong device or I/O error, \
        5 in use",
    destroys: true,
    ..Verb::EMPTY
};

/// Whose, and from where.
#[derive(Args, Debug)]
pub struct RestoreArgs {
    #[command(flatten)]
    pub place: HeaderArgs,

    /// The backup
    #[arg(long, value_name = "FILE", alias = "header-backup-file")]
    pub file: PathBuf,

    #[command(flatten)]
    pub confirm: ConfirmArgs,
}

impl RestoreArgs {
    /// Writes a backup back.
    pub fn run(&self) -> Result<(), CliError> {
        let name = self.place.name().display().to_string();
        let restored = self.place.open().restore(&self.file, |concerns| {
            let what = format!("{name}: {}.", concerns.join("; "));
            ask(self.confirm, &what).map_err(CliError::into_keys_error)
        });
        let restored = restored.map_err(CliError::of_header)?;
        say(&format!("{name}: the header is restored, UUID {}", restored.header.uuid()))
    }
}

pub const UUID: Verb = Verb {
    name: "header uuid",
    words: &[Word::cryptsetups("luksUUID")],
    examples: "\
# show it
cryptline header uuid disk.img
cryptline header uuid disk.img --random
cryptline header uuid disk.img --uuid 970e17de-0750-443f-b6ca-2a739c5ff99a",
    exit: "0 success, 1 invalid parameters, 4 wrong device, damaged header or I/O error, 5 in use",
    ..Verb::EMPTY
};

/// Whose, and which.
#[derive(Args, Debug)]
pub struct UuidArgs {
    #[command(flatten)]
    pub place: HeaderArgs,

    /// The new UUID
    #[arg(long, value_name = "UUID")]
    pub uuid: Option<String>,

    /// Give it a new random UUID
    #[arg(long, conflicts_with = "uuid")]
    pub random: bool,

    /// As with cryptsetup: nothing is asked here in any case.
    #[arg(long, short = 'q', hide = true)]
    pub batch_mode: bool,
}

impl UuidArgs {
    /// Shows or changes it.
    pub fn run(&self) -> Result<(), CliError> {
        if self.uuid.is_none() && !self.random {
            let found = self.place.inspect()?;
            print(&format!("{}\n", found.header.uuid()))?;
            return Ok(());
        }
        let edited = changed(self.place.open().set_uuid(self.uuid.as_deref()))?;
        print(&format!("{}\n", edited.header.uuid()))
    }
}

pub const LABEL: Verb = Verb {
    name: "header label",
    examples: "\
# show them
cryptline header label disk.img
cryptline header label disk.img --label backup
# no label
cryptline header label disk.img --label ''",
    exit: "0 success, 1 invalid parameters or LUKS1, 4 wrong device, damaged header or I/O error, 5 in use",
    ..Verb::EMPTY
};

/// Whose, and which.
#[derive(Args, Debug)]
pub struct LabelArgs {
    #[command(flatten)]
    pub place: HeaderArgs,

    /// The new label, up to 47 bytes
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,

    /// The new subsystem, up to 47 bytes
    #[arg(long, value_name = "TEXT")]
    pub subsystem: Option<String>,
}

impl LabelArgs {
    /// Shows or changes them.
    pub fn run(&self) -> Result<(), CliError> {
        let (label, subsystem) = (self.label.as_deref(), self.subsystem.as_deref());
        let is_question = label.is_none() && subsystem.is_none();
        let info = if is_question {
            self.place.inspect()?.header.info()
        } else {
            changed(self.place.open().set_label(label, subsystem))?.header.info()
        };
        let shown = |text: Option<String>| on_one_line(&text.unwrap_or_default());
        let (label, subsystem) = (shown(info.label), shown(info.subsystem));
        let text = format!("Label:     {label}\nSubsystem: {subsystem}\n");
        if is_question { print(&text) } else { report(&text) }
    }
}

pub const CONVERT: Verb = Verb {
    name: "header convert",
    words: &[Word::cryptsetups("convert")],
    examples: "\
cryptline header convert disk.img --to luks2
# only with PBKDF2 and 512-byte sectors, and without tokens
cryptline header convert disk.img --to luks1",
    notes: "\
Volume key, UUID, key slots and data stay as they are, and every passphrase opens the volume as before. What the other
version cannot have is refused by name. A crash at any moment leaves the old header or the new one. A server that has
the volume open must end first.",
    exit: "0 converted, 1 invalid parameters, or the other version cannot have it, 4 wrong device, damaged header or \
        I/O error, 5 in use",
    destroys: true,
    ..Verb::EMPTY
};

/// Whose, and which version.
#[derive(Args, Debug)]
pub struct HeaderConvertArgs {
    #[command(flatten)]
    pub place: HeaderArgs,

    /// The new version
    #[arg(long, value_name = "TYPE", alias = "type", value_parser = choice::of(VERSIONS))]
    pub to: LuksVersion,

    /// As with cryptsetup: nothing is asked here in any case.
    #[arg(long, short = 'q', hide = true)]
    pub batch_mode: bool,
}

impl HeaderConvertArgs {
    /// Converts a header.
    pub fn run(&self) -> Result<(), CliError> {
        changed(self.place.open().convert(self.to))?;
        let name = self.place.name().display();
        say(&format!("{name}: the header is {} now", self.to))
    }
}

pub const REPAIR: Verb = Verb {
    name: "header repair",
    words: &[Word::cryptsetups("repair")],
    examples: "\
cryptline header repair disk.img
cryptline header repair disk.img --wipe-unused
# overwrite what is in the way
cryptline header repair disk.img --force",
    notes: "\
LUKS2 keeps two copies of its header. Where one is damaged or older than the other, both are rewritten from the good
one. LUKS1 has one copy: where key slots lie follows from the length of the key, so what a disk signature has overwritten
of that is rewritten.

--force goes further, so save the header with `cryptline header backup` first:
  a device that holds something else by now gets its header back, and loses what lies in its place
  a newer copy that is whole and not understood gives way to the older one
  key slots and tokens of LUKS2 that do not follow the format are taken out, but never the last key slot; where there was
  something else to repair, a second run does that
  a key slot of LUKS1 of which only the state is lost counts as in use again; one of which too little is left to open it
  is made free, unless it could be the last one",
    exit: "0 the header is good, 1 invalid parameters, 4 wrong device, no good copy, --force is needed, or I/O \
        error, 5 in use",
    destroys: true,
    ..Verb::EMPTY
};

/// Whose.
#[derive(Args, Debug)]
pub struct RepairArgs {
    #[command(flatten)]
    pub place: HeaderArgs,

    /// Overwrite the space that no key slot uses: a crash may have left a replaced key slot there
    #[arg(long)]
    pub wipe_unused: bool,

    /// Repair it even where that costs what is there now
    #[arg(long)]
    pub force: bool,

    /// As with cryptsetup: nothing is asked here in any case.
    #[arg(long, short = 'q', hide = true)]
    pub batch_mode: bool,
}

impl RepairArgs {
    /// Repairs a header.
    pub fn run(&self) -> Result<(), CliError> {
        let repaired = self.place.open().repair(self.force).map_err(CliError::of_header)?;
        let name = self.place.name().display();
        let what = match &repaired {
            Some(edited) if edited.header.version() == LuksVersion::Luks1 => "the header is repaired",
            Some(_) => "the header is repaired: both copies are good",
            None => "nothing to repair",
        };
        say(&format!("{name}: {what}"))?;
        if let Some(edited) = &repaired {
            warn_of(&edited.warnings);
        }
        if self.wipe_unused {
            self.place.open().wipe_unused().map_err(CliError::of_header)?;
            say(&format!("{name}: unused key slots are overwritten"))?;
        }
        Ok(())
    }
}
