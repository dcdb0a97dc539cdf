//! What cryptsetup calls these verbs, so that fingers and scripts find them. Help does not show them.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use cryptline::luks::edit::Priority;

use super::header::{BackupArgs, RepairArgs, RestoreArgs, UuidArgs};
use super::key::{AddArgs, ChangeArgs, ConvertArgs, KillArgs, Place, RemoveArgs, priorities};
use super::{erase, info};
use crate::CliError;
use crate::args::choice;
use crate::output::warn_of;

/// One word for each.
#[derive(Subcommand, Debug)]
pub enum Word {
    /// `key add`
    #[command(name = "luksAddKey", hide = true)]
    AddKey(AddArgs),
    /// `key change`
    #[command(name = "luksChangeKey", hide = true)]
    ChangeKey(ChangeArgs),
    /// `key remove`
    #[command(name = "luksRemoveKey", hide = true)]
    RemoveKey(RemoveArgs),
    /// `key kill`
    #[command(name = "luksKillSlot", hide = true)]
    KillSlot(KillArgs),
    /// `key convert`
    #[command(name = "luksConvertKey", hide = true)]
    ConvertKey(ConvertArgs),
    /// `info`
    #[command(name = "luksDump", hide = true)]
    Dump(info::InfoArgs),
    /// `header uuid`
    #[command(name = "luksUUID", hide = true)]
    Uuid(UuidArgs),
    /// `header backup`
    #[command(name = "luksHeaderBackup", hide = true)]
    HeaderBackup(BackupArgs),
    /// `header restore`
    #[command(name = "luksHeaderRestore", hide = true)]
    HeaderRestore(RestoreArgs),
    /// `erase`
    #[command(name = "luksErase", hide = true)]
    Erase(erase::EraseArgs),
    /// `header repair`
    #[command(name = "repair", hide = true)]
    Repair(RepairArgs),
    /// `key priority` and `header label`
    #[command(name = "config", hide = true)]
    Config(ConfigArgs),
}

/// What `config` sets.
#[derive(Args, Debug)]
pub struct ConfigArgs {
    /// Whose.
    #[command(flatten)]
    pub place: Place,

    /// When the key slot is tried
    #[arg(long, requires = "key_slot", value_parser = choice::of(priorities()))]
    pub priority: Option<Priority>,

    /// Number of the key slot
    #[arg(long, value_name = "N")]
    pub key_slot: Option<u32>,

    /// The new label
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,

    /// The new subsystem
    #[arg(long, value_name = "TEXT")]
    pub subsystem: Option<String>,
}

impl Word {
    /// Runs it.
    ///
    /// # Errors
    /// As the verb it stands for.
    pub fn run(self) -> Result<ExitCode, CliError> {
        match self {
            Self::AddKey(args) => args.run(),
            Self::ChangeKey(args) => args.run(),
            Self::RemoveKey(args) => args.run(),
            Self::KillSlot(args) => args.run(),
            Self::ConvertKey(args) => args.run(),
            Self::Dump(args) => info::run(&args),
            Self::Uuid(args) => args.run(),
            Self::HeaderBackup(args) => args.run(),
            Self::HeaderRestore(args) => args.run(),
            Self::Erase(args) => args.run(),
            Self::Repair(args) => args.run(),
            Self::Config(args) => args.run(),
        }
    }
}

impl ConfigArgs {
    fn run(&self) -> Result<ExitCode, CliError> {
        if self.priority.is_none() && self.label.is_none() && self.subsystem.is_none() {
            return Err(CliError::parameters(
                "nothing to set; give --priority and --key-slot, --label or --subsystem",
            ));
        }
        if let (Some(priority), Some(slot)) = (self.priority, self.key_slot) {
            let edited = self.place.open().set_priority(slot, priority);
            warn_of(
                &edited
                    .map_err(|error| CliError::of_header(&error))?
                    .warnings,
            );
        }
        if self.label.is_some() || self.subsystem.is_some() {
            let (label, subsystem) = (self.label.as_deref(), self.subsystem.as_deref());
            let edited = self.place.open().set_label(label, subsystem);
            warn_of(
                &edited
                    .map_err(|error| CliError::of_header(&error))?
                    .warnings,
            );
        }
        Ok(ExitCode::SUCCESS)
    }
}
