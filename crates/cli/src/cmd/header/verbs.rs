//! The verbs of `header`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use cryptline::luks::format::Version;
use cryptline::{Inspection, Open};

use super::ask;
use crate::CliError;
use crate::args::choice;
use crate::cmd::create::VERSIONS;
use crate::cmd::key::{Confirm, Place};
use crate::error::on_one_line;
use crate::output::{print, warn_of};

/// Whose, and where to.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cryptline header backup disk.img --file disk.header
  cryptline header backup /dev/sdb --header detached.img --file detached.header

The file is new, and only its owner can read it. Whoever has it and one of its passphrases opens the volume, even
after that passphrase was removed: keep it as safe as a key.

Exit codes: 0 saved, 1 invalid parameters, 4 wrong device, damaged header or I/O error, 5 the file exists, or in use.")]
pub struct BackupArgs {
    /// Whose.
    #[command(flatten)]
    pub place: Place,

    /// The new file
    #[arg(long, value_name = "FILE", alias = "header-backup-file")]
    pub file: PathBuf,
}

impl BackupArgs {
    /// Saves the header.
    ///
    /// # Errors
    /// As the help says.
    pub fn run(&self) -> Result<ExitCode, CliError> {
        let saved = self.place.open().backup(&self.file);
        let saved = saved.map_err(|error| CliError::of_header(&error))?;
        warn_of(&saved.warnings);
        let (file, name) = (self.file.display(), self.place.name().display());
        print(&on_one_line(&format!("{file}: backup of the header of {name}")))?;
        print("\n")?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Whose, and from where.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cryptline header restore disk.img --file disk.header
  cryptline header restore disk.img --file disk.header -q       ask nothing

The key slots of the backup take the place of those that are there, so this is asked for first, or given with -q. A
backup whose data begins elsewhere, or of another length, is refused. It cannot be done in one step: if it is cut off,
give the same command again.

Exit codes: 0 restored, 1 invalid parameters, not confirmed, or the backup does not fit, 4 wrong device or I/O error,
5 in use.")]
pub struct RestoreArgs {
    /// Whose.
    #[command(flatten)]
    pub place: Place,

    /// The backup
    #[arg(long, value_name = "FILE", alias = "header-backup-file")]
    pub file: PathBuf,

    /// Confirmation.
    #[command(flatten)]
    pub confirm: Confirm,
}

impl RestoreArgs {
    /// Writes a backup back.
    ///
    /// # Errors
    /// As the help says.
    pub fn run(&self) -> Result<ExitCode, CliError> {
        let name = self.place.name().display().to_string();
        let restored = self.place.open().restore(&self.file, |concerns| {
            let what = format!("{name}: {}.", concerns.join("; "));
            ask(self.confirm, &what).map_err(CliError::into_keys_error)
        });
        let restored = restored.map_err(|error| CliError::of_header(&error))?;
        let uuid = restored.header.uuid();
        print(&(on_one_line(&format!("{name}: the header is restored, UUID {uuid}")) + "\n"))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Whose, and which.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cryptline header uuid disk.img                      show it
  cryptline header uuid disk.img --random
  cryptline header uuid disk.img --uuid 970e17de-0750-443f-b6ca-2a739c5ff99a

Exit codes: 0 success, 1 invalid parameters, 4 wrong device, damaged header or I/O error, 5 in use.")]
pub struct UuidArgs {
    /// Whose.
    #[command(flatten)]
    pub place: Place,

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
    ///
    /// # Errors
    /// As the help says.
    pub fn run(&self) -> Result<ExitCode, CliError> {
        if self.uuid.is_none() && !self.random {
            let found = inspect(&self.place)?;
            print(&(on_one_line(found.header.uuid()) + "\n"))?;
            return Ok(ExitCode::SUCCESS);
        }
        let edited = self.place.open().set_uuid(self.uuid.as_deref());
        let edited = edited.map_err(|error| CliError::of_header(&error))?;
        warn_of(&edited.warnings);
        print(&format!("{}\n", edited.header.uuid()))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Whose, and which.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cryptline header label disk.img                     show them
  cryptline header label disk.img --label backup
  cryptline header label disk.img --label ''          no label

Exit codes: 0 success, 1 invalid parameters or LUKS1, 4 wrong device, damaged header or I/O error, 5 in use.")]
pub struct LabelArgs {
    /// Whose.
    #[command(flatten)]
    pub place: Place,

    /// The new label, up to 47 bytes
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,

    /// The new subsystem, up to 47 bytes
    #[arg(long, value_name = "TEXT")]
    pub subsystem: Option<String>,
}

impl LabelArgs {
    /// Shows or changes them.
    ///
    /// # Errors
    /// As the help says.
    pub fn run(&self) -> Result<ExitCode, CliError> {
        let info = if self.label.is_none() && self.subsystem.is_none() {
            inspect(&self.place)?.header.info()
        } else {
            let (label, subsystem) = (self.label.as_deref(), self.subsystem.as_deref());
            let edited = self.place.open().set_label(label, subsystem);
            let edited = edited.map_err(|error| CliError::of_header(&error))?;
            warn_of(&edited.warnings);
            edited.header.info()
        };
        let shown = |text: Option<String>| on_one_line(&text.unwrap_or_default());
        let (label, subsystem) = (shown(info.label), shown(info.subsystem));
        print(&format!("Label:     {label}\nSubsystem: {subsystem}\n"))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Whose, and which version.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cryptline header convert disk.img --to luks2
  cryptline header convert disk.img --to luks1            only with PBKDF2 and 512-byte sectors, and without tokens

Volume key, UUID, key slots and data stay as they are, and every passphrase opens the volume as before. What the other
version cannot have is refused by name. A crash at any moment leaves the old header or the new one. A server that has
the volume open must end first.

Exit codes: 0 converted, 1 invalid parameters, or the other version cannot have it, 4 wrong device, damaged header or
I/O error, 5 in use.")]
pub struct ConvertArgs {
    /// Whose.
    #[command(flatten)]
    pub place: Place,

    /// The new version
    #[arg(long, value_name = "TYPE", alias = "type", value_parser = choice::of(VERSIONS))]
    pub to: Version,

    /// As with cryptsetup: nothing is asked here in any case.
    #[arg(long, short = 'q', hide = true)]
    pub batch_mode: bool,
}

impl ConvertArgs {
    /// Converts a header.
    ///
    /// # Errors
    /// As the help says.
    pub fn run(&self) -> Result<ExitCode, CliError> {
        let edited = self.place.open().convert(self.to);
        let edited = edited.map_err(|error| CliError::of_header(&error))?;
        warn_of(&edited.warnings);
        let name = on_one_line(&self.place.name().display().to_string());
        let version = match self.to {
            Version::Luks1 => "LUKS1",
            Version::Luks2 => "LUKS2",
        };
        print(&format!("{name}: the header is {version} now\n"))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Whose.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cryptline header repair disk.img
  cryptline header repair disk.img --wipe-unused

LUKS2 keeps two copies of its header. Where one is damaged or older than the other, both are written anew from the good
one. A device that holds something else by now is left alone.

Exit codes: 0 both copies are good, 1 invalid parameters, 4 wrong device, no good copy or I/O error, 5 in use.")]
pub struct RepairArgs {
    /// Whose.
    #[command(flatten)]
    pub place: Place,

    /// Overwrite the space that no key slot uses: a crash may have left a replaced key slot there
    #[arg(long)]
    pub wipe_unused: bool,

    /// As with cryptsetup: nothing is asked here in any case.
    #[arg(long, short = 'q', hide = true)]
    pub batch_mode: bool,
}

impl RepairArgs {
    /// Repairs a header.
    ///
    /// # Errors
    /// As the help says.
    pub fn run(&self) -> Result<ExitCode, CliError> {
        let repaired = self.place.open().repair();
        let repaired = repaired.map_err(|error| CliError::of_header(&error))?;
        let name = on_one_line(&self.place.name().display().to_string());
        let what = match &repaired {
            Some(_) => "the header is repaired: both copies are good",
            None => "nothing to repair",
        };
        print(&format!("{name}: {what}\n"))?;
        if self.wipe_unused {
            let wiped = self.place.open().wipe_unused();
            wiped.map_err(|error| CliError::of_header(&error))?;
            print(&format!("{name}: unused key slots are overwritten\n"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn inspect(place: &Place) -> Result<Inspection, CliError> {
    let open = Open::new(&place.target);
    let open = match &place.header {
        Some(path) => open.header(path),
        None => open,
    };
    Ok(open.inspect()?)
}
