//! Keeps key memory of this process out of other hands, and the process alive.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cryptline::Warning;
use cryptline_sys::key_memory_is_locked;
use rustix::process::{DumpableBehavior, Resource, getrlimit, set_dumpable_behavior, setrlimit};
use signal_hook::consts::SIGXFSZ;

/// Permission of others to read a file, or to pass through a folder.
const OTHERS_READ: u32 = 0o004;
const OTHERS_ENTER: u32 = 0o001;

/// No core dump of this process, and no other process of the same user may look into its memory; as
/// much locked memory as the user may have.
///
/// Best effort: locked and wiped key memory does not depend on it.
pub fn protect_process() {
    let mut core = getrlimit(Resource::Core);
    core.current = Some(0);
    let _ = setrlimit(Resource::Core, core);
    let mut locked = getrlimit(Resource::Memlock);
    locked.current = locked.maximum;
    let _ = setrlimit(Resource::Memlock, locked);
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Says that keys may reach the swap space, unless that is known already. After a failure, too: a key may have
/// been read before it.
pub fn warn_of_unlocked_keys() {
    if !key_memory_is_locked() {
        crate::output::warn_of(&[Warning::KeysNotLocked]);
    }
}

/// A limit on file sizes (`ulimit -f`) becomes an error of the write, `EFBIG`, instead of the program's
/// death. By a handler: a command that is started from here has the signal as it was, which it would
/// not if it were ignored.
pub fn outlive_file_size_limit() {
    // Fails only without memory, and then leaves everything as it was.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// Returns what to say of a key that every user of this machine can read; `None` where they cannot, or where it is no
/// regular file.
pub fn exposed_key(path: &Path) -> Option<String> {
    let whole = path.canonicalize().ok()?;
    let mode = |path: &Path| fs::metadata(path).map_or(0, |found| found.permissions().mode());
    let is_file = fs::metadata(&whole).is_ok_and(|found| found.is_file());
    let readable = is_file && mode(&whole) & OTHERS_READ != 0;
    let reachable = || {
        let mut folders = whole.ancestors().skip(1);
        folders.all(|folder| mode(folder) & OTHERS_ENTER != 0)
    };
    (readable && reachable()).then(|| {
        let shown = path.display();
        format!("every user of this machine can read the key in {shown}; chmod 600 {shown}")
    })
}

/// Permission of others to write.
const OTHERS_WRITE: u32 = 0o022;
/// Only owners may rename and remove what is in a folder.
const STICKY: u32 = 0o1000;

/// Protection of what is in a folder that others may write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolderGuard {
    /// The sticky bit is enough: what is there stays.
    Sticky,
    /// Nothing: others can add to it.
    Nothing,
}

/// The first of `place` and its folders that others than this user and root could change, and why; `guard` is for the place
/// itself.
///
/// # Errors
/// One of them cannot be looked at.
pub fn others_change(place: &Path, guard: FolderGuard) -> io::Result<Option<(PathBuf, &'static str)>> {
    let own = rustix::process::geteuid().as_raw();
    let place = place.canonicalize()?;
    for (step, place) in place.ancestors().enumerate() {
        let found = fs::metadata(place)?;
        let (user, mode) = (found.uid(), found.mode());
        let is_guarded = found.is_dir() && mode & STICKY != 0 && (step > 0 || guard == FolderGuard::Sticky);
        if user != 0 && user != own {
            return Ok(Some((place.to_owned(), "belongs to another user")));
        }
        if mode & OTHERS_WRITE != 0 && !is_guarded {
            return Ok(Some((place.to_owned(), "can be written by others")));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_exposed_where_others_reach_and_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        fs::write(&path, "x").unwrap();
        for (in_folder, of_file, exposed) in [
            (0o700, 0o644, false),
            (0o711, 0o600, false),
            (0o711, 0o640, false),
            (0o711, 0o644, true),
            (0o711, 0o604, true),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(of_file)).unwrap();
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(in_folder)).unwrap();
            let said = exposed_key(&path);
            assert_eq!(said.is_some(), exposed, "{in_folder:o} {of_file:o}: {said:?}");
        }
        assert!(exposed_key(Path::new("/dev/null")).is_none());
        assert!(exposed_key(&folder.path().join("none")).is_none());
    }
}
