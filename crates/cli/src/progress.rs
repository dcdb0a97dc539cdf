//! The progress of work that takes long, in one line of a terminal. Nothing is written where there is none.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write as _};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The pause between two drawings.
const PAUSE: Duration = Duration::from_millis(100);
/// Time from which the remaining time is reckoned.
const WINDOW: Duration = Duration::from_secs(10);
const TURNS: [char; 4] = ['|', '/', '-', '\\'];
/// Columns of a bar.
const WIDTH: usize = 30;
const COLUMNS: usize = 80;

/// The line of a terminal that is drawn again and again, and cleared when it is dropped.
struct Line {
    is_terminal: bool,
    drawn: Option<Instant>,
    turn: usize,
}

impl Line {
    fn new() -> Self {
        Self { is_terminal: io::stderr().is_terminal(), drawn: None, turn: 0 }
    }

    /// Draws where there is a terminal, and the last drawing is old enough.
    fn draw(&mut self, text: impl FnOnce(char) -> String) {
        let is_new = self.drawn.is_some_and(|drawn| drawn.elapsed() < PAUSE);
        if is_new || !self.is_terminal {
            return;
        }
        let mut output = io::stderr();
        let size = rustix::termios::tcgetwinsize(rustix::stdio::stderr());
        // A serial line does not know its width.
        let known = size.ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
        let columns = known.unwrap_or(COLUMNS) - 1;
        self.turn += 1;
        let text: String = text(TURNS[self.turn % TURNS.len()]).chars().take(columns).collect();
        // What cannot be shown is not missed.
        let _ = write!(output, "\r{text}\x1b[K");
        self.drawn = Some(Instant::now());
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// A message beside something that turns until this is dropped.
pub struct Spinner {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Spinner {
    /// Shows the message.
    pub fn new(message: &'static str) -> Self {
        let (end, ended) = mpsc::channel();
        let turn = move || {
            let mut line = Line::new();
            loop {
                line.draw(|turn| format!("{turn} {message}"));
                if ended.recv_timeout(PAUSE) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        // Without a thread, nothing is shown.
        let thread = io::stderr().is_terminal().then(|| thread::Builder::new().spawn(turn).ok());
        Self { end: Some(end), thread: thread.flatten() }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How much of something is done, how fast that is, and how long the rest takes.
pub struct Meter {
    title: &'static str,
    unit: fn(u64) -> String,
    rate: Rate,
    line: Line,
}

impl Meter {
    /// `title` says what is done with amounts that `unit` writes.
    pub fn new(title: &'static str, unit: fn(u64) -> String) -> Self {
        Self { title, unit, rate: Rate::default(), line: Line::new() }
    }

    /// The title that it was made with.
    pub fn title(&self) -> &'static str {
        self.title
    }

    /// Shows that so much is done, of so much if that is known.
    pub fn show(&mut self, done: u64, of: Option<u64>) {
        let Self { title, unit, rate, line } = self;
        line.draw(|turn| {
            let rate = rate.note(Instant::now(), done);
            let picture = of.map_or_else(|| turn.to_string(), |of| bar(done, of));
            format!("{picture} {}", message(title, done, of, rate, *unit))
        });
    }
}

fn bar(done: u64, of: u64) -> String {
    let full = WIDTH as u128 * u128::from(done.min(of)) / u128::from(of.max(1));
    let full = usize::try_from(full).unwrap_or_default();
    let line = "=".repeat(full) + ">";
    format!("[{line:<WIDTH$.WIDTH$}]")
}

fn message(title: &str, done: u64, of: Option<u64>, rate: Option<u64>, unit: fn(u64) -> String) -> String {
    let all = of.map_or_else(String::new, |of| format!(" of {}", unit(of)));
    let speed = rate.map_or_else(String::new, |rate| format!(", {}/s", unit(rate)));
    let left = match (of, rate) {
        (Some(of), Some(rate)) if rate > 0 && of > done => {
            let seconds = (of - done).div_ceil(rate);
            format!(", {}:{:02} left", seconds / 60, seconds % 60)
        }
        _ => String::new(),
    };
    format!("{title} {}{all}{speed}{left}", unit(done))
}

/// The amount done in a second, over the last few seconds.
#[derive(Default)]
struct Rate(VecDeque<(Instant, u64)>);

impl Rate {
    fn note(&mut self, now: Instant, done: u64) -> Option<u64> {
        self.0.push_back((now, done));
        while let Some((since, _)) = self.0.get(1)
            && now.duration_since(*since) >= WINDOW
        {
            self.0.pop_front();
        }
        let (since, before) = self.0.front()?;
        let millis = now.duration_since(*since).as_millis();
        let moved = u128::from(done.saturating_sub(*before));
        let rate = (moved * 1000).checked_div(millis)?;
        u64::try_from(rate).ok().filter(|rate| *rate > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::human;

    #[test]
    fn rate_is_that_of_the_last_seconds() {
        let (mut rate, begin) = (Rate::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(rate.note(at(0), 0), None);
        assert_eq!(rate.note(at(1), 1000), Some(1000));
        for second in 2..=60 {
            rate.note(at(second), 1000);
        }
        assert_eq!(rate.note(at(61), 1000), None, "nothing has moved since");
        assert_eq!(rate.note(at(62), 11_000), Some(1000));
        assert!(rate.0.len() < 20);
    }

    #[test]
    fn time_left_is_what_the_rate_gives() {
        let said = message("Copied", 1 << 20, Some(62 << 20), Some(1 << 20), human);
        assert_eq!(said, "Copied 1 MiB of 62 MiB, 1 MiB/s, 1:01 left");
        assert_eq!(message("Copied", 1 << 20, None, None, human), "Copied 1 MiB");
    }

    #[test]
    fn bar_is_as_full_as_the_work_is_done() {
        assert_eq!(bar(0, 100), "[>                             ]");
        assert_eq!(bar(50, 100), "[===============>              ]");
        assert_eq!(bar(100, 100), "[==============================]");
        assert_eq!(bar(u64::MAX, 1), bar(100, 100));
        assert_eq!(bar(0, 0), bar(0, 100));
    }
}
