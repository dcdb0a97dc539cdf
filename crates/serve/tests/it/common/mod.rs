//! A server in this process over a stack of the test's choice, and what goes against it.
//!
//! ```text
//! let served = Setup::new(stack::crypt_over_ram(8 << 20)).start();
//! Raw::connect(&served)...          our own client, byte by byte
//! peer.run([served.uri()])          somebody else's
//! drop(served);                     no thread left, the last flush succeeded
//! ```

#![allow(dead_code, reason = "each test program uses its own part")]

pub mod fuse;
pub mod raw;
pub mod serving;
pub mod stack;
pub mod turnstile;
pub mod vhost;

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cryptline_engine::{BackendChoice, Fault, Gate};
use cryptline_nbd::TlsMode;
use cryptline_serve::lane::Poll;
use cryptline_serve::nbd::{
    AllowedClients, CurrentTls, Export, Exports, Listener, NbdServer, NbdServerOptions, StopHandle,
};
use cryptline_serve::stats::{ExportStats, Snapshot};
use cryptline_sys::lock;
use cryptline_testkit::suite::{Fresh, Watchdog};
use tempfile::TempDir;

/// io_uring where the kernel lets us, and system calls.
pub const BACKENDS: [BackendChoice; 2] = [BackendChoice::Auto, BackendChoice::Syscalls];

/// How long a server may be late, on a machine that has other work.
const LATE_MAX: Duration = Duration::from_secs(60);

/// Description of what to serve, and how.
pub struct Setup {
    exports: Vec<(String, String, Fresh)>,
    minimum_block: Option<u32>,
    tls: TlsMode,
    options: NbdServerOptions,
    log: Arc<Mutex<Vec<String>>>,
}

impl Setup {
    /// One export without a name.
    pub fn new(stack: Fresh) -> Self {
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let lines = Arc::clone(&log);
        Self {
            exports: vec![(String::new(), String::new(), stack)],
            minimum_block: None,
            tls: TlsMode::Off,
            options: NbdServerOptions {
                backend: BackendChoice::Auto,
                poll: Poll::default(),
                tls: None,
                max_connections: 100,
                max_lanes: usize::MAX,
                max_handshakes: 50,
                handshake_timeout: Duration::from_secs(20),
                grace: Duration::from_millis(500),
                log: Box::new(move |event| {
                    if event.is_trouble() {
                        lock(&lines).push(event.to_string());
                    }
                }),
            },
            log,
        }
    }

    /// One more export.
    pub fn export(mut self, name: &str, description: &str, stack: Fresh) -> Self {
        let (name, description) = (name.to_owned(), description.to_owned());
        self.exports.push((name, description, stack));
        self
    }

    /// The block that clients are told who ask.
    pub fn minimum_block(mut self, bytes: u32) -> Self {
        self.minimum_block = Some(bytes);
        self
    }

    /// How connections do their I/O.
    pub fn backend(mut self, backend: BackendChoice) -> Self {
        self.options.backend = backend;
        self
    }

    /// Offers TLS with the certificates in `folder`.
    pub fn tls(mut self, mode: TlsMode, folder: &Path) -> Self {
        self.tls = mode;
        let config = cryptline_serve::nbd::server_config(folder, &AllowedClients::Anybody);
        self.options.tls = Some(CurrentTls::new(config.expect("certificates")));
        self
    }

    /// Changes any other option.
    pub fn with(mut self, change: impl FnOnce(&mut NbdServerOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Starts to serve.
    pub fn start(self) -> Served {
        let watchdog = Watchdog::start(Duration::from_secs(180));
        let folder = TempDir::new().expect("a temporary folder");
        let socket = folder.path().join("nbd.sock");
        let listener = vec![Listener::Unix(UnixListener::bind(&socket).expect("bound"))];
        let mut keep = Vec::new();
        let mut gates = Vec::new();
        let mut stats = Vec::new();
        let minimum = self.minimum_block;
        let exports = self.exports.into_iter().map(|(name, description, stack)| {
            keep.push(stack.keep);
            gates.push(stack.gate.clone());
            stats.push(ExportStats::new(true));
            Export {
                name,
                description,
                minimum_block: minimum.unwrap_or(stack.gate.geometry().logical_block),
                gate: stack.gate,
                stats: Arc::clone(&stats[stats.len() - 1]),
            }
        });
        let exports = Exports::new(exports.collect(), self.tls).expect("an offer");
        let grace = self.options.grace;
        let server = NbdServer::new(exports, self.options);
        let stop = StopHandle::new().expect("an eventfd");
        let pulled = stop.clone();
        let thread = std::thread::Builder::new()
            .name("server".to_owned())
            .spawn(move || server.run(&listener, &pulled).expect("it could listen"))
            .expect("a thread");
        Served { socket, folder, stop, thread: Some(thread), grace, gates, stats, keep, log: self.log, watchdog }
    }
}

/// How the last flush went.
pub type Ended = Result<(), (String, Fault)>;

/// A server that runs until it is stopped or dropped.
pub struct Served {
    socket: PathBuf,
    folder: TempDir,
    stop: StopHandle,
    thread: Option<JoinHandle<Ended>>,
    grace: Duration,
    /// The exports' volumes, in order.
    pub gates: Vec<Gate>,
    stats: Vec<Arc<ExportStats>>,
    keep: Vec<Vec<Box<dyn std::any::Any>>>,
    log: Arc<Mutex<Vec<String>>>,
    watchdog: Watchdog,
}

impl Served {
    /// The socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// A folder for the test's own files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The default export's URI.
    pub fn uri(&self) -> String {
        self.uri_of("")
    }

    /// An export's URI.
    pub fn uri_of(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket.display())
    }

    /// A bare connection: nothing sent, nothing read. No read or write on it takes for ever.
    pub fn dial(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.socket).expect("the server listens");
        let limit = Some(Duration::from_secs(60));
        stream.set_read_timeout(limit).expect("a timeout");
        stream.set_write_timeout(limit).expect("a timeout");
        stream
    }

    /// Clients in transmission.
    pub fn connections(&self) -> usize {
        let counts = self.stats.iter().map(|stats| stats.snapshot().connections);
        counts.sum()
    }

    /// The default export's counters.
    pub fn snapshot(&self) -> Snapshot {
        self.stats[0].snapshot()
    }

    /// The lines the server has logged.
    pub fn log(&self) -> Vec<String> {
        lock(&self.log).clone()
    }

    /// Tells the server to stop.
    pub fn stop(&self) {
        self.stop.stop();
    }

    /// Tells if the server has stopped, with every connection's thread and the last flush.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops the server, which must end in time and with every connection's thread.
    pub fn end(mut self) -> Ended {
        self.join()
    }

    fn join(&mut self) -> Ended {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let started = Instant::now();
        self.stop.stop();
        let ended = thread.join().expect("the server does not panic");
        assert!(started.elapsed() < self.grace + LATE_MAX, "{:?}", started.elapsed());
        ended
    }
}

/// The last flush must succeed.
impl Drop for Served {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.join(), Ok(()));
        }
    }
}

/// Bytes of this process in memory.
pub fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.expect("a number") * 1024
}

/// Waits until `ready`, or fails.
pub fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let deadline = Instant::now() + LATE_MAX;
    while !ready() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// `len` bytes that belong to `offset` and `seed`.
pub fn pattern(offset: u64, len: usize, seed: u64) -> Vec<u8> {
    let mut data = vec![0; len];
    cryptline_testkit::suite::fill(&mut data, offset, seed);
    data
}
