//! vhost-user-blk as a front under test, with a driver of our own.

use std::any::Any;
use std::cell::Cell;
use std::collections::HashMap;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cryptline_engine::Fault;
use cryptline_serve::lane::Poll;
use cryptline_serve::stats::ExportStats;
use cryptline_serve::vhost_user::{FrontEnds, VhostDisk, VhostServerOptions};
use cryptline_sys::lock;
use cryptline_testkit::suite::{Fresh, Watchdog};
use rustix::io::Errno;
use tempfile::TempDir;

use crate::common::serving::{Log, Serving, disk, options};
use crate::common::vhost::{Asked, Driver, EVENT_IDX, FLUSH, Placed, RING_PACKED, SCRATCH};
use crate::common::wait_until;
use crate::front::client::{Ask, Client, How, Outcome, POLL, Server};

/// Clients of one server in these tests: each is a machine of its own, on a socket of its own.
const CLIENTS: usize = 6;
const UNFINISHED: &str = "requests are unfinished";

/// A driver with one queue.
pub fn driver(over: Fresh, how: How) -> Box<dyn Server> {
    serve(over, how, Poll::default(), FLUSH | EVENT_IDX)
}

/// The same on a server that looks out for requests before it waits.
pub fn polled_driver(over: Fresh, how: How) -> Box<dyn Server> {
    serve(over, how, POLL, FLUSH | EVENT_IDX)
}

/// The same with a packed ring.
pub fn packed_driver(over: Fresh, how: How) -> Box<dyn Server> {
    serve(over, how, Poll::default(), FLUSH | EVENT_IDX | RING_PACKED)
}

/// The same on a server that looks out for requests, and without event indices.
pub fn polled_packed_driver(over: Fresh, how: How) -> Box<dyn Server> {
    serve(over, how, POLL, FLUSH | RING_PACKED)
}

fn serve(over: Fresh, how: How, poll: Poll, features: u64) -> Box<dyn Server> {
    let folder = TempDir::new().expect("a folder");
    let sockets: Vec<_> = (0..CLIENTS).map(|index| folder.path().join(index.to_string())).collect();
    let stats = ExportStats::new(true);
    let disk = |path: &PathBuf| {
        let front = FrontEnds::Listener(UnixListener::bind(path).expect("bound"));
        VhostDisk { stats: Arc::clone(&stats), ..disk("disk", &over.gate, front) }
    };
    let options = VhostServerOptions { poll, ..options(how.backend, how.grace) };
    let serving = Serving::start(sockets.iter().map(disk).collect(), options);
    Box::new(Vhost {
        sockets,
        next: Cell::new(0),
        features,
        zeroes_by_itself: over.gate.geometry().write_zeroes,
        stats,
        serving,
        _folder: folder,
        _keep: over.keep,
        _watchdog: Watchdog::start(Duration::from_secs(180)),
    })
}

struct Vhost {
    sockets: Vec<PathBuf>,
    next: Cell<usize>,
    /// Features that drivers ask for.
    features: u64,
    /// A zeroing that is not written may be as long as a discard.
    zeroes_by_itself: bool,
    stats: Arc<ExportStats>,
    serving: Serving,
    _folder: TempDir,
    _keep: Vec<Box<dyn Any>>,
    _watchdog: Watchdog,
}

impl Server for Vhost {
    fn connect(&self) -> Box<dyn Client> {
        // One machine at a time on each: the next one waits until it has left.
        let index = self.next.get();
        self.next.set(index + 1);
        let stream = UnixStream::connect(&self.sockets[index % CLIENTS]).expect("it listens");
        Box::new(Machine::start(stream, self.features, &self.serving))
    }

    fn connections(&self) -> usize {
        self.stats.snapshot().connections
    }

    fn stop(&self) {
        self.serving.stop.stop();
    }

    fn is_over(&self) -> bool {
        self.serving.is_over()
    }

    fn log(&self) -> Vec<String> {
        self.serving.log()
    }

    fn is_told_of_the_end(&self) -> bool {
        true
    }

    fn has(&self, ask: &Ask) -> bool {
        let is_long = ask.range().len > 1 << 20;
        !is_long || self.zeroes_by_itself || !matches!(ask, Ask::Zero(..))
    }

