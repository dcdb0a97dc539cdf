//! Work of every front around its protocol.
//!
//! ```text
//! Front::begin   descriptors of keys taken, contradictions found, I/O tried, sandbox prepared
//!   open         volumes opened (KDF, once each); from here on signals stop the server
//! Opened         the front binds what it listens on
//!   enter        statistics, pid file, --run's command; then rights are given up
//! Entered
//!   serve        banner, READY=1, the front's own loop, the command's end, the exit code
//! ```

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal as _;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;

use cryptline::{Info, PartitionName, Target, Volume, Window};
use cryptline_engine::{BackendChoice, Gate, OpenError};
use cryptline_serve::lane::Poll;
use cryptline_serve::stats::ExportStats;
use cryptline_serve::{Flushed, StopHandle};
use cryptline_sys::Ring;

use super::backend::WorkingBackend;
use super::banner::{Banner, CommonFacts};
use super::cleanup::Cleanup;
use super::events;
use super::memory;
use super::metrics_socket::MetricsAddress;
use super::options::{FrontArgs, ProcessArgs};
use super::parent::ParentProcess;
use super::passed::Passed;
use super::pidfile;
use super::run::{Captive, RunCommand};
use super::sandbox::{InForce, Needs, Sandbox, ServerRights};
use super::signals::{Reload, Stopper};
use super::volumes::Volumes;
use crate::CliError;
use crate::args::open;
use crate::log;
use crate::output::{print, warn, warn_of};

/// Served where no target is given.
const DEFAULT_TARGET: &str = "ram:1G";

/// A volume that is served.
#[derive(Clone)]
pub struct ServedVolume {
    /// Name for clients or the statistics.
    pub name: String,
    /// The volume, for clients that may write blocks of 512 bytes, or any bytes where the front says so. Those
    /// that can be told should keep to the blocks of `info`.
    pub gate: Gate,
    /// Description of it.
    pub info: Info,
    /// Its counters.
    pub stats: Arc<ExportStats>,
}

impl ServedVolume {
    /// Tells if these are its counters: two volumes may have one name, one after the other.
    pub fn counts_in(&self, stats: &Arc<ExportStats>) -> bool {
        Arc::ptr_eq(&self.stats, stats)
    }

    /// Without `counts`, clients do not measure.
    pub fn new(name: String, volume: &Volume, counts: bool) -> Result<Self, CliError> {
        Ok(Self::over(name, volume, volume.gate_for_any_client()?, counts))
    }

    /// The same, served by another gate of the volume.
    pub fn over(name: String, volume: &Volume, gate: Gate, counts: bool) -> Self {
        Self { name, gate, info: volume.info().clone(), stats: ExportStats::new(counts) }
    }
}

/// A front that has begun, with everything that can be found out before a key is asked for.
pub struct BoundFront<'a> {
    args: &'a FrontArgs,
    targets: &'a [OsString],
    keys: Passed,
    parent: Option<ParentProcess>,
    backend: WorkingBackend,
    sandbox: Sandbox,
    in_bytes: bool,
    reload: Option<Reload>,
    counts: bool,
}

/// Refuses more queues, asked for with `option`, than a volume can have.
///
/// # Errors
/// Exit code 1.
pub fn check_queues(name: &str, gate: &Gate, queues: u64, option: &str) -> Result<(), CliError> {
    let most = gate.traits().queues;
    if queues <= most as u64 {
        return Ok(());
    }
    let (most, give) = match most {
        0 => ("none".to_owned(), String::new()),
        most => (most.to_string(), format!("use {option} {most}, or ")),
    };
    Err(CliError::parameters(format!(
        "{option} {queues}: {name} can have {most} at a time, because of the connections that its NBD server takes; {give}use a server of several connections (as with `qemu-nbd --shared=0`)"
    )))
}

/// How many queues a volume can have at a time, of as many as are `wanted`: a server below may take fewer connections
/// than it says. They stay at hand.
///
/// # Errors
/// Exit code 4 where there is not even one.
pub fn queues_to_be_had(gate: &Gate, wanted: usize) -> Result<usize, CliError> {
    // A server below is asked for its holes over a connection that is made with the first question.
    let _ = gate.extent(0, 1);
    let mut queues = Vec::new();
    while queues.len() < wanted.min(gate.traits().queues) {
        let mut ring = Ring::new(BackendChoice::Syscalls, 1).map_err(|error| CliError::memory(error.to_string()))?;
        match gate.open_queue(&mut ring) {
            Ok(queue) => queues.push((queue, ring)),
            Err(OpenError::Remote { .. }) if !queues.is_empty() => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(queues.len())
}

/// A front with its volumes, and with every right.
pub struct OpenedFront<'a> {
    /// Served volumes, in the order of the targets.
    pub volumes: Arc<[ServedVolume]>,
    /// For what the front makes in the file system.
    pub cleanup: Cleanup,
    options: &'a ProcessArgs,
    parent: Option<ParentProcess>,
    backend: WorkingBackend,
    poll: Poll,
    sandbox: Sandbox,
    /// Input that --run's command may read.
    input: Stdio,
    stopper: Stopper,
}

/// A front without the rights that it no longer needs.
pub struct Entered<'a> {
    volumes: Volumes,
    options: &'a ProcessArgs,
    backend: WorkingBackend,
    poll: Poll,
    in_force: InForce,
    /// Most at a time, where there is not enough for all that were asked for.
    clients: Option<u64>,
    /// Most that there is memory for.
    lanes: usize,
    /// Where Prometheus is answered.
    metrics: Option<MetricsAddress>,
    captive: Option<Captive>,
    /// All but its first lines, which have been said.
    banner: Banner,
    /// Standard output is a terminal.
    is_read: bool,
    stopper: Stopper,
    /// Dropped last.
    _cleanup: Cleanup,
}

