//! Calls of the allocator for each request: a server of each front, in this process, whose threads the
//! kernel counts.
//!
//! ```text
//! thread of the server ─ counter of it and what it starts ─► lanes ── client, another thread: not counted
//! ```
//!
//! For itself, a server's process would need a counting allocator, which would be part of every run.

use std::fmt::Display;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use cryptline::Volume;
use cryptline::luks::format::LuksVersion;
use cryptline_engine::BackendChoice;
use cryptline_nbd::TlsMode;
use cryptline_serve::fuse::{self, FuseSession, Mount, MountWanted, MountedOver, Nodes};
use cryptline_serve::lane::Poll;
use cryptline_serve::nbd::{self, Export, Exports, Listener};
use cryptline_serve::stats::ExportStats;
use cryptline_serve::vhost_user::{self, FrontEnds, VhostDisk};
use cryptline_serve::{Flushed, StopHandle};
use cryptline_sys::Counter;

use super::SMALL;
use crate::contents::random;
use crate::error::{Error, Of as _, Result};
use crate::guest::Guest;
use crate::load::{ChannelCalls, LoadTransport, each};
use crate::servers::{Door, PATIENCE, open};
use crate::setting::Setting;

/// Requests before any counts, and requests of one count.
const WARM_UP: u64 = 512;
const COUNTED: u32 = 4096;
/// Counts of one server, of which the least stands.
const COUNTS: u64 = 4;
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
            let volume = images.open(LuksVersion::Luks2)?;
            let served = prepare(front, &volume, at).of(FAILED)?;
            // The other end waits for it.
            let _ = tell.send(counter);
            served(stopped).of(FAILED)
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
    count_by(&mut ChannelCalls::open(&open(&front.target(place, ""))?, SMALL)?, counter)
}

/// Reads, and looks at the counter before and afterwards.
///
/// A table grows when more requests are under way than ever before, which a busy machine may put off for long. What each
/// request or one of many takes is in every count; growth is in few of them.
fn count_by(client: &mut impl LoadTransport, counter: &Counter) -> Result<Option<f64>> {
    let blocks = client.size() / u64::from(SMALL.block);
    let offset = |index| random(1, index) % blocks * u64::from(SMALL.block);
    each(client, SMALL.depth, (0..WARM_UP).map(offset), |_, _| Ok(()))?;
    // Making ready took memory: what has not seen that counts nothing.
    let Some(mut before) = counter.read().ok().filter(|&calls| calls > 0) else {
        return Ok(None);
    };
    let mut least = u64::MAX;
    for count in 0..COUNTS {
        let first = WARM_UP + count * u64::from(COUNTED);
        each(client, SMALL.depth, (first..first + u64::from(COUNTED)).map(offset), |_, _| Ok(()))?;
        let Ok(after) = counter.read() else { return Ok(None) };
        least = least.min(after - before);
        before = after;
        if least == 0 {
            break;
        }
    }
    Ok(Some(f64::from(u32::try_from(least).unwrap_or(u32::MAX)) / f64::from(COUNTED)))
}

/// A server that is about to run. Clients can connect already, or soon.
type ReadyServer = Box<dyn FnOnce(&StopHandle) -> Result<()>>;

fn prepare(front: Door, volume: &Volume, place: &Path) -> Result<ReadyServer> {
    let (backend, poll, stats) = (BackendChoice::Auto, Poll::default(), ExportStats::new(false));
    let (name, gate) = ("disk".to_owned(), volume.gate().clone());
    match front {
        Door::VhostUser => {
            let front = FrontEnds::Listener(UnixListener::bind(place)?);
            let serial = String::new();
            let disk = VhostDisk { name, gate, block: 512, serial, queues: 1, queue_size: None, stats, front };
            let log = Arc::new(|event: &vhost_user::VhostEvent| complain(event.is_trouble(), event));
            let server = vhost_user::VhostServer::new(
                vec![disk],
                vhost_user::VhostServerOptions { backend, poll, grace: GRACE, log },
            )?;
            Ok(Box::new(move |stop| flushed(server.run(stop)?)))
        }
        Door::Nbd => {
            let minimum_block = gate.geometry().logical_block;
            let export = Export { name: String::new(), description: String::new(), gate, minimum_block, stats };
            let exports = Exports::new(vec![export], TlsMode::Off)?;
            let options = nbd::NbdServerOptions {
                backend,
                poll,
                tls: None,
                max_connections: 4,
                max_lanes: usize::MAX,
                max_handshakes: 4,
                handshake_timeout: GRACE,
                grace: GRACE,
                log: Box::new(|event| complain(event.is_trouble(), &event)),
            };
            let listener = [Listener::Unix(UnixListener::bind(place)?)];
            let server = nbd::NbdServer::new(exports, options);
            Ok(Box::new(move |stop| flushed(server.run(&listener, stop)?)))
        }
        Door::Fuse | Door::FuseUring => {
            let file = std::fs::File::create(place)?;
            let point = std::fs::canonicalize(place)?;
            let (place, over, source) = (file.as_fd(), MountedOver::File, name);
            let wanted = MountWanted { point, place, over, source, read_only: false, allow_other: false };
            let (mut mount, descriptors) = Mount::new(&wanted, 1)?;
            let gate = volume.gate_for_any_bytes()?;
            let options = fuse::FuseOptions {
                backend,
                poll,
                cached: false,
                queues: (front == Door::FuseUring).then(fuse::processors).flatten(),
                grace: GRACE,
                stats: vec![stats],
                log: Box::new(|said| complain(true, &said)),
                cut_off: Box::new(mount.breaker()),
            };
            Ok(Box::new(move |stop| {
                let nodes = Arc::new(Nodes::new(MountedOver::File, &gate, "disk", "", false));
                let session = FuseSession::start(&nodes, descriptors, options)?;
                let waited = session.wait(stop);
                // Its clients have gone, and it is served until then.
                let ended = mount.end();
                flushed(session.finish())?;
                waited?;
                Ok(ended?)
            }))
        }
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
