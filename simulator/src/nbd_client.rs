//! A client of NBD, on a blocking socket.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use cryptline_nbd::client::{self, ServerMessage, info_data, option};
use cryptline_nbd::wire::{GREETING_LEN, SIMPLE_REPLY_LEN, client_flag, cmd, cmd_flag, info, opt, rep};
use cryptline_nbd::{NbdError, RequestHeader};
use rustix::io::Errno;

use crate::actor::Dialogue;
use crate::cells::SECTOR;
use crate::judge::{Asked, Outcome};

/// A client that has heard nothing for so long goes away.
const PATIENCE: Duration = Duration::from_secs(3);

/// A connection in transmission, with simple replies.
pub struct Connection {
    stream: UnixStream,
    cookie: u64,
    /// Bytes that each request wants to read.
    reads: HashMap<u64, usize>,
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl Connection {
    /// Connects to an export.
    pub fn open(path: &Path, export: &str) -> io::Result<Self> {
        let mut stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut greeting = [0; GREETING_LEN];
        stream.read_exact(&mut greeting)?;
        client::parse_greeting(&greeting).map_err(|_| wrong("no greeting"))?;
        let flags = client_flag::FIXED_NEWSTYLE | client_flag::NO_ZEROES;
        stream.write_all(&flags.to_be_bytes())?;
        stream.write_all(&option(opt::GO, &info_data(export.as_bytes(), &[info::BLOCK_SIZE])))?;
        loop {
            let mut head = [0; 20];
            stream.read_exact(&mut head)?;
            let [.., a, b, c, d, e, f, g, h] = head;
            let mut data = vec![0; u32::from_be_bytes([e, f, g, h]) as usize];
            stream.read_exact(&mut data)?;
            match u32::from_be_bytes([a, b, c, d]) {
                rep::ACK => return Ok(Self { stream, cookie: 0, reads: HashMap::new() }),
                rep::INFO => {}
                _ => return Err(io::ErrorKind::ConnectionRefused.into()),
            }
        }
    }
}

/// The command of a request, and its flags.
fn command(asked: &Asked) -> (u16, u16) {
    let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
    match *asked {
        Asked::Read(_) => (cmd::READ, 0),
        Asked::Write { durable, .. } => (cmd::WRITE, flag(durable, cmd_flag::FUA)),
        Asked::Zero { fast, may_unmap, durable, .. } => {
            let fast = flag(fast, cmd_flag::FAST_ZERO);
            (cmd::WRITE_ZEROES, flag(durable, cmd_flag::FUA) | fast | flag(!may_unmap, cmd_flag::NO_HOLE))
        }
        Asked::Discard(_) => (cmd::TRIM, 0),
        Asked::Flush => (cmd::FLUSH, 0),
        Asked::Size => unreachable!("a client of NBD is told it when it comes"),
    }
}

impl Dialogue for Connection {
    fn send(&mut self, asked: &Asked, data: &[u8]) -> io::Result<u64> {
        self.cookie += 1;
        let (place, (command, flags)) = (asked.place(), command(asked));
        let length = place.count * SECTOR;
        if command == cmd::READ {
            self.reads.insert(self.cookie, length);
        }
        let (offset, length) = ((place.first * SECTOR) as u64, u32::try_from(length).expect("small"));
        let header = RequestHeader { flags, command, cookie: self.cookie, offset, length };
        let message = [&client::request(&header)[..], data].concat();
        self.stream.write_all(&message)?;
        Ok(self.cookie)
    }

    fn hear(&mut self) -> io::Result<(u64, Outcome)> {
        let mut head = [0; SIMPLE_REPLY_LEN];
        self.stream.read_exact(&mut head)?;
        let parsed = client::parse_reply(&head).map_err(|_| wrong("no reply"))?;
        let Some((ServerMessage::Simple { cookie, outcome }, _)) = parsed else {
            return Err(wrong("another kind of reply"));
        };
        let mut data = vec![0; self.reads.remove(&cookie).unwrap_or(0)];
        if outcome.is_ok() {
            self.stream.read_exact(&mut data)?;
        }
        // Error numbers of the protocol are those of Linux.
        let number = |error: NbdError| Errno::from_raw_os_error(i32::try_from(error.code()).expect("small"));
        Ok((cookie, outcome.map(|()| data).map_err(number)))
    }
}
