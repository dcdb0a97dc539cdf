//! Log of a server: for people, for programs, for the journal; in the sandbox, as always.

use crate::server;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::Command;

use crate::server::{Disk, READY, SIZE, Server, socket_of, text, wait_until};
use cryptline_testkit::peer;
use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use rustix::process::Signal;
use serde_json::Value;

/// Every line of a log in JSON.
#[track_caller]
fn objects(log: &str) -> Vec<Value> {
    let object = |line| match serde_json::from_str::<Value>(line) {
        Ok(object @ Value::Object(_)) => object,
        other => panic!("{other:?} in {line}\n{log}"),
    };
    log.lines().map(object).collect()
}

/// Those that tell of this.
fn of(events: &[Value], event: &str) -> Vec<Value> {
    let found = events.iter().filter(|it| it["event"] == event);
    found.cloned().collect()
}

#[test]
fn json_tells_of_the_key_slot_and_of_clients_with_their_bytes() {
    let Some([cryptsetup, nbdcopy]) = peer::require_all(["cryptsetup", "nbdcopy"]) else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks2");
    let log = ["--log=json", "--log-level=info", "--port=0", "--export-name=d"];
    let server = Server::start(disk.arguments().into_iter().chain(log));
    nbdcopy.run([&disk.clear, &server.uri]).success();
    let copy = disk.path("copy");
    nbdcopy.run([&server.uri, &copy]).success();
    let said = server.stop().stderr_text();
    let events = objects(&said);
    let opened = &of(&events, "opened")[0];
    assert_eq!((&opened["key_slot"], &opened["kind"]), (&0.into(), &"LUKS2".into()));
    assert_eq!(opened["source"], *disk.image);
    let (began, ended) = (of(&events, "connected"), of(&events, "disconnected"));
    assert!(!began.is_empty() && began.len() == ended.len(), "{said}");
    let sum = |field: &str| ended.iter().map(|it| it[field].as_u64().unwrap()).sum::<u64>();
    assert_eq!(sum("bytes_written"), SIZE as u64, "{said}");
    assert_eq!((sum("bytes_read"), sum("errors")), (SIZE as u64, 0), "{said}");
    for event in began.iter().chain(&ended) {
        assert_eq!((&event["export"], &event["tls"]), (&"d".into(), &false.into()));
        assert!(event["place"].as_str().unwrap().starts_with("127.0.0.1:"));
        assert_eq!(event["level"], "info");
        let time = event["time"].as_str().unwrap();
        assert!(time.starts_with("20") && time.ends_with('Z'), "{time}");
    }
    assert!(!said.contains("correct horse"));
}

#[test]
fn without_options_only_those_who_are_refused_are_told_of() {
    let Some(nbdinfo) = peer::require("nbdinfo") else {
        return;
    };
    let server = Server::start(["ram:1M"]);
    nbdinfo.run(["--size", &server.uri]).success();
    nbdinfo.run(["--list", &server.uri]).success();
    for _ in 0..3 {
        // As a health check does.
        drop(UnixStream::connect(socket_of(&server.uri)).unwrap());
    }
    let wrong = server.uri.replacen(":///", ":///nothing", 1);
    assert!(!nbdinfo.run(["--size", &wrong]).status.success());
    let said = server.stop().stderr_text();
    let is_told = said.contains("(user ") && said.contains("): refused: the export \"nothing\" does not exist");
    assert!(is_told && said.lines().count() == 1, "{said}");
}

/// A client that has read beyond the longest read that there may be, as an old QEMU does, and leaves.
fn ask_for_too_much(server: &Server) {
    let mut socket = UnixStream::connect(socket_of(&server.uri)).unwrap();
    socket.read_exact(&mut [0; 18]).unwrap();
    // EXPORT_NAME, which takes the name for the rest.
    let hello = [&1u32.to_be_bytes()[..], b"IHAVEOPT", &1u32.to_be_bytes(), &0u32.to_be_bytes()];
    socket.write_all(&hello.concat()).unwrap();
    socket.read_exact(&mut [0; 8 + 2 + 124]).unwrap();
    let request = |command: u32, length: u32| {
        let cookie_and_offset = [0; 16];
        [&0x2560_9513_u32.to_be_bytes()[..], &command.to_be_bytes(), &cookie_and_offset, &length.to_be_bytes()].concat()
    };
    socket.write_all(&request(0, 64 << 20)).unwrap();
    let mut reply = [0; 16];
    socket.read_exact(&mut reply).unwrap();
    assert_eq!(reply[4..8], 22u32.to_be_bytes(), "EINVAL");
    socket.write_all(&request(2, 0)).unwrap();
    assert_eq!(socket.read(&mut reply).unwrap(), 0);
}

