//! `table`: the line that `dmsetup table` would print for a volume.

use std::process::ExitCode;

use clap::Args;

use crate::CliError;
use crate::args::{KeyArgs, TargetArgs};

/// Which volume.
#[derive(Args, Debug)]
#[command(after_help = "\
The form is that of `dmsetup table`: the key is shown as zeros unless --show-keys is given, and
without it no passphrase is needed. A regular file has no device number, so its path is printed;
the kernel needs a loop device's MAJOR:MINOR there.

Dispatch options become the words that ask the kernel for the same: `inline` is no_read_workqueue
and no_write_workqueue. The word force_inline, which no kernel knows, is read as both.

Examples:
  cryptline table disk.img
  cryptline table disk.img --show-keys | cryptline serve --table -")]
pub struct TableArgs {
    /// LUKS or plain volume: a file or block device
    #[arg(required_unless_present = "table")]
    pub target: Option<String>,

    /// Show the volume key; whoever sees the line can decrypt the volume
    #[arg(long)]
    pub show_keys: bool,

    /// How to open it.
    #[command(flatten)]
    pub options: TargetArgs,

    /// How to unlock it.
    #[command(flatten)]
    pub keys: KeyArgs,
}

/// Prints the line.
///
/// # Errors
/// As opening the volume.
pub fn run(args: &TableArgs) -> Result<ExitCode, CliError> {
    let target = args.target.as_deref().unwrap_or_default();
    let open = args.options.to_open(target, &args.keys)?;
    let table = open.table(args.show_keys)?;
    crate::output::warn_of(&table.warnings);
    crate::output::print(&table.line)?;
    crate::output::print("\n")?;
    Ok(ExitCode::SUCCESS)
}
