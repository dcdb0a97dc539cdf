//! `linear` over devices whose requests end as the test says: in any order, with any result, or not at all
//! because there is no room.

use std::time::Duration;

use cryptline_engine::layer::linear::{Segment, joined};
use cryptline_engine::{BackendChoice, Buffer, Channel, Completion, Fault, Gate, Op, Request, Submitted};
use cryptline_testkit::scripted::{Manner, Scripted};
use cryptline_testkit::suite::devices::{self, AES_512, AUTO, INLINE};
use cryptline_testkit::suite::{Fresh, Watchdog, fill, noise};
use rustix::io::Errno;

const EIO: Fault = Fault::Io(Errno::IO);
/// Pieces of one request below at a time.
const WINDOW: usize = 8;
/// Pieces of all requests below at a time beyond one of each.
const EXTRA: usize = 64;
/// Bytes of each device.
const SIZE: u64 = 1 << 20;

/// Two devices of which each request waits until it is answered.
fn manual() -> Scripted {
    let manner = Manner { block: 512, at_once: false, start: 0 };
    let bytes = |device| (0..SIZE).map(|offset| stored(device, offset)).collect();
    let stage = Scripted::with(manner, vec![bytes(0), bytes(1)]);
    stage.hold_all();
    stage
}

/// Byte at a place of a device.
fn stored(device: usize, offset: u64) -> u8 {
    noise(((device as u64) << 40) | (offset / 512)).to_le_bytes()[usize::try_from(offset % 8).unwrap()]
}

/// Whoever uses the device that lies over the stage.
struct User {
    channel: Channel,
    done: Vec<Completion>,
}

impl User {
    fn of(gate: &Gate) -> Self {
        Self { channel: Channel::open(gate, BackendChoice::Syscalls, 32).unwrap(), done: Vec::new() }
    }

    fn submit(&mut self, request: Request) {
        if let Submitted::Done(completion) = self.channel.submit(request) {
            self.done.push(completion);
        }
    }

    fn poll(&mut self) {
        self.channel.poll(&mut self.done).unwrap();
    }

    /// The only request that has ended.
    fn ended(&mut self) -> Completion {
        assert_eq!((self.done.len(), self.channel.in_flight()), (1, 0));
        self.done.pop().unwrap()
    }
}

/// Ranges of two devices in turns: 1024, 1536 and 512 bytes, then again.
fn striped(stage: &Scripted, count: usize) -> Gate {
    let lowers = [stage.gate_of(0), stage.gate_of(1)];
    let segments = (0..count).map(|number| Segment {
        lower: lowers[number % 2].clone(),
        offset: (count - number) as u64 * 4096,
        len: [1024, 1536, 512][number % 3],
    });
    joined(segments.collect()).unwrap()
}

/// Content of the device of [`striped`].
fn content(count: usize) -> Vec<u8> {
    let ranges = (0..count).flat_map(|number| {
        let start = (count - number) as u64 * 4096;
        let len = [1024, 1536, 512][number % 3];
        (start..start + len).map(move |offset| stored(number % 2, offset))
    });
    ranges.collect()
}

fn read(offset: u64, len: usize, token: u64) -> Request {
    Request::read(offset, Buffer::alloc(len).unwrap(), token)
}

fn write(offset: u64, len: usize, durable: bool, token: u64) -> Request {
    let mut data = Buffer::alloc(len).unwrap();
    fill(&mut data, offset, 7);
    Request::write(offset, data, durable, token)
}

fn bytes(completion: &Completion) -> &[u8] {
    completion.request.data.as_ref().expect("it has bytes")
}

#[test]
fn request_inside_a_range_goes_to_its_device_as_it_is() {
    let stage = manual();
    let mut user = User::of(&striped(&stage, 3));
    user.submit(write(1536, 1024, true, 9));
    stage.look(0, |device, request| {
        assert_eq!((device, request.offset, request.len), (1, 2 * 4096 + 512, 1024));
        assert!(request.op.is_sync());
    });
    stage.answer(0, Ok(()));
    user.poll();
    let ended = user.ended();
    assert_eq!((ended.request.offset, ended.request.token), (1536, 9));
    assert_eq!(ended.result, Ok(()));
}

#[test]
fn pieces_may_end_in_any_order_and_the_request_ends_once_as_it_was_submitted() {
    let orders = [[0, 0, 0], [0, 1, 0], [1, 0, 0], [1, 1, 0], [2, 0, 0], [2, 1, 0]];
    for order in orders {
        let stage = manual();
        let mut user = User::of(&striped(&stage, 3));
        user.submit(read(512, 2560, 41));
        assert_eq!(stage.taken(), 3);
        for next in order {
            assert!(user.done.is_empty());
            stage.answer(next, Ok(()));
            user.poll();
        }
        let ended = user.ended();
        assert_eq!((ended.request.offset, ended.request.token), (512, 41));
        assert_eq!(ended.result, Ok(()));
        assert!(bytes(&ended) == &content(3)[512..], "{order:?}");
    }
}

