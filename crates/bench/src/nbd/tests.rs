//! The client against servers that do well, and against servers that do not.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use cryptline_nbd::request::{RequestHeader, parse_request};
use cryptline_nbd::wire::{REQUEST_LEN, cmd};
use cryptline_nbd::{NbdError, reply};
use tempfile::TempDir;

use super::null::NullServer;
use super::*;
use crate::report::{Direction, Pattern};

const SIZE: u64 = 5 << 20;
/// Long enough for a busy machine.
const LONG: Duration = Duration::from_secs(1);

/// A server that does what a test tells it to, for one client.
struct Scripted {
    _folder: TempDir,
    socket: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl Scripted {
    /// `serve` gets the connection in transmission.
    fn new(serve: impl FnOnce(UnixStream) + Send + 'static) -> Self {
        Self::raw(|stream| {
            let offer = Arc::new(null::offer(SIZE + 4096).expect("a good offer"));
            if let Ok(Some(_)) = null::shake_hands(&stream, &offer) {
                serve(stream);
            }
        })
    }

    /// `serve` gets the connection as it is.
    fn raw(serve: impl FnOnce(UnixStream) + Send + 'static) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let thread = thread::spawn(move || serve(listener.accept().expect("a client").0));
        Self { _folder: folder, socket, thread: Some(thread) }
    }

    fn export(&self) -> Export<'_> {
        Export { patience: LONG, ..Export::new(&self.socket, "") }
    }

    /// Loads the server, which must fail, and gives the error; the server must end too.
    #[track_caller]
    fn fails(mut self, change: impl FnOnce(&mut Job)) -> String {
        let mut job = job();
        change(&mut job);
        let error = self.export().load(&job, None).expect_err("a bad server");
        self.end();
        told(&error)
    }

    fn end(&mut self) {
        let thread = self.thread.take().expect("it runs");
        thread.join().expect("the server was told well");
    }
}

#[track_caller]
fn told(error: &Error) -> String {
    assert_eq!(error.kind(), cryptline::ErrorKind::Device, "{error}");
    error.to_string()
}

fn job() -> Job {
    Job {
        shape: Shape { direction: Direction::Read, pattern: Pattern::Random, block: 4096, depth: 8, streams: 1 },
        warm_up: Duration::ZERO,
        time: Duration::from_millis(20),
        start: 1,
        latency: true,
        cpu: None,
    }
}

/// The next request without a payload; `None` at the end.
fn request(stream: &mut UnixStream) -> Option<RequestHeader> {
    let mut bytes = [0; REQUEST_LEN];
    stream.read_exact(&mut bytes).ok()?;
    let header = parse_request(&bytes).expect("a request");
    (header.command != cmd::DISC).then_some(header)
}

fn contents_at(header: &RequestHeader) -> Vec<u8> {
    let mut data = vec![0; header.length as usize];
    Contents::new(9).fill(header.offset, &mut data);
    data
}

/// Answers reads with the contents, several at a time and the last first; fewer where no more come.
fn backwards(mut stream: UnixStream, at_a_time: usize) {
    let a_while = Some(Duration::from_millis(50));
    stream.set_read_timeout(a_while).expect("a timeout");
    for _ in 0..1000 {
        let mut asked: Vec<_> = std::iter::from_fn(|| request(&mut stream)).take(at_a_time).collect();
        while let Some(header) = asked.pop() {
            let simple = reply::simple(header.cookie, Ok(()));
            let sent = stream.write_all(&[&simple[..], &contents_at(&header)].concat());
            if sent.is_err() {
                return;
            }
        }
    }
}

