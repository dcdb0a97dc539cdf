//! Our own client: says exactly the bytes it is told to, and checks every byte that comes back.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use cryptline_nbd::client::{self, Content, InfoReply, OptionReply, ServerMessage, context_data, info_data, option};
use cryptline_nbd::reply::NbdExtent;
use cryptline_nbd::wire::{GREETING_LEN, client_flag, cmd, info, opt, rep};
use cryptline_nbd::{NbdError, RequestHeader, TransmissionFlags};

use super::Served;

/// Options that a client asks for before it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Structured replies and block status.
    Structured,
    /// Simple replies.
    Simple,
    /// `GO` without a word about block sizes, as Debian's nbd-client says it; simple replies.
    NeverAsks,
    /// `EXPORT_NAME`, which can not ask for anything; simple replies.
    ExportName,
}

/// The handshake's flags that all our clients send.
pub const CLIENT_FLAGS: u32 = client_flag::FIXED_NEWSTYLE | client_flag::NO_ZEROES;

/// One finished request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whose.
    pub cookie: u64,
    /// Result of the request; for a read, with the data.
    pub outcome: Result<Vec<u8>, NbdError>,
    /// For block status.
    pub extents: Vec<NbdExtent>,
}

impl Answer {
    /// The data of a request that must have succeeded.
    #[track_caller]
    pub fn data(self) -> Vec<u8> {
        self.outcome.expect("success")
    }
}

/// A request that waits for its answer.
#[derive(Default)]
struct Waiting {
    offset: u64,
    data: Vec<u8>,
    /// Which bytes of a structured read have come, so that none comes twice.
    seen: Vec<bool>,
    extents: Vec<NbdExtent>,
    error: Option<NbdError>,
    is_read: bool,
}

/// A connection in transmission.
pub struct Raw {
    /// The socket.
    pub stream: UnixStream,
    /// Bytes of the export.
    pub size: u64,
    /// Its flags.
    pub flags: TransmissionFlags,
    style: Style,
    inbox: Vec<u8>,
    taken: usize,
    cookie: u64,
    waiting: HashMap<u64, Waiting>,
}

impl Raw {
    /// Connects to the default export with structured replies.
    pub fn connect(served: &Served) -> Self {
        Self::connect_as(served, Style::Structured)
    }

    /// Connects to the default export.
    pub fn connect_as(served: &Served, style: Style) -> Self {
        let stream = greeted(served);
        Self::negotiate(stream, "", style)
    }

    /// Negotiates on a stream that has been greeted.
    pub fn negotiate(mut stream: UnixStream, export: &str, style: Style) -> Self {
        let name = export.as_bytes();
        if style == Style::Structured {
            say(&mut stream, &option(opt::STRUCTURED_REPLY, &[]));
            assert_eq!(option_reply(&mut stream).0, rep::ACK);
            let query = context_data(name, &[b"base:allocation"]);
            say(&mut stream, &option(opt::SET_META_CONTEXT, &query));
            assert_eq!(option_reply(&mut stream).0, rep::META_CONTEXT);
            assert_eq!(option_reply(&mut stream).0, rep::ACK);
        }
        if style == Style::ExportName {
            return Self::export_name(stream, name);
        }
        let asked: &[u16] = match style {
            Style::NeverAsks => &[],
            _ => &[info::BLOCK_SIZE],
        };
        say(&mut stream, &option(opt::GO, &info_data(name, asked)));
        let mut found = None;
        loop {
            let (kind, data) = option_reply(&mut stream);
            match kind {
                rep::ACK => break,
                rep::INFO => {
                    if let Some(InfoReply::Export { size, flags }) = client::parse_info(&data) {
                        found = Some((size, flags));
                    }
                }
                other => panic!("GO was answered with {other:#x}"),
            }
        }
        let (size, flags) = found.expect("size and flags");
        Self::in_transmission(stream, size, flags, style)
    }

    fn export_name(mut stream: UnixStream, name: &[u8]) -> Self {
        say(&mut stream, &option(opt::EXPORT_NAME, name));
        let mut reply = [0; 10];
        stream.read_exact(&mut reply).expect("size and flags");
        let [size @ .., high, low] = reply;
        let flags = TransmissionFlags::from_bits(u16::from_be_bytes([high, low]));
        Self::in_transmission(stream, u64::from_be_bytes(size), flags, Style::ExportName)
    }

