//! `--stats SOCKET`: JSON lines for whoever may open the socket: its owner, or as `--socket-mode` says.
//!
//! Nothing is read from a reader. One that has not taken its line when the next one is due is sent away, and so is one too
//! many: neither the server nor other readers notice.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::Mode;

use super::cleanup::Cleanup;
use super::doors::{self, DoorClient, DoorSession};
use super::statistics::{Sampler, ServerInfo};
use super::unix;
use crate::CliError;

/// A bound statistics socket.
pub struct StatsSocket {
    listener: UnixListener,
    interval: Duration,
}

struct StatsSession {
    server: ServerInfo,
    interval: Duration,
}

impl StatsSocket {
    /// Binds `path`, removed at exit.
    pub fn bind(path: &Path, mode: Mode, interval: Duration, cleanup: &Cleanup) -> Result<Self, CliError> {
        Ok(Self { listener: unix::bind(path, mode, cleanup)?, interval })
    }

    /// Serves readers for as long as the process lives.
    pub fn start(self, server: ServerInfo) -> Result<(), CliError> {
        doors::open(self.listener, StatsSession { server, interval: self.interval }).map(drop)
    }
}

impl DoorSession for StatsSession {
    const NAME: &'static str = "stats";
    const SILENT_GIVE_WAY: bool = false;

    fn serve(self: &Arc<Self>, reader: &DoorClient) {
        let mut sampler = Sampler::new(self.server.clone());
        loop {
            let due = Instant::now() + self.interval;
            if reader.send(sampler.line().as_bytes(), due).is_err() || !reader.stays(due) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::doors::SEATS;
    use crate::serve::statistics::StatsSample;
    use crate::serve::volumes::Volumes;
    use crate::wait::wait_for;
    use cryptline_serve::lane::Poll;
    use rustix::event::PollFlags;
    use std::io::{BufRead as _, BufReader, Read as _};
    use std::os::unix::net::UnixStream;

    struct StartedSocket {
        folder: tempfile::TempDir,
        _cleanup: Cleanup,
    }

    impl StartedSocket {
        /// Lines of no volume.
        fn new(interval: Duration) -> Self {
            let (folder, cleanup) = (tempfile::tempdir().unwrap(), Cleanup::default());
            let socket = StatsSocket::bind(&folder.path().join("stats"), Mode::RWXU, interval, &cleanup).unwrap();
            socket.start(ServerInfo::new(Volumes::new(Arc::default()), Poll::default())).unwrap();
            Self { folder, _cleanup: cleanup }
        }

        fn connect(&self) -> UnixStream {
            UnixStream::connect(self.folder.path().join("stats")).unwrap()
        }
    }

    #[test]
    fn a_reader_that_does_not_read_is_given_up_and_never_waited_for() {
        let socket = StartedSocket::new(Duration::from_millis(1));
        let mut deaf = socket.connect();
        let mut other = BufReader::new(socket.connect());
        let gone = wait_for(&deaf, PollFlags::empty(), None).unwrap();
        assert!(gone.contains(PollFlags::HUP));
        let mut text = String::new();
        deaf.read_to_string(&mut text).unwrap();
        let (whole, _) = text.rsplit_once('\n').unwrap();
        // What it was told before is whole, but for the last line, for which there was no room.
        assert!(whole.lines().all(|line| StatsSample::read(line.as_bytes()).is_some()));
        text.clear();
        assert!(other.read_line(&mut text).unwrap() > 0, "{text}");
    }

    #[test]
    fn places_of_readers_that_have_left_are_free_at_once() {
        let socket = StartedSocket::new(Duration::from_secs(3600));
        for _ in 0..3 {
            let readers = (0..SEATS).map(|_| {
                let stream = socket.connect();
                let limit = Some(Duration::from_secs(20));
                stream.set_read_timeout(limit).unwrap();
                let mut reader = BufReader::new(stream);
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                assert!(line.ends_with('\n'), "sent away with {line:?}");
                reader
            });
            let readers: Vec<_> = readers.collect();
            assert_eq!(socket.connect().read(&mut [0]).unwrap(), 0, "one too many");
            drop(readers);
        }
    }
}
