//! A server's turn: started, checked or loaded, and ended.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::client::{Check, Client, read_all};
use super::servers::{Door, Server};
use super::{Contest, DoorsArgs, LARGE};
use crate::Error;
use crate::images::SOCKET;
use crate::load;
use crate::process::{Left, Process};
use crate::report::{Sample, Shape};
use crate::setting::Setting;

/// How long a server may keep silent.
const PATIENCE: Duration = Duration::from_secs(10);
/// Slower than this is no server but a way to hold us up, in bytes in a second.
const RATE_MIN: u64 = 1 << 20;

/// What all turns share.
pub struct Turns<'a> {
    pub args: &'a DoorsArgs,
    pub setting: Setting<'a>,
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
            contest.servers.retain(|&server| match self.why_not(server) {
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
            server.missing(self.setting.programs)
        } else {
            Some("it was left out by --fronts".into())
        }
    }

    /// A server gives the bytes that the images were made of, all of them.
    pub fn check(&self, server: Server) -> Result<(), Error> {
        let Running { place, process } = self.start(server)?;
        let images = self.setting.images;
        let late = Instant::now() + PATIENCE + Duration::from_secs(images.size / RATE_MIN);
        let expected = (images.contents, Check::Whole);
        let opened = Client::open(server, &place, LARGE, late, expected);
        let offsets = (0..images.size).step_by(LARGE.block as usize);
        let read = opened.and_then(|mut client| {
            self.check_size(&client)?;
            read_all(&mut client, LARGE.depth, offsets)
        });
        process.blamed(read)
    }

    fn check_size(&self, client: &impl load::Transport) -> Result<(), Error> {
        let (found, expected) = (client.size(), self.setting.images.size);
        if found == expected {
            return Ok(());
        }
        Err(Error::device(format!("the disk has {found} bytes and not {expected}")))
    }

    /// One server at one load.
    pub fn turn(&self, server: Server, load: Shape, run: u32) -> Result<Sample, Error> {
        let Running { place, process } = self.start(server)?;
        let job = self.setting.job(load, self.args.time(), u64::from(run) + 1);
        let expected = (self.setting.images.contents, Check::Ends);
        let late = Instant::now() + job.warm_up + job.time + PATIENCE;
        process.under(|| load::drive(&job, |_| Client::open(server, &place, load, late, expected)))
    }

    fn start(&self, server: Server) -> Result<Running, Error> {
        let (place, left) = self.place(server.door())?;
        let command = server.command(&self.setting, &place);
        let size = self.setting.images.size;
        let ready = || {
            let ready = if !server.door().is_mount() {
                UnixStream::connect(&place).map(drop)
            } else if fs::metadata(&place).is_ok_and(|it| it.len() == size) {
                Ok(())
            } else {
                // Before it is mounted over, the file is empty.
                Err(std::io::Error::other("nothing is mounted"))
            };
            ready.map_err(|error| Error::device(error.to_string()))
        };
        let process = self.setting.start(&server.to_string(), command, left, ready)?;
        Ok(Running { place, process })
    }

    /// Where a server is to be reached.
    fn place(&self, door: Door) -> Result<(PathBuf, Left), Error> {
        if !door.is_mount() {
            let place = self.setting.folder.join(SOCKET);
            return Ok((place.clone(), Left::Socket(place)));
        }
        let place = self.setting.folder.join("disk");
        let made = File::create(&place);
        made.map_err(|error| Error::device(format!("{}: {error}", place.display())))?;
        Ok((place.clone(), Left::Mount(place)))
    }
}

/// When a client of a few requests gives up.
pub fn soon() -> Instant {
    Instant::now() + PATIENCE
}