    /// Goes on where somebody else has negotiated.
    pub fn in_transmission(stream: UnixStream, size: u64, flags: TransmissionFlags, style: Style) -> Self {
        Self {
            stream,
            size,
            flags,
            style,
            inbox: Vec::new(),
            taken: 0,
            cookie: 0x5eed_0000_0000_0000,
            waiting: HashMap::new(),
        }
    }

    /// The bytes of a request, which then counts as sent.
    pub fn encode(&mut self, command: u16, flags: u16, range: (u64, u32)) -> (u64, Vec<u8>) {
        self.cookie += 1;
        let (offset, length) = range;
        let is_read = command == cmd::READ;
        let len = if is_read { length as usize } else { 0 };
        // What is far too long is refused.
        let len = if len > 64 << 20 { 0 } else { len };
        let waiting =
            Waiting { offset, data: vec![0xa5; len], seen: vec![false; len / 512 + 1], is_read, ..Waiting::default() };
        self.waiting.insert(self.cookie, waiting);
        let header = RequestHeader { flags, command, cookie: self.cookie, offset, length };
        (self.cookie, client::request(&header).to_vec())
    }

    /// Sends a request without payload.
    pub fn send(&mut self, command: u16, flags: u16, range: (u64, u32)) -> u64 {
        let (cookie, bytes) = self.encode(command, flags, range);
        say(&mut self.stream, &bytes);
        cookie
    }

    /// Sends a write.
    pub fn send_write(&mut self, flags: u16, offset: u64, data: &[u8]) -> u64 {
        let (cookie, bytes) = self.encode_write(flags, offset, data);
        say(&mut self.stream, &bytes);
        cookie
    }

    /// The bytes of a write.
    pub fn encode_write(&mut self, flags: u16, offset: u64, data: &[u8]) -> (u64, Vec<u8>) {
        let length = u32::try_from(data.len()).expect("a length");
        let (cookie, mut bytes) = self.encode(cmd::WRITE, flags, (offset, length));
        bytes.extend_from_slice(data);
        (cookie, bytes)
    }

    /// Sends a request and waits for its answer.
    pub fn ask(&mut self, command: u16, flags: u16, range: (u64, u32)) -> Answer {
        let cookie = self.send(command, flags, range);
        self.answer_to(cookie)
    }

    /// Reads.
    #[track_caller]
    pub fn read(&mut self, offset: u64, length: u32) -> Vec<u8> {
        self.ask(cmd::READ, 0, (offset, length)).data()
    }

