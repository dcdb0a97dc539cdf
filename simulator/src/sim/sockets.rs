//! Unix sockets and eventfds between threads of a simulation. The system has each of them as well, which gives it a
//! descriptor, a name and credentials; but what passes through them is here, as is who could go on.
//!
//! ```text
//!  descriptors ──► file: socket ──► messages that it has received ◄── its peer sends
//!   (and their           listener ──► sockets that wait to be accepted
//!    duplicates)         eventfd ──► count
//! ```
//!
//! Of any other descriptor the system is asked; datagrams are among them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{c_int, c_long};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::iovec;

use super::os::{errno, real};

/// Bytes under way to a socket beyond which its peer waits, as Linux has it by default; it says that there is room once a
/// quarter is left.
const ROOM: usize = 212_992;

/// A file by its place in [`Table`].
type Id = usize;
/// The result of a call: a count, or the system's error number.
pub type Reply = Result<usize, c_int>;

/// Which way bytes go.
#[derive(Clone, Copy)]
pub enum Way {
    In = 0,
    Out = 1,
}

/// An open file.
struct OpenFile {
    kind: Kind,
    descriptors: usize,
    /// Calls that find nothing to do wait.
    waits: bool,
    /// Nanoseconds after which they give up, either [`Way`].
    limits: [Option<u64>; 2],
}

enum Kind {
    Socket(Socket),
    Listener { path: Vec<u8>, waiting: VecDeque<Id>, is_shut: bool },
    Event(u64),
}

/// One end of a connection.
#[derive(Default)]
struct Socket {
    received: VecDeque<Message>,
    /// Bytes of all of them.
    under_way: usize,
    peer: Option<Id>,
    /// By [`Way`]: it was shut down.
    is_shut: [bool; 2],
    /// The peer has gone without all that was sent to it.
    is_reset: bool,
    /// Set once it was accepted, or made by the program itself.
    is_held: bool,
    /// Messages stay apart (SOCK_SEQPACKET).
    is_apart: bool,
    /// Bytes under way to the peer beyond which it waits, where somebody has asked for more than [`ROOM`].
    room: usize,
}

struct Message {
    bytes: Vec<u8>,
    /// So much of it was received.
    at: usize,
    /// Descriptors that go with it (SCM_RIGHTS), its own.
    files: Vec<c_int>,
}

/// Something that was received.
#[derive(Default)]
pub struct Received {
    pub count: usize,
    /// The caller's from here on.
    pub files: Vec<c_int>,
    /// There was no room for the end of the message, which is lost.
    pub is_cut: bool,
}

#[derive(Default)]
struct Table {
    /// By descriptor.
    of: Vec<Option<Id>>,
    files: Vec<Option<OpenFile>>,
}

struct Global(RefCell<Table>);

// SAFETY: it is used once `ACTIVE` is set, which only a process does that simulates: there one thread of the system runs.
unsafe impl Sync for Global {}

static TABLE: Global = Global(RefCell::new(Table { of: Vec::new(), files: Vec::new() }));
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// From here on only one thread of the system runs.
pub fn activate() {
    ACTIVE.store(true, Ordering::Relaxed);
}

/// Tells if this process simulates, or has done so.
pub fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

fn with<T>(action: impl FnOnce(&mut Table) -> T) -> Option<T> {
    is_active().then(|| action(&mut TABLE.0.borrow_mut()))
}

/// The same for a descriptor that is one of these.
fn with_file<T>(fd: c_int, action: impl FnOnce(&mut Table, Id) -> T) -> Option<T> {
    with(|table| table.id(fd).map(|id| action(table, id))).flatten()
}

// ---- descriptors ----

pub fn is_known(fd: c_int) -> bool {
    with(|table| table.id(fd).is_some()).unwrap_or(false)
}

/// The same of a file.
pub fn is_socket(file: impl AsFd) -> bool {
    is_known(file.as_fd().as_raw_fd())
}

/// A new socket of such a kind (socket(2)) that is not connected. One of datagrams stays unknown.
pub fn opened(fd: c_int, kind: c_int) {
    let is_apart = match kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) {
        libc::SOCK_STREAM => false,
        libc::SOCK_SEQPACKET => true,
        _ => return,
    };
    let socket = Socket { is_held: true, is_apart, ..Socket::default() };
    with(|table| table.add(fd, Kind::Socket(socket), kind & libc::SOCK_NONBLOCK == 0));
}

