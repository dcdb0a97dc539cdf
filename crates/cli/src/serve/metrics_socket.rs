//! `--metrics ADDRESS`: HTTP/1.1 for a Prometheus that asks for `/metrics`.
//!
//! One thread serves all askers without ever waiting for one. What does not ask or read in time is closed, and
//! whoever has not asked yet gives way to one more: neither the server's clients nor other askers notice.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::Mode;

use super::cleanup::Cleanup;
use super::process::OwnProcess;
use super::volumes::Volumes;
use super::{metrics, unix};
use crate::CliError;

/// Askers at a time.
const ASKERS_MAX: usize = 16;
/// How long one may take from its connection to the end of its answer.
const ASKER_MAX: Duration = Duration::from_secs(10);
/// Longest head of a request that is read, in bytes.
const HEAD_MAX: usize = 8192;
/// Pause when the system has no descriptor left for a new asker.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricsAddress {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = "use ADDRESS:PORT such as 127.0.0.1:9155 or [::]:9155, PORT alone for this machine's \
                     own programs, or unix:PATH";
        match text.strip_prefix("unix:") {
            Some("") => Err(wrong.to_owned()),
            Some(path) => Ok(Self::Unix(path.into())),
            None => (text.parse().map(|port: u16| ([127, 0, 0, 1], port).into()))
                .or_else(|_| text.parse())
                .map(Self::Tcp)
                .map_err(|_| wrong.to_owned()),
        }
    }
}

impl MetricsAddress {
    /// The place that `text` stands for. The name of a socket may be no text.
    ///
    /// # Errors
    /// Advice on what to give.
    pub fn parse(text: &OsStr) -> Result<Self, String> {
        match (text.to_str(), text.as_bytes().strip_prefix(b"unix:")) {
            (None, Some(path)) => Ok(Self::Unix(OsStr::from_bytes(path).into())),
            _ => text.to_string_lossy().parse(),
        }
    }
}

/// For people: what to give curl.
impl fmt::Display for MetricsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}/metrics"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

enum MetricsListener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl MetricsListener {
    fn accept(&self) -> io::Result<Box<dyn MetricsStream>> {
        match self {
            Self::Tcp(listener) => {
                let stream = listener.accept()?.0;
                stream.set_nonblocking(true)?;
                Ok(Box::new(stream))
            }
            Self::Unix(listener) => {
                let stream = listener.accept()?.0;
                stream.set_nonblocking(true)?;
                Ok(Box::new(stream))
            }
        }
    }

    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => listener.set_nonblocking(true),
            Self::Unix(listener) => listener.set_nonblocking(true),
        }
    }
}

impl AsFd for MetricsListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

trait MetricsStream: Read + Write + AsFd + Send {}
impl<T: Read + Write + AsFd + Send> MetricsStream for T {}

/// A bound socket.
pub struct MetricsSocket {
    listener: MetricsListener,
    /// Where it listens: with the port that the system chose.
    pub place: MetricsAddress,
}

impl MetricsAddress {
    /// Finds most mistakes before a passphrase is asked for.
    ///
    /// # Errors
    /// As those of [`MetricsSocket::bind`].
    pub fn check(&self) -> Result<(), CliError> {
        match self {
            Self::Tcp(address) => TcpListener::bind(address).map(drop).map_err(|error| self.cannot_listen(&error)),
            Self::Unix(path) => unix::check(path).map(drop),
        }
    }

    fn cannot_listen(&self, error: &io::Error) -> CliError {
        let message = format!("--metrics: cannot listen on {self}: {error}");
        match error.kind() {
            ErrorKind::AddrInUse => CliError::busy(format!("{message}; choose another port")),
            _ => CliError::parameters(message),
        }
    }
}

impl MetricsSocket {
    /// Binds `place`; a Unix socket is removed at exit.
    ///
    /// # Errors
    /// Exit code 5 where another program listens there, 1 where this one may not.
    pub fn bind(place: &MetricsAddress, mode: Mode, cleanup: &Cleanup) -> Result<Self, CliError> {
        let failed = |error: io::Error| place.cannot_listen(&error);
        let (listener, place) = match place {
            MetricsAddress::Tcp(address) => {
                let listener = TcpListener::bind(address).map_err(failed)?;
                let address = listener.local_addr().map_err(failed)?;
                (MetricsListener::Tcp(listener), MetricsAddress::Tcp(address))
            }
            MetricsAddress::Unix(path) => {
                let listener = unix::bind(path, mode, cleanup)?;
                (MetricsListener::Unix(listener), place.clone())
            }
        };
        listener.set_nonblocking().map_err(failed)?;
        Ok(Self { listener, place })
    }

