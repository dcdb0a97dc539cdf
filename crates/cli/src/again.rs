//! This program again, in another process: a server in the background, or a companion of a server.
//!
//! ```text
//! background   here        start it ─────────────────────────────► its word, or its end ─► exit
//!              the server  open, ask for the passphrase, bind ─► leave the terminal ─► `up TEXT` or `failed CODE` ─► serve
//!
//! companion    the server  start it, with all rights ─► give them up ─► serve ─► gone
//!              here        standard input is a socket whose other end only the server has, and so tells of its end
//! ```
//!
//! Started, and not forked, because a process with threads cannot be forked; from the image in memory, even if the program's
//! file has been replaced meanwhile. The terminal stays with a server until it is there, so it can ask for a passphrase.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cryptline_serve::StopHandle;
use rustix::io::FdFlags;
use rustix::pipe::PipeFlags;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::CliError;
use crate::output::complain;

/// Set for a server in the background: the descriptor at which its starter waits.
const STARTER: &str = "CRYPTLINE_STARTER";
/// Word of a server that is there, before its text.
const UP: &str = "up ";
/// Word of one that has failed, before its exit code.
const FAILED: &str = "failed ";

/// Returns this program, to be given arguments.
pub fn this_program() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("cryptline");
    command
}

/// Runs a server and waits until it is there, for its text, or has failed and said why, for its exit code, if it has one.
///
/// # Errors
/// Where it cannot be started.
pub fn begin(mut server: Command) -> Result<Result<String, Option<u8>>, CliError> {
    let failed = |error: io::Error| CliError::device(format!("cannot start the server: {error}"));
    let (word, theirs) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    rustix::io::fcntl_setfd(&theirs, FdFlags::empty()).map_err(|error| failed(error.into()))?;
    let mut process = server.env(STARTER, theirs.as_raw_fd().to_string()).spawn().map_err(failed)?;
    drop(theirs);
    let mut line = String::new();
    BufReader::new(File::from(word)).read_line(&mut line).map_err(failed)?;
    if let Some(word) = word_in(&line) {
        // Its process may be waited for in vain, where a driver hangs.
        return Ok(word.map_err(Some));
    }
    let status = process.wait().map_err(failed)?;
    Ok(Err(status.code().and_then(|code| u8::try_from(code).ok())))
}

/// The word that a whole line is.
fn word_in(line: &str) -> Option<Result<String, u8>> {
    let line = line.strip_suffix('\n')?;
    let code = || line.strip_prefix(FAILED)?.parse().ok();
    line.strip_prefix(UP).map(|text| Ok(text.to_owned())).or_else(|| code().map(Err))
}

/// Whoever started this server and waits until it is there, if anybody does.
pub struct Starter(RefCell<Option<WaitingStarter>>);

struct WaitingStarter {
    pipe: File,
    /// Takes the place of the terminal.
    nothing: File,
}

impl Starter {
    /// Tells if there is one.
    pub fn is_there() -> bool {
        std::env::var_os(STARTER).is_some()
    }

    /// Finds it. Call once, before a process is started.
    ///
    /// # Errors
    /// Exit code 1 where its descriptor was not passed, 4 where `/dev/null` cannot be had.
    pub fn find() -> Result<Self, CliError> {
        let Some(number) = std::env::var_os(STARTER) else {
            return Ok(Self(RefCell::default()));
        };
        let number = number.to_str().and_then(|number| number.parse().ok()).unwrap_or(u32::MAX);
        let pipe = cryptline_sys::take_passed_fd(number).map_err(|error| CliError::parameters(error.to_string()))?;
        let nothing = File::options().read(true).write(true).open("/dev/null").map_err(|error| cannot_leave(&error))?;
        Ok(Self(RefCell::new(Some(WaitingStarter { pipe: pipe.into(), nothing }))))
    }

