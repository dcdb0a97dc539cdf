//! `top`: the live statistics of a server.

use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::CliError;
use crate::error::on_one_line;
use crate::output::print;
use crate::serve::statistics::StatsSample;
use crate::top::{Sort, sample_lines, screen};
use crate::verb::{Group, Verb};

/// Longest line of statistics that is read, in bytes.
const LINE_MAX: u64 = 4 << 20;

pub const VERB: Verb = Verb {
    name: "top",
    group: Some(Group::Use),
    is_main: true,
    notes: "\
SOCKET is the argument of `cryptline serve --stats SOCKET`. On a terminal, the display is updated in \
place, one line per export. Press Up or Down to select one, Enter to show or hide all its figures; s, n, i, b or l to \
sort; q or Ctrl-C to quit. 60 columns are enough. Otherwise each sample is printed as one line per export. The first sample covers the time since the server started; \
each later one, the time since the previous one.",
    see: "cryptline-serve(1)",
    keyless: true,
    ..Verb::EMPTY
};

/// Whose statistics, and how.
#[derive(Args, Debug)]
pub struct TopArgs {
    /// The statistics sockets of the servers
    #[arg(value_name = "SOCKET", required = true)]
    pub sockets: Vec<PathBuf>,

    /// Show one sample of each server and exit
    #[arg(long)]
    pub once: bool,

    /// Order of the exports on the terminal
    #[arg(long, value_enum, default_value_t, value_name = "BY")]
    pub sort: Sort,

    /// Print the server's JSON lines unchanged (see docs/stats.md)
    #[arg(long)]
    pub json: bool,
}

/// Shows samples until the servers or the user end it.
///
/// # Errors
/// Exit code 4 when a server does not answer or makes no sense.
pub fn run(args: &TopArgs) -> Result<(), CliError> {
    if args.json && args.sockets.len() > 1 {
        return Err(CliError::parameters("JSON lines do not say which server they are of; use --json with one SOCKET"));
    }
    let sockets = args.sockets.iter();
    let streams = sockets.map(|socket| Ok((connect(socket)?, socket.display().to_string())));
    let streams = streams.collect::<Result<Vec<_>, CliError>>()?;
    if !args.once && !args.json && std::io::stdout().is_terminal() {
        screen::run(streams, args.sort)?;
        return Ok(());
    }
    let results: Vec<Result<(), CliError>> = std::thread::scope(|scope| {
        let follow =
            |(stream, name)| std::thread::Builder::new().spawn_scoped(scope, move || follow(args, stream, name));
        let threads: Vec<_> = streams.into_iter().map(follow).collect();
        let results = threads.into_iter().map(|thread| match thread {
            Ok(thread) => thread.join().ok(),
            Err(error) => Some(Err(CliError::no_thread(error))),
        });
        results.flatten().collect()
    });
    results.into_iter().collect::<Result<(), _>>()
}

fn connect(socket: &Path) -> Result<UnixStream, CliError> {
    UnixStream::connect(socket).map_err(|error| {
        CliError::device(format!(
            "no statistics at {}: {error}; use the socket of a running `cryptline serve --stats SOCKET`",
            socket.display()
        ))
    })
}

/// Prints what one server says, each sample in one piece.
fn follow(args: &TopArgs, stream: UnixStream, name: String) -> Result<(), CliError> {
    let mut reader = BufReader::new(stream);
    let mut any = false;
    while let Some(line) = next_line(&mut reader, &name)? {
        any = true;
        if args.json {
            print(&line)?;
        } else {
            let sample = StatsSample::read(line.as_bytes()).ok_or_else(|| nonsense(&name))?;
            let lines = sample_lines(&sample);
            if args.sockets.len() > 1 {
                let of_server = |line| format!("{} {line}\n", on_one_line(&name));
                print(&lines.lines().map(of_server).collect::<String>())?;
            } else {
                print(&lines)?;
            }
        }
        if args.once || stdout_is_closed() {
            break;
        }
    }
    if any {
        Ok(())
    } else {
        Err(CliError::device(format!("the server at {name} has too many readers already, or has just ended")))
    }
}

fn next_line(reader: &mut impl BufRead, socket: &str) -> Result<Option<String>, CliError> {
    let mut line = String::new();
    let read = reader.take(LINE_MAX).read_line(&mut line);
    match read {
        Ok(0) => Ok(None),
        Ok(_) if line.ends_with('\n') => Ok(Some(line)),
        _ => Err(nonsense(socket)),
    }
}

fn nonsense(socket: &str) -> CliError {
    CliError::device(format!(
        "{socket} does not give cryptline's statistics; use the socket of `cryptline serve --stats SOCKET`"
    ))
}

/// Tells if nobody reads what we print (`cryptline top SOCKET | head`).
fn stdout_is_closed() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdout = rustix::stdio::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().intersects(PollFlags::ERR)
}
