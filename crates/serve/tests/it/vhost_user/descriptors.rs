//! Descriptors that front-ends hand over: interrupts that nobody takes, memory that is replaced, sockets that were
//! there before.

use crate::common;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::*;
use crate::common::vhost::AVAILABLE;
use cryptline_testkit::scripted::{Manner, Op, Scripted};

#[test]
fn descriptor_that_is_no_eventfd_is_refused() {
    let served = ram();
    let mut driver = served.driver();
    let (pipe, _writer) = rustix::pipe::pipe().expect("a pipe");
    for message in [12, 13, 14] {
        for file in [pipe.as_fd(), driver.machine.file.as_fd()] {
            let told = driver.front.tell_with(message, &0u64.to_ne_bytes(), &[file]);
            assert_eq!(told, Some(false), "{message}");
        }
    }
    works(&mut driver);
}

/// A counter without room for an interrupt, which blocks whoever writes to it.
fn stuff(call: &OwnedFd) {
    // The interrupt of a request before may be in it, or on its way.
    while rustix::io::write(call, &(u64::MAX - 1).to_ne_bytes()).is_err() {
        let _ = rustix::io::read(call, &mut [0; 8]);
    }
    let flags = rustix::fs::fcntl_getfl(call).expect("flags");
    let flags = flags - rustix::fs::OFlags::NONBLOCK;
    rustix::fs::fcntl_setfl(call, flags).expect("set");
}

/// A request that is over, of which the driver wants to hear.
fn read_with_interrupt(driver: &mut Driver) {
    let machine = &driver.machine;
    let event = AVAILABLE + 4 + 2 * u64::from(common::vhost::SIZE);
    machine.store(event, machine.load(USED + 2));
    driver.put(&read(0, 512));
    driver.kick();
    let (machine, available) = (&driver.machine, driver.queue.available);
    wait_until("it is done", || machine.load(USED + 2) == available);
}

#[test]
fn machine_that_takes_no_interrupts_leaves_its_disk_to_the_next() {
    for backend in BACKENDS {
        let served = Served::over(stack::ram(SIZE), backend);
        let mut driver = served.driver();
        works(&mut driver);
        let error = event();
        driver.front.queue_file(14, 0, &error);
        stuff(&driver.queue.call);
        stuff(&error);
        for _ in 0..5 {
            read_with_interrupt(&mut driver);
        }
        // The queue cannot end, since it owes an interrupt.
        driver.front.send(11, 0, &[0; 8], &[]);
        drop(driver);
        works(&mut served.driver());
    }
}

#[test]
fn server_stops_though_a_machine_takes_no_interrupts() {
    for backend in BACKENDS {
        let served = Served::over(stack::ram(SIZE), backend);
        let mut driver = served.driver();
        works(&mut driver);
        stuff(&driver.queue.call);
        read_with_interrupt(&mut driver);
        driver.front.send(11, 0, &[0; 8], &[]);
    }
}

#[test]
fn ring_outlives_the_replacement_of_the_memory_that_it_lies_in() {
    let served = ram();
    let mut driver = served.driver();
    works(&mut driver);
    let half = common::vhost::MEMORY / 2;
    driver.front.tell(38, &region(GUEST, half));
    works(&mut driver);
    let file = driver.machine.file.as_fd();
    assert_eq!(driver.front.tell_with(37, &region(GUEST, half / 2), &[file]), Some(true));
    works(&mut driver);
}

/// The second region of the machine's memory.
fn second_region() -> Vec<u8> {
    [0, GUEST + HALF, HALF, USER + HALF, HALF].map(u64::to_ne_bytes).concat()
}

const HALF: u64 = common::vhost::MEMORY / 2;

#[test]
fn request_in_memory_that_is_being_replaced_waits_for_it() {
    for features in [0, common::vhost::RING_PACKED] {
        let served = ram();
        let mut driver = Driver::start_with(served.connect(), FLUSH | EVENT_IDX | features);
        works(&mut driver);
        let data = pattern(0, 8192, 7);
        driver.front.tell(38, &second_region());
        driver.machine.write(HALF + 4096, &data);
        let placed = driver.put_at(&write(64, &data), HALF + 4096);
        driver.kick();
        // Whoever has read this has looked at the ring before it reads what comes next.
        driver.front.queue(18, 0, 1);
        let file = driver.machine.file.as_fd();
        assert_eq!(driver.front.tell_with(37, &second_region(), &[file]), Some(true));
        assert_eq!((driver.take().0, driver.status(placed.head)), (placed.head, OK));
        assert!(driver.run(&read(64, 8192)).2 == data);
        // A queue that stops leaves it to the next one.
        driver.front.tell(38, &second_region());
        let placed = driver.put_at(&read(64, 8192), HALF + 8192 * 4);
        driver.kick();
        driver.front.queue(18, 0, 1);
        let base = driver.front.base(0).expect("a base");
        let file = driver.machine.file.as_fd();
        assert_eq!(driver.front.tell_with(37, &second_region(), &[file]), Some(true));
        driver.start_queue(base);
        assert_eq!((driver.take().0, driver.status(placed.head)), (placed.head, OK));
    }
}

