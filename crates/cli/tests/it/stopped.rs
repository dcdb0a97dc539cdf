//! Programs that are stopped and go on again and again, as by job control or a debugger that attaches: a socket with a
//! timeout then says that it was interrupted, without any handler (signal(7)). Nobody else notices.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::below::TIMEOUT;
use crate::common::CHEAP;
use crate::mount::can_mount;
use crate::server::{Disk, READY, Server, cryptline, run, socket_of, text, wait_until};
use cryptline_testkit::nudged::Nudged;
use cryptline_testkit::peer::{self, BackgroundProgram};
use cryptline_testkit::pki::Pki;

/// Waits until it has been stopped some times more.
#[track_caller]
fn goes_on(nudged: &Nudged) {
    let before = nudged.stops();
    wait_until("it was stopped", || nudged.stops() > before + 3);
}

/// A client that says each word of its handshake after the server was stopped, while that waits for it.
fn speaks_slowly(nudged: &Nudged, socket: &Path) {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    stream.set_read_timeout(Some(READY)).expect("a socket");
    let mut greeting = [0; 18];
    goes_on(nudged);
    stream.read_exact(&mut greeting).expect("a greeting");
    assert_eq!(greeting[..8], *b"NBDMAGIC");
    goes_on(nudged);
    stream.write_all(&3_u32.to_be_bytes()).expect("it is there");
    // NBD_OPT_LIST, in two pieces.
    goes_on(nudged);
    stream.write_all(b"IHAVE").expect("it is there");
    goes_on(nudged);
    stream.write_all(b"OPT\0\0\0\x03\0\0\0\0").expect("it is there");
    let mut reply = [0; 20];
    stream.read_exact(&mut reply).expect("a reply");
    assert_eq!(reply[..8], 0x0003_e889_0455_65a9_u64.to_be_bytes());
}

#[test]
fn clients_do_not_notice_that_the_server_is_stopped_and_goes_on() {
    let Some([cryptsetup, nbdcopy, openssl]) = peer::require_all(["cryptsetup", "nbdcopy", "openssl"]) else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks2");
    let pki = Pki::new(&openssl);
    let [control, stats, metrics, found] = ["control", "stats", "metrics", "found"].map(|name| disk.path(name));
    let http = format!("--metrics=unix:{metrics}");
    let options = ["--control", &control, "--stats", &stats, &http, "--tls=on", &pki.option()].map(str::to_owned);
    let server = Server::start(disk.arguments().into_iter().chain(options.iter().map(String::as_str)));
    let nudged = Nudged::new(&server.process);
    speaks_slowly(&nudged, &socket_of(&server.uri));
    let secure = server.uri.replacen("nbd+unix", "nbds+unix", 1)
        + &format!("&tls-certificates={}&tls-hostname=localhost", pki.path());
    for uri in [&server.uri, &secure] {
        nbdcopy.run(["--flush", &disk.clear, uri]).success();
        nbdcopy.run([uri, &*found]).success();
        let written = fs::read(&disk.clear).expect("a clear text");
        assert!(fs::read(&found).expect("a copy")[..written.len()] == written);
    }
    for _ in 0..5 {
        run(["ctl", &control, "list"]).success();
        run(["ctl", &control, "flush"]).success();
        run(["top", "--once", &stats]).success();
        assert!(said(&nudged, &metrics, [b"GET /metrics HTT", b"P/1.0\r\n\r\n"]).starts_with(b"HTTP/1.1 200"));
    }
    drop(nudged);
    let said = server.stop();
    assert!(!said.stderr_text().contains("nterrupted"), "{said}");
}

#[test]
fn machine_does_not_notice_that_its_server_is_stopped_and_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("socket");
    let path = text(&socket);
    let server =
        BackgroundProgram::spawn(&mut cryptline(["vhost-user", "ram:1M", "--num-queues=3", "--socket-path", &path]));
    let server = server.wait_for_socket(&socket, READY);
    let nudged = Nudged::new(&server);
    // VHOST_USER_GET_QUEUE_NUM, and its answer of eight bytes.
    let answer = said(&nudged, &path, [&[17, 0, 0, 0, 1, 0], &[0, 0, 0, 0, 0, 0]]);
    assert_eq!(answer[12..], 3_u64.to_ne_bytes());
    drop(nudged);
    server.stop().success();
}

