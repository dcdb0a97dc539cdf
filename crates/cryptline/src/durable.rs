//! Where files and folders are made durable: all of it in one place, so that a test can tell what a crash would leave.

use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
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

/// Tells one file from all others, as long as it is open.
pub(crate) fn identity(metadata: io::Result<Metadata>) -> Option<(u64, u64)> {
    metadata.map(|it| (it.dev(), it.ino())).ok()
}

/// Tells if an open file is the one of this name, links not followed.
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    let file = identity(file.metadata());
    file.is_some() && file == identity(std::fs::symlink_metadata(path))
}

/// Gives `file` the name `to` instead of `from`: a free one, or that of `old`, which is gone then, or stays under `from` if
/// it cannot be removed. No name is durable by that.
///
/// # Errors
/// `NotFound` where `from` is not its name, and `AlreadyExists` where `to` is that of a file other than `old`.
// Guard: a file would be lost that nobody has looked at, or locked.
pub(crate) fn rename(file: &File, from: &Path, to: &Path, old: Option<&File>) -> io::Result<()> {
    if !is_at(file, from) {
        return Err(io::ErrorKind::NotFound.into());
    }
    let Some(old) = old.filter(|old| is_at(old, to)) else {
        return take_free(from, to);
    };
    let swap = || renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE);
    match swap() {
        Ok(()) if is_at(old, from) => {
            let _ = std::fs::remove_file(from);
            Ok(())
        }
        // Another one got the name just before.
        Ok(()) => swap().map_err(io::Error::from).and(Err(io::ErrorKind::AlreadyExists.into())),
        Err(errno) if cannot(errno) && is_at(old, to) => std::fs::rename(from, to),
        // It has lost its name.
        Err(errno) if cannot(errno) || errno == Errno::NOENT => take_free(from, to),
        Err(errno) => Err(errno.into()),
    }
}

fn take_free(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(errno) if cannot(errno) => {}
        done => return Ok(done?),
    }
    match std::fs::hard_link(from, to) {
        Ok(()) => {
            let _ = std::fs::remove_file(from);
            Ok(())
        }
        // No links either: another one may get the name in this moment.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists && is_free(to) => std::fs::rename(from, to),
        Err(error) => Err(error),
    }
}

fn is_free(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Tells if a file system has no such rename.
fn cannot(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::XDEV)
}

/// [Renames](rename) a file that is deleted where it has no other name. Whatever has its name in its place stays.
pub(crate) fn rename_temporary(file: &mut NamedTempFile, to: &Path, old: Option<&File>) -> io::Result<()> {
    let renamed = rename(file.as_file(), file.path(), to, old);
    let is_named_so = is_at(file.as_file(), file.path());
    file.disable_cleanup(!is_named_so);
    renamed
}

/// Writes a small file in the place of `old`, which was looked at, with its permissions; or where there is none. Wherever that
/// is cut off, the old one is there, or the new one whole.
pub(crate) fn replace(path: &Path, bytes: &[u8], old: Option<&File>) -> io::Result<()> {
    // A link is followed, so that it is not replaced by the file it leads to.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = NamedTempFile::with_prefix_in(".cryptline-", folder)?;
    if let Some(old) = old {
        let old = old.metadata()?;
        file.as_file().set_permissions(old.permissions())?;
        // Only root can, and only there is another owner to be kept.
        let _ = fchown(file.as_file(), Some(old.uid()), Some(old.gid()));
    }
    file.write_all(bytes)?;
    sync_all(file.as_file())?;
    rename_temporary(&mut file, &path, old)?;
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_the_file_that_was_looked_at_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let [path, away] = ["path", "away"].map(|name| folder.path().join(name));
        let names = || fs::read_dir(folder.path()).unwrap().count();
        replace(&path, b"first", None).unwrap();
        let first = File::open(&path).unwrap();
        replace(&path, b"second", Some(&first)).unwrap();
        assert_eq!((fs::read(&path).unwrap(), names()), (b"second".to_vec(), 1));
        // Another one has the name meanwhile; or nobody knew of any.
        for old in [Some(&first), None] {
            let refused = replace(&path, b"third", old).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
            assert_eq!((fs::read(&path).unwrap(), names()), (b"second".to_vec(), 1));
        }
        let second = File::open(&path).unwrap();
        fs::rename(&path, &away).unwrap();
        replace(&path, b"third", Some(&second)).unwrap();
        assert_eq!((fs::read(&path).unwrap(), fs::read(&away).unwrap()), (b"third".to_vec(), b"second".to_vec()));
    }
}
