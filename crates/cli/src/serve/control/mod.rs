//! `--control SOCKET`: commands for a running server, as JSON lines.
//!
//! ```text
//! wire      the lines, for both sides
//! session   one client: lines in, lines out, descriptors with them
//! commands  what each command does
//! add       one of them: a volume that comes as an open file with its key
//! ```

mod add;
mod commands;
mod session;
pub mod wire;

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::Mode;

use super::cleanup::Cleanup;
use super::doors::{self, DoorClient, DoorRun, DoorSession};
use super::unix;
use crate::CliError;
pub use commands::{HowServed, ServerControl};
use session::{ControlSession, InputEnd, check_user, send};

/// Only this user reaches it, and it admits nobody else but root.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// A bound control socket.
pub struct ControlSocket {
    listener: UnixListener,
}

impl ControlSocket {
    /// Binds `path`, removed at exit.
    ///
    /// # Errors
    /// Exit code 5 where another program listens there.
    pub fn bind(path: &Path, cleanup: &Cleanup) -> Result<Self, CliError> {
        Ok(Self::of(unix::bind(path, PRIVATE, cleanup)?))
    }

    /// One that is bound already.
    pub fn of(listener: UnixListener) -> Self {
        Self { listener }
    }

    /// Serves clients for as long as the process lives, or until [`DoorRun::end`].
    ///
    /// # Errors
    /// Exit code 3 where no thread can be started.
    pub fn start(self, control: ServerControl) -> Result<DoorRun, CliError> {
        doors::open(self.listener, control)
    }
}

impl DoorSession for ServerControl {
    const NAME: &'static str = "control";
    const SILENT_GIVE_WAY: bool = true;

    fn serve(self: &Arc<Self>, client: &DoorClient) {
        if let InputEnd::Refused(why) = self.answer_all(client) {
            // Whether it hears that is its own affair.
            let _ = send(client, &commands::refusal(&why));
        }
    }
}

impl ServerControl {
    fn answer_all(self: &Arc<Self>, client: &DoorClient) -> InputEnd {
        let user = match check_user(client) {
            Ok(user) => user.as_raw(),
            Err(refused) => return InputEnd::Refused(refused),
        };
        let mut session = ControlSession::new(client);
        let mut sampler = self.sampler();
        loop {
            let line = match session.next_line() {
                Ok(line) => line,
                Err(end) => return end,
            };
            client.set_busy(true);
            let sent = send(client, &self.answer(line, user, &mut sampler));
            client.set_busy(false);
            if sent.is_err() {
                return InputEnd::Gone;
            }
        }
    }
}
