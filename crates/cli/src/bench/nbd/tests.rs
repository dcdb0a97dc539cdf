//! The client against servers that do well, and against servers that do not.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use cryptline_nbd::request::{RequestHeader, parse_request};
use cryptline_nbd::wire::{REQUEST_LEN, cmd};
use cryptline_nbd::{
    BlockSizes, ExportInfo, Handshake, NbdError, ServerOffer, Step, TlsMode, TransmissionFlags,
    reply,
};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::null::NullServer;
use super::*;
use crate::bench::report::{Direction, Pattern};

const SIZE: u64 = 5 << 20;

/// A server that does what a test tells it to, for one client.
struct Scripted {
    _folder: TempDir,
    socket: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl Scripted {
    /// `serve` gets the connection in transmission.
    fn new(serve: impl FnOnce(UnixStream) + Send + 'static) -> Self {
        Self::raw(|mut stream| {
            if shake_hands(&mut stream).is_some() {
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
        Self {
            _folder: folder,
            socket,
            thread: Some(thread),
        }
    }

    fn job(&self) -> Job<'_> {
        job(&self.socket)
    }

    /// Runs `job` and gives the error; the server must end too.
    #[track_caller]
    fn fails(mut self, change: impl FnOnce(&mut Job<'_>)) -> String {
        let mut job = self.job();
        change(&mut job);
        let error = run(&job).expect_err("a bad server");
        assert_eq!(error.exit_code(), 4, "{error}");
        let thread = self.thread.take().expect("it runs");
        thread.join().expect("the server was told well");
        error.to_string()
    }
}

fn job(socket: &Path) -> Job<'_> {
    Job {
        socket,
        export: "",
        shape: Shape {
            direction: Direction::Read,
            pattern: Pattern::Random,
            block: 4096,
            depth: 8,
            streams: 1,
        },
        warm_up: Duration::ZERO,
        duration: Duration::from_millis(20),
        cpu: None,
        seed: 1,
        expect: None,
        patience: Duration::from_millis(300),
    }
}

fn shake_hands(stream: &mut UnixStream) -> Option<()> {
    let export = ExportInfo {
        name: String::new(),
        description: "of a test".into(),
        size: SIZE + 4096,
        flags: TransmissionFlags::HAS_FLAGS,
        block_sizes: BlockSizes::default(),
        block_size_required: false,
        base_allocation: false,
    };
    let offer = ServerOffer::new(vec![export], TlsMode::Off).expect("a good offer");
    let mut handshake = Handshake::new(Arc::new(offer));
    stream.write_all(&handshake.greeting()).ok()?;
    let (mut input, mut output) = (Vec::new(), Vec::new());
    loop {
        let progress = handshake.feed(&input, &mut output).ok()?;
        input.drain(..progress.consumed);
        stream.write_all(&output).ok()?;
        output.clear();
        match progress.step {
            Step::Transmission(_) => return Some(()),
            Step::NeedMore => {
                let mut byte = [0];
                stream.read_exact(&mut byte).ok()?;
                input.extend(byte);
            }
            step => panic!("{step:?}"),
        }
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
        let mut asked: Vec<_> = std::iter::from_fn(|| request(&mut stream))
            .take(at_a_time)
            .collect();
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
            let measured = run(&Job {
                shape: Shape {
                    direction,
                    pattern,
                    block,
                    depth,
                    streams,
                },
                patience: PATIENCE,
                ..job(&socket)
            })
            .expect("a measurement");
            assert!(measured.requests > 0);
            assert_eq!(measured.latency.len(), measured.requests);
            assert_eq!(measured.bytes, measured.requests * u64::from(block));
            assert!(measured.per_second > 0.0 && measured.bytes_per_second() > 0.0);
            assert!(measured.latency_at(0.99) >= measured.latency_at(0.5));
            assert!(measured.client_busy > 0.0);
        }
    }
}

#[test]
fn a_null_server_ends_when_it_is_dropped_although_a_client_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("null");
    let server = NullServer::start(&socket, SIZE, None).expect("a server");
    let client = Connection::open(&socket, "", PATIENCE).expect("a client");
    drop(server);
    assert!(!socket.exists());
    drop(client);
}

#[test]
fn the_digest_of_a_disk_is_that_of_its_bytes_its_tail_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("null");
    for size in [SIZE, SIZE + 512, 1000, 0] {
        let _server = NullServer::start(&socket, size, None).expect("a server");
        let zeros = vec![0; usize::try_from(size).expect("small")];
        let expected: [u8; 32] = Sha256::digest(&zeros).into();
        assert_eq!(sha256(&socket, "").expect("a digest"), expected, "{size}");
    }
}

