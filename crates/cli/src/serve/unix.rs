//! Unix sockets to listen on, with a name or private.
//!
//! A name in the way is treated by what it is:
//!
//! | what is at the path | what happens |
//! |---|---|
//! | nothing | bound |
//! | a socket nobody listens on | replaced: its server died |
//! | a socket somebody listens on | exit code 5 |
//! | anything else | never removed; exit code 5 |
//!
//! A socket is its owner's whatever the umask, unless `--socket-mode` says otherwise.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::cleanup::{Cleanup, folder_of};
use crate::CliError;

/// How long to wait for another server that is just taking the same path.
const PATH_LOCK_MAX: Duration = Duration::from_secs(2);
/// Longest path of a Unix socket in bytes (unix(7)).
pub const UNIX_PATH_MAX: usize = 107;

/// Clients that may wait to be accepted; the system lowers it to its own limit.
const BACKLOG: i32 = 1024;
/// Nobody but the owner.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Listens at `path`, with these permissions.
pub fn bind(path: &Path, mode: Mode, cleanup: &Cleanup) -> Result<UnixListener, CliError> {
    let failed = |error| cannot_listen(&path.display(), &error);
    // Two servers that both find a dead socket must not both replace it.
    let _lock = PathLock::take(path)?;
    if check(path)? == FoundObject::DeadSocket {
        fs::remove_file(path).map_err(failed)?;
    }
    let listener = listen_at(path, mode).map_err(|error| failed(error.into()))?;
    cleanup.add_file(path).map_err(failed)?;
    Ok(listener)
}

/// Listens at `name` in a folder that only this user can enter; not in a folder of the user's where the server
/// `changes_user`, since the other one cannot enter that. `option` is the one that names a socket instead.
pub fn bind_private(
    name: &str,
    option: &str,
    changes_user: bool,
    cleanup: &Cleanup,
) -> Result<(PathBuf, UnixListener), CliError> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let of_user = PathBuf::from(format!("/run/user/{}", rustix::process::geteuid().as_raw()));
    let mut places = vec![std::env::temp_dir()];
    if !changes_user {
        places.splice(0..0, runtime);
        places.push(of_user);
    }
    places.push(PathBuf::from("/dev/shm"));
    let folder = private_folder(&places).map_err(|error| {
        let temporary = std::env::temp_dir();
        CliError::parameters(format!(
            "cannot make a folder for the socket, neither in {} nor elsewhere: {error}; name a socket with {option} PATH, or set TMPDIR to another folder",
            temporary.display()
        ))
    })?;
    cleanup.add_directory(&folder);
    let path = folder.join(name);
    let listener = bind(&path, PRIVATE, cleanup)?;
    Ok((path, listener))
}

/// A new folder in the first of `places` that takes one, for this user alone; the last error where none does.
fn private_folder(places: &[PathBuf]) -> io::Result<PathBuf> {
    let mut folder = tempfile::Builder::new();
    folder.prefix("cryptline-").rand_bytes(16);
    folder.permissions(Permissions::from_mode(0o700));
    let mut failed = io::ErrorKind::NotFound.into();
    for place in places {
        match folder.tempdir_in(place) {
            Ok(made) => return Ok(made.keep()),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// The permissions are the socket's before it has a name, and nobody can connect before the end.
fn listen_at(path: &Path, mode: Mode) -> Result<UnixListener, Errno> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Linux gives these to the file, less what the umask forbids. Where this fails, `set_mode` still
    // comes before `listen`.
    let _ = rustix::fs::fchmod(&socket, mode);
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    let listens = set_mode(path, mode).and_then(|()| rustix::net::listen(&socket, BACKLOG));
    if let Err(error) = listens {
        let _ = fs::remove_file(path);
        return Err(error);
    }
    Ok(UnixListener::from(socket))
}

/// Gives the socket at `path` its permissions, and never what somebody put in its place.
fn set_mode(path: &Path, mode: Mode) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&file)?;
    let is_ours = FileType::from_raw_mode(found.st_mode) == FileType::Socket
        && found.st_uid == rustix::process::geteuid().as_raw();
    if !is_ours {
        return Err(Errno::EXIST);
    }
    if Mode::from_raw_mode(found.st_mode) == mode {
        return Ok(());
    }
    let place = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::chmod(place, mode)
}

/// Objects that may be at a path.
#[derive(Debug, PartialEq, Eq)]
pub enum FoundObject {
    /// Free to be bound.
    Nothing,
    /// Free to be replaced.
    DeadSocket,
}

