//! Resources shared by the plans that start programs: images, processors, a folder, and a list of the commands.

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use cryptline::luks::format::LuksVersion;
use cryptline::size;
use rustix::thread::{CpuSet, sched_getaffinity};
use tempfile::TempDir;

use crate::error::{Result, fail};
use crate::fio::FioTarget;
use crate::images::{FOLDER, Images, private_folder};
use crate::load::LoadJob;
use crate::machine::cores;
use crate::process::{KilledRemains, ServerProcess, StopFlag};
use crate::programs::{self, ProgramArgs, Programs};
use crate::report::{LoadShape, PlanReport};

/// Load before each turn counts.
pub const WARM_UP: Duration = Duration::from_millis(50);
/// Names of the socket of a server that another lies over, and of a mount.
pub const BELOW: &str = "below";
pub const MOUNT: &str = "disk";
/// Program that keeps a process on a processor.
const TASKSET: &str = "taskset";
/// Smallest clear disk of a server: every load has room to move.
const SIZE_MIN: u64 = 16 << 20;
/// With less there are no goals.
const ENOUGH: (u32, f64, u64) = (3, 0.1, 64 << 20);

/// Options of the plans of servers.
#[derive(Args, Clone, Debug)]
pub struct ServerPlanArgs {
    /// Folder for the images, sockets and mounts; they are removed at the end
    #[arg(long, value_name = "DIR", default_value = FOLDER)]
    pub dir: PathBuf,

    /// Let servers and clients run on any processor, not each on one of its own
    #[arg(long)]
    pub no_pin: bool,

    #[command(flatten)]
    pub program: ProgramArgs,
}

/// The processors of servers and of those that make load.
#[derive(Clone, Copy, Debug)]
pub struct Pins {
    pub server: usize,
    pub client: usize,
    /// Of a server that another lies over: a third one, or where there is none, that of the client. Beside the server it
    /// would only show that two programs on one processor are slower than one.
    pub below: usize,
}

impl Pins {
    /// The first two that this process may use; with one processor there is nothing to choose.
    fn choose() -> Option<Self> {
        let set = (cores() > 1).then(|| sched_getaffinity(None).ok())??;
        let mut allowed = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu));
        let (server, client) = (allowed.next()?, allowed.next()?);
        Some(Self { server, client, below: allowed.next().unwrap_or(client) })
    }
}

/// Where and from what servers and other programs run.
pub struct Setting {
    pub images: Images,
    pub programs: Programs,
    /// None where nothing is pinned.
    pub pins: Option<Pins>,
    pub stop: StopFlag,
    /// Commands that were run, each once.
    commands: RefCell<Vec<String>>,
    /// For images, sockets, mounts and what programs say; gone at the end.
    folder: TempDir,
}

impl Setting {
    /// Images of these versions in a folder of their own.
    pub fn new(dir: &Path, size: u64, versions: &[LuksVersion], programs: Programs, pinned: bool) -> Result<Self> {
        let pins = if pinned { Pins::choose() } else { None };
        if let Some(taskset) = programs.missing(TASKSET).filter(|_| pins.is_some()) {
            fail!("{taskset}; install it, or use --no-pin");
        }
        let stop = StopFlag::watch()?;
        let folder = private_folder(dir)?;
        let images = Images::make(folder.path(), size, versions)?;
        Ok(Self { images, programs, pins, stop, commands: RefCell::default(), folder })
    }

    /// For servers and what they are asked.
    pub fn of_servers(args: &ServerPlanArgs, size: u64, versions: &[LuksVersion]) -> Result<Self> {
        check_size(size)?;
        Self::new(&args.dir, size, versions, Programs::find(&args.program)?, !args.no_pin)
    }

    /// For servers and clients that run wherever the scheduler puts them.
    pub fn anywhere(dir: &Path, size: u64, versions: &[LuksVersion], programs: Programs) -> Result<Self> {
        check_size(size)?;
        Self::new(dir, size, versions, programs, false)
    }

    /// A file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The command of a line, see [`programs::words`], with the places of images and of the key, and of the program.
    pub fn command(&self, line: &str) -> Vec<OsString> {
        let images = &self.images;
        let mut command = programs::words(line, |name| match name {
            "luks1" => images.luks1.clone().into(),
            "luks2" => images.luks2.clone().into(),
            "plain" => images.plain.clone().into(),
            "key" => images.key.clone().into(),
            "size" => images.size.to_string().into(),
            "below-uri" => FioTarget::Nbd(self.path(BELOW), "").uri().into(),
            // A file of the folder: a socket, a mount, or one of the plan's own.
            other => self.path(other).into(),
        });
        if let Some(program) = command.first_mut() {
            *program = self.programs.path(&program.to_string_lossy()).into();
        }
        command
    }

    /// Starts a server on a processor, or on any, and waits until it is ready.
    pub fn start(
        &self,
        cpu: Option<usize>,
        name: &str,
        mut command: Vec<OsString>,
        left: KilledRemains,
        ready: impl Fn() -> Result<()>,
    ) -> Result<ServerProcess> {
        self.stop.check()?;
        if let Some(cpu) = cpu {
            let taskset = self.programs.path(TASKSET).into();
            command.splice(0..0, [taskset, "-c".into(), cpu.to_string().into()]);
        }
        let process = ServerProcess::start(name, &command, left, ready)?;
        self.note(&command);
        Ok(process)
    }

    /// Runs a program that must succeed.
    pub fn run(&self, command: &[OsString]) -> Result<()> {
        self.note(command);
        match programs::run(Path::new(&command[0]), &command[1..])? {
            Some(_) => Ok(()),
            None => fail!("{} is gone", command[0].display()),
        }
    }

    /// The commands that were run since they were last asked for, each once.
    pub fn commands(&self) -> Vec<String> {
        self.commands.take()
    }

    fn note(&self, command: &[OsString]) {
        let mut commands = self.commands.borrow_mut();
        let command = programs::typed(command);
        if !commands.contains(&command) {
            commands.push(command);
        }
    }

    /// The job of a turn.
    pub fn job(&self, shape: LoadShape, time: Duration, start: u64) -> LoadJob {
        LoadJob { cpu: self.pins.map(|pins| pins.client), ..LoadJob::timed(shape, WARM_UP, time, start) }
    }

    /// Adds images and commands to a report. With less than enough there are no goals.
    pub fn describe_images(&self, report: &mut PlanReport) {
        report.medium.clone_from(&self.images.medium);
        report.commands.extend(self.commands());
        let (rounds, seconds, size) = ENOUGH;
        report.weak_below(rounds, seconds, (self.images.size, size));
    }

    /// Adds the setting to a report. Without processors of their own, servers have no goals either.
    pub fn describe(&self, report: &mut PlanReport) {
        self.describe_images(report);
        report.notes.push(match self.pins {
            Some(Pins { server, client, below }) => format!(
                "All servers run on processor {server}, those that others lie over on {below}, and those that make load on {client}."
            ),
            None => {
                report.weak.get_or_insert("no goal: servers and those that make load share processors".into());
                "Servers and those that make load run on any processor.".into()
            }
        });
    }
}

fn check_size(size: u64) -> Result<()> {
    if size < SIZE_MIN || !size.is_multiple_of(1 << 20) {
        fail!("--size {size}: use a multiple of 1M, at least {}", size::human(SIZE_MIN));
    }
    Ok(())
}
