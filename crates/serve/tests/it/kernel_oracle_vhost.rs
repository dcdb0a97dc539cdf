//! A real kernel under QEMU whose disks are ours: its virtio-blk driver is the client, and QEMU the front-end.

mod killed;

use std::ops::Range;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use cryptline_engine::base::DirectMode;
use cryptline_engine::blocking::Blocking;
use cryptline_engine::{BackendChoice, Gate};
use cryptline_serve::vhost_user::{FrontEnds, VhostDisk};
use cryptline_testkit::oracle::{Check, Oracle, Outcomes, judge};
use cryptline_testkit::peer;
use cryptline_testkit::suite::{Fresh, devices};

use crate::common::serving::{Serving, disk, options};
use crate::common::stack;

const SIZE: u64 = 64 << 20;
/// XFS is made no smaller.
const XFS_SIZE: u64 = 320 << 20;
/// The longest zeroing of a medium that does not zero by itself, in bytes.
const ZEROES_MAX: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(200);
/// Programs in the guest.
const TOOLS: [&str; 5] = ["fio", "e2fsck", "blkdiscard", "mkfs.xfs", "xfs_repair"];
/// Message of a server about a disk that has become larger.
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

fn listen(name: &str, socket: &Path, gate: &Gate) -> VhostDisk {
    let front = FrontEnds::Listener(UnixListener::bind(socket).expect("bound"));
    VhostDisk { queues: 2, ..disk(name, gate, front) }
}

/// Everything is durable, and nobody has complained.
fn end_well(mut serving: Serving) {
    assert_eq!(serving.end(), Ok(()));
    assert_eq!(serving.log().iter().find(|line| !line.contains(GROWN)), None);
}

/// The disks of the guest: name, QEMU's properties, and how many queues and which ring its driver finds.
const DISKS: [(&str, &str, u32, u32); 5] = [
    ("encrypted", "packed=off", 2, 0),
    ("readonly", "packed=off", 2, 0),
    ("packed", "packed=on", 2, 1),
    ("growing", "num-queues=1,packed=off", 1, 0),
    ("single", "num-queues=1,packed=on", 1, 1),
];

const GROWTH: &str = "a disk that grows";

/// Purpose of each disk: the case and the disk's name.
const FILE_SYSTEMS: [(&str, &str); 2] =
    [("a file system", "encrypted"), ("a file system through a packed ring", "packed")];

#[test]
fn kernel_oracle_guest_uses_our_disks_as_any_other() {
    let Some(mut oracle) = Oracle::new() else { return };
    let Some(tools) = peer::require_all(TOOLS) else { return };
    for tool in &tools {
        oracle.program(tool);
    }
    // A queue is used by the processors that it is given.
    oracle.memory_mib(768).processors(2);
    let folder = tempfile::tempdir().expect("a folder");
    let over = |base: Fresh| devices::crypt(base, &stack::AES_4096);
    let new = |size| over(stack::file(size, DirectMode::Auto));
    let (file, path) = stack::growing_file(SIZE);
    let volumes = [new(SIZE), over(stack::file_read_only(1 << 20)), new(SIZE), over(file), new(XFS_SIZE)];
    let mut disks = Vec::new();
    for ((name, properties, ..), volume) in DISKS.into_iter().zip(&volumes) {
        let socket = folder.path().join(name);
        disks.push(listen(name, &socket, &volume.gate));
        oracle.vhost_user_with(&socket, properties);
    }
    let serving = Serving::start(disks, options(BackendChoice::Auto, Duration::from_secs(5)));
    let [encrypted, _, packed, growing, _] = &volumes;
    let sectors = growing.gate.size() / 512;
    ask(&mut oracle, sectors);
    let server = killed::ask(&mut oracle, folder.path());
    let (outcomes, killed) = std::thread::scope(|scope| {
        // However the oracle ends, nothing goes on after it.
        let (running, is_over) = mpsc::channel();
        let (serving, is_served) = mpsc::channel();
        let gate = &growing.gate;
        scope.spawn(move || enlarge_when_asked(gate, &path, &is_over));
        let killer = scope.spawn(move || server.kill_until(&is_served));
        let outcomes = oracle.run();
        drop((running, serving));
        (outcomes, killer.join().expect("no panic"))
    });
    let mut checks = vec![
        Check::new("what it is", |outcomes| check_what_it_is(outcomes, &encrypted.gate)),
        Check::new(GROWTH, |outcomes| has_grown(outcomes, &growing.gate, sectors)),
        Check::new(killed::CASE, |outcomes| killed::verify(outcomes, killed)),
    ];
    checks.extend(["a write cache", "another file system", "parts that nobody needs"].map(Check::passes));
    let written = DISKS.iter().filter(|it| it.0 != "readonly");
    checks.extend(written.map(|(name, ..)| Check::passes(&random(name))));
    for ((case, _), volume) in FILE_SYSTEMS.into_iter().zip([encrypted, packed]) {
        checks.push(Check::new(case, |outcomes| is_what_the_guest_saw(outcomes, case, &volume.gate)));
    }
    checks.push(Check::new("end of the server", |_| end_well(serving)));
    judge(checks, &outcomes, Vec::new());
}

