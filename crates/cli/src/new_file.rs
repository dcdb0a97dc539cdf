//! Small new files: whole and durable before they have their name, so that a process that is killed leaves no half of one
//! where others look for it. One that a signal ends takes the unfinished file with it, which may hold a key.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::io::Errno;
use tempfile::NamedTempFile;

use crate::cmd::create::signals::{RemovalGuard, remove_when_stopped};
use crate::serve::cleanup::folder_of;

/// A file beside its place.
pub struct NewFile<'a> {
    file: NamedTempFile,
    _guard: RemovalGuard,
    path: &'a Path,
}

impl<'a> NewFile<'a> {
    /// Makes one for `path`, with this mode.
    ///
    /// # Errors
    /// Something that is there; a folder in which no file can be made.
    pub fn aside(path: &'a Path, mode: u32) -> io::Result<Self> {
        if fs::symlink_metadata(path).is_ok() {
            return Err(Errno::EXIST.into());
        }
        let mut new = tempfile::Builder::new();
        let new = new.prefix(".cryptline-").permissions(Permissions::from_mode(mode));
        let file = new.tempfile_in(folder_of(path)).map_err(|error| {
            // Without its name, which is nobody's business.
            let text = error.to_string();
            io::Error::new(error.kind(), text.split(" at path ").next().unwrap_or_default())
        })?;
        let guard = remove_when_stopped(file.path()).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Self { file, _guard: guard, path })
    }

    /// Writes it, and gives it its name.
    ///
    /// # Errors
    /// Something that is there by now; a disk that is full or fails. There is no file then.
    pub fn put(mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        cryptline_sys::sync_all(self.file.as_file())?;
        self.file.persist_noclobber(self.path).map_err(|refused| refused.error)?;
        let named = File::open(folder_of(self.path)).and_then(cryptline_sys::sync_all);
        named.inspect_err(|_| _ = fs::remove_file(self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_has_its_name_when_it_is_whole_and_takes_that_of_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let names = || fs::read_dir(folder.path()).unwrap().count();
        let [first, second] = [0o600, 0o400].map(|mode| NewFile::aside(&path, mode).unwrap());
        assert!(!path.exists());
        second.put(b"whole").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o400);
        let kinds = [first.put(b"another"), NewFile::aside(&path, 0o600).map(drop)];
        assert!(kinds.into_iter().all(|refused| refused.unwrap_err().kind() == io::ErrorKind::AlreadyExists));
        assert_eq!((fs::read(&path).unwrap(), names()), (b"whole".to_vec(), 1));
        let lost = folder.path().join("no/new");
        assert_eq!(NewFile::aside(&lost, 0o600).err().unwrap().to_string(), io::Error::from(Errno::NOENT).to_string());
    }
}
