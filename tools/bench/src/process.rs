//! One running server, and the signals that end a plan.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cryptline_sys::Unmount;
use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::error::{Error, Of as _, Result, fail};
use crate::report::TurnResults;

/// How long a server may take until clients can connect.
const READY: Duration = Duration::from_secs(20);
/// How long a server that has a mount may take to end, before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// A server process. When dropped it is ended and waited for, and what it leaves behind is removed: it holds nothing that
/// is worth keeping.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    left: KilledRemains,
    name: String,
    log: PathBuf,
}

/// Remains of a server that is killed.
#[derive(Clone, Debug)]
pub enum KilledRemains {
    /// A socket.
    Socket(PathBuf),
    /// A mount, over which nobody could open anything any more. Its server is told to end first.
    Mount(PathBuf),
}

impl KilledRemains {
    /// Where it is.
    pub fn path(&self) -> &Path {
        match self {
            Self::Socket(path) | Self::Mount(path) => path,
        }
    }
}

impl ServerProcess {
    /// Starts `command` and waits until `ready` succeeds.
    pub fn start(
        name: &str,
        command: &[OsString],
        left: KilledRemains,
        ready: impl Fn() -> Result<()>,
    ) -> Result<Self> {
        // Each has a log of its own.
        let log = left.path().with_extension("log");
        let said = File::create(&log).of(name)?;
        let [program, arguments @ ..] = command else { fail!("{name}: no command") };
        let child = Command::new(program)
            .args(arguments)
            .env("LC_ALL", "C")
            .env_remove("LISTEN_FDS")
            .env_remove("LISTEN_PID")
            .stdin(Stdio::null())
            .stdout(said.try_clone().of(name)?)
            .stderr(said)
            .spawn()
            .of(format_args!("{name}: cannot run {}", program.display()))?;
        let mut process = Self { child, left, name: name.to_owned(), log };
        process.wait_until(ready)?;
        Ok(process)
    }

    fn wait_until(&mut self, ready: impl Fn() -> Result<()>) -> Result<()> {
        let deadline = Instant::now() + READY;
        while let Err(error) = ready() {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(self.failure(format_args!("ended with {status}")));
            }
            if Instant::now() > deadline {
                return Err(self.failure(format_args!("does not get ready: {error}")));
            }
            // Not listening yet.
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// `why`, and the last line that the server said.
    fn failure(&self, why: impl Display) -> Error {
        let said = std::fs::read(&self.log).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let last = said.lines().rfind(|line| !line.trim().is_empty());
        let last = last.map_or_else(String::new, |line| format!("; it says: {}", line.trim()));
        Error(format!("{}: {why}{last}", self.name))
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Processor time of all its threads so far, in seconds, those that have ended too.
    pub fn cpu(&self) -> Option<f64> {
        let id = Pid::from_raw(i32::try_from(self.child.id()).ok()?);
        let used = clock_getcpuclockid(id).and_then(ClockId::now).ok()?;
        Some(Duration::from(used).as_secs_f64())
    }

    /// A load on it, with the processor time that it took. What fails is told with the last line that the server said.
    pub fn under<T>(&self, load: impl FnOnce() -> Result<T>) -> Result<T> {
        load().map_err(|error| self.failure(error))
    }

    /// The same for a turn, which tells how busy the server was.
    pub fn turn(&self, load: impl FnOnce() -> Result<TurnResults>) -> Result<TurnResults> {
        let (start, before) = (Instant::now(), self.cpu());
        let mut sample = self.under(load)?;
        let wall = start.elapsed().as_secs_f64().max(1e-9);
        sample.busy = self.cpu().zip(before).map(|(used, before)| (used - before) / wall);
        Ok(sample)
    }

    /// Asks it to end, and gives it some time for that.
    fn ask_to_end(&mut self) {
        let id = i32::try_from(self.child.id()).map(Pid::from_raw);
        // It fails only for a process that has ended.
        let _ = id.map(|id| kill(id, Signal::SIGTERM));
        let deadline = Instant::now() + GRACE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if let KilledRemains::Mount(_) = self.left {
            self.ask_to_end();
        }
        // It fails only for a process that has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
        match &self.left {
            KilledRemains::Socket(path) => drop(std::fs::remove_file(path)),
            // A server that has ended well has unmounted it, and then this fails.
            KilledRemains::Mount(point) => {
                let unmounted = cryptline_sys::unmount(point, Unmount::Lazy);
                if unmounted.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied) {
                    let _ = cryptline_sys::unmount_by_helper(point, true);
                }
            }
        }
    }
}

/// Flag that tells the plan to end. Servers and images go with it, so it ends by returning.
#[derive(Debug)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Watches SIGINT, SIGTERM and SIGHUP. A second one ends the program at once.
    pub fn watch() -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let second = signal_hook::flag::register_conditional_default(signal, Arc::clone(&flag));
            let first = signal_hook::flag::register(signal, Arc::clone(&flag));
            second.and(first).of("cannot handle signals")?;
        }
        Ok(Self(flag))
    }

    /// Goes on, or not.
    pub fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            fail!("stopped by a signal; nothing was kept");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_at_once_is_told_with_what_it_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let command = ["/bin/sh", "-c", "echo first; echo broken >&2; exit 3"].map(OsString::from);
        let left = KilledRemains::Socket(folder.path().join("socket"));
        let error =
            ServerProcess::start("some server", &command, left, || fail!("nobody is there")).expect_err("it ended");
        let text = error.to_string();
        assert!(text.contains("some server: ended with exit status: 3"), "{text}");
        assert!(text.ends_with("it says: broken"), "{text}");
    }

    #[test]
    fn a_dropped_server_is_gone() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("socket");
        std::fs::write(&socket, "").expect("room");
        let command = ["/bin/sleep", "1000"].map(OsString::from);
        let process =
            ServerProcess::start("sleep", &command, KilledRemains::Socket(socket.clone()), || Ok(())).expect("it runs");
        let id = process.child.id();
        drop(process);
        assert!(!Path::new(&format!("/proc/{id}")).exists());
        assert!(!socket.exists());
    }

    #[test]
    fn a_server_with_a_mount_is_asked_to_end_before_it_is_killed() {
        let folder = tempfile::tempdir().expect("a folder");
        let [ended, begun] = ["ended", "begun"].map(|name| folder.path().join(name));
        let script = format!(
            "trap 'touch {}; exit 0' TERM; touch {}; while :; do sleep 0.01; done",
            ended.display(),
            begun.display()
        );
        let command = ["/bin/sh", "-c", &script].map(OsString::from);
        let left = KilledRemains::Mount(folder.path().join("no mount"));
        let ready = || std::fs::metadata(&begun).map(drop).of("not yet");
        drop(ServerProcess::start("some server", &command, left, ready).expect("it runs"));
        assert!(ended.exists());
    }
}
