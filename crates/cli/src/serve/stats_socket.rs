//! `--stats SOCKET`: JSON lines for whoever may open the socket: its owner, or as `--socket-mode` says.
//!
//! One thread of its own serves all readers without ever waiting for one. What a socket has no room for is sent
//! later, but a reader that has not taken its line when the next one is due is sent away; one too many is not
//! taken: neither the server nor other readers notice.

use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::Mode;

use super::cleanup::Cleanup;
use super::statistics::{Sampler, ServerInfo};
use super::unix;
use crate::CliError;

/// Readers at a time.
const READERS_MAX: usize = 16;
/// Pause when the system has no descriptor left for a new reader.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// A bound statistics socket.
pub struct StatsSocket {
    listener: UnixListener,
    interval: Duration,
}

struct StatsReader {
    stream: UnixStream,
    sampler: Sampler,
    due: Instant,
    /// Bytes for which the socket had no room.
    rest: Vec<u8>,
}

impl StatsSocket {
    /// Binds `path`, removed at exit.
    pub fn bind(path: &Path, mode: Mode, interval: Duration, cleanup: &Cleanup) -> Result<Self, CliError> {
        let failed = |error| CliError::parameters(format!("--stats {}: {error}", path.display()));
        let listener = unix::bind(path, mode, cleanup)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Self { listener, interval })
    }

    /// Serves readers for as long as the process lives.
    pub fn start(self, server: ServerInfo) -> Result<(), CliError> {
        std::thread::Builder::new()
            .name("stats".into())
            .spawn(move || self.run(&server))
            .map(drop)
            .map_err(CliError::no_thread)
    }

    fn run(&self, server: &ServerInfo) {
        let mut readers: Vec<StatsReader> = Vec::with_capacity(READERS_MAX);
        loop {
            self.wait(&mut readers);
            self.accept(&mut readers, server);
            let now = Instant::now();
            readers.retain_mut(|reader| reader.due > now || reader.tell(self.interval));
        }
    }

    /// Until somebody connects or leaves, or something can or must be sent. Who is gone makes room.
    fn wait(&self, readers: &mut Vec<StatsReader>) {
        let due = readers.iter().map(|reader| reader.due).min();
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let listener = PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN);
        let mut polled = vec![listener];
        polled.extend(readers.iter().map(StatsReader::awaited));
        // Interrupted or not, what is due is looked at next.
        let _ = rustix::event::poll(&mut polled, timeout.as_ref());
        let happened: Vec<_> = polled.iter().skip(1).map(PollFd::revents).collect();
        let mut happened = happened.into_iter();
        readers.retain_mut(|reader| match happened.next() {
            Some(flags) if flags.intersects(PollFlags::HUP | PollFlags::ERR) => false,
            Some(flags) if flags.contains(PollFlags::OUT) => reader.send(),
            _ => true,
        });
    }

    fn accept(&self, readers: &mut Vec<StatsReader>, server: &ServerInfo) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) if readers.len() < READERS_MAX => {
                    if stream.set_nonblocking(true).is_ok() {
                        readers.push(StatsReader {
                            stream,
                            sampler: Sampler::new(server.clone()),
                            due: Instant::now(),
                            rest: Vec::new(),
                        });
                    }
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    std::thread::sleep(ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }
}

impl StatsReader {
    /// Its end, which the system always tells, and room for what is left.
    fn awaited(&self) -> PollFd<'_> {
        let room = if self.rest.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        PollFd::new(&self.stream, room)
    }

    /// `false` where the reader is gone or does not keep up.
    fn tell(&mut self, interval: Duration) -> bool {
        if !self.rest.is_empty() {
            return false;
        }
        self.due = Instant::now() + interval;
        self.rest = self.sampler.line().into_bytes();
        self.send()
    }

    /// As much as there is room for; `false` where the reader is gone.
    fn send(&mut self) -> bool {
        while !self.rest.is_empty() {
            match self.stream.write(&self.rest) {
                Ok(written) => drop(self.rest.drain(..written)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::volumes::Volumes;
    use std::io::{BufRead as _, BufReader, Read};
    use std::sync::Arc;

    /// Of no volume.
    fn statistics() -> ServerInfo {
        ServerInfo::new(Volumes::new(Arc::default()), Arc::default())
    }

    fn reader() -> (StatsReader, UnixStream) {
        let (stream, theirs) = UnixStream::pair().unwrap();
        stream.set_nonblocking(true).unwrap();
        let reader = StatsReader { stream, sampler: Sampler::new(statistics()), due: Instant::now(), rest: Vec::new() };
        (reader, theirs)
    }

    #[test]
    fn a_reader_that_does_not_read_is_given_up_and_never_waited_for() {
        let (mut reader, mut deaf) = reader();
        let told = (0..1_000_000).take_while(|_| reader.tell(Duration::ZERO));
        let told = told.count();
        assert!(told < 1_000_000, "a socket without end");
        // What it was told before is whole, but for the last line, for which there was no room.
        drop(reader);
        let mut text = String::new();
        deaf.read_to_string(&mut text).unwrap();
        assert!(text.lines().count() >= told - 1 && told > 1);
    }

    #[test]
    fn a_line_that_is_longer_than_the_room_for_it_is_sent_when_there_is_more() {
        let (mut reader, mut slow) = reader();
        let line: Vec<u8> = (0..4_000_000_u32).map(|at| at.to_le_bytes()[1]).collect();
        reader.rest = line.clone();
        assert!(reader.send());
        assert!(!reader.rest.is_empty(), "a socket without end");
        let mut read = Vec::new();
        while read.len() < line.len() {
            let mut piece = vec![0; 100_000];
            let len = slow.read(&mut piece).unwrap();
            read.extend_from_slice(&piece[..len]);
            assert!(reader.send());
        }
        assert!(read == line);
        assert!(reader.tell(Duration::ZERO), "it keeps up");
        drop(slow);
        assert!(!reader.tell(Duration::ZERO));
    }

    #[test]
    fn places_of_readers_that_have_left_are_free_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stats");
        let never = Duration::from_secs(3600);
        let cleanup = Cleanup::default();
        let socket = StatsSocket::bind(&path, Mode::RWXU, never, &cleanup).unwrap();
        socket.start(statistics()).unwrap();
        for _ in 0..3 {
            let readers = (0..READERS_MAX).map(|_| {
                let stream = UnixStream::connect(&path).unwrap();
                let limit = Some(Duration::from_secs(20));
                stream.set_read_timeout(limit).unwrap();
                let mut reader = BufReader::new(stream);
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                assert!(line.ends_with('\n'), "sent away with {line:?}");
                reader
            });
            drop(readers.collect::<Vec<_>>());
        }
    }
}
