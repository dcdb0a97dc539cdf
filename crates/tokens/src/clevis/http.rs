//! One request of a server that is not trusted: bounded in bytes and in time.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use cryptline_net::{addresses, connect_tcp};

use super::line;

/// Longest answer; an advertisement has about 2 KiB.
const ANSWER_MAX: usize = 64 << 10;
const URL_MAX: usize = 1024;

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    is_https: bool,
    host: String,
    port: u16,
    /// In front of what is asked for, without a slash at its end.
    path: String,
}

impl Url {
    /// Without `http://` as well, as clevis takes it. What a tang server is asked and says is no secret, so `https://`
    /// only keeps others from telling whom this machine asks for what.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.len() > URL_MAX || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("that is no URL");
        }
        let (is_https, rest) = match text.split_once("://") {
            None => (false, text),
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some(_) => return Err("that is no URL of a tang server"),
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if path.contains(['?', '#']) || authority.contains(['@', '?', '#']) {
            return Err("that is no URL of a tang server");
        }
        let end = authority.rfind(']').map_or(0, |end| end + 1);
        let (host, port) = match authority[end..].find(':') {
            Some(colon) => {
                let port = &authority[end + colon + 1..];
                let port = port.parse().map_err(|_| "that is no port")?;
                (&authority[..end + colon], port)
            }
            None if is_https => (authority, 443),
            None => (authority, 80),
        };
        if host.is_empty() {
            return Err("that is no URL of a tang server");
        }
        Ok(Self { is_https, host: host.to_owned(), port, path: path.trim_end_matches('/').to_owned() })
    }
}

/// Asks for `path`, with a JSON Web Key where one is given, and returns the answer.
pub fn ask(url: &Url, path: &str, key: Option<&str>, deadline: Instant) -> Result<Vec<u8>, String> {
    let stream = connect(&url.host, url.port, deadline)?;
    let mut line =
        if url.is_https { line::tls(stream, unbracketed(&url.host), deadline)? } else { line::clear(stream, deadline) };
    let (host, port, front) = (&url.host, url.port, &url.path);
    let rest = format!("{front}{path} HTTP/1.0\r\nHost: {host}:{port}\r\nAccept: */*\r\nConnection: close\r\n");
    let request = match key {
        None => format!("GET {rest}\r\n"),
        Some(key) => {
            format!("POST {rest}Content-Type: application/jwk+json\r\nContent-Length: {}\r\n\r\n{key}", key.len())
        }
    };
    line.write_all(request.as_bytes()).and_then(|()| line.flush()).map_err(broken)?;
    let mut answer = HttpAnswer::default();
    let mut piece = [0; 4096];
    while !answer.is_whole()? {
        match line.read(&mut piece) {
            Ok(0) => {
                answer.is_over = true;
                if !answer.is_whole()? {
                    return Err("the answer was cut short".to_owned());
                }
            }
            Ok(read) => answer.bytes.extend_from_slice(&piece[..read]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(broken(error)),
        }
    }
    answer.into_body()
}

fn broken(error: io::Error) -> String {
    match error.get_ref().and_then(|why| why.downcast_ref()) {
        Some(rustls::Error::InvalidCertificate(why)) => {
            format!("its certificate is not trusted: {why}")
        }
        Some(error) => format!("TLS failed: {error}"),
        None if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) => too_long(),
        None => format!("the connection broke: {error}"),
    }
}

/// A connection to a host, which may be a name or an address.
pub(crate) fn connect(host: &str, port: u16, deadline: Instant) -> Result<TcpStream, String> {
    let found = addresses(unbracketed(host), port, deadline).map_err(|error| match error.kind() {
        ErrorKind::TimedOut => too_long(),
        _ => format!("it is not found: {error}"),
    })?;
    match connect_tcp(&found, deadline) {
        Ok((stream, _)) => Ok(stream),
        Err(Some((_, error))) => Err(format!("it cannot be reached: {error}")),
        Err(None) if found.is_empty() => Err("it has no address".to_owned()),
        Err(None) => Err(too_long()),
    }
}

fn unbracketed(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// How long it is until then.
pub(crate) fn left(deadline: Instant) -> Result<Duration, String> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(too_long());
    }
    Ok(left)
}

fn too_long() -> String {
    "it takes too long to answer".to_owned()
}

/// Returns the contents of an answer that is over.
#[cfg(feature = "fuzzing")]
pub(super) fn body_of(answer: &[u8]) -> Result<Vec<u8>, String> {
    let mut answer = HttpAnswer { bytes: answer.to_vec(), is_over: false };
    if !answer.is_whole()? {
        answer.is_over = true;
        if !answer.is_whole()? {
            return Err("the answer was cut short".to_owned());
        }
    }
    answer.into_body()
}

#[derive(Default)]
struct HttpAnswer {
    bytes: Vec<u8>,
    /// Nothing more comes.
    is_over: bool,
}

