//! An NBD server below: a disk in another process, which drops its clients, carries out late what it has received, and is
//! silent when it is told to.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use cryptline_nbd::wire::{REQUEST_LEN, cmd};
use cryptline_nbd::{
    BlockSizes, Capabilities, ExportInfo, Handshake, NbdError, NextStep, ServerOffer, TlsMode, TransmissionFlags,
    parse_request, reply,
};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::points::{Point, sometimes};
use crate::sim;

/// Those who wait until it speaks again.
const SILENT_KEY: usize = 3;

/// Ways in which it goes wrong.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Habits {
    /// One write in so many is held back, and its connection dropped; it takes effect later. 0 for none.
    pub late: u64,
    /// One request in so many is the last on its connection. 0 for none.
    pub drops: u64,
    /// A connection on which nothing is asked for so long is closed, while nobody changes anything.
    #[serde(default)]
    pub idle: Option<Duration>,
}

/// Calls a function while no change is under way, if that is so.
pub type WhileQuiet = Box<dyn Fn(&mut dyn FnMut()) + Send + Sync>;

/// The server.
pub struct Below {
    shared: Arc<Shared>,
    accepts: Option<JoinHandle<()>>,
}

struct Shared {
    store: Mutex<Store>,
    offer: Arc<ServerOffer>,
    habits: Habits,
    seed: u64,
    while_quiet: WhileQuiet,
}

struct Store {
    data: Vec<u8>,
    requests: u64,
    /// Requests that were not answered: command, offset and length.
    unanswered: Vec<(u16, usize, usize)>,
    is_silent: bool,
    is_closing: bool,
    clients: Vec<UnixStream>,
    threads: Vec<JoinHandle<()>>,
}

impl Below {
    /// A server of `data` at `path`.
    pub fn start(path: &Path, data: Vec<u8>, habits: Habits, seed: u64, while_quiet: WhileQuiet) -> io::Result<Self> {
        let can = Capabilities {
            flush: true,
            fua: true,
            trim: true,
            write_zeroes: true,
            multi_conn: true,
            ..Capabilities::default()
        };
        let export = ExportInfo {
            name: String::new(),
            description: String::new(),
            size: data.len() as u64,
            flags: TransmissionFlags::from(can),
            block_sizes: BlockSizes { minimum: 512, preferred: 4096, ..BlockSizes::default() },
            block_size_required: false,
            base_allocation: false,
        };
        let offer = ServerOffer::new(vec![export], TlsMode::Off).map_err(io::Error::other)?;
        let store = Store {
            data,
            requests: 0,
            unanswered: Vec::new(),
            is_silent: false,
            is_closing: false,
            clients: Vec::new(),
            threads: Vec::new(),
        };
        let shared = Arc::new(Shared { store: Mutex::new(store), offer: Arc::new(offer), habits, seed, while_quiet });
        let listener = UnixListener::bind(path)?;
        let server = Arc::clone(&shared);
        let accepts = std::thread::Builder::new().name("below".to_owned()).spawn(move || server.accept(&listener))?;
        Ok(Self { shared, accepts: Some(accepts) })
    }

    /// Answers nothing from here on.
    pub fn silence(&self) {
        self.shared.store().is_silent = true;
    }

    /// Answers again.
    pub fn speak(&self) {
        self.shared.store().is_silent = false;
        sim::kick(SILENT_KEY, usize::MAX);
    }

    /// Ends, once all that was received has taken effect. What the disk holds.
    pub fn end(mut self, path: &Path) -> Vec<u8> {
        self.speak();
        self.shared.store().is_closing = true;
        drop(UnixStream::connect(path));
        if let Some(thread) = self.accepts.take() {
            let _ = thread.join();
        }
        let clients = std::mem::take(&mut self.shared.store().clients);
        clients.iter().for_each(|client| drop(client.shutdown(Shutdown::Both)));
        // One that still serves may leave a write for later.
        loop {
            let Some(thread) = self.shared.store().threads.pop() else { break };
            let _ = thread.join();
        }
        std::mem::take(&mut self.shared.store().data)
    }
}