#[test]
fn each_piece_of_a_write_has_its_bytes_its_place_and_its_durability() {
    for durable in [false, true] {
        let stage = manual();
        let mut user = User::of(&striped(&stage, 3));
        user.submit(write(0, 3072, durable, 1));
        let mut whole = vec![0; 3072];
        fill(&mut whole, 0, 7);
        let expected = [(0, 3, &whole[..1024]), (1, 2, &whole[1024..2560]), (0, 1, &whole[2560..])];
        for (index, (device, place, data)) in expected.into_iter().enumerate() {
            stage.look(index, |on, request| {
                assert_eq!((on, request.offset), (device, place * 4096));
                assert_eq!(request.op, Op::write(durable));
                assert!(request.data.as_ref().expect("its data")[..] == *data);
            });
        }
        (0..3).for_each(|_| stage.answer(0, Ok(())));
        user.poll();
        assert!(bytes(&user.ended()) == whole);
    }
}

#[test]
fn discards_zeroing_and_hints_are_cut_at_borders() {
    for op in [Op::Zero, Op::ZeroUnmap, Op::Discard, Op::Cache] {
        let stage = manual();
        let mut user = User::of(&striped(&stage, 3));
        user.submit(Request::new(op, 512, 2048, 3));
        assert_eq!(stage.taken(), 2);
        let range = |_, request: &Request| {
            assert_eq!(request.op, op);
            (request.offset, request.len)
        };
        assert_eq!(stage.look(0, range), (3 * 4096 + 512, 512));
        assert_eq!(stage.look(1, range), (2 * 4096, 1536));
        (0..2).for_each(|_| stage.answer(0, Ok(())));
        user.poll();
        let ended = user.ended();
        assert_eq!((ended.request.offset, ended.request.len), (512, 2048));
        assert_eq!(ended.request.op, op);
        assert_eq!(ended.result, Ok(()));
    }
}

#[test]
fn first_failure_ends_a_request_once_all_that_was_sent_is_back() {
    let stage = manual();
    let mut user = User::of(&striped(&stage, 30));
    let len = content(30).len();
    user.submit(write(0, len, false, 5));
    assert_eq!(stage.taken(), WINDOW);
    stage.answer(3, Err(EIO));
    user.poll();
    assert_eq!(stage.taken(), WINDOW - 1, "more was sent of a write that has failed");
    for _ in 1..WINDOW {
        assert!(user.done.is_empty());
        stage.answer(0, Ok(()));
        user.poll();
    }
    let ended = user.ended();
    assert_eq!((ended.result, ended.request.len), (Err(EIO), len as u64));
    assert_eq!(stage.taken(), 0);
    // What was lost on one device was lost on this one.
    user.submit(Request::flush(6));
    assert_eq!(user.ended().result, Err(Fault::Latched));
}

#[test]
fn refusal_does_not_hide_that_something_was_lost() {
    for (results, expected) in [
        ([Err(Fault::NotSupported), Err(EIO), Ok(())], EIO),
        ([Err(Fault::NotSupported), Err(Fault::NoSpace), Ok(())], Fault::NoSpace),
        ([Err(EIO), Err(Fault::NoSpace), Err(Fault::NotSupported)], EIO),
        ([Ok(()), Err(Fault::NoSpace), Err(EIO)], EIO),
        ([Ok(()), Err(Fault::Truncated), Err(EIO)], Fault::Truncated),
        // Nor that something was done.
        ([Err(Fault::NotSupported), Ok(()), Ok(())], Fault::Partly),
        ([Err(Fault::NotSupported); 3], Fault::NotSupported),
    ] {
        let stage = manual();
        let mut user = User::of(&striped(&stage, 3));
        user.submit(write(0, 3072, false, 5));
        for result in results {
            stage.answer(0, result);
            user.poll();
        }
        assert_eq!(user.ended().result, Err(expected));
    }
}

#[test]
fn requests_in_many_pieces_take_no_more_places_than_were_reserved() {
    let stage = manual();
    let mut user = User::of(&striped(&stage, 30));
    let content = content(30);
    (0..32).for_each(|token| user.submit(read(0, content.len(), token)));
    let mut most = 0;
    let mut order = 7;
    while stage.taken() > 0 {
        most = most.max(stage.taken());
        order = order * 31 % 1009;
        stage.answer(order % stage.taken(), Ok(()));
        user.poll();
    }
    assert_eq!(most, 32 + EXTRA);
    assert_eq!((user.done.len(), user.channel.in_flight()), (32, 0));
    assert!(user.done.iter().all(|ended| bytes(ended) == content));
    let mut tokens: Vec<_> = user.done.iter().map(|ended| ended.request.token).collect();
    tokens.sort_unstable();
    assert!(tokens.into_iter().eq(0..32));
}

