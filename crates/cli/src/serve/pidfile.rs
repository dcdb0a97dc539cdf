//! `--pidfile`: appears whole, and only when clients can connect.

use std::fs;
use std::path::{Path, PathBuf};

use super::cleanup::Cleanup;
use crate::CliError;

/// Writes our process id to `path`, replacing an old file; it is removed at exit.
pub fn write(path: &Path, cleanup: &Cleanup) -> Result<(), CliError> {
    let id = std::process::id();
    let failed = |error| {
        CliError::parameters(format!(
            "cannot write the pid file {}: {error}; choose another --pidfile",
            path.display()
        ))
    };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{id}.new"));
    let new: PathBuf = path.with_file_name(name);
    let written = fs::write(&new, format!("{id}\n"))
        .and_then(|()| fs::rename(&new, path))
        .and_then(|()| cleanup.add_file(path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written.map_err(failed)
}
