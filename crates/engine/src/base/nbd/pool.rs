//! The connections of one device: as many as there are queues, kept when a queue goes, and what they promise.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cryptline_nbd::client::request;
use cryptline_nbd::incoming::{Incoming, IncomingContent, parse_incoming};
use cryptline_nbd::wire::{CHUNK_HEADER_LEN, REQUEST_LEN, SIMPLE_REPLY_LEN, cmd};
use cryptline_nbd::{RequestHeader, TransmissionFlags};
use cryptline_tls::Records;

use super::Shared;
use super::connect::Peer;
use super::line::{self, Line};
use crate::OpenError;

/// How long the server may take to answer the witness.
const PATIENCE: Duration = Duration::from_secs(20);

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
}

impl Link {
    /// A connection that a queue can have.
    pub fn new(line: Line) -> io::Result<Self> {
        let (socket, tls) = line.into_parts()?;
        let records = tls.map(|tls| Records::new(*tls)).transpose()?;
        Ok(Self {
            socket: Arc::new(socket),
            records: records.map(Box::new),
            is_unflushed: false,
            age: 0,
        })
    }

    fn say_goodbye(&mut self) {
        let records = self.records.as_deref_mut();
        line::say_goodbye(self.socket.as_fd(), records);
    }
}

/// How a queue leaves its connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// Nothing is on its way.
    Quiet,
    /// Reads are.
    Reading,
    /// Changes are, of which nobody will know when they are made.
    Changing,
}

pub(super) struct Pool {
    state: Mutex<State>,
    is_shared: bool,
}

struct State {
    idle: Vec<Link>,
    in_use: usize,
    /// A connection that was there before any write. As long as it is answered, the server that has the writes runs.
    witness: Option<Line>,
    /// How many witnesses there were before.
    age: u32,
    /// Connections of less than this age lead to servers that have gone.
    gone: u32,
}

impl State {
    /// Does without a witness that does not answer.
    fn dismiss_witness(&mut self, until: Instant) {
        if let Some(mut witness) = self.witness.take() {
            self.age += 1;
            self.idle.clear();
            let until = until.min(Instant::now() + PATIENCE_FOR_END);
            if has_hung_up(&mut witness, until) {
                self.gone = self.age;
            }
        }
    }
}

impl Pool {
    /// With a first connection. `is_shared`: a flush of one covers the writes of all.
    pub fn new(first: Link, witness: Option<Line>, is_shared: bool) -> Self {
        Self {
            state: Mutex::new(State {
                idle: vec![first],
                in_use: 0,
                witness,
                age: 0,
                gone: 0,
            }),
            is_shared,
        }
    }
}

impl Shared {
    /// A connection for one queue.
    pub(super) fn link(&self) -> Result<Link, OpenError> {
        let failed = |why: &str| Err(self.server.error(why));
        // Held while we connect: whoever else wants a connection waits for the same server.
        let mut state = cryptline_sys::lock(&self.pool.state);
        if self.is_lost() {
            return failed("the connection to the server was lost; open the volume again");
        }
        if let Some(link) = state.idle.pop() {
            state.in_use += 1;
            return Ok(link);
        }
        if !self.pool.is_shared && state.in_use > 0 {
            return failed(
                "the server does not let several connections share a flush (NBD_FLAG_CAN_MULTI_CONN), so there can be one at a time, and it is in use; end what uses it, or use a server that takes several, such as `qemu-nbd --shared=N`",
            );
        }
        let until = Instant::now() + PATIENCE;
        let link = self.fresh(&mut state, until)?;
        state.in_use += 1;
        Ok(link)
    }

    /// A connection in the place of one that was lost.
    pub(super) fn fresh_link(&self, until: Instant) -> Result<Link, OpenError> {
        self.fresh(&mut cryptline_sys::lock(&self.pool.state), until)
    }

    /// A connection to the server of the witness, which is a new one where there was none.
    fn fresh(&self, state: &mut State, until: Instant) -> Result<Link, OpenError> {
        let again = || self.server.again_until(&self.agreed, self.peer, until);
        if self.reconnect.is_some() && !self.is_first_server(state, self.peer, until) {
            state.dismiss_witness(until);
        }
        if self.needs_witness() && state.witness.is_none() {
            state.witness = Some(again()?.0);
        }
        let (line, peer) = again()?;
        if !self.is_first_server(state, peer, until) {
            if self.reconnect.is_some() {
                state.dismiss_witness(until);
            } else {
                self.lose();
            }
            let why = "the server was started anew or does not answer; open the volume again";
            return Err(self.server.error(why));
        }
        let link = Link::new(line).map_err(OpenError::Ring)?;
        Ok(Link {
            age: state.age,
            ..link
        })
    }

