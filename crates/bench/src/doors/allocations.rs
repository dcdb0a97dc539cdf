//! Calls of the allocator for each request: a server of each front, in this process, whose threads the
//! kernel counts.
//!
//! ```text
//! thread of the server ─ counter of it and what it starts ─► lanes ── client, another thread: not counted
//! ```
//!
//! For itself, a server's process would need a counting allocator, which would be part of every run.

use std::fmt::Display;
use std::io::{self, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use cryptline::Volume;
use cryptline::luks::format::Version;
use cryptline_engine::{BackendChoice, Gate};
use cryptline_nbd::TlsMode;
use cryptline_serve::fuse::{self, Mount, Nodes, Over, Session, Wanted};
use cryptline_serve::lane::Poll;
use cryptline_serve::nbd::{self, Export, Exports, Listener};
use cryptline_serve::stats::ExportStats;
use cryptline_serve::vhost_user::{self, Disk, Front};
use cryptline_serve::{Flushed, StopHandle};
use cryptline_sys::Counter;

use super::SMALL;
use super::client::{Check, Client, read_all};
use super::servers::{Door, Server};
use super::turns::{Turns, soon};
use crate::Error;
use crate::contents::random;

/// Requests before any counts, and requests that count.
const WARM_UP: u64 = 512;
const COUNTED: u32 = 4096;
const GRACE: Duration = Duration::from_secs(5);

/// Calls for each request by front, where this machine lets a program count them.
pub fn count(turns: &Turns<'_>) -> Result<Vec<(Door, Option<f64>)>, Error> {
    let fronts = turns.args.fronts.iter().copied();
    let fronts = fronts.filter(|front| front.missing().is_none());
    fronts.map(|front| Ok((front, count_one(turns, front)?))).collect()
}

fn count_one(turns: &Turns<'_>, front: Door) -> Result<Option<f64>, Error> {
    turns.setting.stop.check()?;
    let place = turns.setting.folder.join("counted");
    let stop = StopHandle::new().map_err(failed)?;
    let (tell, told) = mpsc::channel();
    let (images, at, stopped) = (turns.setting.images, &place, &stop);
    let counted = thread::scope(|scope| {
        let server = scope.spawn(move || {
            let Ok(counter) = Counter::allocations_of_threads() else {
                return Ok(());
            };
            // Its helpers count as well, so they are started here.
            let volume = images.open(Version::Luks2)?;
            let served = Served::prepare(front, &volume, at)?;
            // The other end waits for it.
            let _ = tell.send(counter);
            served.run(stopped)
        });
        let counted = match told.recv() {
            Ok(counter) => count_requests(turns, front, &place, &counter),
            Err(_) => Ok(None),
        };
        stop.stop();
        let ended = server.join();
        let ended = ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        counted.and_then(|counted| ended.map(|()| counted))
    });
    // A socket, or what was mounted over.
    let _ = std::fs::remove_file(&place);
    counted
}

/// Reads, and looks at the counter before and afterwards.
fn count_requests(turns: &Turns<'_>, front: Door, place: &Path, counter: &Counter) -> Result<Option<f64>, Error> {
    let shape = SMALL;
    let expected = (turns.setting.images.contents, Check::Ends);
    let mut client = Client::open(Server::Ours(front), place, shape, soon(), expected)?;
    let blocks = turns.setting.images.size / u64::from(shape.block);
    let offset = |index| random(1, index) % blocks * u64::from(shape.block);
    read_all(&mut client, shape.depth, (0..WARM_UP).map(offset))?;
    // Making ready took memory: what has not seen that counts nothing.
    let Some(before) = counter.read().ok().filter(|&calls| calls > 0) else {
        return Ok(None);
    };
    let all = WARM_UP..WARM_UP + u64::from(COUNTED);
    read_all(&mut client, shape.depth, all.map(offset))?;
    let calls = counter.read().ok().map(|after| after - before);
    let each = |calls| f64::from(u32::try_from(calls).unwrap_or(u32::MAX)) / f64::from(COUNTED);
    Ok(calls.map(each))
}

/// A server that is about to run. Clients can connect already, or soon.
enum Served {
    VhostUser(vhost_user::Server),
    Nbd(Arc<nbd::Server>, UnixListener),
    Fuse(Box<Mounted>),
}

struct Mounted {
    volume: Gate,
    mount: Mount,
    descriptors: Vec<OwnedFd>,
    /// Where requests are to come through io_uring.
    queues: Option<usize>,
}

impl Served {
    fn prepare(front: Door, volume: &Volume, place: &Path) -> Result<Self, Error> {
        Ok(match front {
            Door::VhostUser => {
                let disk = Disk {
                    name: "disk".into(),
                    gate: volume.gate().clone(),
                    block: 512,
                    serial: String::new(),
                    queues: 1,
                    queue_size: None,
                    stats: ExportStats::new(false),
                    front: Front::Listener(UnixListener::bind(place).map_err(failed)?),
                };
                let options = vhost_user::ServerOptions {
                    backend: BackendChoice::Auto,
                    poll: Poll::default(),
                    grace: GRACE,
                    log: Arc::new(|event| {
                        if event.is_trouble() {
                            complain(&event.to_string());
                        }
                    }),
                };
                Self::VhostUser(vhost_user::Server::new(vec![disk], options).map_err(failed)?)
            }
            Door::Nbd => {
                let export = Export {
                    name: String::new(),
                    description: String::new(),
                    gate: volume.gate().clone(),
                    minimum_block: volume.gate().geometry().logical_block,
                    stats: ExportStats::new(false),
                };
                let exports = Exports::new(vec![export], TlsMode::Off).map_err(failed)?;
                let options = nbd::ServerOptions {
                    backend: BackendChoice::Auto,
                    poll: Poll::default(),
                    tls: None,
                    max_connections: 1,
                    max_handshakes: 1,
                    handshake_timeout: GRACE,
                    grace: GRACE,
                    log: Box::new(|event| {
                        if event.is_trouble() {
                            complain(&event.to_string());
                        }
                    }),
                };
                let listener = UnixListener::bind(place).map_err(failed)?;
                Self::Nbd(nbd::Server::new(exports, options), listener)
            }
            Door::Fuse | Door::FuseUring => Self::Fuse(Box::new(Mounted::new(front, volume, place.to_owned())?)),
        })
    }

    fn run(self, stop: &StopHandle) -> Result<(), Error> {
        match self {
            Self::VhostUser(server) => flushed(server.run(stop).map_err(failed)?),
            Self::Nbd(server, listener) => {
                let ended = server.run(&[Listener::Unix(listener)], stop);
                flushed(ended.map_err(failed)?)
            }
            Self::Fuse(mounted) => mounted.run(stop),
        }
    }
}

impl Mounted {
    fn new(front: Door, volume: &Volume, point: PathBuf) -> Result<Self, Error> {
        let place = std::fs::File::create(&point).map_err(failed)?;
        let point = std::fs::canonicalize(point).map_err(failed)?;
        let wanted = Wanted {
            point,
            place: place.as_fd(),
            over: Over::File,
            source: "disk".into(),
            read_only: false,
            allow_other: false,
        };
        let (mount, descriptors) = Mount::new(&wanted, 1).map_err(failed)?;
        Ok(Self {
            volume: volume.gate_for_any_bytes()?,
            mount,
            descriptors,
            queues: (front == Door::FuseUring).then(fuse::processors).flatten(),
        })
    }

    fn run(self, stop: &StopHandle) -> Result<(), Error> {
        let Self { volume, mut mount, descriptors, queues } = self;
        let options = fuse::Options {
            backend: BackendChoice::Auto,
            poll: Poll::default(),
            cached: false,
            queues,
            grace: GRACE,
            stats: vec![ExportStats::new(false)],
            log: Box::new(complain),
            cut_off: Box::new(mount.breaker()),
        };
        let nodes = Arc::new(Nodes::new(Over::File, &volume, "disk", "", false));
        let session = Session::start(&nodes, descriptors, options).map_err(failed)?;
        let waited = session.wait(stop);
        // Its clients have gone, and it is served until then.
        let ended = mount.end();
        flushed(session.finish())?;
        waited.map_err(failed)?;
        ended.map_err(failed)
    }
}

/// Says what went wrong in a server's thread.
fn complain(message: &str) {
    // Nobody is left to be told when this fails.
    let _ = writeln!(io::stderr(), "cryptline: {message}");
}

fn flushed(flushed: Flushed) -> Result<(), Error> {
    flushed.map_err(|(name, fault)| failed(format!("the flush of {name} failed: {fault}")))
}

fn failed(why: impl Display) -> Error {
    Error::device(format!("cannot count allocations: {why}"))
}
