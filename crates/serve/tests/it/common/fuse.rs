//! Sessions over sockets that keep messages apart, as `/dev/fuse` does: no mount is needed.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use cryptline_engine::{BackendChoice, Gate};
use cryptline_serve::fuse::{FuseOptions, FuseSession, MountedOver, Nodes};
use cryptline_serve::lane::Poll;
use cryptline_serve::stats::ExportStats;
use cryptline_testkit::fuse::{code, first_word};
use rustix::net::{RecvFlags, SendFlags};

pub use cryptline_testkit::fuse::{call, sockets};

pub const READ: u32 = code::READ;
pub const WRITE: u32 = code::WRITE;

/// How a session over a socket is served.
pub fn options(
    backend: BackendChoice,
    grace: Duration,
    log: impl Fn(&str) + Send + Sync + 'static,
    cut_off: impl Fn() + Send + Sync + 'static,
) -> FuseOptions {
    FuseOptions {
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
pub fn session(gate: &Gate, ours: &OwnedFd, theirs: OwnedFd, options: FuseOptions) -> FuseSession {
    let nodes = Nodes::new(MountedOver::Folder, gate, "disk", "", false);
    session_of(nodes, ours, theirs, options)
}

/// The same for several disks.
pub fn session_of(nodes: Nodes, ours: &OwnedFd, theirs: OwnedFd, options: FuseOptions) -> FuseSession {
    rustix::net::send(ours, &first_word(), SendFlags::NOSIGNAL).expect("sent");
    let session = FuseSession::start(&Arc::new(nodes), vec![theirs], options);
    let session = session.expect("a session");
    let mut answer = [0; 100];
    let (len, _) = rustix::net::recv(ours, &mut answer, RecvFlags::empty()).expect("an answer");
    assert_eq!(len, 16 + 64);
    assert_eq!(answer[4..8], [0; 4], "no error");
    session
}
