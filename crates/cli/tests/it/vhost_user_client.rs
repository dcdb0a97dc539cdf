//! `cryptline vhost-user` with a driver that others wrote, libblkio's, and without a machine.
//!
//! ```text
//!   noise ─ virtio-driver ───────────────┐
//!           blkio/client.c ─ libblkio ───┼─► cryptline vhost-user ─► LUKS image ─► qemu-img, or cryptline serve:
//!           nbdcopy ─ nbdkit, libblkio ──┘                                        the same noise
//! ```
//!
//! libblkio and nbdkit's plugin come from the next Debian.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::server::{Disk, READY, SIZE, Server, cryptline, noise, text};
use cryptline_testkit::blkio::{Client, VirtioFeatureFlags, use_disk};
use cryptline_testkit::oracle::next_release;
use cryptline_testkit::peer::{self, BackgroundProgram, Peer};

fn serve(disk: &Disk, check: impl FnOnce(&Path)) {
    let socket = disk.path("socket");
    let mut command = cryptline(["vhost-user", "--num-queues", "2", "--socket-path", &socket]);
    command.arg("--allow-discards").args(disk.arguments());
    let process = BackgroundProgram::spawn(&mut command);
    let process = process.wait_for_socket(Path::new(&socket), READY);
    check(Path::new(&socket));
    process.stop().success();
}

#[test]
fn qemu_reads_from_a_luks1_disk_what_libblkios_driver_wrote() {
    let Some([cryptsetup, qemu_img]) = peer::require_all(["cryptsetup", "qemu-img"]) else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks1");
    let clear = fs::read(&disk.clear).unwrap();
    serve(&disk, |socket| {
        let news = use_disk(socket, VirtioFeatureFlags::empty(), &clear);
        fs::write(&disk.clear, news).unwrap();
    });
    compare(&qemu_img, &disk);
}

/// Verifies that what qemu reads from a LUKS1 disk is the file with the clear text.
#[track_caller]
fn compare(qemu_img: &Peer, disk: &Disk) {
    let secret = format!("secret,id=key,file={}", disk.key);
    let encrypted = format!("driver=luks,key-secret=key,file.filename={}", disk.image);
    let raw = format!("driver=raw,file.filename={}", disk.clear);
    let compare = ["compare", "--object", &secret, "--image-opts", &encrypted, &raw];
    qemu_img.run(compare).success();
}

/// libblkio, and what uses it.
struct Blkio {
    root: PathBuf,
    libraries: PathBuf,
}

impl Blkio {
    fn unpacked() -> Option<Self> {
        let packages = ["libblkio1", "libblkio-dev", "nbdkit"];
        let root = next_release("blkio", &packages)?;
        let libraries = root.join("usr/lib/x86_64-linux-gnu");
        Some(Self { root, libraries })
    }
}

#[test]
fn qemu_reads_from_a_luks1_disk_what_a_program_over_libblkio_wrote() {
    let peers = peer::require_all(["cryptsetup", "qemu-img", "cc"]);
    let (Some([cryptsetup, qemu_img, cc]), Some(blkio)) = (peers, Blkio::unpacked()) else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks1");
    let program = disk.path("client");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/blkio/client.c");
    let mut build = cc.command();
    build.args(["-O1", "-Wall", "-Wextra", "-Werror", source, "-o", &program]);
    build.arg("-I").arg(blkio.root.join("usr/include"));
    build.arg("-L").arg(&blkio.libraries).arg("-lblkio");
    peer::run(&mut build, READY).success();
    serve(&disk, |socket| {
        let mut client = Command::new(&program);
        client.env("LD_LIBRARY_PATH", &blkio.libraries);
        client.args([&text(socket), &SIZE.to_string(), &disk.clear]);
        peer::run(&mut client, READY).success();
    });
    compare(&qemu_img, &disk);
}

#[test]
fn qemu_reads_from_a_luks1_disk_what_nbdkits_blkio_plugin_wrote() {
    let peers = peer::require_all(["cryptsetup", "qemu-img", "nbdkit", "nbdcopy"]);
    let (Some([cryptsetup, qemu_img, nbdkit, nbdcopy]), Some(blkio)) = (peers, Blkio::unpacked()) else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks1");
    serve(&disk, |socket| {
        let nbd = disk.path("nbd");
        let plugin = blkio.libraries.join("nbdkit/plugins/nbdkit-blkio-plugin.so");
        let mut command = nbdkit.command();
        command.env("LD_LIBRARY_PATH", &blkio.libraries);
        command.args(["--foreground", "--unix", &nbd]).arg(plugin);
        command.arg("driver=virtio-blk-vhost-user");
        command.arg(format!("path={}", text(socket)));
        let process = BackgroundProgram::spawn(&mut command);
        let process = process.wait_for_socket(Path::new(&nbd), READY);
        let uri = format!("nbd+unix:///?socket={nbd}");
        nbdcopy.run(["--flush", &disk.clear, &uri]).success();
        let again = disk.path("again");
        nbdcopy.run([&*uri, &again]).success();
        assert!(fs::read(&again).unwrap() == fs::read(&disk.clear).unwrap());
        process.stop().success();
    });
    compare(&qemu_img, &disk);
}

#[test]
fn libblkios_driver_and_nbd_clients_see_the_same_luks2_disk() {
    let Some([cryptsetup, nbdcopy]) = peer::require_all(["cryptsetup", "nbdcopy"]) else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks2");
    let clear = fs::read(&disk.clear).unwrap();
    let mut news = Vec::new();
    serve(&disk, |socket| {
        let _ = use_disk(socket, VirtioFeatureFlags::RING_EVENT_IDX, &clear);
        // Another driver after the first one, in the same server.
        let clear = noise(SIZE + 4096).split_off(4096);
        news = use_disk(socket, VirtioFeatureFlags::empty(), &clear);
    });
    let server = Server::start(disk.arguments());
    nbdcopy.run([&*server.uri, &disk.clear]).success();
    server.stop();
    assert!(fs::read(&disk.clear).unwrap() == news);
    let clear = noise(SIZE + 8192).split_off(8192);
    fs::write(&disk.clear, &clear).unwrap();
    let server = Server::start(disk.arguments());
    nbdcopy.run(["--flush", &disk.clear, &server.uri]).success();
    server.stop();
    serve(&disk, |socket| {
        let mut client = Client::connect(socket, VirtioFeatureFlags::RING_EVENT_IDX);
        assert!(client.read(SIZE) == clear);
    });
}
