//! `--run COMMAND`: a server for as long as one command needs it.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus, Stdio};
use std::thread::JoinHandle;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::signals::Stopper;
use crate::CliError;
use crate::key_program::FOR_THIS_PROCESS;
use crate::output::complain;

/// As a shell has it for a command that SIGTERM has ended.
const STOPPED: u8 = 128 + 15;

/// A command to run beside the server.
pub struct RunCommand {
    /// For `sh -c`.
    pub line: String,
    /// Variables of its environment.
    pub variables: Vec<(&'static str, OsString)>,
}

/// One that runs.
pub struct Captive {
    process: Option<OwnedFd>,
    waiter: JoinHandle<io::Result<ExitStatus>>,
}

impl RunCommand {
    /// Starts it; its end stops the server. Call when clients can connect. `input` is its standard input.
    pub fn start(self, input: Stdio, stopper: Stopper) -> Result<Captive, CliError> {
        let failed = |error| CliError::parameters(format!("cannot run a shell for --run: {error}"));
        let mut shell = std::process::Command::new("sh");
        shell.arg("-c").arg(self.line).stdin(input);
        shell.envs(self.variables);
        for ours in FOR_THIS_PROCESS {
            shell.env_remove(ours);
        }
        let mut child: Child = shell.spawn().map_err(failed)?;
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).ok();
        let waiter = move || {
            let status = child.wait();
            stopper.stop();
            status
        };
        let waiter = std::thread::Builder::new().name("run".into()).spawn(waiter).map_err(failed)?;
        Ok(Captive { process, waiter })
    }
}

impl Captive {
    /// The command's status as a shell has it, once it has ended; a command that still runs (the
    /// server was stopped by a signal) is asked to end first.
    pub fn finish(self) -> u8 {
        if let (Some(process), false) = (&self.process, self.waiter.is_finished()) {
            // By descriptor, so never another process that got its number.
            if pidfd_send_signal(process, Signal::TERM) == Err(Errno::PERM) {
                complain(
                    "the command of --run belongs to another user than the server by now, which cannot \
                     end it; it runs on",
                );
                return STOPPED;
            }
        }
        match self.waiter.join() {
            Ok(Ok(status)) => exit_code(status),
            _ => 1,
        }
    }
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    u8::try_from(code).unwrap_or(u8::MAX)
}
