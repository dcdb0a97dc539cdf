//! The vhost-user server, byte by byte: what it tells, what it refuses, and what it survives.

mod client;
mod descriptors;
mod dirty_log;
mod growth;
mod left_over;
mod limits;
mod packed;
mod status;
mod write_cache;

use crate::common;
use std::io::Write as _;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use cryptline_engine::BackendChoice;
use cryptline_serve::StopHandle;
use cryptline_serve::vhost_user::{FrontEnds, VhostDisk, VhostServer};
use cryptline_testkit::suite::{Fresh, Watchdog};

use crate::common::serving::{Serving, disk, options};
use crate::common::vhost::{
    Asked, DESCRIPTORS, Driver, EVENT_IDX, FLUSH, FrontEnd, GUEST, Machine, Piece, USED, USER, WRITE, event,
};
use crate::common::{BACKENDS, pattern, stack, wait_until};

const SIZE: u64 = 4 << 20;
const OK: u8 = 0;
const IO_ERROR: u8 = 1;
const UNSUPPORTED: u8 = 2;

/// A server, whose last flush must succeed.
struct Served {
    socket: PathBuf,
    serving: Serving,
    _folder: tempfile::TempDir,
    _keep: Vec<Box<dyn std::any::Any>>,
    _watchdog: Watchdog,
}

impl Served {
    fn new(over: Fresh) -> Self {
        Self::over(over, BackendChoice::Auto)
    }

    fn over(over: Fresh, backend: BackendChoice) -> Self {
        Self::with_queues(over, backend, None)
    }

    fn with_queues(over: Fresh, backend: BackendChoice, queue_size: Option<u16>) -> Self {
        let (folder, front) = listening();
        let disk = VhostDisk { block: 4096, queues: 2, queue_size, ..disk("the serial number", &over.gate, front) };
        Self {
            socket: folder.path().join("socket"),
            serving: Serving::start(vec![disk], options(backend, Duration::from_millis(500))),
            _folder: folder,
            _keep: over.keep,
            _watchdog: Watchdog::start(Duration::from_secs(120)),
        }
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.socket).expect("it listens")
    }

    fn driver(&self) -> Driver {
        Driver::start(self.connect())
    }

    /// Waits until a line says so.
    fn says(&self, what: &str) {
        wait_until(what, || self.serving.log().iter().any(|it| it.contains(what)));
    }
}

/// A socket on which front-ends are waited for.
fn listening() -> (tempfile::TempDir, FrontEnds) {
    let folder = tempfile::tempdir().expect("a folder");
    let listener = UnixListener::bind(folder.path().join("socket")).expect("bound");
    (folder, FrontEnds::Listener(listener))
}

/// The place of a buffer for the requests under way of one queue.
fn place(front: &FrontEnd) -> Vec<u8> {
    let asked = [&[0; 16], [1, common::vhost::SIZE].map(u16::to_ne_bytes).as_flattened(), &[0; 4]].concat();
    front.ask(31, &asked).expect("a place")
}

/// Hands the buffer over; whether it was taken.
fn hand_over(front: &FrontEnd, place: &[u8], buffer: &Machine) -> bool {
    front.tell_with(32, place, &[buffer.file.as_fd()]).expect("an answer")
}

/// A region of the machine's memory, as front-ends add and remove it.
fn region(guest: u64, len: u64) -> Vec<u8> {
    [0, guest, len, USER, 0].map(u64::to_ne_bytes).concat()
}

/// Stops the queue and starts it again.
fn restart(driver: &Driver) {
    driver.start_queue(driver.front.base(0).expect("a base"));
}

fn ram() -> Served {
    Served::new(stack::ram(SIZE))
}

fn read(sector: u64, len: u64) -> Asked<'static> {
    Asked { kind: 0, sector, to_device: &[], to_driver: len }
}

fn write(sector: u64, data: &[u8]) -> Asked<'_> {
    Asked { kind: 1, sector, to_device: data, to_driver: 0 }
}

/// A request that has its range in its data, or none.
fn kind(kind: u32, to_device: &[u8]) -> Asked<'_> {
    Asked { kind, sector: 0, to_device, to_driver: 0 }
}

/// Writes and reads: the server is well.
fn works(driver: &mut Driver) {
    let data = pattern(0, 8192, 5);
    assert_eq!(driver.run(&write(8, &data)).0, OK);
    let (status, len, found) = driver.run(&read(8, 8192));
    assert_eq!((status, len), (OK, 8193));
    assert!(found == data);
}

