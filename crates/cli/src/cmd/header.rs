//! `header`: backups, labels and repair of LUKS headers.

mod seal;
mod verbs;

use std::io::{self, IsTerminal};

use clap::Subcommand;

pub use seal::{MeasureArgs, PolicyArgs, SignArgs, VerifyArgs};
pub use verbs::{BackupArgs, HeaderConvertArgs, LabelArgs, RepairArgs, RestoreArgs, UuidArgs};

use super::key::ConfirmArgs;
use crate::CliError;
use crate::error::on_one_line;
use crate::verb::{Group, LOCKS, Verb};

/// `header`.
const VERB: Verb = Verb {
    name: "header",
    group: Some(Group::Keys),
    is_main: true,
    examples: "\
cryptline header backup disk.img --file disk.header
cryptline header restore disk.img --file disk.header
cryptline header uuid disk.img
cryptline header label disk.img --label backup
cryptline header repair disk.img
cryptline header convert disk.img --to luks2",
    notes: "\
`cryptline info` shows what a header says. Backups are those of cryptsetup, in both directions.",
    files: &[LOCKS],
    see: "cryptsetup-luksHeaderBackup(8), cryptsetup-convert(8), cryptsetup-repair(8)",
    ..Verb::EMPTY
};

/// Rows of it and of the verbs below it.
pub const VERBS: &[Verb] = &[
    VERB,
    verbs::BACKUP,
    verbs::RESTORE,
    verbs::UUID,
    verbs::LABEL,
    verbs::CONVERT,
    verbs::REPAIR,
    seal::SIGN,
    seal::VERIFY,
    seal::MEASURE,
    seal::POLICY,
];

/// Operations on a header.
#[derive(Subcommand, Debug)]
pub enum HeaderCommand {
    /// Save the header with its key slots in a new file
    Backup(BackupArgs),
    /// Write a saved header back
    Restore(RestoreArgs),
    /// Show the UUID of a volume, or change it
    Uuid(UuidArgs),
    /// Show label and subsystem of a volume, or change them (LUKS2)
    Label(LabelArgs),
    /// Make a LUKS1 header one of LUKS2, or the other way
    Convert(HeaderConvertArgs),
    /// Rewrite the damaged parts of the header from the intact ones
    Repair(RepairArgs),
    /// Seal a header, so that a changed one is noticed
    Sign(Box<SignArgs>),
    /// Check the seal of a header
    Verify(Box<VerifyArgs>),
    /// Show the measurement of a header, which a changed one does not have
    Measure(MeasureArgs),
    /// Make a policy that headers are checked against
    Policy(PolicyArgs),
}

impl HeaderCommand {
    /// Runs one of them.
    pub fn run(&self) -> Result<(), CliError> {
        match self {
            Self::Backup(args) => args.run(),
            Self::Restore(args) => args.run(),
            Self::Uuid(args) => args.run(),
            Self::Label(args) => args.run(),
            Self::Convert(args) => args.run(),
            Self::Repair(args) => args.run(),
            Self::Sign(args) => args.run(),
            Self::Verify(args) => args.run(),
            Self::Measure(args) => args.run(),
            Self::Policy(args) => args.run(),
        }
    }
}

/// Tells what would be lost, and goes on only where somebody agrees.
pub(super) fn ask(confirm: ConfirmArgs, what: &str) -> Result<(), CliError> {
    if confirm.batch_mode {
        return Ok(());
    }
    let what = on_one_line(what);
    if !io::stdin().is_terminal() {
        return Err(CliError::parameters(format!(
            "{what} Nothing was done; to do it anyway, repeat with --batch-mode (-q)"
        )));
    }
    let question = format!("{what}\nType YES in capital letters to go on: ");
    let answer = crate::terminal::ask_aloud(&question);
    if answer.is_ok_and(|answer| answer.trim() == "YES") {
        Ok(())
    } else {
        Err(CliError::parameters("not confirmed, nothing was done"))
    }
}
