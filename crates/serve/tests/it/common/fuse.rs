//! Sessions over sockets that keep messages apart, as `/dev/fuse` does: no mount is needed.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use cryptline_engine::{BackendChoice, Gate};
use cryptline_serve::fuse::{Nodes, Options, Over, Session};
use cryptline_serve::lane::Poll;
use cryptline_serve::stats::ExportStats;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

/// The node of the disk, in a folder.
const DISK: u64 = 2;
pub const READ: u32 = 15;
pub const WRITE: u32 = 16;
const INIT: u32 = 26;
/// Bytes that a socket is asked to take.
const SOCKET: usize = 4 << 20;

/// A pair of connected sockets, and whether large messages fit.
pub fn sockets() -> (OwnedFd, OwnedFd, bool) {
    let flags = SocketFlags::CLOEXEC;
    let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (ours, theirs) = pair.expect("a pair of sockets");
    let grown = [&ours, &theirs].map(|end| sockopt::set_socket_send_buffer_size_force(end, SOCKET).is_ok());
    (ours, theirs, grown == [true; 2])
}

/// How a session over a socket is served.
pub fn options(
    backend: BackendChoice,
    grace: Duration,
    log: impl Fn(&str) + Send + Sync + 'static,
    cut_off: impl Fn() + Send + Sync + 'static,
) -> Options {
    Options {
        backend,
        poll: Poll::default(),
        cached: false,
        queues: None,
        grace,
        stats: vec![ExportStats::new(false)],
        log: Box::new(log),
        cut_off: Box::new(cut_off),
    }
}

/// A session of one lane for one disk; `ours` is the kernel's end.
pub fn session(gate: &Gate, ours: &OwnedFd, theirs: OwnedFd, options: Options) -> Session {
    let nodes = Nodes::new(Over::Folder, gate, "disk", "", false);
    session_of(nodes, ours, theirs, options)
}

/// The same for several disks.
pub fn session_of(nodes: Nodes, ours: &OwnedFd, theirs: OwnedFd, options: Options) -> Session {
    let words = [7, 45, 131_072, u32::MAX, u32::MAX];
    let mut arguments: Vec<u8> = words.iter().flat_map(|it| it.to_ne_bytes()).collect();
    arguments.resize(64, 0);
    let first = encode(INIT, 1, &arguments, &[]);
    rustix::net::send(ours, &first, SendFlags::NOSIGNAL).expect("sent");
    let session = Session::start(&Arc::new(nodes), vec![theirs], options);
    let session = session.expect("a session");
    let mut answer = [0; 100];
    let (len, _) = rustix::net::recv(ours, &mut answer, RecvFlags::empty()).expect("an answer");
    assert_eq!(len, 16 + 64);
    assert_eq!(answer[4..8], [0; 4], "no error");
    session
}

/// A call about the disk.
pub fn encode(opcode: u32, unique: u64, arguments: &[u8], data: &[u8]) -> Vec<u8> {
    let len = u32::try_from(40 + arguments.len() + data.len()).expect("small");
    let mut message = Vec::with_capacity(len as usize);
    message.extend(len.to_ne_bytes());
    message.extend(opcode.to_ne_bytes());
    message.extend(unique.to_ne_bytes());
    message.extend(DISK.to_ne_bytes());
    message.extend([0; 16]);
    message.extend(arguments);
    message.extend(data);
    message
}

/// A call whose arguments are numbers of eight bytes.
pub fn call(opcode: u32, unique: u64, arguments: &[u64], data: &[u8]) -> Vec<u8> {
    let bytes: Vec<u8> = arguments.iter().flat_map(|it| it.to_ne_bytes()).collect();
    encode(opcode, unique, &bytes, data)
}
