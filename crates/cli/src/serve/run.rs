//! `--run COMMAND`: a server for as long as one command needs it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;

use cryptline_nbd::uri::{Address, NbdUri};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::signals::Stopper;
use crate::CliError;
use crate::output::complain;

/// As a shell has it for a command that SIGTERM has ended.
const STOPPED: u8 = 128 + 15;

/// A command that runs beside the server.
pub struct Captive {
    process: Option<OwnedFd>,
    waiter: JoinHandle<io::Result<ExitStatus>>,
}

impl Captive {
    /// Starts `sh -c command` with `$uri`, `$nbd`, `$unixsocket`, `$port`, `$exportname` and
    /// `$tls`; its end stops the server. Call when clients can connect. `input` is its standard input.
    pub fn start(
        command: &str,
        uri: &NbdUri,
        tls: &str,
        input: Stdio,
        stopper: Stopper,
    ) -> Result<Self, CliError> {
        let failed = |error| CliError::parameters(format!("cannot run a shell for --run: {error}"));
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(command).stdin(input);
        for (name, value) in variables(uri, tls) {
            shell.env(name, value);
        }
        for ours in [
            "NOTIFY_SOCKET",
            "LISTEN_PID",
            "LISTEN_FDS",
            "LISTEN_FDNAMES",
        ] {
            shell.env_remove(ours);
        }
        let mut child: Child = shell.spawn().map_err(failed)?;
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).ok();
        let waiter = move || {
            let status = child.wait();
            stopper.stop();
            status
        };
        let waiter = std::thread::Builder::new()
            .name("run".into())
            .spawn(waiter)
            .map_err(failed)?;
        Ok(Self { process, waiter })
    }

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
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    u8::try_from(code).unwrap_or(u8::MAX)
}

fn variables(uri: &NbdUri, tls: &str) -> [(&'static str, String); 6] {
    let (nbd, socket, port) = match &uri.address {
        Address::Unix(path) => {
            let path = path.display().to_string();
            (format!("nbd:unix:{path}"), path, String::new())
        }
        Address::Tcp { host, port } => (
            format!("nbd:{host}:{port}"),
            String::new(),
            port.to_string(),
        ),
    };
    [
        ("uri", uri.to_string()),
        ("nbd", nbd),
        ("unixsocket", socket),
        ("port", port),
        ("exportname", uri.export.clone()),
        ("tls", tls.to_owned()),
    ]
}