    fn end(mut self: Box<Self>) -> Result<(), Fault> {
        self.serving.end().map_err(|(_, fault)| fault)
    }
}

struct Machine {
    driver: Driver,
    marks: u64,
    /// By head: the mark, what was asked, and where its bytes are.
    sent: HashMap<u16, (u64, Ask, Placed)>,
    flushes: bool,
    log: Log,
}

fn is_durable(ask: &Ask) -> bool {
    match ask {
        Ask::Write { durable, .. } | Ask::Discard { durable, .. } => *durable,
        Ask::Zero(_, how) => how.durable,
        _ => false,
    }
}

impl Machine {
    fn start(stream: UnixStream, features: u64, serving: &Serving) -> Self {
        Self {
            driver: Driver::start_with(stream, features),
            marks: 0,
            sent: HashMap::new(),
            flushes: true,
            log: Arc::clone(&serving.log),
        }
    }

    /// The protocol has no durable requests, but drivers that do not flush.
    fn choose_whether_to_flush(&mut self, asks: &[Ask]) {
        let sent = self.sent.values().map(|(_, ask, _)| ask);
        let flushes = !asks.iter().chain(sent).any(is_durable);
        if flushes != self.flushes {
            self.driver.set_flushes(flushes);
            self.flushes = flushes;
        }
    }

    fn put(&mut self, ask: &Ask) -> Placed {
        let range = ask.range();
        let sector = range.offset / 512;
        let change = |flags: u32| {
            let mut bytes = sector.to_le_bytes().to_vec();
            bytes.extend((range.len / 512).to_le_bytes());
            bytes.extend(flags.to_le_bytes());
            bytes
        };
        let (kind, payload, to_driver) = match ask {
            Ask::Read(_) | Ask::Cache(_) => (0, vec![], range.len.into()),
            Ask::Write { data, .. } => (1, data.clone(), 0),
            Ask::Flush => (4, vec![], 0),
            Ask::Discard { .. } => (11, change(0), 0),
            Ask::Zero(_, how) => (13, change(how.may_unmap.into()), 0),
        };
        let asked = Asked { kind, sector: if kind < 4 { sector } else { 0 }, to_device: &payload, to_driver };
        match ask {
            // Nobody looks at these bytes.
            Ask::Cache(_) => self.driver.put_at(&asked, SCRATCH),
            _ => self.driver.put(&asked),
        }
    }
}

impl Client for Machine {
    fn send(&mut self, asks: &[Ask]) -> Vec<u64> {
        self.choose_whether_to_flush(asks);
        let mut marks = Vec::new();
        for ask in asks {
            let placed = self.put(ask);
            marks.push(self.marks);
            let sent = (self.marks, ask.clone(), placed);
            self.sent.insert(placed.head, sent);
            self.marks += 1;
        }
        self.driver.kick();
        marks
    }

    fn answer(&mut self) -> (u64, Outcome) {
        let (head, len) = self.driver.take();
        let (mark, ask, placed) = self.sent.remove(&head).expect("it was sent");
        let outcome = match self.driver.status(head) {
            0 => Ok(match ask {
                Ask::Read(range) => {
                    assert_eq!(len, range.len + 1);
                    let mut data = vec![0; range.len as usize];
                    self.driver.machine.read(placed.data, &mut data);
                    data
                }
                _ => vec![],
            }),
            1 => Err(Errno::IO),
            2 => Err(Errno::OPNOTSUPP),
            status => panic!("status {status}"),
        };
        (mark, outcome)
    }

    fn unspeakable(&mut self, ask: &Ask) -> Option<Outcome> {
        // What no driver can say: it counts in sectors.
        let range = ask.range();
        let is_said = range.offset.is_multiple_of(512) && range.len.is_multiple_of(512);
        (!is_said).then_some(Err(Errno::IO))
    }

    fn number(&self, _error: Errno) -> Errno {
        Errno::IO
    }

    fn knows_fast_zeroing(&self) -> bool {
        false
    }

    fn wait_until_cut_off(&mut self) {
        wait_until("the server waits no longer", || lock(&self.log).iter().any(|line| line.contains(UNFINISHED)));
    }
}