impl Shared {
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Self>, listener: &UnixListener) {
        while let Ok((stream, _)) = listener.accept() {
            if self.store().is_closing {
                return;
            }
            let (server, own) = (Arc::clone(self), stream.try_clone());
            let serve = move || {
                let _ = server.serve(&stream);
                let _ = stream.shutdown(Shutdown::Both);
            };
            if let (Ok(own), Ok(thread)) = (own, std::thread::Builder::new().name("below".to_owned()).spawn(serve)) {
                let mut store = self.store();
                store.clients.push(own);
                store.threads.push(thread);
            }
        }
    }

    fn wait_while_silent(&self) {
        while self.store().is_silent {
            sim::wait_for(Some(SILENT_KEY), None);
        }
    }

    fn serve(self: &Arc<Self>, mut stream: &UnixStream) -> io::Result<()> {
        self.wait_while_silent();
        let mut state = Handshake::new(Arc::clone(&self.offer));
        stream.write_all(&state.greeting())?;
        let (mut input, mut output) = (Vec::new(), Vec::new());
        let structured = loop {
            let progress = state.feed(&input, &mut output).map_err(io::Error::other)?;
            input.drain(..progress.consumed);
            stream.write_all(&output)?;
            output.clear();
            match progress.step {
                NextStep::NeedMore if progress.consumed > 0 && !input.is_empty() => {}
                NextStep::NeedMore => {
                    // Byte by byte would do as well: nothing behind the handshake is read.
                    let mut piece = [0; 256];
                    let len = stream.read(&mut piece)?;
                    if len == 0 {
                        return Ok(());
                    }
                    input.extend_from_slice(&piece[..len]);
                    self.wait_while_silent();
                }
                NextStep::Transmission(negotiated) => break negotiated.structured_replies,
                _ => return Ok(()),
            }
        };
        while !self.closes(stream)? && self.serve_one(stream, structured)? {}
        Ok(())
    }

    /// Waits for the first byte of a request; `true` where it does not come in time, and the connection was closed. What
    /// is sent by then was read: of whoever finds it closed, nothing has gone.
    fn closes(&self, stream: &UnixStream) -> io::Result<bool> {
        let Some(idle) = self.habits.idle else { return Ok(false) };
        stream.set_read_timeout(Some(idle))?;
        let mut first = [0];
        while recv(stream, &mut first, RecvFlags::PEEK) == Err(Errno::AGAIN) {
            let mut is_closed = false;
            (self.while_quiet)(&mut || {
                let waits_for_nothing = recv(stream, &mut first, RecvFlags::PEEK | RecvFlags::DONTWAIT);
                is_closed = waits_for_nothing == Err(Errno::AGAIN) && stream.shutdown(Shutdown::Both).is_ok();
            });
            if is_closed {
                sometimes(Point::IdleClosed);
                return Ok(true);
            }
        }
        stream.set_read_timeout(None)?;
        Ok(false)
    }

    fn serve_one(self: &Arc<Self>, mut stream: &UnixStream, structured: bool) -> io::Result<bool> {
        let mut head = [0; REQUEST_LEN];
        stream.read_exact(&mut head)?;
        let request = parse_request(&head).map_err(io::Error::other)?;
        let mut payload = vec![0; request.payload_length() as usize];
        stream.read_exact(&mut payload)?;
        self.wait_while_silent();
        let number = {
            let mut store = self.store();
            store.requests += 1;
            store.requests
        };
        let chance = |kind: u64, one_in: u64| one_in > 0 && sim::mix(&[self.seed, kind, number]).is_multiple_of(one_in);
        sim::wait_for(None, Some(Duration::from_nanos(2_000 + sim::mix(&[self.seed, 20, number]) % 300_000)));
        if request.command == cmd::DISC {
            return Ok(false);
        }
        let (at, len) = (usize::try_from(request.offset).unwrap_or(usize::MAX), request.length as usize);
        let is_inside = self.store().data.len().checked_sub(len).is_some_and(|most| at <= most);
        if !is_inside && request.command != cmd::FLUSH {
            stream.write_all(&reply::simple(request.cookie, Err(NbdError::Inval)))?;
            return Ok(true);
        }
        let content = match request.command {
            cmd::WRITE => Some(payload),
            cmd::WRITE_ZEROES | cmd::TRIM => Some(vec![0; len]),
            _ => None,
        };
        if let Some(content) = content {
            if chance(21, self.habits.late) {
                let server = Arc::clone(self);
                let pause = Duration::from_micros(100 + sim::mix(&[self.seed, 22, number]) % 3_000_000);
                let later = move || {
                    std::thread::sleep(pause);
                    sometimes(Point::LateEffect);
                    server.store().data[at..at + len].copy_from_slice(&content);
                };
                let thread = std::thread::Builder::new().name("late".to_owned()).spawn(later)?;
                self.store().threads.push(thread);
                return Ok(false);
            }
            self.store().data[at..at + len].copy_from_slice(&content);
        }
        let same = (request.command, at, len);
        let held = self.store().unanswered.iter().position(|held| *held == same);
        if let Some(held) = held {
            self.store().unanswered.swap_remove(held);
            sometimes(Point::SentAgain);
        }
        if chance(23, self.habits.drops) {
            self.store().unanswered.push(same);
            return Ok(false);
        }
        let answer = match (request.command, structured) {
            (cmd::READ, true) => {
                let head =
                    reply::offset_data(request.cookie, request.offset, request.length, reply::ChunkPosition::Yes);
                [&head[..], &self.store().data[at..at + len]].concat()
            }
            (cmd::READ, false) => {
                let head = reply::simple(request.cookie, Ok(()));
                [&head[..], &self.store().data[at..at + len]].concat()
            }
            _ => reply::simple(request.cookie, Ok(())).to_vec(),
        };
        stream.write_all(&answer)?;
        Ok(true)
    }
}
