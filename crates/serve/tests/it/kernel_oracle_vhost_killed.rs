//! A guest whose disk is served by a process that is killed again and again: it sees no error and reads what it wrote.

use std::any::Any;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use cryptline_engine::base::{DirectMode, Image};
use cryptline_engine::{BackendChoice, Gate};
use cryptline_serve::StopHandle;
use cryptline_serve::lane::Poll;
use cryptline_serve::stats::ExportStats;
use cryptline_serve::vhost_user::{Disk, Front, Server, ServerOptions};
use cryptline_testkit::oracle::Oracle;
use cryptline_testkit::peer;
use cryptline_testkit::suite::{Fresh, devices};

use crate::common::stack;

const SIZE: u64 = 64 << 20;
/// Where the process that serves finds its socket and image.
const FOLDER: &str = "CRYPTLINE_VHOST_FOLDER";
/// A server is killed so long after it began, and once both disks have been written to since then.
const LIFE: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(10);

/// The disks, which are called as their rings are.
const NAMES: [&str; 2] = ["split", "packed"];

/// Writes to both disks, reads back and compares, again and again.
const SCRIPT: &str = "
for block in /sys/block/vd*; do
    eval disk_$(cat $block/serial)=${block##*/}
done
fio --rw=randwrite --bsrange=4k-64k --size=4M --loops=3 --ioengine=libaio --iodepth=16 --direct=1 \
    --verify=crc32c --verify_backlog=32 --verify_fatal=1 --minimal \
    --name=split --filename=/dev/$disk_split --cpus_allowed=0 \
    --name=packed --filename=/dev/$disk_packed --cpus_allowed=1 >/tmp/fio 2>&1 || { cat /tmp/fio >&2; false; }
dmesg | grep -i -E 'i/o error|blk_update|virtio.*(id|bad|broken)' && exit 1
cut -c 35 /sys/block/$disk_split/device/features /sys/block/$disk_packed/device/features";

#[test]
#[ignore = "a process of its own, to be killed"]
fn serves_until_it_is_killed() {
    let folder = PathBuf::from(std::env::var(FOLDER).expect("a folder"));
    let served = NAMES.map(|name| disk(&folder, name));
    let (disks, _keep): (Vec<_>, Vec<_>) = served.into_iter().unzip();
    let options = ServerOptions {
        backend: BackendChoice::Auto,
        poll: Poll::default(),
        grace: Duration::from_secs(5),
        log: Arc::new(|line| eprintln!("{line}")),
    };
    let server = Server::new(disks, options).expect("a server");
    let stop = StopHandle::new().expect("an eventfd");
    server.run(&stop).expect("it listens").expect("flushed");
}

fn disk(folder: &Path, name: &str) -> (Disk, Vec<Box<dyn Any>>) {
    let socket = folder.join(name).with_extension("socket");
    let _ = std::fs::remove_file(&socket);
    let image = Image::open(&folder.join(name), false).expect("an image");
    let device = image.into_device(4096, DirectMode::Auto);
    let gate = Gate::new(device.expect("a device"));
    let over = devices::crypt(Fresh::new(gate), &stack::AES_4096);
    let disk = Disk {
        name: name.to_owned(),
        gate: over.gate,
        block: 512,
        serial: name.to_owned(),
        queues: 2,
        queue_size: None,
        stats: ExportStats::new(false),
        front: Front::Listener(UnixListener::bind(&socket).expect("bound")),
    };
    (disk, over.keep)
}

fn start(folder: &Path) -> Child {
    let program = std::env::current_exe().expect("a program knows its path");
    let mut command = Command::new(program);
    command
        .args(["--ignored", "--exact", "kernel_oracle_vhost_killed::serves_until_it_is_killed"])
        .env(FOLDER, folder)
        .stdout(Stdio::null());
    command.spawn().expect("a server")
}

/// Whether the guest has written to this disk since then. A server that is killed while QEMU still speaks with it about
/// the disk is not what is tested here: QEMU may give such a disk up.
fn is_written(folder: &Path, name: &str, since: SystemTime) -> bool {
    let image = std::fs::metadata(folder.join(name)).expect("an image");
    image.blocks() > 0 && image.modified().expect("a time") > since
}

/// However the oracle ends, nothing is started after it.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn kernel_oracle_guest_of_a_server_that_is_killed_sees_no_error() {
    let Some(mut oracle) = Oracle::new() else {
        return;
    };
    let Some([fio]) = peer::require_all(["fio"]) else {
        return;
    };
    oracle.program(&fio).memory_mib(768).processors(2);
    let folder = tempfile::tempdir().expect("a folder");
    for name in NAMES {
        let image = std::fs::File::create(folder.path().join(name)).expect("an image");
        image.set_len(SIZE).expect("an image");
    }
    let sockets = NAMES.map(|name| folder.path().join(name).with_extension("socket"));
    let first = start(folder.path());
    let deadline = Instant::now() + Duration::from_secs(30);
    while !sockets.iter().all(|socket| peer::listens(socket)) {
        assert!(Instant::now() < deadline, "no server");
        std::thread::sleep(Duration::from_millis(10));
    }
    oracle.vhost_user(&sockets[0]);
    oracle.vhost_user_with(&sockets[1], "packed=on");
    oracle.case("killed").script(SCRIPT).timeout(Duration::from_secs(300));
    let is_over = AtomicBool::new(false);
    let (outcomes, killed) = std::thread::scope(|scope| {
        let (is_over, folder) = (&is_over, folder.path());
        let killer = scope.spawn(move || {
            let (mut server, mut killed) = (first, 0);
            let mut since = SystemTime::now();
            while !is_over.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK);
                let is_young = since.elapsed().is_ok_and(|age| age < LIFE);
                if is_young || !NAMES.iter().all(|name| is_written(folder, name, since)) {
                    continue;
                }
                server.kill().expect("killed");
                server.wait().expect("gone");
                killed += 1;
                since = SystemTime::now();
                server = start(folder);
            }
            server.kill().expect("killed");
            server.wait().expect("gone");
            killed
        });
        let over = Over(is_over);
        let outcomes = oracle.run();
        drop(over);
        (outcomes, killer.join().expect("no panic"))
    });
    assert_eq!(outcomes.passed("killed"), "0\n1", "which ring is packed");
    assert!(killed > 3, "{killed}");
}
