//! How far a copy is, on a terminal.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use cryptline::Progress;
use cryptline_sys::lock;

use super::ending::CopyEnding;
use crate::CliError;
use crate::progress::{ProgressMeter, Spinner};
use crate::size::human;

/// View of a copy for a person.
pub struct Show {
    ending: Arc<CopyEnding>,
    shown: Arc<Mutex<ShownProgress>>,
}

/// At most one of them is there, and cleared before the next appears.
#[derive(Default)]
struct ShownProgress {
    meter: Option<ProgressMeter>,
    spinner: Option<Spinner>,
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
        Self { ending: Arc::new(CopyEnding::new(asks)), shown: Arc::default() }
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
                Progress::Copied { bytes, of } => shown.measure("Copied", bytes, of),
                Progress::Compared { bytes, of } => shown.measure("Compared", bytes, Some(of)),
                Progress::LookedAt { bytes, of } => shown.measure("Looked at", bytes, Some(of)),
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
                Progress::Step(_) => {}
                _ => shown.clear(),
            }
            Ok(())
        }
    }
}

impl ShownProgress {
    fn clear(&mut self) {
        *self = Self::default();
    }

    fn spin(&mut self, message: &'static str) {
        self.clear();
        self.spinner = Some(Spinner::new(message));
    }

    fn measure(&mut self, title: &'static str, bytes: u64, of: Option<u64>) {
        if self.meter.as_ref().is_none_or(|meter| meter.title() != title) {
            self.clear();
        }
        self.meter.get_or_insert_with(|| ProgressMeter::new(title, human)).show(bytes, of);
    }
}
