//! Loops of others that wait for a ring's descriptor, and for nothing else.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::thread;

use rustix::event::epoll;

use super::*;
use crate::Buffer;

const ROUNDS: u64 = 200;
/// A loop that waits longer than this has missed something.
const HANG: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 60, tv_nsec: 0 };
const AT_ONCE: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };

/// Somebody's epoll, which watches a ring's descriptor.
struct Watcher(OwnedFd);

impl Watcher {
    fn new(ring: &mut Ring) -> Self {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let data = epoll::EventData::new_u64(7);
        let ring = ring.descriptor().unwrap();
        epoll::add(&epoll, ring, data, epoll::EventFlags::IN).unwrap();
        Self(epoll)
    }

    fn is_readable(&self, within: &rustix::time::Timespec) -> bool {
        let wait = || {
            let mut events = Vec::with_capacity(1);
            let events = rustix::buffer::spare_capacity(&mut events);
            epoll::wait(&self.0, events, Some(within))
        };
        rustix::io::retry_on_intr(wait).unwrap() == 1
    }

    /// Waits until there is something to do, and has the ring do it.
    fn turn(&self, ring: &mut Ring) {
        assert!(self.is_readable(&HANG), "the loop was not told");
        ring.poll().unwrap();
    }

    fn finish(&self, ring: &mut Ring, source: RequestSource) -> RingDone {
        loop {
            if let Some(done) = ring.next_done(source) {
                return done;
            }
            self.turn(ring);
        }
    }

    /// Polls until there is nothing to do, which takes a few turns at most.
    fn rest(&self, ring: &mut Ring) {
        let turns = (0..4).take_while(|_| self.is_readable(&AT_ONCE));
        assert!(turns.map(|_| ring.poll().unwrap()).count() < 4);
    }
}

fn both(test: impl Fn(Ring)) {
    for choice in [BackendChoice::Auto, BackendChoice::Syscalls] {
        test(Ring::new(choice, 16).unwrap());
    }
}

fn receive(file: FileId, len: usize) -> Io {
    Io::Receive { file, buffer: Buffer::alloc(len).unwrap(), start: 0, len }
}

/// A batch of one byte.
fn send(file: FileId, byte: u8) -> Io {
    let mut batch = SendBatch::new(8, 1);
    batch.push_header(&[byte]);
    Io::Send { file, batch }
}

#[test]
fn bytes_that_come_at_any_time_are_all_announced() {
    both(|mut ring| {
        let watcher = Watcher::new(&mut ring);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let file = ring.add_file(Arc::new(OwnedFd::from(ours)));
        let source = ring.add_source();
        // The other side answers as fast as it can, before or after the wait has begun.
        let echo = thread::spawn(move || {
            let mut byte = [0];
            while theirs.read(&mut byte).unwrap() == 1 {
                theirs.write_all(&byte).unwrap();
            }
        });
        for round in 0..10 * ROUNDS {
            ring.submit(source, 1, receive(file, 1)).unwrap();
            let byte = u8::try_from(round % 256).unwrap();
            ring.submit(source, 2, send(file, byte)).unwrap();
            let done = [(); 2].map(|()| watcher.finish(&mut ring, source));
            assert!(done.iter().all(|done| done.result == Ok(1)));
        }
        drop(ring);
        echo.join().unwrap();
    });
}

#[test]
fn syncs_that_worker_threads_of_the_kernel_carry_out_are_announced() {
    both(|mut ring| {
        let watcher = Watcher::new(&mut ring);
        let file = Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
        let (file, source) = (ring.add_file(file), ring.add_source());
        for round in 0..ROUNDS {
            for token in 0..round % 5 + 1 {
                ring.submit(source, token, Io::Sync { file }).unwrap();
            }
            for _ in 0..round % 5 + 1 {
                assert_eq!(watcher.finish(&mut ring, source).result, Ok(0));
            }
        }
    });
}

#[test]
fn wakers_of_other_threads_are_announced_each_time() {
    both(|mut ring| {
        let watcher = Watcher::new(&mut ring);
        let waker = ring.waker().unwrap();
        watcher.rest(&mut ring);
        let (go, wanted) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || wanted.iter().for_each(|()| waker.wake()));
        for _ in 0..ROUNDS {
            go.send(()).unwrap();
            watcher.turn(&mut ring);
        }
        drop(go);
        thread.join().unwrap();
        watcher.rest(&mut ring);
        assert!(!watcher.is_readable(&AT_ONCE));
    });
}

#[test]
fn moment_to_wake_up_at_is_announced_once() {
    both(|mut ring| {
        let watcher = Watcher::new(&mut ring);
        watcher.rest(&mut ring);
        for wait in [Duration::ZERO, Duration::from_millis(3)] {
            let moment = Instant::now() + wait;
            ring.wake_by(moment);
            // A later moment does not put off an earlier one.
            ring.wake_by(moment + Duration::from_secs(3600));
            watcher.turn(&mut ring);
            assert!(Instant::now() >= moment);
            watcher.rest(&mut ring);
        }
    });
}

#[test]
fn descriptor_is_readable_while_there_is_something_to_do_and_not_otherwise() {
    both(|mut ring| {
        let watcher = Watcher::new(&mut ring);
        watcher.rest(&mut ring);
        let file = Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
        let (file, source) = (ring.add_file(file), ring.add_source());
        ring.stay_awake();
        assert!(watcher.is_readable(&AT_ONCE));
        watcher.rest(&mut ring);
        ring.submit(source, 1, Io::Sync { file }).unwrap();
        assert!(watcher.is_readable(&AT_ONCE), "it must be handed over");
        watcher.finish(&mut ring, source);
        watcher.rest(&mut ring);
        ring.submit_at_once(source, 2, Io::Sync { file });
        assert!(watcher.is_readable(&AT_ONCE), "it must be taken");
        ring.next_done(source).unwrap();
        watcher.rest(&mut ring);
        assert!(!watcher.is_readable(&AT_ONCE));
    });
}

#[test]
fn ring_with_a_descriptor_can_be_waited_for_as_ever() {
    both(|mut ring| {
        let waker = ring.waker().unwrap();
        let watcher = Watcher::new(&mut ring);
        let file = Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
        let (file, source) = (ring.add_file(file), ring.add_source());
        for _ in 0..ROUNDS {
            ring.submit(source, 1, Io::Sync { file }).unwrap();
            while ring.next_done(source).is_none() {
                ring.wait().unwrap();
            }
        }
        watcher.rest(&mut ring);
        let waker = thread::spawn(move || waker.wake());
        while !waker.is_finished() {
            ring.wait().unwrap();
            if !watcher.is_readable(&AT_ONCE) {
                break;
            }
        }
        waker.join().unwrap();
    });
}

#[test]
fn wake_up_between_the_look_and_the_kernel_is_not_swallowed() {
    both(|mut ring| {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let file = ring.add_file(Arc::new(OwnedFd::from(ours)));
        let source = ring.add_source();
        let waker = ring.waker().unwrap();
        let watcher = Watcher::new(&mut ring);
        ring.submit(source, 1, receive(file, 1)).unwrap();
        // A wait leaves io_uring's look at the eventfd behind.
        ring.wake_by(Instant::now() + std::time::Duration::from_millis(1));
        ring.wait().unwrap();
        watcher.rest(&mut ring);
        waker.wake();
        ring.enter_engine(Patience::None).unwrap();
        assert!(watcher.is_readable(&AT_ONCE), "nobody would look at it");
        watcher.rest(&mut ring);
    });
}
