//! A client of NBD, on a blocking socket.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use cryptline_nbd::client::{self, Content, ServerMessage, context_data, info_data, option};
use cryptline_nbd::wire::{BASE_ALLOCATION, GREETING_LEN, STATE_ZERO, client_flag, cmd, cmd_flag, info, opt, rep};
use cryptline_nbd::{NbdError, RequestHeader};
use rustix::io::Errno;

use crate::actor::Dialogue;
use crate::cells::Cells;
use crate::history::{Odd, Step};
use crate::judge::{Asked, Outcome};

/// A client that has heard nothing for so long goes away.
const PATIENCE: Duration = Duration::from_secs(3);
/// A command that nobody has defined.
const UNKNOWN: u16 = 77;

/// A connection in transmission.
pub struct Connection {
    stream: UnixStream,
    cells: Cells,
    /// Bytes of the export.
    size: u64,
    /// Answers come in chunks, and there is block status.
    structured: bool,
    cookie: u64,
    /// Bytes that have come and were not looked at.
    inbox: Vec<u8>,
    flying: HashMap<u64, Flying>,
}

/// A request that is not answered.
struct Flying {
    command: u16,
    offset: u64,
    /// Bytes read; or which of them are said to be zeros.
    data: Vec<u8>,
    /// Count of those that have come.
    came: usize,
    error: Option<Errno>,
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Error numbers of the protocol are those of Linux.
fn number(error: NbdError) -> Errno {
    Errno::from_raw_os_error(i32::try_from(error.code()).expect("small"))
}

impl Connection {
    /// Connects to an export, whose cells these are.
    pub fn open(path: &Path, export: &str, cells: Cells, structured: bool) -> io::Result<Self> {
        let mut stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut greeting = [0; GREETING_LEN];
        stream.read_exact(&mut greeting)?;
        client::parse_greeting(&greeting).map_err(|_| wrong("no greeting"))?;
        let flags = client_flag::FIXED_NEWSTYLE | client_flag::NO_ZEROES;
        stream.write_all(&flags.to_be_bytes())?;
        if structured {
            ask(&mut stream, opt::STRUCTURED_REPLY, &[])?;
            let contexts = context_data(export.as_bytes(), &[BASE_ALLOCATION.as_bytes()]);
            ask(&mut stream, opt::SET_META_CONTEXT, &contexts)?;
        }
        let size = ask(&mut stream, opt::GO, &info_data(export.as_bytes(), &[info::BLOCK_SIZE]))?;
        let (inbox, flying) = (Vec::new(), HashMap::new());
        Ok(Self { stream, cells, size, structured, cookie: 0, inbox, flying })
    }

    fn header(&mut self, asked: &Asked) -> RequestHeader {
        self.cookie += 1;
        let Range { start, end } = self.cells.range(asked.place());
        let (command, flags) = command(asked);
        let (offset, length) = (start as u64, u32::try_from(end - start).expect("small"));
        let header = RequestHeader { flags, command, cookie: self.cookie, offset, length };
        match *asked {
            Asked::Odd(Odd::Unaligned) => RequestHeader { offset: 1, length: 512, ..header },
            Asked::Odd(Odd::Behind | Odd::ZeroBehind) => {
                RequestHeader { offset: self.size - 512, length: 1024, ..header }
            }
            Asked::Odd(Odd::FarAway) => RequestHeader { offset: u64::MAX - 511, length: 1024, ..header },
            _ => header,
        }
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut piece = [0; 16 << 10];
        match self.stream.read(&mut piece)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            len => {
                self.inbox.extend_from_slice(&piece[..len]);
                Ok(())
            }
        }
    }
}

