//! How a server starts, is told to end, and ends.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::server::{Disk, READY, Server, cryptline, run, socket_of, text, wait_until};
use cryptline_testkit::peer::{self, Background};
use rustix::process::Signal;

#[test]
fn run_has_the_uri_and_gives_its_exit_status() {
    let Some(nbdinfo) = peer::require("nbdinfo") else {
        return;
    };
    let script = format!("'{}' --size \"$uri\" && exit 7", nbdinfo.path().display());
    let ended = run(["serve", "ram:3M", "-e", "a b", "--run", &script]).exited_with(7);
    assert_eq!(ended.stdout_text(), format!("{}\n", 3 << 20));
    assert_eq!(ended.stderr_text(), "");

    let script = "printf '%s|' \"$nbd\" \"$unixsocket\" \"$port\" \"$exportname\" \"$tls\"";
    let said = run(["serve", "ram:1M", "-e", "a b", "-p0", "--run", script]).success();
    let said = said.stdout_text();
    let fields: Vec<_> = said.split('|').collect();
    assert_eq!(fields[0], format!("nbd:127.0.0.1:{}", fields[2]));
    assert_eq!((fields[1], &fields[3..5]), ("", &["a b", "off"][..]));

    let killed = run(["serve", "ram:1M", "--run", "kill -9 $$"]);
    assert_eq!(killed.exited_with(128 + 9).stdout_text(), "");
}

#[test]
fn a_signal_to_the_server_ends_the_command_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let started = text(&folder.path().join("started"));
    let script = format!("touch '{started}'; exec sleep 100");
    let process = Background::spawn(&mut cryptline(["serve", "ram:1M", "--run", &script]));
    let process = process.wait_for_path(Path::new(&started), READY);
    let ended = process.stop();
    assert!(ended.elapsed < Duration::from_secs(20), "{ended}");
    ended.exited_with(128 + 15);
}

#[test]
fn pid_file_and_socket_appear_only_when_clients_can_connect() {
    let Some([cryptsetup, nbdinfo]) = peer::require_all(["cryptsetup", "nbdinfo"]) else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks2");
    let (fifo, pidfile, socket) = (disk.path("fifo"), disk.path("pid"), disk.path("socket"));
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let arguments = ["serve", &disk.image, "--key-file", &fifo, "-P", &pidfile, "-U", &socket];
    let process = Background::spawn(&mut cryptline(arguments));
    // The server waits for its key: nobody can connect, and nothing says otherwise.
    std::thread::sleep(Duration::from_millis(300));
    assert!(!Path::new(&pidfile).exists() && !Path::new(&socket).exists());
    fs::write(&fifo, fs::read(&disk.key).unwrap()).unwrap();
    let process = process.wait_for_path(Path::new(&pidfile), READY);
    let uri = format!("nbd+unix:///?socket={socket}");
    nbdinfo.run(["--size", &uri]).success();
    let id = fs::read_to_string(&pidfile).unwrap();
    assert_eq!(id, format!("{}\n", process.id()));
    process.stop().success();
    assert!(!Path::new(&pidfile).exists() && !Path::new(&socket).exists());
}

#[test]
fn the_service_manager_is_told_of_start_and_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(READY)).unwrap();
    let received = || {
        let mut message = [0; 64];
        let length = manager.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..length]).into_owned()
    };
    let mut command = cryptline(["serve", "ram:1M"]);
    let mut process = Background::spawn(command.env("NOTIFY_SOCKET", &path));
    assert_eq!(received(), "READY=1");
    process.signal(Signal::TERM);
    assert_eq!(received(), "STOPPING=1");
    assert!(process.wait(READY).is_some());
    process.collect().success();
}

#[test]
fn every_polite_signal_ends_the_server_cleanly() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        let mut server = Server::start(["ram:1M"]);
        server.process.signal(signal);
        let status = server.process.wait(READY);
        assert_eq!(status.and_then(|status| status.code()), Some(0), "{signal:?}");
    }
}

#[test]
fn a_signal_that_the_parent_ignores_is_ignored() {
    let mut command = Command::new("sh");
    let script = "trap '' HUP; exec \"$0\" serve ram:1M";
    command.args(["-c", script, env!("CARGO_BIN_EXE_cryptline")]);
    let mut server = Server::spawn(&mut command);
    server.process.signal(Signal::HUP);
    assert!(server.process.wait(Duration::from_millis(300)).is_none());
    server.stop();
}

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
    let mut client = Background::spawn(&mut client);
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

#[test]
fn a_failed_last_flush_is_exit_code_4() {
    let Some([cryptsetup, nbdcopy]) = peer::require_all(["cryptsetup", "nbdcopy"]) else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks2");
    let fault = ["--fault", "flush:nth=1"];
    let server = Server::start(disk.arguments().into_iter().chain(fault));
    nbdcopy.run([&disk.clear, &server.uri]).success();
    let ended = server.process.stop().exited_with(4);
    let said = ended.stderr_text();
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(lines[0].contains("no flush succeeds"), "{said}");
    assert!(lines[1].contains("the last flush failed"), "{said}");
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
    let client = Background::spawn(&mut client);
    wait_until("the client has asked", || client.stdout_text().contains("asked"));
    let started = Instant::now();
    server.process.signal(Signal::TERM);
    assert!(server.process.wait(Duration::from_millis(500)).is_none(), "no grace");
    server.process.signal(Signal::TERM);
    assert!(server.process.wait(READY).is_some());
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    assert!(!folder.exists());
}

#[test]
fn the_server_ends_with_its_parent() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    // The shell ends as soon as the server is up.
    let script = "\"$0\" serve ram:1M --exit-with-parent -U \"$1\" >/dev/null 2>&1 &
        while ! test -S \"$1\"; do sleep 0.05; done";
    let mut parent = Command::new("sh");
    parent.args(["-c", script, env!("CARGO_BIN_EXE_cryptline")]).arg(&socket);
    peer::run(&mut parent, READY).success();
    wait_until("the socket is gone", || !socket.exists());
}

/// There is no moment in which another user could connect: the socket is made with its mode.
#[test]
fn a_socket_is_never_open_to_others_while_it_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let script = "umask 000; for turn in 1 2 3 4 5 6 7 8 9 10; do \"$0\" serve ram:1M -U \"$1\" --run true; done";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_cryptline")]).arg(&socket);
    let mut servers = Background::spawn(&mut command);
    let (mut widest, mut looks) = (0, 0);
    while servers.wait(Duration::ZERO).is_none() {
        for found in (0..1000).filter_map(|_| fs::symlink_metadata(&socket).ok()) {
            (widest, looks) = (widest | found.mode() & 0o077, looks + 1);
        }
    }
    servers.collect().success();
    assert!(looks > 0 && widest == 0, "{looks} {widest:o}");
}
