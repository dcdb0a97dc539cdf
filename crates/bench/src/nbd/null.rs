//! A server that answers at once, with zeros: what is left is the cost of the client and the socket.
//!
//! ```text
//! accept ─► thread for each connection:  handshake ─► one large receive ─► all its requests answered
//!                                                          ▲                 in one send │
//!                                                          └────────────────────────────┘
//! ```
//!
//! It touches no disk and keeps nothing. It speaks structured replies with clients that ask for them.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use cryptline_nbd::reply::{self, Last, OFFSET_DATA_LEN};
use cryptline_nbd::request::{RequestHeader, parse_request};
use cryptline_nbd::wire::{REQUEST_LEN, cmd};
use cryptline_nbd::{
    BlockSizes, Capabilities, ExportInfo, Handshake, NbdError, Negotiated, ServerOffer, Step,
    TlsMode,
};

use rustix::net::Shutdown;
use rustix::thread::{sched_getaffinity, sched_setaffinity};

use super::BLOCK_MAX;
use super::client::write_all_vectored;
use crate::Error;
use crate::load::pin;

/// Bytes received at a time.
const BUFFER: usize = 256 * 1024;
/// Zeros in one piece of a send.
const ZEROS: usize = 256 * 1024;
/// Pieces in one send.
const PIECES: usize = 64;

/// A running null server. It takes no more clients, and its socket goes, when it is dropped; a thread
/// stays for each client that stays.
#[derive(Debug)]
pub struct NullServer {
    listener: UnixListener,
    socket: PathBuf,
}

impl NullServer {
    /// Serves `size` bytes at `socket`, which must not exist, with all threads on processor `cpu`.
    pub fn start(socket: &Path, size: u64, cpu: Option<usize>) -> Result<Self, Error> {
        let failed =
            |why: &dyn std::fmt::Display| Error::device(format!("{}: {why}", socket.display()));
        let offer = Arc::new(offer(size).map_err(|error| failed(&error))?);
        let listener = UnixListener::bind(socket).map_err(|error| failed(&error))?;
        let accepting = listener.try_clone().map_err(|error| failed(&error))?;
        let server = Self {
            listener,
            socket: socket.to_owned(),
        };
        let start = thread::Builder::new().name("null-server".into());
        let accept = move || accept(&accepting, &offer);
        let started = match cpu {
            None => start.spawn(accept),
            Some(cpu) => {
                // A thread begins on the processors of the one that starts it.
                let ours = sched_getaffinity(None).map_err(|error| failed(&error))?;
                pin(cpu)?;
                let started = start.spawn(accept);
                sched_setaffinity(None, &ours).map_err(|error| failed(&error))?;
                started
            }
        };
        started.map_err(|error| failed(&error))?;
        Ok(server)
    }
}

impl Drop for NullServer {
    fn drop(&mut self) {
        // Ends the wait for clients; it fails for no socket that listens.
        let _ = rustix::net::shutdown(&self.listener, Shutdown::Both);
        let _ = std::fs::remove_file(&self.socket);
    }
}

pub(super) fn offer(size: u64) -> Result<ServerOffer, String> {
    let can = Capabilities {
        flush: true,
        multi_conn: true,
        ..Capabilities::default()
    };
    let export = ExportInfo {
        name: String::new(),
        description: String::new(),
        size,
        flags: can.into(),
        block_sizes: BlockSizes {
            maximum: BLOCK_MAX,
            ..BlockSizes::default()
        },
        block_size_required: false,
        base_allocation: false,
    };
    ServerOffer::new(vec![export], TlsMode::Off).map_err(|error| error.to_string())
}

/// Takes clients until the socket is shut down.
fn accept(listener: &UnixListener, offer: &Arc<ServerOffer>) {
    while let Ok((stream, _)) = listener.accept() {
        let offer = Arc::clone(offer);
        // A client that leaves without a word is none of our business.
        thread::spawn(move || drop(serve(&stream, &offer)));
    }
}

fn serve(stream: &UnixStream, offer: &Arc<ServerOffer>) -> io::Result<()> {
    let Some(agreed) = shake_hands(stream, offer)? else {
        return Ok(());
    };
    let session = Session {
        buffer: vec![0; BUFFER],
        start: 0,
        end: 0,
        structured: agreed.structured_replies,
        write: None,
        replies: Vec::with_capacity(BUFFER / REQUEST_LEN),
        zeros: vec![0; ZEROS],
    };
    session.run(stream)
}

