//! `top`: the live statistics of a server.

use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::CliError;
use crate::output::print;
use crate::serve::statistics::Sample;
use crate::top::{sample_lines, screen};

/// Longest line of statistics that is read, in bytes.
const LINE_MAX: u64 = 4 << 20;

/// Whose statistics, and how.
#[derive(Args, Debug)]
#[command(after_help = "\
SOCKET is the argument of `cryptline serve --stats SOCKET`. On a terminal, the display is updated in \
place; press q or Ctrl-C to quit. Otherwise each sample is printed as one line per export. The first \
sample covers the time since the server started; each later one, the time since the previous one.")]
pub struct TopArgs {
    /// The statistics socket of the server
    #[arg(value_name = "SOCKET")]
    pub socket: PathBuf,

    /// Show one sample and exit
    #[arg(long)]
    pub once: bool,

    /// Print the server's JSON lines unchanged (see docs/stats.md)
    #[arg(long)]
    pub json: bool,
}

/// Shows samples until the server or the user ends it.
///
/// # Errors
/// Exit code 4 when the server does not answer or makes no sense.
pub fn run(args: &TopArgs) -> Result<ExitCode, CliError> {
    let stream = UnixStream::connect(&args.socket).map_err(|error| {
        CliError::device(format!(
            "no statistics at {}: {error}; give the socket of a running `cryptline serve --stats SOCKET`",
            args.socket.display()
        ))
    })?;
    if !args.once && !args.json && std::io::stdout().is_terminal() {
        screen::run(stream, &args.socket)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut reader = BufReader::new(stream);
    let mut any = false;
    while let Some(line) = next_line(&mut reader, &args.socket)? {
        any = true;
        if args.json {
            print(&line)?
        } else {
            let sample = Sample::read(line.as_bytes()).ok_or_else(|| nonsense(&args.socket))?;
            print(&sample_lines(&sample))?
        }
        if args.once || stdout_is_closed() {
            break;
        }
    }
    if any {
        Ok(ExitCode::SUCCESS)
    } else {
        Err(CliError::device(format!(
            "the server at {} has too many readers already, or has just ended",
            args.socket.display()
        )))
    }
}

fn next_line(reader: &mut impl BufRead, socket: &Path) -> Result<Option<String>, CliError> {
    let mut line = String::new();
    let read = reader.take(LINE_MAX).read_line(&mut line);
    match read {
        Ok(0) => Ok(None),
        Ok(_) if line.ends_with('\n') => Ok(Some(line)),
        _ => Err(nonsense(socket)),
    }
}

fn nonsense(socket: &Path) -> CliError {
    CliError::device(format!(
        "{} does not give cryptline's statistics; give the socket of `cryptline serve --stats SOCKET`",
        socket.display()
    ))
}

/// Whether nobody reads what we print (`cryptline top SOCKET | head`).
fn stdout_is_closed() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdout = rustix::stdio::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().intersects(PollFlags::ERR)
}
