//! Words of cryptsetup's that no verb means alone, so that fingers and scripts find them; the others are names of verbs
//! (`crate::verb::VerbWord`). Help does not show them.

mod dump;
mod format;
mod short;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use cryptline::VolumeKind;
use cryptline::luks::edit::Priority;

use super::key::{HeaderArgs, KeyConvertArgs, KillArgs, PRIORITIES};
use crate::CliError;
use crate::args::{LUKS_TYPES, VolumeType, choice};
use crate::output::changed;
pub use dump::DumpArgs;
pub use format::FormatWordArgs;
pub use short::in_full;

/// One word for each.
#[derive(Subcommand, Debug)]
pub enum VerbWord {
    /// `key kill`
    #[command(name = "luksKillSlot")]
    KillSlot(KillArgs),
    /// `key convert`
    #[command(name = "luksConvertKey")]
    ConvertKey(KeyConvertArgs),
    /// `info`, in cryptsetup's words
    #[command(name = "luksDump")]
    Dump(DumpArgs),
    /// `create` in a file or on a device that is there
    #[command(name = "luksFormat")]
    Format(Box<FormatWordArgs>),
    /// Check for a LUKS header
    #[command(name = "isLuks")]
    IsLuks(IsLuksArgs),
    /// `key priority` and `header label`
    #[command(name = "config")]
    Config(ConfigArgs),
}

/// Settings of `config`.
#[derive(Args, Debug)]
pub struct ConfigArgs {
    #[command(flatten)]
    pub place: HeaderArgs,

    /// When the key slot is tried
    #[arg(long, requires = "key_slot", value_parser = choice::of(PRIORITIES))]
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

/// Target of the question.
#[derive(Args, Debug)]
pub struct IsLuksArgs {
    #[command(flatten)]
    pub place: HeaderArgs,

    /// This version only.
    #[arg(long = "type", value_name = "TYPE", value_parser = choice::of(LUKS_TYPES))]
    pub kind: Option<VolumeType>,

    /// As with cryptsetup. Nothing is locked here in any case.
    #[arg(long)]
    pub disable_locks: bool,
}

impl IsLuksArgs {
    /// Exit code 1 where there is none.
    fn run(&self) -> ExitCode {
        let is_wanted = self.place.inspect().is_ok_and(|found| match self.kind {
            None | Some(VolumeType::Luks) => true,
            Some(VolumeType::Luks1) => found.kind == VolumeKind::Luks1,
            Some(VolumeType::Luks2) => found.kind == VolumeKind::Luks2,
            Some(VolumeType::Plain) => false,
        });
        ExitCode::from(u8::from(!is_wanted))
    }
}

impl VerbWord {
    /// Runs it.
    ///
    /// # Errors
    /// As the verb it stands for.
    pub fn run(self) -> Result<ExitCode, CliError> {
        match self {
            Self::IsLuks(args) => return Ok(args.run()),
            Self::KillSlot(args) => args.run_as_word(),
            Self::ConvertKey(args) => {
                if args.place.inspect()?.kind == VolumeKind::Luks1 {
                    return Err(CliError::parameters(
                        "only key slots of LUKS2 are converted so; use `key convert` for one of LUKS1",
                    ));
                }
                args.run()
            }
            Self::Dump(args) => args.run(),
            Self::Format(args) => args.run(),
            Self::Config(args) => args.run(),
        }?;
        Ok(ExitCode::SUCCESS)
    }
}

impl ConfigArgs {
    fn run(&self) -> Result<(), CliError> {
        if self.priority.is_none() && self.label.is_none() && self.subsystem.is_none() {
            return Err(CliError::parameters("nothing to set; use --priority and --key-slot, --label or --subsystem"));
        }
        if let (Some(priority), Some(slot)) = (self.priority, self.key_slot) {
            changed(self.place.open().set_priority(slot, priority))?;
        }
        if self.label.is_some() || self.subsystem.is_some() {
            // As with cryptsetup, what is not said is none afterwards; `header label` keeps it.
            let given = |text: &Option<String>| text.clone().unwrap_or_default();
            let (label, subsystem) = (given(&self.label), given(&self.subsystem));
            changed(self.place.open().set_label(Some(&label), Some(&subsystem)))?;
        }
        Ok(())
    }
}
