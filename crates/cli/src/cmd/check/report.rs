//! `check --json`: what was opened and how, for a case file.

use std::path::Path;
use std::time::SystemTime;

use cryptline::{Contents, Unlocked, hex};
use serde_json::{Value, json};

use crate::CliError;
use crate::cmd::info;
use crate::log::utc;
use crate::output::print_report;
use crate::version::LONG;

/// Prints the report. `contents` says what the decrypted disk has, where that is known, `line` which line of a list opened
/// it, and `why` what stands against serving the volume. docs/open-json.md promises that the members stay.
///
/// # Errors
/// As [`print_report`].
pub fn print(
    unlocked: &Unlocked,
    contents: Option<&Contents>,
    line: Option<u64>,
    header_file: Option<&Path>,
    why: Option<&str>,
) -> Result<(), CliError> {
    let examined = unlocked.examined.as_ref().expect("it was to be examined");
    let mut report = info::json_of(&examined.inspection);
    let by = match (unlocked.slot, unlocked.token) {
        (_, Some(_)) => "token",
        (Some(_), None) => "keyslot",
        (None, None) => "volume key",
    };
    let access = match (&unlocked.usable, &unlocked.doubted) {
        (Err(_), _) => "none",
        (Ok(()), Some(_)) => "read-only",
        (Ok(()), None) => "read-write",
    };
    let own = json!({
        "program": format!("cryptline {}", LONG.lines().next().unwrap_or_default()),
        "time": utc(SystemTime::now()),
        "header_file": header_file.map(|path| path.display().to_string()),
        "header_area": {
            "size": examined.area.size,
            "sha256": hex(&examined.area.sha256),
        },
        "measure": unlocked.measure.as_deref().map(hex),
        "opened": {
            "by": by,
            "keyslot": unlocked.slot,
            "token": unlocked.token,
            "line": line,
            "access": access,
            "why": why,
            "contents": contents.map(ToString::to_string),
        },
    });
    if let (Value::Object(report), Value::Object(own)) = (&mut report, own) {
        report.extend(own);
    }
    print_report(true, &report, "")
}