/// Two new sockets are connected to each other.
pub fn paired(fds: [c_int; 2]) {
    with_file(fds[0], |table, one| {
        let Some(other) = table.id(fds[1]) else { return };
        for (id, peer) in [(one, other), (other, one)] {
            if let Some(socket) = table.socket(id) {
                socket.peer = Some(peer);
            }
        }
    });
}

/// A new eventfd.
pub fn opened_event(fd: c_int, count: u64, waits: bool) {
    with(|table| table.add(fd, Kind::Event(count), waits));
}

/// `new` is a duplicate of `fd`.
pub fn duplicated(fd: c_int, new: c_int) {
    with_file(fd, |table, id| table.share(new, id));
}

/// A descriptor is closed. Those that were under way in what it was about, which are to be closed as well.
pub fn closed(fd: c_int) -> Vec<c_int> {
    let close = |table: &mut Table, id| {
        table.of[fd as usize] = None;
        table.file(id).descriptors -= 1;
        if table.file(id).descriptors == 0 { table.end(id) } else { Vec::new() }
    };
    with_file(fd, close).unwrap_or_default()
}

pub fn set_waits(fd: c_int, waits: bool) {
    with_file(fd, |table, id| table.file(id).waits = waits);
}

pub fn waits(fd: c_int) -> bool {
    with_file(fd, |table, id| table.file(id).waits).unwrap_or_else(|| {
        let flags = real!(fcntl(fd, libc::F_GETFL) as fn(c_int, c_int) -> c_int);
        flags & libc::O_NONBLOCK == 0
    })
}

pub fn set_room(fd: c_int, room: usize) {
    with_file(fd, |table, id| table.socket(id).map(|socket| socket.room = room));
}

pub fn set_limit(fd: c_int, way: Way, limit: Option<u64>) {
    with_file(fd, |table, id| table.file(id).limits[way as usize] = limit);
}

/// Nanoseconds after which a call gives up.
pub fn limit(fd: c_int, way: Way) -> Option<u64> {
    with_file(fd, |table, id| table.file(id).limits[way as usize]).flatten()
}

// ---- connections ----

/// A socket has got a name, by which it will be listening.
pub fn bound(fd: c_int, path: &[u8]) {
    with_file(fd, |table, id| {
        table.file(id).kind = Kind::Listener { path: path.to_owned(), waiting: VecDeque::new(), is_shut: false };
    });
}

/// The system has connected a socket to whoever listens by this name. `false` where that is nobody here.
pub fn connected(fd: c_int, path: &[u8]) -> bool {
    with_file(fd, |table, id| {
        let listens = |file: &Option<OpenFile>| {
            matches!(file, Some(OpenFile { kind: Kind::Listener { path: own, .. }, .. }) if own == path)
        };
        let Some(listener) = table.files.iter().rposition(listens) else { return false };
        let Some(&mut Socket { is_apart, .. }) = table.socket(id) else { return false };
        let peer = table.insert(Kind::Socket(Socket { peer: Some(id), is_apart, ..Socket::default() }));
        if let Some(socket) = table.socket(id) {
            socket.peer = Some(peer);
        }
        if let Kind::Listener { waiting, .. } = &mut table.file(listener).kind {
            waiting.push_back(peer);
        }
        true
    })
    .unwrap_or(false)
}

/// The system has accepted a connection, the first that waits.
pub fn accepted(listener: c_int, fd: c_int, waits: bool) {
    with_file(listener, |table, id| {
        let Kind::Listener { waiting, .. } = &mut table.file(id).kind else { return };
        let first = waiting.pop_front().expect("who accepts has looked");
        if let Some(socket) = table.socket(first) {
            socket.is_held = true;
        }
        table.file(first).waits = waits;
        table.file(first).descriptors = 1;
        table.put(fd, first);
    });
}

/// Shuts a socket down, as shutdown(2) has it. One that listens is for the system to shut, too: `false`.
pub fn shut(fd: c_int, how: c_int) -> bool {
    with_file(fd, |table, id| {
        if let Kind::Listener { is_shut, .. } = &mut table.file(id).kind {
            *is_shut = true;
            return false;
        }
        let ways = [how != libc::SHUT_WR, how != libc::SHUT_RD];
        let peer = table.socket(id).and_then(|socket| {
            socket.is_shut = [socket.is_shut[0] | ways[0], socket.is_shut[1] | ways[1]];
            socket.peer
        });
        if let Some(peer) = peer.and_then(|peer| table.socket(peer)) {
            peer.is_shut = [peer.is_shut[0] | ways[1], peer.is_shut[1] | ways[0]];
        }
        true
    })
    .unwrap_or(false)
}

