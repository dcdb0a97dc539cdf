//! The promises of a server while it starts and while it ends. The rest of them is in ../cases.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::server::{Disk, READY, Server, socket_of, wait_until};
use cryptline_testkit::peer::{self, BackgroundProgram};
use rustix::process::Signal;

/// Writes block after block, each told apart by its number; prints how many were acknowledged.
const WRITE_UNTIL_IT_FAILS: &str = "
import nbd, struct, sys
h = nbd.NBD()
h.connect_uri(sys.argv[1])
done = 0
try:
    while done < 2048:
        h.pwrite(struct.pack('<Q', done) * 512, done * 4096)
        done += 1
        if done == 64:
            print('started', flush=True)
except nbd.Error:
    pass
print(done, flush=True)
";

#[test]
fn what_was_acknowledged_before_sigterm_is_on_the_disk() {
    let peers = ["cryptsetup", "nbdcopy", "python3-libnbd"];
    let Some([cryptsetup, nbdcopy, python]) = peer::require_all(peers) else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks2");
    let server = Server::start(disk.arguments());
    let mut client = python.command();
    client.args(["-c", WRITE_UNTIL_IT_FAILS, &server.uri]);
    let mut client = BackgroundProgram::spawn(&mut client);
    wait_until("the client writes", || client.stdout_text().contains("started"));
    server.stop();
    assert!(client.wait(READY).is_some());
    let client = client.collect().success();
    let acknowledged: u64 = client.stdout_text().lines().last().unwrap().parse().unwrap();
    assert!(acknowledged >= 64, "{client}");

    let server = Server::start(disk.arguments().into_iter().chain(["-r"]));
    let copy = disk.path("copy");
    nbdcopy.run([&server.uri, &copy]).success();
    server.stop();
    let copy = fs::read(copy).unwrap();
    for (block, number) in copy.chunks(4096).zip(0..acknowledged) {
        assert!(block == number.to_le_bytes().repeat(512), "block {number} is lost");
    }
}

/// Asks for more than it will ever read.
const ASK_AND_DO_NOT_READ: &str = "
import nbd, sys, time
h = nbd.NBD()
h.connect_uri(sys.argv[1])
# So that it is served before the server is told to stop.
h.pread(512, 0)
for i in range(8):
    h.aio_pread(nbd.Buffer(16 << 20), 0)
print('asked', flush=True)
time.sleep(60)
";

#[test]
fn a_second_signal_does_not_wait_for_clients() {
    let Some(python) = peer::require("python3-libnbd") else {
        return;
    };
    let mut server = Server::start(["ram:64M"]);
    let folder = socket_of(&server.uri).parent().unwrap().to_owned();
    let mut client = python.command();
    client.args(["-c", ASK_AND_DO_NOT_READ, &server.uri]);
    let client = BackgroundProgram::spawn(&mut client);
    wait_until("the client has asked", || client.stdout_text().contains("asked"));
    let started = Instant::now();
    server.process.signal(Signal::TERM);
    assert!(server.process.wait(Duration::from_millis(500)).is_none(), "no grace");
    server.process.signal(Signal::TERM);
    assert!(server.process.wait(READY).is_some());
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    assert!(!folder.exists());
}

/// There is no moment in which another user could connect: the socket is made with its mode.
#[test]
fn a_socket_is_never_open_to_others_while_it_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let script = "umask 000; for turn in 1 2 3 4 5 6 7 8 9 10; do \"$0\" serve ram:1M -U \"$1\" --run true; done";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_cryptline")]).arg(&socket);
    let mut servers = BackgroundProgram::spawn(&mut command);
    let (mut widest, mut looks) = (0, 0);
    while servers.wait(Duration::ZERO).is_none() {
        for found in (0..1000).filter_map(|_| fs::symlink_metadata(&socket).ok()) {
            (widest, looks) = (widest | found.mode() & 0o077, looks + 1);
        }
    }
    servers.collect().success();
    assert!(looks > 0 && widest == 0, "{looks} {widest:o}");
}
