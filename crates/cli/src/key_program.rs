//! Programs whose standard output is a key.
//!
//! ```text
//! start ─► input written, output read straight into key memory ─► end of output and end of program ─► its status
//!   └─ too late, or too much ─► TERM to its process group ─► at most 2 s ─► KILL
//! ```
//!
//! Its output counts only when all who could write to it are gone: what a process that it has left behind might still
//! add would be missing.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use cryptline::SecretBuf;
use cryptline::luks::time_text;
use cryptline_sys::isolate;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// How long programs have to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);
/// Begins the variables that only this program sets.
const OURS: &str = "CRYPTLINE_";
/// Those of the protocols of systemd that are for this process alone.
pub const FOR_THIS_PROCESS: [&str; 5] =
    ["NOTIFY_SOCKET", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID"];

/// A program to run.
pub struct KeyProgram<'a> {
    /// Its name, arguments and variables.
    command: Command,
    /// Bytes for its standard input.
    input: &'a [u8],
    /// Most bytes of output.
    limit: usize,
    /// Time that it may take.
    time: Duration,
    /// Our terminal is the program's, too.
    has_terminal: bool,
}

/// A program that has ended in time.
pub struct EndedProgram {
    /// Its status.
    pub status: ExitStatus,
    /// Everything that it has printed.
    pub output: SecretBuf,
}

/// Reason why a program yields nothing.
#[derive(Debug)]
pub enum Unusable {
    /// No program, or none that can be run.
    NotRun(io::Error),
    /// More output than so many bytes.
    TooMuch(usize),
    /// More time than this.
    TooLong(Duration),
    /// An end of the program alone: another process keeps its output open longer than this.
    LeftOpen(Duration),
    /// No memory for a key.
    Memory(io::Error),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRun(error) => write!(f, "cannot be run: {error}"),
            Self::TooMuch(limit) => write!(f, "prints more than {limit} bytes, and was ended"),
            Self::TooLong(time) => write!(f, "ran longer than {}, and was ended", time_text(time)),
            Self::LeftOpen(time) => {
                write!(f, "has left a process behind that kept its output open for {}, and was ended", time_text(time))
            }
            Self::Memory(error) => write!(f, "has no memory for its output: {error}"),
        }
    }
}

impl<'a> KeyProgram<'a> {
    /// `command`, which may read `input`, and print up to `limit` bytes within `time`. Its standard error stays ours.
    pub fn new(mut command: Command, input: &'a [u8], limit: usize, time: Duration) -> Self {
        for (name, _) in std::env::vars_os() {
            let is_ours = name.to_str().is_some_and(|name| name.starts_with(OURS));
            // What the caller of this has set stays.
            if is_ours && !command.get_envs().any(|(set, _)| set == name) {
                command.env_remove(name);
            }
        }
        for name in FOR_THIS_PROCESS {
            command.env_remove(name);
        }
        Self { command, input, limit, time, has_terminal: true }
    }

    /// The same in a session of its own, so that it asks nothing on our terminal.
    pub fn without_terminal(self) -> Self {
        Self { has_terminal: false, ..self }
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// Nothing of it runs on then, but for processes that have left its group.
    pub fn run(mut self) -> Result<EndedProgram, Unusable> {
        let input = if self.input.is_empty() { Stdio::null() } else { Stdio::piped() };
        isolate(self.command.stdin(input).stdout(Stdio::piped()), self.has_terminal);
        let mut child = self.command.spawn().map_err(Unusable::NotRun)?;
        let mut running = match RunningProgram::new(&mut child, self.input, self.limit) {
            Ok(running) => running,
            Err(error) => {
                let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
                return Err(error);
            }
        };
        if let Err(why) = running.finish(self.time) {
            running.end(&child);
            // What even SIGKILL does not end, such as a program that waits for a dead server, is not waited for.
            let _ = child.try_wait();
            return Err(why);
        }
        let output = SecretBuf::copy_of(&running.output[..running.len]).map_err(Unusable::Memory)?;
        Ok(EndedProgram { status: child.wait().map_err(Unusable::NotRun)?, output })
    }
}

/// A program that has been started.
struct RunningProgram<'a> {
    /// Readable once it has ended.
    process: OwnedFd,
    has_ended: bool,
    /// Gone once everything has been written.
    stdin: Option<ChildStdin>,
    input: &'a [u8],
    /// Gone once its end has been read.
    stdout: Option<ChildStdout>,
    output: SecretBuf,
    /// Bytes of it that have been read.
    len: usize,
    limit: usize,
}

