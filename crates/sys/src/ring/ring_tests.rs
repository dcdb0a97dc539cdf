//! Rings of both backends: completions, tokens, buffers and waking up.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use super::*;
use crate::Buffer;

fn both(test: impl Fn(Ring)) {
    for choice in [BackendChoice::Auto, BackendChoice::Syscalls] {
        test(Ring::new(choice, 16).unwrap());
    }
}

fn filled(byte: u8, len: usize) -> Buffer {
    let mut buffer = Buffer::alloc(len).unwrap();
    buffer.fill(byte);
    buffer
}

fn file_in(ring: &mut Ring) -> (FileId, RequestSource) {
    let file = OwnedFd::from(tempfile::tempfile().unwrap());
    (ring.add_file(Arc::new(file)), ring.add_source())
}

/// The end of a socket whose other end is in the ring.
fn socket_in(ring: &mut Ring) -> (UnixStream, FileId, RequestSource) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (theirs, ring.add_file(Arc::new(ours.into())), ring.add_source())
}

fn receive(file: FileId) -> Io {
    Io::Receive { file, buffer: filled(0, 16), start: 0, len: 16 }
}

fn finish(ring: &mut Ring, source: RequestSource) -> RingDone {
    loop {
        if let Some(done) = ring.next_done(source) {
            return done;
        }
        ring.wait().unwrap();
    }
}

#[test]
fn what_is_written_is_read_back() {
    both(|mut ring| {
        let (file, source) = file_in(&mut ring);
        let write = Io::Write { file, buffer: filled(7, 8192), start: 4096, len: 4096, offset: 512, durable: true };
        ring.submit(source, 1, write).unwrap();
        let done = finish(&mut ring, source);
        assert_eq!((done.token, done.result), (1, Ok(4096)));
        ring.submit(source, 2, Io::Sync { file }).unwrap();
        assert_eq!(finish(&mut ring, source).result, Ok(0));
        let read = Io::Read { file, buffer: filled(0, 8192), start: 0, len: 8192, offset: 0 };
        ring.submit(source, 3, read).unwrap();
        let done = finish(&mut ring, source);
        assert_eq!(done.result, Ok(4608));
        let Io::Read { buffer, .. } = done.io else { panic!("another operation came back") };
        assert!(buffer[..512].iter().all(|&byte| byte == 0));
        assert!(buffer[512..4608].iter().all(|&byte| byte == 7));
    });
}

#[test]
fn registered_arena_gives_the_same_bytes() {
    let mut ring = Ring::new(BackendChoice::Auto, 16).unwrap();
    let arena = Arena::new(4096, 4).unwrap();
    ring.register(&arena);
    writes_and_reads(&mut ring, &arena);
}

#[test]
fn arena_is_registered_with_the_first_transfer_of_its_buffers_and_while_something_is_in_flight() {
    let mut ring = Ring::new(BackendChoice::Auto, 16).unwrap();
    let RingEngine::Uring(uring) = &ring.engine else {
        return crate::skip("there is no io_uring");
    };
    let at_work = uring.registers_at_work();
    let arena = Arena::new(4096, 4).unwrap();
    ring.register_when_used(&arena);
    let is_registered = |ring: &Ring| ring.backend() == Backend::IoUring { fixed_buffers: true };
    if !at_work {
        return crate::skip("a kernel that registers no buffers while something is in flight");
    }
    assert!(!is_registered(&ring));
    let (_near, socket, receiver) = socket_in(&mut ring);
    ring.submit(receiver, 1, receive(socket)).unwrap();
    let (file, source) = file_in(&mut ring);
    ring.submit(source, 1, Io::Write { file, buffer: filled(9, 4096), start: 0, len: 4096, offset: 0, durable: false })
        .unwrap();
    finish(&mut ring, source);
    assert!(!is_registered(&ring), "the buffer is not of the arena");
    writes_and_reads(&mut ring, &arena);
    let is_possible = || Ring::new(BackendChoice::IoUring, 16).is_ok_and(|mut ring| ring.register(&arena));
    assert!(is_registered(&ring) || !is_possible(), "RLIMIT_MEMLOCK allows it");
}