#[test]
fn configuration_has_as_many_bytes_as_are_asked_for() {
    let served = ram();
    let driver = served.driver();
    for len in [8, 59, 60, 96, 256] {
        let reply = driver.front.config(0, len);
        assert_eq!(reply.len(), 12 + len as usize);
        assert_eq!(reply[12..20], (SIZE / 512).to_le_bytes());
    }
    let space = driver.front.config(0, 60).split_off(12);
    let word = |at: usize| u32::from_le_bytes(space[at..at + 4].try_into().expect("four"));
    assert_eq!((word(8), word(12)), (4 << 20, 126), "size_max, seg_max");
    assert_eq!(word(20), 4096, "blk_size");
    assert_eq!((space[34], space[35]), (2, 0), "queues");
    for limit in [36, 40, 44, 48, 52] {
        assert_ne!(word(limit), 0, "a zero at {limit} crashes guests");
    }
    let part = driver.front.config(34, 1);
    assert_eq!(part[12..], [2]);
    assert_eq!(driver.front.config(250, 7).len(), 0, "not all of it is there");
    // As front-ends count that follow an older draft; `qemu-storage-daemon` answers them, too.
    let old = driver.front.config(0x100, 60);
    assert_eq!((&old[..4], &old[12..]), (&0x100u32.to_ne_bytes()[..], &space[..]));
    assert_eq!(driver.front.config(0x100 + 34, 1)[12..], [2]);
    assert_eq!(driver.front.config(0x200, 1).len(), 0);
    served.says("at 0x200");
}

