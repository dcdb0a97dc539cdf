//! The progress of work that takes long, in one line of a terminal. Nothing is written where there is none.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write as _};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::output::is_quiet;

/// The pause between two drawings.
const PAUSE: Duration = Duration::from_millis(100);
/// Time from which the remaining time is reckoned.
const WINDOW: Duration = Duration::from_secs(10);
const TURNS: [char; 4] = ['|', '/', '-', '\\'];
/// Columns of a bar, where there is room, and of the narrowest that is a picture.
const WIDTH: usize = 30;
const WIDTH_MIN: usize = 8;
const COLUMNS: usize = 80;

/// The line of a terminal that is drawn again and again, and cleared when it is dropped.
struct ProgressLine {
    is_terminal: bool,
    drawn: Option<Instant>,
    turn: usize,
}

impl ProgressLine {
    fn new() -> Self {
        Self { is_terminal: io::stderr().is_terminal() && !is_quiet(), drawn: None, turn: 0 }
    }

    /// Draws where there is a terminal, and the last drawing is old enough. `text` is told how many columns it has.
    fn draw(&mut self, text: impl FnOnce(char, usize) -> String) {
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
        let text: String = text(TURNS[self.turn % TURNS.len()], columns).chars().take(columns).collect();
        // What cannot be shown is not missed.
        let _ = write!(output, "\r{text}\x1b[K");
        self.drawn = Some(Instant::now());
    }
}

impl Drop for ProgressLine {
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
            let mut line = ProgressLine::new();
            loop {
                line.draw(|turn, _| format!("{turn} {message}"));
                if ended.recv_timeout(PAUSE) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        // Without a thread, nothing is shown.
        let thread = (io::stderr().is_terminal() && !is_quiet()).then(|| thread::Builder::new().spawn(turn).ok());
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
pub struct ProgressMeter {
    title: &'static str,
    unit: fn(u64) -> String,
    rate: Rate,
    line: ProgressLine,
}

impl ProgressMeter {
    /// `title` says what is done with amounts that `unit` writes.
    pub fn new(title: &'static str, unit: fn(u64) -> String) -> Self {
        Self { title, unit, rate: Rate::default(), line: ProgressLine::new() }
    }

    /// The title that it was made with.
    pub fn title(&self) -> &'static str {
        self.title
    }

    /// Shows that so much is done, of so much if that is known.
    pub fn show(&mut self, done: u64, of: Option<u64>) {
        let Self { title, unit, rate, line } = self;
        line.draw(|turn, columns| {
            let rate = rate.note(Instant::now(), done);
            let message = message(title, done, of, rate, *unit);
            match of {
                Some(of) => beside_bar(&message, done, of, columns),
                None => format!("{turn} {message}"),
            }
        });
    }
}

/// The message behind a bar that leaves it room in so many columns, or alone.
fn beside_bar(message: &str, done: u64, of: u64, columns: usize) -> String {
    let room = columns.saturating_sub(message.chars().count() + "[] ".len());
    if room < WIDTH_MIN {
        return message.to_owned();
    }
    format!("{} {message}", bar(done, of, room.min(WIDTH)))
}

fn bar(done: u64, of: u64, width: usize) -> String {
    let full = width as u128 * u128::from(done.min(of)) / u128::from(of.max(1));
    let full = usize::try_from(full).unwrap_or_default();
    let line = "=".repeat(full) + ">";
    format!("[{line:<width$.width$}]")
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
        assert_eq!(bar(0, 100, 30), "[>                             ]");
        assert_eq!(bar(50, 100, 30), "[===============>              ]");
        assert_eq!(bar(100, 100, 8), "[========]");
        assert_eq!(bar(u64::MAX, 1, 30), bar(100, 100, 30));
        assert_eq!(bar(0, 0, 30), bar(0, 100, 30));
    }

    #[test]
    fn line_fits_the_terminal_with_the_time_that_is_left() {
        let (done, of) = ((1023 << 30) + (700 << 20), 2047 << 30);
        let message = message("Copied and encrypted", done, Some(of), Some((1023 << 20) + 1000), human);
        for columns in [10, 59, 79, 99, 200] {
            let line = beside_bar(&message, done, of, columns);
            let fits = line.chars().count() <= columns || line == message;
            assert!(fits && line.contains(" left"), "{columns}: {line}");
        }
        let line = beside_bar(&message, done, of, 79);
        assert!(line.chars().count() <= 79, "{line}");
        assert!(beside_bar("Copied 1 MiB", 1, 2, 79).starts_with(&bar(1, 2, 30)));
    }
}
