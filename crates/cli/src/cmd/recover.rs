//! `recover`: a new server for a device whose old one was killed, or is to be replaced.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use cryptline_serve::ublk::{self, HandOver};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use rustix::process::{Signal, pidfd_send_signal};

use crate::CliError;
use crate::attached::background;
use crate::attached::orphans;
use crate::attached::state::{self, Driver, State, number_of};
use crate::output::complain;
use crate::verb::{DEVICES, Group, Verb, XDG};

/// How long a server may take to end before it is said what it does.
const PATIENCE: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// `recover`.
pub const VERB: Verb = Verb {
    name: "recover",
    group: Some(Group::Use),
    examples: "\
cryptline recover /dev/ublkb0
# after an upgrade, while it is mounted
cryptline recover --replace /dev/ublkb0",
    notes: "\
Requests made while no server was running have waited and are now carried out; programs that use the device \
notice only a pause. The options are those that the device was attached with; a passphrase is asked \
for again, and a key that came from standard input or a descriptor must be given there again.

Only ublk devices without zones that root has made can be recovered, and only of volumes with a LUKS header: by \
that, the volume is known to be the same.

With --replace, the old server may still serve, such as one of an older version: it answers what is under way, flushes \
the volume and ends, and what is asked of the device then waits for the new one. It takes Linux 6.16 or later.",
    environment: &[XDG],
    files: &[DEVICES],
    see: "cryptline-attach(1)",
    ..Verb::EMPTY
};

/// Which device.
#[derive(Args, Debug)]
pub struct RecoverArgs {
    /// A device of `cryptline attach` whose server is gone
    #[arg(value_name = "DEVICE")]
    pub device: PathBuf,

    /// Also where it has a server: that one hands the device over while programs use it
    #[arg(long)]
    pub replace: bool,
}

/// Starts a server for it.
///
/// # Errors
/// Exit code 5 where it has one, 4 where it cannot have another.
pub fn run(args: &RecoverArgs) -> Result<ExitCode, CliError> {
    let known = known(&args.device)?;
    let device = known.device.display();
    if known.driver != Driver::Ublk {
        return Err(CliError::device(format!(
            "{device} is no ublk device, so nothing has waited for a new server; \
             `cryptline detach` removes it"
        )));
    }
    let server = known.server();
    if server.is_some() && !args.replace {
        return Err(CliError::busy(format!(
            "{device} is served, by process {}; --replace has another take its place",
            known.pid
        )));
    }
    if known.zoned {
        return Err(CliError::device(format!(
            "{device} has zones, which are written in order: what its server had under way cannot be asked \
             again, so it was not kept; `cryptline detach` removes it, and `cryptline attach` makes another"
        )));
    }
    if known.unprivileged {
        return Err(CliError::device(format!(
            "{device} was made without privileges, and what is asked of such a device does not wait for another \
             server; `cryptline detach` removes it, and `cryptline attach` makes another"
        )));
    }
    known.accept(&known.identity)?;
    if known.arguments.is_empty() {
        return Err(CliError::device(format!(
            "{device} was attached with options that were not kept, such as a table line with its key; \
             `cryptline detach` removes it"
        )));
    }
    std::env::set_current_dir(&known.folder)
        .map_err(|error| CliError::device(format!("{}: {error}", known.folder.display())))?;
    if let Some(server) = server {
        super::detach::refuse_stranger(&known)?;
        replace(&known, &server)?;
    }
    // What a server before was started with by us comes off: it is added again.
    let mut arguments: Vec<OsString> = Vec::new();
    let mut given = known.arguments.iter();
    while let Some(argument) = given.next() {
        if argument == background::RECOVER {
            given.next();
        } else if argument != background::OPTION {
            arguments.push(argument.into());
        }
    }
    let more = [background::RECOVER.into(), known.device.clone().into()];
    arguments.splice(1.min(arguments.len())..1.min(arguments.len()), more);
    let started = background::start(arguments)?;
    if started == ExitCode::SUCCESS {
        return Ok(started);
    }
    // Another `recover` may have been faster.
    if let Ok(found) = state::of(&known.device)
        && !found.is_of_same_server(&known)
        && found.server().is_some()
    {
        return Err(served(&found));
    }
    if args.replace {
        complain(&format!(
            "unless another `cryptline recover` is starting one, {device} has no server now, and what is asked of it \
             waits; `cryptline recover {device}` tries again"
        ));
    }
    Ok(started)
}

fn served(by: &State) -> CliError {
    CliError::busy(format!("{} is served, by process {}", by.device.display(), by.pid))
}

/// Returns what is known of a device.
fn known(device: &Path) -> Result<State, CliError> {
    state::of(device).map_err(|unknown| match orphans::of(device) {
        Some(orphan) => CliError::device(format!(
            "{device} cannot be recovered: what it was attached with is not known any more; `cryptline detach` \
             removes the device",
            device = orphan.device.display()
        )),
        None => unknown,
    })
}

/// Waits until a server has ended, and says what for where that takes long.
fn wait_for_end(known: &State, server: &OwnedFd) {
    let mut polled = [PollFd::new(server, PollFlags::IN)];
    let mut limit = Some(PATIENCE);
    loop {
        match rustix::event::poll(&mut polled, limit.as_ref()) {
            Ok(0) => {
                limit = None;
                complain(&format!(
                    "process {pid} answers what was asked of {device} before it ends, and that takes its time; where \
                     its medium answers no more, `kill -KILL {pid}` lets the next server go on without it",
                    pid = known.pid,
                    device = known.device.display()
                ));
            }
            Err(rustix::io::Errno::INTR) => {}
            _ => return,
        }
    }
}

/// Has the server of a device leave it to the next one, and waits for that.
fn replace(known: &State, server: &OwnedFd) -> Result<(), CliError> {
    let device = known.device.display();
    let possible = number_of(&known.device).map(ublk::hand_over_of);
    match possible.unwrap_or(Ok(HandOver::NotOfDevice))? {
        HandOver::Possible => {}
        HandOver::UnknownToKernel => {
            let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
            return Err(CliError::device(format!(
                "{device} cannot be taken from its server: that takes Linux 6.16 or later, and this is {}; \
                 `cryptline detach` it, and attach it again",
                release.unwrap_or_default().trim()
            )));
        }
        HandOver::NotOfDevice => {
            return Err(CliError::device(format!(
                "{device} was made without what takes it from its server; `cryptline detach` it, and attach it again"
            )));
        }
    }
    match pidfd_send_signal(server, Signal::USR1) {
        // Another `recover` has asked it before.
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => {
            return Err(CliError::device(format!("cannot ask process {} to end: {error}", known.pid)));
        }
    }
    wait_for_end(known, server);
    match state::of(&known.device)? {
        left if !left.is_of_same_server(known) => Err(served(&left)),
        State { failure: Some(why), .. } => Err(CliError::device(format!(
            "{device}: {why}; what was written lately may be lost, and what is asked of it waits for \
             `cryptline recover {device}`"
        ))),
        _ => Ok(()),
    }
}