fn has_grown(outcomes: &Outcomes, gate: &Gate, sectors: u64) {
    let said = outcomes.passed(GROWTH);
    let new = gate.size();
    assert_eq!(new, sectors * 512 + SIZE);
    let written = sum(gate, (sectors - 104) * 512..(sectors + 896) * 512);
    assert_eq!(said, format!("{}\n{written}  -", new / 512));
}

/// Verifies that our own path reads what the guest has seen last.
fn is_what_the_guest_saw(outcomes: &Outcomes, case: &str, gate: &Gate) {
    let said = outcomes.passed(case);
    let expected = said.lines().last().and_then(|line| line.split(' ').next());
    let sum = sum(gate, 0..gate.size());
    assert_eq!(expected, Some(sum.as_str()), "{said}");
}

/// All cases. `sectors` is the size of the disk that is to grow.
fn ask(oracle: &mut Oracle, sectors: u64) {
    oracle.case("what it is").script(&what_it_is());
    let mut ask = |case: &str, script: &str| {
        oracle.case(case).script(script).timeout(PATIENCE);
    };
    for (name, _, queues, _) in DISKS.into_iter().filter(|it| it.0 != "readonly") {
        ask(&random(name), &random_work(name, queues));
    }
    ask("a write cache", &write_cache());
    ask("parts that nobody needs", &discards());
    for (case, name) in FILE_SYSTEMS {
        ask(case, &file_system(name));
    }
    ask("another file system", &xfs());
    ask(GROWTH, &growth(sectors));
}

fn what_it_is() -> String {
    let features = DISKS.map(|(name, ..)| {
        let find = find(name);
        format!("{find}\ncut -c 35 /sys/block/$disk/device/features; ls /sys/block/$disk/mq | wc -l")
    });
    format!(
        "{}
        cat $queue/logical_block_size $queue/discard_max_bytes $queue/write_zeroes_max_bytes $queue/write_cache
        cat /sys/block/$disk/size
        {}
        cat /sys/block/$disk/ro
        {}",
        find("encrypted"),
        find("readonly"),
        features.join("\n"),
    )
}

fn check_what_it_is(outcomes: &Outcomes, encrypted: &Gate) {
    let sectors = encrypted.geometry().size / 512;
    let block = encrypted.geometry().logical_block;
    let range = 2u64 << 30;
    let mut expected = format!("{block}\n{range}\n{ZEROES_MAX}\nwrite back\n{sectors}\n1");
    for (_, _, queues, ring) in DISKS {
        expected += &format!("\n{ring}\n{queues}");
    }
    assert_eq!(outcomes.passed("what it is"), expected);
}

