//! A server's turn: started, checked or loaded, and ended.

use std::cell::RefCell;
use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::client::{Check, Client, read_all};
use super::servers::{Door, Programs, Server};
use super::{Contest, DoorsArgs, Load};
use crate::Error;
use crate::foreign::typed;
use crate::images::{Images, SOCKET};
use crate::load::{self, Job};
use crate::pins::Pins;
use crate::process::{Left, Process, Stop};
use crate::report::{Pattern, Sample, Shape};

/// Load before each turn counts.
const WARM_UP: Duration = Duration::from_millis(50);
/// How long a server may keep silent.
const PATIENCE: Duration = Duration::from_secs(10);
/// Slower than this is no server but a way to hold us up, in bytes in a second.
const RATE_MIN: u64 = 1 << 20;

/// What all turns share.
pub struct Turns<'a> {
    pub args: &'a DoorsArgs,
    pub images: &'a Images,
    pub programs: &'a Programs,
    pub pins: Option<Pins>,
    /// For sockets, mounts and what programs say.
    pub folder: &'a Path,
    pub stop: &'a Stop,
    /// What was run, each command once.
    pub commands: RefCell<Vec<String>>,
    /// Who takes no part, and why.
    pub missing: Vec<(Server, String)>,
}

/// A server in its turn.
struct Running {
    place: PathBuf,
    process: Process,
}

impl Turns<'_> {
    /// What of `contests` can be measured here.
    pub fn possible(&mut self, contests: impl IntoIterator<Item = Contest>) -> Vec<Contest> {
        let mut possible = Vec::new();
        for mut contest in contests {
            contest
                .servers
                .retain(|&server| match self.why_not(server) {
                    Some(why) => {
                        self.missing.push((server, why));
                        false
                    }
                    None => true,
                });
            possible.push(contest);
        }
        possible.retain(|contest| !contest.servers.is_empty());
        possible
    }

    fn why_not(&self, server: Server) -> Option<String> {
        if self.args.fronts.contains(&server.door()) {
            self.programs.missing(server)
        } else {
            Some("it was left out by --fronts".into())
        }
    }

    /// A server gives the bytes that the images were made of, all of them.
    pub fn check(&self, server: Server) -> Result<(), Error> {
        let running = self.start(server)?;
        let shape = Load::Large.shape();
        let late = Instant::now() + PATIENCE + Duration::from_secs(self.images.size / RATE_MIN);
        let expected = (self.images.contents, Check::Whole);
        let opened = Client::open(server, &running.place, shape, late, expected);
        let offsets = (0..self.images.size).step_by(shape.block as usize);
        let read = opened.and_then(|mut client| {
            self.check_size(&client)?;
            read_all(&mut client, shape.depth, offsets)
        });
        running.of(read)
    }

    fn check_size(&self, client: &impl load::Transport) -> Result<(), Error> {
        let (found, expected) = (client.size(), self.images.size);
        if found == expected {
            return Ok(());
        }
        Err(Error::device(format!(
            "the disk has {found} bytes and not {expected}"
        )))
    }

    /// One server at one load.
    pub fn turn(&self, server: Server, load: Load, run: u32) -> Result<Sample, Error> {
        let running = self.start(server)?;
        let shape = load.shape();
        let job = Job {
            shape,
            warm_up: WARM_UP,
            time: self.args.time(),
            // Requests in order begin with the disk.
            start: match shape.pattern {
                Pattern::Random => u64::from(run) + 1,
                Pattern::Sequential => 0,
            },
            latency: true,
            cpu: self.pins.map(|pins| pins.client),
        };
        running.load(server, &job, self.images)
    }

    fn start(&self, server: Server) -> Result<Running, Error> {
        self.stop.check()?;
        let (place, left) = self.place(server.door())?;
        let mut command = server.command(self.programs, self.images, &place);
        if let Some(pins) = self.pins {
            command = self.programs.pinned(pins.server, command);
        }
        let size = self.images.size;
        let ready = || match server.door() {
            Door::VhostUser | Door::Nbd => UnixStream::connect(&place).map(drop),
            // Before it is mounted over, the file is empty.
            Door::Fuse => match fs::metadata(&place)?.len() {
                len if len == size => Ok(()),
                _ => Err(std::io::Error::other("nothing is mounted")),
            },
        };
        let ready = || ready().map_err(|error| Error::device(error.to_string()));
        let log = self.folder.join("server.log");
        let process = Process::start(&server.to_string(), &command, left, &log, ready)?;
        self.note_command(typed(&command));
        Ok(Running { place, process })
    }

    /// Where a server is to be reached.
    fn place(&self, door: Door) -> Result<(PathBuf, Left), Error> {
        if door != Door::Fuse {
            let place = self.folder.join(SOCKET);
            return Ok((place.clone(), Left::Socket(place)));
        }
        let place = self.folder.join("disk");
        let made = File::create(&place);
        made.map_err(|error| Error::device(format!("{}: {error}", place.display())))?;
        Ok((place.clone(), Left::Mount(place)))
    }

    fn note_command(&self, command: String) {
        let mut commands = self.commands.borrow_mut();
        if !commands.contains(&command) {
            commands.push(command);
        }
    }
}

impl Running {
    fn load(&self, server: Server, job: &Job, images: &Images) -> Result<Sample, Error> {
        let expected = (images.contents, Check::Ends);
        let late = Instant::now() + job.warm_up + job.time + PATIENCE;
        let (start, before) = (Instant::now(), self.process.cpu());
        let loaded = load::drive(job, |_| {
            Client::open(server, &self.place, job.shape, late, expected)
        });
        let mut sample = self.of(loaded)?;
        let wall = start.elapsed().as_secs_f64().max(1e-9);
        let used = self.process.cpu().zip(before);
        sample.server_busy = used.map(|(used, before)| (used - before) / wall);
        Ok(sample)
    }

    /// An error with the server's name and the last line that it said.
    fn of<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        result.map_err(|error| match error.kind() {
            // What makes no sense has nothing to do with the server.
            cryptline::ErrorKind::Parameters => error,
            _ => self.process.failure(&error.to_string()),
        })
    }
}

/// When a client of a few requests gives up.
pub fn soon() -> Instant {
    Instant::now() + PATIENCE
}

/// The shape that allocations are counted under.
pub fn counted() -> Shape {
    Load::Small.shape()
}
