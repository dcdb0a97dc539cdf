//! Sockets to serve on: private and named Unix sockets, TCP.
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
//! A Unix socket is its owner's whatever the umask, unless `--socket-mode` says otherwise.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cryptline_nbd::uri::{Address, DEFAULT_PORT};
use cryptline_serve::nbd::Listener;
use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::cleanup::Cleanup;
use crate::CliError;

/// How long to wait for another server that is just taking a path in the same folder.
const FOLDER_LOCK_MAX: Duration = Duration::from_secs(2);
/// Longest path of a Unix socket in bytes (unix(7)).
const UNIX_PATH_MAX: usize = 107;

/// Clients that may wait to be accepted; the system lowers it to its own limit.
const BACKLOG: i32 = 1024;
/// Nobody but the owner.
pub const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Where to listen.
#[derive(Debug)]
pub struct Wanted {
    /// Unix sockets; `-` is a private one.
    pub unix: Vec<PathBuf>,
    /// Permissions of the Unix sockets that are not private.
    pub mode: Mode,
    /// TCP port; 0 lets the system choose.
    pub port: Option<u16>,
    /// Host name or address for TCP.
    pub address: Option<String>,
    /// The server becomes another user, who cannot enter `$XDG_RUNTIME_DIR` of this one.
    pub changes_user: bool,
}

/// Listening sockets, with what clients call them.
#[derive(Default)]
pub struct Sockets {
    /// To accept on.
    pub listeners: Vec<Listener>,
    /// Of the listeners, in the same order.
    pub addresses: Vec<Address>,
    /// Somebody on another machine could connect.
    pub beyond_loopback: bool,
}

impl Wanted {
    /// Finds most mistakes before a passphrase is asked for.
    pub fn check(&self) -> Result<(), CliError> {
        for path in self.unix.iter().filter(|path| !is_private(path)) {
            check_path(path)?;
        }
        self.bind_tcp().map(drop)
    }

    /// Binds everything; from now on clients can connect.
    pub fn bind(&self, cleanup: &Cleanup) -> Result<Sockets, CliError> {
        let mut sockets = Sockets::default();
        let nothing = self.unix.is_empty() && self.port.is_none() && self.address.is_none();
        let private = nothing.then(|| PathBuf::from("-"));
        for path in self.unix.iter().chain(&private) {
            let (path, listener) = if is_private(path) {
                bind_private(cleanup, self.changes_user)?
            } else {
                (path.clone(), bind_unix(path, self.mode)?)
            };
            cleanup
                .add_file(&path)
                .map_err(|error| cannot_listen(&path.display(), &error))?;
            sockets.listeners.push(Listener::Unix(listener));
            sockets.addresses.push(Address::Unix(absolute(path)));
        }
        for listener in self.bind_tcp()? {
            sockets.add_tcp(listener)?;
        }
        Ok(sockets)
    }

    fn bind_tcp(&self) -> Result<Vec<TcpListener>, CliError> {
        if self.port.is_none() && self.address.is_none() {
            return Ok(Vec::new());
        }
        let host = self.address.as_deref().unwrap_or("127.0.0.1");
        let port = self.port.unwrap_or(DEFAULT_PORT);
        let found = (host, port).to_socket_addrs().map_err(|error| {
            CliError::parameters(format!(
                "{host} is no address of this machine ({error}); give one with --ip-addr"
            ))
        })?;
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for address in found {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        if port == 0 {
            // Each would get a port of its own.
            addresses.truncate(1);
        }
        addresses
            .into_iter()
            .map(|address| TcpListener::bind(address).map_err(|error| tcp_error(address, &error)))
            .collect()
    }
}

impl Sockets {
    /// Adds a TCP socket that listens.
    pub fn add_tcp(&mut self, listener: TcpListener) -> Result<(), CliError> {
        let address = listener
            .local_addr()
            .map_err(|error| cannot_listen(&"a TCP socket", &error))?;
        self.beyond_loopback |= !address.ip().is_loopback();
        self.addresses.push(Address::Tcp {
            host: host_for_clients(address.ip()),
            port: address.port(),
        });
        self.listeners.push(Listener::Tcp(listener));
        Ok(())
    }
}

/// Every address of this machine has no name; clients on it say "localhost".
fn host_for_clients(ip: IpAddr) -> String {
    if ip.is_unspecified() {
        return "localhost".to_owned();
    }
    ip.to_string()
}

fn is_private(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// A socket that only this user can reach, in a folder that only this user can enter.
fn bind_private(
    cleanup: &Cleanup,
    changes_user: bool,
) -> Result<(PathBuf, UnixListener), CliError> {
    let folder = private_folder(changes_user)
        .map_err(|error| cannot_listen(&"a socket in a temporary folder", &error))?;
    cleanup.add_directory(&folder);
    let path = folder.join("nbd.sock");
    let listener = bind_unix(&path, PRIVATE)?;
    Ok((path, listener))
}

fn private_folder(changes_user: bool) -> io::Result<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let places = runtime
        .filter(|path| path.is_absolute() && !changes_user)
        .into_iter()
        .chain([std::env::temp_dir()]);
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for place in places {
        for _ in 0..16 {
            let mut random = [0; 8];
            rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
            let name = format!("cryptline-{:016x}", u64::from_ne_bytes(random));
            let folder = place.join(name);
            match DirBuilder::new().mode(0o700).create(&folder) {
                Ok(()) => return Ok(folder),
                Err(error) => last = error,
            }
            if last.kind() != io::ErrorKind::AlreadyExists {
                break;
            }
        }
    }
    Err(last)
}

/// Binds a named Unix socket with these permissions.
pub(super) fn bind_unix(path: &Path, mode: Mode) -> Result<UnixListener, CliError> {
    // Two servers that both find a dead socket must not both replace it.
    let _lock = lock_folder_of(path)?;
    if check_path(path)? == Found::DeadSocket {
        fs::remove_file(path).map_err(|error| cannot_listen(&path.display(), &error))?;
    }
    listen_at(path, mode).map_err(|error| cannot_listen(&path.display(), &error.into()))
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

#[derive(Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    DeadSocket,
}

fn check_path(path: &Path) -> Result<Found, CliError> {
    let shown = path.display();
    if path.as_os_str().len() > UNIX_PATH_MAX {
        return Err(CliError::parameters(format!(
            "{shown}: the path of a Unix socket has at most {UNIX_PATH_MAX} bytes; choose a shorter one"
        )));
    }
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(cannot_listen(&shown, &error)),
    };
    if !metadata.file_type().is_socket() {
        return Err(CliError::busy(format!(
            "{shown} exists and is not a socket; remove it or choose another path"
        )));
    }
    match probe(path) {
        Err(Errno::CONNREFUSED) => Ok(Found::DeadSocket),
        Err(Errno::NOENT) => Ok(Found::Nothing),
        Err(Errno::ACCESS) => Err(CliError::busy(format!(
            "{shown} is another user's socket; choose another path"
        ))),
        _ => Err(CliError::busy(format!(
            "another server listens on {shown}; stop it or choose another path"
        ))),
    }
}

