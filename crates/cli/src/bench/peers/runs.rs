//! Every server's turn at every load, by every generator, round after round.

use std::path::{Path, PathBuf};
use std::time::Instant;

use super::fio::Fio;
use super::image::Images;
use super::jobs::{Generator, Load};
use super::process::{Process, Stop};
use super::servers::{Programs, Server, typed};
use super::{PeersArgs, Pins, WARM_UP};
use crate::CliError;
use crate::bench::Progress;
use crate::bench::nbd::null::NullServer;
use crate::bench::nbd::{self, Contents, PATIENCE};
use crate::bench::report::{Direction, Latency, Pattern, Shape};

/// The load under which contents are checked: many in flight, over several connections.
const CHECK: Shape = Shape {
    direction: Direction::Read,
    pattern: Pattern::Random,
    block: 4096,
    depth: 32,
    streams: 2,
};
/// Clients that a server must take beside those that measure.
const SPARE_CLIENTS: u32 = 4;

/// What one turn gave.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Bytes in a second.
    pub bytes_per_second: f64,
    /// How long requests took.
    pub latency: Latency,
    /// Share of the time in which the generator's threads had a processor, where it tells.
    pub client_busy: Option<f64>,
    /// Processors that the server used, on average, where it is known.
    pub server_busy: Option<f64>,
}

/// All turns of one server at one load by one generator.
#[derive(Debug)]
pub struct Series {
    /// Who was measured.
    pub server: Server,
    /// At what.
    pub load: Load,
    /// By whom.
    pub generator: Generator,
    /// One for each round, in order.
    pub samples: Vec<Sample>,
}

/// All turns.
pub struct Runs<'a> {
    args: &'a PeersArgs,
    images: &'a Images,
    programs: &'a Programs,
    pins: Option<Pins>,
    folder: &'a Path,
    stop: &'a Stop,
    /// What came of it.
    pub series: Vec<Series>,
    /// Each command once.
    pub commands: Vec<String>,
}

/// A server in its turn.
enum Running {
    Process(Process),
    Null(#[expect(dead_code, reason = "held for its end")] NullServer),
}

impl<'a> Runs<'a> {
    /// Nothing measured yet.
    pub fn new(
        args: &'a PeersArgs,
        images: &'a Images,
        programs: &'a Programs,
        pins: Option<Pins>,
        folder: &'a Path,
        stop: &'a Stop,
    ) -> Self {
        let mut series = Vec::new();
        for &load in &args.jobs {
            for &server in &args.servers {
                for &generator in &args.generators {
                    series.push(Series {
                        server,
                        load,
                        generator,
                        samples: Vec::new(),
                    });
                }
            }
        }
        Self {
            args,
            images,
            programs,
            pins,
            folder,
            stop,
            series,
            commands: Vec::new(),
        }
    }

    /// What was put in.
    pub fn images(&self) -> &Images {
        self.images
    }

    /// What was run.
    pub fn programs(&self) -> &Programs {
        self.programs
    }

    /// Every server gives the bytes that the images were made of, in order and at random.
    ///
    /// # Errors
    /// Exit code 4 for the first that does not.
    pub fn check_contents(&mut self, progress: &Progress) -> Result<(), CliError> {
        for server in self.servers_with_images() {
            progress.now(format!("checking {server}"));
            self.stop.check()?;
            let running = self.start(server)?;
            let sum = self.digest(server, &running)?;
            if sum != self.images.sha256 {
                return Err(CliError::device(format!(
                    "{server} gives other bytes than were written (SHA-256 {}, not {}); nothing was measured",
                    hex(&sum),
                    hex(&self.images.sha256)
                )));
            }
            self.lean(server, &running, CHECK, 0, Some(self.images.contents))?;
            progress.step();
        }
        Ok(())
    }

    /// After all writes, servers of the same image still give the same bytes.
    ///
    /// # Errors
    /// Exit code 4 when two do not.
    pub fn check_agreement(&mut self, progress: &Progress) -> Result<(), CliError> {
        let mut sums: Vec<(bool, Server, [u8; 32])> = Vec::new();
        for server in self.servers_with_images() {
            progress.now(format!("checking {server} again"));
            self.stop.check()?;
            let running = self.start(server)?;
            let sum = self.digest(server, &running)?;
            let encrypted = server.is_encrypted();
            let other = sums
                .iter()
                .find(|(kind, _, other)| *kind == encrypted && *other != sum);
            if let Some((_, other, _)) = other {
                return Err(CliError::device(format!(
                    "{server} and {other} read different bytes from the same image after the writes; no number of this run is of any worth"
                )));
            }
            sums.push((encrypted, server, sum));
            progress.step();
        }
        Ok(())
    }

