//! What the benches share that start programs of others: images, processors, a folder, and a list of the commands.

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use cryptline::size;

use crate::Error;
use crate::foreign::{self, Programs};
use crate::images::Images;
use crate::load::Job;
use crate::pins::Pins;
use crate::process::{Left, Process, Stop};
use crate::report::{Report, Shape};

/// Load before each turn counts.
pub const WARM_UP: Duration = Duration::from_millis(50);
/// What keeps a process on a processor.
const TASKSET: &str = "taskset";
/// Smallest clear disk of a server: every load has room to move.
const SIZE_MIN: u64 = 16 << 20;

/// Where and from what servers and other programs run.
pub struct Setting<'a> {
    pub images: &'a Images,
    pub programs: &'a Programs,
    pub pins: Option<Pins>,
    /// For sockets, mounts and what programs say.
    pub folder: &'a Path,
    pub stop: &'a Stop,
    /// What was run, each command once.
    commands: RefCell<Vec<String>>,
}

impl<'a> Setting<'a> {
    /// Where nothing is pinned, `pins` is none.
    pub fn new(
        (images, programs): (&'a Images, &'a Programs),
        pins: Option<Pins>,
        folder: &'a Path,
        stop: &'a Stop,
    ) -> Self {
        Self { images, programs, pins, folder, stop, commands: RefCell::default() }
    }

    /// The command of a line, see [`foreign::words`], with the places of images and of the key, and of the program.
    pub fn command(&self, line: &str, more: impl Fn(&str) -> OsString) -> Vec<OsString> {
        let images = self.images;
        let mut command = foreign::words(line, |name| match name {
            "luks1" => images.luks1.clone().into(),
            "luks2" => images.luks2.clone().into(),
            "plain" => images.plain.clone().into(),
            "key" => images.key.clone().into(),
            "size" => images.size.to_string().into(),
            other => more(other),
        });
        if let Some(program) = command.first_mut() {
            *program = self.programs.path(&program.to_string_lossy()).into();
        }
        command
    }

    /// Starts a server on its processor, and waits until it is ready.
    pub fn start(
        &self,
        name: &str,
        command: Vec<OsString>,
        left: Left,
        ready: impl Fn() -> Result<(), Error>,
    ) -> Result<Process, Error> {
        let cpu = self.pins.map(|pins| pins.server);
        self.start_on(cpu, name, command, left, ready)
    }

    /// The same, on any processor.
    pub fn start_on(
        &self,
        cpu: Option<usize>,
        name: &str,
        mut command: Vec<OsString>,
        left: Left,
        ready: impl Fn() -> Result<(), Error>,
    ) -> Result<Process, Error> {
        self.stop.check()?;
        if let Some(cpu) = cpu {
            let taskset = self.programs.path(TASKSET).into();
            command.splice(0..0, [taskset, "-c".into(), cpu.to_string().into()]);
        }
        // Each has a log of its own.
        let log = left.path().with_extension("log");
        let process = Process::start(name, &command, left, &log, ready)?;
        self.note(foreign::typed(&command));
        Ok(process)
    }

    /// A command that was run.
    pub fn note(&self, command: String) {
        let mut commands = self.commands.borrow_mut();
        if !commands.contains(&command) {
            commands.push(command);
        }
    }

    /// The job of a turn.
    pub fn job(&self, shape: Shape, time: Duration, start: u64) -> Job {
        Job { cpu: self.pins.map(|pins| pins.client), ..Job::timed(shape, WARM_UP, time, start) }
    }

    /// What a report says of it. `clients` are those that make load.
    pub fn describe(&self, report: &mut Report, clients: &str, no_pin: bool) {
        report.medium.clone_from(&self.images.medium);
        report.commands.extend(self.commands.borrow().clone());
        report.notes.push(match self.pins {
            Some(pins) => format!(
                "All servers run on processor {}, all {clients} on processor {}, and on no other.",
                pins.server, pins.client
            ),
            None => format!("Servers and {clients} run on any processor."),
        });
        if no_pin {
            report.warnings.push(format!(
                "nothing was pinned, so servers and {clients} took processors from each other as it came"
            ));
        }
    }
}

/// Processors to pin to, unless that is not wanted.
pub fn pins(programs: &Programs, no_pin: bool) -> Result<Option<Pins>, Error> {
    let pins = if no_pin { None } else { Pins::choose() };
    match programs.missing(TASKSET) {
        Some(taskset) if pins.is_some() => {
            Err(Error::parameters(format!("not installed: {taskset}; install it, or give --no-pin")))
        }
        _ => Ok(pins),
    }
}

/// Whether a server can have a clear disk of that size.
pub fn check_size(size: u64) -> Result<(), Error> {
    if size >= SIZE_MIN && size.is_multiple_of(1 << 20) {
        return Ok(());
    }
    Err(Error::parameters(format!("--size {size}: give a multiple of 1M, at least {}", size::human(SIZE_MIN))))
}
