//! A real kernel under QEMU whose disks are ours: its virtio-blk driver is the client, and QEMU the front-end.

#[path = "common/mod.rs"]
mod common;

use std::ops::Range;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use cryptline_engine::base::DirectMode;
use cryptline_engine::blocking::Blocking;
use cryptline_engine::{BackendChoice, Gate};
use cryptline_serve::lane::Poll;
use cryptline_serve::stats::ExportStats;
use cryptline_serve::vhost_user::{Disk, Front, Server, ServerOptions};
use cryptline_serve::{Flushed, StopHandle};
use cryptline_sys::lock;
use cryptline_testkit::oracle::Oracle;
use cryptline_testkit::suite::devices;

use crate::common::stack;

const SIZE: u64 = 64 << 20;
/// What a server says of a disk that has become larger.
const GROWN: &str = "the disk has grown to";
/// Finds `$disk` by the name that the server tells.
const FIND: &str = "
disk=
for block in /sys/block/vd*; do
    if [ \"$(cat $block/serial)\" = WANTED ]; then disk=${block##*/}; fi
done
[ -b /dev/$disk ]
queue=/sys/block/$disk/queue
";

fn find(serial: &str) -> String {
    FIND.replace("WANTED", serial)
}

type Log = Arc<Mutex<Vec<String>>>;

struct Served {
    stop: StopHandle,
    thread: JoinHandle<Flushed>,
    log: Log,
}

fn disk(name: &str, socket: &Path, gate: &Gate) -> Disk {
    Disk {
        name: name.to_owned(),
        gate: gate.clone(),
        block: 512,
        serial: name.to_owned(),
        queues: 2,
        queue_size: None,
        stats: ExportStats::new(false),
        front: Front::Listener(UnixListener::bind(socket).expect("bound")),
    }
}

fn serve(disks: Vec<Disk>) -> Served {
    let log = Log::default();
    let lines = Arc::clone(&log);
    let options = ServerOptions {
        backend: BackendChoice::Auto,
        poll: Poll::default(),
        grace: Duration::from_secs(5),
        log: Arc::new(move |event| {
            if event.is_trouble() {
                lock(&lines).push(event.to_string());
            }
        }),
    };
    let server = Server::new(disks, options).expect("it can be served");
    let stop = StopHandle::new().expect("an eventfd");
    let pulled = stop.clone();
    let thread = std::thread::spawn(move || server.run(&pulled).expect("it could listen"));
    Served { stop, thread, log }
}

impl Served {
    /// Everything is durable, and nobody has complained.
    fn end_well(self) {
        self.stop.stop();
        assert_eq!(self.thread.join().expect("no panic"), Ok(()));
        let lines = lock(&self.log);
        let mut lines = lines.iter().filter(|line| !line.contains(GROWN));
        assert_eq!(lines.next(), None);
    }
}

#[test]
fn kernel_oracle_guest_uses_our_disk_as_any_other() {
    let Some(mut oracle) = Oracle::new() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let sockets = ["one", "two", "three", "four"].map(|name| folder.path().join(name));
    let encrypted = devices::crypt(stack::file(SIZE, DirectMode::Auto), &stack::AES_4096);
    let read_only = devices::crypt(stack::file_read_only(1 << 20), &stack::AES_4096);
    let packed = devices::crypt(stack::file(SIZE, DirectMode::Auto), &stack::AES_4096);
    let (file, path) = stack::growing_file(SIZE);
    let growing = devices::crypt(file, &stack::AES_4096);
    let served = serve(vec![
        disk("encrypted", &sockets[0], &encrypted.gate),
        disk("readonly", &sockets[1], &read_only.gate),
        disk("packed", &sockets[2], &packed.gate),
        disk("growing", &sockets[3], &growing.gate),
    ]);
    for number in [0, 1, 3] {
        oracle.vhost_user(&sockets[number]);
    }
    oracle.vhost_user_with(&sockets[2], "packed=on");
    oracle.case("what it is").script(&format!(
        "{}
        cat $queue/logical_block_size $queue/discard_max_bytes $queue/write_zeroes_max_bytes $queue/write_cache
        cat /sys/block/$disk/size
        {}
        cat /sys/block/$disk/ro
        {}
        cut -c 35 /sys/block/$disk/device/features",
        find("encrypted"),
        find("readonly"),
        find("packed"),
    ));
    for (case, name) in FILE_SYSTEMS {
        oracle
            .case(case)
            .script(&file_system(name))
            .timeout(Duration::from_secs(200));
    }
    let sectors = growing.gate.size() / 512;
    oracle
        .case("a disk that grows")
        .script(&growth(sectors))
        .timeout(Duration::from_secs(200));
    let outcomes = std::thread::scope(|scope| {
        let (running, is_over) = mpsc::channel();
        let gate = &growing.gate;
        scope.spawn(move || enlarge_when_asked(gate, &path, &is_over));
        let outcomes = oracle.run();
        drop(running);
        outcomes
    });
    let said = outcomes.passed("a disk that grows");
    let new = growing.gate.size();
    assert_eq!(new, sectors * 512 + SIZE);
    let written = sum(&growing.gate, (sectors - 104) * 512..(sectors + 896) * 512);
    assert_eq!(said, format!("{}\n{written}  -", new / 512));
    let sectors = encrypted.gate.geometry().size / 512;
    let block = encrypted.gate.geometry().logical_block;
    let range = 2u64 << 30;
    assert_eq!(
        outcomes.passed("what it is"),
        format!("{block}\n{range}\n{range}\nwrite back\n{sectors}\n1\n1"),
    );
    for ((case, _), volume) in FILE_SYSTEMS.into_iter().zip([&encrypted, &packed]) {
        let said = outcomes.passed(case);
        // What the guest has seen last is what our own path reads.
        let expected = said.lines().last().and_then(|line| line.split(' ').next());
        let sum = sum(&volume.gate, 0..volume.gate.size());
        assert_eq!(expected, Some(sum.as_str()), "{said}");
    }
    served.end_well();
}

/// What each disk is used for: the case and the disk's name.
const FILE_SYSTEMS: [(&str, &str); 2] = [
    ("a file system", "encrypted"),
    ("a file system through a packed ring", "packed"),
];

fn file_system(name: &str) -> String {
    format!(
        "{}
            mkfs.ext4 -q /dev/$disk
            mkdir -p /tmp/here
            mount -t ext4 -o discard /dev/$disk /tmp/here
            for index in 1 2 3 4 5 6 7 8; do
                dd if=/dev/urandom of=/tmp/here/$index bs=1M count=3 2>/dev/null
                cp /tmp/here/$index /tmp/here/copy$index
            done
            sync
            rm /tmp/here/copy3 /tmp/here/copy5
            cd /tmp/here; sha256sum [1-8] >/tmp/sums; cd /tmp
            umount /tmp/here
            echo 3 >/proc/sys/vm/drop_caches
            mount -t ext4 /dev/$disk /tmp/here
            cd /tmp/here; sha256sum -c /tmp/sums; cmp 1 copy1; cmp 8 copy8; cd /tmp
            umount /tmp/here
            sync
            echo 3 >/proc/sys/vm/drop_caches
            sha256sum </dev/$disk",
        find(name),
    )
}

/// Asks for more by what it writes, and uses it once the kernel knows of it.
fn growth(sectors: u64) -> String {
    format!(
        "{}
            printf grow | dd of=/dev/$disk bs=512 conv=sync 2>/dev/null
            sync
            while [ $(cat /sys/block/$disk/size) = {sectors} ]; do sleep 1; done
            cat /sys/block/$disk/size
            dd if=/dev/urandom of=/dev/$disk bs=512 seek={} count=1000 2>/dev/null
            sync
            echo 3 >/proc/sys/vm/drop_caches
            dd if=/dev/$disk bs=512 skip={} count=1000 2>/dev/null | sha256sum",
        find("growing"),
        sectors - 104,
        sectors - 104,
    )
}

fn enlarge_when_asked(gate: &Gate, path: &Path, is_over: &Receiver<()>) {
    let mut volume = Blocking::new(gate, BackendChoice::Auto).expect("a queue");
    let mut word = [0; 4096];
    while !word.starts_with(b"grow") {
        let waited = is_over.recv_timeout(Duration::from_millis(20));
        if waited == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        volume.read_at(0, &mut word).expect("read");
    }
    let file = std::fs::File::options().write(true).open(path);
    let enlarged = file.and_then(|file| file.set_len(2 * SIZE));
    enlarged.expect("more of it");
}

fn sum(gate: &Gate, range: Range<u64>) -> String {
    let mut volume = Blocking::new(gate, BackendChoice::Auto).expect("a queue");
    let len = usize::try_from(range.end - range.start).expect("small");
    let mut bytes = vec![0; len];
    volume.read_at(range.start, &mut bytes).expect("read");
    let path = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(path.path(), bytes).expect("written");
    let mut command = std::process::Command::new("sha256sum");
    let output = command.arg(path.path()).output().expect("coreutils");
    let text = String::from_utf8(output.stdout).expect("text");
    text.split(' ').next().unwrap_or_default().to_owned()
}