    /// All rounds.
    ///
    /// # Errors
    /// Exit code 4 when a server or generator fails.
    pub fn measure(&mut self, progress: &Progress) -> Result<(), CliError> {
        let servers = self.args.servers.clone();
        for round in 0..self.args.rounds {
            for (index, load) in self.args.jobs.clone().into_iter().enumerate() {
                // Another server is first each time.
                let first = usize::try_from(round).unwrap_or(0) + index;
                for turn in 0..servers.len() {
                    let server = servers[(first + turn) % servers.len()];
                    progress.now(format!(
                        "round {} of {}: {load}, {server}",
                        round + 1,
                        self.args.rounds
                    ));
                    self.turn(server, load, u64::from(round))?;
                    progress.step();
                }
            }
        }
        Ok(())
    }

    /// One server at one load, by every generator.
    fn turn(&mut self, server: Server, load: Load, round: u64) -> Result<(), CliError> {
        let running = self.start(server)?;
        for generator in self.args.generators.clone() {
            self.stop.check()?;
            let sample = match generator {
                Generator::Fio => self.fio(server, load)?,
                _ => {
                    let shape = load.shape(generator.streams(self.args.connections));
                    self.lean(server, &running, shape, round + 1, None)?
                }
            };
            let series = self.series.iter_mut().find(|series| {
                (series.server, series.load, series.generator) == (server, load, generator)
            });
            if let Some(series) = series {
                series.samples.push(sample);
            }
        }
        Ok(())
    }

    fn lean(
        &self,
        server: Server,
        running: &Running,
        shape: Shape,
        seed: u64,
        expect: Option<Contents>,
    ) -> Result<Sample, CliError> {
        let socket = self.socket();
        let job = nbd::Job {
            socket: &socket,
            export: server.export(),
            shape,
            warm_up: WARM_UP,
            duration: self.args.time(),
            cpu: self.pins.map(|pins| pins.client),
            seed,
            expect,
            patience: PATIENCE,
        };
        let (start, cpu) = (Instant::now(), running.cpu());
        let measured = nbd::run(&job).map_err(|error| running.failure(server, error))?;
        let (wall, used) = (start.elapsed(), running.cpu());
        let server_busy = used.zip(cpu).map(|(used, before)| {
            let used = used - before;
            used.max(0.0) / wall.as_secs_f64().max(1e-9)
        });
        Ok(Sample {
            bytes_per_second: measured.bytes_per_second(),
            latency: Latency::of(&measured.latency),
            client_busy: Some(measured.client_busy),
            server_busy,
        })
    }

    fn fio(&mut self, server: Server, load: Load) -> Result<Sample, CliError> {
        let (socket, output) = (self.socket(), self.folder.join("fio.json"));
        let fio = Fio {
            program: self.programs.path("fio"),
            load,
            socket: &socket,
            export: server.export(),
            time: self.args.time(),
            warm_up: WARM_UP,
            cpu: self.pins.map(|pins| pins.client),
            output: &output,
        };
        let command = typed(&fio.command());
        let sample = fio
            .run()
            .map_err(|error| CliError::new(error.kind(), format!("{server}: {error}")))?;
        self.note_command(command);
        Ok(sample)
    }

    fn digest(&self, server: Server, running: &Running) -> Result<[u8; 32], CliError> {
        nbd::sha256(&self.socket(), server.export()).map_err(|error| running.failure(server, error))
    }

    fn start(&mut self, server: Server) -> Result<Running, CliError> {
        let socket = self.socket();
        let clients = self.args.connections + SPARE_CLIENTS;
        let dispatch = self.args.dispatch.as_deref();
        let command = server.command(self.programs, self.images, &socket, clients, dispatch);
        let cpu = self.pins.map(|pins| pins.server);
        let Some(mut command) = command else {
            let null = NullServer::start(&socket, self.images.size, cpu)?;
            return Ok(Running::Null(null));
        };
        if let Some(cpu) = cpu {
            let taskset = self.programs.path("taskset").into();
            command.splice(0..0, [taskset, "-c".into(), cpu.to_string().into()]);
        }
        let log = self.folder.join("server.log");
        let process = Process::start(
            &server.to_string(),
            &command,
            &socket,
            server.export(),
            &log,
        )?;
        self.note_command(typed(&command));
        Ok(Running::Process(process))
    }

    fn note_command(&mut self, command: String) {
        if !self.commands.contains(&command) {
            self.commands.push(command);
        }
    }

    fn socket(&self) -> PathBuf {
        self.folder.join(super::SOCKET)
    }

    fn servers_with_images(&self) -> Vec<Server> {
        let servers = self.args.servers.iter().copied();
        servers.filter(|server| !server.is_null()).collect()
    }
}

impl Running {
    fn cpu(&self) -> Option<f64> {
        match self {
            Self::Process(process) => process.cpu(),
            // A part of this process, and of no interest.
            Self::Null(_) => None,
        }
    }

    fn failure(&self, server: Server, error: CliError) -> CliError {
        match self {
            // What makes no sense has nothing to do with the server.
            _ if error.exit_code() == 1 => error,
            Self::Process(process) => process.failure(&error.to_string()),
            Self::Null(_) => CliError::new(error.kind(), format!("{server}: {error}")),
        }
    }
}

/// Two digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
