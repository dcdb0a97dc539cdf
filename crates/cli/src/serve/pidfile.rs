//! `--pidfile`: appears whole, and only when clients can connect.

use std::fs::{self, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::cleanup::{Cleanup, folder_of};
use crate::CliError;

/// Everybody may read it, whom the umask lets.
const MODE: u32 = 0o644;

/// No pid file is longer.
const LEN_MAX: u64 = 32;
/// Linux has processes up to 4194304.
const DIGITS_MAX: usize = 7;

/// Refuses a path where something is that is no pid file, before anybody waits for a key.
pub fn check(path: &Path) -> Result<(), CliError> {
    let shown = path.display();
    match fs::symlink_metadata(path) {
        Ok(found) if !found.is_symlink() && !is_pid_file(path, &found) => {
            Err(CliError::busy(format!("{shown} exists and is not a pid file; remove it or choose another --pidfile")))
        }
        _ => Ok(()),
    }
}

/// A number and the end of its line, or nothing: whoever wrote it may have been cut short. Key files are as small.
fn is_pid_file(path: &Path, found: &Metadata) -> bool {
    let is_small = found.is_file() && found.len() <= LEN_MAX;
    is_small
        && fs::read(path).is_ok_and(|bytes| {
            let number = bytes.trim_ascii();
            let is_number = (1..=DIGITS_MAX).contains(&number.len()) && number.iter().all(u8::is_ascii_digit);
            is_number || bytes.is_empty()
        })
}

/// Writes our process id to `path`, replacing an old file or link; it is removed at exit.
pub fn write(path: &Path, cleanup: &Cleanup) -> Result<(), CliError> {
    check(path)?;
    replace(path).and_then(|()| cleanup.add_file(path)).map_err(|error| {
        // Without the name of the unfinished file, which is nobody's business.
        let cause = match error.kind() {
            io::ErrorKind::NotFound => format!("the folder {} does not exist", folder_of(path).display()),
            kind if error.get_ref().is_some() => io::Error::from(kind).to_string(),
            _ => error.to_string(),
        };
        CliError::parameters(format!("cannot write the pid file {}: {cause}; choose another --pidfile", path.display()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_a_pid_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        for (content, is_replaced) in [
            ("1\n", true),
            ("4194304\n", true),
            ("4194304", true),
            ("", true),
            ("secret", false),
            ("secret\n", false),
            ("12345678\n", false),
            ("1\n2\n", false),
            ("   ", false),
            ("\u{1}\u{2}\u{3}", false),
        ] {
            fs::write(&path, content).unwrap();
            assert_eq!(check(&path).is_ok(), is_replaced, "{content:?}");
        }
        fs::write(&path, [b'1'; 64]).unwrap();
        assert!(check(&path).is_err());
        fs::remove_file(&path).unwrap();
        assert!(check(&path).is_ok());
    }
}
