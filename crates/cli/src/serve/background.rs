//! `--background`: the server is a process of its own (`again.rs`), which outlives the command.

use std::os::unix::process::CommandExt as _;
use std::process::ExitCode;

use clap::Args;

use super::options::FrontArgs;
use crate::CliError;
use crate::again::{self, Starter};
use crate::args::TableArgument;

/// `--background`.
#[derive(Args, Debug)]
#[command(next_help_heading = "Server options")]
pub struct BackgroundArgs {
    /// Return once clients can connect; the server goes on in the background, where nobody hears of a last flush that fails:
    /// flush before you stop it (from a client, or with `cryptline ctl SOCKET flush`)
    #[arg(long, visible_alias = "fork")]
    pub background: bool,
}

impl BackgroundArgs {
    /// Tells if this process only starts the server.
    pub fn starts_another(&self) -> bool {
        self.background && !Starter::is_there()
    }

    /// Refuses what a server in the background cannot have.
    ///
    /// # Errors
    /// Exit code 1.
    pub fn check(&self, front: &FrontArgs, command: Option<&String>) -> Result<(), CliError> {
        if command.is_some() {
            return Err(CliError::parameters(
                "--background and --run contradict each other: the server ends with the command",
            ));
        }
        if front.process.exit_with_parent {
            return Err(CliError::parameters(
                "--exit-with-parent: a server in the background outlives its parent; leave out --background",
            ));
        }
        let process = std::process::id().to_string();
        if std::env::var("LISTEN_PID").is_ok_and(|pid| pid == process) {
            return Err(CliError::parameters(
                "--background: sockets that a service manager passes (LISTEN_FDS) belong to a server in the foreground; leave out --background",
            ));
        }
        front.volume.table.as_ref().map_or(Ok(()), TableArgument::check_for_background)
    }
}

/// Starts the server and waits until it is ready, or has failed; the exit code is then its own.
///
/// # Errors
/// Exit code 4 where it cannot be started.
pub fn run() -> Result<ExitCode, CliError> {
    let mut server = again::this_program();
    let mut arguments = std::env::args_os();
    // For lists of processes.
    server.arg0(arguments.next().unwrap_or_default()).args(arguments);
    Ok(match again::begin(server)? {
        Ok(_) => ExitCode::SUCCESS,
        Err(code) => ExitCode::from(code.unwrap_or(1)),
    })
}