#[test]
fn answers_may_come_in_any_order() {
    let server = Scripted::new(|stream| backwards(stream, 8));
    let checked = Job {
        expect: Some(Contents::new(9)),
        ..server.job()
    };
    let result = run(&checked);
    assert!(result.is_ok(), "{result:?}");

    let server = Scripted::new(|stream| backwards(stream, 1));
    let mut bytes = vec![0; usize::try_from(SIZE + 4096).expect("small")];
    Contents::new(9).fill(0, &mut bytes);
    let expected: [u8; 32] = Sha256::digest(&bytes).into();
    assert_eq!(sha256(&server.socket, "").expect("a digest"), expected);
}

#[test]
fn blocks_that_overtake_each_other_are_hashed_in_order() {
    // The third before the first, the fourth before the second.
    let server = Scripted::new(|mut stream| {
        let mut asked: Vec<_> = std::iter::from_fn(|| request(&mut stream))
            .take(4)
            .collect();
        for index in [2, 0] {
            let header = asked.remove(index);
            let simple = reply::simple(header.cookie, Ok(()));
            let _ = stream.write_all(&[&simple[..], &contents_at(&header)].concat());
        }
        // The first is hashed now, and the fifth asked for.
        asked.extend(request(&mut stream));
        while let Some(header) = asked.pop() {
            let simple = reply::simple(header.cookie, Ok(()));
            let _ = stream.write_all(&[&simple[..], &contents_at(&header)].concat());
        }
        backwards(stream, 1);
    });
    let mut bytes = vec![0; usize::try_from(SIZE + 4096).expect("small")];
    Contents::new(9).fill(0, &mut bytes);
    let expected: [u8; 32] = Sha256::digest(&bytes).into();
    assert_eq!(sha256(&server.socket, "").expect("a digest"), expected);
}

#[test]
fn wrong_data_is_found() {
    let server = Scripted::new(|stream| backwards(stream, 8));
    let why = server.fails(|job| job.expect = Some(Contents::new(10)));
    assert!(why.contains("wrong data at byte"), "{why}");
}

#[test]
fn an_answer_that_makes_no_sense_ends_the_run() {
    type Spoil = fn(&RequestHeader) -> Vec<u8>;
    let cases: [(Spoil, &str); 6] = [
        (|_| vec![0xab; 16], "in place of a reply"),
        (
            |header| reply::simple(header.cookie ^ 1 << 40, Ok(())).to_vec(),
            "a request that was not sent",
        ),
        (
            |header| reply::simple(header.cookie | 0xffff_ffff, Ok(())).to_vec(),
            "a request that was not sent",
        ),
        (
            |header| reply::none(header.cookie).to_vec(),
            "structured reply",
        ),
        (
            |header| reply::simple(header.cookie, Err(NbdError::Io)).to_vec(),
            "failed: Io",
        ),
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
        thread::sleep(Duration::from_secs(1));
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
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            "not a newstyle NBD server",
        ),
        (b"NBDMAGICIHAVEOPT\0\0", "fixed newstyle"),
        (
            b"NBDMAGICIHAVEOPT\0\x03garbage garbage garbage",
            "out of step",
        ),
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
    let why = server.fails(|job| job.export = "no such export");
    assert!(why.contains("no export \"no such export\""), "{why}");
}

#[test]
fn a_disk_too_small_and_a_job_that_makes_no_sense_are_refused() {
    let server = Scripted::new(|mut stream| {
        let _ = request(&mut stream);
    });
    let why = server.fails(|job| job.shape.block = 8 << 20);
    assert!(why.contains("too small"), "{why}");

    let nobody = Path::new("/nonexistent/socket");
    for (block, depth, streams) in [
        (0, 1, 1),
        (BLOCK_MAX + 1, 1, 1),
        (4096, 0, 1),
        (4096, DEPTH_MAX + 1, 1),
        (4096, 1, 0),
        (4096, 1, CONNECTIONS_MAX + 1),
        (BLOCK_MAX, 9, 1),
    ] {
        let mut job = job(nobody);
        job.shape = Shape {
            block,
            depth,
            streams,
            ..job.shape
        };
        assert_eq!(run(&job).expect_err("nonsense").exit_code(), 1);
    }
    assert_eq!(run(&job(nobody)).expect_err("nobody").exit_code(), 4);
    let cpu = Some(100_000);
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("null");
    let error = NullServer::start(&socket, SIZE, cpu).expect_err("no such processor");
    assert!(error.to_string().contains("--no-pin"), "{error}");
}