    /// Leaves its terminal, where nothing more is asked, its standard input and its folder, which may be on a
    /// disk that is to be unmounted. Call before rights are given up.
    ///
    /// # Errors
    /// Exit code 4.
    pub fn leave(&self) -> Result<(), CliError> {
        let starter = self.0.borrow();
        let Some(starter) = &*starter else {
            return Ok(());
        };
        // Fails for the leader of a process group only, which no server of a starter is.
        let _ = rustix::process::setsid();
        let left = rustix::stdio::dup2_stdin(&starter.nothing).and_then(|()| rustix::process::chdir("/"));
        left.map_err(|error| cannot_leave(&error.into()))
    }

    /// Leaves its standard output and error too, and says that the server is there.
    ///
    /// # Errors
    /// Where nobody is left to hear it.
    pub fn tell(&self, text: &str) -> io::Result<()> {
        let Some(WaitingStarter { mut pipe, nothing }) = self.0.take() else {
            return Ok(());
        };
        rustix::stdio::dup2_stdout(&nothing)?;
        rustix::stdio::dup2_stderr(&nothing)?;
        pipe.write_all(format!("{UP}{text}\n").as_bytes())
    }

    /// Says that clients can connect. Where nobody is left to hear it, the server is not wanted any more.
    pub fn tell_of_clients(&self, stop: &StopHandle) {
        if self.tell("").is_err() {
            stop.stop();
        }
    }

    /// Says why the server is not there, and how it ends.
    ///
    /// # Errors
    /// The same where nobody waits any more.
    pub fn fail(&self, error: CliError) -> Result<ExitCode, CliError> {
        let Some(WaitingStarter { mut pipe, .. }) = self.0.take() else {
            return Err(error);
        };
        let code = error.exit_code();
        complain(&error.to_string());
        // Where it is gone, nobody needs to know.
        let _ = pipe.write_all(format!("{FAILED}{code}\n").as_bytes());
        Ok(ExitCode::from(code))
    }
}

fn cannot_leave(error: &io::Error) -> CliError {
    CliError::device(format!("cannot leave the terminal: {error}"))
}

/// Starts a companion of this server; the socket that it has the other end of.
///
/// # Errors
/// Where there can be no other process.
pub fn start_companion(mut command: Command) -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    let command = command.current_dir("/").stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
    // Nobody waits for it: it ends after us.
    command.spawn()?;
    Ok(ours)
}

/// Starts one that undoes what this server has done, once that has ended, and waits until no signal to all of a service
/// ends it any more.
///
/// # Errors
/// Where there can be no other process.
pub fn start_undoing(command: Command) -> io::Result<UnixStream> {
    let mut companion = start_companion(command)?;
    companion.read_exact(&mut [0])?;
    Ok(companion)
}

/// In a companion: the socket to its server.
///
/// # Errors
/// Where there is none.
pub fn server_of_companion() -> io::Result<UnixStream> {
    Ok(UnixStream::from(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?))
}

/// In a companion that undoes something: the last words of its server, once that has ended. A signal to the whole group is
/// not meant for it.
pub fn wait_for_end(mut server: &UnixStream) -> String {
    let _ = rustix::process::setsid();
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        // A service manager sends them to all processes of a service. By a handler, which the program that
        // unmounts does not inherit.
        let _ = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
    }
    // Where the server is gone, nobody needs to know.
    let _ = server.write_all(b"r");
    let mut words = String::new();
    // A few numbers, and no more.
    match server.take(200).read_to_string(&mut words) {
        Ok(_) => words,
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_whole_lines_and_a_failure_is_no_text() {
        assert_eq!(word_in("up \n"), Some(Ok(String::new())));
        assert_eq!(word_in("up /dev/nbd0\n"), Some(Ok("/dev/nbd0".to_owned())));
        assert_eq!(word_in("failed 5\n"), Some(Err(5)));
        for line in ["", "up", "up /dev/nbd0", "failed 5", "failed \n", "failed x\n", "/dev/nbd0\n"] {
            assert_eq!(word_in(line), None, "{line}");
        }
    }
}
