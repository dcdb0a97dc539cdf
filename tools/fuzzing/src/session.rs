//! A client for the target `nbd_session`: sends requests made of fuzzed
//! records, judges every answer.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

/// Bytes of the export.
pub const SIZE: u64 = 1 << 20;

/// Longer than a busy machine takes, shorter than a hang.
const PATIENCE: Duration = Duration::from_secs(8);
/// Writes with more than this end the session before their payload: a client that goes away.
const PAYLOAD_MAX: u64 = 256 << 10;

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISC: u16 = 2;
const WRITE_ZEROES: u16 = 6;
const BLOCK_STATUS: u16 = 7;
const FIRST_UNKNOWN: u16 = 8;

/// Whether the client waits for each answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// It does, so what it reads is what it wrote.
    Lockstep,
    /// It sends everything at once and reads answers meanwhile.
    Pipelined,
}

/// A request that awaits its answer.
#[derive(Clone, Copy, Debug)]
struct Request {
    kind: u16,
    offset: u64,
    len: u64,
    cookie: u64,
}

/// The end of one answer.
#[derive(Debug)]
struct Answer {
    cookie: u64,
    failed: bool,
    /// Where in the export, and what was there.
    data: Vec<(u64, Vec<u8>)>,
}

/// A client after its handshake.
pub struct Client {
    stream: UnixStream,
    structured: bool,
    pace: Pace,
}

impl Client {
    /// Shakes hands: with structured replies and `base:allocation`, or with neither.
    #[must_use]
    pub fn connect(mut stream: UnixStream, structured: bool, pace: Pace) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).expect("a greeting");
        assert_eq!(greeting[..16], *b"NBDMAGICIHAVEOPT");
        stream.write_all(&3_u32.to_be_bytes()).expect("flags");
        if structured {
            option(&mut stream, 8, &[]);
            let context = b"base:allocation";
            let mut body = vec![0; 4];
            body.extend(1_u32.to_be_bytes());
            body.extend((context.len() as u32).to_be_bytes());
            body.extend(context);
            option(&mut stream, 10, &body);
        }
        option(&mut stream, 7, &[0; 6]);
        Self { stream, structured, pace }
    }

    /// Sends `records` and judges the answers, until the server ends the connection or all is said.
    pub fn send(self, records: &[[u8; 8]]) {
        match self.pace {
            Pace::Lockstep => self.lockstep(records),
            Pace::Pipelined => self.pipelined(records),
        }
    }

    fn lockstep(mut self, records: &[[u8; 8]]) {
        let mut model = Model::new();
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
            model.judge(request, &answer, &bytes[28..]);
        }
        let _ = self.stream.shutdown(Shutdown::Write);
        drain(&mut self.stream);
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
        drain(&mut self.stream);
        sender.join().expect("the sender ended");
    }

    /// The next whole answer, to one of `asked`; `None` when the connection ended.
    fn answer(&mut self, asked: &HashMap<u64, Request>) -> Option<Answer> {
        if self.structured {
            return self.structured_answer(asked);
        }
        let head: [u8; 16] = self.read()?;
        assert_eq!(head[..4], [0x67, 0x44, 0x66, 0x98], "a simple reply");
        let cookie = u64::from_be_bytes(part(&head, 8));
        let request = asked.get(&cookie).expect("an answer to what was asked");
        let failed = head[4..8] != [0; 4];
        let mut data = Vec::new();
        if request.kind == READ && !failed {
            data.push((request.offset, self.bytes(request.len)?));
        }
        Some(Answer { cookie, failed, data })
    }

    /// Chunks of several answers may be mixed only where several are awaited; all of one are gathered.
    fn structured_answer(&mut self, asked: &HashMap<u64, Request>) -> Option<Answer> {
        let mut answers: HashMap<u64, Answer> = HashMap::new();
        loop {
            let magic: [u8; 4] = self.read()?;
            // Only reads and block status must be answered by chunks.
            if magic == [0x67, 0x44, 0x66, 0x98] {
                let rest: [u8; 12] = self.read()?;
                let cookie = u64::from_be_bytes(part(&rest, 4));
                let request = asked.get(&cookie).expect("an answer to what was asked");
                assert!(![READ, BLOCK_STATUS].contains(&request.kind));
                let failed = rest[..4] != [0; 4];
                let data = Vec::new();
                return Some(Answer { cookie, failed, data });
            }
            assert_eq!(magic, [0x66, 0x8e, 0x33, 0xef], "a structured reply");
            let head: [u8; 16] = self.read()?;
            let cookie = u64::from_be_bytes(part(&head, 4));
            let request = *asked.get(&cookie).expect("an answer to what was asked");
            let len = u32::from_be_bytes(part(&head, 12));
            assert!(u64::from(len) <= request.len.max(64) + 4096, "{request:?}: {len}");
            let payload = self.bytes(len.into())?;
            let answer = answers.entry(cookie).or_insert(Answer { cookie, failed: false, data: Vec::new() });
            chunk(u16::from_be_bytes(part(&head, 2)), &payload, request, answer);
            if head[1] & 1 != 0 {
                return answers.remove(&cookie);
            }
        }
    }

    fn read<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        arrived(self.stream.read_exact(&mut bytes)).then_some(bytes)
    }

    fn bytes(&mut self, len: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(len).expect("bounded by the server")];
        arrived(self.stream.read_exact(&mut bytes)).then_some(bytes)
    }
}

