//! Jobs that move their bytes, over a medium that answers at once and can lose some.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cryptline_cipher::{CipherSpec, SectorCipher, SectorOptions};
use cryptline_sys::{BackendChoice, Buffer, Ring, SharedMemory};
use rustix::io::Errno;

use crate::dispatch::{Dispatch, Helpers, Mode};
use crate::layer::{CryptDevice, CryptOptions};
use crate::queue::Immediate;
use crate::{
    Channel, Device, Extent, Fault, Gate, Geometry, OpenError, Operation, Queue, Request, Submitted,
};

const MIB: u64 = 1 << 20;
/// The byte whose requests fail.
const BAD: u64 = 3 * MIB - 1;
/// How long a helper takes where a test wants it to be in the middle of something.
const LONG: Duration = Duration::from_millis(20);
/// A helper comes sooner or later, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the medium has noted.
struct Notes {
    memory: SharedMemory,
    /// Requests that helpers have brought.
    by_helpers: AtomicUsize,
    /// Only the thread that submits may bring any.
    is_bound: bool,
    /// Helpers take their time.
    is_slow: AtomicBool,
    /// Nobody is to come any more.
    is_over: AtomicBool,
    came_late: AtomicBool,
}

struct Noting(Arc<Notes>);

struct NotingQueue(Arc<Notes>);

impl Device for Noting {
    fn geometry(&self) -> Geometry {
        Geometry {
            size: self.0.memory.len() as u64,
            logical_block: 512,
            preferred_block: 4096,
            read_only: false,
            rotational: false,
            discard: false,
            write_zeroes: false,
            answers_at_once: true,
            zones: None,
        }
    }

    fn open_queue(&self, _ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        Ok(Box::new(NotingQueue(Arc::clone(&self.0))))
    }

    fn extent(&self, _offset: u64, _len: u64) -> Result<Extent, Fault> {
        Err(Fault::NotSupported)
    }
}

impl Immediate for NotingQueue {
    fn answer(&mut self, request: &mut Request) -> Result<(), Fault> {
        let notes = &*self.0;
        let thread = std::thread::current();
        if thread.name().is_some_and(|name| name.starts_with("helper")) {
            notes.by_helpers.fetch_add(1, Ordering::SeqCst);
            let start = Instant::now();
            while notes.is_slow.load(Ordering::SeqCst) && start.elapsed() < LONG {
                std::thread::yield_now();
            }
        }
        if notes.is_over.load(Ordering::SeqCst) {
            notes.came_late.store(true, Ordering::SeqCst);
        }
        if (request.offset..request.offset + request.len()).contains(&BAD) {
            return Err(Fault::Io(Errno::IO));
        }
        let offset = usize::try_from(request.offset).unwrap();
        match &mut request.operation {
            Operation::Read(buffer) => notes.memory.read(offset, buffer),
            Operation::Write { data, .. } => notes.memory.write(offset, data),
            _ => {}
        }
        Ok(())
    }

    fn anywhere(&self) -> bool {
        !self.0.is_bound
    }
}

/// A volume with a helper that always comes, over a medium that notes what it gets.
fn volume() -> (Gate, Arc<Notes>) {
    volume_over(false)
}

fn volume_over(is_bound: bool) -> (Gate, Arc<Notes>) {
    let notes = Arc::new(Notes {
        memory: SharedMemory::new(4 << 20).unwrap(),
        by_helpers: AtomicUsize::new(0),
        is_bound,
        is_slow: AtomicBool::new(false),
        is_over: AtomicBool::new(false),
        came_late: AtomicBool::new(false),
    });
    let spec = CipherSpec::parse("aes-xts-plain64").unwrap();
    let key: Vec<u8> = (0..64).collect();
    let sectors = SectorOptions {
        sector_size: 4096,
        iv_offset: 0,
        iv_large_sectors: false,
    };
    let cipher = SectorCipher::new(&spec, &key, sectors).unwrap();
    let options = CryptOptions {
        dispatch: Dispatch::both(Mode::Auto),
        helpers: Some(Helpers::always(1).unwrap()),
        ..CryptOptions::default()
    };
    let medium = Gate::new(Noting(Arc::clone(&notes)));
    let device = CryptDevice::new(medium, cipher, options).unwrap();
    (Gate::new(device), notes)
}

