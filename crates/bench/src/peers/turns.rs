//! A server's turn: started, checked or loaded by every generator, and ended.

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::generators::{Generator, Load, fio};
use super::servers::{Place, Programs, Server};
use super::{PeersArgs, WARM_UP};
use crate::Error;
use crate::foreign::typed;
use crate::images::{Images, SOCKET};
use crate::load::Job;
use crate::nbd::Export;
use crate::nbd::null::NullServer;
use crate::pins::Pins;
use crate::process::{Left, Process, Stop};
use crate::progress::Progress;
use crate::report::{Direction, Pattern, Sample, Shape};

/// The load under which contents are checked: many in flight, over several connections.
const CHECK: Shape = Shape {
    direction: Direction::Read,
    pattern: Pattern::Random,
    block: 4096,
    depth: 32,
    streams: 2,
};
/// Name of the socket of a server that another lies over; not longer than the other's.
const BELOW_SOCKET: &str = "below";
/// Clients that a server must take beside those that measure.
const SPARE_CLIENTS: u32 = 4;

/// What all turns share.
pub struct Turns<'a> {
    pub args: &'a PeersArgs,
    pub images: &'a Images,
    pub programs: &'a Programs,
    pub pins: Option<Pins>,
    /// For sockets and what programs say.
    pub folder: &'a Path,
    pub stop: &'a Stop,
    /// What was run, each command once.
    pub commands: RefCell<Vec<String>>,
}

/// A server in its turn.
struct Running {
    server: Server,
    socket: PathBuf,
    /// `None` for the null server.
    process: Option<Process>,
    /// Whom it lies over; ended after it.
    _below: Option<Process>,
    _null: Option<NullServer>,
}

impl Turns<'_> {
    /// Every server gives the bytes that the images were made of, in order and at random.
    pub fn check_contents(&self, progress: &Progress) -> Result<(), Error> {
        let expected = &self.images.sha256;
        for server in self.servers_with_images() {
            progress.now(format!("checking {server}"));
            let running = self.start(server)?;
            let sum = running.of(running.export().sha256())?;
            if sum != *expected {
                return Err(Error::device(format!(
                    "{server} gives other bytes than were written (SHA-256 {sum}, not {expected}); nothing was measured"
                )));
            }
            let contents = Some(self.images.contents);
            running.of(running.export().load(&self.job(CHECK, 0), contents))?;
            progress.step();
        }
        Ok(())
    }

    /// After all writes, servers of the same image still give the same bytes.
    pub fn check_agreement(&self) -> Result<(), Error> {
        let mut firsts: [Option<(Server, String)>; 2] = [None, None];
        for server in self.servers_with_images() {
            let running = self.start(server)?;
            let sum = running.of(running.export().sha256())?;
            let first = &mut firsts[usize::from(server.is_encrypted())];
            let (other, expected) = first.get_or_insert((server, sum.clone()));
            if sum != *expected {
                return Err(Error::device(format!(
                    "{server} and {other} read different bytes from the same image after the writes; no number of this run is of any worth"
                )));
            }
        }
        Ok(())
    }

    /// One server at one load, by every generator in turn.
    pub fn turn(&self, server: Server, load: Load, run: u32) -> Result<Vec<Sample>, Error> {
        let running = self.start(server)?;
        let mut samples = Vec::new();
        for &generator in &self.args.generators {
            self.stop.check()?;
            let shape = load.shape(generator.streams(self.args.connections));
            let job = self.job(shape, u64::from(run) + 1);
            samples.push(match generator {
                Generator::Fio => self.fio(&running, &job)?,
                Generator::Lean | Generator::LeanMany => running.load(&job)?,
            });
        }
        Ok(samples)
    }

    fn job(&self, shape: Shape, start: u64) -> Job {
        Job {
            shape,
            warm_up: WARM_UP,
            time: self.args.time(),
            // Requests in order begin with the disk.
            start: match shape.pattern {
                Pattern::Random => start,
                Pattern::Sequential => 0,
            },
            latency: true,
            cpu: self.pins.map(|pins| pins.client),
        }
    }

    fn fio(&self, running: &Running, job: &Job) -> Result<Sample, Error> {
        let (program, output) = (self.programs.path("fio"), self.folder.join("fio.json"));
        let (sample, command) = fio(program, &running.export(), job, &output)
            .map_err(|error| Error::new(error.kind(), format!("{}: {error}", running.server)))?;
        self.note_command(command);
        Ok(sample)
    }

    fn start(&self, server: Server) -> Result<Running, Error> {
        self.stop.check()?;
        let (socket, below) = (self.folder.join(SOCKET), self.folder.join(BELOW_SOCKET));
        let place = Place {
            images: self.images,
            socket: &socket,
            below: &below,
            clients: self.args.connections + SPARE_CLIENTS,
            dispatch: self.args.dispatch.as_deref(),
        };
        let mut running = Running {
            server,
            socket: socket.clone(),
            process: None,
            _below: None,
            _null: None,
        };
        if let Some(command) = server.command_below(self.programs, &place) {
            let name = format!("the server below {server}");
            running._below = Some(self.run(&name, command, &Export::new(&below, ""))?);
        }
        match server.command(self.programs, &place) {
            None => {
                let cpu = self.pins.map(|pins| pins.server);
                running._null = Some(NullServer::start(&socket, self.images.size, cpu)?);
            }
            Some(command) => {
                let export = Export::new(&socket, server.export());
                running.process = Some(self.run(&server.to_string(), command, &export)?);
            }
        }
        Ok(running)
    }

    /// Starts a server, pinned, and waits until it takes clients.
    fn run(
        &self,
        name: &str,
        mut command: Vec<OsString>,
        export: &Export<'_>,
    ) -> Result<Process, Error> {
        if let Some(pins) = self.pins {
            let taskset = self.programs.path("taskset").into();
            command.splice(0..0, [taskset, "-c".into(), pins.server.to_string().into()]);
        }
        let socket = export.socket.to_owned();
        // Each has a log of its own.
        let log = socket.with_extension("log");
        let process = Process::start(name, &command, Left::Socket(socket), &log, || {
            export.try_connect()
        })?;
        self.note_command(typed(&command));
        Ok(process)
    }

    fn note_command(&self, command: String) {
        let mut commands = self.commands.borrow_mut();
        if !commands.contains(&command) {
            commands.push(command);
        }
    }

    fn servers_with_images(&self) -> impl Iterator<Item = Server> {
        let servers = self.args.servers.iter().copied();
        servers.filter(|server| !server.is_null())
    }
}

impl Running {
    fn export(&self) -> Export<'_> {
        Export::new(&self.socket, self.server.export())
    }

    /// By the client of this program.
    fn load(&self, job: &Job) -> Result<Sample, Error> {
        let cpu = || self.process.as_ref().and_then(Process::cpu);
        let (start, before) = (Instant::now(), cpu());
        let mut sample = self.of(self.export().load(job, None))?;
        let wall = start.elapsed().as_secs_f64().max(1e-9);
        sample.server_busy = cpu()
            .zip(before)
            .map(|(used, before)| (used - before) / wall);
        Ok(sample)
    }

    /// An error with the server's name and the last line that it said.
    fn of<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        result.map_err(|error| match &self.process {
            // What makes no sense has nothing to do with the server.
            _ if error.kind() == cryptline::ErrorKind::Parameters => error,
            Some(process) => process.failure(&error.to_string()),
            None => Error::new(error.kind(), format!("{}: {error}", self.server)),
        })
    }
}
