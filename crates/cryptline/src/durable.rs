//! Where files and folders are made durable: all of it in one place, so that a test can tell what a crash would leave.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;

use tempfile::NamedTempFile;

/// Makes durable what a file, or a folder, has and what it is.
pub(crate) fn sync_all(file: &File) -> io::Result<()> {
    #[cfg(test)]
    if let Some(synced) = watched::synced(file) {
        return synced;
    }
    cryptline_sys::sync_all(file)
}

/// Makes durable what a file has.
pub(crate) fn sync_data(file: &File) -> io::Result<()> {
    #[cfg(test)]
    if let Some(synced) = watched::synced(file) {
        return synced;
    }
    cryptline_sys::sync_data(file)
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path).and_then(|folder| sync_all(&folder))
}

/// Files that another one may take the place of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replaced {
    /// One of this name, if there is any. The new one has its permissions.
    Any,
    /// None: where there is one, that is an error.
    Nothing,
}

/// Writes a small file. Whatever cuts that off, the old one is there, or the new one whole.
pub(crate) fn replace(path: &Path, bytes: &[u8], replaced: Replaced) -> io::Result<()> {
    // A link is followed, so that it is not replaced by the file it leads to.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = NamedTempFile::with_prefix_in(".cryptline-", folder)?;
    if let (Replaced::Any, Ok(old)) = (replaced, std::fs::metadata(&path)) {
        if !old.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        file.as_file().set_permissions(old.permissions())?;
        // Only root can, and only there is another owner to be kept.
        let _ = fchown(file.as_file(), Some(old.uid()), Some(old.gid()));
    }
    file.write_all(bytes)?;
    sync_all(file.as_file())?;
    let named = if replaced == Replaced::Any { file.persist(&path) } else { file.persist_noclobber(&path) };
    named.map_err(|error| error.error)?;
    sync_folder(folder)
}

/// The machines of tests, which are told of the syncs of what is theirs.
#[cfg(test)]
pub(crate) mod watched {
    use std::fs::File;
    use std::io;
    use std::sync::Mutex;

    use cryptline_testkit::cache::Machine;

    static MACHINES: Mutex<Vec<&'static Machine>> = Mutex::new(Vec::new());

    /// A machine that is told from now on.
    pub(crate) fn machine() -> &'static Machine {
        let machine = Machine::new();
        cryptline_sys::lock(&MACHINES).push(machine);
        machine
    }

    pub(super) fn synced(file: &File) -> Option<io::Result<()>> {
        let machines = cryptline_sys::lock(&MACHINES).clone();
        machines.into_iter().find_map(|machine| machine.synced(file))
    }
}
