//! `--control SOCKET`: commands for a running server, as JSON lines.
//!
//! ```text
//! wire      the lines, for both sides
//! session   one client: lines in, lines out, descriptors with them
//! commands  what each command does
//! add       one of them: a volume that comes as an open file with its key
//! ```
//!
//! Each client has a thread of its own, which waits for that client alone: one that is silent, slow or in the middle of a
//! long flush keeps nobody else waiting. Their number is bounded; one more takes the place of one that has been silent.

mod add;
mod commands;
mod session;
pub mod wire;

use std::io;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use cryptline_sys::lock;
use rustix::fs::Mode;
use rustix::net::shutdown;

use super::cleanup::Cleanup;
use super::unix;
use crate::CliError;
pub use commands::{HowServed, ServerControl};
use session::{ControlSession, InputEnd, check_user, send};

/// Clients at a time.
const CLIENTS_MAX: usize = 16;
/// How long a client may keep a reply waiting.
const REPLY_MAX: Duration = Duration::from_secs(10);
/// Pause when the system has no descriptor left for a new client.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Only this user reaches it, and it admits nobody else but root.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// A bound control socket.
pub struct ControlSocket {
    listener: UnixListener,
}

/// A client's place.
struct ControlSeat {
    stream: UnixStream,
    /// A command is being carried out.
    is_busy: AtomicBool,
}

type ControlSeats = Mutex<Vec<Arc<ControlSeat>>>;

impl ControlSocket {
    /// Binds `path`, removed at exit.
    ///
    /// # Errors
    /// Exit code 5 where another program listens there.
    pub fn bind(path: &Path, cleanup: &Cleanup) -> Result<Self, CliError> {
        Ok(Self::of(unix::bind(path, PRIVATE, cleanup)?))
    }

    /// One that is bound already.
    pub fn of(listener: UnixListener) -> Self {
        Self { listener }
    }

    /// Serves clients for as long as the process lives, or until [`ControlRun::end`].
    ///
    /// # Errors
    /// Exit code 3 where no thread can be started.
    pub fn start(self, control: ServerControl) -> Result<ControlRun, CliError> {
        let room =
            Arc::new(ControlRoom { listener: self.listener, seats: Arc::default(), is_closed: AtomicBool::new(false) });
        let own = Arc::clone(&room);
        std::thread::Builder::new()
            .name("control".into())
            .spawn(move || own.run(&Arc::new(control)))
            .map(|accepts| ControlRun { room, accepts })
            .map_err(CliError::no_thread)
    }
}

/// A listener and the clients that have come to it.
struct ControlRoom {
    listener: UnixListener,
    seats: Arc<ControlSeats>,
    /// Nobody is let in any more.
    is_closed: AtomicBool,
}

/// A control socket at work. Nothing ends by dropping this.
pub struct ControlRun {
    room: Arc<ControlRoom>,
    accepts: JoinHandle<()>,
}

impl ControlRun {
    /// Ends it, and all its clients' sessions. Commands under way go on, and are not waited for.
    pub fn end(self) {
        self.room.is_closed.store(true, Ordering::Relaxed);
        // Failing means that it has ended already.
        let _ = shutdown(&self.room.listener, rustix::net::Shutdown::Both);
        let _ = self.accepts.join();
        for seat in &*lock(&self.room.seats) {
            let _ = seat.stream.shutdown(Shutdown::Both);
        }
    }
}

impl ControlRoom {
    fn run(&self, control: &Arc<ServerControl>) {
        loop {
            let started = self.listener.accept().and_then(|(stream, _)| {
                stream.set_write_timeout(Some(REPLY_MAX))?;
                seat_client(&self.seats, stream, |seat| {
                    let (control, seats) = (Arc::clone(control), Arc::clone(&self.seats));
                    let serve = move || {
                        // However the thread ends: the client would wait for ever.
                        let _taken = TakenSeat(&seats, &seat);
                        serve(&seat, &control);
                    };
                    std::thread::Builder::new().name("control-client".into()).spawn(serve).map(drop)
                })
            });
            if self.is_closed.load(Ordering::Relaxed) {
                return;
            }
            if started.is_err() {
                std::thread::sleep(ACCEPT_PAUSE);
            }
        }
    }
}

/// A seat that is left when this goes.
struct TakenSeat<'a>(&'a ControlSeats, &'a Arc<ControlSeat>);

impl Drop for TakenSeat<'_> {
    fn drop(&mut self) {
        leave_seat(self.0, self.1);
    }
}

