//! The connections of one device: as many as there are queues, kept when a queue goes, and what they promise.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cryptline_nbd::TransmissionFlags;
use cryptline_net::{Records, TimedStream};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::NbdShared;
use super::connect::OtherEnd;
use super::goodbye::say_goodbye_on;
use super::witness::Witness;
use crate::OpenError;

/// How long connecting may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// The same for one connection more: a server that takes no more of them may say nothing at all.
const PATIENCE_FOR_MORE: Duration = Duration::from_secs(5);
/// The first connection may have taken so many times less.
const SLOWER: u32 = 4;

const RESTARTED: &str = "the server was restarted or does not answer; open the volume again";

/// How long a server that ends may take from one connection to the next.
const PATIENCE_FOR_END: Duration = Duration::from_secs(5);

/// A connection in transmission, with nothing on its way.
pub(super) struct Link {
    pub socket: Arc<OwnedFd>,
    /// Where it goes through TLS.
    pub records: Option<Box<Records>>,
    /// The server has changes of it that no flush of it has covered.
    pub is_unflushed: bool,
    /// How many servers there were before, as far as is known.
    pub age: u32,
    /// How many connections were made before to that server.
    number: u32,
    /// Set if it leads to the server that has the writes.
    pub is_confirmed: bool,
}

impl Link {
    /// A connection that a queue can have.
    pub fn new(line: TimedStream) -> io::Result<Self> {
        let (socket, tls) = line.into_parts()?;
        let records = tls.map(|tls| Records::new(*tls)).transpose()?;
        Ok(Self { socket, records, is_unflushed: false, age: 0, number: 0, is_confirmed: false })
    }

    /// Tells if the server has not hung up, as far as is heard without waiting.
    fn is_open(&mut self) -> bool {
        match rustix::net::recv(&self.socket, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((0, _)) => false,
            Err(Errno::AGAIN | Errno::INTR) => true,
            // What comes unasked is judged by whoever uses it. Through TLS it may be the end.
            Ok(_) => self.records.as_deref_mut().is_none_or(|records| stays_open(&self.socket, records)),
            Err(_) => false,
        }
    }

    fn say_goodbye(&mut self) {
        let records = self.records.as_deref_mut();
        say_goodbye_on(&self.socket, records);
    }
}

/// Takes in what has come through TLS though nothing was asked for. Tickets and keys are no end; all else is of no use.
fn stays_open(socket: &OwnedFd, records: &mut Records) -> bool {
    loop {
        match records.receive_now(socket) {
            Some(Ok(1..)) if matches!(records.open(&mut [0; 1]), Ok(None)) => {}
            Some(Err(Errno::INTR)) => {}
            Some(Err(Errno::AGAIN)) => return true,
            None | Some(_) => return false,
        }
    }
}

/// How a queue leaves its connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LeftConnection {
    /// Nothing is on its way.
    Quiet,
    /// Reads are.
    Reading,
    /// Changes are, of which nobody will know when they are made.
    Changing,
}

pub(super) struct ConnectionPool {
    /// Never held while anybody waits for the server: queues end with it.
    state: Mutex<PoolState>,
    /// Held by whoever connects or looks whether the server is the same; the others wait for the same server.
    servers: Mutex<Servers>,
    is_shared: bool,
}

struct PoolState {
    idle: Vec<Link>,
    in_use: usize,
    /// Those of them that are yet to be made.
    asking: usize,
    /// A connection that is gone had changes that no flush of it has covered.
    is_unflushed: bool,
}

/// Knowledge about the servers there were.
struct Servers {
    witness: Option<Witness>,
    /// How many witnesses there were before.
    age: u32,
    /// Connections of these ages lead to servers that have gone.
    gone: Range<u32>,
    /// When a connection was last made.
    made: Option<Instant>,
    /// Connections that were made to the server of the witness, and those of them that lead there for certain: made before
    /// it answered.
    links: u32,
    confirmed: u32,
}

impl Servers {
    /// Notes how the server of the witness was left.
    fn note_end(&mut self, has_gone: bool) {
        self.age += 1;
        (self.links, self.confirmed) = (0, 0);
        if has_gone {
            self.gone.end = self.age;
        } else {
            self.gone = self.age..self.age;
        }
    }