impl<'a> RunningProgram<'a> {
    fn new(child: &mut Child, input: &'a [u8], limit: usize) -> Result<Self, Unusable> {
        let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty());
        let process = process.map_err(|error| Unusable::NotRun(error.into()))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        if let Some(stdin) = &stdin {
            rustix::io::ioctl_fionbio(stdin, true).map_err(|error| Unusable::NotRun(error.into()))?;
        }
        let output = SecretBuf::zeroed(4096.min(limit + 1)).map_err(Unusable::Memory)?;
        Ok(Self { process, has_ended: false, stdin, input, stdout, output, len: 0, limit })
    }

    /// Reads until the program and its output have ended.
    fn finish(&mut self, time: Duration) -> Result<(), Unusable> {
        let deadline = Instant::now() + time;
        while self.stdout.is_some() || !self.has_ended {
            if Instant::now() >= deadline {
                return Err(if self.has_ended { Unusable::LeftOpen(time) } else { Unusable::TooLong(time) });
            }
            self.step(deadline)?;
        }
        Ok(())
    }
    /// Does what can be done next, or nothing until `deadline`.
    fn step(&mut self, deadline: Instant) -> Result<(), Unusable> {
        let output = self.stdout.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN));
        let input = self.stdin.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::OUT));
        let process = (!self.has_ended).then(|| PollFd::new(&self.process, PollFlags::IN));
        let [output, input, process] = wait([output, input, process], deadline).map_err(Unusable::NotRun)?;
        self.has_ended |= process;
        if input {
            self.write();
        }
        if output {
            self.read()?;
        }
        Ok(())
    }

    fn write(&mut self) {
        let Some(pipe) = &mut self.stdin else { return };
        match pipe.write(self.input) {
            Ok(count) => self.input = &self.input[count..],
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return,
            // It wants to read no more, which is its own affair.
            Err(_) => self.input = &[],
        }
        if self.input.is_empty() {
            self.stdin = None;
        }
    }

    fn read(&mut self) -> Result<(), Unusable> {
        if self.len == self.output.len() {
            let room = (2 * self.len).min(self.limit + 1);
            let mut larger = SecretBuf::zeroed(room).map_err(Unusable::Memory)?;
            larger[..self.len].copy_from_slice(&self.output);
            self.output = larger;
        }
        let Some(pipe) = &mut self.stdout else { return Ok(()) };
        match pipe.read(&mut self.output[self.len..]) {
            Ok(0) => self.stdout = None,
            Ok(count) => self.len += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Unusable::NotRun(error)),
        }
        if self.len > self.limit { Err(Unusable::TooMuch(self.limit)) } else { Ok(()) }
    }

    /// Asks its process group to end, and ends it.
    fn end(&mut self, child: &Child) {
        // The child is waited for only afterwards, so the number is still that of its group.
        let group = Pid::from_child(child);
        let _ = kill_process_group(group, Signal::TERM);
        let deadline = Instant::now() + GRACE;
        while (self.stdout.is_some() || !self.has_ended) && Instant::now() < deadline && self.watch(deadline) {}
        let _ = kill_process_group(group, Signal::KILL);
        self.stdout = None;
        let deadline = Instant::now() + GRACE;
        while !self.has_ended && Instant::now() < deadline && self.watch(deadline) {}
    }

    /// Waits for one of the ends, and reads nothing; `false` where that is not possible.
    fn watch(&mut self, deadline: Instant) -> bool {
        let output = self.stdout.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::empty()));
        let process = (!self.has_ended).then(|| PollFd::new(&self.process, PollFlags::IN));
        let Ok([output, process]) = wait([output, process], deadline) else {
            return false;
        };
        self.has_ended |= process;
        if output {
            self.stdout = None;
        }
        true
    }
}