#[test]
fn request_under_way_ends_in_the_memory_that_it_was_taken_from() {
    let stage = Scripted::new(Manner { block: 512, at_once: false, start: 0 }, SIZE);
    let served = Served::new(Fresh::new(stage.gate()));
    let mut driver = served.driver();
    let data = pattern(0, 8192, 9);
    assert_eq!(driver.run(&write(64, &data)).0, OK);
    stage.hold(Op::Read, None);
    let placed = driver.put_at(&read(64, 8192), HALF + 4096);
    driver.kick();
    wait_until("it is under way", || stage.taken() == 1);
    driver.front.tell(38, &second_region());
    stage.release();
    assert_eq!((driver.take().0, driver.status(placed.head)), (placed.head, OK));
    let mut found = vec![0; data.len()];
    driver.machine.read(HALF + 4096, &mut found);
    assert!(found == data);
}

#[test]
fn requests_under_way_are_noted_in_one_mapping_for_all_queues() {
    let served = ram();
    let driver = served.driver();
    let name = "requests-under-way";
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let buffer = rustix::fs::memfd_create(name, flags).expect("memory");
    rustix::fs::ftruncate(&buffer, 1 << 20).expect("memory");
    let place = [[1u64 << 20, 0].map(u64::to_ne_bytes).concat(), [2u16, 256].map(u16::to_ne_bytes).concat()].concat();
    assert_eq!(driver.front.tell_with(32, &place, &[buffer.as_fd()]), Some(true));
    restart(&driver);
    // The second queue has its rings elsewhere in the same memory.
    let front = &driver.front;
    front.queue(8, 1, 16);
    front.queue_addresses(1, [0x1_0000, 0x1_2000, 0x1_4000].map(|at| USER + at));
    front.queue_file(12, 1, &event());
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    // And another for what its driver has set.
    assert_eq!(maps.lines().filter(|line| line.contains(name)).count(), 2);
}

#[test]
fn inherited_connection_is_closed_when_it_is_served_no_further() {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let (_folder, listener) = listening();
    let over = stack::ram(SIZE);
    // The other disk keeps the server running.
    let disks = [FrontEnds::Connected(theirs), listener].map(|front| disk("disk", &over.gate, front));
    let _serving = Serving::start(disks.into(), options(BackendChoice::Auto, Duration::from_secs(1)));
    let mut front = FrontEnd::new(ours);
    front.stream.write_all(&[0xff; 12]).expect("sent");
    assert_eq!(front.stream.read(&mut [0; 1]).expect("no silence"), 0, "closed");
}

#[test]
fn server_that_can_not_serve_one_of_its_disks_stops_and_says_so() {
    let (folder, listener) = listening();
    // Nothing can be done with a mere path.
    let path = rustix::fs::open(folder.path(), rustix::fs::OFlags::PATH, rustix::fs::Mode::empty());
    let useless = FrontEnds::Listener(path.expect("a path").into());
    let over = stack::ram(SIZE);
    let disks = [listener, useless].map(|front| disk("disk", &over.gate, front));
    let server =
        VhostServer::new(disks.into(), options(BackendChoice::Auto, Duration::from_secs(1))).expect("a server");
    let _watchdog = Watchdog::start(Duration::from_secs(60));
    let stop = StopHandle::new().expect("an eventfd");
    assert!(server.run(&stop).is_err());
}

/// Memory that is unplugged never comes again, and a driver that uses it nevertheless hurts itself only.
#[test]
fn request_in_memory_that_never_comes_again_fails_alone() {
    for features in [0, common::vhost::RING_PACKED] {
        let served = ram();
        let mut driver = Driver::start_with(served.connect(), FLUSH | EVENT_IDX | features);
        works(&mut driver);
        driver.front.tell(38, &second_region());
        let placed = driver.put_at(&write(64, &pattern(0, 8192, 7)), HALF + 4096);
        driver.kick();
        assert_eq!((driver.take().0, driver.status(placed.head)), (placed.head, IO_ERROR));
        works(&mut driver);
    }
}
