//! Submissions that io_uring refuses for a while, and more completions than its queue holds: nothing
//! is lost, and nothing spins.

use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::super::*;
use super::*;

/// As small as it gets: 8 entries to hand over, 16 completions.
const SMALL: u32 = 8;
const MANY: u8 = 200;

/// A new and an old ring, with room for [`MANY`] operations.
fn small_rings(test: impl Fn(Ring)) {
    for old in [false, true] {
        let mut ring = Ring::new(BackendChoice::Auto, SMALL).unwrap();
        let RingEngine::Uring(uring) = &mut ring.engine else {
            return crate::skip("there is no io_uring");
        };
        if old {
            **uring = Uring::old(SMALL).unwrap();
        }
        ring.reserve(u32::from(MANY));
        test(ring);
    }
}

fn refuse(ring: &mut Ring, errno: Errno, times: usize) {
    let RingEngine::Uring(uring) = &mut ring.engine else { unreachable!("it was a moment ago") };
    uring.faults.extend(std::iter::repeat_n(errno, times));
}

fn receive(file: FileId, buffer: Buffer) -> Io {
    Io::Receive { file, buffer, start: 0, len: 16 }
}

fn write(file: FileId, index: u8) -> Io {
    let mut buffer = Buffer::alloc(512).unwrap();
    buffer.fill(index + 1);
    Io::Write { file, buffer, start: 0, len: 512, offset: u64::from(index) * 512, durable: false }
}

#[test]
fn writes_that_the_kernel_refuses_for_a_while_are_all_made() {
    for errno in [Errno::AGAIN, Errno::BUSY] {
        small_rings(|mut ring| {
            let file = Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
            let (id, source) = (ring.add_file(Arc::clone(&file)), ring.add_source());
            // Also while the kernel's queue is full.
            refuse(&mut ring, errno, 300);
            for index in 0..MANY {
                ring.submit(source, u64::from(index), write(id, index)).unwrap();
            }
            let (mut waits, mut done) = (0, 0u8);
            while done < MANY {
                ring.wait().unwrap();
                waits += 1;
                assert!(waits <= 300 + u32::from(MANY), "it spins");
                while let Some(write) = ring.next_done(source) {
                    assert_eq!(write.result, Ok(512));
                    done += 1;
                }
            }
            let file = std::fs::File::from(file.try_clone().unwrap());
            let mut back = vec![0; usize::from(MANY) * 512];
            file.read_exact_at(&mut back, 0).unwrap();
            for (sector, mark) in back.chunks(512).zip(1..) {
                assert!(sector.iter().all(|&byte| byte == mark));
            }
        });
    }
}

#[test]
fn refused_wait_pauses_and_does_not_outlast_its_moment() {
    small_rings(|mut ring| {
        let file = ring.add_file(Arc::new(OwnedFd::from(tempfile::tempfile().unwrap())));
        let source = ring.add_source();
        ring.submit(source, 0, write(file, 0)).unwrap();
        refuse(&mut ring, Errno::AGAIN, 20);
        let start = Instant::now();
        for _ in 0..20 {
            ring.wait().unwrap();
            assert!(ring.next_done(source).is_none());
        }
        assert!(start.elapsed() >= 20 * PAUSE, "it spins");
        refuse(&mut ring, Errno::AGAIN, 1);
        ring.wake_by(Instant::now() + Duration::from_secs(3600));
        ring.wait().unwrap();
        while ring.in_flight() > 0 {
            ring.wait().unwrap();
        }
        assert_eq!(ring.next_done(source).unwrap().result, Ok(512));
    });
}

/// The refused entry is the answer for which the peer waits before it says more.
#[test]
fn refused_entry_does_not_wait_for_a_completion_that_needs_it() {
    small_rings(|mut ring| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (file, source) = (ring.add_file(Arc::new(ours.into())), ring.add_source());
        let buffer = Buffer::alloc(16).unwrap();
        ring.submit(source, 1, receive(file, buffer)).unwrap();
        ring.poll().unwrap();
        let peer = std::thread::spawn(move || {
            let (mut theirs, mut byte) = (theirs, [0]);
            std::io::Read::read_exact(&mut theirs, &mut byte).unwrap();
            theirs.write_all(&byte).unwrap();
            theirs
        });
        let mut batch = SendBatch::new(8, 1);
        batch.push_header(b"x");
        ring.submit(source, 2, Io::Send { file, batch }).unwrap();
        refuse(&mut ring, Errno::AGAIN, 5);
        while ring.in_flight() > 0 {
            ring.wait().unwrap();
        }
        let tokens = [(); 2].map(|()| ring.next_done(source).unwrap().token);
        assert_eq!(tokens, [2, 1]);
        drop(peer.join().unwrap());
    });
}

