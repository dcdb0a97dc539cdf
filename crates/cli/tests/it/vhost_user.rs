//! `cryptline vhost-user`: how it starts, what it says, and how it ends. What it does for a machine is proved where
//! its server is.

#[path = "../../../serve/tests/it/common/vhost.rs"]
#[allow(dead_code, reason = "the server's own tests use the rest")]
mod vhost;

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::Folder;
use crate::server::{READY, cryptline, run, text, value};
use cryptline_testkit::peer::BackgroundProgram;
use vhost::{Asked, Driver};

/// Returns what the server answers to a message without payload: a number.
fn ask(mut stream: &UnixStream, request: u32) -> u64 {
    stream.set_read_timeout(Some(READY)).unwrap();
    let message = [request, 1, 0].map(u32::to_ne_bytes).concat();
    stream.write_all(&message).unwrap();
    let mut reply = [0; 20];
    stream.read_exact(&mut reply).unwrap();
    u64::from_ne_bytes(reply[12..].try_into().unwrap())
}

const GET_FEATURES: u32 = 1;
const GET_QUEUE_NUM: u32 = 17;
const READ_ONLY: u64 = 1 << 5;

#[test]
fn each_target_has_its_socket_until_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let [one, two] = ["one", "two"].map(|name| text(&folder.path().join(name)));
    let arguments =
        ["vhost-user", "ram:1M", "ram:2M", "--socket-path", &one, "--socket-path", &two, "--num-queues", "3", "-v"];
    let process = BackgroundProgram::spawn(&mut cryptline(arguments));
    let process = process.wait_for_socket(Path::new(&two), READY);
    for path in [&one, &two] {
        let stream = UnixStream::connect(path).unwrap();
        assert_eq!(ask(&stream, GET_FEATURES) & READ_ONLY, 0);
        assert_eq!(ask(&stream, GET_QUEUE_NUM), 3);
    }
    // The machine that comes after the first.
    let stream = UnixStream::connect(&one).unwrap();
    assert_eq!(ask(&stream, GET_QUEUE_NUM), 3);
    let ended = process.stop().success();
    assert_eq!(value(&ended.stdout_text(), "socket"), one);
    let said = ended.stderr_text();
    for hint in ["share=on", "access mode='shared'", "shared=on", "num-queues=3"] {
        assert!(said.contains(hint), "{said}");
    }
    assert!(!Path::new(&one).exists() && !Path::new(&two).exists());
}

#[test]
fn inherited_connection_is_served_until_it_is_closed() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let program = env!("CARGO_BIN_EXE_cryptline");
    let script = format!("exec '{program}' vhost-user ram:1M --fd 3 3<&0 0</dev/null >/dev/null");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]);
    shell.stdin(Stdio::from(OwnedFd::from(theirs)));
    let mut child = shell.spawn().unwrap();
    drop(shell);
    assert_eq!(ask(&ours, GET_QUEUE_NUM), 1);
    drop(ours);
    assert!(child.wait().unwrap().success());
}

#[test]
fn descriptor_that_no_machine_can_be_at_is_refused() {
    let program = env!("CARGO_BIN_EXE_cryptline");
    let refused = |first: Stdio, why: &str| {
        let script = format!("exec '{program}' vhost-user ram:1M --fd 3 3<&0 0</dev/null");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).stdin(first);
        let output = shell.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("--fd 3") && said.contains(why), "{said}");
    };
    refused(Stdio::null(), "not a socket");
    let datagrams = std::os::unix::net::UnixDatagram::pair().unwrap().0;
    refused(OwnedFd::from(datagrams).into(), "not a Unix stream socket");
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    refused(OwnedFd::from(tcp).into(), "not a Unix stream socket");
}

fn asked(kind: u32, to_device: &[u8], to_driver: u64) -> Asked<'_> {
    Asked { kind, sector: 0, to_device, to_driver }
}

#[test]
fn machine_finds_the_name_that_was_chosen_and_a_disk_that_takes_no_write() {
    const READ: u32 = 0;
    const WRITE: u32 = 1;
    const NAME: u32 = 8;
    let folder = Folder::new();
    let places = [folder.luks2(), folder.key(), folder.path("socket"), folder.path("stats")];
    let [image, key, socket, stats] = places.map(|path| text(&path));
    let arguments = [
        &["vhost-user", &image, "--key-file", &key][..],
        &["--socket-path", &socket, "--stats", &stats],
        &["--serial", "a disk of mine", "--read-only"],
    ];
    let process = BackgroundProgram::spawn(&mut cryptline(arguments.concat()));
    let process = process.wait_for_socket(Path::new(&socket), READY);
    let mut driver = Driver::start(UnixStream::connect(&socket).unwrap());
    assert_ne!(driver.front.ask_number(GET_FEATURES) & READ_ONLY, 0);
    let (status, _, name) = driver.run(&asked(NAME, &[], 20));
    assert_eq!((status, &name[..]), (0, &b"a disk of mine\0\0\0\0\0\0"[..]));
    assert_eq!(driver.run(&asked(WRITE, &[1; 4096], 0)).0, 1);
    assert_eq!(driver.run(&asked(READ, &[], 4096)).0, 0);
    let said = run(["top", "--once", "--json", &stats]).success();
    let line: serde_json::Value = serde_json::from_str(&said.stdout_text()).unwrap();
    let export = &line["exports"][0];
    assert_eq!(export["connections"], 1, "{line}");
    assert_eq!(export["operations"]["read"]["bytes"], 4096, "{line}");
    drop(driver);
    process.stop().success();
    assert!(!Path::new(&stats).exists());
}

#[test]
fn socket_of_another_server_is_left_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let [socket, file] = ["socket", "file"].map(|name| text(&folder.path().join(name)));
    let serve = |path: &str| cryptline(["vhost-user", "ram:1M", "--socket-path", path]);
    let process = BackgroundProgram::spawn(&mut serve(&socket));
    let process = process.wait_for_socket(Path::new(&socket), READY);
    let refused = cryptline_testkit::peer::run(&mut serve(&socket), READY).exited_with(5);
    let said = refused.stderr_text();
    assert!(said.lines().count() == 1 && said.contains(&socket), "{refused}");
    let stream = UnixStream::connect(&socket).unwrap();
    assert_eq!(ask(&stream, GET_QUEUE_NUM), 1);
    drop(stream);
    // Nor is a file taken for what a server has left.
    std::fs::write(&file, "mine").unwrap();
    let refused = cryptline_testkit::peer::run(&mut serve(&file), READY);
    assert!(!refused.status.success() && refused.stderr_text().contains(&file), "{refused}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    process.stop().success();
}
