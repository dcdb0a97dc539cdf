//! The server of one device, from an open volume to the last flush.

use std::cell::{Cell, OnceCell};
use std::ffi::OsString;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cryptline::Volume;
use cryptline_engine::{BackendChoice, Gate};
use cryptline_serve::StopHandle;
use cryptline_serve::device::{AttachError, EndError};
use cryptline_serve::kernel_nbd::{self, KernelNbd};
use cryptline_serve::lane::Poll;
use cryptline_serve::stats::ExportStats;
use cryptline_serve::ublk::{self, Ublk};
use rustix::fs::Mode;

use super::AttachArgs;
use crate::CliError;
use crate::again::{self, Starter};
use crate::attached::state::{self, AttachDriver, DeviceRecord, number_of, start_of};
use crate::output::{complain, print, warn};
use crate::serve::cleanup::Cleanup;
use crate::serve::events;
use crate::serve::front::ServedVolume;
use crate::serve::log::LineCounter;
use crate::serve::signals::{Stopper, Successor};
use crate::serve::volumes::Volumes;

/// How long requests may take when the server stops.
const GRACE: Duration = Duration::from_secs(5);
/// Of the sockets for statistics: nobody but the owner.
const SOCKET_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// How a volume is attached.
pub struct AttachWanted<'a> {
    /// Options.
    pub args: &'a AttachArgs,
    /// Maker of the device.
    pub driver: AttachDriver,
    /// Bytes of a block.
    pub block: u32,
    /// How lanes do their I/O.
    pub backend: BackendChoice,
    /// Name of what is attached, for people.
    pub target: String,
    /// The command line, where a later server may have it.
    pub arguments: Vec<OsString>,
    /// Where the command line was given.
    pub folder: PathBuf,
    /// Whoever is told of the device, and has the terminal then.
    pub starter: &'a Starter,
    /// Nobody else sees what this process unmounts.
    pub has_own_mounts: bool,
}

/// Attaches a volume and serves it until it is detached or a signal comes.
///
/// # Errors
/// Exit code 4 where there is no driver or the last write failed, 5 where the device is in use.
pub fn run(volume: &Volume, wanted: &AttachWanted<'_>) -> Result<ExitCode, CliError> {
    let (args, gate) = (wanted.args, volume.gate());
    if let Some(device) = &args.recover_device {
        go_on(volume, &state::of(device)?)?;
    }
    events::opened(volume);
    let cleanup = Cleanup::default();
    let stopper = Stopper::begin(&cleanup, None)?;
    events::watch_latch(&volume.info().source, gate);
    // What is known of the device is kept before it can be used, and so a successor may ask for it that early.
    let asked = Successor::expect()?;
    stay_in_memory();
    let failures = Arc::new(Failures::default());
    let served = ServedVolume::over(wanted.target.clone(), volume, gate.clone(), args.statistics.counts());
    let stats = Arc::clone(&served.stats);
    let sockets = args.statistics.bind(SOCKET_MODE, &cleanup)?;
    // The kernel wakes up who serves a device, and nobody looks out for that.
    sockets.start(&Volumes::new([served].into()), Poll::default())?;
    let device = AttachedDevice::attach(volume, wanted, stats, stopper.handle().clone(), &failures)?;
    let facts = device.facts();
    let _watch = device.watch(&facts);
    forget_mounts(wanted);
    let successor: Arc<AtomicBool> = Arc::default();
    let watched = if facts.can_be_handed_over { asked.watch(stopper.clone(), Arc::clone(&successor)) } else { Ok(()) };
    let path = facts.path.display().to_string();
    let mut state = state_of(volume, wanted, facts.path, facts.queues.unwrap_or(args.queues));
    state.owner = facts.owner;
    state.unprivileged = facts.unprivileged;
    let announced = watched.and_then(|()| state.write());
    let announced = announced.and_then(|()| announce(&path, wanted));
    if let Err(error) = announced {
        if args.recover_device.is_some() {
            // The device waits for the next server as soon as this process has ended.
            return Err(error);
        }
        // Nobody will know of the device: it must not stay.
        if let Err(error) = device.end(false, complain) {
            complain(&format!("{path}: {error}"));
        }
        state.remove();
        return Err(error);
    }
    let _ = failures.known.set((state.clone(), gate.clone()));
    stopper.ready(Some(&path), &format!("{path} can be used"));
    let ended = serve(device, gate, &state, &successor);
    let is_left = successor.load(Ordering::SeqCst);
    stopper.ended(ended.map(|()| 0), if is_left { "a successor goes on" } else { "the volume is flushed" })
}

