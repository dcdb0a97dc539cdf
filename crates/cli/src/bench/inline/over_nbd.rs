//! The ways as exports of one NBD server in this process, read through a Unix socket.
//!
//! ```text
//! lean client, one connection ── Unix socket ── server, one thread for it ── volume
//! ```

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cryptline_engine::BackendChoice;
use cryptline_nbd::TlsMode;
use cryptline_serve::nbd::stats::ExportStats;
use cryptline_serve::nbd::{Export, Exports, Listener, Server, ServerOptions, StopHandle};
use tempfile::TempDir;

use super::{Subject, contents, shape};
use crate::CliError;
use crate::bench::nbd;

/// More connections than this client ever makes at a time.
const CONNECTIONS: usize = 4;
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A running server; it ends when this is dropped.
pub struct Served {
    socket: PathBuf,
    stop: StopHandle,
    server: Option<JoinHandle<()>>,
    /// Holds the socket, and goes last.
    _folder: TempDir,
}

impl Served {
    /// Serves all ways, each under its name.
    ///
    /// # Errors
    /// Exit code 4 when there is no place for a socket.
    pub fn start(subjects: &[Subject]) -> Result<Self, CliError> {
        let failed =
            |why: &dyn std::fmt::Display| CliError::device(format!("cannot serve over NBD: {why}"));
        let export = |subject: &Subject| Export {
            name: subject.name.clone(),
            description: String::new(),
            gate: subject.gate.clone(),
            minimum_block: subject.gate.geometry().logical_block,
            stats: ExportStats::new(false),
        };
        let exports = Exports::new(subjects.iter().map(export).collect(), TlsMode::Off);
        let exports = exports.map_err(|error| failed(&error))?;
        let folder = tempfile::tempdir().map_err(|error| failed(&error))?;
        let socket = folder.path().join("nbd.sock");
        let listener = UnixListener::bind(&socket).map_err(|error| failed(&error))?;
        let stop = StopHandle::new().map_err(|error| failed(&error))?;
        let options = ServerOptions {
            backend: BackendChoice::Auto,
            tls: None,
            max_connections: CONNECTIONS,
            max_handshakes: CONNECTIONS,
            handshake_timeout: HANDSHAKE,
            grace: HANDSHAKE,
            log: Box::new(crate::output::complain),
        };
        let server = Server::new(exports, options);
        let stopped = stop.clone();
        let server = thread::Builder::new()
            .name("bench-server".into())
            .spawn(move || {
                if let Err(error) = server.run(&[Listener::Unix(listener)], &stopped) {
                    crate::output::complain(&format!("the NBD server ended: {error}"));
                }
            });
        Ok(Self {
            socket,
            stop,
            server: Some(server.map_err(|error| failed(&error))?),
            _folder: folder,
        })
    }

    /// Bytes in a second that a way is read with.
    ///
    /// # Errors
    /// Exit code 4 when the server fails.
    pub fn measure(
        &self,
        subject: &Subject,
        warm_up: Duration,
        time: Duration,
    ) -> Result<f64, CliError> {
        let job = nbd::Job {
            socket: &self.socket,
            export: &subject.name,
            shape: shape(),
            warm_up,
            duration: time,
            cpu: None,
            seed: 0,
            expect: None,
            patience: nbd::PATIENCE,
        };
        nbd::run(&job).map(|measured| measured.bytes_per_second())
    }

    /// SHA-256 of all that a way reads.
    ///
    /// # Errors
    /// Exit code 4 when the server fails.
    pub fn sha256(&self, subject: &Subject) -> Result<String, CliError> {
        nbd::sha256(&self.socket, &subject.name).map(|sum| contents::hex(&sum))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(server) = self.server.take() {
            // It told what was wrong itself.
            let _ = server.join();
        }
    }
}
