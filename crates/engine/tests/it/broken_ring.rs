//! A ring that can not be waited for is an error to whoever waits, and what was under way is never
//! taken for what comes after it.
//!
//! In a program of its own: `ppoll` refuses more descriptors than the process may have open.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use cryptline_engine::base::RamDevice;
use cryptline_engine::blocking::Blocking;
use cryptline_engine::{
    BackendChoice, Completion, Device, Extent, Fault, Gate, Geometry, OpenError, Queue, Request, Ring, Submitted,
    Traits,
};
use cryptline_sys::{Buffer, FileId, Io, RequestSource};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A medium whose answers come over a socket.
struct Far(Arc<OwnedFd>);

struct FarQueue {
    socket: FileId,
    source: RequestSource,
    request: Option<Request>,
}

impl Device for Far {
    fn traits(&self) -> Traits {
        let geometry = RamDevice::new(1 << 20).unwrap().traits().geometry;
        Traits::base(Geometry { cache: false, answers_at_once: false, ..geometry })
    }

    fn open_queue(&self, ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        Ok(Box::new(FarQueue { socket: ring.add_file(Arc::clone(&self.0)), source: ring.add_source(), request: None }))
    }

    fn extent(&self, _offset: u64, _len: u64) -> Result<Extent, Fault> {
        Err(Fault::NotSupported)
    }
}

impl Queue for FarQueue {
    fn submit(&mut self, ring: &mut Ring, request: Request) -> Submitted {
        self.request = Some(request);
        let receive = Io::Receive { file: self.socket, buffer: Buffer::alloc(1).unwrap(), start: 0, len: 1 };
        assert!(ring.submit(self.source, 0, receive).is_ok());
        Submitted::Pending
    }

    fn poll(&mut self, ring: &mut Ring, done: &mut Vec<Completion>) {
        if ring.next_done(self.source).is_some() {
            done.extend(self.request.take().map(|request| request.complete(Ok(()))));
        }
    }
}

fn far() -> (Blocking, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let gate = Gate::new(Far(Arc::new(ours.into())));
    let blocking = Blocking::new(&gate, BackendChoice::Syscalls).unwrap();
    (blocking, theirs)
}

#[test]
fn wait_that_fails_is_an_error_and_the_next_call_is_not_answered_by_the_last() {
    let (mut sound, mut peer) = far();
    std::io::Write::write_all(&mut peer, b"!").unwrap();
    assert_eq!(sound.flush(), Ok(()));
    for first in ["read", "write", "flush"] {
        let (mut blocking, mut peer) = far();
        let limits = getrlimit(Resource::Nofile);
        let none = Rlimit { current: Some(0), ..limits };
        setrlimit(Resource::Nofile, none).unwrap();
        let mut bytes = [0; 4096];
        let failed = match first {
            "read" => blocking.read_at(0, &mut bytes),
            "write" => blocking.write_at(0, &bytes, false),
            _ => blocking.flush(),
        };
        setrlimit(Resource::Nofile, limits).unwrap();
        // What became of it is not known, which `EINVAL` would not say.
        assert_eq!(failed, Err(Fault::Io(Errno::IO)), "{first}");
        // The answer to it comes now, and is none to what follows.
        std::io::Write::write_all(&mut peer, b"!!!!").unwrap();
        assert!(blocking.flush().is_err());
        assert!(blocking.read_at(0, &mut bytes).is_err());
        assert!(blocking.write_at(0, &bytes, true).is_err());
        assert!(blocking.discard(0, 4096).is_err());
        let run = blocking.run(Request::flush(7));
        assert!(run.is_err());
    }
}