/// Prepares the volume for what a server before has left.
fn go_on(volume: &Volume, left: &DeviceRecord) -> Result<(), CliError> {
    left.accept(&volume.info().identity)?;
    if left.lost {
        // Whoever has written it may not have asked yet, and a flush that succeeds would be taken for the answer.
        volume.gate().latch();
        let device = left.device.display();
        warn(&[format!(
            "what was written to {device} before may be lost, so no flush of it succeeds: unmount it, `cryptline detach` \
             and attach it again, and check what is on it"
        )]);
    }
    Ok(())
}

/// Serves until the end, of which the state is to tell where it was not a good one.
fn serve(
    mut device: AttachedDevice,
    gate: &Gate,
    state: &DeviceRecord,
    successor: &AtomicBool,
) -> Result<(), CliError> {
    let log = LineCounter::new();
    let size = Cell::new(state.size);
    let now = || DeviceRecord { size: size.get(), lost: gate.is_latched(), ..state.clone() };
    // What is not kept is what people are told.
    let keep = || drop(now().rewrite());
    let grown = |bytes| {
        size.set(bytes);
        keep();
    };
    device.serve(grown, keep, |line| log.line(line));
    let trouble = OnceCell::new();
    let failed = |line: &str| {
        log.line(line);
        let _ = trouble.set(line.to_owned());
    };
    let is_left = successor.load(Ordering::SeqCst);
    match device.end(is_left, failed) {
        // The successor finds what is known of the device.
        Ok(()) if is_left => Ok(()),
        Ok(()) => {
            state.remove();
            Ok(())
        }
        Err(error) => {
            let why = match trouble.get() {
                Some(trouble) => format!("{error} ({trouble})"),
                None => error.to_string(),
            };
            keep_failure(&now(), &why);
            Err(CliError::device(format!("{why}; what was written lately may be lost")))
        }
    }
}

/// For whoever detaches or lists.
fn keep_failure(state: &DeviceRecord, why: &str) {
    let failure = Some(crate::error::on_one_line(why));
    let state = DeviceRecord { failure, ..state.clone() };
    // A state that cannot be kept says nothing of the data.
    let _ = state.rewrite();
}

/// End of a server whose thread has failed: its process ends, and its device waits for another.
#[derive(Default)]
struct Failures {
    /// Once there is a device.
    known: OnceLock<(DeviceRecord, Gate)>,
}

impl Failures {
    fn take(&self, why: &str) -> ! {
        complain(&format!("{why}; the server ends, and `cryptline attach --recover` starts another"));
        if let Some((state, gate)) = self.known.get() {
            let lost = gate.is_latched();
            keep_failure(&DeviceRecord { lost, ..state.clone() }, why);
        }
        cryptline_sys::exit_without_destructors();
        std::process::exit(i32::from(CliError::device(why).exit_code()));
    }
}

/// Tells the kernel that it must not wait for us while we wait for memory: it would free memory by writing to us.
/// Threads that are started later have it as well.
pub fn be_an_io_flusher() {
    // It takes a right that whoever makes a device usually has. Without it all works, unless memory runs out.
    let _ = rustix::process::configure_io_flusher_behavior(true);
}

/// Leaves the mounts that others see, where that is allowed; whether it was. The last process of a mount namespace
/// unmounts what is mounted there when it ends. Of the server's own device that would wait for the server for ever.
pub fn see_mounts_of_its_own() -> bool {
    cryptline_sys::leave_mount_namespace().is_ok()
}

/// Drops mounts of disks, since what others unmount must not stay mounted here: its disk would stay in use. Where the
/// target is reached by a network its socket may be anywhere, and is needed to connect again.
fn forget_mounts(wanted: &AttachWanted<'_>) {
    if wanted.has_own_mounts && !wanted.target.contains("://") {
        // As the kernel has them in its table of mounts.
        let sockets = wanted.args.statistics.paths().map(|(_, path)| path.to_owned());
        let needed = sockets.chain([state::folder()]);
        let keep: Vec<_> = needed.filter_map(|path| path.canonicalize().ok()).collect();
        cryptline_sys::forget_mounts_of_disks(&keep);
    }
}

/// Keeps the process in memory: what is swapped out would have to be read while memory runs out, and what waits for a
/// server that is killed then could not be freed. It takes rights that users do not have.
fn stay_in_memory() {
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    use rustix::mm::{MlockAllFlags, mlockall};
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    if mlockall(flags).is_err() {
        warn(&["the server's memory could not be locked (ulimit -l): under memory pressure, the \
                device can stall"
            .to_owned()]);
    }
}

fn announce(path: &str, wanted: &AttachWanted<'_>) -> Result<(), CliError> {
    if !Starter::is_there() {
        return print(&format!("{path}\n"));
    }
    wanted.starter.leave()?;
    match wanted.starter.tell(path) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CliError::device(format!("cannot go to the background: {error}")))
        }
        // Where nobody has waited for it, it is there all the same.
        _ => Ok(()),
    }
}

