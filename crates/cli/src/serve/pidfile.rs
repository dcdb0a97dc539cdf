//! `--pidfile`: appears whole, and only when clients can connect.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::cleanup::{Cleanup, folder_of};
use crate::CliError;

/// Everybody may read it, whom the umask lets.
const MODE: u32 = 0o644;

/// No pid file is longer.
const LEN_MAX: u64 = 32;

/// Refuses a path where something is that is no pid file, before anybody waits for a key.
pub fn check(path: &Path) -> Result<(), CliError> {
    let shown = path.display();
    match fs::symlink_metadata(path) {
        Ok(found) if !found.is_symlink() && (!found.is_file() || found.len() > LEN_MAX) => {
            Err(CliError::busy(format!(
                "{shown} exists and is not a pid file; remove it or choose another --pidfile"
            )))
        }
        _ => Ok(()),
    }
}

/// Writes our process id to `path`, replacing an old file or link; it is removed at exit.
pub fn write(path: &Path, cleanup: &Cleanup) -> Result<(), CliError> {
    check(path)?;
    replace(path)
        .and_then(|()| cleanup.add_file(path))
        .map_err(|error| {
            // Below a wrapper that names the unfinished file, which is nobody's business.
            let cause = error.get_ref().and_then(|inner| inner.source());
            let cause = cause.map_or_else(|| error.to_string(), ToString::to_string);
            CliError::parameters(format!(
                "cannot write the pid file {}: {cause}; choose another --pidfile",
                path.display()
            ))
        })
}

/// The unfinished file is new and has a name that nobody can guess, so no link leads it elsewhere.
fn replace(path: &Path) -> io::Result<()> {
    let mut file = tempfile::Builder::new()
        .prefix(".cryptline-")
        .permissions(Permissions::from_mode(MODE))
        .tempfile_in(folder_of(path))?;
    writeln!(file, "{}", std::process::id())?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
