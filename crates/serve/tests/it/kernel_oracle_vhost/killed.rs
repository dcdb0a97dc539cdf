//! Disks that are served by a process that is killed again and again: the guest sees no error and reads what it wrote.

use std::any::Any;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

use cryptline_engine::base::{DirectMode, Image};
use cryptline_engine::{BackendChoice, Gate};
use cryptline_serve::StopHandle;
use cryptline_serve::vhost_user::{self, VhostDisk};
use cryptline_testkit::oracle::{Oracle, Outcomes};
use cryptline_testkit::peer;
use cryptline_testkit::suite::{Fresh, devices};

use crate::common::serving::options;
use crate::common::stack;

const SIZE: u64 = 64 << 20;
/// Where the process that serves finds its socket and image.
const FOLDER: &str = "CRYPTLINE_VHOST_FOLDER";
/// A server is killed so long after it began, and once both disks have been written to since then.
const LIFE: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(10);

/// The disks, which are called as their rings are.
const NAMES: [&str; 2] = ["killed_split", "killed_packed"];

pub const CASE: &str = "disks whose server is killed";

/// Writes to both disks, reads back and compares, again and again.
const SCRIPT: &str = "
for block in /sys/block/vd*; do
    eval disk_$(cat $block/serial)=${block##*/}
done
fio --rw=randwrite --bsrange=4k-64k --size=4M --loops=3 --ioengine=libaio --iodepth=16 --direct=1 \
    --verify=crc32c --verify_backlog=32 --verify_fatal=1 --minimal \
    --name=split --filename=/dev/$disk_killed_split --cpus_allowed=0 \
    --name=packed --filename=/dev/$disk_killed_packed --cpus_allowed=1 >/tmp/fio 2>&1 || { cat /tmp/fio >&2; false; }
dmesg | grep -i -E 'i/o error|blk_update|virtio.*(id|bad|broken)' && exit 1
cut -c 35 /sys/block/$disk_killed_split/device/features /sys/block/$disk_killed_packed/device/features";

#[test]
#[ignore = "a process of its own, to be killed"]
fn serves_until_it_is_killed() {
    let folder = PathBuf::from(std::env::var(FOLDER).expect("a folder"));
    let served = NAMES.map(|name| open(&folder, name));
    let (disks, _keep): (Vec<_>, Vec<_>) = served.into_iter().unzip();
    let options = options(BackendChoice::Auto, Duration::from_secs(5));
    let server = vhost_user::VhostServer::new(disks, options).expect("a server");
    let stop = StopHandle::new().expect("an eventfd");
    server.run(&stop).expect("it listens").expect("flushed");
}

fn open(folder: &Path, name: &str) -> (VhostDisk, Vec<Box<dyn Any>>) {
    let socket = folder.join(name).with_extension("socket");
    let _ = std::fs::remove_file(&socket);
    let image = Image::open(&folder.join(name), false).expect("an image");
    let device = image.into_device(4096, DirectMode::Auto);
    let gate = Gate::new(device.expect("a device"));
    let over = devices::crypt(Fresh::new(gate), &stack::AES_4096);
    let disk = super::listen(name, &socket, &over.gate);
    (disk, over.keep)
}

fn start(folder: &Path) -> Child {
    let program = std::env::current_exe().expect("a program knows its path");
    let mut command = Command::new(program);
    command
        .args(["--ignored", "--exact", "kernel_oracle_vhost::killed::serves_until_it_is_killed"])
        .env(FOLDER, folder)
        .stdout(Stdio::null());
    command.spawn().expect("a server")
}

/// Tells if the guest has written to this disk since then. A server that is killed while QEMU still speaks with it
/// about the disk is not what is tested here: QEMU may give such a disk up.
fn is_written(folder: &Path, name: &str, since: SystemTime) -> bool {
    let image = std::fs::metadata(folder.join(name)).expect("an image");
    image.blocks() > 0 && image.modified().expect("a time") > since
}

/// The server of the disks, for as long as the oracle runs.
pub struct Server<'a> {
    process: Child,
    folder: &'a Path,
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        // It fails only where the process has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Gives the guest disks in `folder` whose server is killed, and something to do with them.
pub fn ask<'a>(oracle: &mut Oracle, folder: &'a Path) -> Server<'a> {
    for name in NAMES {
        let image = std::fs::File::create(folder.join(name)).expect("an image");
        image.set_len(SIZE).expect("an image");
    }
    let sockets = NAMES.map(|name| folder.join(name).with_extension("socket"));
    let server = Server { process: start(folder), folder };
    let deadline = Instant::now() + Duration::from_secs(30);
    while !sockets.iter().all(|socket| peer::listens(socket)) {
        assert!(Instant::now() < deadline, "no server");
        std::thread::sleep(Duration::from_millis(10));
    }
    oracle.vhost_user(&sockets[0]);
    oracle.vhost_user_with(&sockets[1], "packed=on");
    oracle.case(CASE).script(SCRIPT).timeout(Duration::from_secs(300));
    server
}

impl Server<'_> {
    /// Kills it and starts another again and again until `is_over`; returns how often.
    pub fn kill_until(mut self, is_over: &Receiver<()>) -> u32 {
        let mut killed = 0;
        let mut since = SystemTime::now();
        while is_over.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
            let is_young = since.elapsed().is_ok_and(|age| age < LIFE);
            if is_young || !NAMES.iter().all(|name| is_written(self.folder, name, since)) {
                continue;
            }
            self.process.kill().expect("killed");
            self.process.wait().expect("gone");
            killed += 1;
            since = SystemTime::now();
            self.process = start(self.folder);
        }
        killed
    }
}

/// No error was seen, and there was reason for one.
pub fn verify(outcomes: &Outcomes, killed: u32) {
    assert_eq!(outcomes.passed(CASE), "0\n1", "which ring is packed");
    assert!(killed > 3, "{killed}");
}