/// Those of `events` that a descriptor is ready for, and failures, as poll(2) has it.
pub fn ready(fd: c_int, events: i16) -> i16 {
    let known = with_file(fd, |table, id| table.ready(id) & (events | libc::POLLERR | libc::POLLHUP));
    known.unwrap_or_else(|| {
        let mut polled = libc::pollfd { fd, events, revents: 0 };
        real!(poll(&raw mut polled, 1, 0) as fn(*mut libc::pollfd, libc::nfds_t, c_int) -> c_int);
        polled.revents
    })
}

// ---- bytes ----

/// Receives into `parts`.
///
/// # Safety
/// They can be written.
pub unsafe fn receive(fd: c_int, parts: &[iovec], peeks: bool) -> Result<Received, c_int> {
    let receive = |table: &mut Table, id| {
        if let Kind::Event(count) = &mut table.file(id).kind {
            let bytes = match std::mem::take(count) {
                0 => return Err(libc::EAGAIN),
                count => count.to_ne_bytes(),
            };
            // SAFETY: the caller answers for the parts.
            return Ok(Received { count: unsafe { fill(parts, 0, &bytes) }, ..Received::default() });
        }
        let socket = table.socket(id).ok_or(libc::EINVAL)?;
        if !socket.received.is_empty() {
            // SAFETY: as above.
            return Ok(unsafe { socket.receive(parts, peeks) });
        }
        if std::mem::take(&mut socket.is_reset) {
            return Err(libc::ECONNRESET);
        }
        match socket {
            Socket { is_shut: [true, _], .. } => Ok(Received::default()),
            Socket { peer: Some(_), .. } => Err(libc::EAGAIN),
            _ => Err(libc::EINVAL),
        }
    };
    with_file(fd, receive).unwrap_or(Err(libc::EBADF))
}

/// Sends what is in `parts`, as far as there is room, with descriptors, of which duplicates go.
///
/// # Safety
/// The parts can be read.
pub unsafe fn send(fd: c_int, parts: &[iovec], files: &[c_int]) -> Reply {
    let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.iov_len).sum());
    for part in parts.iter().filter(|part| part.iov_len > 0) {
        // SAFETY: the caller answers for the parts, which are read here only.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len) });
    }
    let send = |table: &mut Table, id| {
        if let Kind::Event(count) = &mut table.file(id).kind {
            let more = bytes.try_into().map_err(|_| libc::EINVAL)?;
            *count = count.saturating_add(u64::from_ne_bytes(more));
            return Ok(size_of::<u64>());
        }
        let &mut Socket { is_shut: [_, is_shut], peer, is_apart, room, .. } = table.socket(id).ok_or(libc::EINVAL)?;
        if is_shut {
            return Err(libc::EPIPE);
        }
        let peer = peer.ok_or(libc::ENOTCONN)?;
        let left = ROOM.max(room).saturating_sub(table.socket(peer).ok_or(libc::EPIPE)?.under_way);
        if left == 0 {
            return Err(libc::EAGAIN);
        }
        if !is_apart {
            bytes.truncate(left);
        }
        let count = bytes.len();
        let files = files.iter().map(|&fd| table.duplicate(fd)).collect::<Result<_, _>>()?;
        let peer = table.socket(peer).ok_or(libc::EPIPE)?;
        if count > 0 || is_apart {
            peer.under_way += count;
            peer.received.push_back(Message { bytes, at: 0, files });
        }
        Ok(count)
    };
    with_file(fd, send).unwrap_or(Err(libc::EBADF))
}

impl Socket {
    /// Of a stream as much as there is, up to the end of a message with descriptors; else one message.
    ///
    /// # Safety
    /// The parts can be written.
    unsafe fn receive(&mut self, parts: &[iovec], peeks: bool) -> Received {
        let mut received = Received::default();
        for message in &mut self.received {
            // SAFETY: the caller answers for the parts.
            let count = unsafe { fill(parts, received.count, &message.bytes[message.at..]) };
            received.count += count;
            let is_whole = message.at + count == message.bytes.len();
            if !peeks {
                message.at += count;
                received.files = std::mem::take(&mut message.files);
            }
            received.is_cut = self.is_apart && !is_whole;
            if self.is_apart || !is_whole || !received.files.is_empty() {
                break;
            }
        }
        while let Some(first) = self.received.front().filter(|first| {
            let is_over = first.at == first.bytes.len() || self.is_apart;
            is_over && !peeks
        }) {
            self.under_way -= first.bytes.len();
            self.received.pop_front();
            if self.is_apart {
                break;
            }
        }
        received
    }
}

