//! The claim of the first page: between `submit` and the completion there is no heap allocation
//! and no other thread.
//!
//! The program is its own test harness, so that its only thread is the one that makes the
//! requests: nothing else in the process may allocate, use the processor, or exist.
//!
//! * **No allocation**: a counting global allocator sees no call at all in the steady state.
//! * **No thread**: the process has one task before, during and after, and its processor time is
//!   the thread's own. io_uring's workers (`iou-wrk`) are tasks of the process and count.
//!
//! The default (`auto`, with a helper at hand) is held to the same for requests too small to be worth
//! a helper's while.
//!
//! One exception is left, and it is the kernel's: io_uring hands every `fsync` to a worker, since
//! it may sleep for long. So flushes over io_uring are checked for allocations only.

#[path = "../it/zoned/common.rs"]
#[allow(dead_code, reason = "shared with the other tests of zones")]
mod common;
mod tasks;
mod zones;

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::process::Child;
use std::time::Duration;

use cryptline_engine::base::NbdDevice;
use cryptline_engine::blocking::Blocking;
use cryptline_engine::layer::Exclusion;
use cryptline_engine::{BackendChoice, Buffer, Channel, Completion, Gate, Request, Submitted};
use cryptline_testkit::alloc::{self, CountingAllocator};
use cryptline_testkit::suite::Fresh;
use cryptline_testkit::suite::devices::{self, AES_512, AES_4096, CBC_4096};
use cryptline_testkit::{harness, peer};
use rustix::time::{ClockId, clock_gettime};
use tasks::{KERNEL_WORKER, others_than_idle_workers, tasks};
use tempfile::TempDir;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Bytes in a request.
const BLOCK: u64 = 4096;
/// Bytes in a request that is never worth a helper's while: less than the smallest part.
const SMALL: u64 = 2048;
/// Requests measured in each case.
const REQUESTS: u64 = 4000;

fn main() {
    let (uring, calls) = (BackendChoice::Auto, BackendChoice::Syscalls);
    let tests: [(&str, &dyn Fn()); 21] = [
        ("allocation_is_counted", &alloc::assert_counted),
        ("second_thread_is_noticed", &second_thread_is_noticed),
        ("crypt_over_ram", &|| on_both(|backend| check(backend, devices::ram(), Flushes::Alone))),
        ("crypt_over_pmem", &|| on_both(|backend| check(backend, devices::pmem(), Flushes::Alone))),
        ("crypt_over_btt", &|| {
            on_both(|backend| {
                check(backend, devices::btt_in_memory(512), Flushes::Alone);
                check(backend, devices::btt_in_memory(4096), Flushes::Alone);
            });
        }),
        ("crypt_over_file_by_system_calls", &|| check(calls, devices::file_buffered(), Flushes::Alone)),
        ("crypt_over_direct_file_by_system_calls", &|| check(calls, devices::file_direct_4096(), Flushes::Alone)),
        ("crypt_over_file_by_io_uring", &|| check(uring, devices::file_buffered(), Flushes::WithWorker)),
        ("crypt_over_direct_file_by_io_uring", &|| check(uring, devices::file_direct_4096(), Flushes::WithWorker)),
        ("crypt_over_delay_over_ram", &|| {
            on_both(|backend| {
                let medium = "read=5us..20us,write=5us~1us,flush=10us,parallel=4";
                let slow = devices::ram().map(|ram| devices::delayed(ram, medium));
                check(backend, slow, Flushes::Alone);
            });
        }),
        ("crypt_over_crypt_over_file", &|| {
            let inner = devices::file_buffered().map(|file| devices::crypt(file, &AES_512));
            check(calls, inner, Flushes::Alone);
        }),
        ("small_blocks_over_ram", &|| on_both(|backend| check_small(backend, devices::ram, true))),
        ("small_blocks_over_file_by_system_calls", &|| {
            check_small(calls, devices::file_buffered, true);
            check_small(calls, devices::file_direct, true);
        }),
        ("small_blocks_over_file_by_io_uring", &|| {
            check_small(uring, devices::file_buffered, true);
            // Not every direct write that begins inside a block of the file system can be made without
            // waiting: ext4 looks whether one extent holds it all.
            check_small(uring, devices::file_direct, false);
        }),
        ("ranges_of_two_rams", &|| on_both(|backend| check_ranges(backend, devices::ram, Flushes::Alone))),
        ("ranges_of_two_files_by_system_calls", &|| check_ranges(calls, devices::file_buffered, Flushes::Alone)),
        ("ranges_of_two_files_by_io_uring", &|| check_ranges(uring, devices::file_buffered, Flushes::WithWorker)),
        ("crypt_over_nbd_server", &|| on_both(|backend| check(backend, nbd_server(), Flushes::Alone))),
        ("small_requests_with_a_helper_at_hand", &|| {
            on_both(|backend| {
                check_default(backend, devices::ram);
                check_default(backend, devices::file_buffered);
            });
        }),
        ("zones_are_written_finished_and_reset_without_the_heap", &zones::written_finished_and_reset),
        ("shared_with_other_threads", &|| {
            on_both(|backend| {
                check_shared(backend, devices::ram);
                check_shared(backend, devices::file_buffered);
            });
        }),
    ];
    harness::run(&tests);
}

