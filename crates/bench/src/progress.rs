//! A progress bar on standard error, when that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// Drawn only between measurements: a thread that redraws would take time from what is measured.
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar of `steps` steps.
    pub fn new(steps: usize) -> Self {
        let bar = ProgressBar::new(steps as u64);
        let style = "{bar:24} {percent:>3} %  {elapsed} gone, {eta} left  {msg}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Says what comes now.
    pub fn now(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
        self.0.tick();
    }

    /// One step is done.
    pub fn step(&self) {
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