    /// Counts a connection that was made just now.
    fn add(&mut self, link: Link) -> Link {
        self.links += 1;
        Link { age: self.age, number: self.links - 1, ..link }
    }

    fn have_gone(&self, age: u32) -> bool {
        self.gone.contains(&age)
    }

    /// Until when somebody may take who has asked then. Whoever has waited for another's connection has time for its own.
    fn patience(&self, asked: Instant, until: Instant) -> Instant {
        let has_waited = self.made.is_some_and(|made| made > asked);
        let least = Instant::now() + PATIENCE_FOR_END;
        if has_waited { until.max(least) } else { until }
    }
}

impl ConnectionPool {
    /// With a first connection. `is_shared`: a flush of one covers the writes of all.
    pub fn new(first: Link, witness: Option<Witness>, is_shared: bool) -> Self {
        // The witness came after it.
        let first = Link { is_confirmed: true, ..first };
        Self {
            state: Mutex::new(PoolState { idle: vec![first], in_use: 0, asking: 0, is_unflushed: false }),
            servers: Mutex::new(Servers { witness, age: 0, gone: 0..0, made: None, links: 1, confirmed: 1 }),
            is_shared,
        }
    }

    /// The end of the server can be seen.
    pub fn knows_process(&self) -> bool {
        cryptline_sys::lock(&self.servers).witness.as_ref().is_some_and(Witness::knows_process)
    }

    /// Does without a witness that does not answer.
    fn dismiss_witness(&self, servers: &mut Servers) {
        if let Some(mut witness) = servers.witness.take() {
            cryptline_sys::lock(&self.state).idle.clear();
            servers.note_end(witness.sees_end(Instant::now() + PATIENCE_FOR_END));
        }
    }
}

impl NbdShared {
    /// Does without a witness that does not answer. The next server's holes are not those that the old one has told of.
    fn dismiss_witness(&self, servers: &mut Servers) {
        self.pool.dismiss_witness(servers);
        self.status.forget_server();
    }

    /// A connection for one queue.
    pub(super) fn link(&self) -> Result<Link, OpenError> {
        let failed = |why: &str| Err(self.server.error(why));
        if self.is_lost() {
            return failed("the connection to the server was lost; open the volume again");
        }
        let has_closed = {
            let mut state = cryptline_sys::lock(&self.pool.state);
            let before = state.idle.len();
            let idle = self.idle(&mut state);
            if self.is_lost() {
                return failed(
                    "a connection that the server closed had writes that no flush covered; open the volume again",
                );
            }
            if idle.is_none() && !self.pool.is_shared && state.in_use > 0 {
                return failed(
                    "the server does not let several connections share a flush (NBD_FLAG_CAN_MULTI_CONN), so there can be one at a time, and it is in use; end what uses it, or use a server that takes several, such as `qemu-nbd --shared=0`",
                );
            }
            state.in_use += 1;
            if let Some(link) = idle {
                drop(state);
                return Ok(self.confirmed(link));
            }
            state.asking += 1;
            before > 0
        };
        let made = self.one_more().map_err(|error| {
            let mut state = cryptline_sys::lock(&self.pool.state);
            state.in_use -= 1;
            state.asking -= 1;
            match (error, state.in_use) {
                (OpenError::Remote { why, .. }, in_use @ 1..) => self.server.error(format!(
                    "no connection could be made besides the {in_use} that are in use ({})",
                    // The others show that it is.
                    why.trim_end_matches("; is it an NBD server?")
                )),
                (error, _) => error,
            }
        })?;
        Ok(if has_closed { self.confirmed(made) } else { made })
    }

    /// A connection with the answer of the witness, whose first request need not wait for that. Not for one that may be
    /// the first of many: the next to be opened asks for all of them. Where there is no answer, its first request says so.
    pub(super) fn confirmed(&self, mut link: Link) -> Link {
        if !link.is_confirmed {
            self.confirms(&mut link);
        }
        link
    }

