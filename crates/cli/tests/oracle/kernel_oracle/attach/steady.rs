//! Between a request of the kernel's and its answer there is no heap allocation and no other thread.
//!
//! This very program does both in the guest, since there is no ublk elsewhere: it serves the device, and reads and
//! writes it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cryptline::Open;
use cryptline::engine::dispatch::DispatchMode;
use cryptline_engine::Buffer;
use cryptline_serve::StopHandle;
use cryptline_serve::stats::ExportStats;
use cryptline_serve::ublk::{Ublk, UblkOptions};
use cryptline_testkit::alloc::{self, CountingAllocator};
use rustix::fs::{Mode as FileMode, OFlags};

use super::Guest;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Where the part in the guest finds its targets.
const TARGETS: &str = "CRYPTLINE_TARGETS";
/// Times that a request of each kind is made in a round.
const ROUNDS: u64 = 16;
/// Rounds, of which one must be undisturbed: the kernel gives a request to a thread of its own where a disk that
/// others use too has no place for it just then.
const TRIES: u32 = 8;
const KERNEL_WORKER: &str = "iou-wrk-";

pub(super) fn ask(guest: &mut Guest<'_, '_>) {
    guest.ask(
        "requests use no heap and no other thread",
        &format!(
            r#"
        format --sector-size 4096 $volume
        export {TARGETS}="ram:32M $volume zoned:ram:32M,zone-size=4M,conventional=4"
        in_the_guest --ignored --exact --nocapture --test-threads=1 kernel_oracle::attach::steady::guest_requests_use_no_heap >/tmp/said 2>&1 ||
            {{ cat /tmp/said >&2; false; }}
        grep -q 'ok. 1 passed' /tmp/said
        nothing_left
        "#
        ),
    );
}

#[test]
#[ignore = "runs in the guest only"]
fn guest_requests_use_no_heap() {
    let targets = std::env::var(TARGETS).expect("a guest with targets");
    for target in targets.split(' ') {
        let options =
            cryptline::DispatchOptions { both: Some(DispatchMode::Inline), ..cryptline::DispatchOptions::default() };
        let mut open = Open::new(target).dispatch(options);
        if target.starts_with('/') {
            open = open.passphrase("a secret");
        }
        let volume = open.open().expect("a volume");
        let stop = StopHandle::new().expect("an eventfd");
        let options = UblkOptions {
            queues: 1,
            block: volume.info().sector_size,
            stats: ExportStats::new(true),
            grace: Duration::from_secs(5),
            on_failure: Arc::new(|why| panic!("{why}")),
        };
        let device = Ublk::attach(volume.gate().clone(), options, stop, |_, _| {});
        let device = device.expect("a device");
        for length in [4096, 65536, 512 << 10] {
            check(&device, target, length);
        }
        device.end(|line| panic!("{line}")).expect("a good end");
    }
}

fn check(device: &Ublk, target: &str, length: usize) {
    let flags = OFlags::RDWR | OFlags::DIRECT;
    let file = rustix::fs::open(device.path(), flags, FileMode::empty()).expect("the device");
    let mut buffer = Buffer::alloc(length).expect("memory");
    let mut run = || {
        for round in 0..ROUNDS {
            let offset = round % 8 * length as u64;
            let written = u8::try_from(round).expect("few rounds");
            buffer.fill(written);
            assert_eq!(rustix::io::pwrite(&file, &buffer, offset), Ok(length));
            buffer.fill(!written);
            assert_eq!(rustix::io::pread(&file, &mut *buffer, offset), Ok(length));
            assert!(buffer.iter().all(|&byte| byte == written));
        }
    };
    run();
    for left in (0..TRIES).rev() {
        let (tasks, calls) = (Tasks::now(), alloc::calls());
        run();
        let (calls, after) = (alloc::calls() - calls, Tasks::now());
        assert_eq!(calls, 0, "{target}, {length} bytes: the heap is used");
        let worked = after.worked_since(&tasks);
        assert!(worked.iter().any(|task| task.starts_with("ublk-0")), "{worked:?}");
        // The driver's commands are carried out by a worker of this thread, which looks for more now and then.
        let commands = format!("{KERNEL_WORKER}{} ", rustix::thread::gettid().as_raw_nonzero());
        let ours = format!("{:?}", rustix::thread::gettid().as_raw_nonzero().to_string());
        let others: Vec<_> = worked
            .into_iter()
            .filter(|task| !task.starts_with("ublk-0") && !task.starts_with(&commands))
            .filter(|task| !task.ends_with(&ours))
            .collect();
        let are_kernels = others.iter().all(|task| task.starts_with(KERNEL_WORKER));
        if others.is_empty() || left == 0 || !are_kernels {
            assert!(others.is_empty(), "{target}, {length} bytes: {others:?}");
            return;
        }
    }
}

/// The tasks of this process with the processor time that each has used.
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

    fn worked_since(&self, before: &Self) -> Vec<&str> {
        let worked = self.0.iter().filter(|(task, used)| before.0.get(*task) != Some(used));
        worked.map(|(task, _)| task.as_str()).collect()
    }
}
