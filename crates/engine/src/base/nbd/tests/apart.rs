//! Processes that clients see as the server of a script, which stays in the test: one listens, and answers as the script
//! does.
//!
//! ```text
//! client ─► socket of the server, in a process of its own ─► socket of the script, in the test
//! ```

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

use super::scripted::{Client, Offer, Server};

/// Where the script listens; a test that finds this is such a process.
const SCRIPT: &str = "CRYPTLINE_TEST_SCRIPT";
/// Set for a process that leaves the socket to another and ends, as a server that goes to the background.
const LEAVES: &str = "CRYPTLINE_TEST_LEAVES";
const READY: u8 = 1;

/// How the process of a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Foreground,
    /// The process that listened has left the socket to another.
    Daemon,
}

/// The clients of a server, as the script has them.
pub struct Clients<'a> {
    listener: &'a UnixListener,
    folder: PathBuf,
    offer: Offer,
    kind: Kind,
    process: Child,
}

impl Clients<'_> {
    pub fn accept(&self) -> Client {
        Client::greet(self.listener.accept().unwrap().0, self.offer)
    }

    /// The process of the server is killed, and another takes its place. Meanwhile `last` is done.
    pub fn die(&mut self, last: impl FnOnce()) {
        // Who is let go by the old one already meets the new one.
        let next = start(&self.folder, self.kind);
        last();
        let mut old = std::mem::replace(&mut self.process, next);
        old.kill().unwrap();
        old.wait().unwrap();
    }
}

impl Drop for Clients<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A server in a process of its own.
pub fn server(kind: Kind, offer: Offer, script: impl FnOnce(&mut Clients<'_>) + Send + 'static) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let (path, inner) = (folder.path().join("s"), UnixListener::bind(folder.path().join("script")).unwrap());
    let process = start(folder.path(), kind);
    let place = folder.path().to_owned();
    Server::with(path, folder, move || {
        script(&mut Clients { listener: &inner, folder: place, offer, kind, process });
    })
}

/// Once it listens at the name of the server, which leads to no other any more.
fn start(folder: &Path, kind: Kind) -> Child {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let own = folder.join(format!("s{}", MADE.fetch_add(1, Ordering::Relaxed)));
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(&own).unwrap()).unwrap();
    let mut command = another(socket, folder.join("script").into_os_string());
    if kind == Kind::Daemon {
        command.env(LEAVES, "1");
    }
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let said = process.stdout.as_mut().unwrap();
    // Behind the words of the test harness.
    let is_ready = |byte: io::Result<u8>| byte.unwrap() == READY;
    assert!(io::BufReader::new(said).bytes().any(is_ready), "it listens");
    if kind == Kind::Daemon {
        process.wait().unwrap();
    }
    std::fs::rename(own, folder.join("s")).unwrap();
    process
}

fn another(socket: OwnedFd, script: std::ffi::OsString) -> Command {
    let (_, module) = module_path!().split_once("::").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("{module}::process_of_a_server_passes_on_what_comes")]);
    command.stdin(socket).stderr(Stdio::null()).env(SCRIPT, script);
    command
}

/// Such a process, where one is wanted.
#[test]
fn process_of_a_server_passes_on_what_comes() {
    let Some(script) = std::env::var_os(SCRIPT) else {
        return;
    };
    let socket = io::stdin().as_fd().try_clone_to_owned().unwrap();
    if std::env::var_os(LEAVES).is_some() {
        rustix::net::listen(&socket, 16).unwrap();
        another(socket, script).env_remove(LEAVES).spawn().unwrap();
        std::process::exit(0);
    }
    let is_ours = !rustix::net::sockopt::socket_acceptconn(&socket).unwrap();
    if is_ours {
        rustix::net::listen(&socket, 16).unwrap();
    }
    rustix::io::write(io::stdout(), &[READY]).unwrap();
    let listener = UnixListener::from(socket);
    while is_wanted(&listener) {
        let (client, script) = (listener.accept().unwrap().0, UnixStream::connect(&script));
        // Whose script has ended needs no clients.
        let Ok(script) = script else { break };
        let back = (script.try_clone().unwrap(), client.try_clone().unwrap());
        std::thread::spawn(move || pass_on(client, script));
        std::thread::spawn(move || pass_on(back.0, back.1));
    }
    std::process::exit(0);
}

/// Waits for a client; `false` once nobody hears any more what this says.
fn is_wanted(listener: &UnixListener) -> bool {
    loop {
        let stdout = io::stdout();
        let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(&stdout, PollFlags::empty())];
        match poll(&mut fds, None) {
            Err(Errno::INTR) => {}
            Err(errno) => panic!("{errno}"),
            Ok(_) => return fds[1].revents().is_empty(),
        }
    }
}

fn pass_on(mut from: UnixStream, mut to: UnixStream) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
