//! A server's turn: started, checked or loaded by every generator, and ended.

use std::path::PathBuf;

use super::PeersArgs;
use super::generators::{Generator, Load, fio};
use super::servers::{Place, Server};
use crate::Error;
use crate::images::SOCKET;
use crate::load::Job;
use crate::nbd::Export;
use crate::nbd::null::NullServer;
use crate::process::{Left, Process};
use crate::progress::Progress;
use crate::report::{Direction, Pattern, Sample, Shape};
use crate::setting::Setting;

/// The load under which contents are checked: many in flight, over several connections.
const CHECK: Shape = Shape { direction: Direction::Read, pattern: Pattern::Random, block: 4096, depth: 32, streams: 2 };
/// Name of the socket of a server that another lies over; not longer than the other's.
const BELOW_SOCKET: &str = "below";
/// Clients that a server must take beside those that measure.
const SPARE_CLIENTS: u32 = 4;

/// What all turns share.
pub struct Turns<'a> {
    pub args: &'a PeersArgs,
    pub setting: Setting<'a>,
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
        let expected = &self.setting.images.sha256;
        for server in self.servers_with_images() {
            progress.now(format!("checking {server}"));
            let running = self.start(server)?;
            let sum = running.of(running.export().sha256())?;
            if sum != *expected {
                return Err(Error::device(format!(
                    "{server} gives other bytes than were written (SHA-256 {sum}, not {expected}); nothing was measured"
                )));
            }
            let contents = Some(self.setting.images.contents);
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
            self.setting.stop.check()?;
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
        self.setting.job(shape, self.args.time(), start)
    }

    fn fio(&self, running: &Running, job: &Job) -> Result<Sample, Error> {
        let setting = &self.setting;
        let (program, output) = (setting.programs.path("fio"), setting.folder.join("fio.json"));
        let (sample, command) = fio(program, &running.export(), job, &output)
            .map_err(|error| Error::new(error.kind(), format!("{}: {error}", running.server)))?;
        setting.note(command);
        Ok(sample)
    }

    fn start(&self, server: Server) -> Result<Running, Error> {
        let setting = &self.setting;
        setting.stop.check()?;
        let [socket, below] = [SOCKET, BELOW_SOCKET].map(|name| setting.folder.join(name));
        let place = Place {
            socket: &socket,
            below: &below,
            clients: self.args.connections + SPARE_CLIENTS,
            dispatch: self.args.dispatch.as_deref(),
        };
        let mut running = Running { server, socket: socket.clone(), process: None, _below: None, _null: None };
        let start = |cpu, name: &str, command, export: &Export<'_>| {
            let left = Left::Socket(export.socket.to_owned());
            setting.start_on(cpu, name, command, left, || export.try_connect())
        };
        let [cpu, cpu_below] = [setting.pins.map(|pins| pins.server), setting.pins.map(|pins| pins.below)];
        if let Some(command) = server.command_below(setting, &place) {
            let name = format!("the server below {server}");
            running._below = Some(start(cpu_below, &name, command, &Export::new(&below, ""))?);
        }
        match server.command(setting, &place) {
            None => {
                running._null = Some(NullServer::start(&socket, setting.images.size, cpu)?);
            }
            Some(command) => {
                let export = Export::new(&socket, server.export());
                running.process = Some(start(cpu, &server.to_string(), command, &export)?);
            }
        }
        Ok(running)
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
        let load = || self.export().load(job, None);
        match &self.process {
            Some(process) => process.under(load),
            None => self.of(load()),
        }
    }

    /// An error with the server's name.
    fn of<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        match &self.process {
            Some(process) => process.blamed(result),
            None => result.map_err(|error| Error::new(error.kind(), format!("{}: {error}", self.server))),
        }
    }
}
