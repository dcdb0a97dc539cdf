//! A channel in a loop of somebody else's, which waits for its descriptor and for nothing else.

use std::time::Duration;

use cryptline_engine::base::RamDevice;
use cryptline_engine::dispatch::Dispatch;
use cryptline_engine::layer::Exclusion;
use cryptline_engine::{BackendChoice, Buffer, Channel, Completion, Fault, Gate, Geometry, Request, Submitted};
use cryptline_testkit::suite::devices::{self, AES_512, AES_4096, AUTO, CBC_4096, INLINE, QUEUE, QUICK};
use cryptline_testkit::suite::{Fresh, Watchdog, fill, noise};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use rustix::io::retry_on_intr;

/// Times that all requests in flight come to their end, for each device and engine.
const ROUNDS: u64 = 200;
const DEPTH: u32 = 16;
const LARGE: u64 = 60 * 1024;

/// A loop that knows nothing but descriptors.
struct Foreign {
    epoll: OwnedFd,
    channel: Channel,
    done: Vec<Completion>,
}

impl Foreign {
    fn new(gate: &Gate, backend: BackendChoice) -> Self {
        let mut channel = Channel::open(gate, backend, DEPTH).unwrap();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let data = epoll::EventData::new_u64(1);
        let flags = epoll::EventFlags::IN;
        epoll::add(&epoll, channel.descriptor().unwrap(), data, flags).unwrap();
        Self { epoll, channel, done: Vec::new() }
    }

    fn submit(&mut self, request: Request) {
        if let Submitted::Done(completion) = self.channel.submit(request) {
            self.done.push(completion);
        }
    }

    /// Waits without an end: a completion that is not announced is a hang.
    fn next(&mut self) -> Completion {
        while self.done.is_empty() {
            let wait = || epoll::wait(&self.epoll, spare_capacity(&mut Vec::with_capacity(1)), None);
            assert_eq!(retry_on_intr(wait), Ok(1));
            self.channel.poll(&mut self.done).unwrap();
        }
        self.done.swap_remove(0)
    }
}

/// A small request beside one of the other thread, in the same cipher sector where that is larger, or a
/// large one in the second half of the disk.
fn request(who: u64, round: u64, token: u64, geometry: &Geometry) -> Request {
    let number = noise(round << 16 | token << 8 | who);
    let place = (token - 1) * 2 + who;
    let (start, len) = if number.is_multiple_of(8) { (1 << 20, LARGE) } else { (0, u64::from(geometry.logical_block)) };
    let mut buffer = Buffer::alloc(usize::try_from(len).unwrap()).unwrap();
    let offset = start + place * len;
    fill(&mut buffer, offset, round);
    match number / 8 % 3 {
        0 => Request::read(offset, buffer, token),
        1 => Request::write(offset, buffer, number.is_multiple_of(5), token),
        _ => Request::flush(token),
    }
}

fn run_rounds(gate: &Gate, backend: BackendChoice, who: u64) {
    let mut foreign = Foreign::new(gate, backend);
    for round in 0..ROUNDS {
        let count = noise(round) % u64::from(DEPTH) + 1;
        for token in 1..=count {
            foreign.submit(request(who, round, token, gate.geometry()));
        }
        let mut tokens: Vec<u64> = (0..count)
            .map(|_| {
                let Completion { request, result } = foreign.next();
                assert_eq!(result, Ok(()), "{:?}", request.op);
                request.token
            })
            .collect();
        tokens.sort_unstable();
        assert!(tokens.into_iter().eq(1..=count));
    }
    assert_eq!(foreign.channel.in_flight(), 0);
}

/// Two threads over one device, each with a loop of its own.
fn never_hangs(make: impl Fn() -> Option<Fresh>) {
    let _watchdog = Watchdog::start(Duration::from_secs(300));
    for backend in [BackendChoice::Auto, BackendChoice::Syscalls] {
        let Some(fresh) = make() else { return };
        println!("over {backend:?}");
        let gate = &fresh.gate;
        std::thread::scope(|scope| {
            for who in 0..2 {
                scope.spawn(move || run_rounds(gate, backend, who));
            }
        });
    }
}

