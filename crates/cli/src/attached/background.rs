//! `attach` in the background: its server is a process of its own (`again.rs`), which tells the path of its device.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::CliError;
use crate::again;
use crate::output::print;

/// The hidden option of a server that takes over a device.
pub const RECOVER: &str = "--recover-device";
/// One that servers of earlier versions have noted in their command lines.
pub const OF_EARLIER: &str = "--detached-child";

/// Runs a command line, of which the first is the verb, as a server, and waits until it has a device or has
/// failed.
///
/// # Errors
/// Where it cannot be started.
pub fn start(arguments: Vec<OsString>) -> Result<ExitCode, CliError> {
    match begin(arguments)? {
        Ok(path) => print(&format!("{path}\n")).map(|()| ExitCode::SUCCESS),
        Err(code) => Ok(ExitCode::from(code)),
    }
}

/// The same, for the path of the device, or the exit code of a server that has said why there is none.
///
/// # Errors
/// Where it cannot be started.
pub fn begin(arguments: Vec<OsString>) -> Result<Result<String, u8>, CliError> {
    let mut server = again::this_program();
    server.args(arguments);
    Ok(again::begin(server)?.map_err(|code| code.filter(|&code| code > 0).unwrap_or(4)))
}