fn writes_and_reads(ring: &mut Ring, arena: &Arc<Arena>) {
    let (file, source) = file_in(ring);
    let _first = arena.take().unwrap();
    let mut buffer = arena.take().unwrap();
    buffer.fill(9);
    ring.submit(source, 1, Io::Write { file, buffer, start: 0, len: 4096, offset: 0, durable: false }).unwrap();
    assert_eq!(finish(ring, source).result, Ok(4096));
    let buffer = arena.take().unwrap();
    ring.submit(source, 2, Io::Read { file, buffer, start: 0, len: 4096, offset: 0 }).unwrap();
    let Io::Read { buffer, .. } = finish(ring, source).io else { panic!() };
    assert!(buffer.iter().all(|&byte| byte == 9));
}

#[test]
fn sockets_carry_batches_and_their_end_is_seen() {
    both(|mut ring| {
        let (mut theirs, file, source) = socket_in(&mut ring);
        ring.submit(source, 1, Io::Receive { file, buffer: filled(0, 4096), start: 1, len: 4095 }).unwrap();
        let mut batch = SendBatch::new(64, 4);
        batch.push_header(b"head");
        batch.push_payload(filled(b'x', 5), 0, 5);
        ring.submit(source, 2, Io::Send { file, batch }).unwrap();
        let done = finish(&mut ring, source);
        assert_eq!((done.token, done.result), (2, Ok(9)));
        let mut got = [0; 9];
        theirs.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"headxxxxx");
        theirs.write_all(b"hello").unwrap();
        let done = finish(&mut ring, source);
        assert_eq!((done.token, done.result), (1, Ok(5)));
        drop(theirs);
        ring.submit(source, 3, receive(file)).unwrap();
        assert_eq!(finish(&mut ring, source).result, Ok(0));
    });
}

#[test]
fn sources_get_only_their_own_completions() {
    both(|mut ring| {
        let (file, one) = file_in(&mut ring);
        let two = ring.add_source();
        ring.submit(one, 1, Io::Sync { file }).unwrap();
        ring.submit(two, 2, Io::Sync { file }).unwrap();
        assert_eq!(finish(&mut ring, two).token, 2);
        assert_eq!(finish(&mut ring, one).token, 1);
    });
}

#[test]
fn untaken_completion_of_one_source_does_not_starve_another() {
    both(|mut ring| {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let socket = ring.add_file(Arc::new(OwnedFd::from(ours)));
        let file = ring.add_file(Arc::new(OwnedFd::from(tempfile::tempfile().unwrap())));
        let (idle, busy) = (ring.add_source(), ring.add_source());
        ring.submit(idle, 1, Io::Sync { file }).unwrap();
        ring.submit(busy, 2, receive(socket)).unwrap();
        // The sync of `idle` is finished and stays in its inbox from here.
        while ring.in_flight() > 1 {
            ring.wait().unwrap();
        }
        theirs.write_all(b"late").unwrap();
        assert_eq!(finish(&mut ring, busy).result, Ok(4));
    });
}

#[test]
fn full_ring_gives_the_operation_back() {
    let mut ring = Ring::new(BackendChoice::Auto, 1).unwrap();
    let (_theirs, file, source) = socket_in(&mut ring);
    ring.submit(source, 1, receive(file)).unwrap();
    assert!(ring.submit(source, 2, receive(file)).is_err());
}

#[test]
fn dropping_a_ring_with_a_receive_in_flight_frees_its_buffer() {
    let arena = Arena::new(4096, 1).unwrap();
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let mut ring = Ring::new(BackendChoice::Auto, 4).unwrap();
    let file = ring.add_file(Arc::new(OwnedFd::from(ours)));
    let source = ring.add_source();
    ring.submit(source, 1, Io::Receive { file, buffer: arena.take().unwrap(), start: 0, len: 4096 }).unwrap();
    let sync = ring.add_file(Arc::new(OwnedFd::from(tempfile::tempfile().unwrap())));
    ring.submit(source, 2, Io::Sync { file: sync }).unwrap();
    ring.wait().unwrap();
    drop(ring);
    assert_eq!(arena.available(), 1);
}

