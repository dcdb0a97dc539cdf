//! Running a program under a time limit, with everything it said kept for the failure message.
//!
//! Each program leads its own process group. When it is late the group is killed, so a shell's children
//! go with it. A grandchild that left the group may keep the pipes open; reading then stops shortly after
//! the program itself has ended.

use std::fmt;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// How often a waiting parent looks at its child.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How long pipes may stay open after the program has ended.
const DRAIN_MAX: Duration = Duration::from_secs(2);
/// How long a server may take to end after SIGTERM.
const STOP_MAX: Duration = Duration::from_secs(20);

/// Tells if a server listens at `path`, or did before its socket was removed. A socket has its name a moment before it
/// listens, and a connection to try it would be a client.
pub fn listens(path: &Path) -> bool {
    let table = std::fs::read("/proc/net/unix").expect("the sockets of this machine");
    String::from_utf8_lossy(&table).lines().any(|line| {
        // Num RefCount Protocol Flags Type St Inode Path
        let mut fields = line.split_whitespace().skip(3);
        let flags = fields.next();
        let name = fields.nth(3);
        flags == Some("00010000") && name.is_some_and(|name| Path::new(name) == path)
    })
}

/// A program that has ended, and what it said.
#[derive(Debug, Clone)]
pub struct Run {
    /// The command line, for messages.
    pub command: String,
    /// Exit status of the program.
    pub status: ExitStatus,
    /// Bytes written to standard output.
    pub stdout: Vec<u8>,
    /// Bytes written to standard error.
    pub stderr: Vec<u8>,
    /// How long it ran.
    pub elapsed: Duration,
}

impl Run {
    /// This run, which must have exited with 0.
    ///
    /// # Panics
    /// With everything the program said, when it did not.
    #[track_caller]
    pub fn success(self) -> Self {
        assert!(self.status.success(), "{self}");
        self
    }

    /// This run, which must have exited with `code`.
    ///
    /// # Panics
    /// With everything the program said, when it did not.
    #[track_caller]
    pub fn exited_with(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "{self}");
        self
    }

    /// Standard output as text; bytes that are not UTF-8 are replaced.
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text; bytes that are not UTF-8 are replaced.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

impl fmt::Display for Run {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ending = match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exit {code}"),
            (None, signal) => format!("signal {}", signal.unwrap_or_default()),
        };
        writeln!(out, "$ {}", self.command)?;
        writeln!(out, "({ending} after {:.1} s)", self.elapsed.as_secs_f64())?;
        writeln!(out, "-- stdout:\n{}", self.stdout_text().trim_end())?;
        write!(out, "-- stderr:\n{}", self.stderr_text().trim_end())
    }
}

/// Runs `command` with an empty standard input for at most `timeout`.
///
/// # Panics
/// When it cannot be started, and when it is late: its process group is killed first.
#[track_caller]
pub fn run(command: &mut Command, timeout: Duration) -> Run {
    run_with_input(command, timeout, &[])
}

/// Runs `command` with `input` on its standard input for at most `timeout`.
///
/// A program that closes its input early is no error.
///
/// # Panics
/// As [`run`].
#[track_caller]
pub fn run_with_input(command: &mut Command, timeout: Duration, input: &[u8]) -> Run {
    command.stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() });
    let mut background = BackgroundProgram::spawn(command);
    let feeder = background.child.stdin.take().map(|mut pipe| {
        let input = input.to_vec();
        std::thread::spawn(move || drop(pipe.write_all(&input)))
    });
    let ended = background.wait(timeout);
    if ended.is_none() {
        background.kill();
    }
    let run = background.collect();
    drop(feeder);
    assert!(ended.is_some(), "not finished after {timeout:?}, killed:\n{run}");
    run
}

/// A program that runs beside the test, such as a server. Killed with its process group when dropped.
#[derive(Debug)]
pub struct BackgroundProgram {
    command: String,
    child: Child,
    status: Option<ExitStatus>,
    started: Instant,
    stdout: OutputPipe,
    stderr: OutputPipe,
}

