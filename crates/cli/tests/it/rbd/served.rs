//! Operations on an image, or by way of one, while it is served.

use std::fs::{self, File};
use std::io::Write as _;

use cryptline_testkit::ceph::Ceph;
use cryptline_testkit::peer::{self, Peer, run};

use super::{MIB, TIMEOUT, serve, target, wait_until};
use crate::below::{self, Below};
use crate::common::{self, Folder, cryptline};
use crate::server::{self, noise, text};

/// A snapshot is what was flushed before, and removed under its server it is an error: never other bytes.
pub fn snapshot_stays_as_it_is_until_it_is_removed(
    (ceph, folder, qemu_io): (&Ceph, &Folder, &Peer),
    overwrite: impl Fn(),
) {
    ceph.rbd(["snap", "create", "rbd/served@before"]).success();
    overwrite();
    let snapshot = format!("rbd:rbd/served@before?conf={}", ceph.conf().display());
    let old = serve(&snapshot, folder, &["--sandbox=on"]);
    let read = || {
        let same = ["-r", "-f", "raw", "-c", "read -P 7 0 32M", &old.uri];
        let said = qemu_io.run(same);
        let said = said.stdout_text() + &said.stderr_text();
        assert!(!said.contains("verification"), "{said}");
        said.contains("failed")
    };
    assert!(!read());
    ceph.rbd(["snap", "rm", "rbd/served@before"]).success();
    wait_until("the daemons have removed it", read);
    assert!(read(), "it comes back");
    old.stop();
}

/// Bytes that an image takes.
pub fn used(ceph: &Ceph, image: &str) -> u64 {
    let spec = format!("rbd/{image}");
    let du = ceph.rbd(["du", "--format", "json", &spec]).success();
    let du: serde_json::Value = serde_json::from_slice(&du.stdout).expect("JSON");
    du["images"][0]["used_size"].as_u64().expect("a size")
}

/// A file system in the mounted disk gives back what its files have left.
pub fn what_deleted_files_had_is_given_back(ceph: &Ceph, folder: &Folder, image: &str) {
    let peers = ["mkfs.ext4", "debugfs", "e2fsck"];
    let Some([mkfs, debugfs, e2fsck]) = peer::require_all(peers) else {
        return;
    };
    let (point, key) = (folder.path("mnt"), text(&folder.key()));
    fs::create_dir(&point).expect("a mount point");
    let mut command = server::cryptline(["mount", "--foreground", &target(ceph, image)]);
    command.arg(&point).args(["--name", "disk"]);
    // A hole in a file is zeros.
    command.args(["--allow-discards", "--zeroes=detect", "--key-file", &key]);
    let mount = server::ready(&mut command);
    let disk = text(&point.join("disk"));
    let [large, small] = [("large", 40), ("small", 1)].map(|(name, len)| {
        let path = text(&folder.path(name));
        fs::write(&path, noise(len * MIB)).expect("room");
        path
    });
    // Made beside it: those who make file systems write by the block.
    let made = text(&folder.path("made"));
    let size = fs::metadata(&disk).expect("a disk").len();
    let file = File::create(&made).expect("a file");
    file.set_len(size).expect("room");
    mkfs.run(["-q", "-F", &made]).success();
    let change = |command: &str, disk: &str| {
        debugfs.run(["-w", "-R", command, disk]).success();
    };
    change(&format!("write {large} large"), &made);
    change(&format!("write {small} small"), &made);
    let whole = fs::read(&made).expect("it was made");
    let mut file = File::options().write(true).open(&disk).expect("a disk");
    let written = file.write_all(&whole).and_then(|()| file.sync_all());
    written.expect("room");
    let change = |command: &str| {
        change(command, &disk);
        // Whoever looks at the image does not ask our server.
        File::open(&disk).and_then(|disk| disk.sync_all()).expect("a flush");
    };
    let full = used(ceph, image);
    change("rm large");
    assert_eq!(used(ceph, image), full, "nothing was given back yet");
    e2fsck.run(["-f", "-y", "-E", "discard", &disk]).success();
    let left = used(ceph, image);
    assert!(left <= full - (28 << 20), "{full} to {left}");
    let found = text(&folder.path("found"));
    change(&format!("dump small {found}"));
    assert!(fs::read(found).expect("a copy") == noise(MIB));
    mount.stop().success();
}

/// The image through QEMU's server, which is killed: what was flushed is in it.
pub fn is_the_same_through_qemu_nbd(ceph: &Ceph, folder: &Folder, image: &str, key: &str) {
    let peers = ["qemu-nbd", "qemu-block-extra", "qemu-io"];
    let Some([qemu_nbd, _, qemu_io]) = peer::require_all(peers) else {
        return;
    };
    let socket = folder.path("qemu-nbd");
    let mut command = qemu_nbd.command();
    command.args(["-f", "raw", "--persistent", "--shared=0", "--socket"]);
    let name = format!("rbd:rbd/{image}:conf={}", ceph.conf().display());
    let mut below = Below::start(command.arg(&socket).arg(name), socket);
    let server = below::serve(&below.uri(), key, &[]);
    let write = ["-f", "raw", "-c", "write -P 5 1M 3M", "-c", "flush"];
    qemu_io.run(write.iter().chain([&&*server.uri])).success();
    below.process.kill();
    let _ = server.process.stop();

    let copy = text(&folder.path("through"));
    let target = target(ceph, image);
    let mut command = common::command();
    command.args(["copy", &target, &copy, "--key-file", key]);
    run(&mut command, TIMEOUT).success();
    let copy = fs::read(copy).expect("a copy");
    assert!(copy[MIB..4 * MIB].iter().all(|byte| *byte == 5));
    cryptline(["open", "--check", &target, "--key-file", key]).success();
}