/// Finds what `bind` would refuse.
pub fn check(path: &Path) -> Result<FoundObject, CliError> {
    let shown = path.display();
    if path.as_os_str().len() > UNIX_PATH_MAX {
        return Err(CliError::parameters(format!(
            "{shown}: the path of a Unix socket has at most {UNIX_PATH_MAX} bytes; choose a shorter one"
        )));
    }
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(FoundObject::Nothing),
        Err(error) => return Err(cannot_listen(&shown, &error)),
    };
    if !metadata.file_type().is_socket() {
        return Err(CliError::busy(format!("{shown} exists and is not a socket; remove it or choose another path")));
    }
    match probe(path) {
        Err(Errno::CONNREFUSED) => Ok(FoundObject::DeadSocket),
        Err(Errno::NOENT) => Ok(FoundObject::Nothing),
        Err(Errno::ACCESS) => Err(CliError::busy(format!("{shown} is another user's socket; choose another path"))),
        _ => Err(CliError::busy(format!("another server listens on {shown}; stop it or choose another path"))),
    }
}

/// Connects without waiting: a live server with a full queue is not waited for.
fn probe(path: &Path) -> Result<(), Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)
}

/// Held while the state of a path is looked at and changed. It is a file beside it that only its owner can open: whoever
/// can read the folder could hold a lock of that.
struct PathLock {
    file: File,
    path: PathBuf,
}

impl PathLock {
    fn take(path: &Path) -> Result<Self, CliError> {
        let mut name = OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(".lock");
        let folder = folder_of(path);
        // Nobody has a lock that this user could not make.
        let may_make = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        rustix::fs::accessat(rustix::fs::CWD, folder, may_make, rustix::fs::AtFlags::EACCESS)
            .map_err(|errno| cannot_listen(&path.display(), &errno.into()))?;
        let place = folder.join(name);
        let deadline = Instant::now() + PATH_LOCK_MAX;
        loop {
            match Self::try_take(&place) {
                Ok(Some(lock)) => return Ok(lock),
                Ok(None) | Err(Errno::ACCESS) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Ok(None) | Err(Errno::ACCESS | Errno::EXIST | Errno::LOOP | Errno::ISDIR) => {
                    return Err(CliError::busy(format!(
                        "{} cannot be locked: another server is starting there, or the file belongs to somebody else; try again, remove it, or choose another folder for the socket",
                        place.display()
                    )));
                }
                Err(errno) => return Err(cannot_listen(&path.display(), &errno.into())),
            }
        }
    }

    /// `None` while another has it.
    fn try_take(path: &Path) -> Result<Option<Self>, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(path, flags, PRIVATE)?);
        let found = rustix::fs::fstat(&file)?;
        let others = Mode::RWXG | Mode::RWXO;
        let is_ours = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
            && found.st_uid == rustix::process::geteuid().as_raw()
            && !Mode::from_raw_mode(found.st_mode).intersects(others);
        if !is_ours {
            return Err(Errno::EXIST);
        }
        let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        // Else it is taken, or a file system without locks.
        if let Err(Errno::WOULDBLOCK | Errno::INTR) = locked {
            return Ok(None);
        }
        // Whoever had it before has removed it.
        let named = rustix::fs::lstat(path);
        let is_named = named.is_ok_and(|named| (named.st_dev, named.st_ino) == (found.st_dev, found.st_ino));
        Ok(is_named.then(|| Self { file, path: path.to_owned() }))
    }
}

