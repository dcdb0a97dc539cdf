//! One listener for all who ask a running server: the control socket, the statistics and the metrics are sessions over it.
//!
//! ```text
//! accept ─► a seat, or sent away ─► a thread for the session ─► the seat is left
//! ```
//!
//! Each client has a thread of its own, which waits for that client alone: one that is silent, slow or in the middle of a
//! long command keeps nobody else waiting. There are never more of these threads than seats, and none without a client.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cryptline_sys::lock;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, SocketFlags, accept_with, recv, send, shutdown};

use crate::CliError;
use crate::wait::wait_for;

/// Clients of a listener at a time.
pub const SEATS: usize = 16;
/// Pause when the system has no descriptor or thread left for a new client.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Dialogue with the clients of one listener.
pub trait DoorSession: Send + Sync + 'static {
    /// Name of the listener's threads.
    const NAME: &'static str;
    /// One client too many takes the place of the oldest that is not busy; otherwise it is sent away.
    const SILENT_GIVE_WAY: bool;

    /// Serves one client to its end.
    fn serve(self: &Arc<Self>, client: &DoorClient);
}

/// A client that has a seat.
pub struct DoorClient {
    stream: OwnedFd,
    is_busy: AtomicBool,
}

impl DoorClient {
    /// Tells if it waits for an answer, and keeps its seat.
    pub fn set_busy(&self, yes: bool) {
        self.is_busy.store(yes, Ordering::Relaxed);
    }

    /// Receives some bytes; none at the end.
    ///
    /// # Errors
    /// `TimedOut` where none have come until then.
    pub fn receive(&self, bytes: &mut [u8], until: Instant) -> io::Result<usize> {
        loop {
            self.wait_for(PollFlags::IN, until)?;
            match recv(&self.stream, &mut *bytes, RecvFlags::DONTWAIT) {
                Err(Errno::INTR | Errno::AGAIN) => {}
                received => return Ok(received?.0),
            }
        }
    }

    /// Sends all of it.
    ///
    /// # Errors
    /// `TimedOut` where the client has not made room for it until then.
    pub fn send(&self, mut bytes: &[u8], until: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            self.wait_for(PollFlags::OUT, until)?;
            match send(&self.stream, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Err(Errno::INTR | Errno::AGAIN) => {}
                sent => bytes = &bytes[sent?..],
            }
        }
        Ok(())
    }

    /// Waits until then; `false` where the client leaves before.
    pub fn stays(&self, until: Instant) -> bool {
        wait_for(&self.stream, PollFlags::empty(), Some(until)).is_ok_and(|found| found.is_empty())
    }

    fn wait_for(&self, what: PollFlags, until: Instant) -> io::Result<()> {
        let found = wait_for(&self.stream, what, Some(until))?;
        if found.is_empty() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }

    #[cfg(test)]
    pub fn pair() -> (Self, std::os::unix::net::UnixStream) {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a socket pair");
        (Self { stream: ours.into(), is_busy: AtomicBool::new(false) }, theirs)
    }

    fn dismiss(&self) {
        // Failing means that it is gone already.
        let _ = shutdown(&self.stream, Shutdown::Both);
    }
}

impl AsFd for DoorClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// A listener and the clients that have come to it.
struct Doorway {
    listener: OwnedFd,
    /// The oldest first.
    seats: Mutex<Vec<Arc<DoorClient>>>,
    left: Condvar,
    /// Nobody is let in any more.
    is_closed: AtomicBool,
}

/// A listener at work. Nothing ends by dropping this.
pub struct DoorRun {
    doorway: Arc<Doorway>,
    accepts: JoinHandle<()>,
}

/// Serves whoever comes to `listener` for as long as the process lives, or until [`DoorRun::end`]. Threads of clients start
/// when these come: call it once the rights are given up that they must not have.
///
/// # Errors
/// Exit code 3 where no thread can be started.
pub fn open<S: DoorSession>(listener: impl Into<OwnedFd>, session: S) -> Result<DoorRun, CliError> {
    let doorway = Arc::new(Doorway::new(listener.into()));
    let (own, session) = (Arc::clone(&doorway), Arc::new(session));
    let accepts = std::thread::Builder::new().name(S::NAME.into()).spawn(move || own.run(&session));
    accepts.map(|accepts| DoorRun { doorway, accepts }).map_err(CliError::no_thread)
}

impl DoorRun {
    /// Ends it, and all its clients' sessions. Commands under way go on, and are not waited for.
    pub fn end(self) {
        self.doorway.is_closed.store(true, Ordering::Relaxed);
        // Failing means that it has ended already.
        let _ = shutdown(&self.doorway.listener, Shutdown::Both);
        let _ = self.accepts.join();
        lock(&self.doorway.seats).iter().for_each(|client| client.dismiss());
    }
}

impl Doorway {
    fn new(listener: OwnedFd) -> Self {
        Self { listener, seats: Mutex::default(), left: Condvar::new(), is_closed: AtomicBool::new(false) }
    }

    fn run<S: DoorSession>(self: &Arc<Self>, session: &Arc<S>) {
        loop {
            let accepted = accept_with(&self.listener, SocketFlags::CLOEXEC);
            if self.is_closed.load(Ordering::Relaxed) {
                return;
            }
            let admitted = match accepted {
                Ok(stream) => self.admit(stream, session),
                // Whoever it was has gone again.
                Err(Errno::INTR | Errno::CONNABORTED) => Ok(()),
                Err(error) => Err(error.into()),
            };
            if admitted.is_err() {
                std::thread::sleep(ACCEPT_PAUSE);
            }
        }
    }