    /// An idle connection. One that the server has closed is of no use, and nothing is lost with it where a flush of
    /// another covers its writes, or there are none.
    fn idle(&self, state: &mut PoolState) -> Option<Link> {
        while let Some(mut link) = state.idle.pop() {
            if link.is_open() {
                return Some(link);
            }
            state.is_unflushed |= link.is_unflushed;
            if self.is_forgotten(&link) {
                self.lose();
            }
        }
        None
    }

    /// A connection of which is yet to be asked whether it leads to the server of the witness: one answer of that is enough
    /// for all that were made before.
    fn one_more(&self) -> Result<Link, OpenError> {
        let servers = &mut *cryptline_sys::lock(&self.pool.servers);
        let until = Instant::now() + (self.took * SLOWER).clamp(PATIENCE_FOR_MORE, PATIENCE);
        if servers.witness.as_mut().is_some_and(Witness::has_hung_up) {
            if self.reconnect.is_some() {
                self.dismiss_witness(servers);
            } else {
                self.begin_anew(servers)?;
            }
        }
        if self.needs_witness() && servers.witness.is_none() {
            let (line, _) = self.server.again_until(&self.agreed, self.peer, until)?;
            servers.witness = Some(super::witness(line, self.reconnect, until));
        }
        let (line, _) = self.server.again_until(&self.agreed, self.peer, until)?;
        let link = Link::new(line).map_err(OpenError::Ring)?;
        cryptline_sys::lock(&self.pool.state).asking -= 1;
        Ok(servers.add(link))
    }

    /// Does without a witness that has hung up, where no connection is in use and flushes have covered all changes: each
    /// server has what was acknowledged then.
    // Guard: another server has not what was written.
    fn begin_anew(&self, servers: &mut Servers) -> Result<(), OpenError> {
        let mut state = cryptline_sys::lock(&self.pool.state);
        // Others that are in use may still lead to the server, which may have ended connections that were not.
        let is_used = state.in_use > state.asking;
        if is_used || state.is_unflushed || state.idle.iter().any(|link| link.is_unflushed) {
            if !is_used {
                self.lose();
            }
            return Err(self.server.error(RESTARTED));
        }
        state.idle.clear();
        servers.witness = None;
        servers.note_end(false);
        self.status.forget_server();
        Ok(())
    }

    /// Tells if a connection leads to the server that has the writes. Asked before its first request, as far as can be
    /// when its queue is opened: a lane may serve other disks when it comes to that.
    pub(super) fn confirms(&self, link: &mut Link) -> bool {
        let servers = &mut *cryptline_sys::lock(&self.pool.servers);
        link.is_confirmed = link.age == servers.age && {
            // Others that were made meanwhile are no business of this answer.
            let asked = servers.links;
            let is_known = link.number < servers.confirmed;
            let is_first = is_known || self.is_first_server(servers, self.peer, Instant::now() + PATIENCE);
            if is_first && !is_known {
                servers.confirmed = asked;
            }
            is_first
        };
        link.is_confirmed
    }

    /// A connection to the server of the witness, which is a new one where there was none. Nobody wants it any more
    /// once `is_over`.
    pub(super) fn fresh_link(&self, until: Instant, is_over: &AtomicBool) -> Result<Link, OpenError> {
        let asked = Instant::now();
        let servers = &mut *cryptline_sys::lock(&self.pool.servers);
        let until = servers.patience(asked, until);
        let again = || {
            if is_over.load(Ordering::Relaxed) || self.is_lost() {
                return Err(self.server.error("nobody wants the connection any more"));
            }
            self.server.anew_until(&self.agreed, self.peer, until)
        };
        if self.reconnect.is_some() && !self.is_first_server(servers, self.peer, until) {
            self.dismiss_witness(servers);
        }
        if self.needs_witness() && servers.witness.is_none() {
            let (line, _) = again()?;
            servers.witness = Some(super::witness(line, self.reconnect, until));
        }
        let (line, peer) = again()?;
        if !self.is_first_server(servers, peer, until) {
            if self.reconnect.is_some() {
                self.dismiss_witness(servers);
            } else {
                self.lose();
            }
            return Err(self.server.error(RESTARTED));
        }
        let link = Link::new(line).map_err(OpenError::Ring)?;
        servers.made = Some(Instant::now());
        let link = servers.add(link);
        servers.confirmed = servers.links;
        Ok(Link { is_confirmed: true, ..link })
    }

