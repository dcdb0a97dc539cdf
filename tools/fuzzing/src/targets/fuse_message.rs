//! Messages of `/dev/fuse`, over a socket that keeps them apart, to a session with two disks in memory.
//!
//! ```text
//!   record   opcode 1, node 1, how 1, bytes of arguments 1, bytes of data 2; then the arguments
//!   how      1 says a wrong length, 2 cut inside the header, 4 the second byte of the opcode is random, too
//! ```
//!
//! Checked is what holds whatever is asked: each message that wants an answer gets one, of the length that it says,
//! with a number of an error or with bytes, and none gets two; the session goes on and serves the next.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use cryptline_engine::base::RamDevice;
use cryptline_engine::{BackendChoice, Gate};
use cryptline_serve::fuse::{FuseOptions, FuseSession, MountedOver, Nodes};
use cryptline_serve::lane::Poll;
use cryptline_serve::stats::ExportStats;

/// As many as are on their way at a time.
const RECORDS_MAX: usize = 16;
/// Bytes of a disk.
const SIZE: u64 = 1 << 20;
/// Bytes of data, and of the longest answer that a socket takes.
const DATA_MAX: usize = 40_000;
const HEADER: usize = 40;
const FORGETS: [u32; 2] = [2, 42];
const GETATTR: u8 = 3;
const INIT: u32 = 26;

/// The kernel's end of the session.
struct FuseKernel {
    socket: UnixDatagram,
    unique: u64,
    answer: Vec<u8>,
    session: FuseSession,
}

/// Tries one input.
pub fn target(data: &[u8]) {
    static KERNEL: OnceLock<Mutex<FuseKernel>> = OnceLock::new();
    let kernel = KERNEL.get_or_init(|| Mutex::new(FuseKernel::start()));
    let mut kernel = kernel.lock().expect("no run has failed");
    let mut wanted = Vec::new();
    let mut rest = data;
    for _ in 0..RECORDS_MAX {
        let Some((record, behind)) = rest.split_first_chunk::<6>() else {
            break;
        };
        let arguments = &behind[..behind.len().min(record[3].into())];
        rest = &behind[arguments.len()..];
        wanted.extend(kernel.send(*record, arguments));
    }
    kernel.hear(wanted);
    let next = kernel.send([GETATTR, 1, 0, 16, 0, 0], &[0; 16]);
    kernel.hear(next.into_iter().collect());
    assert!(!kernel.session.is_over());
}

impl FuseKernel {
    fn start() -> Self {
        let (ours, theirs) = UnixDatagram::pair().expect("a pair of sockets");
        let limit = Some(Duration::from_secs(8));
        ours.set_read_timeout(limit).expect("a limit");
        let gate = |size| Gate::new(RamDevice::new(size).expect("memory"));
        let mut nodes = Nodes::new(MountedOver::Folder, &gate(SIZE), "disk", "one\n", false);
        nodes.add(&gate(SIZE / 2), "other", "two\n");
        let nodes = nodes.with_last_word([7; 16]);
        let options = FuseOptions {
            backend: BackendChoice::Syscalls,
            poll: Poll::default(),
            cached: false,
            queues: None,
            grace: Duration::from_millis(100),
            stats: vec![ExportStats::new(true), ExportStats::new(true)],
            log: Box::new(|line| panic!("{line}")),
            cut_off: Box::new(|| ()),
        };
        let mut first = vec![0; 64];
        for (at, word) in [7, 45, 131_072, u32::MAX, u32::MAX].iter().enumerate() {
            first[at * 4..][..4].copy_from_slice(&word.to_ne_bytes());
        }
        ours.send(&message(INIT, 0, 1, &first, &[])).expect("sent");
        let descriptors = vec![OwnedFd::from(theirs)];
        let session = FuseSession::start(&Arc::new(nodes), descriptors, options).expect("a session");
        let mut answer = vec![0; 1 << 20];
        assert_eq!(ours.recv(&mut answer).expect("an answer"), 80);
        Self { socket: ours, unique: 1, answer, session }
    }

    /// The number that the answer will have, if there will be one.
    fn send(&mut self, record: [u8; 6], arguments: &[u8]) -> Option<u64> {
        self.unique += 1;
        let [opcode, node, how, _, data @ ..] = record;
        let len = usize::from(u16::from_ne_bytes(data)).min(DATA_MAX);
        let high = if how & 4 == 0 { 0 } else { u32::from(data[0]) << 8 };
        let opcode = u32::from(opcode) | high;
        let node = if node == u8::MAX { u64::MAX } else { node.into() };
        let data = vec![opcode.to_ne_bytes()[0]; len];
        let mut message = message(opcode, node, self.unique, arguments, &data);
        let is_whole = how & 1 == 0;
        if !is_whole {
            message[0] ^= 1 | how;
        }
        if how & 2 != 0 {
            message.truncate(HEADER - 1 - usize::from(how >> 3));
        }
        self.socket.send(&message).expect("sent");
        let is_answered = message.len() >= HEADER && !(is_whole && FORGETS.contains(&opcode));
        is_answered.then_some(self.unique)
    }

    fn hear(&mut self, mut wanted: Vec<u64>) {
        while !wanted.is_empty() {
            let len = match self.socket.recv(&mut self.answer) {
                // The fuzzer's own clock.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                received => received.expect("an answer in time"),
            };
            let word = |at: usize| self.answer[at..at + 4].try_into().expect("4 bytes");
            assert_eq!(u32::from_ne_bytes(word(0)) as usize, len);
            let error = i32::from_ne_bytes(word(4));
            assert!(error == 0 || len == 16 && (-4095..0).contains(&error), "{error}");
            let unique = self.answer[8..16].try_into().expect("8 bytes");
            let unique = u64::from_ne_bytes(unique);
            let at = wanted.iter().position(|it| *it == unique);
            wanted.swap_remove(at.expect("asked for, and answered once"));
        }
    }
}

fn message(opcode: u32, node: u64, unique: u64, arguments: &[u8], data: &[u8]) -> Vec<u8> {
    let len = HEADER + arguments.len() + data.len();
    let mut message = Vec::with_capacity(len);
    message.extend(u32::try_from(len).expect("short").to_ne_bytes());
    message.extend(opcode.to_ne_bytes());
    message.extend(unique.to_ne_bytes());
    message.extend(node.to_ne_bytes());
    message.extend([0; 16]);
    message.extend(arguments);
    message.extend(data);
    message
}