/// Returns what is answered to these words, of which the second comes after the server was stopped and went on.
#[track_caller]
fn said(nudged: &Nudged, socket: &str, words: [&[u8]; 2]) -> Vec<u8> {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    stream.set_read_timeout(Some(READY)).expect("a socket");
    for word in words {
        goes_on(nudged);
        stream.write_all(word).expect("it is there");
    }
    goes_on(nudged);
    let mut answer = vec![0; 20];
    stream.read_exact(&mut answer).expect("an answer");
    answer
}

#[test]
fn mounted_disk_is_written_and_ended_while_its_server_is_stopped_and_goes_on() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("disk");
    fs::write(&file, "").expect("room");
    let point = text(&file);
    let server = BackgroundProgram::spawn(&mut cryptline(["mount", "--foreground", "ram:8M", &point]));
    let server = server.wait_until(READY, || fs::metadata(&file).is_ok_and(|found| found.len() == 8 << 20));
    let nudged = Nudged::new(&server);
    let bytes = crate::server::noise(4 << 20);
    let mut disk = fs::OpenOptions::new().read(true).write(true).open(&file).expect("a disk");
    disk.write_all(&bytes).expect("room");
    disk.sync_all().expect("durable");
    drop(disk);
    assert!(fs::read(&file).expect("a disk")[..bytes.len()] == bytes);
    let mut ends = BackgroundProgram::spawn(&mut cryptline(["umount", &point]));
    let too = Nudged::new(&ends);
    let status = ends.wait(TIMEOUT).expect("it ends");
    assert!(status.success(), "{}", ends.collect());
    drop((nudged, too));
    server.stop().success();
}

/// Runs the program to its end, stopped again and again.
#[track_caller]
fn nudge(arguments: &[&str]) {
    let mut process = BackgroundProgram::spawn(&mut cryptline(arguments.iter().copied()));
    let nudged = Nudged::new(&process);
    let status = process.wait(TIMEOUT).expect("it ends");
    drop(nudged);
    assert!(status.success(), "{arguments:?}:\n{}", process.collect());
}

#[test]
fn what_takes_long_ends_as_ever_though_it_is_stopped_and_goes_on() {
    let Some([cryptsetup, nbdkit, openssl]) = peer::require_all(["cryptsetup", "nbdkit", "openssl"]) else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks1");
    let pki = Pki::new(&openssl);
    let [made, clear, again, socket] = ["made", "clear-again", "from-server", "below"].map(|name| disk.path(name));
    let key = ["--key-file", &disk.key];
    nudge(&[&["create", &made, "--from", &disk.clear, "--verify"][..], &key, &CHEAP].concat());
    nudge(&[&["key", "add", &made, "--new-key-file", &disk.clear, "--new-keyfile-size=32"][..], &key].concat());
    nudge(&[&["copy", &made, &clear, "--verify"][..], &key].concat());
    let written = fs::read(&disk.clear).expect("a clear text");
    assert!(fs::read(&clear).expect("a copy") == written);
    // A server that takes its time for each greeting, in the clear and through TLS.
    for (name, words) in [("nbd", None), ("nbds", Some(["--tls=require".to_owned(), pki.option()]))] {
        let mut command = nbdkit.command();
        command.args(["--foreground", "--exit-with-parent", "--unix", &socket]).args(words.iter().flatten());
        command.args(["--filter=delay", "file", &made, "delay-open=200ms", "delay-read=1ms"]);
        let below = BackgroundProgram::spawn(&mut command).wait_for_socket(Path::new(&socket), READY);
        let tls = format!("&tls-certificates={}&tls-hostname=localhost", pki.path());
        let tls = if words.is_some() { &*tls } else { "" };
        nudge(&[&["copy", &format!("{name}+unix:///?socket={socket}{tls}"), &again][..], &key].concat());
        assert!(fs::read(&again).expect("a copy") == written);
        fs::remove_file(&again).expect("it is there");
        below.stop();
        let _ = fs::remove_file(&socket);
    }
}
