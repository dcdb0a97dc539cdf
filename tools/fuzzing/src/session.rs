//! A client for the target `nbd_session`: sends requests made of fuzzed
//! records, judges every answer.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use cryptline_nbd::client::{Content, ServerMessage, context_data, info_data, option, parse_reply, request};
use cryptline_nbd::negotiate::greet;
use cryptline_nbd::wire::{BASE_ALLOCATION, OPTION_REPLY_HEADER_LEN, cmd, opt, rep};
use cryptline_nbd::{RequestHeader, wire};

/// Bytes of the export.
pub const SIZE: u64 = 1 << 20;

/// Longer than a busy machine takes, shorter than a hang.
const PATIENCE: Duration = Duration::from_secs(8);
/// Writes with more than this end the session before their payload: a client that goes away.
const PAYLOAD_MAX: u32 = 256 << 10;
const FIRST_UNKNOWN: u16 = 8;

/// Pace of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientPace {
    /// Waits for each answer, so what it reads is what it wrote.
    Lockstep,
    /// Sends everything at once and reads answers meanwhile.
    Pipelined,
}

/// The end of one answer.
#[derive(Debug)]
struct AnswerEnd {
    cookie: u64,
    failed: bool,
    /// Where in the export, and what was there.
    data: Vec<(u64, Vec<u8>)>,
}

/// A client after its handshake.
pub struct SessionClient {
    stream: UnixStream,
    /// Bytes that have come and were not looked at.
    inbox: Vec<u8>,
    structured: bool,
    pace: ClientPace,
}

