//! Process that unmounts when the server ends, however it ends. The server itself has no right to any more.
//!
//! The janitor is a companion (`again.rs`), started before the server gives up its rights.
//!
//! ```text
//! server    start ─────────► name the mount ─► (serve) ─► the socket's end
//! janitor   signals caught ─► read ─────────────────────► unmount ─► "u" ─► exit
//! ```
//!
//! Where the mount is in use, it is unmounted lazily, so a server that is killed leaves none behind. A mount is known
//! by its numbers (mount, device, and the unique one of Linux 6.8), never by its path alone: somebody else's may be
//! over it.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use crate::CliError;
use crate::again;
use crate::wait::wait_for;

/// Message when it has unmounted.
pub const UNMOUNTED: &[u8] = b"u";
/// How long a server that ends waits for it. What is mounted with a cache may have pages to write.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The process that unmounts.
pub struct Janitor(Option<UnixStream>);

impl Janitor {
    /// Starts it for the mount that is going to be at `point`.
    pub fn start(point: &Path) -> Result<Self, CliError> {
        let mut companion = again::this_program();
        companion.args(["detach", "--at-end-of-input", "--"]).arg(point);
        let started = again::start_undoing(companion);
        let started = started.map_err(|error| CliError::device(format!("cannot start another process: {error}")));
        started.map(|socket| Self(Some(socket)))
    }

    /// Names the mount that is to be undone.
    pub fn name(&mut self, identity: Option<&str>) {
        if let (Some(socket), Some(identity)) = (&mut self.0, identity) {
            // Where it has been killed, the server tries by itself.
            let _ = socket.write_all(identity.as_bytes());
        }
    }

    /// Has it unmount, and waits until it has, for some seconds. Whether it has.
    pub fn finish(mut self) -> bool {
        self.end()
    }

    fn end(&mut self) -> bool {
        let Some(socket) = self.0.take() else {
            return false;
        };
        // Failing means that it is gone.
        let _ = socket.shutdown(Shutdown::Write);
        let deadline = Instant::now() + WAIT_MAX;
        let is_heard = || wait_for(&socket, PollFlags::IN, Some(deadline)).is_ok_and(|found| !found.is_empty());
        let (mut said, mut byte) = (Vec::new(), [0]);
        // What it says ends with it.
        while is_heard() && (&socket).read(&mut byte).is_ok_and(|len| len > 0) {
            said.extend(byte);
        }
        said == UNMOUNTED
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        self.end();
    }
}
