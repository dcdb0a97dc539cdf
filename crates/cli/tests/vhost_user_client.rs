//! `cryptline vhost-user` with a driver that others wrote, libblkio's, and without a machine.
//!
//! ```text
//!   noise ─ virtio-driver ─► cryptline vhost-user ─► LUKS image ─► qemu-img, or cryptline serve: the same noise
//! ```

mod server;

use std::fs;
use std::path::Path;

use cryptline_testkit::blkio::{Client, VirtioFeatureFlags, use_disk};
use cryptline_testkit::peer::{self, Background};
use server::{Disk, READY, SIZE, Server, cryptline, noise};

fn serve(disk: &Disk, check: impl FnOnce(&Path)) {
    let socket = disk.path("socket");
    let mut command = cryptline(["vhost-user", "--num-queues", "2", "--socket-path", &socket]);
    command.arg("--allow-discards").args(disk.arguments());
    let process = Background::spawn(&mut command);
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
    let secret = format!("secret,id=key,file={}", disk.key);
    let encrypted = format!("driver=luks,key-secret=key,file.filename={}", disk.image);
    let raw = format!("driver=raw,file.filename={}", disk.clear);
    let compare = [
        "compare",
        "--object",
        &secret,
        "--image-opts",
        &encrypted,
        &raw,
    ];
    qemu_img.run(compare).success();
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