    /// Answers for as long as the process lives.
    ///
    /// # Errors
    /// Exit code 3 where no thread can be started.
    pub fn start(self, volumes: Volumes) -> Result<(), CliError> {
        let process = OwnProcess::new();
        let answer = move || metrics::text(&volumes.now(), &process);
        std::thread::Builder::new()
            .name("metrics".into())
            .spawn(move || run(&self.listener, &answer))
            .map(drop)
            .map_err(CliError::no_thread)
    }
}

fn run(listener: &MetricsListener, text: &dyn Fn() -> String) {
    let mut askers: Vec<MetricsAsker> = Vec::with_capacity(ASKERS_MAX);
    loop {
        wait(listener, &askers);
        accept(listener, &mut askers);
        let now = Instant::now();
        askers.retain_mut(|asker| now < asker.deadline && asker.proceed(text).is_ok_and(|more| more));
    }
}

/// Until somebody connects, an asker can be read from or written to, or has had its time.
fn wait(listener: &MetricsListener, askers: &[MetricsAsker]) {
    let due = askers.iter().map(|asker| asker.deadline).min();
    let left = due.map(|due| due.saturating_duration_since(Instant::now()));
    let timeout = left.and_then(|left| Timespec::try_from(left).ok());
    let mut polled = vec![PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
    for asker in askers {
        let what = match asker.state {
            AskerState::Asking(_) => PollFlags::IN,
            AskerState::Answered { .. } => PollFlags::OUT,
        };
        polled.push(PollFd::from_borrowed_fd(asker.stream.as_fd(), what));
    }
    // Interrupted or not, everybody is looked at next.
    let _ = rustix::event::poll(&mut polled, timeout.as_ref());
}

/// A few at a time, so that those who are there are answered during a flood. The oldest of those who have not
/// asked yet gives way to one more.
fn accept(listener: &MetricsListener, askers: &mut Vec<MetricsAsker>) {
    for _ in 0..ASKERS_MAX {
        match listener.accept() {
            Ok(stream) => {
                if askers.len() >= ASKERS_MAX {
                    let is_silent = |asker: &MetricsAsker| matches!(asker.state, AskerState::Asking(_));
                    let Some(silent) = askers.iter().position(is_silent) else {
                        continue;
                    };
                    askers.remove(silent);
                }
                askers.push(MetricsAsker::new(stream));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            // Whoever it was has gone again.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(_) => {
                std::thread::sleep(ACCEPT_PAUSE);
                return;
            }
        }
    }
}

struct MetricsAsker {
    stream: Box<dyn MetricsStream>,
    state: AskerState,
    deadline: Instant,
}

enum AskerState {
    /// Part of the request's head that has come.
    Asking(Vec<u8>),
    /// Answer that is still to be sent, from `sent` on.
    Answered { answer: Vec<u8>, sent: usize },
}

impl MetricsAsker {
    fn new(stream: Box<dyn MetricsStream>) -> Self {
        Self { stream, state: AskerState::Asking(Vec::new()), deadline: Instant::now() + ASKER_MAX }
    }

    /// As far as it goes without waiting; `false` once it is over.
    fn proceed(&mut self, text: &dyn Fn() -> String) -> io::Result<bool> {
        loop {
            let moved = match &mut self.state {
                AskerState::Asking(head) => {
                    let mut bytes = [0; 1024];
                    let read = self.stream.read(&mut bytes);
                    if let Ok(length) = read {
                        head.extend_from_slice(&bytes[..length]);
                        if let Some(answer) = answer(head, length == 0, text) {
                            self.state = AskerState::Answered { answer, sent: 0 };
                        } else if length == 0 {
                            return Ok(false);
                        }
                    }
                    read
                }
                AskerState::Answered { answer, sent } if *sent == answer.len() => return Ok(false),
                AskerState::Answered { answer, sent } => {
                    let written = self.stream.write(&answer[*sent..]);
                    *sent += written.as_ref().ok().unwrap_or(&0);
                    written
                }
            };
            match moved {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
        }
    }
}

/// The answer, once the head is whole or can no longer become one.
fn answer(head: &[u8], is_end: bool, text: &dyn Fn() -> String) -> Option<Vec<u8>> {
    let is_whole = head.windows(4).any(|four| four == b"\r\n\r\n") || head.windows(2).any(|two| two == b"\n\n");
    if !is_whole {
        return match head.len() {
            0 => None,
            HEAD_MAX.. => Some(refusal("431 Request Header Fields Too Large", "GET")),
            _ => is_end.then(|| refusal("400 Bad Request", "GET")),
        };
    }
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = std::str::from_utf8(line).unwrap_or_default();
    let words: Vec<_> = line.trim_end_matches('\r').split(' ').collect();
    let [method, path, version] = words[..] else {
        return Some(refusal("400 Bad Request", "GET"));
    };
    let path = path.split('?').next().unwrap_or_default();
    Some(match (method, path) {
        _ if !version.starts_with("HTTP/1.") => refusal("505 HTTP Version Not Supported", method),
        ("GET" | "HEAD", "/metrics") => {
            let kind = "text/plain; version=0.0.4; charset=utf-8";
            response("200 OK", kind, method, &text())
        }
        ("GET" | "HEAD", _) => refusal("404 Not Found: ask for /metrics", method),
        _ => refusal("405 Method Not Allowed", method),
    })
}

fn refusal(status: &str, method: &str) -> Vec<u8> {
    let (status, _) = status.split_once(':').unwrap_or((status, ""));
    let body = format!("{status}; the metrics are at /metrics\n");
    response(status, "text/plain; charset=utf-8", method, &body)
}

fn response(status: &str, kind: &str, method: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let body = if method == "HEAD" { "" } else { body };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}Connection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn told(head: &str) -> String {
        let answer = answer(head.as_bytes(), false, &|| "m 1\n".to_owned());
        String::from_utf8(answer.unwrap_or_default()).unwrap()
    }

    #[test]
    fn only_a_get_of_metrics_has_them() {
        let whole = told("GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(whole.starts_with("HTTP/1.1 200 OK\r\n"), "{whole}");
        assert!(whole.contains("Content-Length: 4\r\n") && whole.ends_with("\r\n\r\nm 1\n"));
        let head = told("HEAD /metrics HTTP/1.0\n\n");
        assert!(head.contains("Content-Length: 4\r\n") && head.ends_with("\r\n\r\n"));
        for (head, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("GET /metrics HTTP/2\r\n\r\n", "505"),
            ("nonsense\r\n\r\n", "400"),
            ("\r\n\r\n", "400"),
        ] {
            let answer = told(head);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{head:?}: {answer}");
        }
        // Not whole yet.
        assert_eq!(told("GET /metrics HTTP/1.1\r\nHost: a\r\n"), "");
        assert!(told(&"a".repeat(HEAD_MAX)).starts_with("HTTP/1.1 431 "));
    }

    #[test]
    fn who_asks_a_byte_at_a_time_is_answered_and_who_leaves_is_forgotten() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut asker = MetricsAsker::new(Box::new(ours));
        let text = || "m 1\n".repeat(100_000);
        for byte in b"GET /metrics HTTP/1.1\r\n\r\n" {
            assert!(asker.proceed(&text).unwrap());
            theirs.write_all(&[*byte]).unwrap();
        }
        // More than the socket holds: nobody waits for who does not read.
        assert!(asker.proceed(&text).unwrap());
        let mut answer = Vec::new();
        let mut bytes = [0; 65536];
        loop {
            let more = asker.proceed(&text).unwrap();
            if !more {
                drop(asker);
                theirs.read_to_end(&mut answer).unwrap();
                break;
            }
            let length = theirs.read(&mut bytes).unwrap();
            answer.extend_from_slice(&bytes[..length]);
        }
        assert!(answer.ends_with(text().as_bytes()));

        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        drop(theirs);
        assert!(!MetricsAsker::new(Box::new(ours)).proceed(&text).unwrap());
    }

    #[test]
    fn places_are_addresses_ports_and_paths() {
        let place = |text: &str| text.parse::<MetricsAddress>();
        assert_eq!(place("9155"), place("127.0.0.1:9155"));
        assert_eq!(place("[::1]:1").unwrap().to_string(), "http://[::1]:1/metrics");
        assert_eq!(place("unix:/a").unwrap(), MetricsAddress::Unix("/a".into()));
        for wrong in ["", "unix:", "host", "70000", "1.2.3.4"] {
            assert!(place(wrong).unwrap_err().contains("unix:PATH"), "{wrong}");
        }
    }
}