impl BackgroundProgram {
    /// Starts `command` as the leader of a new process group, its output kept.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    pub fn spawn(command: &mut Command) -> Self {
        let text = command_line(command);
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {text}: {error}"));
        Self {
            command: text,
            stdout: OutputPipe::keep(child.stdout.take()),
            stderr: OutputPipe::keep(child.stderr.take()),
            child,
            status: None,
            started: Instant::now(),
        }
    }

    /// The process id, which is also the id of its group.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `ready` says so.
    ///
    /// # Panics
    /// With everything the program said, when it ends first or `timeout` passes.
    #[track_caller]
    pub fn wait_until(mut self, timeout: Duration, mut ready: impl FnMut() -> bool) -> Self {
        let deadline = Instant::now() + timeout;
        while !ready() {
            let ended = self.try_wait().is_some();
            if ended || Instant::now() > deadline {
                self.kill();
                let why = if ended { "ended before it was ready" } else { "not ready in time" };
                panic!("{why} (limit {timeout:?}):\n{}", self.collect());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        self
    }

    /// Waits until a server listens at `path`.
    ///
    /// # Panics
    /// As [`BackgroundProgram::wait_until`].
    #[track_caller]
    pub fn wait_for_socket(self, path: &Path, timeout: Duration) -> Self {
        self.wait_until(timeout, || listens(path))
    }

    /// Waits until `path` exists: a pid file.
    ///
    /// # Panics
    /// As [`BackgroundProgram::wait_until`].
    #[track_caller]
    pub fn wait_for_path(self, path: &Path, timeout: Duration) -> Self {
        self.wait_until(timeout, || path.exists())
    }

    /// Returns what it has written to standard output so far.
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout.so_far()).into_owned()
    }

    /// Returns what it has written to standard error so far.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr.so_far()).into_owned()
    }

    /// Sends `signal` to the program alone, not to its group.
    pub fn signal(&self, signal: Signal) {
        if self.status.is_none() {
            let _gone = kill_process(self.pid(), signal);
        }
    }

    /// Waits for at most `timeout`; `None` when it still runs.
    pub fn wait(&mut self, timeout: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.try_wait() {
                return Some(status);
            }
            if Instant::now() > deadline {
                return None;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Sends SIGTERM, waits for a clean end and returns what was said.
    ///
    /// # Panics
    /// When it does not end; it is then killed.
    #[track_caller]
    pub fn stop(mut self) -> Run {
        self.signal(Signal::TERM);
        let ended = self.wait(STOP_MAX);
        if ended.is_none() {
            self.kill();
        }
        let run = self.collect();
        assert!(ended.is_some(), "still running {STOP_MAX:?} after SIGTERM:\n{run}");
        run
    }

    /// Kills the whole group, as a crash would.
    pub fn kill(&mut self) {
        // While the child is not reaped its id cannot be another process's.
        if self.status.is_none() {
            let _gone = kill_process_group(self.pid(), Signal::KILL);
            self.status = self.child.wait().ok();
        }
    }

    /// Ends the program if it still runs and returns what it said.
    pub fn collect(mut self) -> Run {
        self.kill();
        Run {
            command: self.command.clone(),
            status: self.status.unwrap_or_default(),
            stdout: self.stdout.finish(),
            stderr: self.stderr.finish(),
            elapsed: self.started.elapsed(),
        }
    }

    fn try_wait(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for BackgroundProgram {
    fn drop(&mut self) {
        self.kill();
    }
}

/// One output pipe, read by its own thread so that the program never blocks on it.
#[derive(Debug)]
struct OutputPipe {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl OutputPipe {
    fn keep<R: Read + Send + 'static>(pipe: Option<R>) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let reader = pipe.map(|mut pipe| {
            let bytes = Arc::clone(&bytes);
            std::thread::spawn(move || {
                let mut chunk = vec![0; 64 * 1024];
                while let Ok(length @ 1..) = pipe.read(&mut chunk) {
                    bytes.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&chunk[..length]);
                }
            })
        });
        Self { bytes, reader }
    }

    fn so_far(&self) -> Vec<u8> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn finish(&mut self) -> Vec<u8> {
        let deadline = Instant::now() + DRAIN_MAX;
        if let Some(reader) = self.reader.take() {
            while !reader.is_finished() && Instant::now() < deadline {
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        self.so_far()
    }
}

/// The command as one would type it.
fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let quoted = words.map(|word| {
        let word = word.to_string_lossy();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+@%".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word.into_owned()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_and_exit_status_are_kept() {
        let run = run(&mut shell("echo out; echo err >&2; exit 3"), Duration::from_secs(10));
        assert_eq!((run.stdout_text().as_str(), run.stderr_text().as_str()), ("out\n", "err\n"));
        let run = run.exited_with(3);
        assert!(run.to_string().contains("$ sh -c 'echo out; echo err >&2; exit 3'"), "{run}");
    }

    #[test]
    fn more_input_and_output_than_a_pipe_holds_does_not_hang() {
        let input = vec![7; 1 << 20];
        let run = run_with_input(&mut Command::new("cat"), Duration::from_secs(10), &input);
        assert!(run.success().stdout == input);
    }

    #[test]
    fn a_late_program_is_killed_with_its_children() {
        let started = Instant::now();
        let late = std::panic::catch_unwind(|| {
            run(&mut shell("echo $$; sleep 100 & sleep 100; wait"), Duration::from_millis(300))
        });
        let message = *late.expect_err("it ran on").downcast::<String>().expect("a message");
        assert!(message.contains("not finished after 300ms"), "{message}");
        assert!(started.elapsed() < Duration::from_secs(50), "a child kept the pipe open");
    }

    #[test]
    fn a_server_that_dies_early_is_reported_with_its_words() {
        let early = std::panic::catch_unwind(|| {
            BackgroundProgram::spawn(&mut shell("echo no such disk >&2; exit 4"))
                .wait_for_socket(Path::new("/nonexistent/socket"), Duration::from_secs(10))
        });
        let message = *early.expect_err("it was ready").downcast::<String>().expect("a message");
        assert!(message.contains("ended before it was ready"), "{message}");
        assert!(message.contains("no such disk") && message.contains("exit 4"), "{message}");
    }

    #[test]
    fn a_socket_with_a_name_is_no_server_until_it_listens() {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        assert!(!listens(&path));
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None);
        let socket = socket.expect("a socket");
        let address = SocketAddrUnix::new(&path).expect("an address");
        rustix::net::bind(&socket, &address).expect("a name");
        assert!(path.exists() && !listens(&path));
        rustix::net::listen(&socket, 1).expect("a server");
        assert!(listens(&path));
        drop(socket);
        assert!(path.exists() && !listens(&path));
    }

    #[test]
    fn stop_lets_a_server_end_cleanly() {
        let script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done";
        let mut server = BackgroundProgram::spawn(&mut shell(script));
        while !server.stdout_text().contains("up") {
            assert!(server.wait(Duration::from_millis(10)).is_none());
        }
        assert_eq!(server.stop().success().stdout_text(), "up\nbye\n");
    }
}
