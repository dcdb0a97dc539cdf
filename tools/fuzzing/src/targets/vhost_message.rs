//! A front-end that says whatever it likes to a vhost-user server in this process, and hands over whatever it likes.
//!
//! ```text
//!   records    request 1, flags 1, descriptors 1, length 1, payload
//! ```
//!
//! A record becomes a message, most of them with a header that is whole. Checked is what holds whatever is said: no
//! panic, bounded memory, and a server that ends when its front-end has gone.

use std::io::{IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cryptline_engine::base::RamDevice;
use cryptline_engine::{BackendChoice, Gate};
use cryptline_serve::StopHandle;
use cryptline_serve::lane::Poll;
use cryptline_serve::stats::ExportStats;
use cryptline_serve::vhost_user::{FrontEnds, VhostDisk, VhostServer, VhostServerOptions};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

const SIZE: u64 = 1 << 20;
/// Of the memory that is shared.
const MEMORY: u64 = 1 << 16;
/// A session longer than this finds nothing that a shorter one does not.
const RECORDS_MAX: usize = 64;
/// Flags of a record beside those of its header: the header is the payload's first bytes, and the rest follows late.
const IS_RAW: u8 = 0x80;
/// All descriptors are the end of a channel.
const HAS_CHANNEL: u8 = 0x10;

/// Tries one input.
pub fn target(data: &[u8]) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let disk = VhostDisk {
        name: "disk".to_owned(),
        gate: Gate::new(RamDevice::new(SIZE).expect("memory")),
        block: 512,
        serial: "serial".to_owned(),
        queues: 2,
        queue_size: None,
        stats: ExportStats::new(false),
        front: FrontEnds::Connected(theirs),
    };
    let options = VhostServerOptions {
        backend: BackendChoice::Syscalls,
        poll: Poll::default(),
        grace: Duration::from_millis(100),
        log: Arc::new(|_| ()),
    };
    let server = VhostServer::new(vec![disk], options).expect("a disk like others");
    let stop = StopHandle::new().expect("an eventfd");
    thread::scope(|scope| {
        let served = scope.spawn(|| server.run(&stop));
        say(&ours, data);
        // Without `stop`: a front-end that is gone is enough.
        let _ = ours.shutdown(Shutdown::Both);
        drop(ours);
        let flushed = served.join().expect("no panic");
        assert_eq!(flushed.expect("it could serve"), Ok(()));
    });
}

fn say(stream: &UnixStream, data: &[u8]) {
    let memory = memfd_create("memory", MemfdFlags::CLOEXEC).expect("memory");
    ftruncate(&memory, MEMORY).expect("memory");
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
    let (channel, _listens) = UnixStream::pair().expect("a pair");
    let mut rest = data;
    for _ in 0..RECORDS_MAX {
        let Some(([request, flags, descriptors, len], after)) = rest.split_first_chunk() else {
            return;
        };
        let (payload, next) = after.split_at(after.len().min((*len).into()));
        rest = next;
        if flags & IS_RAW != 0 {
            let _ = (&*stream).write_all(payload);
            continue;
        }
        let mut message = Vec::new();
        for word in [u32::from(*request), u32::from(*flags & 15), u32::from(*len)] {
            message.extend(word.to_ne_bytes());
        }
        message.extend(payload);
        let files = if flags & HAS_CHANNEL == 0 {
            files(*descriptors, &memory, &event)
        } else {
            vec![channel.as_fd(); usize::from(descriptors & 15)]
        };
        if !send(stream, &message, &files) {
            return;
        }
    }
}

/// As many as the lower half says, of the kinds that the upper half says.
fn files<'a>(which: u8, memory: &'a OwnedFd, event: &'a OwnedFd) -> Vec<BorrowedFd<'a>> {
    let kind = |index: u8| match which >> (4 + index % 4) & 1 {
        0 => event.as_fd(),
        _ => memory.as_fd(),
    };
    (0..which & 15).map(kind).collect()
}

/// Sends, and tells if somebody listens.
fn send(stream: &UnixStream, bytes: &[u8], files: &[BorrowedFd<'_>]) -> bool {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(files)));
    }
    sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).is_ok()
}