#[test]
fn limited_transfer_comes_back_short_in_both_engines() {
    both(|mut ring| {
        let (file, source) = file_in(&mut ring);
        ring.limit_transfer(1000);
        let write = Io::Write { file, buffer: filled(7, 4096), start: 0, len: 4096, offset: 0, durable: false };
        ring.submit(source, 1, write).unwrap();
        assert_eq!(finish(&mut ring, source).result, Ok(1000));
        ring.limit_transfer(300);
        let read = Io::Read { file, buffer: filled(0, 4096), start: 0, len: 4096, offset: 0 };
        ring.submit(source, 2, read).unwrap();
        assert_eq!(finish(&mut ring, source).result, Ok(300));
    });
}

#[test]
fn operation_carried_out_at_once_is_there_to_be_taken() {
    both(|mut ring| {
        let (file, source) = file_in(&mut ring);
        let write = Io::Write { file, buffer: filled(7, 4096), start: 96, len: 4000, offset: 10, durable: false };
        ring.submit_at_once(source, 5, write);
        let done = ring.next_done(source).expect("it is finished");
        assert_eq!((done.token, done.result), (5, Ok(4000)));
        assert_eq!(ring.in_flight(), 0);
    });
}

/// A ring of each kind; the third waits as on a kernel older than 5.11.
fn every_way_to_wait(test: impl Fn(Ring)) {
    both(&test);
    let mut ring = Ring::new(BackendChoice::Auto, 16).unwrap();
    if let RingEngine::Uring(uring) = &mut ring.engine {
        **uring = Uring::old(16).unwrap();
        test(ring);
    }
}

#[test]
fn wait_with_nothing_in_flight_returns_at_the_earliest_moment_and_not_before() {
    every_way_to_wait(|mut ring| {
        let start = Instant::now();
        let earliest = start + Duration::from_millis(3);
        ring.wake_by(start + Duration::from_secs(3600));
        ring.wake_by(earliest);
        ring.wake_by(start + Duration::from_secs(1800));
        while Instant::now() < earliest {
            // A signal may end a wait early.
            ring.wake_by(earliest);
            ring.wait().unwrap();
        }
        assert!(start.elapsed() < Duration::from_secs(600));
    });
}

#[test]
fn completion_ends_a_wait_before_its_moment() {
    every_way_to_wait(|mut ring| {
        let (mut theirs, file, source) = socket_in(&mut ring);
        ring.submit(source, 1, receive(file)).unwrap();
        let far = Instant::now() + Duration::from_secs(3600);
        // Handed to the kernel here, and not ready.
        ring.wake_by(Instant::now() + Duration::from_millis(1));
        ring.wait().unwrap();
        assert!(ring.next_done(source).is_none());
        let writer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            theirs.write_all(b"late").unwrap();
            theirs
        });
        let done = loop {
            if let Some(done) = ring.next_done(source) {
                break done;
            }
            ring.wake_by(far);
            ring.wait().unwrap();
        };
        assert_eq!(done.result, Ok(4));
        assert!(Instant::now() < far);
        drop(writer.join().unwrap());
    });
}

#[test]
fn moment_that_is_past_does_not_wait_and_is_forgotten() {
    every_way_to_wait(|mut ring| {
        let now = Instant::now();
        ring.wake_by(now);
        ring.wait().unwrap();
        assert_eq!(ring.wake_by, None);
        // Only looking in leaves the moment for the wait.
        ring.wake_by(now);
        ring.poll().unwrap();
        assert_eq!(ring.wake_by, Some(now));
    });
}