    /// Tells if the server of a connection has gone, as far as can be known: the witness has seen its end, too.
    pub(super) fn is_server_gone(&self, age: u32, until: Instant) -> bool {
        let asked = Instant::now();
        let servers = &mut *cryptline_sys::lock(&self.pool.servers);
        let until = servers.patience(asked, until);
        let soon = until.min(Instant::now() + PATIENCE_FOR_END);
        if age == servers.age
            && let Some(witness) = &mut servers.witness
            && witness.sees_end(soon)
        {
            servers.witness = None;
            cryptline_sys::lock(&self.pool.state).idle.clear();
            servers.note_end(true);
            self.status.forget_server();
        }
        servers.have_gone(age)
    }

    /// Tells if the server that a new connection has reached is the one that has the writes, as far as can be known.
    pub(super) fn knows_writes(&self, peer: OtherEnd) -> bool {
        let until = Instant::now() + PATIENCE;
        self.is_first_server(&mut cryptline_sys::lock(&self.pool.servers), peer, until)
    }

    /// Gives the server time to answer, however little the asker has: others may still be content with it.
    // Guard: another server has not what was written.
    fn is_first_server(&self, servers: &mut Servers, peer: OtherEnd, until: Instant) -> bool {
        let until = until.max(Instant::now() + PATIENCE_FOR_END);
        let answers = |witness: &mut Witness| peer == self.peer && witness.answers_flush(until);
        match servers.witness.as_mut() {
            Some(witness) => answers(witness),
            // Each server has what was acknowledged where each change is durable by then.
            None => !self.needs_witness() || self.reconnect.is_some(),
        }
    }

    /// Takes a connection back from its queue.
    pub(super) fn give_back(&self, link: Link, left: LeftConnection) {
        let mut state = cryptline_sys::lock(&self.pool.state);
        state.in_use -= 1;
        if self.is_lost() {
            return;
        }
        if left == LeftConnection::Quiet {
            state.idle.push(link);
            return;
        }
        state.is_unflushed |= link.is_unflushed;
        // Changes that are under way can overtake what is written next: servers end a connection before its
        // requests. And the flush of another connection says nothing of what this one has acknowledged, unless
        // the server says so.
        if left == LeftConnection::Changing || self.is_forgotten(&link) {
            self.lose();
        }
    }

    /// Tells if nobody knows what becomes of changes of a connection that is gone.
    fn is_forgotten(&self, link: &Link) -> bool {
        !self.pool.is_shared && link.is_unflushed && !self.writes_through()
    }
}

impl Drop for ConnectionPool {
    fn drop(&mut self) {
        if let Ok(state) = self.state.get_mut() {
            state.idle.iter_mut().for_each(Link::say_goodbye);
        }
        if let Ok(servers) = self.servers.get_mut() {
            servers.witness.iter_mut().for_each(Witness::say_goodbye);
        }
    }
}

impl NbdShared {
    /// Tells if a flush has to be sent: not where nothing is written, or all of it is durable already.
    pub(super) fn needs_flush(&self) -> bool {
        !self.geometry.read_only && self.can(TransmissionFlags::SEND_FLUSH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_that_was_left_without_an_end_is_never_taken_for_gone() {
        let mut servers = Servers { witness: None, age: 0, gone: 0..0, made: None, links: 0, confirmed: 0 };
        servers.note_end(false);
        servers.note_end(true);
        servers.note_end(true);
        assert_eq!([0, 1, 2, 3].map(|age| servers.have_gone(age)), [false, true, true, false]);
    }

    #[test]
    fn who_has_waited_for_the_connection_of_another_has_time_for_its_own() {
        let (before, asked) = (Instant::now(), Instant::now() + Duration::from_millis(1));
        let mut servers = Servers { witness: None, age: 0, gone: 0..0, made: Some(before), links: 0, confirmed: 0 };
        assert_eq!(servers.patience(asked, asked), asked);
        servers.made = Some(asked + Duration::from_millis(1));
        assert!(servers.patience(asked, asked) > Instant::now());
    }
}
