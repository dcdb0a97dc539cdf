//! How far a copy is, on a terminal.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cryptline::Progress;
use cryptline_sys::lock;
use indicatif::{ProgressBar, ProgressStyle};

use super::ending::Ending;
use crate::CliError;
use crate::cmd::create::spinner;
use crate::size::human;

/// What the remaining time is reckoned from.
const WINDOW: Duration = Duration::from_secs(10);

/// What a person sees of a copy.
pub struct Show {
    ending: Arc<Ending>,
    shown: Arc<Mutex<Shown>>,
}

#[derive(Default)]
struct Shown {
    bar: Option<ProgressBar>,
    /// What the bar is about.
    title: &'static str,
    rate: Rate,
}

impl Show {
    /// A copy, which signals end.
    pub fn of_copy() -> Self {
        Self::new(false)
    }

    /// A new volume: until there is a key, there is nothing to end but the program.
    pub fn of_create() -> Self {
        Self::new(true)
    }

    fn new(asks: bool) -> Self {
        Self { ending: Arc::new(Ending::new(asks)), shown: Arc::default() }
    }

    /// Set by the signals that end the program, from the moment when there is something to end.
    pub fn stop(&self) -> Arc<AtomicBool> {
        self.ending.stop()
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        lock(&self.shown).clear();
    }

    /// For the library.
    pub fn observer(&self) -> impl Fn(Progress<'_>) -> Result<(), cryptline::Error> + Send + Sync + 'static {
        let (shown, ending) = (Arc::clone(&self.shown), Arc::clone(&self.ending));
        move |progress| {
            ending.note(progress).map_err(CliError::into_keys_error)?;
            let mut shown = lock(&shown);
            match progress {
                Progress::Copied { bytes, of } => shown.bar("Copied", bytes, of),
                Progress::Compared { bytes, of } => shown.bar("Compared", bytes, Some(of)),
                Progress::Looking => shown.spin("Looking whether anything is there ..."),
                Progress::Deriving => shown.spin("Making the key slot ..."),
                Progress::SetAside(old) => {
                    shown.clear();
                    crate::output::warn(&[format!(
                        "{}: the old header is kept here until it and the data are replaced, which is not done in one step",
                        old.display()
                    )]);
                }
                Progress::Checking => shown.spin("Opening the new volume again ..."),
                _ => shown.clear(),
            }
            Ok(())
        }
    }
}

impl Shown {
    fn clear(&mut self) {
        self.title = "";
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn spin(&mut self, message: &'static str) {
        self.clear();
        self.bar = Some(spinner(message));
    }

    fn bar(&mut self, title: &'static str, bytes: u64, of: Option<u64>) {
        if self.title != title {
            self.clear();
            self.title = title;
            self.rate = Rate::default();
            self.bar = Some(new_bar(of));
        }
        let rate = self.rate.note(Instant::now(), bytes);
        if let Some(bar) = &self.bar {
            bar.set_position(bytes);
            bar.set_message(message(title, bytes, of, rate));
        }
    }
}

fn new_bar(of: Option<u64>) -> ProgressBar {
    let (bar, template) = match of {
        Some(of) => (ProgressBar::new(of), "[{bar:30}] {msg}"),
        None => (ProgressBar::new_spinner(), "{spinner} {msg}"),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

fn message(title: &str, bytes: u64, of: Option<u64>, rate: Option<u64>) -> String {
    let all = of.map_or_else(String::new, |of| format!(" of {}", human(of)));
    let speed = rate.map_or_else(String::new, |rate| format!(", {}/s", human(rate)));
    let left = match (of, rate) {
        (Some(of), Some(rate)) if rate > 0 && of > bytes => {
            let seconds = (of - bytes).div_ceil(rate);
            format!(", {}:{:02} left", seconds / 60, seconds % 60)
        }
        _ => String::new(),
    };
    format!("{title} {}{all}{speed}{left}", human(bytes))
}

/// Bytes a second, over the last few seconds.
#[derive(Default)]
struct Rate(VecDeque<(Instant, u64)>);

impl Rate {
    fn note(&mut self, now: Instant, bytes: u64) -> Option<u64> {
        self.0.push_back((now, bytes));
        while let Some((since, _)) = self.0.get(1)
            && now.duration_since(*since) >= WINDOW
        {
            self.0.pop_front();
        }
        let (since, before) = self.0.front()?;
        let millis = now.duration_since(*since).as_millis();
        let moved = u128::from(bytes.saturating_sub(*before));
        let rate = (moved * 1000).checked_div(millis)?;
        u64::try_from(rate).ok().filter(|rate| *rate > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let said = message("Copied", 1 << 20, Some(62 << 20), Some(1 << 20));
        assert_eq!(said, "Copied 1 MiB of 62 MiB, 1 MiB/s, 1:01 left");
        assert_eq!(message("Copied", 1 << 20, None, None), "Copied 1 MiB");
    }
}