    fn admit<S: DoorSession>(self: &Arc<Self>, stream: OwnedFd, session: &Arc<S>) -> io::Result<()> {
        let Some(seat) = self.seat(stream, S::SILENT_GIVE_WAY) else {
            return Ok(());
        };
        let session = Arc::clone(session);
        let name = format!("{}-client", S::NAME);
        std::thread::Builder::new().name(name).spawn(move || session.serve(&seat.client)).map(drop)
    }

    /// The seat of a client, where there is one, or somebody who has one may go.
    fn seat(self: &Arc<Self>, stream: OwnedFd, silent_give_way: bool) -> Option<TakenSeat> {
        let mut seats = lock(&self.seats);
        while seats.len() >= SEATS {
            let may_go = |client: &&Arc<DoorClient>| {
                !client.is_busy.load(Ordering::Relaxed) && (silent_give_way || !client.stays(Instant::now()))
            };
            seats.iter().find(may_go)?.dismiss();
            // Its thread leaves the seat, unless a command came just before: then another may go.
            let waited = self.left.wait_timeout(seats, ACCEPT_PAUSE);
            seats = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let client = Arc::new(DoorClient { stream, is_busy: AtomicBool::new(false) });
        seats.push(Arc::clone(&client));
        Some(TakenSeat { doorway: Arc::clone(self), client })
    }
}

/// A seat that is left when this goes, however the thread of its client ends or where it cannot be started: the client
/// would wait for ever.
struct TakenSeat {
    doorway: Arc<Doorway>,
    client: Arc<DoorClient>,
}

impl Drop for TakenSeat {
    fn drop(&mut self) {
        self.client.dismiss();
        lock(&self.doorway.seats).retain(|other| !Arc::ptr_eq(other, &self.client));
        self.doorway.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    /// Sends back what it is told; whoever has said something is busy from then on.
    struct Echo;

    impl DoorSession for Echo {
        const NAME: &'static str = "echo";
        const SILENT_GIVE_WAY: bool = true;

        fn serve(self: &Arc<Self>, client: &DoorClient) {
            let late = Instant::now() + Duration::from_secs(3600);
            let mut byte = [0];
            while client.receive(&mut byte, late).is_ok_and(|count| count > 0) {
                client.set_busy(true);
                client.send(&byte, late).unwrap();
            }
        }
    }

    /// Tells if it is served.
    fn asks(mut client: &UnixStream) -> bool {
        let _ = client.write_all(b"x");
        // Whoever is sent away without having been heard gets an error.
        client.read(&mut [0]).is_ok_and(|count| count == 1)
    }

    #[test]
    fn one_client_more_takes_the_place_of_a_silent_one_and_of_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let run = open(UnixListener::bind(&path).unwrap(), Echo).unwrap();
        let connect = || UnixStream::connect(&path).unwrap();
        let mut clients: Vec<_> = (0..SEATS).map(|_| connect()).collect();
        for client in clients.iter().enumerate().filter(|(number, _)| *number != 3) {
            assert!(asks(client.1));
        }
        let one_more = connect();
        assert!(asks(&one_more));
        assert_eq!(clients[3].read(&mut [0]).unwrap(), 0, "it is told to go");
        assert!(!asks(&connect()), "all are busy");
        assert!(asks(&clients[0]) && asks(&one_more));
        assert_eq!(lock(&run.doorway.seats).len(), SEATS);
        clients.truncate(1);
        while !asks(&connect()) {}
    }

    #[test]
    fn listener_that_has_ended_lets_nobody_in_and_sends_away_whoever_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let run = open(UnixListener::bind(&path).unwrap(), Echo).unwrap();
        let mut client = UnixStream::connect(&path).unwrap();
        assert!(asks(&client));
        run.end();
        assert_eq!(client.read(&mut [0]).unwrap(), 0, "it is told to go");
        assert!(UnixStream::connect(&path).is_err());
    }

    #[test]
    fn a_client_that_no_thread_can_serve_is_sent_away_and_keeps_no_seat() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let doorway = Arc::new(Doorway::new(ours.try_clone().unwrap().into()));
        let seat = doorway.seat(ours.into(), true).unwrap();
        assert_eq!(lock(&doorway.seats).len(), 1);
        drop(seat);
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0, "it is told to go");
        assert!(lock(&doorway.seats).is_empty());
    }

    #[test]
    fn what_a_client_has_no_room_for_is_sent_when_there_is_more_and_not_for_ever() {
        let (client, mut slow) = DoorClient::pair();
        let bytes: Vec<u8> = (0..4_000_000_u32).map(|at| at.to_le_bytes()[1]).collect();
        let late = Instant::now() + Duration::from_secs(3600);
        let mut read = vec![0; bytes.len()];
        std::thread::scope(|scope| {
            let sent = scope.spawn(|| client.send(&bytes, late));
            slow.read_exact(&mut read).unwrap();
            sent.join().unwrap().unwrap();
        });
        assert!(read == bytes);
        let refused = client.send(&bytes, Instant::now()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        assert!(client.stays(Instant::now()));
        drop(slow);
        assert!(!client.stays(late) && client.send(&bytes, late).is_err());
    }
}
