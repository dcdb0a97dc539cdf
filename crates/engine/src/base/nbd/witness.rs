//! A connection that was there before any write, and is used for nothing but looks at the server.
//!
//! As long as it is answered, the server that has the writes runs. Its end does not say that the server has ended: a
//! server can close connections and carry out later what came by them. So a server is taken for ended only where its
//! process is known and has ended, too, and for running wherever that is not known:
//!
//! * Over TCP nothing is.
//! * On a Unix socket the kernel knows the process that listened. It must be the one that answers as well, which
//!   rules out servers that went to the background after that, have a process for each client, or were given a socket
//!   on which another listened.
//! * A process that the kernel does not show, such as one in another container, is not known.
//! * This very process has never ended.
//!
//! One answer of the witness is enough for all connections made before it; the first queue that takes one of these asks
//! while it is opened, so no lane waits for that. An idle connection that the server has closed goes without a loss,
//! where another's flush covers its writes. If the witness was closed, too, no other connection is in use and flushes
//! have covered all changes, there is a new witness.
//!
//! An answer proves that the first server still runs, not that a new connection reached it: a second server at its
//! address, with an export of at least its size and abilities, is not detected.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use cryptline_nbd::RequestHeader;
use cryptline_nbd::client::request;
use cryptline_nbd::incoming::{Incoming, IncomingContent, parse_incoming};
use cryptline_nbd::wire::{CHUNK_HEADER_LEN, REQUEST_LEN, SIMPLE_REPLY_LEN, cmd};
use cryptline_net::TimedStream;
use cryptline_sys::peer_of;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, sockopt};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::goodbye::say_goodbye;

/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct Witness {
    line: TimedStream,
    /// The process that listened on a Unix socket and answers there, as a pidfd.
    process: Option<OwnedFd>,
    /// Of the last question.
    cookie: u64,
    /// An answer did not come, and may yet: nothing after it says when it was given.
    is_owed: bool,
}

impl Witness {
    /// A connection on which nothing was asked yet.
    pub fn new(line: TimedStream) -> Self {
        Self { line, process: None, cookie: 0, is_owed: false }
    }

    /// Finds the process of the server, by one question where there may be one to be found.
    pub fn find_process(&mut self, until: Instant) {
        self.process = self.process_that_answers(until);
    }

    /// The end of the server can be seen.
    pub fn knows_process(&self) -> bool {
        self.process.is_some()
    }

    fn process_that_answers(&mut self, until: Instant) -> Option<OwnedFd> {
        let socket = self.line.socket();
        if sockopt::socket_domain(socket) != Ok(AddressFamily::UNIX) {
            return None;
        }
        let pid = peer_of(socket).ok()?.pid?;
        if pid == getpid() {
            return None;
        }
        // Before the question: a process that is there before and after the answer has had that number all the time.
        let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        self.line.ask_sender().ok()?;
        let is_it = self.answers_flush(until) && self.line.sender() == Some(pid);
        (is_it && !ends(&process, Instant::now())).then_some(process)
    }

    pub fn say_goodbye(&mut self) {
        say_goodbye(&mut self.line);
    }

    /// Tells if the server answers a flush. Once it has not, nothing is asked any more.
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
        let line = self.line.until(until.min(Instant::now() + PATIENCE));
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

    /// Tells if the server has closed the connection, as far as is heard without waiting.
    pub fn has_hung_up(&mut self) -> bool {
        match rustix::net::recv(self.line.socket(), &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(Errno::CONNRESET | Errno::PIPE) => true,
            Ok(_) => self.line.has_ended_tls(),
            Err(_) => false,
        }
    }

    /// Tells if the server is known to have ended, at the latest by then.
    // Guard: a server of which nothing is known may still carry out what it has received.
    pub fn sees_end(&mut self, until: Instant) -> bool {
        match self.process.take() {
            // Unknown is alive.
            None => false,
            Some(process) => {
                let has_ended = self.is_closed(until) && ends(&process, until);
                self.process = Some(process);
                has_ended
            }
        }
    }

    /// Tells if the server closes the connection, on which nothing is on its way.
    fn is_closed(&mut self, until: Instant) -> bool {
        use io::ErrorKind as Kind;
        loop {
            match self.line.until(until).read(&mut [0]).map_err(|error| error.kind()) {
                Err(Kind::Interrupted) => {}
                Ok(0) | Err(Kind::UnexpectedEof | Kind::ConnectionReset | Kind::BrokenPipe) => return true,
                _ => return false,
            }
        }
    }
}

/// Tells if a process ends.
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
    use std::sync::Arc;

    use rustix::process::Pid;

    use super::*;

    fn line_to(socket: impl Into<OwnedFd>) -> TimedStream {
        TimedStream::new(Arc::new(socket.into()))
    }

    #[test]
    fn end_of_a_connection_is_the_end_of_the_server_when_its_process_has_ended_too() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let mut witness = Witness {
            line: line_to(ours),
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
        let (mut theirs, _) = listener.accept().unwrap();
        let mut witness = Witness::new(line_to(ours));
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
    fn end_of_a_connection_says_nothing_where_the_process_is_not_known() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        drop(listener.accept().unwrap());
        let (unix, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        for line in [line_to(tcp), line_to(unix)] {
            let mut witness = Witness::new(line);
            witness.find_process(Instant::now() + PATIENCE);
            assert!(!witness.knows_process() && !witness.sees_end(Instant::now() + PATIENCE));
        }
    }
}