/// Takes one chunk of a structured reply into the answer.
fn chunk(kind: u16, payload: &[u8], request: Request, answer: &mut Answer) {
    match kind {
        0 => assert!(payload.is_empty()),
        1 => {
            let offset = u64::from_be_bytes(part(payload, 0));
            answer.data.push((offset, payload[8..].to_vec()));
        }
        2 => {
            let offset = u64::from_be_bytes(part(payload, 0));
            let len = u32::from_be_bytes(part(payload, 8));
            answer.data.push((offset, vec![0; len as usize]));
        }
        5 => assert_eq!(request.kind, BLOCK_STATUS),
        kind if kind & 0x8000 != 0 => answer.failed = true,
        kind => panic!("a chunk of type {kind}"),
    }
    for (offset, data) in &answer.data {
        let end = offset + data.len() as u64;
        assert!(request.kind == READ, "{request:?}");
        assert!(*offset >= request.offset && end <= request.offset + request.len);
    }
}

/// What the export holds, as far as a client can know.
struct Model {
    bytes: Vec<Option<u8>>,
}

impl Model {
    fn new() -> Self {
        Self { bytes: vec![Some(0); SIZE as usize] }
    }

    fn judge(&mut self, request: Request, answer: &Answer, payload: &[u8]) {
        assert_eq!(answer.cookie, request.cookie);
        let start = usize::try_from(request.offset).unwrap_or(usize::MAX);
        let end = usize::try_from(request.offset.saturating_add(request.len)).unwrap_or(usize::MAX);
        let Some(place) = self.bytes.get_mut(start..end) else {
            // Beyond the end there is nothing; requests of no bytes and flushes end up elsewhere.
            let reaches = [READ, WRITE, WRITE_ZEROES].contains(&request.kind);
            assert!(answer.failed || !reaches || request.len == 0, "{request:?}");
            return;
        };
        match request.kind {
            READ if !answer.failed => {
                let total: usize = answer.data.iter().map(|(_, data)| data.len()).sum();
                assert_eq!(total as u64, request.len, "{request:?}");
                for (offset, data) in &answer.data {
                    let inside = usize::try_from(offset - request.offset).expect("inside");
                    let known = place[inside..].iter().zip(data);
                    let wrong = known.into_iter().any(|(known, read)| known.is_some_and(|known| known != *read));
                    assert!(!wrong, "{request:?} reads what was not written");
                }
            }
            WRITE if !answer.failed => {
                for (byte, written) in place.iter_mut().zip(payload) {
                    *byte = Some(*written);
                }
            }
            WRITE_ZEROES if !answer.failed => place.fill(Some(0)),
            // A failed write may have been done in part; trimmed bytes may be anything.
            WRITE | WRITE_ZEROES | 4 => place.fill(None),
            _ => {}
        }
    }
}

/// Whether the record is a request that must be answered: not the end, and with all its payload.
fn is_whole(request: Request) -> bool {
    request.kind != DISC && (request.kind != WRITE || request.len <= PAYLOAD_MAX)
}

/// The bytes of a record, and the request that they are; `None` for bytes that are none.
fn encode(record: &[u8; 8], cookie: u64) -> (Option<Request>, Vec<u8>) {
    let [command, flags, o0, o1, l0, l1, shifts, extra] = *record;
    let kind = match command & 15 {
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
        len = (len % (PAYLOAD_MAX / 2)) & !4095;
    }
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(28);
    bytes.extend(0x2560_9513_u32.to_be_bytes());
    bytes.extend(u16::from(flags).to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    let request = Request { kind, offset, len: len.into(), cookie };
    if kind == WRITE && is_whole(request) {
        let pattern = (0..len).map(|at| (at / 509) as u8 ^ extra ^ cookie as u8);
        bytes.extend(pattern);
    }
    (Some(request), bytes)
}

/// Sends one option and reads replies to it up to the last.
fn option(stream: &mut UnixStream, option: u32, body: &[u8]) {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend((body.len() as u32).to_be_bytes());
    bytes.extend(body);
    stream.write_all(&bytes).expect("an option");
    loop {
        let mut head = [0; 20];
        stream.read_exact(&mut head).expect("a reply");
        let kind = u32::from_be_bytes(part(&head, 12));
        let len = u32::from_be_bytes(part(&head, 16));
        assert!(kind & 1 << 31 == 0 && len < 4096, "option {option}: {kind:#x}");
        stream.read_exact(&mut vec![0; len as usize]).expect("its body");
        if kind == 1 {
            return;
        }
    }
}

/// Reads until the server has closed: nobody is kept waiting for a client that is done.
fn drain(stream: &mut UnixStream) {
    let mut rest = [0; 4096];
    loop {
        match stream.read(&mut rest) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => {
                // A reset is an end too.
                arrived(Err(error));
                return;
            }
        }
    }
}

/// Whether it came. What does not come in time is a hang, not an end.
fn arrived(read: io::Result<()>) -> bool {
    match read {
        Ok(()) => true,
        Err(error) => {
            let late = [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind());
            assert!(!late, "the server hangs");
            false
        }
    }
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("checked above")
}
