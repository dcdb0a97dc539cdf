//! `detach`: ends what `attach` or `mount` has begun, whether its server still runs or not.

pub mod mount;

use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use cryptline_serve::device::is_claimed;
use cryptline_serve::{kernel_nbd, ublk};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::OwnedFd;
use rustix::process::{Signal, pidfd_send_signal};

use crate::CliError;
use crate::again;
use crate::attached::orphans;
use crate::attached::state::{self, AttachDriver, DeviceRecord, number_of};
use crate::output::warn;
use crate::verb::{DEVICES, Group, Verb, Word, XDG};

pub const VERB: Verb = Verb {
    name: "detach",
    words: &[Word::new("umount")],
    group: Some(Group::Use),
    examples: "\
cryptline detach /mnt
umount /mnt && cryptline detach /dev/nbd0",
    notes: "\
A mount is taken away once its volumes are flushed, and it ends when their server has; the exit code tells whether \
everything is durable. With --lazy, nothing is flushed or waited for. A mount whose server has died is removed as well, \
with exit code 4.

With a block device, the kernel writes back what it has cached, the device goes away, and the volume is flushed. A device \
whose server was killed is removed as well; what the kernel had not written by then is lost. With --force, all file \
systems write what they have before a device in use goes away, and the exit code is 4.",
    exit: "0 gone and durable, 1 invalid parameters, or not supported here, 4 nothing of cryptline's is there, it could \
        not be removed, or it is gone and the last flush failed or is not known, 5 in use",
    environment: &[XDG],
    files: &[DEVICES],
    see: "cryptline-mount(1), cryptline-attach(1)",
    keyless: true,
    ..Verb::EMPTY
};

/// Mount or device to take away, and how.
#[derive(Args, Debug)]
pub struct DetachArgs {
    /// A mount point of `cryptline mount`, or a device of `cryptline attach`
    #[arg(value_name = "PLACE")]
    pub place: PathBuf,

    /// Detach a device even while it is in use; programs then get I/O errors
    #[arg(long)]
    pub force: bool,

    /// Unmount now even if the mount is in use; programs that have the file open keep it until they close it
    #[arg(short, long, conflicts_with = "force")]
    pub lazy: bool,

    /// At the end of standard input, take away what is left of this process's nbd device
    #[arg(long, hide = true, value_name = "PID")]
    pub after_server: Option<u32>,

    /// Unmount the mount that standard input names, at its end, lazily if needed
    #[arg(long, hide = true)]
    pub at_end_of_input: bool,
}

/// Takes the mount or the device away.
///
/// # Errors
/// Exit code 5 for what is in use, 4 where something was lost or could not be removed.
pub fn run(args: &DetachArgs) -> Result<(), CliError> {
    if let Some(server) = args.after_server {
        return after_server(&args.place, server);
    }
    if args.at_end_of_input {
        return mount::unmount_at_end_of_input(&args.place);
    }
    let name = args.place.display();
    match (is_device(&args.place), args.force, args.lazy) {
        (true, _, true) => {
            Err(CliError::parameters(format!("{name} is a block device, which --lazy is not for; unmount it first")))
        }
        (false, true, _) => {
            Err(CliError::parameters(format!("{name} is no block device, which --force is for; see --lazy")))
        }
        (true, force, false) => remove(&args.place, force),
        (false, false, lazy) => mount::unmount(&args.place, lazy),
    }
}

/// Tells what is meant, by what is known to be there, and only then by what it looks like.
fn is_device(place: &Path) -> bool {
    if mount::is_ours(place) {
        return false;
    }
    let is_block = || std::fs::metadata(place).is_ok_and(|found| found.file_type().is_block_device());
    state::of(place).is_ok() || orphans::of(place).is_some() || is_block() || place.starts_with("/dev")
}

/// Takes a device away.
///
/// # Errors
/// As [`run`].
pub fn remove(device: &Path, force: bool) -> Result<(), CliError> {
    let known = match state::of(device) {
        Ok(known) => known,
        Err(unknown) => {
            let orphan = orphans::of(device).ok_or(unknown)?;
            check_unused(&orphan.device, force)?;
            remove_unknown(&orphan)?;
            return Ok(());
        }
    };
    let _alone = state::alone_with(&known.device);
    let known = match state::of(device) {
        Ok(now) if now.is_of_same_server(&known) => now,
        Ok(now) => {
            return Err(CliError::busy(format!(
                "{} has a new server by now, process {}; try again",
                now.device.display(),
                now.pid
            )));
        }
        // Another `detach` has been here meanwhile.
        Err(_) => return Ok(()),
    };
    check_unused(&known.device, force)?;
    match known.server() {
        Some(server) => {
            refuse_stranger(&known)?;
            stop(&known, &server)?;
        }
        None => remove_orphan(&known)?,
    }
    Ok(())
}