#[test]
fn more_completions_than_the_queue_holds_all_arrive_by_looking_in_alone() {
    small_rings(|mut ring| {
        let (near, far) = UnixStream::pair().unwrap();
        let (file, source) = (ring.add_file(Arc::new(far.into())), ring.add_source());
        let _waker = ring.waker().unwrap();
        for token in 0..u64::from(MANY) {
            let buffer = Buffer::alloc(16).unwrap();
            ring.submit(source, token, receive(file, buffer)).unwrap();
        }
        ring.poll().unwrap();
        drop(near);
        let mut seen = std::collections::HashSet::new();
        // The end of the socket is known to all of them: each look brings some.
        for _ in 0..10 * u32::from(MANY) {
            ring.poll().unwrap();
            while let Some(done) = ring.next_done(source) {
                assert_eq!(done.result, Ok(0));
                assert!(seen.insert(done.token), "twice");
            }
        }
        assert_eq!(seen.len(), usize::from(MANY));
    });
}

#[test]
fn dropped_ring_cancels_more_than_the_queue_holds() {
    small_rings(|mut ring| {
        let arena = Arena::new(4096, usize::from(MANY)).unwrap();
        let (_near, far) = UnixStream::pair().unwrap();
        let (file, source) = (ring.add_file(Arc::new(far.into())), ring.add_source());
        for token in 0..u64::from(MANY) {
            let buffer = arena.take().unwrap();
            ring.submit(source, token, receive(file, buffer)).unwrap();
        }
        ring.poll().unwrap();
        refuse(&mut ring, Errno::AGAIN, 10);
        drop(ring);
        assert_eq!(arena.available(), usize::from(MANY));
    });
}

#[test]
fn dropped_ring_gives_up_where_the_kernel_takes_nothing_any_more() {
    small_rings(|mut ring| {
        let arena = Arena::new(4096, 1).unwrap();
        let (_near, far) = UnixStream::pair().unwrap();
        let (file, source) = (ring.add_file(Arc::new(far.into())), ring.add_source());
        let buffer = arena.take().unwrap();
        ring.submit(source, 1, receive(file, buffer)).unwrap();
        ring.poll().unwrap();
        refuse(&mut ring, Errno::BUSY, 100_000);
        drop(ring);
        // The kernel may still write to it.
        assert_eq!(arena.available(), 0);
    });
}

#[test]
fn wait_that_nothing_could_end_does_not_begin() {
    small_rings(|mut ring| ring.wait().unwrap());
}

/// Cut from its poll, such a read would find nothing and fail at once.
#[test]
fn read_of_a_message_waits_for_it_wherever_the_queue_is_full() {
    for others in 0..u64::from(2 * SMALL) {
        for refusals in [0, 30] {
            small_rings(|mut ring| {
                let (silent, _near) = UnixStream::pair().unwrap();
                let (ours, theirs) = UnixStream::pair().unwrap();
                ours.set_nonblocking(true).unwrap();
                let silent = ring.add_file(Arc::new(silent.into()));
                let (file, source) = (ring.add_file(Arc::new(ours.into())), ring.add_source());
                refuse(&mut ring, Errno::AGAIN, refusals);
                for _ in 0..others {
                    let buffer = Buffer::alloc(16).unwrap();
                    ring.submit(source, 0, receive(silent, buffer)).unwrap();
                }
                for token in 1..=u64::from(SMALL) {
                    let batch = ReceiveBatch::new(8, 0);
                    let read = Io::ReadMessage { file, batch };
                    ring.submit(source, token, read).unwrap();
                }
                for _ in 0..50 {
                    ring.poll().unwrap();
                }
                assert!(ring.next_done(source).is_none(), "behind {others}");
                for _ in 0..SMALL {
                    (&theirs).write_all(b"a message"[..8].as_ref()).unwrap();
                    let done = loop {
                        match ring.next_done(source) {
                            Some(done) => break done,
                            None => ring.wait().unwrap(),
                        }
                    };
                    assert_eq!(done.result, Ok(8), "behind {others}");
                }
            });
        }
    }
}

#[test]
fn ring_that_a_forked_process_drops_is_left_to_its_parent() {
    small_rings(|mut ring| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (file, source) = (ring.add_file(Arc::new(ours.into())), ring.add_source());
        let read = receive(file, Buffer::alloc(16).unwrap());
        ring.submit(source, 7, read).unwrap();
        ring.poll().unwrap();
        // SAFETY: the child only drops what this thread has, and ends; the C library keeps its heap usable.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(ring);
            // SAFETY: it ends the process, and does nothing else.
            unsafe { libc::_exit(0) };
        }
        let child = rustix::process::Pid::from_raw(child);
        let ended = rustix::process::waitpid(child, rustix::process::WaitOptions::empty());
        let (_, status) = ended.unwrap().unwrap();
        assert_eq!(status.exit_status(), Some(0));
        let RingEngine::Uring(uring) = &mut ring.engine else { unreachable!("it was a moment ago") };
        assert_eq!(uring.ring.queued(), 0, "the child has asked for something");
        (&theirs).write_all(b"sixteen bytes ok").unwrap();
        ring.wait().unwrap();
        let done = ring.next_done(source).unwrap();
        assert_eq!((done.token, done.result), (7, Ok(16)));
    });
}