#[test]
fn farewells_of_a_client_and_of_the_server_say_how_it_went() {
    let server = Server::start(["ram:64M", "--log=json", "--log-level=info", "--socket-mode=600"]);
    ask_for_too_much(&server);
    let ended = server.process.stop().exited_with(0);
    let events = objects(&ended.stderr_text());
    let left = &of(&events, "disconnected")[0];
    assert_eq!(left["errors"], 1, "{ended}");
    assert!(left["message"].as_str().unwrap().ends_with("0 bytes read, 0 written, 1 requests failed"), "{ended}");
    assert_eq!(of(&events, "stopping")[0]["signal"], "SIGTERM");
    let stopped = &of(&events, "stopped")[0];
    assert_eq!((&stopped["signal"], &stopped["exit_code"]), (&"SIGTERM".into(), &0.into()));
    assert_eq!(stopped["message"], "stopped by SIGTERM; all exports flushed");
}

#[test]
fn server_whose_last_flush_failed_does_not_say_that_all_are_flushed() {
    let fault = ["--fault", "flush:after=0"];
    let server = Server::start(["ram:1M", "--log=json", "--log-level=info"].into_iter().chain(fault));
    let ended = server.process.stop().exited_with(4);
    let stopped = &of(&objects(&ended.stderr_text()), "stopped")[0];
    assert_eq!((&stopped["signal"], &stopped["exit_code"]), (&"SIGTERM".into(), &4.into()));
    let message = stopped["message"].as_str().unwrap();
    assert!(
        message.starts_with("stopped by SIGTERM; export \"") && message.contains("the last flush failed"),
        "{ended}"
    );
}

/// A client that asks for an export of this name, and leaves when it is refused.
fn ask_for(server: &Server, name: &[u8]) {
    let mut socket = UnixStream::connect(socket_of(&server.uri)).unwrap();
    let mut greeting = [0; 18];
    socket.read_exact(&mut greeting).unwrap();
    let length = u32::try_from(name.len()).unwrap();
    let mut go = 3u32.to_be_bytes().to_vec();
    go.extend(b"IHAVEOPT");
    go.extend(7u32.to_be_bytes());
    go.extend((length + 6).to_be_bytes());
    go.extend(length.to_be_bytes());
    go.extend(name);
    go.extend(0u16.to_be_bytes());
    socket.write_all(&go).unwrap();
    let mut reply = [0; 20];
    socket.read_exact(&mut reply).unwrap();
    assert_eq!(reply[12..16], 0x8000_0006_u32.to_be_bytes(), "unknown");
}

#[test]
fn names_that_clients_send_forge_no_lines() {
    let forged = "x\n<0>panic\ncryptline: forged\r{\"event\":\"opened\"}\u{1b}[2J\u{85}\u{2028}";
    let long = forged.repeat(4096 / forged.len());
    for format in ["--log=json", "--log=text"] {
        let server = Server::start(["ram:1M", format, "--log-level=info"]);
        for name in [forged.as_bytes(), long.as_bytes(), &[b'\n', 0xff, 0, 0x9b]] {
            ask_for(&server, name);
        }
        let refused = || {
            let said = server.process.stderr_text();
            said.matches("does not exist").count()
        };
        wait_until("all are told of", || refused() >= 3);
        let said = server.stop().stderr_text();
        assert!(said.contains("\\n<0>panic"), "{said}");
        assert!(said.len() < 4096, "names are cut short: {said}");
        if format == "--log=json" {
            let events = objects(&said);
            let ended = of(&events, "disconnected");
            assert_eq!(ended.len(), 3, "{said}");
            assert_eq!(of(&events, "opened").len(), 1, "{said}");
            assert!(ended[0]["why"].as_str().unwrap().contains("does not exist"));
        } else {
            let is_dated =
                |line: &str| line.starts_with("20") && (line.contains("Z INFO ") || line.contains("Z WARN "));
            assert!(said.lines().all(is_dated), "{said}");
        }
    }
}

#[test]
fn in_the_journal_lines_begin_with_their_priority_and_have_no_time() {
    let Some(nbdinfo) = peer::require("nbdinfo") else {
        return;
    };
    // As systemd names the stream that it has made standard error.
    let script = "export JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2) && exec \"$0\" \"$@\"";
    let serve = ["serve", "ram:1M", "--log-level=info"];
    for (more, prefix) in [(&[][..], "<6>client 1"), (&["--log=json"], "{\"time\"")] {
        let mut command = Command::new("sh");
        command.args(["-c", script, env!("CARGO_BIN_EXE_cryptline")]);
        let server = Server::spawn(command.args(serve).args(more));
        nbdinfo.run(["--size", &server.uri]).success();
        let said = server.stop().stderr_text();
        assert!(said.contains(prefix), "{said}");
        let first = prefix.chars().next().unwrap();
        assert!(said.lines().all(|line| line.starts_with(first)), "{said}");
    }
    // Somebody else's standard error, such as that of a server that was started by a service.
    let mut command = server::cryptline(serve);
    let server = Server::spawn(command.env("JOURNAL_STREAM", "1:1"));
    nbdinfo.run(["--size", &server.uri]).success();
    let said = server.stop().stderr_text();
    assert!(said.lines().all(|line| line.starts_with("cryptline: ")), "{said}");
}