/// Connects without waiting: a live server with a full queue is not waited for.
fn probe(path: &Path) -> Result<(), Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)
}

/// Held while the state of a path is looked at and changed.
fn lock_folder_of(path: &Path) -> Result<File, CliError> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let shown = folder.display();
    let file = File::open(folder).map_err(|error| cannot_listen(&path.display(), &error))?;
    let deadline = Instant::now() + FOLDER_LOCK_MAX;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(CliError::busy(format!(
                    "{shown} is locked by another program; choose another folder for the socket"
                )));
            }
            // Taken, or a file system without locks.
            _ => return Ok(file),
        }
    }
}

fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

fn cannot_listen(place: &dyn std::fmt::Display, error: &io::Error) -> CliError {
    let message = format!("cannot listen on {place}: {error}; choose another path");
    match error.kind() {
        io::ErrorKind::AddrInUse => CliError::busy(message),
        _ => CliError::parameters(message),
    }
}

fn tcp_error(address: SocketAddr, error: &io::Error) -> CliError {
    match error.kind() {
        io::ErrorKind::AddrInUse => CliError::busy(format!(
            "another program listens on {address}; choose another --port"
        )),
        io::ErrorKind::PermissionDenied => CliError::parameters(format!(
            "no permission to listen on {address}; choose a --port from 1024 up"
        )),
        io::ErrorKind::AddrNotAvailable => CliError::parameters(format!(
            "{} is no address of this machine; give one with --ip-addr",
            address.ip()
        )),
        _ => CliError::parameters(format!("cannot listen on {address}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let first = bind_unix(&path, PRIVATE).unwrap();
        assert_eq!(bind_unix(&path, PRIVATE).unwrap_err().exit_code(), 5);
        drop(first);
        bind_unix(&path, PRIVATE).unwrap();
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
        assert_eq!(check_path(&path).unwrap_err().exit_code(), 5);
    }

    #[test]
    fn files_folders_and_dangling_links_in_the_way_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("f"), folder.path().join("l"));
        fs::write(&file, "precious").unwrap();
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        for path in [&file, &link, &folder.path().to_owned()] {
            let error = bind_unix(path, PRIVATE).unwrap_err();
            assert_eq!(error.exit_code(), 5, "{error}");
        }
        assert_eq!(fs::read(&file).unwrap(), b"precious");
        assert!(fs::symlink_metadata(&link).is_ok());
    }

    #[test]
    fn a_path_longer_than_a_socket_can_have_is_named() {
        let error = bind_unix(&std::env::temp_dir().join("x".repeat(120)), PRIVATE).unwrap_err();
        assert!(error.to_string().contains("107 bytes"), "{error}");
        assert_eq!(error.exit_code(), 1);
    }

    #[test]
    fn a_taken_port_is_busy() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let wanted = Wanted {
            unix: Vec::new(),
            mode: PRIVATE,
            port: Some(taken.local_addr().unwrap().port()),
            address: None,
            changes_user: false,
        };
        assert_eq!(wanted.check().unwrap_err().exit_code(), 5);
    }
}
