//! The front-end against a server of ours, and against one that is gone.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cryptline_engine::base::RamDevice;
use cryptline_engine::{BackendChoice, Gate};
use cryptline_serve::StopHandle;
use cryptline_serve::lane::Poll;
use cryptline_serve::stats::ExportStats;
use cryptline_serve::vhost_user::{Disk, Front, Server, ServerOptions};
use tempfile::TempDir;

use super::*;
use crate::contents::Contents;
use crate::report::Pattern;

const SIZE: u64 = 4 << 20;

fn shape(block: u32, depth: u32) -> Shape {
    Shape { direction: Direction::Read, pattern: Pattern::Random, block, depth, streams: 1 }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// Somebody at a socket.
struct Peer {
    _folder: TempDir,
    socket: PathBuf,
    thread: JoinHandle<()>,
}

impl Peer {
    fn new(serve: impl FnOnce(UnixListener) + Send + 'static) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).expect("a socket");
        Self { _folder: folder, socket, thread: thread::spawn(move || serve(listener)) }
    }

    /// One that answers a connection by `answer`, message by message: a number of it and whether an
    /// acknowledgement is wanted.
    fn scripted(answer: impl Fn(u32, bool) -> Option<Vec<u8>> + Send + 'static) -> Self {
        Self::new(move |listener| {
            let (mut stream, _) = listener.accept().expect("a front-end");
            let mut header = [0; 12];
            while stream.read_exact(&mut header).is_ok() {
                let word = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().expect("four bytes"));
                let mut payload = vec![0; word(8) as usize];
                stream.read_exact(&mut payload).expect("a payload");
                if let Some(payload) = answer(word(0), word(4) & 8 != 0) {
                    let size = u32::try_from(payload.len()).expect("small");
                    let words = [word(0), 5, size].map(u32::to_ne_bytes);
                    let sent = stream.write_all(&[words.as_flattened(), &payload].concat());
                    if sent.is_err() {
                        return;
                    }
                }
            }
        })
    }

    #[track_caller]
    fn refused(self) -> String {
        let connected = Guest::connect(&self.socket, shape(4096, 4), soon());
        let why = connected.err().expect("no server").to_string();
        self.thread.join().expect("it ended");
        why
    }
}

/// A server of a RAM disk with these contents.
fn serve(contents: Contents, stop: StopHandle) -> Peer {
    let gate = Gate::new(RamDevice::new(SIZE).expect("memory"));
    contents.write_to(&gate, 1 << 20).expect("written");
    Peer::new(move |listener| {
        let disk = Disk {
            name: String::new(),
            gate,
            block: 512,
            serial: String::new(),
            queues: 1,
            queue_size: None,
            stats: ExportStats::new(false),
            front: Front::Listener(listener),
        };
        let options = ServerOptions {
            backend: BackendChoice::Auto,
            poll: Poll::default(),
            grace: Duration::from_secs(60),
            log: Arc::new(|event| assert!(!event.is_trouble(), "{event}")),
        };
        let server = Server::new(vec![disk], options).expect("a server");
        server.run(&stop).expect("it serves").expect("flushed");
    })
}

/// What a server says that has a disk of `SIZE` bytes and takes everything.
fn agree(kind: u32, wants_reply: bool) -> Option<Vec<u8>> {
    match kind {
        1 | 15 => Some(u64::MAX.to_ne_bytes().to_vec()),
        24 => Some([&[0; 12][..], &(SIZE / 512).to_le_bytes()].concat()),
        _ => wants_reply.then(|| vec![0; 8]),
    }
}