fn open(gate: &Gate) -> Channel {
    Channel::open(gate, BackendChoice::Syscalls, 8).unwrap()
}

/// Submits a request and waits for its end.
fn run(channel: &mut Channel, request: Request) -> (Operation, Result<(), Fault>) {
    let mut done = Vec::new();
    if let Submitted::Done(completion) = channel.submit(request) {
        done.push(completion);
    }
    while done.is_empty() {
        channel.wait(&mut done).unwrap();
    }
    let completion = done.pop().unwrap();
    (completion.request.operation, completion.result)
}

/// A buffer of 1 MiB, no two sectors of which are alike.
fn data() -> Buffer {
    let mut buffer = Buffer::alloc(1 << 20).unwrap();
    for (at, byte) in buffer.iter_mut().enumerate() {
        *byte = u8::try_from((at / 4096 + at) % 251).unwrap();
    }
    buffer
}

#[test]
fn helper_moves_the_bytes_of_its_parts_itself_and_they_are_the_same() {
    let (gate, notes) = volume();
    let mut channel = open(&gate);
    let start = Instant::now();
    let (mut written, mut read) = (0, 0);
    while written == 0 || read == 0 {
        assert!(start.elapsed() < PATIENCE, "no helper has come");
        let before = notes.by_helpers.load(Ordering::SeqCst);
        let (_, result) = run(&mut channel, Request::write(0, data(), false, 1));
        assert_eq!(result, Ok(()));
        let between = notes.by_helpers.load(Ordering::SeqCst);
        let target = Buffer::alloc(1 << 20).unwrap();
        let (operation, result) = run(&mut channel, Request::read(0, target, 2));
        let Operation::Read(found) = operation else {
            panic!("a read comes back as a read")
        };
        assert!(result == Ok(()) && found[..] == data()[..]);
        written += between - before;
        read += notes.by_helpers.load(Ordering::SeqCst) - between;
    }
}

#[test]
fn medium_that_belongs_to_a_thread_is_called_by_no_helper() {
    let (gate, notes) = volume_over(true);
    let mut channel = open(&gate);
    for _ in 0..50 {
        let (_, result) = run(&mut channel, Request::write(0, data(), false, 1));
        assert_eq!(result, Ok(()));
        let target = Buffer::alloc(1 << 20).unwrap();
        let (operation, result) = run(&mut channel, Request::read(0, target, 2));
        let Operation::Read(found) = operation else {
            panic!("a read comes back as a read")
        };
        assert!(result == Ok(()) && found[..] == data()[..]);
    }
    assert_eq!(notes.by_helpers.load(Ordering::SeqCst), 0);
}

#[test]
fn lost_part_fails_its_request_and_every_later_flush_whoever_had_it() {
    for helper_is_slow in [false, true] {
        let (gate, notes) = volume();
        notes.is_slow.store(helper_is_slow, Ordering::SeqCst);
        let mut channel = open(&gate);
        let whole = Request::read(2 * MIB, Buffer::alloc(1 << 20).unwrap(), 1);
        assert_eq!(run(&mut channel, whole).1, Err(Fault::Io(Errno::IO)));
        assert_eq!(run(&mut channel, Request::flush(2)).1, Ok(()));
        let whole = Request::write(2 * MIB, data(), false, 3);
        let (write, result) = run(&mut channel, whole);
        assert_eq!(result, Err(Fault::Io(Errno::IO)));
        assert!(matches!(write, Operation::Write { data, .. } if data.len() == 1 << 20));
        assert_eq!(run(&mut channel, Request::flush(4)).1, Err(Fault::Latched));
    }
}

#[test]
fn queue_that_is_gone_moves_nothing_any_more() {
    let (gate, notes) = volume();
    notes.is_slow.store(true, Ordering::SeqCst);
    let mut channel = open(&gate);
    // The first large request is held back, to see whether others come.
    let held = channel.submit(Request::write(0, data(), false, 1));
    assert!(matches!(held, Submitted::Pending));
    let start = Instant::now();
    while notes.by_helpers.load(Ordering::SeqCst) == 0 {
        assert!(start.elapsed() < PATIENCE, "no helper has come");
        std::thread::yield_now();
    }
    drop(channel);
    notes.is_over.store(true, Ordering::SeqCst);
    // The helpers end with the last who has them.
    drop(gate);
    assert!(!notes.came_late.load(Ordering::SeqCst));
}
