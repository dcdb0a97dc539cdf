//! The control socket of a history's NBD server: the shipped one.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;

use cryptline_cli::args::DispatchArgs;
use cryptline_cli::control::{ControlRun, ControlSocket, HowServed, ServedVolume, ServerControl, Volumes};
use cryptline_nbd::uri::NbdUri;
use cryptline_serve::nbd::{Export, NbdServer};

use crate::run::Play;

/// Name of the socket.
const SOCKET: &str = "control";

/// A server that takes orders.
pub struct Controlled {
    pub server: Arc<NbdServer>,
    pub volumes: Volumes,
    run: Option<ControlRun>,
}

impl Controlled {
    /// Takes its control socket, for who ends that.
    pub fn take(&mut self) -> Option<ControlRun> {
        self.run.take()
    }

    /// Ends its control socket, as the end of the process would.
    pub fn end(&mut self) {
        self.take().into_iter().for_each(ControlRun::end);
    }
}

impl Play<'_> {
    /// Tells if somebody gives orders, and what clients do is counted for them.
    pub fn is_controlled(&self) -> bool {
        !self.history.orders.is_empty() || !self.history.controllers.is_empty()
    }

    /// Path at which a server is controlled.
    pub fn control_socket(&self) -> PathBuf {
        self.laid.disks.path(SOCKET)
    }

    /// An export as those who control the server see it.
    pub fn volume(&self, export: &Export) -> ServedVolume {
        ServedVolume {
            name: export.name.clone(),
            gate: export.gate.clone(),
            info: self.laid.disks.info.clone(),
            stats: Arc::clone(&export.stats),
        }
    }

    /// Lets a server be controlled, where somebody wants that.
    pub fn control_of(&self, server: Arc<NbdServer>, volumes: Volumes) -> Result<Controlled, String> {
        let mut run = None;
        if self.is_controlled() {
            let listener = UnixListener::bind(self.laid.disks.socket(SOCKET)).map_err(|error| error.to_string())?;
            let place: NbdUri = "nbd+unix:///?socket=server".parse().expect("a URI");
            let how = HowServed { places: vec![place], dispatch: DispatchArgs::default(), certificates: None };
            let control = ServerControl::new(&server, &volumes, self.poll(), how);
            run = Some(ControlSocket::of(listener).start(control).map_err(|error| error.to_string())?);
        }
        Ok(Controlled { server, volumes, run })
    }
}
