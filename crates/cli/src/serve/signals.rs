//! Signals: the first asks the server to end properly, the second ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cryptline_serve::nbd::StopHandle;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::cleanup::Remover;
use super::notify::notify;
use crate::CliError;

/// Ends the server, once, and tells the service manager.
#[derive(Clone)]
pub struct Stopper {
    handle: StopHandle,
    stopping: Arc<AtomicBool>,
}

impl Stopper {
    /// For the server that `handle` stops.
    #[must_use]
    pub fn new(handle: StopHandle) -> Self {
        Self {
            handle,
            stopping: Arc::default(),
        }
    }

    /// `false` where the server had been asked before.
    pub fn stop(&self) -> bool {
        if self.stopping.swap(true, Ordering::SeqCst) {
            return false;
        }
        notify("STOPPING=1");
        self.handle.stop();
        true
    }
}

/// From now on SIGINT, SIGTERM, SIGHUP and SIGQUIT stop the server; a further one while it is
/// stopping removes what `remover` knows and ends the process by that signal.
pub fn watch(stopper: Stopper, remover: Remover) -> Result<(), CliError> {
    let failed = |error| CliError::device(format!("cannot handle signals: {error}"));
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT]).map_err(failed)?;
    let watcher = move || {
        for signal in signals.forever() {
            if stopper.stop() {
                continue;
            }
            remover.remove_all();
            // Both end the process; the second only where the first could not.
            let _ = emulate_default_handler(signal);
            std::process::exit(128 + signal);
        }
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(watcher)
        .map_err(failed)?;
    Ok(())
}
