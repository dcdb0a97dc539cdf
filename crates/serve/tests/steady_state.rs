//! The claim of the first page, for a whole connection: between a request on the socket and its
//! reply there is no heap allocation and no other thread.
//!
//! The program is its own test harness, so that it has three threads and no more: the client
//! (which only writes prepared bytes and reads into a fixed buffer), the server's listener (asleep
//! in `poll`), and the connection's.
//!
//! * **No allocation**: the whole process makes no call to the heap while requests are served.
//! * **No thread**: no other task appears (io_uring's workers are tasks of the process), and the
//!   listener uses no processor time.

#[path = "it/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use cryptline_engine::base::DirectMode;
use cryptline_engine::layer::{Exclusion, SubBlockDevice, SubBlockOptions};
use cryptline_engine::{BackendChoice, Gate};
use cryptline_nbd::reply::OFFSET_DATA_LEN;
use cryptline_nbd::wire::{SIMPLE_REPLY_LEN, cmd};
use cryptline_serve::fuse::{FuseSession, Mount, MountWanted, MountedOver, Nodes, processors};
use cryptline_serve::lane::Poll;
use cryptline_serve::vhost_user::{FrontEnds, VhostServerOptions};
use cryptline_testkit::alloc::{self, CountingAllocator};
use cryptline_testkit::fuse_uring::Enabled;
use cryptline_testkit::harness;
use cryptline_testkit::suite::{Fresh, devices};
use rustix::net::{RecvFlags, SendFlags};

use crate::common::raw::{Raw, Style};
use crate::common::serving::{Serving, disk, options};
use crate::common::vhost::{Asked, Driver, EVENT_IDX, FLUSH, RING_PACKED};
use crate::common::{BACKENDS, Setup, fuse, pattern, stack};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const BLOCK: u32 = 4096;
const SIZE: u64 = 4 << 20;
/// Batches of requests measured in each case.
const ROUNDS: usize = 150;

fn main() {
    let tests: [(&str, &dyn Fn()); 11] = [
        ("allocation_is_counted", &alloc::assert_counted),
        ("work_of_another_thread_is_noticed", &work_of_another_thread_is_noticed),
        ("requests_over_memory_use_no_heap_and_no_thread", &|| check(stack::crypt_over_ram)),
        ("requests_over_a_file_use_no_heap_and_no_thread", &|| {
            check(|size| devices::crypt(stack::file(size, DirectMode::Off), &stack::AES_4096))
        }),
        ("requests_over_a_direct_file_use_no_heap_and_no_thread", &|| check(stack::crypt_over_file)),
        ("lanes_that_look_out_use_no_heap_and_no_thread", &|| {
            let limit = Duration::from_micros(100);
            for poll in [Poll::Always(limit), Poll::Shared { limit, lanes: 1 }] {
                check_looking(stack::crypt_over_ram, poll);
            }
        }),
        ("calls_over_memory_use_no_heap_and_no_thread", &|| check_fuse(|size| in_bytes(stack::crypt_over_ram(size)))),
        ("calls_over_a_direct_file_use_no_heap_and_no_thread", &|| {
            check_fuse(|size| in_bytes(stack::crypt_over_file(size)))
        }),
        ("calls_through_io_uring_use_no_heap_and_no_thread", &check_fuse_through_io_uring),
        ("guests_requests_over_memory_use_no_heap_and_no_thread", &|| check_guests(stack::crypt_over_ram)),
        ("guests_requests_over_a_direct_file_use_no_heap_and_no_thread", &|| check_guests(stack::crypt_over_file)),
    ];
    harness::run(&tests);
}

/// As a file is served.
fn in_bytes(over: Fresh) -> Fresh {
    let options =
        SubBlockOptions { logical_block: 1, sector: over.gate.geometry().logical_block, exclusion: Exclusion::Shared };
    let device = SubBlockDevice::new(over.gate, options).expect("bytes");
    Fresh { gate: Gate::new(device), keep: over.keep }
}

fn check(make: fn(u64) -> Fresh) {
    for backend in BACKENDS {
        for style in [Style::Structured, Style::Simple] {
            check_connection(make(SIZE), backend, style, Poll::default());
        }
    }
}

/// The same for connections that look out for requests before they wait, and for virtqueues.
fn check_looking(make: fn(u64) -> Fresh, poll: Poll) {
    check_connection(make(SIZE), BackendChoice::Auto, Style::Simple, poll);
    check_ring(make(SIZE), BackendChoice::Auto, 0, poll);
}

/// Rounds of which one has to be undisturbed. io_uring gives a request to a worker where a disk that others use too has no
/// place for it just then, and a thread that has ended what it did before may get its processor late. What requests need
/// shows in each round.
const TRIES: u32 = 8;

fn check_connection(over: Fresh, backend: BackendChoice, style: Style, poll: Poll) {
    let setup = Setup::new(over).backend(backend);
    let served = setup.with(|options| options.poll = poll).start();
    let mut client = Raw::connect_as(&served, style);
    client.write(0, &pattern(0, 2 << 20, 1)).expect("written");
    for (length, depth) in [(BLOCK, 1), (BLOCK, 32), (65536, 16)] {
        for command in [cmd::READ, cmd::WRITE] {
            let mut load = Load::new(&mut client, command, length, depth, style);
            let name = format!("{backend:?} {style:?} {command} of {length} at depth {depth}");
            measure(&name, || load.run(ROUNDS));
        }
    }
}