#[test]
fn a_lost_flush_is_told_when_it_happens() {
    let Some(nbdcopy) = peer::require("nbdcopy") else {
        return;
    };
    let clear = tempfile::NamedTempFile::new().unwrap();
    clear.as_file().set_len(1 << 20).unwrap();
    let clear = text(clear.path());
    let server = Server::start(["ram:1M", "--log=json", "--fault", "flush:nth=1"]);
    assert!(!nbdcopy.run(["--flush", &clear, &server.uri]).status.success());
    wait_until("it is told of", || server.process.stderr_text().contains("latched"));
    let ended = server.process.stop().exited_with(4);
    let events = objects(&ended.stderr_text());
    let latched = of(&events, "latched");
    assert_eq!(latched.len(), 1, "once: {ended}");
    assert_eq!(latched[0]["level"], "error");
    // The last line is the program's own.
    let last = events.last().unwrap();
    assert!(last["message"].as_str().unwrap().contains("the last flush failed"));
}

#[test]
fn each_volume_that_loses_its_last_flush_is_told_of() {
    let fault = ["--fault", "flush:after=0"];
    let log = ["ram:1M", "ram:2M", "--log=json"];
    let server = Server::start(log.into_iter().chain(fault));
    let ended = server.process.stop().exited_with(4);
    let latched = of(&objects(&ended.stderr_text()), "latched");
    let mut sources: Vec<_> = latched.iter().map(|it| it["source"].to_string()).collect();
    sources.sort();
    assert_eq!(sources, ["\"ram:1M\"", "\"ram:2M\""], "{ended}");
}

#[test]
fn levels_are_what_they_say() {
    let Some(nbdinfo) = peer::require("nbdinfo") else {
        return;
    };
    for (options, events) in [
        (&["--log-level=debug"][..], &["accepted", "connected", "opened"][..]),
        (&["-v"], &["connected", "opened"]),
        (&["--log-level=warn", "-v"], &[]),
        (&["--log-level=error"], &[]),
    ] {
        let all = ["ram:1M", "--log=json"].into_iter().chain(options.iter().copied());
        let server = Server::start(all);
        nbdinfo.run(["--size", &server.uri]).success();
        let said = server.stop().stderr_text();
        let told = objects(&said);
        for event in ["accepted", "connected", "opened"] {
            let is_told = !of(&told, event).is_empty();
            assert_eq!(is_told, events.contains(&event), "{options:?} {event}: {said}");
        }
    }
}

/// A server whose standard error is a full pipe that nobody reads, and whose last flush fails.
struct Unread {
    server: Server,
    manager: UnixDatagram,
    /// A pipe without a reader would be an error.
    _pipe: File,
    _folder: tempfile::TempDir,
}

impl Unread {
    fn start(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [path, notify] = ["pipe", "notify"].map(|name| folder.path().join(name));
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        let manager = UnixDatagram::bind(&notify).unwrap();
        manager.set_read_timeout(Some(READY)).unwrap();
        let mut both = OpenOptions::new();
        let nonblock = OFlags::NONBLOCK.bits().cast_signed();
        let both = both.read(true).write(true).custom_flags(nonblock);
        let mut pipe = both.open(&path).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$@\" 2>\"$0\"", &text(&path)]);
        command.args([env!("CARGO_BIN_EXE_cryptline"), "serve", "ram:1M"]);
        command.args(["--fault", "flush:after=0"]).args(options);
        let server = Server::spawn(command.env("NOTIFY_SOCKET", &notify));
        let full = loop {
            if let Err(error) = pipe.write(&[b'\n'; 4096]) {
                break error;
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        let unread = Self { server, manager, _pipe: pipe, _folder: folder };
        assert_eq!(unread.told(), "READY=1");
        unread
    }

    fn told(&self) -> String {
        let mut message = [0; 100];
        let length = self.manager.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..length]).into_owned()
    }

    /// SIGTERM ends it, after a flush.
    fn ends(self) {
        self.server.process.stop().exited_with(4);
    }
}

#[test]
fn a_server_that_nobody_reads_from_hears_signals() {
    let unread = Unread::start(&["-v"]);
    unread.server.process.signal(Signal::HUP);
    assert!(unread.told().starts_with("RELOADING=1"));
    unread.ends();
}

#[test]
fn a_server_that_nobody_reads_from_is_not_held_up_by_clients() {
    let unread = Unread::start(&[]);
    let mut garbage = UnixStream::connect(socket_of(&unread.server.uri)).unwrap();
    garbage.write_all(&[0xa5; 64]).unwrap();
    garbage.set_read_timeout(Some(READY)).unwrap();
    // However it ends, the server has something to say of it.
    let _ = garbage.read_to_end(&mut Vec::new());
    unread.ends();
}