#[test]
fn requests_end_as_the_standard_says() {
    let served = ram();
    let mut driver = served.driver();
    let (status, len, name) = driver.run(&Asked { kind: 8, sector: 0, to_device: &[], to_driver: 20 });
    assert_eq!((status, len), (OK, 21));
    assert_eq!(&name, b"the serial number\0\0\0");
    assert_eq!(driver.run(&kind(4, &[])).0, OK, "flush");
    assert_eq!(driver.run(&kind(99, &[])).0, UNSUPPORTED);
    let change = |sector: u64, count: u32, flags: u32| {
        let mut bytes = sector.to_le_bytes().to_vec();
        bytes.extend(count.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes
    };
    let end = SIZE / 512;
    for (number, payload, expected) in [
        (11, change(8, 8, 0), OK),
        (13, change(8, 8, 0), OK),
        (13, change(8, 8, 1), OK),
        (11, change(8, 8, 1), UNSUPPORTED),
        (13, change(8, 8, 2), UNSUPPORTED),
        (11, change(end - 1, 2, 0), IO_ERROR),
        (13, change(u64::MAX, 2, 0), IO_ERROR),
        (13, change(0, u32::MAX, 0), IO_ERROR),
        (11, [change(8, 8, 0), change(8, 8, 0)].concat(), UNSUPPORTED),
    ] {
        assert_eq!(driver.run(&kind(number, &payload)).0, expected, "{number} {payload:?}");
    }
    for (sector, len) in [(end, 512), (end - 1, 1024), (u64::MAX, 512), (0, 511), (0, 0)] {
        assert_eq!(driver.run(&read(sector, len)).0, IO_ERROR, "{sector} {len}");
    }
    works(&mut driver);
}

#[test]
fn write_is_durable_where_nobody_flushes() {
    for features in [FLUSH, EVENT_IDX] {
        let disk = stack::VolatileDisk::new(1 << 20);
        let served = Served::new(disk.stack());
        let mut driver = Driver::start_with(served.connect(), features);
        let data = pattern(0, 4096, 1);
        let before = disk.stable();
        assert_eq!(driver.run(&write(0, &data)).0, OK);
        if features & FLUSH != 0 {
            assert!(disk.stable() == before, "a flush would come");
            driver.set_flushes(false);
            assert_eq!(driver.run(&write(0, &data)).0, OK);
        }
        assert!(disk.stable()[..4096] == data);
    }
}

#[test]
fn queue_is_stopped_and_goes_on_where_it_was() {
    for backend in BACKENDS {
        let served = Served::over(stack::ram(SIZE), backend);
        let mut driver = served.driver();
        works(&mut driver);
        for _ in 0..40 {
            let base = driver.front.base(0).expect("a base");
            assert_eq!(base, u32::from(driver.queue.available));
            driver.start_queue(base);
            works(&mut driver);
        }
        // Requests that are there before the kick descriptor, and before the queue is enabled.
        let base = driver.front.base(0).expect("a base");
        driver.put(&read(0, 512));
        driver.kick();
        assert!(driver.take_within(Duration::from_millis(20)).is_none());
        driver.start_queue(base);
        driver.take();
        driver.front.queue(18, 0, 0);
        driver.put(&read(0, 512));
        driver.kick_anyway();
        driver.kick();
        assert!(driver.take_within(Duration::from_millis(20)).is_none());
        driver.front.queue(18, 0, 1);
        driver.take();
    }
}

#[test]
fn interrupts_go_where_the_front_end_wants_them_next() {
    let served = ram();
    let mut driver = served.driver();
    for _ in 0..600 {
        driver.queue.call = event();
        driver.front.queue_file(13, 0, &driver.queue.call);
        works(&mut driver);
    }
}

#[test]
fn queue_without_a_kick_descriptor_is_looked_at() {
    let served = ram();
    let mut driver = served.driver();
    let base = driver.front.base(0).expect("a base");
    driver.front.queue(10, 0, base);
    driver.front.tell(12, &(1u64 << 8).to_ne_bytes());
    works(&mut driver);
}

#[test]
fn driver_without_event_indices_is_served() {
    let served = ram();
    let mut driver = Driver::start_with(served.connect(), FLUSH);
    for _ in 0..50 {
        works(&mut driver);
    }
}

#[test]
fn hostile_ring_ends_and_the_next_front_end_is_served() {
    type Breaks = fn(&mut Driver);
    let broken: [(Breaks, &str); 4] = [
        (|driver| driver.queue.available += 400, "more than the ring has places"),
        (|driver| driver.offer(9999), "not in its table"),
        (
            |driver| {
                let piece = Piece { address: GUEST, len: 16, flags: WRITE, next: 0 };
                driver.machine.write(DESCRIPTORS, &piece.encode());
                driver.offer(0);
            },
            "without a whole header",
        ),
        (
            |driver| {
                rustix::fs::ftruncate(&driver.machine.file, 0).expect("cut");
                driver.kick_anyway();
            },
            "cut short",
        ),
    ];
    for (breaks, why) in broken {
        let served = ram();
        let mut driver = served.driver();
        let error = event();
        driver.front.queue_file(14, 0, &error);
        works(&mut driver);
        breaks(&mut driver);
        if why != "cut short" {
            driver.kick();
        }
        served.says(why);
        wait_until("the front-end is told", || rustix::io::read(&error, &mut [0; 8]) == Ok(8));
        assert!(driver.front.base(0).is_some(), "messages are answered");
        drop(driver);
        works(&mut served.driver());
    }
}

#[test]
fn data_outside_the_memory_fails_its_request_alone() {
    let served = ram();
    let mut driver = served.driver();
    let before = pattern(0, 4096, 6);
    assert_eq!(driver.run(&write(0, &before)).0, OK);
    // The last bytes of the segment are behind the end of the memory.
    let outside = common::vhost::MEMORY - 100;
    driver.put_at(&read(0, 4096), outside);
    driver.kick();
    let (head, len) = driver.take();
    assert_eq!((driver.status(head), len), (IO_ERROR, 1));
    driver.put_outside(1, 4096);
    driver.kick();
    let (head, _) = driver.take();
    assert_eq!(driver.status(head), IO_ERROR);
    assert!(driver.run(&read(0, 4096)).2 == before, "nothing was written");
    works(&mut driver);
}

#[test]
fn message_that_makes_no_sense_ends_the_connection_and_no_more() {
    let message = |request: u32, flags: u32, size: u32| {
        let words = [request, flags, size].map(u32::to_ne_bytes);
        words.concat()
    };
    let nonsense: [(Vec<u8>, &str); 8] = [
        (message(1, 2, 0), "not a vhost-user header"),
        (message(1, 5, 0), "not a vhost-user header"),
        (message(1, 1, u32::MAX), "too long"),
        (message(77, 1, 0), "unknown"),
        ([message(8, 1, 8), vec![9, 0, 0, 0, 1, 0, 0, 0]].concat(), "which does not exist"),
        (message(2, 1, 0), "length"),
        ([message(5, 1, 40), vec![1; 40]].concat(), "length"),
        ([message(12, 1, 8), vec![0; 8]].concat(), "descriptors"),
    ];
    let served = ram();
    for (bytes, why) in nonsense {
        let mut front = FrontEnd::new(served.connect());
        front.stream.write_all(&bytes).expect("sent");
        assert_eq!(front.reply(), None, "{why}");
        served.says(why);
    }
    // Half a message, and away.
    served.connect().write_all(&[1, 0]).expect("sent");
    works(&mut served.driver());
}

#[test]
fn what_is_refused_is_told_to_who_asks_for_it() {
    let served = ram();
    let front = FrontEnd::new(served.connect());
    front.agree(1 << 30 | 1 << 32);
    let tell = |request, payload: &[u8]| front.tell_with(request, payload, &[]);
    let pair = |index: u32, value: u32| [index.to_ne_bytes(), value.to_ne_bytes()].concat();
    assert_eq!(tell(2, &(1u64 << 35).to_ne_bytes()), Some(false), "not offered");
    assert_eq!(tell(8, &pair(0, 100)), Some(false), "no power of two");
    assert_eq!(tell(8, &pair(0, 65536)), Some(false), "too large");
    assert_eq!(tell(10, &pair(0, 65536)), Some(false), "no index");
    // A start without addresses, and with addresses outside the memory.
    let kick = event();
    let start = || front.tell_with(12, &0u64.to_ne_bytes(), &[kick.as_fd()]);
    assert_eq!(start(), Some(false));
    front.queue(8, 0, 128);
    front.queue_addresses(0, [USER, USER, USER]);
    assert_eq!(start(), Some(false), "no memory");
    served.says("queue 0 is started without shared memory (QEMU shares its memory-backend with share=on)");
    let machine = Machine::new();
    let add = |payload: &[u8]| front.tell_with(37, payload, &[machine.file.as_fd()]);
    assert_eq!(add(&region(GUEST, 1 << 20)), Some(true));
    front.queue_addresses(0, [USER + (1 << 20); 3]);
    assert_eq!(start(), Some(false), "other memory");
    served.says("an address outside the shared memory (QEMU shares all of a memory-backend with share=on)");
    assert_eq!(add(&region(GUEST, 1 << 20)), Some(false), "twice");
    assert_eq!(add(&region(u64::MAX - 5, 100)), Some(false), "no addresses");
    assert_eq!(tell(38, &region(GUEST, 1 << 21)), Some(false), "another");
    assert_eq!(tell(38, &region(GUEST, 1 << 20)), Some(true));
    drop(front);
    works(&mut served.driver());
}

#[test]
fn queue_of_a_front_end_that_lacks_what_is_needed_is_refused_by_name() {
    let served = ram();
    let old = 1 << 30;
    for (features, protocol, why) in [(old, u64::MAX, "VERSION_1"), (old | 1 << 32, !(1 << 9), "CONFIG")] {
        let front = FrontEnd::new(served.connect());
        let protocol = protocol & front.ask_number(15);
        front.send(16, 0, &protocol.to_ne_bytes(), &[]);
        front.tell(2, &u64::to_ne_bytes(features));
        front.share(&Machine::new());
        front.queue(8, 0, 128);
        front.queue_addresses(0, [USER; 3]);
        let kick = event();
        assert_eq!(front.tell_with(12, &0u64.to_ne_bytes(), &[kick.as_fd()]), Some(false), "{why}");
        served.says(why);
    }
    works(&mut served.driver());
}

/// A front-end keeps the buffer; its server goes and another comes, while requests lie in the ring.
#[test]
fn requests_of_a_server_that_is_gone_are_done_by_the_next() {
    let over = stack::ram(SIZE);
    let gate = over.gate.clone();
    let first = Served::new(over);
    let mut driver = first.driver();
    let place = place(&driver.front);
    assert_eq!(place.len(), 24);
    assert!(u64::from_ne_bytes(place[..8].try_into().expect("eight")) >= 16 + 16 * 256);
    // A buffer of the front-end's own making does as well.
    let buffer = Machine::new();
    assert!(hand_over(&driver.front, &place, &buffer));
    restart(&driver);
    works(&mut driver);
    drop(first);
    let (done, data) = (driver.queue.used, pattern(0, 4096, 9));
    driver.put(&write(0, &data));
    driver.put(&write(16, &data));
    // As if the first server had taken the second of them only, and been killed.
    driver.machine.store(common::vhost::AVAILABLE + 2, driver.queue.available);
    let second = Served::new(Fresh::new(gate));
    driver.go_to(second.connect(), 1 << 30 | 1 << 32 | 1 << 28 | FLUSH | EVENT_IDX);
    assert!(hand_over(&driver.front, &place, &buffer));
    // What the front-end believes is of no account.
    driver.start_queue(done);
    for _ in 0..2 {
        let (head, _) = driver.take();
        assert_eq!(driver.status(head), OK);
    }
    assert_eq!(driver.machine.load(USED + 2), driver.queue.used);
    works(&mut driver);
    drop(driver);
}

#[test]
fn server_stops_with_a_front_end_that_does_nothing() {
    let served = ram();
    let driver = served.driver();
    // It waits until the first one leaves.
    let idle = served.connect();
    served.serving.stop.stop();
    drop(served);
    assert_eq!(driver.front.reply(), None);
    drop(idle);
}