/// Requests that use no heap and no other thread.
fn measure(name: &str, mut run: impl FnMut()) {
    run();
    let mut left = TRIES;
    loop {
        left -= 1;
        let (tasks, calls) = (Tasks::now(), alloc::calls());
        run();
        let (calls, after) = (alloc::calls() - calls, Tasks::now());
        let others = after.others(&tasks);
        if calls == 0 && others.is_empty() {
            return;
        }
        if left == 0 {
            assert_eq!(calls, 0, "{name} uses the heap");
            assert_eq!(others, [""; 0], "{name}: others worked");
        }
    }
}

/// The same for a session of FUSE.
fn check_fuse(make: fn(u64) -> Fresh) {
    for backend in BACKENDS {
        let over = make(SIZE);
        let (ours, theirs, _) = fuse::sockets();
        let (grace, log) = (Duration::from_secs(5), |line: &str| panic!("{line}"));
        let options = fuse::options(backend, grace, log, || ());
        let session = fuse::session(&over.gate, &ours, theirs, options);
        for (length, depth) in [(BLOCK, 1), (BLOCK, 32), (65536, 16)] {
            for opcode in [fuse::WRITE, fuse::READ] {
                let mut load = FuseLoad::new(&ours, opcode, length, depth);
                let name = format!("{backend:?} FUSE {opcode} of {length} at depth {depth}");
                measure(&name, || load.run(ROUNDS));
            }
        }
        session.finish().expect("flushed");
    }
}

/// The same for a mount whose requests come through the lane's ring.
fn check_fuse_through_io_uring() {
    let Some(_enabled) = Enabled::here() else { return };
    for make in [stack::crypt_over_ram, stack::crypt_over_file] {
        let over = in_bytes(make(SIZE));
        let folder = tempfile::tempdir().expect("a folder");
        let place = File::open(folder.path()).expect("it is there");
        let wanted = MountWanted {
            point: folder.path().canonicalize().expect("a path"),
            place: place.as_fd(),
            over: MountedOver::Folder,
            source: "disk".into(),
            read_only: false,
            allow_other: false,
        };
        let (mut mount, descriptors) = Mount::new(&wanted, 1).expect("a mount");
        let (grace, log) = (Duration::from_secs(5), |line: &str| panic!("{line}"));
        let mut options = fuse::options(BackendChoice::Auto, grace, log, || ());
        options.queues = processors();
        let nodes = Nodes::new(MountedOver::Folder, &over.gate, "disk", "", false);
        let session = FuseSession::start(&Arc::new(nodes), descriptors, options).expect("a session");
        let mut file = File::options();
        let file = file.read(true).write(true).open(folder.path().join("disk"));
        let file = file.expect("the disk can be opened");
        for length in [4096, 65536] {
            let mut data = pattern(0, length, 2);
            measure(&format!("writing {length} bytes"), || {
                for at in 0..ROUNDS {
                    let at = (at % 3 * length) as u64;
                    file.write_all_at(&data, at).expect("written");
                }
            });
            measure(&format!("reading {length} bytes"), || {
                for at in 0..ROUNDS {
                    let at = (at % 3 * length) as u64;
                    file.read_exact_at(&mut data, at).expect("read");
                }
            });
            assert_eq!(data, pattern(0, length, 2));
        }
        drop(file);
        mount.end().expect("unmounted");
        session.finish().expect("flushed");
    }
}

/// The same for virtual machines: the requests lie in memory, and are made available again and again.
fn check_guests(make: fn(u64) -> Fresh) {
    for backend in BACKENDS {
        for ring in [0, RING_PACKED] {
            check_ring(make(SIZE), backend, ring, Poll::default());
        }
    }
}

fn check_ring(over: Fresh, backend: BackendChoice, ring: u64, poll: Poll) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let disk = disk("", &over.gate, FrontEnds::Connected(theirs));
    let options = VhostServerOptions { poll, ..options(backend, Duration::from_secs(5)) };
    let serving = Serving::start(vec![disk], options);
    let mut driver = Driver::start_with(ours, FLUSH | EVENT_IDX | ring);
    for (length, depth) in [(BLOCK, 1), (BLOCK, 32), (65536, 16)] {
        for kind in [1, 0] {
            let data = pattern(0, length as usize, 3);
            let heads: Vec<u16> = (0..depth)
                .map(|index| {
                    let asked = Asked {
                        kind,
                        sector: u64::from(index * length) / 512,
                        to_device: if kind == 1 { &data } else { &[] },
                        to_driver: if kind == 0 { length.into() } else { 0 },
                    };
                    driver.put(&asked).head
                })
                .collect();
            driver.kick();
            for _ in &heads {
                driver.take();
            }
            let name = format!("{backend:?} {ring:#x} request {kind} of {length} at depth {depth}");
            measure(&name, || {
                for _ in 0..ROUNDS {
                    heads.iter().for_each(|head| driver.put_again(*head));
                    driver.kick();
                    for _ in &heads {
                        let (head, _) = driver.take();
                        assert_eq!(driver.status(head), 0);
                    }
                }
            });
        }
    }
    drop(driver);
    assert_eq!(serving.log(), [""; 0]);
}

