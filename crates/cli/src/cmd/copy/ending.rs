//! The signals that end a copy.
//!
//! ```text
//! the first    while bytes are copied: the copy ends by itself, and cleans up
//!              before, while a key is asked for or made: as the second
//! the second   removes the unfinished files and ends the program, whatever the copy waits for
//! the third    ends the program at once
//! ```

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use cryptline::Progress;
use cryptline_sys::lock;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::CliError;

const SIGNALS: [i32; 3] = [SIGHUP, SIGINT, SIGTERM];

/// How far the end of a copy has come.
pub struct CopyEnding {
    /// The copy looks at it.
    stop: Arc<AtomicBool>,
    state: Arc<Mutex<EndingState>>,
}

#[derive(Default)]
struct EndingState {
    is_watched: bool,
    /// A key is asked for or made; nobody looks at the flag until that is over.
    waits_for_key: bool,
    unfinished: Vec<PathBuf>,
}

impl CopyEnding {
    /// Signals are left alone until there is something to end. `asks` says that a key is asked for then.
    pub fn new(asks: bool) -> Self {
        let state = EndingState { waits_for_key: asks, ..EndingState::default() };
        Self { stop: Arc::default(), state: Arc::new(Mutex::new(state)) }
    }

    /// Set by the first signal.
    pub fn stop(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Takes note of what the library tells.
    pub fn note(&self, progress: Progress<'_>) -> Result<(), CliError> {
        let mut state = lock(&self.state);
        match progress {
            Progress::Unfinished(path) => state.unfinished.push(path.to_owned()),
            Progress::Deriving => state.waits_for_key = true,
            Progress::Looked | Progress::Copied { .. } => state.waits_for_key = false,
            _ => {}
        }
        let begins = matches!(progress, Progress::Unfinished(_) | Progress::Copied { .. });
        if begins && !state.is_watched {
            state.is_watched = true;
            self.watch()?;
        }
        Ok(())
    }

    fn watch(&self) -> Result<(), CliError> {
        let failed = |error: io::Error| CliError::memory(format!("cannot handle signals: {error}; try again"));
        let is_last = Arc::new(AtomicBool::new(false));
        for signal in SIGNALS {
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&is_last)).map_err(failed)?;
        }
        let mut signals = Signals::new(SIGNALS).map_err(failed)?;
        let (stop, state) = (self.stop(), Arc::clone(&self.state));
        let watch = move || {
            for signal in signals.forever() {
                let unfinished = {
                    let state = lock(&state);
                    if !state.waits_for_key && !stop.swap(true, Ordering::Relaxed) {
                        continue;
                    }
                    state.unfinished.clone()
                };
                // What hangs may be the file system, and then this hangs as well.
                is_last.store(true, Ordering::Relaxed);
                for path in &unfinished {
                    let _ = std::fs::remove_file(path);
                }
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(watch).map(drop).map_err(CliError::no_thread)
    }
}