fn random(name: &str) -> String {
    format!("random work on {name}")
}

/// A job for each processor, and so for each queue, of which each is told of what it has asked.
fn random_work(name: &str, queues: u32) -> String {
    format!(
        "{}
            fio --filename=/dev/$disk --rw=randwrite --bsrange=4k-128k --size=4M --ioengine=libaio --iodepth=16 \
                --direct=1 --verify=crc32c --verify_fatal=1 --minimal --name=a --cpus_allowed=0 \
                --name=b --offset=8M --cpus_allowed=1 >/tmp/fio 2>&1 || {{ cat /tmp/fio >&2; false; }}
            device=$(readlink -f /sys/block/$disk/device)
            for queue in $(seq 0 {}); do
                awk -v name=${{device##*/}}-req.$queue '$NF == name {{ told = $2 + $3 }} END {{ exit told < 20 }}' \
                    /proc/interrupts
            done",
        find(name),
        queues - 1,
    )
}

/// The guest turns it off, which our side is told by the front-end, and on again.
fn write_cache() -> String {
    format!(
        "{}
            cache=/sys/block/$disk/cache_type
            [ \"$(cat $cache)\" = 'write back' ]
            for kind in through back; do
                echo \"write $kind\" >$cache
                [ \"$(cat $cache) $(cat $queue/write_cache)\" = \"write $kind write $kind\" ]
                head -c 1048576 /dev/urandom >/tmp/noise
                dd if=/tmp/noise of=/dev/$disk bs=64k oflag=direct 2>/dev/null
                dd if=/dev/$disk bs=64k count=16 iflag=direct 2>/dev/null | cmp - /tmp/noise
            done",
        find("single"),
    )
}

fn discards() -> String {
    format!(
        "{}
            head -c 4194304 /dev/urandom >/tmp/noise
            dd if=/tmp/noise of=/dev/$disk bs=1M oflag=direct 2>/dev/null
            /sbin/blkdiscard -o 1048576 -l 1048576 /dev/$disk
            /sbin/blkdiscard -z -o 2097152 -l 65536 /dev/$disk
            dd if=/dev/zero of=/tmp/noise bs=64k seek=32 count=1 conv=notrunc 2>/dev/null
            for part in 0 2 3; do
                dd if=/tmp/noise of=/tmp/part bs=1M skip=$part count=1 2>/dev/null
                dd if=/dev/$disk bs=1M skip=$part count=1 iflag=direct 2>/dev/null | cmp - /tmp/part
            done",
        find("single"),
    )
}

/// XFS, which our disk can be the whole of; what it has deleted is discarded at the end.
fn xfs() -> String {
    format!(
        "{}
            modprobe xfs
            mkfs.xfs -q -f /dev/$disk
            mkdir -p /tmp/here
            mount -t xfs /dev/$disk /tmp/here
            head -c 6000000 /dev/urandom >/tmp/here/noise
            cp /tmp/here/noise /tmp/here/copy
            sync
            rm /tmp/here/copy
            fstrim /tmp/here
            sha256sum /tmp/here/noise >/tmp/sums
            umount /tmp/here
            xfs_repair -n /dev/$disk >/tmp/said 2>&1 || {{ cat /tmp/said >&2; false; }}
            mount -t xfs /dev/$disk /tmp/here
            sha256sum -c /tmp/sums
            umount /tmp/here",
        find("single"),
    )
}

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
            fstrim /tmp/here
            cd /tmp/here; sha256sum [1-8] >/tmp/sums; cd /tmp
            umount /tmp/here
            echo 3 >/proc/sys/vm/drop_caches
            mount -t ext4 /dev/$disk /tmp/here
            cd /tmp/here; sha256sum -c /tmp/sums; cmp 1 copy1; cmp 8 copy8; cd /tmp
            umount /tmp/here
            e2fsck -fn /dev/$disk
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
