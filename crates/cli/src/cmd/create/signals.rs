//! Ctrl-C while a volume is made: the unfinished file goes with the program.

use std::io;
use std::path::Path;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use crate::CliError;

/// While it lives, a signal that ends the program removes the file first.
pub struct RemovalGuard(Handle);

impl Drop for RemovalGuard {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Removes `path` when the program is told to end.
pub fn remove_when_stopped(path: &Path) -> Result<RemovalGuard, CliError> {
    let failed = |error: io::Error| CliError::memory(format!("cannot handle signals: {error}; try again"));
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(failed)?;
    let handle = signals.handle();
    let path = path.to_owned();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            if let Some(signal) = signals.forever().next() {
                let _ = std::fs::remove_file(path);
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        })
        .map_err(CliError::no_thread)?;
    Ok(RemovalGuard(handle))
}
