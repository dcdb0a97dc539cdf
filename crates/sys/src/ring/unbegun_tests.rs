//! Rings of a process that may have no more threads.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;

use super::super::{Allocate, BackendChoice, FileId, Io, RequestSource, Ring};
use super::PAUSES;
use crate::Buffer;
use crate::few_threads::{Scarce, without_threads};

fn buffer(byte: u8) -> Buffer {
    let mut buffer = Buffer::alloc(4096).unwrap();
    buffer.fill(byte);
    buffer
}

fn result(ring: &mut Ring, source: RequestSource, io: Io) -> Result<usize, Errno> {
    assert!(ring.submit(source, 1, io).is_ok());
    loop {
        if let Some(done) = ring.next_done(source) {
            return done.result;
        }
        ring.wait().unwrap();
    }
}

/// A ring, and a file for it, in such a process.
fn ring_without_threads(test: impl FnOnce(Ring, Arc<OwnedFd>, &Scarce) + Send + 'static) {
    let file = Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
    without_threads(move |scarce| match Ring::new(BackendChoice::IoUring, 16) {
        Ok(ring) => test(ring, file, scarce),
        Err(_) => crate::skip("there is no io_uring"),
    });
}

#[test]
fn what_no_thread_could_be_made_for_is_carried_out() {
    ring_without_threads(|mut ring, kept, _| {
        let (file, source) = (ring.add_file(Arc::clone(&kept)), ring.add_source());
        assert_eq!(result(&mut ring, source, Io::Sync { file }), Ok(0));
        for durable in [false, true] {
            let write = Io::Write { file, buffer: buffer(7), start: 0, len: 4096, offset: 0, durable };
            assert_eq!(result(&mut ring, source, write), Ok(4096));
        }
        let punch = Io::Allocate { file, what: Allocate::PunchHole, offset: 0, len: 512 };
        assert_eq!(result(&mut ring, source, punch), Ok(0));
        let mut bytes = [1; 4096];
        rustix::io::pread(&*kept, &mut bytes, 0).unwrap();
        assert!(bytes[..512] == [0; 512] && bytes[512..] == [7; 3584]);
    });
}

#[test]
fn ring_of_several_disks_waits_until_there_are_threads_again_and_carries_nothing_out_itself() {
    ring_without_threads(|mut ring, kept, scarce| {
        ring.serve_several();
        let (file, source) = (ring.add_file(kept), ring.add_source());
        assert!(ring.submit(source, 1, Io::Sync { file }).is_ok());
        for _ in 0..20 {
            ring.wait().unwrap();
            assert!(ring.next_done(source).is_none(), "who has synced?");
        }
        scarce.ends_soon();
        let done = loop {
            match ring.next_done(source) {
                Some(done) => break done,
                None => ring.wait().unwrap(),
            }
        };
        assert_eq!(done.result, Ok(0));
    });
}

#[test]
fn what_is_tried_again_pauses_and_what_others_do_does_not() {
    ring_without_threads(|mut ring, kept, _| {
        ring.serve_several();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let socket = ring.add_file(Arc::new(ours.into()));
        let (file, source, other) = (ring.add_file(kept), ring.add_source(), ring.add_source());
        assert!(ring.submit(source, 1, Io::Sync { file }).is_ok());
        while ring.next_try().is_none() {
            ring.wait().unwrap();
        }
        let began = Instant::now();
        for tries in 1..=10 {
            let moment = ring.next_try().unwrap();
            rustix::io::write(&theirs, &[1; 8]).unwrap();
            let receive = Io::Receive { file: socket, buffer: buffer(0), start: 0, len: 8 };
            assert_eq!(result(&mut ring, other, receive), Ok(8));
            // The moment of the next try is another one once it was tried.
            while ring.next_try().is_none_or(|next| next == moment) {
                ring.wait().unwrap();
            }
            assert!(began.elapsed() >= PAUSES.0 * (tries - 1), "it spins");
        }
        assert!(ring.next_done(source).is_none(), "who has synced?");
    });
}

#[test]
fn sync_that_may_tell_of_a_lost_write_is_not_repeated() {
    let cancelled = Err(Errno::CANCELED);
    let id = FileId(0);
    let sync = Io::Sync { file: id };
    let durable = Io::Write { file: id, buffer: buffer(1), start: 0, len: 512, offset: 0, durable: true };
    let write = Io::Write { file: id, buffer: buffer(1), start: 0, len: 512, offset: 0, durable: false };
    // A file system that is none of those whose errors are known.
    let other: OwnedFd = std::fs::File::open("/proc/self/status").unwrap().into();
    for io in [&sync, &durable] {
        assert!(!super::is_unbegun(cancelled, &other, io));
    }
    assert!(super::is_unbegun(cancelled, &other, &write));
    assert!(!super::is_unbegun(Err(Errno::IO), &other, &write));
}