fn in_blocks(lower: Fresh, exclusion: Exclusion, dispatch: Dispatch) -> Fresh {
    devices::in_blocks(lower, &CBC_4096, 512, exclusion, dispatch)
}

macro_rules! never_hangs {
    ($($name:ident => $make:expr;)+) => { $(
        #[test]
        fn $name() {
            never_hangs($make);
        }
    )+ };
}

never_hangs! {
    loop_over_a_file_misses_nothing => devices::file_buffered;
    loop_over_a_file_by_direct_io_misses_nothing => devices::file_direct_4096;
    loop_over_a_medium_that_answers_at_once_misses_nothing => devices::ram;
    loop_over_timed_work_misses_nothing => || Some(devices::delayed(devices::ram()?, QUICK));
    loop_over_an_encrypted_file_misses_nothing =>
        || Some(devices::crypt(devices::file_buffered()?, &AES_512));
    loop_over_helpers_misses_nothing =>
        || Some(devices::dispatched(devices::file_direct_4096()?, &AES_4096, AUTO));
    loop_over_helpers_and_ram_misses_nothing =>
        || Some(devices::dispatched(devices::ram()?, &AES_4096, AUTO));
    loop_over_workers_misses_nothing =>
        || Some(devices::dispatched(devices::file_buffered()?, &AES_512, QUEUE));
    loop_over_smaller_blocks_misses_nothing =>
        || Some(in_blocks(devices::file_direct_4096()?, Exclusion::Shared, INLINE));
    loop_over_exclusive_rewrites_misses_nothing => || {
        let slow = devices::delayed(devices::ram()?, QUICK);
        Some(in_blocks(slow, Exclusion::Exclusive, AUTO))
    };
}

#[test]
fn channel_used_by_its_own_loop_reads_what_it_wrote_and_refuses_what_does_not_fit() {
    for backend in [BackendChoice::Auto, BackendChoice::Syscalls] {
        let fresh = devices::file_buffered().unwrap();
        let mut channel = Channel::open(&fresh.gate, backend, DEPTH).unwrap();
        let arena = channel.buffers(4096, 2).unwrap();
        let mut done = Vec::new();
        let mut run = |request| match channel.submit(request) {
            Submitted::Done(completion) => completion,
            Submitted::Pending => loop {
                channel.wait(&mut done).unwrap();
                if let Some(completion) = done.pop() {
                    break completion;
                }
            },
        };
        let mut data = arena.take().unwrap();
        fill(&mut data, 8192, 5);
        let expected = data.to_vec();
        assert_eq!(run(Request::write(8192, data, true, 1)).result, Ok(()));
        let read = run(Request::read(8192, arena.take().unwrap(), 2));
        let buffer = read.request.data.as_ref().expect("a read comes back as a read");
        assert!(read.result.is_ok() && buffer[..] == expected[..]);
        drop(read);
        assert_eq!((run(Request::read(1 << 40, arena.take().unwrap(), 3))).result, Err(Fault::OutOfRange));
    }
}

#[test]
fn devices_of_one_channel_are_told_apart_by_their_numbers() {
    let gates = [1, 2, 3].map(|size| Gate::new(RamDevice::new(size << 20).unwrap()));
    let backend = BackendChoice::Syscalls;
    let mut channel = Channel::open_all(&gates[0], &gates[1..], backend, DEPTH).unwrap();
    let mut run = |device, request| {
        let Submitted::Done(done) = channel.submit_to(device, request) else {
            panic!("memory answers at once");
        };
        assert_eq!((done.result, done.request.token), (Ok(()), 7));
        done.request.data.expect("what was submitted comes back")
    };
    for device in 0..3_u8 {
        let mut data = Buffer::alloc(512).unwrap();
        data.fill(device + 1);
        run(device.into(), Request::write(4096, data, false, 7));
    }
    for device in 0..3_u8 {
        let data = run(device.into(), Request::read(4096, Buffer::alloc(512).unwrap(), 7));
        assert_eq!(*data, [device + 1; 512]);
    }
}
