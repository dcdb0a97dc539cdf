//! Process that unmounts when the server ends, however it ends. The server itself has no right to any more.
//!
//! The janitor is this program again, started before the server gives up its rights. Its standard input is a pipe whose
//! other end only the server has; on its standard output it says how far it is.
//!
//! ```text
//! server    start ─────────────► name the mount ─► (serve) ─► the pipe's end
//! janitor   signals caught ─► "r" ─► read ──────────────────► unmount ─► "u" ─► exit
//! ```
//!
//! Where the mount is in use, it is unmounted lazily, so a server that is killed leaves none behind. A mount is known
//! by its numbers (mount, device, and the unique one of Linux 6.8), never by its path alone: somebody else's may be
//! over it.

use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::CliError;

/// Message when no signal to the whole group ends it any more.
const READY: u8 = b'r';
/// Message when it has unmounted.
const UNMOUNTED: u8 = b'u';
/// How long a server that ends waits for it. What is mounted with a cache may have pages to write.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The process that unmounts.
pub struct Janitor {
    process: Option<Child>,
}

impl Janitor {
    /// Starts it for the mount that is going to be at `point`.
    pub fn start(point: &Path) -> Result<Self, CliError> {
        let failed = |error| CliError::device(format!("cannot start another process: {error}"));
        // This program, even if its file has been replaced meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("cryptline").args(["detach", "--at-end-of-input", "--"]).arg(point);
        command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().map_err(failed)?;
        let mut said = [0];
        let heard = process.stdout.as_mut().map(|it| it.read_exact(&mut said));
        let janitor = Self { process: Some(process) };
        heard.unwrap_or(Ok(())).map_err(failed)?;
        Ok(janitor)
    }

    /// Names the mount that is to be undone.
    pub fn name(&mut self, identity: Option<&str>) {
        let input = self.process.as_mut().and_then(|it| it.stdin.as_mut());
        if let (Some(input), Some(identity)) = (input, identity) {
            // Where it has been killed, the server tries by itself.
            let _ = input.write_all(identity.as_bytes());
        }
    }

    /// Has it unmount, and waits until it has, for some seconds. Whether it has.
    pub fn finish(mut self) -> bool {
        self.end()
    }

    fn end(&mut self) -> bool {
        let Some(mut process) = self.process.take() else {
            return false;
        };
        drop(process.stdin.take());
        let mut said = Vec::new();
        if let Some(mut output) = process.stdout.take() {
            let deadline = Instant::now() + WAIT_MAX;
            let mut byte = [0];
            // Its output ends with it.
            while is_readable(&output, deadline) && output.read(&mut byte).is_ok_and(|len| len > 0) {
                said.extend(byte);
            }
        }
        let _ = process.try_wait();
        said.contains(&UNMOUNTED)
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        self.end();
    }
}

/// Waits for something to read, or the end; `false` where the time is over.
fn is_readable(output: &std::process::ChildStdout, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut watched = [PollFd::new(output, PollFlags::IN)];
        match rustix::event::poll(&mut watched, Timespec::try_from(left).ok().as_ref()) {
            Ok(ready) => return ready > 0,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// In that process: what the server has named, once it is gone. A signal to the whole group is not meant for us.
pub fn input_to_its_end() -> String {
    let _ = rustix::process::setsid();
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        // A service manager sends them to all processes of a service. By a handler, which the helper that
        // unmounts does not inherit.
        let _ = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
    }
    say(READY);
    let mut identity = String::new();
    // A few numbers, and no more.
    let mut input = io::stdin().lock().take(200);
    match input.read_to_string(&mut identity) {
        Ok(_) => identity,
        Err(_) => String::new(),
    }
}

/// In that process: it has unmounted.
pub fn say_unmounted() {
    say(UNMOUNTED);
}

fn say(what: u8) {
    // Where the server is gone, nobody needs to know.
    let mut output = io::stdout();
    let _ = output.write_all(&[what]).and_then(|()| output.flush());
}
