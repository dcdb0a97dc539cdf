//! `--metrics ADDRESS`: HTTP/1.1 for a Prometheus that asks for `/metrics`.
//!
//! An asker that does not ask or read in time is sent away, and one that has not asked yet gives way to one more: neither
//! the server's clients nor other askers notice.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cryptline_sys::lock;
use rustix::fs::Mode;

use super::cleanup::Cleanup;
use super::doors::{self, DoorClient, DoorSession};
use super::process::OwnProcess;
use super::volumes::Volumes;
use super::{metrics, unix};
use crate::CliError;

/// How long one may take from its connection to the end of its answer.
const ASKER_MAX: Duration = Duration::from_secs(10);
/// Longest head of a request that is read, in bytes.
const HEAD_MAX: usize = 8192;

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

/// A bound socket.
pub struct MetricsSocket {
    listener: OwnedFd,
    /// Where it listens: with the port that the system chose.
    pub place: MetricsAddress,
    process: OwnProcess,
}

struct MetricsSession {
    volumes: Volumes,
    process: OwnProcess,
    turn: Mutex<()>,
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
    /// Binds `place`; a Unix socket is removed at exit. Call before rights are given up.
    ///
    /// # Errors
    /// Exit code 5 where another program listens there, 1 where this one may not.
    pub fn bind(place: &MetricsAddress, mode: Mode, cleanup: &Cleanup) -> Result<Self, CliError> {
        let failed = |error: io::Error| place.cannot_listen(&error);
        let (listener, place) = match place {
            MetricsAddress::Tcp(address) => {
                let listener = TcpListener::bind(address).map_err(failed)?;
                let address = listener.local_addr().map_err(failed)?;
                (listener.into(), MetricsAddress::Tcp(address))
            }
            MetricsAddress::Unix(path) => (unix::bind(path, mode, cleanup)?.into(), place.clone()),
        };
        Ok(Self { listener, place, process: OwnProcess::new() })
    }

    /// Answers for as long as the process lives.
    ///
    /// # Errors
    /// Exit code 3 where no thread can be started.
    pub fn start(self, volumes: Volumes) -> Result<(), CliError> {
        doors::open(self.listener, MetricsSession { volumes, process: self.process, turn: Mutex::default() }).map(drop)
    }
}

impl DoorSession for MetricsSession {
    const NAME: &'static str = "metrics";
    const SILENT_GIVE_WAY: bool = true;

    fn serve(self: &Arc<Self>, asker: &DoorClient) {
        let text = || {
            // Whoever has asked keeps its seat.
            asker.set_busy(true);
            // One at a time, so that many askers take one processor at most.
            let _turn = lock(&self.turn);
            metrics::text(&self.volumes.now(), &self.process)
        };
        // Whether it hears the answer is its own affair.
        let _ = answer_one(asker, Instant::now() + ASKER_MAX, &text);
    }
}

/// Hears and answers one asker, by then.
fn answer_one(asker: &DoorClient, deadline: Instant, text: &dyn Fn() -> String) -> io::Result<()> {
    let mut head = Vec::new();
    loop {
        let mut bytes = [0; 1024];
        let length = asker.receive(&mut bytes, deadline)?;
        head.extend_from_slice(&bytes[..length]);
        if let Some(answer) = answer(&head, length == 0, text) {
            return asker.send(&answer, deadline);
        }
        if length == 0 {
            return Ok(());
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
    use std::io::{Read as _, Write as _};

    use super::*;

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
    fn who_asks_a_byte_at_a_time_is_answered_and_who_leaves_or_falls_silent_is_forgotten() {
        let late = Instant::now() + Duration::from_secs(3600);
        let text = || "m 1\n".repeat(100_000);
        let (asker, mut theirs) = DoorClient::pair();
        std::thread::scope(|scope| {
            let asked = scope.spawn(move || answer_one(&asker, late, &text));
            for byte in b"GET /metrics HTTP/1.1\r\n\r\n" {
                theirs.write_all(&[*byte]).unwrap();
            }
            let mut answer = Vec::new();
            theirs.read_to_end(&mut answer).unwrap();
            assert!(answer.ends_with(text().as_bytes()));
            asked.join().unwrap().unwrap();
        });

        let (asker, mut silent) = DoorClient::pair();
        silent.write_all(b"GET /met").unwrap();
        assert_eq!(answer_one(&asker, Instant::now(), &text).unwrap_err().kind(), ErrorKind::TimedOut);
        silent.write_all(b"rics HTTP/1.1\r\n\r\n").unwrap();
        let (asker, theirs) = DoorClient::pair();
        drop(theirs);
        assert!(answer_one(&asker, late, &text).is_ok());
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