fn on_both(check: impl Fn(BackendChoice)) {
    [BackendChoice::Auto, BackendChoice::Syscalls].into_iter().for_each(check);
}

/// Rounds of which one has to be undisturbed.
const TRIES: u32 = 8;

/// Need of a flush for another thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flushes {
    Alone,
    WithWorker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Flush,
}

/// Reads, writes and flushes through crypt over `lower`, one and 32 at a time.
fn check(backend: BackendChoice, lower: Option<Fresh>, flushes: Flushes) {
    let Some(lower) = lower else { return };
    let fresh = devices::crypt(lower, &AES_4096);
    // Flushes last: a worker that one has called up stays for seconds.
    for kind in [Kind::Read, Kind::Write, Kind::Flush] {
        for depth in [1, 32] {
            let mut load = Load::new(&fresh.gate, backend, kind, depth);
            let alone = kind != Kind::Flush || flushes == Flushes::Alone;
            let name = format!("{kind:?} at depth {depth} over {:?}", load.channel.ring().backend());
            load.check(&name, alone);
        }
    }
}

/// Blocks smaller than a cipher sector: rewrites and parts of reads of CBC, requests that are cut at
/// sectors, and overwrites of XTS. Those of several sectors are made `alone`, or with the kernel's
/// workers.
fn check_small(backend: BackendChoice, lower: impl Fn() -> Option<Fresh>, alone: bool) {
    for layout in [CBC_4096, AES_4096] {
        let Some(lower) = lower() else { return };
        let fresh = devices::in_blocks(lower, &layout, 512, Exclusion::Shared, devices::INLINE);
        // Last what may call workers up: they stay for seconds.
        for kind in [Kind::Read, Kind::Write] {
            for (depth, block, shift) in [(1, 512, 0), (32, 512, 0), (8, 2 * BLOCK, 512)] {
                let mut load = Load::with_block(&fresh.gate, backend, kind, depth, block);
                load.shift_by(shift);
                let alone = alone || kind == Kind::Read || shift == 0;
                let (cipher, backend) = (layout.cipher, load.channel.ring().backend());
                let name = format!("{cipher}: {kind:?} of {block} at depth {depth} over {backend:?}");
                load.check(&name, alone);
            }
        }
    }
}