#[test]
fn waker_ends_a_wait_from_another_thread() {
    both(|mut ring| {
        let waker = ring.waker().unwrap();
        for _ in 0..200 {
            let waker = waker.clone();
            let thread = std::thread::spawn(move || waker.wake());
            ring.wait().unwrap();
            thread.join().unwrap();
            // Whether the waker came before the wait or during it, nothing is left over for long.
            ring.poll().unwrap();
        }
    });
}

#[test]
fn waking_before_the_wait_is_not_lost_and_counts_once() {
    both(|mut ring| {
        let waker = ring.waker().unwrap();
        waker.wake();
        waker.wake();
        ring.wait().unwrap();
        let start = Instant::now();
        ring.wake_by(start + Duration::from_millis(20));
        ring.wait().unwrap();
        assert!(start.elapsed() >= Duration::from_millis(20));
    });
}

#[test]
fn two_threads_play_ping_pong_by_their_wakers() {
    use std::sync::atomic::{AtomicU32, Ordering};
    both(|mut ring| {
        let here = ring.waker().unwrap();
        let count = Arc::new(AtomicU32::new(0));
        let (give, take) = std::sync::mpsc::channel();
        let other_count = Arc::clone(&count);
        let other = std::thread::spawn(move || {
            let mut ring = Ring::new(BackendChoice::Auto, 8).unwrap();
            give.send(ring.waker().unwrap()).unwrap();
            for round in 0..2000 {
                while other_count.load(Ordering::Relaxed) != 2 * round + 1 {
                    ring.wait().unwrap();
                }
                other_count.store(2 * round + 2, Ordering::Relaxed);
                here.wake();
            }
        });
        let there = take.recv().unwrap();
        for round in 0..2000 {
            count.store(2 * round + 1, Ordering::Relaxed);
            there.wake();
            while count.load(Ordering::Relaxed) != 2 * round + 2 {
                ring.wait().unwrap();
            }
        }
        other.join().unwrap();
    });
}

#[test]
fn a_look_tells_once_that_a_queue_has_more_to_give() {
    both(|mut ring| {
        ring.stay_awake();
        assert!(ring.look().unwrap());
        assert!(!ring.look().unwrap(), "who looks until there is nothing to do would never wait again");
    });
}

#[test]
fn a_wait_that_must_stay_awake_does_not_wait() {
    both(|mut ring| {
        let _waker = ring.waker().unwrap();
        ring.stay_awake();
        ring.wait().unwrap();
    });
}

#[test]
fn waker_and_socket_end_the_same_wait() {
    both(|mut ring| {
        let waker = ring.waker().unwrap();
        let (mut near, file, source) = socket_in(&mut ring);
        ring.submit(source, 1, receive(file)).unwrap();
        let thread = std::thread::spawn(move || waker.wake());
        ring.wait().unwrap();
        thread.join().unwrap();
        assert!(ring.next_done(source).is_none());
        near.write_all(b"x").unwrap();
        assert_eq!(finish(&mut ring, source).result, Ok(1));
    });
}

#[test]
fn reserved_operations_come_on_top_of_the_depth() {
    both(|mut ring| {
        ring.reserve(16);
        assert_eq!(ring.depth(), 32);
        let (near, file, source) = socket_in(&mut ring);
        for token in 0..32 {
            ring.submit(source, token, receive(file)).unwrap();
        }
        drop(near);
        for _ in 0..32 {
            assert_eq!(finish(&mut ring, source).result, Ok(0));
        }
    });
}

fn eventfd() -> Arc<OwnedFd> {
    let flags = rustix::event::EventfdFlags::NONBLOCK;
    Arc::new(rustix::event::eventfd(0, flags).unwrap())
}

fn signal(file: FileId, count: u64) -> Io {
    let mut batch = SendBatch::new(8, 1);
    batch.push_header(&count.to_ne_bytes());
    Io::WriteMessage { file, batch }
}

fn head_of(done: RingDone) -> Box<ReceiveBatch> {
    assert!(done.result.is_ok(), "{:?}", done.result);
    let Io::ReadMessage { batch, .. } = done.io else { panic!("another operation came back") };
    batch
}

