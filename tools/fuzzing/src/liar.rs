//! A server for the target `nbd_client`: keeps the protocol and a disk, but for what a script
//! tells it to do to each answer. It never lets a client wait for ever, except for a request that was never sent.

use std::io::{self, Read as _};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cryptline_nbd::reply::{self, ChunkPosition};
use cryptline_nbd::wire::{INIT_PASSWD, OPTION_MAGIC, OPTION_REPLY_MAGIC, info, opt, rep};
use cryptline_nbd::wire::{OPTION_HEADER_LEN, REQUEST_LEN, cmd};
use cryptline_nbd::{NbdError, RequestHeader, TransmissionFlags, parse_request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SendFlags;

/// Bytes of the export.
pub const SIZE: u64 = 1 << 20;
/// Longer than a busy machine takes, shorter than a hang.
const PATIENCE: Duration = Duration::from_secs(6);
/// How long somebody is left alone who may wait for what does not come.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
/// Further connections are closed without a word.
const CONNECTIONS: usize = 16;
/// Options of one client.
const OPTIONS: usize = 16;
/// The number of `base:allocation`.
const CONTEXT: u32 = 7;

/// Offer and behaviour of the server.
#[derive(Clone, Debug, Default)]
pub struct LiarScript {
    pub flags: u16,
    pub structured: bool,
    pub allocation: bool,
    /// Smallest, preferred and largest block.
    pub sizes: Option<[u32; 3]>,
    /// One byte of what is said in the handshake: its place, and which of its bits are others. From which connection on.
    pub flip: Option<(usize, u8, usize)>,
    /// Treatment of each answer: how, and two numbers.
    pub answers: Vec<[u8; 3]>,
}

/// State that all connections of a server share.
struct LiarShared {
    script: LiarScript,
    disk: Mutex<Vec<u8>>,
    clients: Mutex<Vec<UnixStream>>,
    /// Requests so far.
    requests: AtomicUsize,
    connections: AtomicUsize,
    has_lied: AtomicBool,
    is_over: AtomicBool,
}

pub struct Liar {
    /// An abstract name, with its zero.
    pub name: Vec<u8>,
    address: SocketAddr,
    shared: Arc<LiarShared>,
    thread: JoinHandle<()>,
}

impl Liar {
    #[must_use]
    pub fn start(script: LiarScript) -> Self {
        let (address, listener) = crate::listener();
        let shared = Arc::new(LiarShared {
            script,
            disk: Mutex::new(vec![0; SIZE as usize]),
            clients: Mutex::default(),
            requests: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            has_lied: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let served = Arc::clone(&shared);
        Self {
            name: [b"\0", address.as_abstract_name().expect("its name")].concat(),
            address,
            shared,
            thread: thread::spawn(move || served.accept(&listener)),
        }
    }

    /// Tells if anything was said that a server must not say, or a connection was cut.
    #[must_use]
    pub fn has_lied(&self) -> bool {
        self.shared.has_lied.load(Ordering::SeqCst)
    }

    pub fn end(self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.shared.cut_all();
        let _ = UnixStream::connect_addr(&self.address);
        self.thread.join().expect("the server ended well");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody has failed")
}

impl LiarShared {
    fn accept(self: &Arc<Self>, listener: &UnixListener) {
        let mut threads = Vec::new();
        while !self.is_over.load(Ordering::SeqCst) {
            let Ok((stream, _)) = listener.accept() else {
                continue;
            };
            let number = self.connections.fetch_add(1, Ordering::SeqCst);
            if number >= CONNECTIONS {
                continue;
            }
            lock(&self.clients).push(stream.try_clone().expect("a second descriptor"));
            let shared = Arc::clone(self);
            threads.push(thread::spawn(move || {
                let mut client = LiarClient { stream, shared, said: 0, number, held: Vec::new(), owes: false };
                // However it ends, the client sees that it does.
                let _ = client.serve();
                let _ = client.stream.shutdown(Shutdown::Both);
            }));
        }
        self.cut_all();
        for thread in threads {
            thread.join().expect("a connection ended well");
        }
    }

    /// The end of the server, as its clients see it.
    fn cut_all(&self) {
        for client in lock(&self.clients).drain(..) {
            let _ = client.shutdown(Shutdown::Both);
        }
    }

    fn lie(&self) {
        self.has_lied.store(true, Ordering::SeqCst);
    }
}

/// One connection.
struct LiarClient {
    stream: UnixStream,
    shared: Arc<LiarShared>,
    /// Bytes said in the handshake.
    said: usize,
    number: usize,
    /// An answer that comes behind the next.
    held: Vec<u8>,
    /// The client may wait for something that does not come.
    owes: bool,
}

/// The connection is over.
struct ConnectionOver;

impl From<io::Error> for ConnectionOver {
    fn from(_: io::Error) -> Self {
        Self
    }
}

impl LiarClient {
    fn serve(&mut self) -> Result<(), ConnectionOver> {
        self.stream.set_read_timeout(Some(PATIENCE))?;
        self.stream.set_write_timeout(Some(PATIENCE))?;
        let flip = self.shared.script.flip;
        self.owes = flip.is_some_and(|(_, _, from)| self.number >= from);
        self.greet()?;
        // What was agreed on may not be what we think.
        loop {
            self.wait()?;
            let mut header = [0; REQUEST_LEN];
            self.hear(&mut header)?;
            let header = parse_request(&header).map_err(|_| ConnectionOver)?;
            if header.command == cmd::DISC {
                return Ok(());
            }
            let mut payload = vec![0; header.payload_length() as usize];
            self.hear(&mut payload)?;
            let answer = self.make(&header, &payload);
            self.answer(&header, answer)?;
        }
    }

    /// Waits for the client to say something, for as long as that may take.
    fn wait(&mut self) -> Result<(), ConnectionOver> {
        loop {
            let fd = PollFd::from_borrowed_fd(self.stream.as_fd(), PollFlags::IN);
            match poll(&mut [fd], Some(&PAUSE)) {
                Ok(0) if !self.held.is_empty() => {
                    let held = std::mem::take(&mut self.held);
                    self.say(&held)?;
                }
                Ok(0) if self.owes => return Err(ConnectionOver),
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(_) => return Err(ConnectionOver),
            }
        }
    }

    fn hear(&mut self, target: &mut [u8]) -> Result<(), ConnectionOver> {
        Ok(self.stream.read_exact(target)?)
    }

    fn say(&mut self, mut bytes: &[u8]) -> Result<(), ConnectionOver> {
        while !bytes.is_empty() {
            match rustix::net::send(&self.stream, bytes, SendFlags::NOSIGNAL) {
                Ok(len) => bytes = &bytes[len..],
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Err(ConnectionOver),
            }
        }
        Ok(())
    }

    /// The same in the handshake, where one byte may be another.
    fn shake(&mut self, bytes: &[u8]) -> Result<(), ConnectionOver> {
        let mut bytes = bytes.to_vec();
        if let Some((at, bits, from)) = self.shared.script.flip
            && self.number >= from
            && let Some(byte) = at.checked_sub(self.said).and_then(|at| bytes.get_mut(at))
        {
            *byte ^= bits;
            self.shared.lie();
        }
        self.said += bytes.len();
        self.say(&bytes)
    }

    fn greet(&mut self) -> Result<(), ConnectionOver> {
        let greeting = [&INIT_PASSWD.to_be_bytes()[..], &OPTION_MAGIC.to_be_bytes(), &3_u16.to_be_bytes()];
        self.shake(&greeting.concat())?;
        self.wait()?;
        self.hear(&mut [0; 4])?;
        for _ in 0..OPTIONS {
            self.wait()?;
            let mut header = [0; OPTION_HEADER_LEN];
            self.hear(&mut header)?;
            let number = |at: usize| {
                let bytes = header[at..at + 4].try_into();
                bytes.map(u32::from_be_bytes).expect("4 bytes")
            };
            let (option, len) = (number(8), number(12));
            assert!(len < 65536, "an option of {len} bytes");
            self.hear(&mut vec![0; len as usize])?;
            if self.take_option(option)? {
                return Ok(());
            }
        }
        Err(ConnectionOver)
    }

    /// Answers an option; whether the handshake has ended with it.
    fn take_option(&mut self, option: u32) -> Result<bool, ConnectionOver> {
        let script = self.shared.script.clone();
        let context = [&CONTEXT.to_be_bytes()[..], b"base:allocation"].concat();
        match option {
            opt::STRUCTURED_REPLY if script.structured => self.reply(option, rep::ACK, &[])?,
            opt::SET_META_CONTEXT if script.allocation => {
                self.reply(option, rep::META_CONTEXT, &context)?;
                self.reply(option, rep::ACK, &[])?;
            }
            opt::GO => {
                let flags = TransmissionFlags::from_bits(script.flags).bits();
                let export = [&info::EXPORT.to_be_bytes()[..], &SIZE.to_be_bytes(), &flags.to_be_bytes()];
                self.reply(option, rep::INFO, &export.concat())?;
                if let Some(sizes) = script.sizes {
                    let sizes = sizes.map(u32::to_be_bytes).concat();
                    let data = [&info::BLOCK_SIZE.to_be_bytes()[..], &sizes].concat();
                    self.reply(option, rep::INFO, &data)?;
                }
                self.reply(option, rep::ACK, &[])?;
                return Ok(true);
            }
            opt::ABORT => return Err(ConnectionOver),
            _ => self.reply(option, rep::ERR_UNSUP, b"no")?,
        }
        Ok(false)
    }

    fn reply(&mut self, option: u32, kind: u32, data: &[u8]) -> Result<(), ConnectionOver> {
        let mut bytes = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
        for number in [option, kind, data.len() as u32] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend(data);
        self.shake(&bytes)
    }

    /// Carries a request out; its right answer.
    fn make(&self, header: &RequestHeader, payload: &[u8]) -> Vec<u8> {
        let cookie = header.cookie;
        let mut disk = lock(&self.shared.disk);
        let start = usize::try_from(header.offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(header.length as usize);
        let refused = || reply::simple(cookie, Err(NbdError::Inval)).to_vec();
        let Some(range) = disk.get_mut(start..end) else {
            return refused();
        };
        match header.command {
            cmd::READ if self.shared.script.structured => {
                let head = reply::offset_data(cookie, header.offset, header.length, ChunkPosition::Yes);
                return [&head[..], range].concat();
            }
            cmd::READ => return [&reply::simple(cookie, Ok(())), &*range].concat(),
            cmd::WRITE => range.copy_from_slice(payload),
            cmd::WRITE_ZEROES | cmd::TRIM => range.fill(0),
            cmd::BLOCK_STATUS => {
                let mut room = vec![0; 64];
                let mut writer = reply::BlockStatus::new(&mut room).expect("room");
                let half = (header.length / 2).max(1);
                for (length, flags) in [(half, 3), (header.length - half, 0)] {
                    writer.push(reply::NbdExtent { length, flags });
                }
                let chunk = writer.finish(cookie, CONTEXT, ChunkPosition::Yes);
                return chunk.map_or_else(refused, <[u8]>::to_vec);
            }
            _ => {}
        }
        reply::simple(cookie, Ok(())).to_vec()
    }

    /// Says the right answer, or what the script makes of it.
    fn answer(&mut self, header: &RequestHeader, right: Vec<u8>) -> Result<(), ConnectionOver> {
        let request = self.shared.requests.fetch_add(1, Ordering::SeqCst);
        let [how, a, b] = *self.shared.script.answers.get(request).unwrap_or(&[0; 3]);
        let (cookie, at) = (header.cookie, usize::from(a) % right.len());
        let is_read = header.command == cmd::READ && self.shared.script.structured;
        let answer = match how % 16 {
            // As a good server may.
            4 => {
                let error = NbdError::from_code(u32::from(a));
                let structured = self.shared.script.structured;
                // The client does not know what became of it, and neither does who compares.
                self.shared.lie();
                let failed = reply::failure(structured, cookie, error, "no");
                failed.as_bytes().to_vec()
            }
            5 => {
                let (first, rest) = right.split_at(at);
                self.say(first)?;
                thread::yield_now();
                rest.to_vec()
            }
            6 if is_read && header.length > 1 => in_two(header, &right),
            7 if self.held.is_empty() => {
                self.held = right;
                return Ok(());
            }
            8 => {
                self.shared.lie();
                self.shared.cut_all();
                return Err(ConnectionOver);
            }
            // As none may.
            9 => self.lie([&right[..], &right].concat()),
            10 => {
                let mut wrong = right;
                wrong[at] ^= b.max(1);
                self.lie(wrong)
            }
            11 => {
                self.shared.lie();
                self.say(&right[..at])?;
                return Err(ConnectionOver);
            }
            12 => self.lie([a, b].repeat(50)),
            13 => {
                let payload = right[..at].to_vec();
                self.lie(chunk(cookie, a, b, &payload))
            }
            14 if is_read => {
                let hole =
                    reply::offset_hole(cookie, header.offset + u64::from(a), u32::from(b) << 8, ChunkPosition::Yes);
                self.lie(hole.to_vec())
            }
            15 => {
                let error = reply::error_chunk(cookie, NbdError::Io, "again", ChunkPosition::No);
                self.lie(error.as_bytes().repeat(usize::from(a)))
            }
            _ => right,
        };
        self.say(&answer)?;
        let held = std::mem::take(&mut self.held);
        self.say(&held)
    }

    fn lie(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        self.shared.lie();
        self.owes = true;
        bytes
    }
}

/// The same read in two chunks, the second part first.
fn in_two(header: &RequestHeader, right: &[u8]) -> Vec<u8> {
    let data = &right[right.len() - header.length as usize..];
    let half = header.length / 2;
    let (first, second) = data.split_at(half as usize);
    let offset = header.offset + u64::from(half);
    let head = |offset, len, last| reply::offset_data(header.cookie, offset, len, last);
    [
        &head(offset, header.length - half, ChunkPosition::No)[..],
        second,
        &head(header.offset, half, ChunkPosition::Yes),
        first,
    ]
    .concat()
}

/// A chunk of any kind.
fn chunk(cookie: u64, flags: u8, kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = reply::none(cookie).to_vec();
    let high = u16::from(flags & 2) << 14;
    bytes[4..6].copy_from_slice(&u16::from(flags & 1).to_be_bytes());
    bytes[6..8].copy_from_slice(&(high | u16::from(kind)).to_be_bytes());
    bytes[16..20].copy_from_slice(&(payload.len() as u32).to_be_bytes());
    bytes.extend(payload);
    bytes
}
