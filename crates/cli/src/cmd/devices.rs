//! `devices`: what is attached, and who serves it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use cryptline_serve::ublk;
use serde_json::json;

use crate::CliError;
use crate::attached::state::{self, State};
use crate::output::print;

/// How to list.
#[derive(Args, Debug)]
#[command(after_help = "\
A device is `serving`; or `orphaned`, when its server was killed: `cryptline detach` removes it; or \
`failed`, when its server could not go on, or not write or flush what it had at the end.

Examples:
  cryptline devices --json")]
pub struct DevicesArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Print user and group, by number, of a ublk device or its own side that was made without privileges: for udev
    #[arg(long, hide = true, value_name = "NODE")]
    pub owner_of: Option<PathBuf>,
}

/// Prints the devices.
///
/// # Errors
/// Exit code 4 when standard output takes no more, and where a device has no such owner.
pub fn run(args: &DevicesArgs) -> Result<ExitCode, CliError> {
    if let Some(node) = &args.owner_of {
        let (user, group) = owner_of(node)?;
        print(&format!("{user} {group}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let devices = state::all();
    let text = if args.json {
        json(&devices)
    } else {
        table(&devices)
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Who has made a device without privileges.
fn owner_of(node: &Path) -> Result<(u32, u32), CliError> {
    let failed = |why: &str| CliError::device(format!("{}: {why}", node.display()));
    let number = state::number_of(node).ok_or_else(|| failed("no ublk device has such a name"))?;
    let user = ublk::user_of(number).map_err(|error| failed(&error.to_string()))?;
    user.ok_or_else(|| failed("it was made by root, and so is nobody else's"))
}

fn json(devices: &[State]) -> String {
    let rows: Vec<_> = devices
        .iter()
        .map(|state| {
            let mut row = json!(state);
            row["condition"] = state.condition().into();
            row
        })
        .collect();
    format!("{:#}\n", json!({ "devices": rows }))
}

fn table(devices: &[State]) -> String {
    let mut text = String::new();
    for state in devices {
        let access = if state.read_only { "ro" } else { "rw" };
        // Writing to a String does not fail.
        let _ = writeln!(
            text,
            "{}  {}  {}  {access}  {} bytes  pid {}  {}",
            state.device.display(),
            state.driver.name(),
            state.condition(),
            state.size,
            state.pid,
            crate::error::on_one_line(&state.target),
        );
    }
    text
}
