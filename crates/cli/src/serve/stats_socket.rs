//! `--stats SOCKET`: JSON lines for whoever may open the socket: its owner, or as `--socket-mode` says.
//!
//! One thread of its own serves all readers without ever waiting for one. A reader that does not
//! keep up is sent away, one too many is not taken: neither the server nor other readers notice.

use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::Mode;

use super::cleanup::Cleanup;
use super::statistics::{Sampler, Server};
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

struct Reader {
    stream: UnixStream,
    sampler: Sampler,
    due: Instant,
}

impl StatsSocket {
    /// Binds `path`, removed at exit.
    pub fn bind(
        path: &Path,
        mode: Mode,
        interval: Duration,
        cleanup: &Cleanup,
    ) -> Result<Self, CliError> {
        let failed = |error| CliError::parameters(format!("--stats {}: {error}", path.display()));
        let listener = unix::bind(path, mode, cleanup)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Self { listener, interval })
    }

    /// Serves readers for as long as the process lives.
    pub fn start(self, server: Server) -> Result<(), CliError> {
        std::thread::Builder::new()
            .name("stats".into())
            .spawn(move || self.run(&server))
            .map(drop)
            .map_err(|error| CliError::memory(format!("cannot start a thread: {error}")))
    }

    fn run(&self, server: &Server) {
        let mut readers: Vec<Reader> = Vec::with_capacity(READERS_MAX);
        loop {
            self.wait(&readers);
            self.accept(&mut readers, server);
            let now = Instant::now();
            readers.retain_mut(|reader| reader.due > now || reader.tell(self.interval));
        }
    }

    /// Until somebody connects or a line is due.
    fn wait(&self, readers: &[Reader]) {
        let due = readers.iter().map(|reader| reader.due).min();
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let mut polled = [PollFd::from_borrowed_fd(
            self.listener.as_fd(),
            PollFlags::IN,
        )];
        // Interrupted or not, what is due is looked at next.
        let _ = rustix::event::poll(&mut polled, timeout.as_ref());
    }

    fn accept(&self, readers: &mut Vec<Reader>, server: &Server) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) if readers.len() < READERS_MAX => {
                    if stream.set_nonblocking(true).is_ok() {
                        readers.push(Reader {
                            stream,
                            sampler: Sampler::new(server.clone()),
                            due: Instant::now(),
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

impl Reader {
    /// `false` where the reader is gone or does not keep up: half a line is of no use.
    fn tell(&mut self, interval: Duration) -> bool {
        self.due = Instant::now() + interval;
        let line = self.sampler.line();
        match self.stream.write(line.as_bytes()) {
            Ok(written) => written == line.len(),
            Err(error) => error.kind() == ErrorKind::Interrupted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::volumes::Volumes;
    use std::io::Read;
    use std::sync::Arc;

    use cryptline_serve::lane::Poll;

    #[test]
    fn a_reader_that_does_not_read_is_given_up_and_never_waited_for() {
        let (stream, mut deaf) = UnixStream::pair().unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut reader = Reader {
            stream,
            sampler: Sampler::new(Server::new(Volumes::new(Arc::default()), Poll::default())),
            due: Instant::now(),
        };
        let told = (0..1_000_000).take_while(|_| reader.tell(Duration::ZERO));
        let told = told.count();
        assert!(told < 1_000_000, "a socket without end");
        // What it was told before is whole.
        drop(reader);
        let mut text = String::new();
        deaf.read_to_string(&mut text).unwrap();
        assert!(text.lines().count() >= told && told > 0);
    }
}
