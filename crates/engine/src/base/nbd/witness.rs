//! A connection that was there before any write, and is used for nothing but looks at the server.
//!
//! As long as it is answered, the server that has the writes runs. Its end alone does not say that the server has
//! ended: a server can close connections while their writes go on. On this machine the kernel knows the process that
//! listened, so its end is waited for, too. Over TCP a connection that is reset says nothing: a firewall can do that.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use cryptline_nbd::RequestHeader;
use cryptline_nbd::client::request;
use cryptline_nbd::incoming::{Incoming, IncomingContent, parse_incoming};
use cryptline_nbd::wire::{CHUNK_HEADER_LEN, REQUEST_LEN, SIMPLE_REPLY_LEN, cmd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::connect::Peer;
use super::line::Line;

/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct Witness {
    line: Line,
    is_tcp: bool,
    /// Who listened on a Unix socket, as a pidfd: not known where that process has already left it to another.
    process: Option<OwnedFd>,
    /// Of the last question.
    cookie: u64,
    /// An answer did not come, and may yet: nothing after it says when it was given.
    is_owed: bool,
}

impl Witness {
    pub fn new(line: Line, peer: Peer) -> Self {
        let is_tcp = matches!(peer, Peer::Tcp(_));
        let process = if is_tcp { None } else { process_of(&line) };
        Self { line, is_tcp, process, cookie: 0, is_owed: false }
    }

    pub fn say_goodbye(&mut self) {
        self.line.say_goodbye();
    }

    /// Whether the server answers a flush. Once it has not, nothing is asked any more.
    pub fn answers_flush(&mut self, until: Instant) -> bool {
        if self.is_owed {
            return false;
        }
        self.cookie += 1;
        let is_answered = self.asks_flush(self.cookie, until);
        self.is_owed = !is_answered;
        is_answered
    }

    fn asks_flush(&mut self, cookie: u64, until: Instant) -> bool {
        let flush: [u8; REQUEST_LEN] =
            request(&RequestHeader { flags: 0, command: cmd::FLUSH, cookie, offset: 0, length: 0 });
        let mut line = self.line.until(until.min(Instant::now() + PATIENCE));
        if line.write_all(&flush).is_err() {
            return false;
        }
        let (mut bytes, mut len) = ([0; CHUNK_HEADER_LEN], 0);
        loop {
            match parse_incoming(&bytes[..len]) {
                Ok(Some((Incoming::Simple { cookie: of, outcome }, _))) => {
                    return of == cookie && outcome.is_ok();
                }
                Ok(Some((Incoming::Chunk { cookie: of, done, content }, _))) => {
                    return of == cookie && done && content == IncomingContent::None;
                }
                Ok(None) if len < bytes.len() => {}
                _ => return false,
            }
            // Not a byte more than the reply has: a chunk's header is longer than a simple reply.
            let end = if len < SIMPLE_REPLY_LEN { SIMPLE_REPLY_LEN } else { CHUNK_HEADER_LEN };
            match line.read(&mut bytes[len..end]) {
                Ok(0) => return false,
                Ok(got) => len += got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }

    /// Whether the server ends, as far as can be known.
    pub fn sees_end(&mut self, until: Instant) -> bool {
        let process = self.process.take();
        let has_ended = self.is_closed(until) && process.as_ref().is_none_or(|it| ends(it, until));
        self.process = process;
        has_ended
    }

    /// Whether the server closes the connection, on which nothing is on its way.
    fn is_closed(&mut self, until: Instant) -> bool {
        match self.line.until(until).read(&mut [0]) {
            Ok(len) => len == 0,
            Err(error) => match error.kind() {
                io::ErrorKind::UnexpectedEof => true,
                io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => !self.is_tcp,
                _ => false,
            },
        }
    }
}

/// The process that listened. One that is this very process is as good as its connections.
fn process_of(line: &Line) -> Option<OwnedFd> {
    let pid = sockopt::socket_peercred(line.socket()).ok()?.pid;
    if pid == getpid() {
        return None;
    }
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Whether a process ends.
fn ends(process: &OwnedFd, until: Instant) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Timespec::try_from(left).ok().as_ref()) {
            Ok(ready) => return ready > 0,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::process::Command;

    use rustix::process::Pid;

    use super::*;

    #[test]
    fn end_of_a_connection_is_the_end_of_the_server_when_its_process_has_ended_too() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let mut witness = Witness {
            line: Line::new(ours.into()),
            is_tcp: false,
            process: Some(pidfd_open(pid, PidfdFlags::empty()).unwrap()),
            cookie: 0,
            is_owed: false,
        };
        let soon = || Instant::now() + Duration::from_millis(50);
        let before = witness.sees_end(soon());
        child.kill().unwrap();
        let after = witness.sees_end(Instant::now() + PATIENCE);
        child.wait().unwrap();
        assert!(!before && after);
    }

    #[test]
    fn answer_that_comes_late_is_taken_for_no_later_one() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut theirs, address) = listener.accept().unwrap();
        let mut witness = Witness::new(Line::new(ours.into()), Peer::Tcp(address));
        let soon = || Instant::now() + Duration::from_millis(50);
        let mut asked = [0; REQUEST_LEN];
        assert!(!witness.answers_flush(soon()));
        theirs.read_exact(&mut asked).unwrap();
        let cookie = cryptline_nbd::parse_request(&asked).unwrap().cookie;
        let answer = cryptline_nbd::reply::simple(cookie, Ok(()));
        theirs.write_all(&answer).unwrap();
        assert!(!witness.answers_flush(Instant::now() + PATIENCE));
    }

    #[test]
    fn connection_over_tcp_that_is_reset_tells_nothing_and_one_that_is_closed_does() {
        for is_reset in [false, true] {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let ours = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (theirs, address) = listener.accept().unwrap();
            if is_reset {
                sockopt::set_socket_linger(&theirs, Some(Duration::ZERO)).unwrap();
            }
            drop(theirs);
            let mut witness = Witness::new(Line::new(ours.into()), Peer::Tcp(address));
            assert_eq!(witness.sees_end(Instant::now() + PATIENCE), !is_reset);
        }
    }
}
