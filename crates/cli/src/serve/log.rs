//! Lines about clients on standard error, so many and no more: a client that fails in a loop must
//! not fill anybody's disk.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use cryptline_sys::lock;

use crate::error::on_one_line;
use crate::output::complain;

/// Lines in one [`WINDOW`].
const LINES_MAX: u32 = 20;
const WINDOW: Duration = Duration::from_secs(10);

/// Counts lines.
pub struct Log(Mutex<Window>);

struct Window {
    began: Instant,
    lines: u32,
}

impl Log {
    /// Nothing said so far.
    #[must_use]
    pub fn new() -> Self {
        Self(Mutex::new(Window {
            began: Instant::now(),
            lines: 0,
        }))
    }

    /// Prints a line, unless there were too many lately.
    pub fn line(&self, message: &str) {
        if let Some(line) = self.admit(message, Instant::now()) {
            complain(&line);
        }
    }

    fn admit(&self, message: &str, now: Instant) -> Option<String> {
        let mut window = lock(&self.0);
        if now.saturating_duration_since(window.began) >= WINDOW {
            *window = Window {
                began: now,
                lines: 0,
            };
        }
        window.lines = window.lines.saturating_add(1);
        match window.lines {
            ..LINES_MAX => Some(on_one_line(message)),
            LINES_MAX => Some(format!(
                "{} (further messages of these {} s are left out)",
                on_one_line(message),
                WINDOW.as_secs()
            )),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_and_later_lines_come_through_again() {
        let log = Log::new();
        let now = Instant::now();
        let said: Vec<_> = (0..1000).filter_map(|_| log.admit("x\n", now)).collect();
        assert_eq!(said.len(), 20);
        assert_eq!(said[0], "x\\n");
        assert!(said[19].contains("left out"));
        assert!(log.admit("later", now + WINDOW).is_some());
    }
}
