//! `table`: what `dmsetup table` would print for a volume.

use std::ffi::OsString;
use std::slice;

use clap::Args;

use crate::CliError;
use crate::args::{KeyArgs, TargetArgs};
use crate::output::warn_of;
use crate::verb::{Group, Verb};

pub const VERB: Verb = Verb {
    name: "table",
    group: Some(Group::Volumes),
    examples: "\
cryptline table disk.img
cryptline table disk.img --show-keys | cryptline serve --table -",
    notes: "\
The output has the format of `dmsetup table`. Without --show-keys the key is printed as zeros, and no
passphrase is needed. A regular file has no device number, so its path is printed; for the kernel,
replace it with the MAJOR:MINOR of a loop device.

Dispatch options are printed as the kernel's flags: `inline` becomes no_read_workqueue and
no_write_workqueue. The obsolete word force_inline is read as both.",
    see: "dmsetup(8)",
    ..Verb::EMPTY
};

/// Which volume.
#[derive(Args, Debug)]
pub struct TableArgs {
    /// LUKS or plain volume: a file or block device
    #[arg(required_unless_present = "table")]
    pub target: Option<OsString>,

    /// Print the volume key; whoever sees the line can decrypt the volume
    #[arg(long)]
    pub show_keys: bool,

    #[command(flatten)]
    pub options: TargetArgs,

    #[command(flatten)]
    pub keys: KeyArgs,
}

/// Prints the line, or all lines of a table.
///
/// # Errors
/// As opening the volume.
pub fn run(args: &TableArgs) -> Result<(), CliError> {
    let target = args.target.as_deref().unwrap_or_default();
    let open = args.options.to_open(target, &args.keys)?.on_warning(|warning| warn_of(slice::from_ref(warning)));
    let table = open.table(args.show_keys)?;
    crate::output::print(&table.line)?;
    crate::output::print("\n")
}
