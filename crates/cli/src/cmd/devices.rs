//! `devices`: what is attached, and who serves it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use cryptline_serve::ublk;
use serde_json::json;

use crate::CliError;
use crate::attached::orphans::{self, OrphanRecord};
use crate::attached::state::{self, AttachDriver, DeviceRecord};
use crate::output::print;
use crate::verb::{DEVICES, Group, Verb, XDG};

pub const VERB: Verb = Verb {
    name: "devices",
    group: Some(Group::Use),
    examples: "\
cryptline devices --json",
    notes: "\
A device is `serving`; or `orphaned`, when its server was killed: `cryptline detach` removes it; or \
`failed`, when its server could not go on, or not write or flush what it had at the end. Of an orphaned ublk \
device, nothing else may be known, as when its server ran in a container that is gone.",
    environment: &[XDG],
    files: &[DEVICES],
    see: "cryptline-attach(1)",
    keyless: true,
    ..Verb::EMPTY
};

/// How to list.
#[derive(Args, Debug)]
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
pub fn run(args: &DevicesArgs) -> Result<(), CliError> {
    if let Some(node) = &args.owner_of {
        let (user, group) = owner_of(node)?;
        print(&format!("{user} {group}\n"))?;
        return Ok(());
    }
    let (devices, orphans) = orphans::all(state::all);
    let text = if args.json { json(&devices, &orphans) } else { table(&devices, &orphans) };
    print(&text)
}

/// Returns who has made a device without privileges.
fn owner_of(node: &Path) -> Result<(u32, u32), CliError> {
    let failed = |why: &str| CliError::device(format!("{}: {why}", node.display()));
    let number = state::number_of(node).ok_or_else(|| failed("no ublk device has such a name"))?;
    let user = ublk::user_of(number).map_err(|error| failed(&error.to_string()))?;
    user.ok_or_else(|| failed("it was made by root, and so is nobody else's"))
}

fn json(devices: &[DeviceRecord], orphans: &[OrphanRecord]) -> String {
    let known = devices.iter().map(|state| {
        let mut row = json!(state);
        row["condition"] = state.condition().into();
        row
    });
    let unknown = orphans.iter().map(|orphan| {
        let mut row = json!({
            "device": orphan.device,
            "driver": AttachDriver::Ublk,
            "condition": "orphaned",
        });
        if let Some(size) = orphan.size {
            row["size"] = size.into();
        }
        row
    });
    let rows: Vec<_> = known.chain(unknown).collect();
    format!("{:#}\n", json!({ "devices": rows }))
}

fn table(devices: &[DeviceRecord], orphans: &[OrphanRecord]) -> String {
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
    for orphan in orphans {
        let size = orphan.size.map(|bytes| format!("{bytes} bytes  "));
        let _ = writeln!(
            text,
            "{}  {}  orphaned  {}of a volume that is not known any more",
            orphan.device.display(),
            AttachDriver::Ublk.name(),
            size.unwrap_or_default(),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_of_which_nothing_is_known_is_listed_with_what_there_is() {
        let orphan = |id, size| OrphanRecord { device: ublk::path(id), id, size };
        let orphans = [orphan(0, Some(4096)), orphan(1, None)];
        let lines = table(&[], &orphans);
        assert_eq!(
            lines,
            "/dev/ublkb0  ublk  orphaned  4096 bytes  of a volume that is not known any more\n\
             /dev/ublkb1  ublk  orphaned  of a volume that is not known any more\n"
        );
        let listed: serde_json::Value = serde_json::from_str(&json(&[], &orphans)).unwrap();
        let expected = json!({ "devices": [
            { "device": "/dev/ublkb0", "driver": "ublk", "condition": "orphaned", "size": 4096 },
            { "device": "/dev/ublkb1", "driver": "ublk", "condition": "orphaned" },
        ] });
        assert_eq!(listed, expected);
    }
}
