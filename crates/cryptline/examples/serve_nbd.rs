//! Serves a volume over NBD on a Unix socket until the process is ended: `serve_nbd TARGET PASSPHRASE SOCKET`.
//! Then, in another terminal: `nbdinfo nbd+unix:///?socket=SOCKET`.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use cryptline::Open;
use cryptline::engine::BackendChoice;
use cryptline_nbd::TlsMode;
use cryptline_serve::lane::Poll;
use cryptline_serve::nbd::{Export, Exports, Listener, NbdServer, NbdServerOptions, StopHandle};
use cryptline_serve::stats::ExportStats;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let mut word = || words.next().ok_or("TARGET PASSPHRASE SOCKET");
    let (target, phrase, socket) = (word()?, word()?, word()?);
    let volume = Open::new(target).passphrase(&phrase).open()?;
    let export = Export {
        name: String::new(),
        description: String::new(),
        gate: volume.gate_for_any_client()?,
        minimum_block: volume.info().logical_block,
        stats: ExportStats::new(false),
    };
    let exports = Exports::new(vec![export], TlsMode::Off)?;
    let options = NbdServerOptions {
        backend: BackendChoice::Auto,
        poll: Poll::default(),
        tls: None,
        max_connections: 16,
        max_lanes: usize::MAX,
        max_handshakes: 16,
        handshake_timeout: Duration::from_secs(10),
        grace: Duration::from_secs(5),
        log: Box::new(|line| eprintln!("{line}")),
    };
    let listeners = [Listener::Unix(UnixListener::bind(&socket)?)];
    // Another thread that pulls the handle ends the server, and the last flush tells whether all is safe.
    let stop = StopHandle::new()?;
    let served = NbdServer::new(exports, options).run(&listeners, &stop)?;
    served.map_err(|(_, fault)| fault.into())
}
