//! `attach --recover`: a new server for a device whose old one was killed, or is to be replaced.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use cryptline_serve::ublk::{self, HandOver};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use rustix::process::{Signal, pidfd_send_signal};

use crate::CliError;
use crate::attached::background;
use crate::attached::orphans;
use crate::attached::state::{self, AttachDriver, DeviceRecord, number_of};
use crate::output::complain;

/// How long a server may take to end before it is said what it does.
const PATIENCE: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// Starts a server for it.
///
/// # Errors
/// Exit code 5 where it has one, 4 where it cannot have another.
pub fn run(device: &Path, replaces: bool) -> Result<ExitCode, CliError> {
    let known = known(device)?;
    let device = known.device.display();
    if known.driver != AttachDriver::Ublk {
        return Err(CliError::device(format!(
            "{device} is no ublk device, so nothing has waited for a new server; \
             `cryptline detach` removes it"
        )));
    }
    let server = known.server();
    if server.is_some() && !replaces {
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
        crate::cmd::detach::refuse_stranger(&known)?;
        replace(&known, &server)?;
    }
    // What a server before was started with by us comes off: it is added again.
    let mut arguments: Vec<OsString> = Vec::new();
    let mut given = known.arguments.iter();
    while let Some(argument) = given.next() {
        if argument == background::RECOVER {
            given.next();
        } else if argument != background::OF_EARLIER {
            arguments.push(argument.into());
        }
    }
    let more = [background::RECOVER.into(), known.device.clone().into()];
    arguments.splice(1.min(arguments.len())..1.min(arguments.len()), more);
    let started = background::start(arguments)?;
    if started == ExitCode::SUCCESS {
        return Ok(started);
    }
    // Another `--recover` may have been faster.
    if let Ok(found) = state::of(&known.device)
        && !found.is_of_same_server(&known)
        && found.server().is_some()
    {
        return Err(served(&found));
    }
    if replaces {
        complain(&format!(
            "unless another `cryptline attach --recover` is starting one, {device} has no server now, and what is asked of it \
             waits; `cryptline attach --recover {device}` tries again"
        ));
    }
    Ok(started)
}

fn served(by: &DeviceRecord) -> CliError {
    CliError::busy(format!("{} is served, by process {}", by.device.display(), by.pid))
}

/// Returns what is known of a device.
fn known(device: &Path) -> Result<DeviceRecord, CliError> {
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
fn wait_for_end(known: &DeviceRecord, server: &OwnedFd) {
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
fn replace(known: &DeviceRecord, server: &OwnedFd) -> Result<(), CliError> {
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
        // Another `--recover` has asked it before.
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => {
            return Err(CliError::device(format!("cannot ask process {} to end: {error}", known.pid)));
        }
    }
    wait_for_end(known, server);
    match state::of(&known.device)? {
        left if !left.is_of_same_server(known) => Err(served(&left)),
        DeviceRecord { failure: Some(why), .. } => Err(CliError::device(format!(
            "{device}: {why}; what was written lately may be lost, and what is asked of it waits for \
             `cryptline attach --recover {device}`"
        ))),
        _ => Ok(()),
    }
}