/// A disk behind a server in another process.
fn nbd_server() -> Option<Fresh> {
    struct Server(Child, #[expect(dead_code, reason = "the folder lives as long")] TempDir);

    impl Drop for Server {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    // Not as other tests have it: that takes a thread.
    let nbdkit = peer::require("nbdkit")?;
    let folder = tempfile::tempdir().unwrap();
    let [socket, pid] = ["socket", "pid"].map(|name| folder.path().join(name));
    let mut command = nbdkit.command();
    command.args(["--foreground", "--unix"]).arg(&socket);
    command.arg("--pidfile").arg(&pid).args(["memory", "16M"]);
    let server = Server(command.spawn().unwrap(), folder);
    while !pid.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    let device = NbdDevice::open(&uri.parse().unwrap(), false).unwrap();
    Some(Fresh { gate: Gate::new(device), keep: vec![Box::new(server)] })
}

/// Ranges of two devices, each device under a key of its own or the whole under several.
fn check_ranges(backend: BackendChoice, lower: impl Fn() -> Option<Fresh>, flushes: Flushes) {
    let two = || Some((lower()?, lower()?));
    let (Some((one, other)), Some((third, fourth))) = (two(), two()) else { return };
    let lowers = vec![devices::crypt(one, &AES_512), devices::crypt(other, &AES_4096)];
    check_each(backend, &devices::in_turns(lowers, 3 * BLOCK), flushes);
    let lower = devices::in_turns(vec![third, fourth], 3 * BLOCK);
    let (borders, layouts) = ([7 * BLOCK, 8 * BLOCK], [Some(&AES_512), None, Some(&AES_4096)]);
    let fresh = devices::in_ranges(lower, &borders, &layouts, devices::INLINE);
    check_each(backend, &fresh, flushes);
}

/// Requests inside ranges, and requests that each cross borders.
fn check_each(backend: BackendChoice, fresh: &Fresh, flushes: Flushes) {
    // Flushes last: a worker that one has called up stays for seconds.
    for (kind, depth, block) in [
        (Kind::Read, 1, BLOCK),
        (Kind::Read, 32, BLOCK),
        (Kind::Read, 8, 5 * BLOCK),
        (Kind::Write, 32, BLOCK),
        (Kind::Write, 8, 5 * BLOCK),
        (Kind::Flush, 8, BLOCK),
    ] {
        let mut load = Load::with_block(&fresh.gate, backend, kind, depth, block);
        let alone = kind != Kind::Flush || flushes == Flushes::Alone;
        let name = format!("ranges: {kind:?} of {block} at depth {depth}");
        load.check(&name, alone);
    }
}

/// The default with a helper that would come to anything: small requests are not for it, one or 32 at a
/// time. Those of a page may be, where the cipher is slow; they too leave the heap alone.
fn check_default(backend: BackendChoice, lower: impl Fn() -> Option<Fresh>) {
    for (kind, block) in
        [(Kind::Read, SMALL), (Kind::Write, SMALL), (Kind::Read, BLOCK), (Kind::Write, BLOCK), (Kind::Flush, BLOCK)]
    {
        for depth in [1, 32] {
            let Some(lower) = lower() else { return };
            let fresh = devices::dispatched(lower, &AES_512, devices::AUTO);
            let mut load = Load::with_block(&fresh.gate, backend, kind, depth, block);
            load.channel.stopwatch().switch(true);
            let name = format!("a helper at hand: {kind:?} of {block} at depth {depth}");
            let used = load.check(&name, false);
            if block == SMALL {
                assert!(load.channel.stopwatch().total_ns() > 0, "{name}: no cipher ran");
                assert_eq!(load.channel.stopwatch().elsewhere_ns(), 0, "{name}");
                used.assert_others_slept(&name);
            }
            std::mem::forget(load);
        }
    }
}

/// Requests that other threads help with, small and large: the heap is no part of that either.
fn check_shared(backend: BackendChoice, lower: impl Fn() -> Option<Fresh>) {
    for dispatch in [devices::AUTO, devices::QUEUE, devices::QUEUE_FLAGS] {
        let Some(lower) = lower() else { return };
        let fresh = devices::dispatched(lower, &AES_4096, dispatch);
        for (kind, depth, block) in [
            (Kind::Read, 1, BLOCK),
            (Kind::Read, 32, 4 * BLOCK),
            (Kind::Write, 32, BLOCK),
            (Kind::Read, 4, 64 * BLOCK),
            (Kind::Write, 4, 64 * BLOCK),
        ] {
            let mut load = Load::with_block(&fresh.gate, backend, kind, depth, block);
            let name = format!("{dispatch:?}: {kind:?} of {block} at depth {depth}");
            load.check(&name, false);
            // A helper may be late to let go of the queue's shared slots: that must not fall into the next
            // measurement.
            std::mem::forget(load);
        }
    }
}

/// A closed loop: `depth` requests in flight, each resubmitted as it completes.
struct Load {
    channel: Channel,
    done: Vec<Completion>,
    buffers: Vec<Buffer>,
    kind: Kind,
    depth: u64,
    block: u64,
    blocks: u64,
    /// All requests lie this much further on.
    shift: u64,
    next: u64,
    /// Kept for the same reason as the load itself.
    _prepared: Blocking,
}

/// Resources that a measured stretch of work has used.
#[derive(Debug)]
struct Used {
    heap_calls: u64,
    process: Duration,
    thread: Duration,
    tasks: BTreeSet<String>,
}

impl Load {
    fn new(gate: &Gate, backend: BackendChoice, kind: Kind, depth: u64) -> Self {
        Self::with_block(gate, backend, kind, depth, BLOCK)
    }

    fn with_block(gate: &Gate, backend: BackendChoice, kind: Kind, depth: u64, block: u64) -> Self {
        let prepared = prepare(gate);
        let mut channel = Channel::open(gate, backend, 64).unwrap();
        let bytes = usize::try_from(block).unwrap();
        let arena = channel.buffers(bytes, 64).unwrap();
        let buffer = || {
            let mut buffer = arena.take().unwrap();
            // Where it is less than a page.
            buffer.set_len(bytes);
            buffer
        };
        let mut load = Self {
            channel,
            done: Vec::with_capacity(64),
            buffers: (0..depth).map(|_| buffer()).collect(),
            kind,
            depth,
            block,
            blocks: gate.geometry().size / block,
            shift: 0,
            next: 0,
            _prepared: prepared,
        };
        load.run(200);
        load
    }

    fn shift_by(&mut self, shift: u64) {
        self.shift = shift;
        self.blocks -= shift.div_ceil(self.block);
        self.run(200);
    }

    /// Measures what requests use. A round does not count while there are others left if a table has grown in it, since more
    /// was under way than ever before: what each request takes is in every round. Nor does, where they are made `alone`,
    /// one in which the kernel's workers had a part: a disk that others use too may have no place for a request just then.
    fn measure(&mut self, alone: bool) -> Used {
        for _ in 1..TRIES {
            let used = self.measure_once();
            let is_disturbed = used.tasks.iter().any(|task| task.starts_with(KERNEL_WORKER));
            if used.heap_calls == 0 && (!alone || !is_disturbed) {
                return used;
            }
        }
        self.measure_once()
    }

    /// Fails where requests use the heap or, if they are made `alone`, another thread.
    fn check(&mut self, name: &str, alone: bool) -> Used {
        let used = self.measure(alone);
        println!("{name}: {used:?}");
        assert_eq!(used.heap_calls, 0, "{name} uses the heap");
        if alone {
            used.assert_alone(name);
        }
        used
    }

    fn measure_once(&mut self) -> Used {
        let requests = match self.kind {
            Kind::Flush => 200,
            _ => (REQUESTS * BLOCK / self.block).min(REQUESTS),
        };
        let tasks_before = tasks();
        let before = (alloc::calls(), process_time(), thread_time());
        self.run(requests);
        let after = (alloc::calls(), process_time(), thread_time());
        Used {
            heap_calls: after.0 - before.0,
            process: after.1 - before.1,
            thread: after.2 - before.2,
            tasks: others_than_idle_workers(&tasks_before),
        }
    }

    fn run(&mut self, requests: u64) {
        let (mut submitted, mut completed) = (0, 0);
        while completed < requests {
            while submitted < requests && submitted - completed < self.depth {
                let request = self.request();
                submitted += 1;
                match self.channel.submit(request) {
                    Submitted::Done(completion) => {
                        completed += 1;
                        self.take_back(completion);
                    }
                    Submitted::Pending => {}
                }
            }
            if submitted > completed {
                self.channel.wait(&mut self.done).unwrap();
                while let Some(completion) = self.done.pop() {
                    completed += 1;
                    self.take_back(completion);
                }
            }
        }
    }

    fn request(&mut self) -> Request {
        self.next += 1;
        // A stride that visits every block before it repeats one.
        let offset = self.next * 7 % self.blocks * self.block + self.shift;
        match self.kind {
            Kind::Read => Request::read(offset, self.buffers.pop().unwrap(), self.next),
            Kind::Write => Request::write(offset, self.buffers.pop().unwrap(), false, self.next),
            Kind::Flush => Request::flush(self.next),
        }
    }

    fn take_back(&mut self, completion: Completion) {
        completion.result.unwrap();
        self.buffers.extend(completion.request.data);
    }
}

/// Writes every block, so that all are allocated on the medium and only overwritten from here.
/// By system calls: a worker that io_uring has called up stays as long as the thread.
fn prepare(gate: &Gate) -> Blocking {
    let mut disk = Blocking::new(gate, BackendChoice::Syscalls).unwrap();
    let size = usize::try_from(gate.geometry().size).unwrap();
    disk.write_at(0, &vec![1; size], false).unwrap();
    disk.flush().unwrap();
    disk
}

impl Used {
    fn assert_alone(&self, name: &str) {
        assert_eq!(self.tasks.len(), 1, "{name} has helpers: {:?}", self.tasks);
        self.assert_others_slept(name);
    }

    /// Another thread would have to use less than a hundredth of the work to pass.
    fn assert_others_slept(&self, name: &str) {
        let others = self.process.saturating_sub(self.thread);
        let slack = self.thread / 100 + Duration::from_micros(500);
        assert!(others < slack, "{name}: others used {others:?}");
    }
}

/// The clocks and the list of tasks must be able to show a helper.
fn second_thread_is_noticed() {
    let before = (process_time(), thread_time());
    let (ready, wait) = std::sync::mpsc::channel();
    let helper = std::thread::spawn(move || {
        // Its own time, not the clock's: on a busy machine it may get little of that.
        while thread_time() < Duration::from_millis(20) {
            black_box(0);
        }
        ready.send(()).unwrap();
        std::thread::park();
    });
    wait.recv().unwrap();
    let used = Used {
        heap_calls: 0,
        process: process_time() - before.0,
        thread: thread_time() - before.1,
        tasks: others_than_idle_workers(&BTreeMap::new()),
    };
    assert!(used.process - used.thread > Duration::from_millis(5), "{used:?}");
    assert_eq!(used.tasks.len(), 2);
    helper.thread().unpark();
    helper.join().unwrap();
}

fn process_time() -> Duration {
    time(ClockId::ProcessCPUTime)
}

fn thread_time() -> Duration {
    time(ClockId::ThreadCPUTime)
}

fn time(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap()
}