    /// Whether the server that a connection led to has gone, as far as can be known: it has closed the witness, too.
    pub(super) fn is_server_gone(&self, age: u32, until: Instant) -> bool {
        let mut state = cryptline_sys::lock(&self.pool.state);
        let soon = until.min(Instant::now() + PATIENCE_FOR_END);
        let is_of_witness = age == state.age;
        if is_of_witness
            && let Some(witness) = &mut state.witness
            && has_hung_up(witness, soon)
        {
            state.dismiss_witness(soon);
        }
        age < state.gone
    }

    /// Whether the server that a new connection has reached is the one that has the writes, as far as can be known.
    pub(super) fn knows_writes(&self, peer: Peer) -> bool {
        let until = Instant::now() + PATIENCE;
        self.is_first_server(&mut cryptline_sys::lock(&self.pool.state), peer, until)
    }

    fn is_first_server(&self, state: &mut State, peer: Peer, until: Instant) -> bool {
        let answers = |witness| peer == self.peer && answers_flush(witness, until);
        state.witness.as_mut().is_none_or(answers)
    }

    /// Takes a connection back from its queue.
    pub(super) fn give_back(&self, link: Link, left: Left) {
        let mut state = cryptline_sys::lock(&self.pool.state);
        state.in_use -= 1;
        if self.is_lost() {
            return;
        }
        if left == Left::Quiet {
            state.idle.push(link);
            return;
        }
        // Changes that are under way can overtake what is written next: servers end a connection before its
        // requests. And the flush of another connection says nothing of what this one has acknowledged, unless
        // the server says so.
        let is_forgotten = !self.pool.is_shared && link.is_unflushed && !self.writes_through();
        if left == Left::Changing || is_forgotten {
            self.lose();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let Ok(state) = state else { return };
        state.idle.iter_mut().for_each(Link::say_goodbye);
        state.witness.iter_mut().for_each(Line::say_goodbye);
    }
}

/// Whether the server answers a flush on a connection that is used for nothing else.
fn answers_flush(witness: &mut Line, until: Instant) -> bool {
    let cookie = 1;
    let flush: [u8; REQUEST_LEN] = request(&RequestHeader {
        flags: 0,
        command: cmd::FLUSH,
        cookie,
        offset: 0,
        length: 0,
    });
    let mut witness = witness.until(until.min(Instant::now() + PATIENCE));
    if witness.write_all(&flush).is_err() {
        return false;
    }
    let (mut bytes, mut len) = ([0; CHUNK_HEADER_LEN], 0);
    loop {
        match parse_incoming(&bytes[..len]) {
            Ok(Some((
                Incoming::Simple {
                    cookie: of,
                    outcome,
                },
                _,
            ))) => {
                return of == cookie && outcome.is_ok();
            }
            Ok(Some((
                Incoming::Chunk {
                    cookie: of,
                    done,
                    content,
                },
                _,
            ))) => {
                return of == cookie && done && content == IncomingContent::None;
            }
            Ok(None) if len < bytes.len() => {}
            _ => return false,
        }
        // Not a byte more than the reply has: a chunk's header is longer than a simple reply.
        let end = if len < SIMPLE_REPLY_LEN {
            SIMPLE_REPLY_LEN
        } else {
            CHUNK_HEADER_LEN
        };
        match witness.read(&mut bytes[len..end]) {
            Ok(0) => return false,
            Ok(got) => len += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

/// Whether the server closes a connection on which nothing is on its way.
fn has_hung_up(witness: &mut Line, until: Instant) -> bool {
    match witness.until(until).read(&mut [0]) {
        Ok(len) => len == 0,
        Err(error) => matches!(
            error.kind(),
            io::ErrorKind::ConnectionReset
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::UnexpectedEof
        ),
    }
}

impl Shared {
    /// Whether a flush has to be sent: not where nothing is written, or all of it is durable already.
    pub(super) fn needs_flush(&self) -> bool {
        !self.geometry.read_only && self.can(TransmissionFlags::SEND_FLUSH)
    }
}