#[test]
fn reads_and_writes_of_every_kind_are_counted_and_timed() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("null");
    let _server = NullServer::start(&socket, SIZE, None).expect("a server");
    for direction in [Direction::Read, Direction::Write] {
        for (pattern, block, depth, streams) in [
            (Pattern::Random, 4096, 32, 1),
            (Pattern::Random, 4096, 100, 3),
            (Pattern::Sequential, 1 << 20, 4, 2),
            (Pattern::Random, 512, 1, 1),
        ] {
            let shape = Shape { direction, pattern, block, depth, streams };
            let export = Export::new(&socket, "");
            let measured = export.load(&Job { shape, ..job() }, None);
            let measured = measured.expect("a measurement");
            let latency = measured.latency.expect("it was wanted");
            assert!(measured.bytes_per_second > 0.0);
            assert!(latency.p99_us >= latency.p50_us && latency.p50_us > 0.0);
            assert!(measured.client_busy.is_some_and(|busy| busy > 0.0));
        }
    }
}

#[test]
fn a_null_server_ends_when_it_is_dropped_although_a_client_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("null");
    let server = NullServer::start(&socket, SIZE, None).expect("a server");
    let client = Connection::open(&Export::new(&socket, "")).expect("a client");
    drop(server);
    assert!(!socket.exists());
    // The name is free again, and somebody else's.
    let other = NullServer::start(&socket, SIZE, None).expect("another server");
    Connection::open(&Export::new(&socket, "")).expect("another client");
    drop((client, other));
}

#[test]
fn the_digest_of_a_disk_is_that_of_its_bytes_its_tail_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("null");
    for size in [SIZE, SIZE + 512, 1000, 0] {
        let _server = NullServer::start(&socket, size, None).expect("a server");
        let zeros = vec![0; usize::try_from(size).expect("small")];
        let expected = hex(&Sha256::digest(&zeros));
        assert_eq!(Export::new(&socket, "").sha256().expect("a digest"), expected, "{size}");
    }
}

#[test]
fn answers_may_come_in_any_order() {
    let server = Scripted::new(|stream| backwards(stream, 8));
    let result = server.export().load(&job(), Some(Contents::new(9)));
    assert!(result.is_ok(), "{result:?}");

    let server = Scripted::new(|stream| backwards(stream, 1));
    let mut bytes = vec![0; usize::try_from(SIZE + 4096).expect("small")];
    Contents::new(9).fill(0, &mut bytes);
    let expected = hex(&Sha256::digest(&bytes));
    assert_eq!(server.export().sha256().expect("a digest"), expected);
}

#[test]
fn wrong_data_is_found() {
    let server = Scripted::new(|stream| backwards(stream, 8));
    let loaded = server.export().load(&job(), Some(Contents::new(10)));
    let why = told(&loaded.expect_err("wrong data"));
    assert!(why.contains("wrong data at byte"), "{why}");
}

#[test]
fn an_answer_that_makes_no_sense_ends_the_run() {
    type Spoil = fn(&RequestHeader) -> Vec<u8>;
    let cases: [(Spoil, &str); 6] = [
        (|_| vec![0xab; 16], "in place of a reply"),
        (|header| reply::simple(header.cookie ^ 1 << 40, Ok(())).to_vec(), "a request that was not sent"),
        (|header| reply::simple(header.cookie | 0xffff_ffff, Ok(())).to_vec(), "a request that was not sent"),
        (|header| reply::none(header.cookie).to_vec(), "structured reply"),
        (|header| reply::simple(header.cookie, Err(NbdError::Io)).to_vec(), "failed: Io"),
        (
            // The answer, and the same answer again.
            |header| {
                let simple = reply::simple(header.cookie, Ok(()));
                [&simple[..], &contents_at(header), &simple[..]].concat()
            },
            "a request that was not sent",
        ),
    ];
    for (spoil, text) in cases {
        let server = Scripted::new(move |mut stream| {
            let header = request(&mut stream).expect("a request");
            let _ = stream.write_all(&spoil(&header));
            while request(&mut stream).is_some() {}
        });
        let why = server.fails(|job| job.shape.depth = 1);
        assert!(why.contains(text), "{text:?} is not in: {why}");
    }
}