    /// Writes.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), NbdError> {
        self.write_with(0, offset, data)
    }

    /// Writes with command flags.
    pub fn write_with(&mut self, flags: u16, offset: u64, data: &[u8]) -> Result<(), NbdError> {
        let cookie = self.send_write(flags, offset, data);
        self.answer_to(cookie).outcome.map(drop)
    }

    /// Flushes.
    pub fn flush(&mut self) -> Result<(), NbdError> {
        self.ask(cmd::FLUSH, 0, (0, 0)).outcome.map(drop)
    }

    /// The next answer, which must be this request's: the only one on its way.
    #[track_caller]
    pub fn answer_to(&mut self, cookie: u64) -> Answer {
        let answer = self.answer();
        assert_eq!(answer.cookie, cookie);
        answer
    }

    /// The next `count` answers, by cookie.
    pub fn answers(&mut self, count: usize) -> HashMap<u64, Answer> {
        let answers = (0..count).map(|_| self.answer());
        let answers: HashMap<_, _> = answers.map(|answer| (answer.cookie, answer)).collect();
        assert_eq!(answers.len(), count);
        answers
    }

    /// The next answer, whosever it is.
    #[track_caller]
    pub fn answer(&mut self) -> Answer {
        self.next_answer().expect("the server is still there")
    }

    /// The next answer; `None` when the server has closed the connection.
    pub fn next_answer(&mut self) -> Option<Answer> {
        loop {
            let parsed = client::parse_reply(&self.inbox[self.taken..]).expect("a reply");
            let Some((reply, len)) = parsed else {
                self.receive()?;
                continue;
            };
            match reply {
                ServerMessage::Simple { cookie, outcome } => {
                    self.taken += len;
                    return self.simple(cookie, outcome);
                }
                ServerMessage::Chunk { cookie, done, content } => {
                    assert_eq!(self.style, Style::Structured, "chunks were not asked for");
                    let waiting = self.waiting.get_mut(&cookie).expect("a known cookie");
                    waiting.take(content);
                    self.taken += len;
                    if done {
                        return Some(self.finish(cookie));
                    }
                }
            }
        }
    }

    /// Tells if the server has closed the connection, after no more than it still owed.
    pub fn is_closed(&mut self) -> bool {
        while self.next_answer().is_some() {}
        true
    }

    fn simple(&mut self, cookie: u64, outcome: Result<(), NbdError>) -> Option<Answer> {
        let waiting = self.waiting.get_mut(&cookie).expect("a known cookie");
        match outcome {
            Err(error) => waiting.error = Some(error),
            Ok(()) if waiting.is_read => {
                assert_ne!(self.style, Style::Structured, "a read wants chunks");
                let len = waiting.data.len();
                while self.inbox.len() - self.taken < len {
                    self.receive()?;
                }
                let data = &self.inbox[self.taken..self.taken + len];
                let waiting = self.waiting.get_mut(&cookie)?;
                waiting.data.copy_from_slice(data);
                waiting.seen.fill(true);
                self.taken += len;
            }
            Ok(()) => {}
        }
        Some(self.finish(cookie))
    }

    fn finish(&mut self, cookie: u64) -> Answer {
        let waiting = self.waiting.remove(&cookie).expect("a known cookie");
        let sectors = waiting.data.len() / 512;
        let complete = waiting.seen[..sectors].iter().all(|seen| *seen);
        let outcome = match waiting.error {
            Some(error) => Err(error),
            None => {
                assert!(complete, "success, and not all data");
                Ok(waiting.data)
            }
        };
        Answer { cookie, outcome, extents: waiting.extents }
    }

    fn receive(&mut self) -> Option<()> {
        if self.taken > 4 << 20 || self.taken == self.inbox.len() {
            self.inbox.drain(..self.taken);
            self.taken = 0;
        }
        let mut piece = [0; 128 * 1024];
        match self.stream.read(&mut piece) {
            Ok(0) => None,
            Ok(len) => {
                self.inbox.extend_from_slice(&piece[..len]);
                Some(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
            Err(error) => panic!("no reply came: {error}"),
        }
    }
}

impl Waiting {
    fn take(&mut self, content: Content<'_>) {
        match content {
            Content::None => {}
            Content::Data { offset, data } => {
                self.place(offset, data.len()).copy_from_slice(data);
            }
            Content::Hole { offset, length } => self.place(offset, length as usize).fill(0),
            Content::BlockStatus { extents, .. } => self.extents = extents,
            Content::Error { error, .. } => self.error = Some(error),
        }
    }

    fn place(&mut self, offset: u64, len: usize) -> &mut [u8] {
        let start = usize::try_from(offset - self.offset).expect("inside the read");
        assert!(start.is_multiple_of(512) && len.is_multiple_of(512));
        for seen in &mut self.seen[start / 512..(start + len) / 512] {
            assert!(!*seen, "a byte that came before");
            *seen = true;
        }
        &mut self.data[start..start + len]
    }
}

/// A connection that has been greeted and has sent its flags.
pub fn greeted(served: &Served) -> UnixStream {
    let mut stream = served.dial();
    let mut greeting = [0; GREETING_LEN];
    stream.read_exact(&mut greeting).expect("a greeting");
    client::parse_greeting(&greeting).expect("newstyle");
    say(&mut stream, &CLIENT_FLAGS.to_be_bytes());
    stream
}

/// Sends all of `bytes`.
#[track_caller]
pub fn say(stream: &mut UnixStream, bytes: &[u8]) {
    stream.write_all(bytes).expect("the server listens");
}

/// The kind and data of the next option reply.
#[track_caller]
pub fn option_reply(stream: &mut UnixStream) -> (u32, Vec<u8>) {
    let mut bytes = vec![0; 20];
    stream.read_exact(&mut bytes).expect("an option reply");
    let length = u32::from_be_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]);
    bytes.resize(20 + length as usize, 0);
    stream.read_exact(&mut bytes[20..]).expect("its data");
    let parsed = client::parse_option_reply(&bytes).expect("valid");
    let (OptionReply { kind, data, .. }, _) = parsed.expect("whole");
    (kind, data.to_vec())
}
