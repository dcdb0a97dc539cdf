//! A vhost-user server in this process.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use cryptline_engine::{BackendChoice, Gate};
use cryptline_serve::lane::Poll;
use cryptline_serve::stats::ExportStats;
use cryptline_serve::vhost_user::{FrontEnds, VhostDisk, VhostServer, VhostServerOptions};
use cryptline_serve::{Flushed, StopHandle};
use cryptline_sys::lock;

/// A disk of one queue that is called as its serial number is.
pub fn disk(name: &str, gate: &Gate, front: FrontEnds) -> VhostDisk {
    VhostDisk {
        name: name.to_owned(),
        gate: gate.clone(),
        block: 512,
        serial: name.to_owned(),
        queues: 1,
        queue_size: None,
        stats: ExportStats::new(true),
        front,
    }
}

pub fn options(backend: BackendChoice, grace: Duration) -> VhostServerOptions {
    VhostServerOptions { backend, poll: Poll::default(), grace, log: Arc::new(|event| eprintln!("{event}")) }
}

pub type Log = Arc<Mutex<Vec<String>>>;

/// A server that runs until it ends; where it is dropped, the last flush must succeed.
pub struct Serving {
    pub stop: StopHandle,
    /// Messages about trouble.
    pub log: Log,
    thread: Option<JoinHandle<Flushed>>,
}

impl Serving {
    pub fn start(disks: Vec<VhostDisk>, mut options: VhostServerOptions) -> Self {
        let log = Log::default();
        let lines = Arc::clone(&log);
        options.log = Arc::new(move |event| {
            if event.is_trouble() {
                lock(&lines).push(event.to_string());
            }
        });
        let server = VhostServer::new(disks, options).expect("a server");
        let stop = StopHandle::new().expect("an eventfd");
        let pulled = stop.clone();
        let thread = std::thread::spawn(move || server.run(&pulled).expect("it could listen"));
        Self { stop, log, thread: Some(thread) }
    }

    pub fn log(&self) -> Vec<String> {
        lock(&self.log).clone()
    }

    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops it; how the last flush went.
    pub fn end(&mut self) -> Flushed {
        self.stop.stop();
        self.thread.take().map_or(Ok(()), |thread| thread.join().expect("no panic"))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.end(), Ok(()));
        }
    }
}