#[test]
fn a_message_is_read_once_there_is_one() {
    both(|mut ring| {
        let (file, source) = (ring.add_file(eventfd()), ring.add_source());
        let signals = ring.add_source();
        for round in 1..=100 {
            ring.submit(source, round, Io::ReadMessage { file, batch: ReceiveBatch::new(8, 0) }).unwrap();
            ring.poll().unwrap();
            assert!(ring.next_done(source).is_none());
            ring.submit(signals, 0, signal(file, round)).unwrap();
            let done = finish(&mut ring, source);
            assert_eq!(done.token, round);
            assert_eq!(head_of(done).head(), round.to_ne_bytes());
            assert_eq!(finish(&mut ring, signals).result, Ok(8));
        }
    });
}

/// The submitter may be busy with something else afterwards for as long as it likes.
#[test]
fn a_message_that_nothing_is_in_the_way_of_is_written_by_looking_in_once() {
    both(|mut ring| {
        let (near, far) = (eventfd(), eventfd());
        let (file, other) = (ring.add_file(Arc::clone(&near)), ring.add_file(Arc::clone(&far)));
        let source = ring.add_source();
        for round in 1..=100 {
            ring.submit(source, 0, signal(file, round)).unwrap();
            if round % 2 == 0 {
                ring.submit(source, 0, signal(other, round)).unwrap();
            }
            ring.poll().unwrap();
            let mut count = [0; 8];
            rustix::io::read(&near, &mut count).expect("it is written");
            assert_eq!(u64::from_ne_bytes(count), round);
            if round % 2 == 0 {
                rustix::io::read(&far, &mut count).expect("it is written");
            }
            while ring.next_done(source).is_some() {}
        }
    });
}

#[test]
fn a_message_is_split_into_its_head_and_buffers() {
    both(|mut ring| {
        let (near, far) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::SEQPACKET,
            rustix::net::SocketFlags::NONBLOCK,
            None,
        )
        .unwrap();
        let (file, source) = (ring.add_file(Arc::new(near)), ring.add_source());
        let mut batch = ReceiveBatch::new(80, 2);
        batch.push(filled(0, 4096));
        batch.push(filled(0, 4096));
        ring.submit(source, 1, Io::ReadMessage { file, batch }).unwrap();
        let message: Vec<u8> = (0..=250).cycle().take(80 + 5000).collect();
        rustix::io::write(&far, &message).unwrap();
        let done = finish(&mut ring, source);
        assert_eq!(done.result, Ok(message.len()));
        let mut batch = head_of(done);
        assert_eq!(batch.head(), &message[..80]);
        let buffers: Vec<_> = batch.take_buffers().collect();
        assert_eq!(buffers[0][..], message[80..80 + 4096]);
        assert_eq!(buffers[1][..5000 - 4096], message[80 + 4096..]);
    });
}

#[test]
fn who_loses_a_message_to_another_reader_waits_for_the_next() {
    both(|mut ring| {
        let event = eventfd();
        let (file, source) = (ring.add_file(Arc::clone(&event)), ring.add_source());
        for token in 0..2 {
            ring.submit(source, token, Io::ReadMessage { file, batch: ReceiveBatch::new(8, 0) }).unwrap();
        }
        rustix::io::write(&event, &5u64.to_ne_bytes()).unwrap();
        let first = finish(&mut ring, source).token;
        for _ in 0..3 {
            ring.poll().unwrap();
        }
        assert!(ring.next_done(source).is_none());
        rustix::io::write(&event, &6u64.to_ne_bytes()).unwrap();
        let second = finish(&mut ring, source);
        assert_ne!(second.token, first);
        assert_eq!(head_of(second).head(), 6u64.to_ne_bytes());
    });
}

#[test]
fn a_ring_that_waits_for_a_message_can_be_dropped() {
    both(|mut ring| {
        let (file, source) = (ring.add_file(eventfd()), ring.add_source());
        ring.submit(source, 1, Io::ReadMessage { file, batch: ReceiveBatch::new(8, 0) }).unwrap();
        ring.poll().unwrap();
    });
}
