//! NBD between the actors and the server: a client of its own, on a blocking socket.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use cryptline_nbd::client::{self, Reply, info_data, option};
use cryptline_nbd::wire::{GREETING_LEN, SIMPLE_REPLY_LEN, client_flag, info, opt, rep};
use cryptline_nbd::{NbdError, RequestHeader};

/// A connection in transmission, with simple replies.
pub struct Connection {
    stream: UnixStream,
    cookie: u64,
    /// Bytes that each request wants to read.
    reads: HashMap<u64, usize>,
}

/// An answer: to which request, and how it went; with the data of a read.
pub struct Answer {
    pub cookie: u64,
    pub outcome: Result<Vec<u8>, NbdError>,
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl Connection {
    /// Connects to an export; nothing takes longer than `patience`, each time.
    pub fn open(path: &Path, export: &str, patience: Duration) -> io::Result<Self> {
        let mut stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
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

    /// Sends a request with what it writes. Its cookie.
    pub fn send(&mut self, command: u16, flags: u16, (offset, length): (u64, u32), data: &[u8]) -> io::Result<u64> {
        self.cookie += 1;
        if command == cryptline_nbd::wire::cmd::READ {
            self.reads.insert(self.cookie, length as usize);
        }
        let header = RequestHeader { flags, command, cookie: self.cookie, offset, length };
        let message = [&client::request(&header)[..], data].concat();
        self.stream.write_all(&message)?;
        Ok(self.cookie)
    }

    /// The next answer.
    pub fn answer(&mut self) -> io::Result<Answer> {
        let mut head = [0; SIMPLE_REPLY_LEN];
        self.stream.read_exact(&mut head)?;
        let parsed = client::parse_reply(&head).map_err(|_| wrong("no reply"))?;
        let Some((Reply::Simple { cookie, outcome }, _)) = parsed else {
            return Err(wrong("another kind of reply"));
        };
        let mut data = vec![0; self.reads.remove(&cookie).unwrap_or(0)];
        if outcome.is_ok() {
            self.stream.read_exact(&mut data)?;
        }
        Ok(Answer { cookie, outcome: outcome.map(|()| data) })
    }
}