/// What the client wants; `None` for one that wants nothing more. Takes no byte of what follows.
pub(super) fn shake_hands(
    mut stream: &UnixStream,
    offer: &Arc<ServerOffer>,
) -> io::Result<Option<Negotiated>> {
    let mut handshake = Handshake::new(Arc::clone(offer));
    stream.write_all(&handshake.greeting())?;
    let (mut input, mut output) = (Vec::new(), Vec::new());
    loop {
        let progress = handshake
            .feed(&input, &mut output)
            .map_err(|error| io::Error::other(error.to_string()))?;
        input.drain(..progress.consumed);
        stream.write_all(&output)?;
        output.clear();
        match progress.step {
            Step::NeedMore => {
                let mut byte = [0];
                stream.read_exact(&mut byte)?;
                input.extend(byte);
            }
            Step::Transmission(agreed) => return Ok(Some(agreed)),
            Step::Close | Step::StartTls => return Ok(None),
        }
    }
}

/// One client in transmission.
struct Session {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    structured: bool,
    /// A write whose payload is coming, and how much of it.
    write: Option<(RequestHeader, usize)>,
    /// Headers and lengths of data, to be sent.
    replies: Vec<([u8; OFFSET_DATA_LEN], usize, usize)>,
    zeros: Vec<u8>,
}

impl Session {
    fn receive(&mut self, mut stream: &UnixStream) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        match stream.read(&mut self.buffer[self.end..])? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            len => {
                self.end += len;
                Ok(())
            }
        }
    }

    fn run(mut self, stream: &UnixStream) -> io::Result<()> {
        loop {
            while self.take()? {}
            self.send(stream)?;
            self.receive(stream)?;
        }
    }

    /// Takes the next request, or a piece of its payload, from what was received.
    fn take(&mut self) -> io::Result<bool> {
        let received = self.end - self.start;
        if let Some((header, left)) = self.write {
            let len = left.min(received);
            self.start += len;
            self.write = Some((header, left - len));
            if len == left {
                self.write = None;
                self.answer(&header);
            }
            return Ok(len > 0 || left == 0);
        }
        let Some(bytes) = self.buffer[self.start..self.end].first_chunk::<REQUEST_LEN>() else {
            return Ok(false);
        };
        let header = parse_request(bytes).map_err(|error| io::Error::other(error.to_string()))?;
        self.start += REQUEST_LEN;
        match (header.command, header.length) {
            (cmd::DISC, _) => return Err(ErrorKind::UnexpectedEof.into()),
            (cmd::READ | cmd::WRITE, length) if length > BLOCK_MAX => {
                return Err(io::Error::other("a request that is too long"));
            }
            (cmd::WRITE, length) => self.write = Some((header, length as usize)),
            _ => self.answer(&header),
        }
        Ok(true)
    }

    fn answer(&mut self, header: &RequestHeader) {
        let mut bytes = [0; OFFSET_DATA_LEN];
        let is_read = header.command == cmd::READ;
        let data = if is_read { header.length as usize } else { 0 };
        let len = if is_read && self.structured {
            bytes = reply::offset_data(header.cookie, header.offset, header.length, Last::Yes);
            bytes.len()
        } else {
            let known = is_read || matches!(header.command, cmd::WRITE | cmd::FLUSH);
            let outcome = if known { Ok(()) } else { Err(NbdError::Inval) };
            let simple = reply::simple(header.cookie, outcome);
            bytes[..simple.len()].copy_from_slice(&simple);
            simple.len()
        };
        self.replies.push((bytes, len, data));
    }

    fn send(&mut self, stream: &UnixStream) -> io::Result<()> {
        let mut pieces = [IoSlice::new(&[]); PIECES];
        let mut count = 0;
        for (header, len, data) in &self.replies {
            let whole = std::iter::repeat_n(&self.zeros[..], data / ZEROS);
            let rest = &self.zeros[..data % ZEROS];
            for piece in std::iter::once(&header[..*len]).chain(whole).chain([rest]) {
                pieces[count] = IoSlice::new(piece);
                count += 1;
                if count == PIECES {
                    write_all_vectored(stream, &mut pieces)?;
                    count = 0;
                }
            }
        }
        write_all_vectored(stream, &mut pieces[..count])?;
        self.replies.clear();
        Ok(())
    }
}