impl<'a> BoundFront<'a> {
    /// Call before anything else is opened. Without `targets` and table, there is a default one.
    pub fn begin(args: &'a FrontArgs, targets: &'a [OsString]) -> Result<Self, CliError> {
        let options = &args.process;
        options.log.begin(options.verbose);
        let keys = Passed::take(&args.volume, &args.keys, targets);
        let parent = options.exit_with_parent.then(ParentProcess::current);
        parent.map_or(Ok(()), ParentProcess::follow)?;
        args.check(targets)?;
        options.pidfile.as_deref().map_or(Ok(()), pidfile::check)?;
        options.statistics.check()?;
        Ok(Self {
            args,
            targets,
            keys,
            parent,
            backend: WorkingBackend::probe(options.io)?,
            sandbox: args.sandbox.prepare()?,
            in_bytes: false,
            reload: None,
            counts: options.statistics.counts(),
        })
    }

    /// For clients that know no blocks: any range of bytes can be read and written.
    pub fn in_bytes(mut self) -> Self {
        self.in_bytes = true;
        self
    }

    /// SIGHUP asks for this, instead of the server's end.
    pub fn on_hangup(mut self, reload: Option<Reload>) -> Self {
        self.reload = reload;
        self
    }

    /// Counts what clients do where `yes` says so, and wherever statistics were asked for.
    pub fn counting(mut self, yes: bool) -> Self {
        self.counts |= yes;
        self
    }

    /// Opens every volume; each key is derived once, here. `name` gets each target's number and the last
    /// part of its path.
    pub fn open(mut self, name: impl Fn(usize, String) -> String) -> Result<OpenedFront<'a>, CliError> {
        let volumes = self.open_volumes(name)?;
        let input = self.keys.input_of_command();
        // No key is read from here on.
        drop(self.keys);
        let cleanup = Cleanup::default();
        let stopper = Stopper::begin(&cleanup, self.reload.take())?;
        for volume in volumes.iter() {
            events::watch_latch(&volume.info.source, &volume.gate);
        }
        Ok(OpenedFront {
            volumes,
            cleanup,
            options: &self.args.process,
            parent: self.parent,
            poll: self.args.process.poll(&self.backend),
            backend: self.backend,
            sandbox: self.sandbox,
            input,
            stopper,
        })
    }

    fn open_volumes(&self, name: impl Fn(usize, String) -> String) -> Result<Arc<[ServedVolume]>, CliError> {
        let args = self.args;
        let alone = match (self.targets, &args.volume.table) {
            ([], Some(_)) => Some(OsString::new()),
            ([], None) => Some(DEFAULT_TARGET.into()),
            _ => None,
        };
        let targets = self.targets.iter().chain(&alone).enumerate();
        let open = |(index, target): (usize, &OsString)| {
            let volume = open(target, &args.volume, &args.keys)?;
            warn_of(volume.warnings());
            events::opened(&volume);
            let name = name(index, last_part(target));
            if self.in_bytes {
                let gate = volume.gate_for_any_bytes()?;
                Ok(ServedVolume::over(name, &volume, gate, self.counts))
            } else {
                ServedVolume::new(name, &volume, self.counts)
            }
        };
        targets.map(open).collect()
    }
}

/// Returns the name of a target among others: that of its file, or of a server's export. It is text, whatever bytes the
/// file's name has, since clients are told of it and may ask for it.
fn last_part(target: &OsStr) -> String {
    match Target::parse(target) {
        Ok(Target::Slice(slice)) => {
            let part = match &slice.window {
                Window::Partition(PartitionName::Number(number) | PartitionName::Counted { number, .. }) => {
                    number.to_string()
                }
                Window::Partition(PartitionName::Text(name)) => name.clone(),
                Window::Range { offset, .. } => offset.to_string(),
            };
            // It may become the name of a file.
            let part = part.replace('/', "_");
            format!("{}-{part}", last_part(slice.of.to_string().as_ref()))
        }
        Ok(Target::Keyed(keyed)) => last_part(keyed.of.to_string().as_ref()),
        Ok(Target::Nbd(uri)) => uri.export,
        Ok(Target::Rbd(rbd)) => match rbd.name.snapshot {
            Some(snapshot) => format!("{}@{snapshot}", rbd.name.image),
            None => rbd.name.image,
        },
        _ => Path::new(target).file_name().map(OsStr::to_string_lossy).unwrap_or_default().into_owned(),
    }
}

