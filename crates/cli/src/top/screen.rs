//! The terminal: samples drawn in place; left as it was found, however it ends.

use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook::low_level::pipe;

use super::list::{Focus, ShownServer, Sort, screen_lines};
use crate::CliError;
use crate::serve::statistics::StatsSample;

/// Bytes of statistics without a line end that are kept.
const LINE_MAX: usize = 4 << 20;
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
const LEAVE: &[u8] = b"\x1b[?25h\x1b[?1049l";

/// Shows samples from `streams`, one of each server, until the user or the last server ends it.
pub fn run(streams: Vec<(UnixStream, String)>, sort: Sort) -> Result<(), CliError> {
    let failed = |error: io::Error| CliError::device(format!("cannot use the terminal: {error}"));
    let mut watch = EventSources::new(streams, sort).map_err(failed)?;
    let terminal = Terminal::enter().map_err(failed)?;
    let why = loop {
        match watch.next().map_err(failed)? {
            ScreenEvent::Redraw => watch.draw().map_err(failed)?,
            ScreenEvent::Quit => break None,
            ScreenEvent::Ended(why) => break Some(why),
        }
    };
    drop(terminal);
    match why {
        None => Ok(()),
        Some(why) => Err(CliError::device(why)),
    }
}

enum ScreenEvent {
    Redraw,
    Quit,
    /// There is nothing more to see, and why.
    Ended(String),
}

/// One server's statistics.
struct StatsSource {
    stream: UnixStream,
    text: Vec<u8>,
}

/// Everything that can happen.
struct EventSources {
    sources: Vec<StatsSource>,
    /// Last figures of each server.
    shown: Vec<ShownServer>,
    focus: Focus,
    /// Has a byte after SIGWINCH.
    resized: UnixStream,
    /// Has a byte after a signal that ends us.
    ended: UnixStream,
}

impl EventSources {
    fn new(streams: Vec<(UnixStream, String)>, sort: Sort) -> io::Result<Self> {
        let (mut sources, mut shown) = (Vec::new(), Vec::new());
        for (stream, socket) in streams {
            stream.set_nonblocking(true)?;
            let text = Vec::new();
            sources.push(StatsSource { stream, text });
            shown.push(ShownServer { socket, ..ShownServer::default() });
        }
        Ok(Self {
            sources,
            shown,
            focus: Focus { sort, ..Focus::default() },
            resized: signal_pipe(&[SIGWINCH])?,
            ended: signal_pipe(&[SIGINT, SIGTERM, SIGHUP])?,
        })
    }

    fn next(&mut self) -> io::Result<ScreenEvent> {
        loop {
            let ready = self.wait()?;
            let [keys, resized, ended] = ready.own;
            if ended {
                return Ok(ScreenEvent::Quit);
            }
            if keys {
                let mut is_known = false;
                for key in pressed()? {
                    match key {
                        Keypress::Quit => return Ok(ScreenEvent::Quit),
                        Keypress::Sort(sort) => self.focus.sort = sort,
                        Keypress::Move(lines) => self.focus.move_by(&self.shown, lines),
                        Keypress::Details => self.focus.toggle(&self.shown),
                    }
                    is_known = true;
                }
                if is_known {
                    return Ok(ScreenEvent::Redraw);
                }
            }
            if resized {
                drain(&mut self.resized)?;
                return Ok(ScreenEvent::Redraw);
            }
            let mut is_new = false;
            for number in ready.sources {
                match self.sources[number].receive() {
                    Received::Nothing => {}
                    Received::Sample(sample) => self.shown[number].sample = *sample,
                    Received::End(why) => {
                        self.shown[number].ended = true;
                        if self.shown.iter().all(|server| server.ended) {
                            let socket = &self.shown[number].socket;
                            return Ok(ScreenEvent::Ended(format!("{socket}: {why}")));
                        }
                    }
                }
                is_new = true;
            }
            if is_new {
                return Ok(ScreenEvent::Redraw);
            }
        }
    }

    /// Which of keyboard, resize and end have something, and which servers.
    fn wait(&self) -> io::Result<Ready> {
        let keyboard = rustix::stdio::stdin();
        // What is no keyboard (`top < /dev/null`) has nothing to say.
        let keys = if keyboard.is_terminal() { PollFlags::IN } else { PollFlags::empty() };
        let mut polled = vec![
            PollFd::from_borrowed_fd(keyboard, keys),
            PollFd::from_borrowed_fd(self.resized.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.ended.as_fd(), PollFlags::IN),
        ];
        let live = (0..self.sources.len()).filter(|&number| !self.shown[number].ended);
        let live: Vec<_> = live.collect();
        for &number in &live {
            let stream = self.sources[number].stream.as_fd();
            polled.push(PollFd::from_borrowed_fd(stream, PollFlags::IN));
        }
        match poll(&mut polled, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Ready::default()),
            Err(error) => return Err(error.into()),
        }
        let has = |polled: &PollFd<'_>| !polled.revents().is_empty();
        let sources = live.iter().zip(&polled[3..]);
        Ok(Ready {
            own: [has(&polled[0]), has(&polled[1]), has(&polled[2])],
            sources: sources.filter(|(_, polled)| has(polled)).map(|(number, _)| *number).collect(),
        })
    }

    /// As many lines and columns as there is room for, over what was there before.
    fn draw(&self) -> io::Result<()> {
        let (mut rows, mut columns) = (24, 80);
        if let Ok(size) = tcgetwinsize(rustix::stdio::stdout())
            && size.ws_row > 0
            && size.ws_col > 0
        {
            (rows, columns) = (usize::from(size.ws_row), usize::from(size.ws_col));
        }
        let lines = screen_lines(&self.shown, &self.focus, columns, rows);
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
}