/// A closed loop of batches: `depth` calls, then their answers.
struct FuseLoad<'a> {
    socket: &'a OwnedFd,
    calls: Vec<Vec<u8>>,
    answer: Vec<u8>,
    answer_len: usize,
}

impl<'a> FuseLoad<'a> {
    fn new(socket: &'a OwnedFd, opcode: u32, length: u32, depth: u32) -> Self {
        let calls = (0..depth).map(|index| {
            let offset = u64::from(index * length);
            let data = match opcode {
                fuse::WRITE => pattern(offset, length as usize, 2),
                _ => Vec::new(),
            };
            let arguments = [0, offset, length.into(), 0, 0];
            fuse::call(opcode, 2 + 2 * u64::from(index), &arguments, &data)
        });
        let answer_len = match opcode {
            fuse::READ => 16 + length as usize,
            _ => 16 + 8,
        };
        Self { socket, calls: calls.collect(), answer: vec![0; answer_len + 1], answer_len }
    }

    fn run(&mut self, rounds: usize) {
        for _ in 0..rounds {
            for call in &self.calls {
                assert_eq!(rustix::net::send(self.socket, call, SendFlags::NOSIGNAL), Ok(call.len()));
            }
            for _ in &self.calls {
                let answer = &mut self.answer[..];
                let (len, _) = rustix::net::recv(self.socket, answer, RecvFlags::empty()).expect("an answer");
                assert_eq!(len, self.answer_len);
            }
        }
    }
}

/// A closed loop of batches: `depth` requests in one write, their replies in one read.
struct Load {
    stream: UnixStream,
    requests: Vec<u8>,
    replies: Vec<u8>,
}

impl Load {
    fn new(client: &mut Raw, command: u16, length: u32, depth: u32, style: Style) -> Self {
        let mut requests = Vec::new();
        for index in 0..depth {
            let offset = u64::from(index * length);
            let bytes = match command {
                cmd::WRITE => client.encode_write(0, offset, &pattern(offset, length as usize, 2)),
                _ => client.encode(command, 0, (offset, length)),
            };
            requests.extend(bytes.1);
        }
        let reply = match (command, style) {
            (cmd::READ, Style::Structured) => OFFSET_DATA_LEN + length as usize,
            (cmd::READ, Style::Simple) => SIMPLE_REPLY_LEN + length as usize,
            _ => SIMPLE_REPLY_LEN,
        };
        Self {
            stream: client.stream.try_clone().expect("a second handle"),
            requests,
            replies: vec![0; reply * depth as usize],
        }
    }

    fn run(&mut self, rounds: usize) {
        for _ in 0..rounds {
            // A batch fits into the server's buffers and the socket's, so this never waits for
            // replies to be read.
            self.stream.write_all(&self.requests).expect("sent");
            self.stream.read_exact(&mut self.replies).expect("answered");
        }
    }
}

/// The process's tasks with the processor time that each has used, in nanoseconds.
struct Tasks(BTreeMap<String, u64>);

impl Tasks {
    fn now() -> Self {
        let entries = std::fs::read_dir("/proc/self/task").expect("proc");
        let used = |entry: std::fs::DirEntry| {
            let file = |name| std::fs::read_to_string(entry.path().join(name)).ok();
            let name = format!("{} {:?}", file("comm")?.trim(), entry.file_name());
            let used = file("schedstat")?.split(' ').next()?.parse().ok()?;
            Some((name, used))
        };
        Self(entries.flatten().filter_map(used).collect())
    }

    /// Those that have worked since `before`, other than the client's thread, which is the
    /// process's first, and the connections'.
    fn others(&self, before: &Self) -> Vec<&str> {
        let own = format!("{:?}", std::process::id().to_string());
        (self.0.iter())
            .filter(|(task, used)| before.0.get(*task) != Some(used))
            .map(|(task, _)| task.as_str())
            .filter(|task| ["nbd-", "fuse-", "vring-"].iter().all(|ours| !task.starts_with(ours)))
            .filter(|task| !task.ends_with(&own))
            .collect()
    }
}

/// The list of tasks must be able to show a helper, and one that it has not seen before.
fn work_of_another_thread_is_noticed() {
    let before = Tasks::now();
    let (ready, wait) = std::sync::mpsc::channel();
    let helper = std::thread::Builder::new().name("helper".to_owned());
    let helper = helper.spawn(move || {
        ready.send(()).expect("heard");
        std::thread::park();
    });
    let helper = helper.expect("a thread");
    wait.recv().expect("ready");
    let after = Tasks::now();
    let others = after.others(&before);
    assert!(matches!(others[..], [one] if one.starts_with("helper")), "{others:?}");
    helper.thread().unpark();
    helper.join().expect("ended");
}