impl<'a> OpenedFront<'a> {
    /// Gives up all rights but what `needs` says. Call when everything is open and clients can connect.
    /// `command` runs beside the server: the end of either is the end of both. The pid file appears when the places of
    /// the `banner` have been printed: whoever waits for it finds them.
    pub fn enter(
        self,
        needs: &Needs<'_>,
        command: Option<RunCommand>,
        banner: Banner,
    ) -> Result<Entered<'a>, CliError> {
        let (within_memory, lanes) = (memory::clients(needs)?, memory::lanes());
        let needs = &Needs { clients: within_memory.unwrap_or(needs.clients), ..*needs };
        let volumes = Volumes::new(Arc::clone(&self.volumes));
        let sockets = self.options.statistics.bind(self.options.socket_mode, &self.cleanup)?;
        // Nobody may ask the terminal once the sandbox is there.
        let is_read = std::io::stdout().is_terminal();
        if !banner.quiet && command.is_none() {
            print(&banner.places())?;
        }
        if let Some(path) = &self.options.pidfile {
            pidfile::write(path, &self.cleanup)?;
        }
        let captive = command.map(|command| command.start(self.input, self.stopper.clone())).transpose()?;
        let entered = self.sandbox.enforce(&ServerRights {
            needs,
            volumes: &self.volumes,
            backend: self.backend.choice,
            cleanup: &self.cleanup,
            command: captive.is_some(),
            parent: self.parent,
        });
        // What was possible with more rights may not be any more.
        let entered = entered.and_then(|in_force| match self.backend.choice {
            BackendChoice::Syscalls => Ok((in_force, self.backend)),
            _ => Ok((in_force, WorkingBackend::probe(self.options.io)?)),
        });
        // Their threads have no more rights than that.
        let entered = entered.and_then(|(in_force, backend)| {
            let poll = self.poll.by(backend.choice);
            Ok((in_force, backend, poll, sockets.start(&volumes, poll)?))
        });
        match entered {
            Ok((in_force, backend, poll, metrics)) => Ok(Entered {
                poll,
                clients: in_force.clients.or(within_memory),
                lanes,
                volumes,
                options: self.options,
                backend,
                in_force,
                metrics,
                captive,
                banner,
                is_read,
                stopper: self.stopper,
                _cleanup: self.cleanup,
            }),
            Err(error) => {
                captive.map(Captive::finish);
                Err(error)
            }
        }
    }
}

impl Entered<'_> {
    /// How to do I/O.
    pub fn backend(&self) -> BackendChoice {
        self.backend.choice
    }

    /// Most clients at a time, where there is not enough for all that were asked for.
    pub fn clients(&self) -> Option<u64> {
        self.clients
    }

    /// Most lanes that there is memory for, those of clients included that have left.
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// Returns what is served, and may change.
    pub fn volumes(&self) -> &Volumes {
        &self.volumes
    }

    /// Returns the policy by which lanes look out for requests.
    pub fn poll(&self) -> Poll {
        self.poll
    }

    /// Says that clients can connect, and serves them with `run` until its stop handle is used and every
    /// volume has been flushed.
    pub fn serve(mut self, run: impl FnOnce(&StopHandle) -> Result<Flushed, CliError>) -> Result<ExitCode, CliError> {
        let flushed = self.say().and_then(|()| {
            self.stopper.ready(None, "clients can connect");
            run(self.stopper.handle())
        });
        let status = self.captive.take().map_or(0, Captive::finish);
        let noun = self.banner.noun;
        let ended = flushed.and_then(|flushed| {
            flushed.map_err(|(name, fault)| CliError::device(self.volumes.lost(noun, &name, fault)))
        });
        self.stopper.ended(ended.map(|()| status), &format!("all {noun}s flushed"))
    }

    /// Says the rest of the banner on a terminal, and elsewhere that clients can connect. Standard output belongs to the client
    /// or command where there is one.
    fn say(&self) -> Result<(), CliError> {
        let volumes = self.volumes.now();
        let common = CommonFacts {
            volumes: &volumes,
            io: &self.backend.description,
            poll: self.poll,
            sandbox: &self.in_force,
            stats: self.options.statistics.stats.as_deref(),
            metrics: self.metrics.as_ref(),
        };
        let is_told = !self.banner.quiet && self.captive.is_none();
        if is_told && self.is_read {
            return print(&self.banner.rest(&common));
        }
        if is_told {
            print(&Banner::brief(&common))?;
        }
        if self.options.verbose {
            let text = self.banner.places() + &self.banner.rest(&common);
            let lines = text.lines().filter(|line| !line.is_empty());
            lines.for_each(log::info);
        } else if !is_told && self.in_force.is_less_than_asked() {
            warn(&[format!("sandbox: {}", self.in_force.text())]);
        }
        Ok(())
    }
}
