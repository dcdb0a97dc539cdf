//! The ways as exports of one NBD server in this process, read through a Unix socket.
//!
//! ```text
//! lean client, one connection ── Unix socket ── server, one thread for it ── volume
//! ```

use std::fmt::Display;
use std::io::{self, Write};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cryptline_engine::{BackendChoice, Gate};
use cryptline_nbd::TlsMode;
use cryptline_serve::lane::Poll;
use cryptline_serve::nbd::{Export, Exports, Listener, Server, ServerOptions, StopHandle};
use cryptline_serve::stats::ExportStats;
use tempfile::TempDir;

use crate::Error;
use crate::load::Job;
use crate::nbd;
use crate::report::{Row, Sample};

/// More connections than this client ever makes at a time.
const CONNECTIONS: usize = 4;
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A running server. It ends when this is dropped.
pub struct Served {
    socket: PathBuf,
    stop: StopHandle,
    server: Option<JoinHandle<()>>,
    /// Holds the socket, and goes last.
    _folder: TempDir,
}

impl Served {
    /// Serves all ways, each under its name.
    pub fn start(rows: &[Row], gates: &[Gate]) -> Result<Self, Error> {
        let export = |(row, gate): (&Row, &Gate)| Export {
            name: row.name.clone(),
            description: String::new(),
            gate: gate.clone(),
            minimum_block: gate.geometry().logical_block,
            stats: ExportStats::new(false),
        };
        let exports = rows.iter().zip(gates).map(export).collect();
        let exports = Exports::new(exports, TlsMode::Off).map_err(failed)?;
        let folder = tempfile::tempdir().map_err(failed)?;
        let socket = folder.path().join("nbd.sock");
        let listener = UnixListener::bind(&socket).map_err(failed)?;
        let stop = StopHandle::new().map_err(failed)?;
        let options = ServerOptions {
            backend: BackendChoice::Auto,
            poll: Poll::default(),
            tls: None,
            max_connections: CONNECTIONS,
            max_handshakes: CONNECTIONS,
            handshake_timeout: HANDSHAKE,
            grace: HANDSHAKE,
            log: Box::new(|event| {
                if event.is_trouble() {
                    complain(&event.to_string());
                }
            }),
        };
        let server = Server::new(exports, options);
        let stopped = stop.clone();
        let serve = move || {
            if let Err(error) = server.run(&[Listener::Unix(listener)], &stopped) {
                complain(&format!("the NBD server ended: {error}"));
            }
        };
        let server = thread::Builder::new().name("bench-server".into()).spawn(serve);
        Ok(Self { socket, stop, server: Some(server.map_err(failed)?), _folder: folder })
    }

    /// Reads one export.
    pub fn measure(&self, export: &str, job: &Job) -> Result<Sample, Error> {
        // Over all of the time: a window of a millisecond holds few answers.
        let job = Job { latency: true, ..*job };
        nbd::Export::new(&self.socket, export).load(&job, None)
    }

    /// SHA-256 of all that an export holds.
    pub fn sha256(&self, export: &str) -> Result<String, Error> {
        nbd::Export::new(&self.socket, export).sha256()
    }
}

/// Says what went wrong in the server's thread.
fn complain(message: &str) {
    // Nobody is left to be told when this fails.
    let _ = writeln!(io::stderr(), "cryptline: {message}");
}

fn failed(why: impl Display) -> Error {
    Error::device(format!("cannot serve over NBD: {why}"))
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(server) = self.server.take() {
            // It has said what was wrong itself.
            let _ = server.join();
        }
    }
}
