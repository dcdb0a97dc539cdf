//! A quota of lines about clients: one that comes, goes or fails in a loop must not fill anybody's disk.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use cryptline_sys::lock;
use tracing::Level;

/// Lines about trouble in one [`WINDOW`].
const TROUBLE_MAX: u32 = 20;
/// Other lines. They do not keep those about trouble from being seen.
const NEWS_MAX: u32 = 200;
const WINDOW: Duration = Duration::from_secs(10);

/// Counts lines.
pub struct LineCounter {
    trouble: Mutex<LogWindow>,
    news: Mutex<LogWindow>,
}

struct LogWindow {
    began: Instant,
    lines: u32,
}

impl LineCounter {
    /// Nothing said so far.
    pub fn new() -> Self {
        let window = || Mutex::new(LogWindow { began: Instant::now(), lines: 0 });
        Self { trouble: window(), news: window() }
    }

    /// Prints a line about trouble, unless there were too many lately.
    pub fn line(&self, message: &str) {
        if let Some(message) = self.admit(Level::WARN, message) {
            tracing::warn!("{message}");
        }
    }

    /// The message, if it is to be printed.
    pub fn admit(&self, level: Level, message: &str) -> Option<String> {
        crate::log::is_on(level).then(|| self.count(level, message, Instant::now()))?
    }

    fn count(&self, level: Level, message: &str, now: Instant) -> Option<String> {
        let (window, most) = if level <= Level::WARN { (&self.trouble, TROUBLE_MAX) } else { (&self.news, NEWS_MAX) };
        let mut window = lock(window);
        if now.saturating_duration_since(window.began) >= WINDOW {
            *window = LogWindow { began: now, lines: 0 };
        }
        window.lines = window.lines.saturating_add(1);
        if window.lines < most {
            return Some(message.to_owned());
        }
        (window.lines == most).then(|| {
            let seconds = WINDOW.as_secs();
            format!("{message} (further messages of these {seconds} s are left out)")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_and_later_lines_come_through_again() {
        let log = LineCounter::new();
        let now = Instant::now();
        let say = |level| log.count(level, "x", now);
        let news: Vec<_> = (0..1000).filter_map(|_| say(Level::INFO)).collect();
        assert_eq!(news.len(), 200);
        let said: Vec<_> = (0..1000).filter_map(|_| say(Level::WARN)).collect();
        assert_eq!(said.len(), 20, "however much else was said");
        assert_eq!(said[0], "x");
        assert!(said[19].contains("left out"));
        assert!(log.count(Level::WARN, "later", now + WINDOW).is_some());
    }
}
