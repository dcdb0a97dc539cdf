//! What is done to an image, or by way of one, while it is served.

use std::fs;

use cryptline_testkit::ceph::Ceph;
use cryptline_testkit::peer::{self, Peer, run};

use super::below::{self, Below};
use super::common::{self, Folder, cryptline};
use super::server::text;
use super::{MIB, TIMEOUT, serve, target, wait_until};

/// A snapshot is what was flushed before, and removed under its server it is an error: never other bytes.
pub fn snapshot_stays_as_it_is_until_it_is_removed(
    (ceph, folder, qemu_io): (&Ceph, &Folder, &Peer),
    overwrite: impl Fn(),
) {
    ceph.rbd(["snap", "create", "rbd/disk@before"]).success();
    overwrite();
    let snapshot = format!("rbd:rbd/disk@before?conf={}", ceph.conf().display());
    let old = serve(&snapshot, folder, &["--sandbox=on"]);
    let read = || {
        let same = ["-r", "-f", "raw", "-c", "read -P 7 0 32M", &old.uri];
        let said = qemu_io.run(same);
        let said = said.stdout_text() + &said.stderr_text();
        assert!(!said.contains("verification"), "{said}");
        said.contains("failed")
    };
    assert!(!read());
    ceph.rbd(["snap", "rm", "rbd/disk@before"]).success();
    wait_until("the daemons have removed it", read);
    assert!(read(), "it comes back");
    old.stop();
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