fn check_unused(device: &Path, force: bool) -> Result<(), CliError> {
    if !force && is_claimed(device) {
        return Err(CliError::busy(format!("{} is in use; unmount it first, or use --force", device.display())));
    }
    Ok(())
}

/// For a server that was killed; nobody hears why it fails. What is known of the device stays, for whoever detaches it.
fn after_server(device: &Path, server: u32) -> Result<(), CliError> {
    again::server_of_companion().map(|server| again::wait_for_end(&server)).map_err(no_server)?;
    if let Some(index) = number_of(device)
        && kernel_nbd::owner(index).is_ok_and(|owner| owner == Some(server))
    {
        let _ = kernel_nbd::detach(index);
    }
    Ok(())
}

/// For a companion that somebody else has started.
pub fn no_server(error: io::Error) -> CliError {
    CliError::parameters(format!("standard input: {error}"))
}

/// A process that may be another by now is told nothing.
///
/// # Errors
/// Exit code 5 where it cannot be known.
pub fn refuse_stranger(known: &DeviceRecord) -> Result<(), CliError> {
    if known.is_known_server() {
        return Ok(());
    }
    Err(CliError::busy(format!(
        "cannot tell whether process {} is still the server of {}: its start time cannot be read; run this as root, with /proc mounted",
        known.pid,
        known.device.display()
    )))
}

/// Has the server end, and waits for that.
fn stop(known: &DeviceRecord, server: &OwnedFd) -> Result<(), CliError> {
    match pidfd_send_signal(server, Signal::TERM) {
        // It has just ended by itself.
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => {
            return Err(CliError::device(format!("cannot stop process {}: {error}", known.pid)));
        }
    }
    let mut polled = [PollFd::new(server, PollFlags::IN)];
    while let Err(rustix::io::Errno::INTR) = rustix::event::poll(&mut polled, None) {}
    match state::of(&known.device) {
        // It removes what is known of the device when all went well, and another may have that name by now.
        Ok(left) if left.is_of_same_server(known) => {
            remove_device(&left)?;
            let why = left.failure.as_deref();
            Err(lost(&left, why.unwrap_or("the server was killed")))
        }
        _ => Ok(()),
    }
}

/// Removes a device that nobody serves any more.
fn remove_orphan(known: &DeviceRecord) -> Result<(), CliError> {
    remove_device(known)?;
    if let Some(why) = &known.failure {
        return Err(lost(known, why));
    }
    warn_of_loss(&known.device);
    Ok(())
}

/// The same, where nothing else is known of it.
fn remove_unknown(orphan: &orphans::OrphanRecord) -> Result<(), CliError> {
    let device = &orphan.device;
    ublk::detach(orphan.id)
        .map_err(|error| CliError::device(format!("cannot remove {}: {error}", device.display())))?;
    warn_of_loss(device);
    Ok(())
}

fn warn_of_loss(device: &Path) {
    warn(&[format!(
        "the server of {} had been killed: what the kernel had not written by then is lost",
        device.display()
    )]);
}

/// Removes it, where it is still there, and what is known of it.
fn remove_device(known: &DeviceRecord) -> Result<(), CliError> {
    let failed = |error| CliError::device(format!("cannot remove {}: {error}", known.device.display()));
    let driver: DriverCalls = match known.driver {
        AttachDriver::Nbd => (kernel_nbd::owner, kernel_nbd::detach),
        AttachDriver::Ublk => (ublk::owner, ublk::detach),
    };
    let (owner, detach) = driver;
    if let Some(number) = number_of(&known.device) {
        let owner = owner(number).map_err(failed)?;
        if known.is_taken_by(owner) {
            known.remove();
            return Err(match &known.failure {
                Some(why) => lost(known, why),
                None => CliError::busy(format!(
                    "{} is another process's by now, and stays; what had not been written to the one of that \
                     name that was attached is lost",
                    known.device.display()
                )),
            });
        }
        detach(number).map_err(failed)?;
    }
    known.remove();
    Ok(())
}

/// Calls of a driver that tell about the device with a number, and act on it.
type DriverCalls = (fn(u32) -> io::Result<Option<u32>>, fn(u32) -> io::Result<()>);

fn lost(known: &DeviceRecord, why: &str) -> CliError {
    CliError::device(format!("{}: {why}; what was written lately may be lost", known.device.display()))
}