#[test]
fn every_read_gives_what_the_disk_holds_at_every_depth() {
    let contents = Contents::new(5);
    let stop = StopHandle::new().expect("an eventfd");
    let server = serve(contents, stop.clone());
    for (block, depth) in [(512, 1), (4096, 32), (4096, 85), (128 << 10, 8), (1 << 20, 4)] {
        let mut guest = Guest::connect(&server.socket, shape(block, depth), soon()).expect("one");
        assert_eq!(guest.size(), SIZE);
        let blocks = SIZE / u64::from(block);
        let mut offsets = vec![0; depth as usize];
        let mut free: Vec<usize> = (0..offsets.len()).collect();
        let mut left = 1000;
        let mut data = vec![0; block as usize];
        while left > 0 || free.len() < offsets.len() {
            while left > 0
                && let Some(slot) = free.pop()
            {
                left -= 1;
                offsets[slot] = left * 7919 % blocks * u64::from(block);
                assert!(!guest.submit(slot, offsets[slot]).expect("submitted"));
            }
            let before = free.len();
            guest.collect(true, &mut free).expect("an answer");
            for &slot in &free[before..] {
                guest.look(slot, 0, &mut data).expect("data");
                assert_eq!(contents.first_difference(offsets[slot], &data), None);
            }
        }
    }
    stop.stop();
    server.thread.join().expect("it ended");
}

#[test]
fn a_failed_read_is_told() {
    let stop = StopHandle::new().expect("an eventfd");
    let server = serve(Contents::new(5), stop.clone());
    let mut guest = Guest::connect(&server.socket, shape(4096, 4), soon()).expect("one");
    guest.submit(0, SIZE).expect("submitted");
    let error = guest.collect(true, &mut Vec::new()).expect_err("behind the end");
    assert!(error.to_string().contains("a read failed with status 1"), "{error}");
    drop(guest);
    stop.stop();
    server.thread.join().expect("it ended");
}

#[test]
fn a_server_that_serves_nothing_does_not_hold_the_client_up() {
    let server = Peer::scripted(agree);
    let late = Instant::now() + Duration::from_millis(50);
    let mut guest = Guest::connect(&server.socket, shape(4096, 4), late).expect("one");
    guest.submit(0, 0).expect("submitted");
    let error = guest.collect(true, &mut Vec::new()).expect_err("no answer");
    assert!(error.to_string().contains("did not answer in time"), "{error}");
    drop(guest);
    server.thread.join().expect("it ended");
}

#[test]
fn a_server_that_makes_no_sense_is_told() {
    let why = Peer::new(|listener| drop(listener.accept())).refused();
    assert!(why.contains("connection") || why.contains("takes no message"), "{why}");

    let without = |bits: u64, of: u32| {
        Peer::scripted(
            move |kind, wants| {
                if kind == of { Some((!bits).to_ne_bytes().to_vec()) } else { agree(kind, wants) }
            },
        )
    };
    let why = without(1 << 32, 1).refused();
    assert!(why.contains("offers features"), "{why}");
    let why = without(1 << 3, 15).refused();
    assert!(why.contains("offers protocol features"), "{why}");

    let says = |of: u32, payload: &'static [u8]| {
        Peer::scripted(move |kind, wants| if kind == of { Some(payload.to_vec()) } else { agree(kind, wants) })
    };
    for (kind, payload, text) in [
        (1, &[0; 7][..], "answers message 1 wrongly"),
        (1, &[0; 4096], "answers message 1 wrongly"),
        (24, &[], "how large the disk is"),
        (24, &[0; 20], "too small"),
        (5, &[1, 0, 0, 0, 0, 0, 0, 0], "refuses message 5"),
    ] {
        let why = says(kind, payload).refused();
        assert!(why.contains(text), "{text:?} is not in: {why}");
    }
}

#[test]
fn what_one_queue_cannot_do_is_refused() {
    let nobody = Path::new("/nonexistent/socket");
    let mut many = shape(4096, 86);
    assert!(Guest::connect(nobody, many, soon()).is_err());
    many = shape(4096, 1);
    many.direction = Direction::Write;
    let error = Guest::connect(nobody, many, soon()).err().expect("it reads only");
    assert!(error.to_string().contains("one queue reads"), "{error}");
}