/// Has `start` begin to serve a client that gets a seat. Where it cannot, the client is sent away.
fn seat_client(
    seats: &ControlSeats,
    stream: UnixStream,
    start: impl FnOnce(Arc<ControlSeat>) -> io::Result<()>,
) -> io::Result<()> {
    let Some(seat) = take_seat(seats, stream) else {
        return Ok(());
    };
    let started = start(Arc::clone(&seat));
    if started.is_err() {
        leave_seat(seats, &seat);
    }
    started
}

/// Its end: the accepting thread may have a handle of the stream, too.
fn leave_seat(seats: &ControlSeats, seat: &Arc<ControlSeat>) {
    // Failing means that the client is gone already.
    let _ = seat.stream.shutdown(Shutdown::Both);
    lock(seats).retain(|other| !Arc::ptr_eq(other, seat));
}

/// The oldest one that has asked for nothing gives way; where all wait for answers, the new one does.
fn take_seat(seats: &ControlSeats, stream: UnixStream) -> Option<Arc<ControlSeat>> {
    let mut seats = lock(seats);
    if seats.len() >= CLIENTS_MAX {
        let is_silent = |seat: &Arc<ControlSeat>| !seat.is_busy.load(Ordering::Relaxed);
        let place = seats.iter().position(is_silent)?;
        let silent = seats.remove(place);
        // Failing means that it is gone already.
        let _ = silent.stream.shutdown(Shutdown::Both);
    }
    let seat = Arc::new(ControlSeat { stream, is_busy: AtomicBool::new(false) });
    seats.push(Arc::clone(&seat));
    Some(seat)
}

/// One client, to its end.
fn serve(seat: &ControlSeat, control: &Arc<ServerControl>) {
    if let InputEnd::Refused(why) = answer_all(seat, control) {
        // Whether it hears that is its own affair.
        let _ = send(&seat.stream, &commands::refusal(&why));
    }
}

fn answer_all(seat: &ControlSeat, control: &Arc<ServerControl>) -> InputEnd {
    let user = match check_user(&seat.stream) {
        Ok(user) => user.as_raw(),
        Err(refused) => return InputEnd::Refused(refused),
    };
    let mut session = ControlSession::new(&seat.stream);
    let mut sampler = control.sampler();
    loop {
        let line = match session.next_line() {
            Ok(line) => line,
            Err(end) => return end,
        };
        seat.is_busy.store(true, Ordering::Relaxed);
        let reply = control.answer(line, user, &mut sampler);
        let sent = send(&seat.stream, &reply);
        seat.is_busy.store(false, Ordering::Relaxed);
        if sent.is_err() {
            return InputEnd::Gone;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn one_client_more_takes_the_place_of_a_silent_one_and_of_no_other() {
        let seats = ControlSeats::default();
        let pair = || UnixStream::pair().unwrap();
        let mut all: Vec<_> = (0..CLIENTS_MAX)
            .map(|_| {
                let (ours, theirs) = pair();
                (take_seat(&seats, ours).unwrap(), theirs)
            })
            .collect();
        for (seat, _) in &all {
            seat.is_busy.store(true, Ordering::Relaxed);
        }
        assert!(take_seat(&seats, pair().0).is_none());
        all[3].0.is_busy.store(false, Ordering::Relaxed);
        assert!(take_seat(&seats, pair().0).is_some());
        assert_eq!(all[3].1.read(&mut [0]).unwrap(), 0, "it is told to go");
        assert_eq!(lock(&seats).len(), CLIENTS_MAX);
    }

    #[test]
    fn socket_that_has_ended_lets_nobody_in_and_sends_away_whoever_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let room = Arc::new(ControlRoom {
            listener: UnixListener::bind(&path).unwrap(),
            seats: Arc::default(),
            is_closed: AtomicBool::new(false),
        });
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        take_seat(&room.seats, ours).unwrap();
        let own = Arc::clone(&room);
        let accepts = std::thread::spawn(move || while own.listener.accept().is_ok() {});
        ControlRun { room, accepts }.end();
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0, "it is told to go");
        assert!(UnixStream::connect(&path).is_err());
    }

    #[test]
    fn a_client_that_no_thread_can_serve_is_sent_away_and_keeps_no_seat() {
        let seats = ControlSeats::default();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let refused = seat_client(&seats, ours, |_| Err(io::ErrorKind::OutOfMemory.into()));
        assert!(refused.is_err() && lock(&seats).is_empty());
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0, "it is told to go");
    }
}