impl Drop for PathLock {
    fn drop(&mut self) {
        // Before it is unlocked. One that stays is taken by the next server.
        let _ = fs::remove_file(&self.path);
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

pub(super) fn cannot_listen(place: &dyn std::fmt::Display, error: &io::Error) -> CliError {
    let message = format!("cannot listen on {place}: {error}; choose another path");
    match error.kind() {
        io::ErrorKind::AddrInUse => CliError::busy(message),
        _ => CliError::parameters(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let cleanup = Cleanup::default();
        let first = bind(&path, PRIVATE, &cleanup).unwrap();
        let second = bind(&path, PRIVATE, &cleanup);
        assert_eq!(second.unwrap_err().exit_code(), 5);
        drop(first);
        bind(&path, PRIVATE, &cleanup).unwrap();
    }

    /// Any user can hold a lock of a folder that all can read.
    #[test]
    fn a_folder_that_others_keep_locked_keeps_no_server_from_starting() {
        let folder = tempfile::tempdir().unwrap();
        let locked = File::open(folder.path()).unwrap();
        rustix::fs::flock(&locked, FlockOperation::LockExclusive).unwrap();
        let cleanup = Cleanup::default();
        let _socket = bind(&folder.path().join("s"), PRIVATE, &cleanup).unwrap();
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "nothing but the socket: {left:?}");
    }

    #[test]
    fn a_dead_socket_is_replaced_by_one_server_of_many() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        for _ in 0..20 {
            drop(listen_at(&path, PRIVATE).unwrap());
            let start = std::sync::Barrier::new(8);
            let bound: Vec<_> = std::thread::scope(|scope| {
                let serve = || {
                    start.wait();
                    let cleanup = Cleanup::default();
                    let bound = bind(&path, PRIVATE, &cleanup).ok();
                    // It stays for the others.
                    std::mem::forget(cleanup);
                    bound
                };
                let threads: Vec<_> = (0..8).map(|_| scope.spawn(serve)).collect();
                threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(bound.len(), 1);
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_lock_that_others_can_open_or_that_is_none_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (path, lock) = (folder.path().join("s"), folder.path().join(".s.lock"));
        let victim = folder.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let refused = || assert_eq!(bind(&path, PRIVATE, &Cleanup::default()).unwrap_err().exit_code(), 5);
        fs::write(&lock, "").unwrap();
        fs::set_permissions(&lock, Permissions::from_mode(0o644)).unwrap();
        refused();
        fs::remove_file(&lock).unwrap();
        std::os::unix::fs::symlink(&victim, &lock).unwrap();
        refused();
        fs::remove_file(&lock).unwrap();
        fs::create_dir(&lock).unwrap();
        refused();
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
    }

    #[test]
    fn a_live_server_with_a_full_queue_is_live() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&socket, 0).unwrap();
        let waiting: Vec<_> = (0..4).map(|_| probe(&path)).collect();
        assert!(waiting.contains(&Err(Errno::AGAIN)) || waiting.iter().all(Result::is_ok));
        assert_eq!(check(&path).unwrap_err().exit_code(), 5);
    }

    #[test]
    fn files_folders_and_dangling_links_in_the_way_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("f"), folder.path().join("l"));
        fs::write(&file, "precious").unwrap();
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        for path in [&file, &link, &folder.path().to_owned()] {
            let error = bind(path, PRIVATE, &Cleanup::default()).unwrap_err();
            assert_eq!(error.exit_code(), 5, "{error}");
        }
        assert_eq!(fs::read(&file).unwrap(), b"precious");
        assert!(fs::symlink_metadata(&link).is_ok());
    }

    #[test]
    fn folder_that_takes_nothing_is_named_as_such_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let gone = folder.path().join("gone").join("s");
        let error = bind(&gone, PRIVATE, &Cleanup::default()).unwrap_err();
        assert_eq!(error.exit_code(), 1);
        assert!(error.to_string().starts_with("cannot listen on "), "{error}");
        if rustix::process::geteuid().is_root() {
            // Nobody is held off by permissions then: a folder of the kernel's is.
            let error = bind(Path::new("/proc/s"), PRIVATE, &Cleanup::default()).unwrap_err();
            assert_eq!(error.exit_code(), 1, "{error}");
            return;
        }
        fs::set_permissions(folder.path(), Permissions::from_mode(0o500)).unwrap();
        let error = bind(&folder.path().join("s"), PRIVATE, &Cleanup::default()).unwrap_err();
        assert_eq!(error.exit_code(), 1, "{error}");
    }

    #[test]
    fn private_folder_is_made_in_the_first_place_that_takes_one() {
        let good = tempfile::tempdir().unwrap();
        let file = good.path().join("file");
        fs::write(&file, "").unwrap();
        let (gone, good) = (good.path().join("gone"), good.path().to_owned());
        let folder = private_folder(&[gone.clone(), file.clone(), good.clone()]).unwrap();
        assert_eq!(folder.parent(), Some(&*good));
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(private_folder(&[gone, file]).is_err());
    }

    #[test]
    fn a_path_longer_than_a_socket_can_have_is_named() {
        let error = check(&std::env::temp_dir().join("x".repeat(120))).unwrap_err();
        assert!(error.to_string().contains("107 bytes"), "{error}");
        assert_eq!(error.exit_code(), 1);
    }
}