#[test]
fn piece_that_finds_no_room_waits_and_is_not_lost() {
    let _watchdog = Watchdog::start(Duration::from_secs(60));
    let stage = manual();
    let mut user = User::of(&striped(&stage, 30));
    let content = content(30);
    stage.limit(Some(0));
    user.submit(read(0, content.len(), 1));
    user.poll();
    assert_eq!((stage.taken(), user.channel.in_flight()), (0, 1));
    // Nothing is under way that could end the wait.
    user.channel.wait(&mut user.done).unwrap();
    stage.limit(Some(1));
    user.channel.wait(&mut user.done).unwrap();
    while user.done.is_empty() {
        assert_eq!(stage.taken(), 1);
        stage.answer(0, Ok(()));
        user.poll();
    }
    assert!(bytes(&user.ended()) == content);
}

/// Encrypts what it is given in place, so what comes back for want of room must be as it was.
#[test]
fn write_that_crypt_could_not_pass_down_comes_back_as_it_was_given() {
    let _watchdog = Watchdog::start(Duration::from_secs(60));
    for dispatch in [INLINE, AUTO] {
        let stage = manual();
        stage.limit(Some(0));
        let clear = devices::dispatched(Fresh::new(stage.gate_of(0)), &AES_512, dispatch);
        let mut user = User::of(&clear.gate);
        for len in [512, 256 * 1024] {
            user.submit(write(4096, len, false, 1));
            while user.done.is_empty() {
                user.poll();
            }
            let ended = user.ended();
            assert_eq!(ended.result, Err(Fault::Busy));
            let mut given = vec![0; len];
            fill(&mut given, 4096, 7);
            assert!(bytes(&ended) == given, "{dispatch:?}: {len} bytes were changed");
        }
    }
}

#[test]
fn encrypted_piece_that_found_no_room_is_encrypted_once() {
    let stage = manual();
    let clear = devices::crypt(Fresh::new(stage.gate_of(0)), &AES_512).gate;
    let segment = |lower: &Gate, offset, len| Segment { lower: lower.clone(), offset, len };
    let plain = stage.gate_of(1);
    let both = joined(vec![segment(&clear, 512, 1024), segment(&plain, 0, 1024)]).unwrap();
    let mut user = User::of(&both);
    let ciphertext = |stage: &Scripted| {
        let place = (0..stage.taken()).find(|at| stage.look(*at, |device, _| device == 0));
        stage.look(place.unwrap(), |_, request| request.data.as_ref().expect("a write has data").to_vec())
    };
    let mut found = Vec::new();
    for room in [None, Some(0)] {
        stage.limit(room);
        user.submit(write(0, 2048, false, 1));
        (0..3).for_each(|_| user.poll());
        stage.limit(None);
        user.poll();
        assert_eq!(stage.taken(), 2);
        found.push(ciphertext(&stage));
        (0..2).for_each(|_| stage.answer(0, Ok(())));
        user.poll();
        assert_eq!(user.ended().result, Ok(()));
    }
    assert_eq!(found[0], found[1]);
}

#[test]
fn flush_goes_once_to_each_device_and_is_good_if_all_are() {
    let flushed = |stage: &Scripted| {
        let on = (0..stage.taken()).map(|at| {
            stage.look(at, |device, request| {
                assert_eq!(request.op, Op::Flush);
                device
            })
        });
        on.collect::<Vec<_>>()
    };
    // Two keys over two ranges of one device.
    let stage = manual();
    let keys = devices::two_keys(Fresh::new(stage.gate_of(0)), 4096, INLINE);
    let mut user = User::of(&keys.gate);
    user.submit(Request::flush(1));
    assert_eq!(flushed(&stage), [0]);
    stage.answer(0, Ok(()));
    user.poll();
    assert_eq!(user.ended().result, Ok(()));

    for failing in [None, Some(0), Some(1)] {
        let stage = manual();
        let mut user = User::of(&striped(&stage, 9));
        user.submit(Request::flush(2));
        assert_eq!(flushed(&stage), [0, 1]);
        for device in 0..2 {
            assert!(user.done.is_empty());
            let result = if failing == Some(device) { Err(EIO) } else { Ok(()) };
            stage.answer(0, result);
            user.poll();
        }
        let expected = if failing.is_some() { Err(EIO) } else { Ok(()) };
        let ended = user.ended();
        assert_eq!((ended.result, ended.request.token), (expected, 2));
        user.submit(Request::flush(3));
        assert_eq!(stage.taken() == 0, failing.is_some(), "the latch is not set");
    }
}
