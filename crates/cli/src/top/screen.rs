//! The terminal: samples drawn in place; left as it was found, however it ends.

use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook::low_level::pipe;

use super::view::screen_lines;
use crate::CliError;
use crate::serve::statistics::Sample;

/// Bytes of statistics without a line end that are kept.
const LINE_MAX: usize = 4 << 20;
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
const LEAVE: &[u8] = b"\x1b[?25h\x1b[?1049l";

/// Shows samples from `stream` until the user or the server ends it.
pub fn run(stream: UnixStream, socket: &Path) -> Result<(), CliError> {
    let failed = |error: io::Error| CliError::device(format!("cannot use the terminal: {error}"));
    let mut watch = Watch::new(stream).map_err(failed)?;
    let terminal = Terminal::enter().map_err(failed)?;
    let title = socket.display().to_string();
    let mut sample = Sample::default();
    let why = loop {
        match watch.next(&mut sample).map_err(failed)? {
            Event::Redraw => draw(&screen_lines(&sample, &title)).map_err(failed)?,
            Event::Quit => break None,
            Event::ServerEnded => break Some("the server has ended"),
            Event::Nonsense => break Some("this is no statistics socket of cryptline"),
        }
    };
    drop(terminal);
    match why {
        None => Ok(()),
        Some(why) => Err(CliError::device(format!("{title}: {why}"))),
    }
}

enum Event {
    Redraw,
    Quit,
    ServerEnded,
    Nonsense,
}

/// Everything that can happen.
struct Watch {
    stream: UnixStream,
    /// Has a byte after SIGWINCH.
    resized: UnixStream,
    /// Has a byte after a signal that ends us.
    ended: UnixStream,
    text: Vec<u8>,
}

impl Watch {
    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            resized: signal_pipe(&[SIGWINCH])?,
            ended: signal_pipe(&[SIGINT, SIGTERM, SIGHUP])?,
            text: Vec::new(),
        })
    }

    fn next(&mut self, sample: &mut Sample) -> io::Result<Event> {
        loop {
            let [keys, stream, resized, ended] = self.wait()?;
            if ended || keys && quit_pressed()? {
                return Ok(Event::Quit);
            }
            if resized {
                drain(&mut self.resized)?;
                return Ok(Event::Redraw);
            }
            if stream && let Some(event) = self.receive(sample)? {
                return Ok(event);
            }
        }
    }

    /// Which of keyboard, statistics, resize and end have something.
    fn wait(&self) -> io::Result<[bool; 4]> {
        let keyboard = rustix::stdio::stdin();
        // What is no keyboard (`top < /dev/null`) has nothing to say.
        let keys = if keyboard.is_terminal() {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        let mut polled = [
            PollFd::from_borrowed_fd(keyboard, keys),
            PollFd::from_borrowed_fd(self.stream.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.resized.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.ended.as_fd(), PollFlags::IN),
        ];
        match poll(&mut polled, None) {
            Ok(_) => Ok(polled.map(|one| !one.revents().is_empty())),
            Err(rustix::io::Errno::INTR) => Ok([false; 4]),
            Err(error) => Err(error.into()),
        }
    }

    fn receive(&mut self, sample: &mut Sample) -> io::Result<Option<Event>> {
        let mut piece = [0; 16 * 1024];
        match self.stream.read(&mut piece) {
            Ok(0) => return Ok(Some(Event::ServerEnded)),
            Ok(length) => self.text.extend_from_slice(&piece[..length]),
            Err(error) if is_temporary(&error) => return Ok(None),
            Err(_) => return Ok(Some(Event::ServerEnded)),
        }
        let Some(end) = self.text.iter().rposition(|&byte| byte == b'\n') else {
            let too_long = self.text.len() > LINE_MAX;
            return Ok(too_long.then_some(Event::Nonsense));
        };
        let lines: Vec<u8> = self.text.drain(..=end).collect();
        let newest = lines[..end].rsplit(|&byte| byte == b'\n').next();
        match newest.and_then(Sample::read) {
            Some(newest) => {
                *sample = newest;
                Ok(Some(Event::Redraw))
            }
            None => Ok(Some(Event::Nonsense)),
        }
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

fn signal_pipe(signals: &[i32]) -> io::Result<UnixStream> {
    let (read, write) = UnixStream::pair()?;
    read.set_nonblocking(true)?;
    for &signal in signals {
        pipe::register(signal, write.try_clone()?)?;
    }
    Ok(read)
}

fn drain(pipe: &mut UnixStream) -> io::Result<()> {
    match pipe.read(&mut [0; 64]) {
        Err(error) if !is_temporary(&error) => Err(error),
        _ => Ok(()),
    }
}

/// q, Q, Ctrl-C, Ctrl-D, or a keyboard that went away.
fn quit_pressed() -> io::Result<bool> {
    let mut keys = [0; 64];
    match rustix::io::read(rustix::stdio::stdin(), &mut keys) {
        Ok(0) => Ok(true),
        Ok(length) => Ok(keys[..length]
            .iter()
            .any(|key| matches!(key, b'q' | b'Q' | 3 | 4))),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// As many lines and columns as there is room for, over what was there before.
fn draw(lines: &[String]) -> io::Result<()> {
    let (mut rows, mut columns) = (24, 80);
    if let Ok(size) = tcgetwinsize(rustix::stdio::stdout())
        && size.ws_row > 0
        && size.ws_col > 0
    {
        (rows, columns) = (usize::from(size.ws_row), usize::from(size.ws_col));
    }
    let mut frame = String::from("\x1b[H");
    for (index, line) in lines.iter().take(rows).enumerate() {
        if index > 0 {
            frame.push_str("\r\n");
        }
        frame.extend(line.chars().take(columns));
        frame.push_str("\x1b[K");
    }
    frame.push_str("\x1b[J");
    let mut out = io::stdout().lock();
    out.write_all(frame.as_bytes())?;
    out.flush()
}

/// The other screen, without echo; dropped, it is as before.
struct Terminal {
    before: Option<Termios>,
}

impl Terminal {
    fn enter() -> io::Result<Self> {
        // Without a keyboard (`top < /dev/null`) there is nothing to switch.
        let before = tcgetattr(rustix::stdio::stdin()).ok();
        if let Some(before) = &before {
            let mut raw = before.clone();
            raw.make_raw();
            tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &raw)?;
        }
        let terminal = Self { before };
        let mut out = io::stdout().lock();
        out.write_all(ENTER)?;
        out.flush()?;
        Ok(terminal)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // What cannot be restored cannot be reported either.
        let mut out = io::stdout().lock();
        let _ = out.write_all(LEAVE).and_then(|()| out.flush());
        if let Some(before) = &self.before {
            let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, before);
        }
    }
}