fn state_of(volume: &Volume, wanted: &AttachWanted<'_>, device: PathBuf, queues: u16) -> DeviceRecord {
    let pid = std::process::id();
    DeviceRecord {
        device,
        driver: wanted.driver,
        target: wanted.target.clone(),
        identity: volume.info().identity.clone(),
        size: volume.info().size,
        read_only: volume.info().read_only,
        queues,
        zoned: volume.gate().geometry().zones.is_some(),
        unprivileged: false,
        pid,
        owner: None,
        started: start_of(pid).unwrap_or(0),
        arguments: wanted.arguments.clone(),
        folder: wanted.folder.clone(),
        failure: None,
        lost: volume.gate().is_latched(),
    }
}

/// An attached device, whoever made it.
enum AttachedDevice {
    Nbd(KernelNbd),
    Ublk(Ublk),
}

/// Facts of one that is there.
struct DeviceFacts {
    path: PathBuf,
    /// Its queues, where the kernel may have made fewer than were asked for.
    queues: Option<u16>,
    /// The server, as the driver knows it.
    owner: Option<u32>,
    /// Set if the kernel trusts it with less.
    unprivileged: bool,
    /// Set if it can be left to another server.
    can_be_handed_over: bool,
}

impl AttachedDevice {
    fn attach(
        volume: &Volume,
        wanted: &AttachWanted<'_>,
        stats: Arc<ExportStats>,
        stop: StopHandle,
        failures: &Arc<Failures>,
    ) -> Result<Self, AttachError> {
        let gate = volume.gate().clone();
        let (args, block) = (wanted.args, wanted.block);
        if wanted.driver == AttachDriver::Nbd {
            let options = kernel_nbd::NbdAttachOptions {
                backend: wanted.backend,
                connections: args.queues.into(),
                index: None,
                block,
                timeout: args.timeout.map(Duration::from_secs),
                stats,
                grace: GRACE,
            };
            return KernelNbd::attach(gate, options, stop).map(Self::Nbd);
        }
        let failures = Arc::clone(failures);
        let options = ublk::UblkOptions {
            queues: args.queues,
            block,
            stats,
            grace: GRACE,
            on_failure: Arc::new(move |why| failures.take(why)),
        };
        let left = args.recover_device.as_deref().and_then(number_of);
        match left {
            Some(id) => Ublk::recover(id, gate, options, stop),
            None => {
                let early = OnceCell::new();
                let attached = Ublk::attach(gate, options, stop, |path, queues| {
                    let state = state_of(volume, wanted, path, queues);
                    // Where it cannot be kept, that is said once the device is there.
                    let _ = state.write();
                    let _ = early.set(state);
                });
                if let (Err(_), Some(state)) = (&attached, early.get()) {
                    state.remove();
                }
                attached
            }
        }
        .map(Self::Ublk)
    }

    fn facts(&self) -> DeviceFacts {
        match self {
            Self::Nbd(device) => DeviceFacts {
                path: device.path(),
                queues: None,
                owner: device.owner(),
                unprivileged: false,
                can_be_handed_over: false,
            },
            Self::Ublk(device) => DeviceFacts {
                path: device.path(),
                queues: Some(device.queues()),
                owner: Some(device.owner()),
                unprivileged: device.is_unprivileged(),
                can_be_handed_over: device.can_be_handed_over(),
            },
        }
    }

    /// Has a companion take an nbd device away when this server was killed, while what is returned stays: the kernel
    /// waits for ever where nobody is left to answer a request, and only without a disk do requests get errors. A time limit
    /// would also hit a medium that is merely slow. Of a ublk device the kernel notices.
    fn watch(&self, facts: &DeviceFacts) -> Option<UnixStream> {
        if let Self::Ublk(_) = self {
            return None;
        }
        let mut companion = again::this_program();
        companion.args(["detach", "--after-server", &facts.owner?.to_string(), "--"]).arg(&facts.path);
        let watch = again::start_undoing(companion);
        if let Err(error) = &watch {
            warn(&[format!("nobody takes the device away if its server is killed: {error}")]);
        }
        watch.ok()
    }

    /// Serves until it is to stop; `grown` is told when it has more bytes, `lost` when a write has failed, if another
    /// server can go on with it.
    fn serve(&mut self, grown: impl Fn(u64), lost: impl FnOnce(), log: impl Fn(&str)) {
        match self {
            Self::Nbd(device) => device.serve(),
            Self::Ublk(device) => device.serve(grown, lost, log),
        }
    }

    /// Takes it away, or `leaves` it to another server, with all that waits for it.
    fn end(self, leaves: bool, log: impl Fn(&str)) -> Result<(), EndError> {
        match self {
            // It is never asked to leave one.
            Self::Nbd(device) => device.end(log),
            Self::Ublk(device) if leaves => device.hand_over(log),
            Self::Ublk(device) => device.end(log),
        }
    }
}