#[test]
fn a_server_that_falls_silent_closes_or_dribbles_does_not_hold_the_client_up() {
    let wait = |mut stream: UnixStream| while request(&mut stream).is_some() {};
    let why = Scripted::new(wait).fails(|_| ());
    assert!(why.contains("did not answer in time"), "{why}");

    let closes = |mut stream: UnixStream| {
        let _ = request(&mut stream);
    };
    let why = Scripted::new(closes).fails(|_| ());
    assert!(why.contains("closed the connection"), "{why}");

    let half = |mut stream: UnixStream| {
        let header = request(&mut stream).expect("a request");
        let simple = reply::simple(header.cookie, Ok(()));
        let _ = stream.write_all(&[&simple[..], &[0; 100]].concat());
    };
    let why = Scripted::new(half).fails(|_| ());
    assert!(why.contains("closed the connection"), "{why}");

    let dribbles = |mut stream: UnixStream| {
        let header = request(&mut stream).expect("a request");
        let simple = reply::simple(header.cookie, Ok(()));
        let bytes = [&simple[..], &[0; 4096]].concat();
        for byte in bytes {
            if stream.write_all(&[byte]).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    };
    let why = Scripted::new(dribbles).fails(|_| ());
    assert!(why.contains("too slow"), "{why}");

    // Takes no data: the client may not be held up in a send either.
    let deaf = |stream: UnixStream| {
        thread::sleep(4 * LONG);
        drop(stream);
    };
    let why = Scripted::new(deaf).fails(|job| {
        job.shape.direction = Direction::Write;
        job.shape.block = 1 << 20;
    });
    assert!(why.contains("did not answer in time"), "{why}");
}

#[test]
fn a_bad_handshake_is_told_and_does_not_hold_the_client_up() {
    let cases: [(&'static [u8], &str); 4] = [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not a newstyle NBD server"),
        (b"NBDMAGICIHAVEOPT\0\0", "fixed newstyle"),
        (b"NBDMAGICIHAVEOPT\0\x03garbage garbage garbage", "out of step"),
        (b"NBDMAGIC", "did not answer in time"),
    ];
    for (greeting, text) in cases {
        let server = Scripted::raw(move |mut stream| {
            let _ = stream.write_all(greeting);
            let mut sink = Vec::new();
            let _ = stream.read_to_end(&mut sink);
        });
        let why = server.fails(|_| ());
        assert!(why.contains(text), "{text:?} is not in: {why}");
    }

    let babbles = |mut stream: UnixStream| {
        let _ = stream.write_all(b"NBDMAGICIHAVEOPT\0\x03");
        let info = [
            &0x0003_e889_0455_65a9_u64.to_be_bytes()[..],
            &7_u32.to_be_bytes(),
            &3_u32.to_be_bytes(),
            &(63_u32 << 20).to_be_bytes(),
        ];
        let _ = stream.write_all(&info.concat());
        while stream.write_all(&[0; 4096]).is_ok() {}
    };
    let why = Scripted::raw(babbles).fails(|_| ());
    assert!(why.contains("talks too much"), "{why}");

    let server = Scripted::new(drop);
    let export = Export::new(&server.socket, "no such export");
    let why = told(&export.try_connect().expect_err("no such export"));
    assert!(why.contains("no export \"no such export\""), "{why}");
}

#[test]
fn a_disk_too_small_nobody_and_a_processor_that_is_not_there_are_told() {
    let server = Scripted::new(|mut stream| {
        let _ = request(&mut stream);
    });
    let why = server.fails(|job| job.shape.block = 8 << 20);
    assert!(why.contains("too small"), "{why}");

    let nobody = Export::new(Path::new("/nonexistent/socket"), "");
    told(&nobody.load(&job(), None).expect_err("nobody"));
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("null");
    let error = NullServer::start(&socket, SIZE, Some(100_000)).expect_err("no such processor");
    assert!(error.to_string().contains("--no-pin"), "{error}");
}