impl SessionClient {
    /// Shakes hands: with structured replies and `base:allocation`, or with neither.
    #[must_use]
    pub fn connect(mut stream: UnixStream, structured: bool, pace: ClientPace) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        greet(&mut stream).expect("a greeting");
        if structured {
            ask(&mut stream, opt::STRUCTURED_REPLY, &[]);
            ask(&mut stream, opt::SET_META_CONTEXT, &context_data(b"", &[BASE_ALLOCATION.as_bytes()]));
        }
        ask(&mut stream, opt::GO, &info_data(b"", &[]));
        Self { stream, inbox: Vec::new(), structured, pace }
    }

    /// Sends `records` and judges the answers, until the server ends the connection or all is said.
    pub fn send(self, records: &[[u8; 8]]) {
        match self.pace {
            ClientPace::Lockstep => self.lockstep(records),
            ClientPace::Pipelined => self.pipelined(records),
        }
    }

    fn lockstep(mut self, records: &[[u8; 8]]) {
        let mut model = ExportModel::new();
        for (record, cookie) in records.iter().zip(1..) {
            let (request, bytes) = encode(record, cookie);
            let whole = request.is_some_and(is_whole);
            if self.stream.write_all(&bytes).is_err() {
                assert!(!whole, "the server is gone before {request:?}");
                return;
            }
            let (Some(request), true) = (request, whole) else {
                break;
            };
            let answer = self.answer(&HashMap::from([(cookie, request)]));
            let answer = answer.unwrap_or_else(|| panic!("no answer to {request:?}"));
            model.judge(request, &answer, &bytes[wire::REQUEST_LEN..]);
        }
        let _ = self.stream.shutdown(Shutdown::Write);
        // Nobody is kept waiting for a client that is done.
        while self.receive().is_some() {}
    }

    fn pipelined(mut self, records: &[[u8; 8]]) {
        let mut output = Vec::new();
        let mut asked = HashMap::new();
        let mut goes_away = false;
        for (record, cookie) in records.iter().zip(1..) {
            let (request, bytes) = encode(record, cookie);
            output.extend(bytes);
            match request {
                Some(request) if is_whole(request) => asked.insert(cookie, request),
                _ => {
                    goes_away = true;
                    break;
                }
            };
        }
        let mut writer = self.stream.try_clone().expect("a second descriptor");
        let sender = thread::spawn(move || {
            // A server that has enough of what is no request ends the connection.
            let _ = writer.write_all(&output);
            // Who goes away may miss answers; who stays gets them all.
            if goes_away {
                let _ = writer.shutdown(Shutdown::Write);
            }
        });
        while !asked.is_empty() {
            let Some(answer) = self.answer(&asked) else {
                break;
            };
            asked.remove(&answer.cookie);
        }
        assert!(goes_away || asked.is_empty(), "never answered: {asked:?}");
        let _ = self.stream.shutdown(Shutdown::Write);
        // Nobody is kept waiting for a client that is done.
        while self.receive().is_some() {}
        sender.join().expect("the sender ended");
    }

    /// The next whole answer, to one of `asked`; `None` when the connection ended. Chunks of several answers may be mixed
    /// only where several are awaited; all of one are gathered.
    fn answer(&mut self, asked: &HashMap<u64, RequestHeader>) -> Option<AnswerEnd> {
        let mut answers: HashMap<u64, AnswerEnd> = HashMap::new();
        loop {
            match parse_reply(&self.inbox).expect("a reply") {
                None => self.receive()?,
                Some((ServerMessage::Simple { cookie, outcome }, used)) => {
                    let request = asked.get(&cookie).expect("an answer to what was asked");
                    // Only reads and block status must be answered by chunks.
                    assert!(!self.structured || ![cmd::READ, cmd::BLOCK_STATUS].contains(&request.command));
                    let has_data = request.command == cmd::READ && outcome.is_ok();
                    let whole = used + if has_data { request.length as usize } else { 0 };
                    if self.inbox.len() < whole {
                        self.receive()?;
                        continue;
                    }
                    let bytes: Vec<u8> = self.inbox.drain(..whole).skip(used).collect();
                    let data = has_data.then_some((request.offset, bytes)).into_iter().collect();
                    return Some(AnswerEnd { cookie, failed: outcome.is_err(), data });
                }
                Some((ServerMessage::Chunk { cookie, done, content }, used)) => {
                    let request = asked.get(&cookie).expect("an answer to what was asked");
                    assert!(used <= request.length.max(64) as usize + 8192, "{request:?}: {used}");
                    let answer = answers.entry(cookie).or_insert(AnswerEnd { cookie, failed: false, data: Vec::new() });
                    answer.take(request, &content);
                    self.inbox.drain(..used);
                    if done {
                        return answers.remove(&cookie);
                    }
                }
            }
        }
    }

    /// Receives more; `None` at the end, of which a reset is one too. What does not come in time is a hang, not an end.
    fn receive(&mut self) -> Option<()> {
        let mut piece = [0; 64 << 10];
        match self.stream.read(&mut piece) {
            Ok(0) => None,
            Ok(len) => {
                self.inbox.extend_from_slice(&piece[..len]);
                Some(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Some(()),
            Err(error) => {
                let late = [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind());
                assert!(!late, "the server hangs");
                None
            }
        }
    }
}

impl AnswerEnd {
    /// Takes one chunk of a structured reply in.
    fn take(&mut self, request: &RequestHeader, content: &Content<'_>) {
        match *content {
            Content::None => {}
            Content::Data { offset, data } => self.data.push((offset, data.to_vec())),
            Content::Hole { offset, length } => self.data.push((offset, vec![0; length as usize])),
            Content::BlockStatus { .. } => assert_eq!(request.command, cmd::BLOCK_STATUS),
            Content::Error { .. } => self.failed = true,
        }
        for (offset, data) in &self.data {
            let end = offset + data.len() as u64;
            assert!(request.command == cmd::READ, "{request:?}");
            assert!(*offset >= request.offset && end <= end_of(request));
        }
    }
}

fn end_of(request: &RequestHeader) -> u64 {
    request.offset.saturating_add(request.length.into())
}

/// Contents of the export, as far as a client can know.
struct ExportModel {
    bytes: Vec<Option<u8>>,
}

impl ExportModel {
    fn new() -> Self {
        Self { bytes: vec![Some(0); SIZE as usize] }
    }

    fn judge(&mut self, request: RequestHeader, answer: &AnswerEnd, payload: &[u8]) {
        assert_eq!(answer.cookie, request.cookie);
        let start = usize::try_from(request.offset).unwrap_or(usize::MAX);
        let end = usize::try_from(end_of(&request)).unwrap_or(usize::MAX);
        let Some(place) = self.bytes.get_mut(start..end) else {
            // Beyond the end there is nothing; requests of no bytes and flushes end up elsewhere.
            let reaches = [cmd::READ, cmd::WRITE, cmd::WRITE_ZEROES].contains(&request.command);
            assert!(answer.failed || !reaches || request.length == 0, "{request:?}");
            return;
        };
        match request.command {
            cmd::READ if !answer.failed => {
                let total: usize = answer.data.iter().map(|(_, data)| data.len()).sum();
                assert_eq!(total, request.length as usize, "{request:?}");
                for (offset, data) in &answer.data {
                    let inside = usize::try_from(offset - request.offset).expect("inside");
                    let known = place[inside..].iter().zip(data);
                    let wrong = known.into_iter().any(|(known, read)| known.is_some_and(|known| known != *read));
                    assert!(!wrong, "{request:?} reads what was not written");
                }
            }
            cmd::WRITE if !answer.failed => {
                for (byte, written) in place.iter_mut().zip(payload) {
                    *byte = Some(*written);
                }
            }
            cmd::WRITE_ZEROES if !answer.failed => place.fill(Some(0)),
            // A failed write may have been done in part; trimmed bytes may be anything.
            cmd::WRITE | cmd::WRITE_ZEROES | cmd::TRIM => place.fill(None),
            _ => {}
        }
    }
}

/// Tells if the record is a request that must be answered: not the end, and with all its payload.
fn is_whole(request: RequestHeader) -> bool {
    request.command != cmd::DISC && request.payload_length() <= PAYLOAD_MAX
}

/// The bytes of a record, and the request that they are; `None` for bytes that are none.
fn encode(record: &[u8; 8], cookie: u64) -> (Option<RequestHeader>, Vec<u8>) {
    let [command, flags, o0, o1, l0, l1, shifts, extra] = *record;
    let command = match command & 15 {
        command @ 0..=7 => u16::from(command),
        // Commands that nobody has defined.
        8 => FIRST_UNKNOWN + u16::from(extra),
        // Bytes that are no request.
        15 => return (None, record.repeat(4)),
        command => u16::from(command) % 2,
    };
    // Mostly whole blocks inside the export; now and then anything.
    let shift = u32::from(shifts & 15);
    let mut offset = u64::from(u16::from_be_bytes([o0, o1])) << shift;
    let mut len = u64::from(u16::from_be_bytes([l0, l1])) << (shifts >> 4);
    if extra & 3 != 0 {
        offset = (offset % SIZE) & !4095;
        len = (len % u64::from(PAYLOAD_MAX / 2)) & !4095;
    }
    let length = u32::try_from(len).unwrap_or(u32::MAX);
    let header = RequestHeader { flags: flags.into(), command, cookie, offset, length };
    let mut bytes = request(&header).to_vec();
    if command == cmd::WRITE && is_whole(header) {
        bytes.extend((0..length).map(|at| (at / 509) as u8 ^ extra ^ cookie as u8));
    }
    (Some(header), bytes)
}

/// Sends one option and reads replies to it up to the last.
fn ask(stream: &mut UnixStream, wanted: u32, body: &[u8]) {
    stream.write_all(&option(wanted, body)).expect("an option");
    loop {
        let mut head = [0; OPTION_REPLY_HEADER_LEN];
        stream.read_exact(&mut head).expect("a reply");
        let [kind, len] = [12, 16].map(|at| u32::from_be_bytes(head[at..at + 4].try_into().expect("4 bytes")));
        assert!(kind & rep::ERROR_BIT == 0 && len < 4096, "option {wanted}: {kind:#x}");
        stream.read_exact(&mut vec![0; len as usize]).expect("its body");
        if kind == rep::ACK {
            return;
        }
    }
}
