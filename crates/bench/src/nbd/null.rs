//! A server that answers at once, with zeros: what is left is the cost of the client and the socket.
//!
//! ```text
//! accept ─► thread for each connection:  handshake ─► one large receive ─► all its requests answered
//!                                                          ▲                 in one send │
//!                                                          └────────────────────────────┘
//! ```
//!
//! It touches no disk and keeps nothing. It speaks structured replies with clients that ask for them.

use std::io::{self, BufRead, BufReader, ErrorKind, IoSlice, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use cryptline_nbd::reply::{self, Last, OFFSET_DATA_LEN};
use cryptline_nbd::request::{RequestHeader, parse_request};
use cryptline_nbd::wire::{REQUEST_LEN, cmd};
use cryptline_nbd::{
    BlockSizes, Capabilities, ExportInfo, Handshake, NbdError, Negotiated, ServerOffer, Step, TlsMode,
};

use rustix::net::Shutdown;

use super::BLOCK_MAX;
use super::client::write_all_vectored;
use crate::Error;
use crate::load::pin;

/// Bytes received at a time.
const BUFFER: usize = 256 * 1024;
/// Zeros in one piece of a send.
const ZEROS: usize = 256 * 1024;

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
        let failed = |why: &dyn std::fmt::Display| Error::device(format!("{}: {why}", socket.display()));
        let offer = Arc::new(offer(size).map_err(|error| failed(&error))?);
        let listener = UnixListener::bind(socket).map_err(|error| failed(&error))?;
        let accepting = listener.try_clone().map_err(|error| failed(&error))?;
        let server = Self { listener, socket: socket.to_owned() };
        let start = move || {
            // A thread begins on the processors of the one that starts it.
            cpu.map_or(Ok(()), pin)?;
            let thread = thread::Builder::new().name("null-server".into());
            let accept = move || accept(&accepting, &offer);
            thread.spawn(accept).map_err(|error| failed(&error))
        };
        let started = thread::scope(|scope| scope.spawn(start).join());
        started.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
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
    let can = Capabilities { flush: true, multi_conn: true, ..Capabilities::default() };
    let export = ExportInfo {
        name: String::new(),
        description: String::new(),
        size,
        flags: can.into(),
        block_sizes: BlockSizes { maximum: BLOCK_MAX, ..BlockSizes::default() },
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

/// What the client wants; `None` for one that wants nothing more. Takes no byte of what follows.
pub(super) fn shake_hands(mut stream: &UnixStream, offer: &Arc<ServerOffer>) -> io::Result<Option<Negotiated>> {
    let mut handshake = Handshake::new(Arc::clone(offer));
    stream.write_all(&handshake.greeting())?;
    let (mut input, mut output) = (Vec::new(), Vec::new());
    loop {
        let progress = handshake.feed(&input, &mut output).map_err(|error| io::Error::other(error.to_string()))?;
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

/// A reply's header and how much of it there is, and how many bytes of data follow.
type Reply = ([u8; OFFSET_DATA_LEN], usize, usize);

/// One client, from its first byte to its last.
fn serve(stream: &UnixStream, offer: &Arc<ServerOffer>) -> io::Result<()> {
    let Some(agreed) = shake_hands(stream, offer)? else {
        return Ok(());
    };
    let zeros = vec![0; ZEROS];
    let mut requests = BufReader::with_capacity(BUFFER, stream);
    let mut replies = Vec::with_capacity(BUFFER / REQUEST_LEN);
    loop {
        // All that has come is answered before there is a wait for more.
        if requests.buffer().len() < REQUEST_LEN {
            send(stream, &mut replies, &zeros)?;
        }
        let mut bytes = [0; REQUEST_LEN];
        requests.read_exact(&mut bytes)?;
        let header = parse_request(&bytes).map_err(|error| io::Error::other(error.to_string()))?;
        let is_transfer = matches!(header.command, cmd::READ | cmd::WRITE);
        if header.command == cmd::DISC || (is_transfer && header.length > BLOCK_MAX) {
            return Ok(());
        }
        let mut payload = match header.command {
            cmd::WRITE => header.length as usize,
            _ => 0,
        };
        while payload > 0 {
            if requests.buffer().is_empty() {
                send(stream, &mut replies, &zeros)?;
            }
            let len = requests.fill_buf()?.len().min(payload);
            if len == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            requests.consume(len);
            payload -= len;
        }
        replies.push(answer(&header, agreed.structured_replies));
    }
}

fn answer(header: &RequestHeader, structured: bool) -> Reply {
    let is_read = header.command == cmd::READ;
    let data = if is_read { header.length as usize } else { 0 };
    if is_read && structured {
        let bytes = reply::offset_data(header.cookie, header.offset, header.length, Last::Yes);
        return (bytes, bytes.len(), data);
    }
    let known = is_read || matches!(header.command, cmd::WRITE | cmd::FLUSH);
    let outcome = if known { Ok(()) } else { Err(NbdError::Inval) };
    let simple = reply::simple(header.cookie, outcome);
    let mut bytes = [0; OFFSET_DATA_LEN];
    bytes[..simple.len()].copy_from_slice(&simple);
    (bytes, simple.len(), data)
}

fn send(stream: &UnixStream, replies: &mut Vec<Reply>, zeros: &[u8]) -> io::Result<()> {
    let mut pieces = Vec::with_capacity(replies.len() * 2);
    for (header, len, data) in &*replies {
        pieces.push(IoSlice::new(&header[..*len]));
        pieces.extend(std::iter::repeat_n(IoSlice::new(zeros), data / ZEROS));
        pieces.push(IoSlice::new(&zeros[..data % ZEROS]));
    }
    write_all_vectored(stream, &mut pieces)?;
    replies.clear();
    Ok(())
}
