//! Calls of the allocator for each request: a server of each front, in this process, whose threads the
//! kernel counts.
//!
//! ```text
//! thread of the server ─ counter of it and what it starts ─► lanes ── client, another thread: not counted
//! ```
//!
//! For itself, a server's process would need a counting allocator, which would be part of every run.

use std::fmt::Display;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

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

use super::{Door, PATIENCE, SMALL, open, read_all};
use crate::contents::random;
use crate::error::{Error, Of as _, Result};
use crate::guest::Guest;
use crate::load::{Calls, Transport};
use crate::setting::Setting;

/// Requests before any counts, and requests that count.
const WARM_UP: u64 = 512;
const COUNTED: u32 = 4096;
const GRACE: Duration = Duration::from_secs(5);
const FAILED: &str = "cannot count allocations";

/// Calls for each request of a front, where this machine lets a program count them.
pub fn count(setting: &Setting, front: Door) -> Result<Option<f64>> {
    setting.stop.check()?;
    let place = setting.path("counted");
    let stop = StopHandle::new().of(FAILED)?;
    let (tell, told) = mpsc::channel();
    let (images, at, stopped) = (&setting.images, &place, &stop);
    let counted = thread::scope(|scope| {
        let server = scope.spawn(move || {
            let Ok(counter) = Counter::allocations_of_threads() else {
                return Ok(());
            };
            // Its helpers count as well, so they are started here.
            let volume = images.open(Version::Luks2)?;
            let served = Served::prepare(front, &volume, at).of(FAILED)?;
            // The other end waits for it.
            let _ = tell.send(counter);
            served.run(stopped).of(FAILED)
        });
        let counted = match told.recv() {
            Ok(counter) => count_requests(setting, front, &place, &counter),
            Err(_) => Ok(None),
        };
        stop.stop();
        let ended = server.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        counted.and_then(|counted| ended.map(|()| counted))
    });
    // A socket, or what was mounted over.
    let _ = std::fs::remove_file(&place);
    counted
}

fn count_requests(setting: &Setting, front: Door, place: &Path, counter: &Counter) -> Result<Option<f64>> {
    if front == Door::VhostUser {
        let late = Instant::now() + PATIENCE;
        return count_by(&mut Guest::connect(place, SMALL, setting.images.contents, late)?, counter);
    }
    count_by(&mut Calls::open(&open(front, place)?, SMALL)?, counter)
}

/// Reads, and looks at the counter before and afterwards.
fn count_by(client: &mut impl Transport, counter: &Counter) -> Result<Option<f64>> {
    let blocks = client.size() / u64::from(SMALL.block);
    let offset = |index| random(1, index) % blocks * u64::from(SMALL.block);
    read_all(client, SMALL.depth, (0..WARM_UP).map(offset), |_, _| Ok(()))?;
    // Making ready took memory: what has not seen that counts nothing.
    let Some(before) = counter.read().ok().filter(|&calls| calls > 0) else {
        return Ok(None);
    };
    let all = WARM_UP..WARM_UP + u64::from(COUNTED);
    read_all(client, SMALL.depth, all.map(offset), |_, _| Ok(()))?;
    let calls = counter.read().ok().map(|after| after - before);
    Ok(calls.map(|calls| f64::from(u32::try_from(calls).unwrap_or(u32::MAX)) / f64::from(COUNTED)))
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
    fn prepare(front: Door, volume: &Volume, place: &Path) -> Result<Self> {
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
                    front: Front::Listener(UnixListener::bind(place)?),
                };
                let options = vhost_user::ServerOptions {
                    backend: BackendChoice::Auto,
                    poll: Poll::default(),
                    grace: GRACE,
                    log: Arc::new(|event| complain(event.is_trouble(), &event)),
                };
                Self::VhostUser(vhost_user::Server::new(vec![disk], options)?)
            }
            Door::Nbd => {
                let export = Export {
                    name: String::new(),
                    description: String::new(),
                    gate: volume.gate().clone(),
                    minimum_block: volume.gate().geometry().logical_block,
                    stats: ExportStats::new(false),
                };
                let exports = Exports::new(vec![export], TlsMode::Off)?;
                let options = nbd::ServerOptions {
                    backend: BackendChoice::Auto,
                    poll: Poll::default(),
                    tls: None,
                    max_connections: 4,
                    max_handshakes: 4,
                    handshake_timeout: GRACE,
                    grace: GRACE,
                    log: Box::new(|event| complain(event.is_trouble(), &event)),
                };
                let listener = UnixListener::bind(place)?;
                Self::Nbd(nbd::Server::new(exports, options), listener)
            }
            Door::Fuse | Door::FuseUring => Self::Fuse(Box::new(Mounted::new(front, volume, place.to_owned())?)),
        })
    }

    fn run(self, stop: &StopHandle) -> Result<()> {
        match self {
            Self::VhostUser(server) => flushed(server.run(stop)?),
            Self::Nbd(server, listener) => {
                let ended = server.run(&[Listener::Unix(listener)], stop);
                flushed(ended?)
            }
            Self::Fuse(mounted) => mounted.run(stop),
        }
    }
}

impl Mounted {
    fn new(front: Door, volume: &Volume, point: PathBuf) -> Result<Self> {
        let place = std::fs::File::create(&point)?;
        let point = std::fs::canonicalize(point)?;
        let wanted = Wanted {
            point,
            place: place.as_fd(),
            over: Over::File,
            source: "disk".into(),
            read_only: false,
            allow_other: false,
        };
        let (mount, descriptors) = Mount::new(&wanted, 1)?;
        Ok(Self {
            volume: volume.gate_for_any_bytes()?,
            mount,
            descriptors,
            queues: (front == Door::FuseUring).then(fuse::processors).flatten(),
        })
    }

    fn run(self, stop: &StopHandle) -> Result<()> {
        let Self { volume, mut mount, descriptors, queues } = self;
        let options = fuse::Options {
            backend: BackendChoice::Auto,
            poll: Poll::default(),
            cached: false,
            queues,
            grace: GRACE,
            stats: vec![ExportStats::new(false)],
            log: Box::new(|said| complain(true, &said)),
            cut_off: Box::new(mount.breaker()),
        };
        let nodes = Arc::new(Nodes::new(Over::File, &volume, "disk", "", false));
        let session = Session::start(&nodes, descriptors, options)?;
        let waited = session.wait(stop);
        // Its clients have gone, and it is served until then.
        let ended = mount.end();
        flushed(session.finish())?;
        waited?;
        Ok(ended?)
    }
}

/// Says what went wrong in a server's thread.
fn complain(is_trouble: bool, said: &dyn Display) {
    if is_trouble {
        eprintln!("cryptline-bench: {said}");
    }
}

fn flushed(flushed: Flushed) -> Result<()> {
    flushed.map_err(|(name, fault)| Error(format!("the flush of {name} failed: {fault}")))
}
