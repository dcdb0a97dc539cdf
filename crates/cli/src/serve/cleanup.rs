//! Objects that the server made in the file system, removed however it ends (but by `kill -9`).

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use cryptline_sys::lock;

/// Removes everything that was added, the last first, when dropped.
#[derive(Default)]
pub struct Cleanup(Remover);

/// The same from another thread, for a server that has no time to end properly.
#[derive(Clone, Default)]
pub struct Remover(Arc<Mutex<Vec<MadeObject>>>);

/// Objects that the server made, by kind.
#[derive(Debug, Default)]
pub struct Paths {
    /// Files and sockets.
    pub files: Vec<PathBuf>,
    /// Directories.
    pub directories: Vec<PathBuf>,
    /// All of them, with what each was when it was made.
    pub identities: Vec<(PathBuf, FileIdentity)>,
}

/// Device and inode.
pub type FileIdentity = (u64, u64);

enum MadeObject {
    Directory {
        path: PathBuf,
        identity: Option<FileIdentity>,
    },
    /// A file or socket, by what it is and not only by its name: the name may be somebody
    /// else's by then.
    File {
        path: PathBuf,
        identity: FileIdentity,
    },
}

impl Cleanup {
    /// Remembers an empty directory.
    pub fn add_directory(&self, path: &Path) {
        let identity = fs::symlink_metadata(path).as_ref().map(identity).ok();
        let path = path.to_owned();
        self.add(MadeObject::Directory { path, identity });
    }

    /// Remembers a file or socket, which must exist.
    pub fn add_file(&self, path: &Path) -> io::Result<()> {
        let identity = identity(&fs::symlink_metadata(path)?);
        let path = path.to_owned();
        self.add(MadeObject::File { path, identity });
        Ok(())
    }

    /// Returns what there is to remove.
    pub fn made(&self) -> Paths {
        let mut paths = Paths::default();
        for made in lock(&self.0.0).iter() {
            match made {
                MadeObject::Directory { path, identity } => {
                    paths.directories.push(path.clone());
                    let known = identity.map(|identity| (path.clone(), identity));
                    paths.identities.extend(known);
                }
                MadeObject::File { path, identity } => {
                    paths.files.push(path.clone());
                    paths.identities.push((path.clone(), *identity));
                }
            }
        }
        paths
    }

    /// For the thread that ends the process at once.
    pub fn remover(&self) -> Remover {
        self.0.clone()
    }

    fn add(&self, made: MadeObject) {
        lock(&self.0.0).push(made);
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        self.0.remove_all();
    }
}

impl Remover {
    /// Removes everything; what is gone already or cannot be removed is left.
    pub fn remove_all(&self) {
        for made in lock(&self.0).drain(..).rev() {
            let _ = match made {
                MadeObject::Directory { path, .. } => fs::remove_dir(path),
                MadeObject::File { path, identity: ours } => match fs::symlink_metadata(&path) {
                    Ok(found) if identity(&found) == ours => fs::remove_file(path),
                    _ => Ok(()),
                },
            };
        }
    }
}

/// The folder that a path's last name is in.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn identity(metadata: &Metadata) -> FileIdentity {
    (metadata.dev(), metadata.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_is_removed_and_what_took_its_place_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("made");
        let (ours, replaced) = (directory.join("ours"), folder.path().join("replaced"));
        fs::create_dir(&directory).unwrap();
        let cleanup = Cleanup::default();
        cleanup.add_directory(&directory);
        for path in [&ours, &replaced] {
            fs::write(path, "x").unwrap();
            cleanup.add_file(path).unwrap();
        }
        let new = folder.path().join("new");
        fs::write(&new, "somebody else's").unwrap();
        fs::rename(&new, &replaced).unwrap();
        drop(cleanup);
        assert!(!directory.exists());
        assert!(replaced.exists());
    }
}