/// Tells which of `watched` something has happened to, at `deadline` maybe none.
fn wait<const N: usize>(watched: [Option<PollFd<'_>>; N], deadline: Instant) -> io::Result<[bool; N]> {
    let left = deadline.saturating_duration_since(Instant::now());
    // Rounded up, so that nobody comes back a moment before the deadline, again and again.
    let left = Timespec::try_from(left + Duration::from_millis(1)).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut present: Vec<_> = watched.iter().flatten().cloned().collect();
    match poll(&mut present, Some(&left)) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok([false; N]),
        Err(error) => return Err(error.into()),
    }
    let mut seen = present.iter().map(|found| !found.revents().is_empty());
    Ok(watched.map(|it| it.is_some() && seen.next() == Some(true)))
}

/// Status of an unsuccessful program, in words.
pub fn status_text(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time that nobody needs.
    const LONG: Duration = Duration::from_secs(100);

    fn run(line: &str, limit: usize, time: Duration) -> Result<EndedProgram, Unusable> {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]);
        KeyProgram::new(shell, &[], limit, time).run()
    }

    #[test]
    fn output_is_whole_whatever_its_length_and_the_status_is_told() {
        for (line, expected, code) in [
            ("printf key", "key".to_owned(), 0),
            ("true", String::new(), 0),
            ("printf key; exit 7", "key".to_owned(), 7),
            ("cat; printf key", "key".to_owned(), 0),
            ("exec >&-; sleep 0.1", String::new(), 0),
            ("(sleep 0.2; printf later) & printf key-", "key-later".to_owned(), 0),
            ("head -c 100000 /dev/zero | tr '\\0' x", "x".repeat(100_000), 0),
        ] {
            let ended = run(line, 100_000, LONG).unwrap();
            assert!(*ended.output == *expected.as_bytes(), "{line}");
            assert_eq!(ended.status.code(), Some(code), "{line}");
        }
    }

    #[test]
    fn program_that_prints_too_much_is_ended() {
        for line in ["printf 12345; sleep 1000", "cat /dev/zero", "trap '' TERM; cat /dev/zero"] {
            assert!(matches!(run(line, 4, LONG), Err(Unusable::TooMuch(4))), "{line}");
        }
    }

    #[test]
    fn all_of_a_group_that_takes_too_long_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("process").display().to_string();
        for (line, left_open) in [
            (format!("echo $$ > {file}; sleep 1000"), false),
            (format!("trap '' TERM; echo $$ > {file}; sleep 1000; sleep 1000"), false),
            (format!("sleep 1000 & echo $! > {file}"), true),
            (format!("(trap '' TERM; sleep 1000; sleep 1000) & echo $! > {file}"), true),
        ] {
            let why = run(&line, 100, Duration::from_secs(1)).err().unwrap();
            assert_eq!(matches!(why, Unusable::LeftOpen(_)), left_open, "{line}: {why}");
            assert!(left_open || matches!(why, Unusable::TooLong(_)), "{line}: {why}");
            let process = std::fs::read_to_string(&file).unwrap();
            // The kernel takes its time, and a zombie is no program any more.
            let runs = || {
                let status = std::fs::read_to_string(format!("/proc/{}/status", process.trim())).unwrap_or_default();
                !status.is_empty() && !status.contains("State:\tZ")
            };
            let patience = Instant::now() + LONG;
            while runs() {
                assert!(Instant::now() < patience, "{line}: it runs on");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    #[test]
    fn input_is_given_to_those_who_read_it_and_to_others_who_do_not() {
        let input = vec![b'x'; 300_000];
        let with = |line: &str, limit| {
            let mut shell = Command::new("sh");
            shell.args(["-c", line]);
            KeyProgram::new(shell, &input, limit, LONG).run().unwrap().output
        };
        assert!(*with("cat", 300_000) == *input);
        assert!(*with("exec <&-; printf key", 10) == *b"key");
        assert!(*with("sleep 0.1; printf key", 10) == *b"key");
    }

    #[test]
    fn program_gets_no_variable_that_is_for_this_one() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "printf '%s' \"$CRYPTLINE_TARGET\"; env | grep -c -e ^LISTEN -e ^NOTIFY"]);
        shell.env("CRYPTLINE_TARGET", "disk");
        let ended = KeyProgram::new(shell, &[], 100, LONG).run().unwrap();
        assert_eq!(*ended.output, *b"disk0\n");
    }
}