/// Sources that can be read without waiting.
#[derive(Default)]
struct Ready {
    own: [bool; 3],
    sources: Vec<usize>,
}

enum Received {
    Nothing,
    Sample(Box<StatsSample>),
    End(&'static str),
}

impl StatsSource {
    /// The newest whole line.
    fn receive(&mut self) -> Received {
        let nonsense = Received::End("this is no statistics socket of cryptline");
        let mut piece = [0; 16 * 1024];
        match self.stream.read(&mut piece) {
            Ok(0) => return Received::End("the server has ended"),
            Ok(length) => self.text.extend_from_slice(&piece[..length]),
            Err(error) if is_temporary(&error) => return Received::Nothing,
            Err(_) => return Received::End("the server has ended"),
        }
        let Some(end) = self.text.iter().rposition(|&byte| byte == b'\n') else {
            let too_long = self.text.len() > LINE_MAX;
            return if too_long { nonsense } else { Received::Nothing };
        };
        let lines: Vec<u8> = self.text.drain(..=end).collect();
        let newest = lines[..end].rsplit(|&byte| byte == b'\n').next();
        let sample = newest.and_then(StatsSample::read);
        sample.map_or(nonsense, |sample| Received::Sample(Box::new(sample)))
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
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

/// Wish of the user.
#[derive(Debug, PartialEq, Eq)]
enum Keypress {
    Quit,
    Sort(Sort),
    /// So many lines further down.
    Move(isize),
    Details,
}

/// Lines of a page.
const PAGE: isize = 10;

/// Returns the keys that were pressed; a keyboard that went away quits.
fn pressed() -> io::Result<Vec<Keypress>> {
    let mut keys = [0; 64];
    match rustix::io::read(rustix::stdio::stdin(), &mut keys) {
        Ok(0) => Ok(vec![Keypress::Quit]),
        Ok(length) => Ok(keys_in(&keys[..length])),
        Err(rustix::io::Errno::INTR) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Of q, Ctrl-C, Ctrl-D, Enter, the letters of [`Sort`] and the keys that move; others are nothing.
fn keys_in(mut bytes: &[u8]) -> Vec<Keypress> {
    let mut keys = Vec::new();
    while let [first, rest @ ..] = bytes {
        bytes = rest;
        let key = match first {
            0x1b => {
                let len = sequence_len(rest);
                let (sequence, rest) = rest.split_at(len);
                bytes = rest;
                match sequence {
                    b"[A" | b"OA" => Some(Keypress::Move(-1)),
                    b"[B" | b"OB" => Some(Keypress::Move(1)),
                    b"[5~" => Some(Keypress::Move(-PAGE)),
                    b"[6~" => Some(Keypress::Move(PAGE)),
                    _ => None,
                }
            }
            b'q' | b'Q' | 3 | 4 => Some(Keypress::Quit),
            b'\r' | b'\n' => Some(Keypress::Details),
            b'k' => Some(Keypress::Move(-1)),
            b'j' => Some(Keypress::Move(1)),
            _ => Sort::of_key(*first).map(Keypress::Sort),
        };
        keys.extend(key);
    }
    keys
}

/// Bytes of an arrow or function key behind its escape: `[`, parameters and a last byte, or `O` and a byte.
fn sequence_len(bytes: &[u8]) -> usize {
    match bytes {
        [b'[', rest @ ..] => {
            rest.iter().position(|byte| (0x40..0x7f).contains(byte)).map_or(bytes.len(), |end| end + 2)
        }
        [b'O', _, ..] => 2,
        _ => 0,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart_from_parts_of_others() {
        assert_eq!(
            keys_in(b"n\x1b[A\x1bOB\r"),
            [Keypress::Sort(Sort::Name), Keypress::Move(-1), Keypress::Move(1), Keypress::Details]
        );
        assert_eq!(keys_in(b"\x1b[6~\x1b[5~j"), [Keypress::Move(PAGE), Keypress::Move(-PAGE), Keypress::Move(1)]);
        // F5 and Ctrl-Left have letters and digits of their own; an escape alone is nothing.
        assert_eq!(keys_in(b"\x1b[15~\x1b[1;5D\x1b"), []);
        assert_eq!(keys_in(b"x\x03"), [Keypress::Quit]);
    }
}