/// Sends an option and hears the replies to it. Bytes of the export, where they are told.
fn ask(stream: &mut UnixStream, wanted: u32, data: &[u8]) -> io::Result<u64> {
    stream.write_all(&option(wanted, data))?;
    let mut size = 0;
    loop {
        let mut head = [0; 20];
        stream.read_exact(&mut head)?;
        let [kind, len] = [12, 16].map(|at| u32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes")));
        let mut data = vec![0; len as usize];
        stream.read_exact(&mut data)?;
        match kind {
            rep::ACK => return Ok(size),
            rep::INFO => {
                if let Some(client::InfoReply::Export { size: told, .. }) = client::parse_info(&data) {
                    size = told;
                }
            }
            rep::META_CONTEXT => {}
            _ => return Err(io::ErrorKind::ConnectionRefused.into()),
        }
    }
}

/// The command of a request, and its flags.
fn command(asked: &Asked) -> (u16, u16) {
    let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
    match *asked {
        Asked::Read(_) | Asked::Odd(Odd::FarAway) => (cmd::READ, 0),
        Asked::Write { durable, .. } => (cmd::WRITE, flag(durable, cmd_flag::FUA)),
        Asked::Zero { fast, may_unmap, durable, .. } => {
            let fast = flag(fast, cmd_flag::FAST_ZERO);
            (cmd::WRITE_ZEROES, flag(durable, cmd_flag::FUA) | fast | flag(!may_unmap, cmd_flag::NO_HOLE))
        }
        Asked::Discard(_) => (cmd::TRIM, 0),
        Asked::Flush => (cmd::FLUSH, 0),
        Asked::Status(_) => (cmd::BLOCK_STATUS, 0),
        Asked::Odd(Odd::Unaligned | Odd::Behind) => (cmd::WRITE, 0),
        Asked::Odd(Odd::ZeroBehind) => (cmd::WRITE_ZEROES, 0),
        Asked::Odd(Odd::Unknown) => (UNKNOWN, 0),
        Asked::Size => unreachable!("a client of NBD is told it when it comes"),
    }
}

impl Flying {
    /// Takes one chunk of an answer in.
    fn take(&mut self, content: &Content<'_>) -> io::Result<()> {
        match content {
            Content::None => {}
            Content::Data { offset, data } if self.command == cmd::READ => {
                let place = self.place(*offset, data.len()).ok_or_else(|| wrong("bytes that were not asked for"))?;
                self.data[place].copy_from_slice(data);
                self.came += data.len();
            }
            Content::Hole { offset, length } if self.command == cmd::READ => {
                let place = self.place(*offset, *length as usize);
                self.data[place.ok_or_else(|| wrong("a hole that was not asked for"))?].fill(0);
                self.came += *length as usize;
            }
            Content::BlockStatus { extents, .. } if self.command == cmd::BLOCK_STATUS => {
                let mut at = 0;
                for extent in extents {
                    let end = (at + extent.length as usize).min(self.data.len());
                    self.data[at..end].fill(u8::from(extent.flags & STATE_ZERO != 0));
                    at = end;
                }
                self.came = self.data.len();
            }
            Content::Error { error, .. } => self.error = Some(number(*error)),
            _ => return Err(wrong("a chunk that was not asked for")),
        }
        Ok(())
    }

    fn place(&self, offset: u64, len: usize) -> Option<Range<usize>> {
        let start = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        (start + len <= self.data.len()).then_some(start..start + len)
    }

    fn outcome(self) -> io::Result<Outcome> {
        match self.error {
            Some(error) => Ok(Err(error)),
            None if self.came != self.data.len() => Err(wrong("an answer without some of its bytes")),
            None => Ok(Ok(self.data)),
        }
    }
}

impl Dialogue for Connection {
    fn phrase(&self, asked: Asked) -> Asked {
        match asked {
            Asked::Status(place) if !self.structured => Asked::Read(place),
            asked => asked,
        }
    }

    fn send(&mut self, asked: &Asked, data: &[u8]) -> io::Result<u64> {
        let header = self.header(asked);
        let foreign = vec![0xee; header.payload_length() as usize];
        let data = if let Asked::Odd(_) = asked { &foreign[..] } else { data };
        let hears = if matches!(header.command, cmd::READ | cmd::BLOCK_STATUS) { header.length as usize } else { 0 };
        let flying =
            Flying { command: header.command, offset: header.offset, data: vec![0; hears], came: 0, error: None };
        self.flying.insert(header.cookie, flying);
        self.stream.write_all(&[&client::request(&header)[..], data].concat())?;
        Ok(header.cookie)
    }

    fn turn(&mut self, step: Step) -> io::Result<()> {
        match step {
            Step::AskNoMore => self.stream.shutdown(Shutdown::Write),
            Step::Garble => self.stream.write_all(&[0x55; 64]),
            _ => Ok(()),
        }
    }

    fn break_off(&mut self, asked: &Asked, data: &[u8]) -> io::Result<()> {
        let header = self.header(asked);
        self.stream.write_all(&[&client::request(&header)[..], &data[..data.len() / 2]].concat())
    }

    fn hear(&mut self) -> io::Result<(u64, Outcome)> {
        loop {
            let (cookie, used, is_over) = match client::parse_reply(&self.inbox).map_err(|_| wrong("no reply"))? {
                None => {
                    self.receive()?;
                    continue;
                }
                Some((ServerMessage::Simple { cookie, outcome }, used)) => {
                    let flying = self.flying.get_mut(&cookie).ok_or_else(|| wrong("an answer to nothing"))?;
                    if self.structured && !flying.data.is_empty() {
                        return Err(wrong("a simple reply where chunks were agreed on"));
                    }
                    flying.error = outcome.err().map(number);
                    let len = if outcome.is_ok() { flying.data.len() } else { 0 };
                    let Some(data) = self.inbox.get(used..used + len) else {
                        self.receive()?;
                        continue;
                    };
                    flying.data[..len].copy_from_slice(data);
                    flying.came = len;
                    (cookie, used + len, true)
                }
                Some((ServerMessage::Chunk { cookie, done, content }, used)) => {
                    let flying = self.flying.get_mut(&cookie).ok_or_else(|| wrong("an answer to nothing"))?;
                    flying.take(&content)?;
                    (cookie, used, done)
                }
            };
            self.inbox.drain(..used);
            if is_over && let Some(flying) = self.flying.remove(&cookie) {
                return Ok((cookie, flying.outcome()?));
            }
        }
    }
}
