//! The NBD server of a history, from its start to its last flushes.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use cryptline_cli::control::Volumes;
use cryptline_nbd::TlsMode;
use cryptline_serve::nbd::{Export, Exports, Listener, NbdServer, NbdServerOptions};
use cryptline_serve::stats::ExportStats;
use cryptline_serve::{Flushed, StopHandle};

use crate::control::Controlled;
use crate::history::Door;
use crate::run::{GRACE, Play};
use crate::serving::Running;
use crate::sim;

impl Play<'_> {
    /// An export, opened anew.
    pub fn export(&self, number: usize) -> Result<Export, String> {
        let stats = ExportStats::new(self.is_controlled());
        let gate = self.laid.open(number)?;
        Ok(Export { name: format!("e{number}"), description: String::new(), gate, minimum_block: 512, stats })
    }

    /// Starts the server of all exports that have this door.
    pub fn serve_nbd(&self, at: &Path) -> Result<(Controlled, Running), String> {
        let numbers = self.history.behind(Door::Nbd);
        let mut exports = numbers.iter().map(|number| self.export(*number)).collect::<Result<Vec<_>, _>>()?;
        if sim::mix(&[self.history.seed, 104]).is_multiple_of(2) {
            exports.reverse();
        }
        let volumes = Volumes::new(exports.iter().map(|export| self.volume(export)).collect());
        let exports = Exports::new(exports, TlsMode::Off).map_err(|error| error.to_string())?;
        let (world, known) = (Arc::clone(self.world), volumes.clone());
        // In place of the one of `ServerControl`, which tells this to standard error.
        exports.on_closed(move |export, flushed| {
            known.forget(&export.stats);
            let mut world = world.lock();
            world.say(format!("export {} is gone: {flushed:?}", export.name));
            let number = usize::from(export.name == "e1");
            // Whoever runs the server has been told, by this or by what `remove` says.
            world.exports[number].loss_is_told |= flushed.is_err();
        });
        let world = Arc::clone(self.world);
        let options = NbdServerOptions {
            backend: self.laid.disks.media.backend(),
            poll: self.poll(),
            tls: None,
            max_connections: self.history.clients.len() + 1,
            max_lanes: usize::MAX,
            max_handshakes: 8,
            handshake_timeout: Duration::from_secs(10),
            grace: GRACE,
            log: Box::new(move |event| world.say(|| format!("server: {event}"))),
        };
        let failed = |error: io::Error| error.to_string();
        let listener = UnixListener::bind(at).map_err(failed)?;
        let stop = StopHandle::new().map_err(failed)?;
        let server = NbdServer::new(exports, options);
        let controlled = self.control_of(Arc::clone(&server), volumes)?;
        let (running, stopped) = (server, stop.clone());
        let run = move || running.run(&[Listener::Unix(listener)], &stopped);
        let thread: JoinHandle<io::Result<Flushed>> =
            std::thread::Builder::new().name("nbd".to_owned()).spawn(run).map_err(failed)?;
        Ok((controlled, Running { thread, stop, exports: numbers }))
    }
}