impl HttpAnswer {
    fn is_whole(&self) -> Result<bool, String> {
        if self.bytes.len() > ANSWER_MAX {
            return Err("its answer is too long".to_owned());
        }
        let Some((head, body)) = self.parts() else {
            return Ok(false);
        };
        Ok(match length(head)? {
            Some(length) if length > ANSWER_MAX => return Err("its answer is too long".to_owned()),
            Some(length) => body.len() >= length,
            None => self.is_over,
        })
    }

    fn parts(&self) -> Option<(&[u8], &[u8])> {
        let end = self.bytes.windows(4).position(|at| at == b"\r\n\r\n")?;
        Some((&self.bytes[..end], &self.bytes[end + 4..]))
    }

    fn into_body(self) -> Result<Vec<u8>, String> {
        let (head, body) = self.parts().ok_or("its answer is not HTTP")?;
        let status = head.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..5));
        match status {
            Some(b"200") => {}
            Some(b"404") => return Err("it does not know what was asked for (404)".to_owned()),
            Some(code) => return Err(format!("it refused ({})", code.escape_ascii())),
            None => return Err("its answer is not HTTP".to_owned()),
        }
        let body = match length(head)? {
            Some(length) => &body[..length],
            None => body,
        };
        Ok(body.to_vec())
    }
}

/// Returns what the header says of the length.
fn length(head: &[u8]) -> Result<Option<usize>, String> {
    let mut length = None;
    for line in head.split(|&byte| byte == b'\n').skip(1) {
        let line = String::from_utf8_lossy(line);
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let (name, value) = (name.trim(), value.trim());
        if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err("its answer comes in a way that is not known here".to_owned());
        }
        if name.eq_ignore_ascii_case("content-length") {
            length = Some(value.parse().map_err(|_| "its answer is not HTTP")?);
        }
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use std::io::BufRead;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn urls_are_those_of_http_servers() {
        for (text, is_https, host, port, path) in [
            ("http://tang.example/", false, "tang.example", 80, ""),
            ("https://tang.example/", true, "tang.example", 443, ""),
            ("https://[::1]:81/a", true, "[::1]", 81, "/a"),
            ("tang:7500", false, "tang", 7500, ""),
            ("http://[::1]:81/a/b/", false, "[::1]", 81, "/a/b"),
            ("[::1]", false, "[::1]", 80, ""),
        ] {
            let (host, path) = (host.to_owned(), path.to_owned());
            let expected = Url { is_https, host, port, path };
            assert_eq!(Url::parse(text), Ok(expected), "{text}");
        }
        for text in ["", "http://", "https://", "file:///a", "a b", "a\r\nb", "http://u@h", "h:x", "h/?a", ":80"] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }

    /// Returns what is made of an answer.
    fn answered(answer: &[u8]) -> Result<Vec<u8>, String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answer = answer.to_vec();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = std::io::BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            while asked.read_line(&mut line).unwrap() > 2 {
                line.clear();
            }
            // Who has read enough goes.
            let _ = stream.write_all(&answer);
        });
        let url = Url::parse(&address.to_string()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let said = ask(&url, "/adv", None, deadline);
        server.join().unwrap();
        said
    }

    #[test]
    fn answers_are_whole_and_bounded() {
        let long = [&b"HTTP/1.1 200 OK\r\n\r\n"[..], &vec![b'a'; 3 * ANSWER_MAX]].concat();
        for (answer, expected) in [
            (&b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd"[..], Ok(&b"abc"[..])),
            (b"HTTP/1.0 200 OK\r\n\r\nabc", Ok(b"abc")),
            (b"HTTP/1.1 404 No\r\n\r\n", Err("404")),
            (b"HTTP/1.1 500 No\r\n\r\n", Err("500")),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc", Err("cut short")),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n", Err("too long")),
            (b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", Err("not HTTP")),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc", Err("not known")),
            (b"SSH-2.0\r\n\r\n", Err("not HTTP")),
            (b"", Err("cut short")),
            (&long, Err("too long")),
        ] {
            let said = answered(answer);
            match expected {
                Ok(body) => assert_eq!(said.as_deref(), Ok(body)),
                Err(why) => assert!(said.as_ref().unwrap_err().contains(why), "{said:?} {why}"),
            }
        }
    }

    #[test]
    fn nothing_is_asked_after_the_deadline() {
        let url = Url::parse("tang.invalid").unwrap();
        let said = ask(&url, "/adv", None, Instant::now()).unwrap_err();
        assert!(said.contains("too long"), "{said}");
    }

    #[test]
    fn server_that_says_nothing_is_not_waited_for_for_ever() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = Url::parse(&listener.local_addr().unwrap().to_string()).unwrap();
        let deadline = Instant::now() + Duration::from_millis(50);
        let said = ask(&url, "/adv", None, deadline).unwrap_err();
        assert!(said.contains("too long"), "{said}");
    }
}