/// Copies as much as fits behind so many bytes.
///
/// # Safety
/// The parts can be written.
unsafe fn fill(parts: &[iovec], mut begun: usize, bytes: &[u8]) -> usize {
    let mut done = 0;
    for part in parts {
        let skipped = begun.min(part.iov_len);
        begun -= skipped;
        let len = (part.iov_len - skipped).min(bytes.len() - done);
        if len > 0 {
            // SAFETY: so many bytes are left in both, and `bytes` are none of the caller's.
            unsafe {
                part.iov_base.cast::<u8>().add(skipped).copy_from_nonoverlapping(bytes[done..].as_ptr(), len);
            }
        }
        done += len;
    }
    done
}

impl Table {
    fn id(&self, fd: c_int) -> Option<Id> {
        *self.of.get(usize::try_from(fd).ok()?)?
    }

    fn file(&mut self, id: Id) -> &mut OpenFile {
        self.files[id].as_mut().expect("a file that is open")
    }

    fn socket(&mut self, id: Id) -> Option<&mut Socket> {
        match &mut self.file(id).kind {
            Kind::Socket(socket) => Some(socket),
            _ => None,
        }
    }

    /// A duplicate of any descriptor.
    fn duplicate(&mut self, fd: c_int) -> Result<c_int, c_int> {
        let new = real!(fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) as fn(c_int, c_int, c_long) -> c_int);
        if new < 0 {
            return Err(errno());
        }
        if let Some(id) = self.id(fd) {
            self.share(new, id);
        }
        Ok(new)
    }

    fn share(&mut self, new: c_int, id: Id) {
        self.file(id).descriptors += 1;
        self.put(new, id);
    }

    fn insert(&mut self, kind: Kind) -> Id {
        let id = self.files.iter().position(Option::is_none).unwrap_or_else(|| {
            self.files.push(None);
            self.files.len() - 1
        });
        self.files[id] = Some(OpenFile { kind, descriptors: 0, waits: true, limits: [None; 2] });
        id
    }

    fn put(&mut self, fd: c_int, id: Id) {
        let place = usize::try_from(fd).expect("a descriptor");
        if self.of.len() <= place {
            self.of.resize(place + 1, None);
        }
        self.of[place] = Some(id);
    }

    fn add(&mut self, fd: c_int, kind: Kind, waits: bool) {
        let id = self.insert(kind);
        let file = self.file(id);
        (file.descriptors, file.waits) = (1, waits);
        self.put(fd, id);
    }

    /// The last descriptor of a file was closed, or who would have accepted it. Descriptors that were under way to it.
    fn end(&mut self, id: Id) -> Vec<c_int> {
        match self.files[id].take().expect("it is open").kind {
            Kind::Socket(ended) => {
                if let Some(peer) = ended.peer.and_then(|peer| self.socket(peer)) {
                    peer.peer = None;
                    peer.is_shut = [true; 2];
                    peer.is_reset = !ended.received.is_empty() || !ended.is_held;
                }
                ended.received.into_iter().flat_map(|message| message.files).collect()
            }
            Kind::Listener { waiting, .. } => waiting.into_iter().flat_map(|id| self.end(id)).collect(),
            Kind::Event(_) => Vec::new(),
        }
    }

    fn ready(&mut self, id: Id) -> i16 {
        let bits = |pairs: &[(bool, i16)]| pairs.iter().filter(|pair| pair.0).fold(0, |sum, pair| sum | pair.1);
        match &self.file(id).kind {
            Kind::Event(count) => bits(&[(*count > 0, libc::POLLIN), (true, libc::POLLOUT)]),
            Kind::Listener { waiting, is_shut, .. } => bits(&[(*is_shut || !waiting.is_empty(), libc::POLLIN)]),
            &Kind::Socket(Socket { ref received, peer, is_shut: [shut_in, shut_out], is_reset, room, .. }) => {
                let is_in = shut_in || !received.is_empty();
                let under_way = peer.and_then(|peer| self.socket(peer)).map_or(0, |peer| peer.under_way);
                bits(&[
                    (is_in, libc::POLLIN),
                    (shut_in, libc::POLLRDHUP),
                    (under_way <= ROOM.max(room) / 4, libc::POLLOUT),
                    (shut_in && shut_out, libc::POLLHUP),
                    (is_reset, libc::POLLERR),
                ])
            }
        }
    }
}
