//! A server in the background: this program again, which says when clients can connect.
//!
//! ```text
//! here    start it ─► pass on what it prints ─► its word, or its end ─► exit
//! there   open, ask for the passphrase, bind or mount ─► leave the terminal ─► banner ─► the word ─► serve
//! ```

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, FdFlags};
use rustix::pipe::PipeFlags;

use clap::Args;
use cryptline_serve::StopHandle;

use super::options::FrontArgs;
use crate::CliError;
use crate::args::{TableArgument, verb_first};

/// Set where a server's report is passed on to a terminal.
const ON_A_TERMINAL: &str = "CRYPTLINE_ON_A_TERMINAL";

/// Tells if a person reads what is reported, rather than a program or a log.
pub fn is_read_by_a_person() -> bool {
    io::stdout().is_terminal() || std::env::var_os(ON_A_TERMINAL).is_some()
}

/// `--background`.
#[derive(Args, Debug)]
#[command(next_help_heading = "Server options")]
pub struct BackgroundArgs {
    /// Return once clients can connect; the server goes on in the background, where nobody hears of a last flush that fails:
    /// flush before you stop it (from a client, or with `cryptline ctl SOCKET flush`)
    #[arg(long, visible_alias = "fork")]
    pub background: bool,

    /// Descriptor that is told when clients can connect.
    #[arg(long, hide = true, value_name = "FD")]
    pub ready_fd: Option<u32>,
}

impl BackgroundArgs {
    /// Tells if this process only starts the server.
    pub fn starts_another(&self) -> bool {
        self.background && self.ready_fd.is_none()
    }

    /// Refuses what a server in the background cannot have.
    ///
    /// # Errors
    /// Exit code 1.
    pub fn check(&self, front: &FrontArgs, command: Option<&String>) -> Result<(), CliError> {
        if command.is_some() {
            return Err(CliError::parameters(
                "--background and --run contradict each other: the server ends with the command",
            ));
        }
        if front.process.exit_with_parent {
            return Err(CliError::parameters(
                "--exit-with-parent: a server in the background outlives its parent; leave out --background",
            ));
        }
        let process = std::process::id().to_string();
        if std::env::var("LISTEN_PID").is_ok_and(|pid| pid == process) {
            return Err(CliError::parameters(
                "--background: sockets that a service manager passes (LISTEN_FDS) belong to a server in the foreground; leave out --background",
            ));
        }
        front.volume.table.as_ref().map_or(Ok(()), TableArgument::check_for_background)
    }
}

/// Whoever started us and waits for the mount, or the socket.
pub struct Starter(Option<File>);

impl Starter {
    /// The one that waits at descriptor `number`, if any.
    pub fn find(number: Option<u32>) -> Result<Self, CliError> {
        let passed = number.map(cryptline_sys::take_passed_fd).transpose();
        let passed = passed.map_err(|error| CliError::parameters(error.to_string()))?;
        Ok(Self(passed.map(File::from)))
    }

    /// Leaves its terminal, where nothing more is asked, its standard input and its folder, which may be on a
    /// disk that is to be unmounted.
    pub fn leave(&self) -> Result<(), CliError> {
        if self.0.is_none() {
            return Ok(());
        }
        let failed = |error| CliError::device(format!("cannot leave the terminal: {error}"));
        rustix::process::setsid().map_err(|error| failed(error.into()))?;
        let nothing = File::open("/dev/null").map_err(failed)?;
        rustix::stdio::dup2_stdin(nothing).map_err(|error| failed(error.into()))?;
        rustix::process::chdir("/").map_err(|error| failed(error.into()))
    }

    /// Says that clients can connect. Where nobody is left to hear it, the server is not wanted any more.
    pub fn tell(self, stop: &StopHandle) {
        if let Some(mut pipe) = self.0
            && pipe.write_all(b"1").is_err()
        {
            stop.stop();
        }
    }
}

/// Starts the server and waits until it is ready, or has failed; the exit code is then its own.
pub fn run() -> Result<ExitCode, CliError> {
    let failed = |error: io::Error| CliError::device(format!("cannot start the server: {error}"));
    let (ready, theirs) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    rustix::io::fcntl_setfd(&theirs, FdFlags::empty()).map_err(|error| failed(error.into()))?;
    let mut arguments = verb_first(std::env::args_os().collect()).into_iter();
    let program = arguments.next();
    // This program, even if its file has been replaced meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command.arg0(program.unwrap_or_else(|| "cryptline".into()));
    // Options may stand anywhere behind the verb.
    command.args(arguments.next());
    if io::stdout().is_terminal() {
        command.env(ON_A_TERMINAL, "1");
    }
    command.args(["--ready-fd", &theirs.as_raw_fd().to_string()]);
    command.args(arguments);
    let mut server = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    drop(theirs);
    let outputs = (server.stdout.take(), server.stderr.take());
    let (Some(output), Some(errors)) = outputs else {
        return Err(failed(io::ErrorKind::BrokenPipe.into()));
    };
    let is_ready = pass_on(ready, output.into(), errors.into()).map_err(failed)?;
    if is_ready {
        return Ok(ExitCode::SUCCESS);
    }
    let status = server.wait().map_err(failed)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

/// Passes on what the server prints until it is ready (`true`) or has ended.
fn pass_on(ready: OwnedFd, output: OwnedFd, errors: OwnedFd) -> io::Result<bool> {
    let (mut output, mut errors) = (Some(File::from(output)), Some(File::from(errors)));
    let mut ready = Some(File::from(ready));
    loop {
        let is_ready = ready.as_ref().map_or(Ok(false), is_readable)?;
        // What was printed before the word is there by now.
        while pass_one(&mut output, &mut io::stdout())? || pass_one(&mut errors, &mut io::stderr())? {}
        if is_ready {
            let word = ready.take().map_or(Ok(0), |mut ready| ready.read(&mut [0]))?;
            if word == 1 {
                return Ok(true);
            }
        }
        let all = [ready.as_ref(), output.as_ref(), errors.as_ref()];
        let mut watched: Vec<_> = all.into_iter().flatten().map(watch).collect();
        if watched.is_empty() {
            // It says why it ends after it has let go of us.
            return Ok(false);
        }
        match rustix::event::poll(&mut watched, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Passes on what is there now; whether there was something. `source` is `None` from its end on.
fn pass_one(source: &mut Option<File>, target: &mut dyn Write) -> io::Result<bool> {
    let Some(file) = source else {
        return Ok(false);
    };
    if !is_readable(file)? {
        return Ok(false);
    }
    let mut bytes = [0; 4096];
    let len = file.read(&mut bytes)?;
    if len == 0 {
        *source = None;
    }
    // Nobody may be there to read it.
    let _ = target.write_all(&bytes[..len]).and_then(|()| target.flush());
    Ok(true)
}

fn is_readable(file: &File) -> io::Result<bool> {
    let mut watched = [watch(file)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    match rustix::event::poll(&mut watched, Some(&now)) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn watch(file: &File) -> PollFd<'_> {
    PollFd::from_borrowed_fd(file.as_fd(), PollFlags::IN)
}
