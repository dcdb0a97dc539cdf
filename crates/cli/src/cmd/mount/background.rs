//! A server in the background: this program again, which says when the mount is there.
//!
//! ```text
//! here    start it ─► pass on what it prints ─► its word, or its end ─► exit
//! there   open, ask for the passphrase, mount ─► leave the terminal ─► banner ─► the word ─► serve
//! ```

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, FdFlags};
use rustix::pipe::PipeFlags;

use crate::CliError;

/// Whoever started us and waits for the mount.
pub struct Parent(Option<File>);

impl Parent {
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

    /// The mount is there.
    pub fn tell(self) {
        if let Some(mut pipe) = self.0 {
            // Whoever has gone needs to know nothing.
            let _ = pipe.write_all(b"1");
        }
    }
}

/// Starts the server and waits until it is ready, or has failed; the exit code is then its own.
pub fn run() -> Result<ExitCode, CliError> {
    let failed = |error: io::Error| CliError::device(format!("cannot start the server: {error}"));
    let (ready, theirs) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    rustix::io::fcntl_setfd(&theirs, FdFlags::empty()).map_err(|error| failed(error.into()))?;
    let mut arguments = std::env::args_os();
    let program = arguments.next();
    // This program, even if its file has been replaced meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command.arg0(program.unwrap_or_else(|| "cryptline".into()));
    // Options may stand anywhere behind the verb.
    command.args(arguments.next());
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
