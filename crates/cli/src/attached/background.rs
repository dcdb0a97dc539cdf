//! A server in the background: started as a process of its own, left alone once its device is there.
//!
//! The server is started, and not forked, because a process with threads cannot be forked. Its terminal stays ours
//! until the device is there, so it can ask for a passphrase.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};

use crate::CliError;
use crate::output::{complain, print};

/// The hidden option of a server that is started so.
pub const OPTION: &str = "--detached-child";
/// The hidden option of one that takes over a device.
pub const RECOVER: &str = "--recover-device";

/// Word of a server in place of a path, before its exit code.
const FAILED: &str = "failed ";

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
pub fn begin(mut arguments: Vec<OsString>) -> Result<Result<String, u8>, CliError> {
    let failed = |error| CliError::device(format!("cannot start a server: {error}"));
    // Behind the verb: what follows a `--` would be no option.
    arguments.insert(1.min(arguments.len()), OPTION.into());
    let mut server = Command::new("/proc/self/exe").args(arguments).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut path = String::new();
    if let Some(said) = server.stdout.take() {
        BufReader::new(said).read_line(&mut path).map_err(failed)?;
    }
    if let Some(code) = failure_in(&path) {
        // Its process may be waited for in vain, where a driver hangs.
        return Ok(Err(code));
    }
    if let Some(path) = path.strip_suffix('\n') {
        return Ok(Ok(path.to_owned()));
    }
    // It has said itself why there is no device.
    let status = server.wait().map_err(failed)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(Err(code.filter(|&code| code > 0).unwrap_or(4)))
}

/// Says why there is no device, and tells whoever has started us how that ends.
///
/// # Errors
/// Where standard output takes no more.
pub fn fail(error: &CliError) -> Result<ExitCode, CliError> {
    let code = error.exit_code();
    complain(&error.to_string());
    print(&format!("{FAILED}{code}\n"))?;
    Ok(ExitCode::from(code))
}

/// The exit code in a line that [`fail`] has printed.
fn failure_in(line: &str) -> Option<u8> {
    line.strip_prefix(FAILED)?.trim_end().parse().ok()
}

/// Says where the device is, and leaves the terminal to whoever has started us.
///
/// # Errors
/// Where `/dev/null` cannot be had.
pub fn leave(path: &str) -> Result<(), CliError> {
    let failed = |error: io::Error| CliError::device(format!("cannot go to the background: {error}"));
    // The leader of a process group has no terminal to lose.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/").map_err(failed)?;
    let nothing = File::options().read(true).write(true).open("/dev/null").map_err(failed)?;
    print(&format!("{path}\n"))?;
    rustix::stdio::dup2_stdin(&nothing).map_err(|error| failed(error.into()))?;
    rustix::stdio::dup2_stdout(&nothing).map_err(|error| failed(error.into()))?;
    rustix::stdio::dup2_stderr(&nothing).map_err(|error| failed(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_is_no_path_and_a_path_no_failure() {
        assert_eq!(failure_in("failed 5\n"), Some(5));
        for line in ["", "/dev/nbd0\n", "failed \n", "failed x\n"] {
            assert_eq!(failure_in(line), None, "{line}");
        }
    }
}
