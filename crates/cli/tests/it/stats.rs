//! `--stats` and `cryptline top`.

use crate::server;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use crate::server::{READY, Server, run, text, wait_until};
use cryptline_testkit::peer::{self, BackgroundProgram};
use serde_json::Value;

/// A server with a statistics socket and ten lines a second.
struct Measured {
    server: Server,
    socket: String,
    _folder: tempfile::TempDir,
}

impl Measured {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = text(&folder.path().join("stats"));
        let server = Server::start(["ram:64M", "--stats", &socket, "--stats-interval=0.1"]);
        Self { server, socket, _folder: folder }
    }

    fn connect(&self) -> BufReader<UnixStream> {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(READY)).unwrap();
        BufReader::new(stream)
    }
}

fn next(reader: &mut BufReader<UnixStream>) -> Value {
    let mut line = String::new();
    assert!(reader.read_line(&mut line).unwrap() > 0, "the server has closed");
    serde_json::from_str(&line).unwrap()
}

#[test]
fn lines_tell_what_clients_did() {
    let Some(nbdcopy) = peer::require("nbdcopy") else {
        return;
    };
    let source = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(source.path(), server::noise(64 << 20)).unwrap();
    let measured = Measured::start();
    let mut reader = measured.connect();
    let before = next(&mut reader);
    assert_eq!(before["version"], 1);
    assert_eq!(before["exports"][0]["operations"]["read"]["requests"], 0);
    assert_eq!(before["exports"][0]["operations"]["read"]["latency_us"], Value::Null);
    // Beside the copies: a reader that does not read is closed.
    let peak = std::thread::scope(|scope| {
        let lines = scope.spawn(|| lines_until_all_is_counted(&mut reader));
        nbdcopy.run([&text(source.path()), &measured.server.uri]).success();
        nbdcopy.run([&*measured.server.uri, "null:"]).success();
        lines.join().unwrap()
    });
    assert!(peak > 0.0);
    // Everything from the start, the cipher's part of it. Shares are rounded; what they are made of is not.
    wait_until("its clients have left", || next(&mut measured.connect())["exports"][0]["connections"] == 0);
    let whole = next(&mut measured.connect());
    let whole = &whole["exports"][0];
    let at = |name: &str| whole[name].as_u64().unwrap();
    assert!(at("crypto_ns") > 0 && at("crypto_ns") <= at("active_ns"), "{whole}");
    assert!(at("busy_ns") > 0, "{whole}");
    let share = whole["crypto_share"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&share), "{whole}");
    measured.server.stop();
    assert!(!std::path::Path::new(&measured.socket).exists());
}

/// Reads lines, each of which must agree with itself, until both copies are in the counts; the best rate.
fn lines_until_all_is_counted(reader: &mut BufReader<UnixStream>) -> f64 {
    let mut peak = 0.0_f64;
    loop {
        let line = next(reader);
        let export = &line["exports"][0];
        assert_eq!((&export["name"], &export["size"]), (&"ram:64M".into(), &(64 << 20).into()));
        for operation in ["read", "write"] {
            let operation = &export["operations"][operation];
            peak = peak.max(operation["bytes_per_second"].as_f64().unwrap());
            let latency = &operation["latency_us"];
            let at = |name: &str| latency[name].as_f64().unwrap();
            assert_eq!(operation["iops"].as_f64().unwrap() > 0.0, !latency.is_null());
            assert!(latency.is_null() || at("p50") <= at("p99") && at("p99") <= at("max"));
        }
        let share = export["crypto_share"].as_f64();
        assert!(share.is_none_or(|share| share <= 1.0), "{export}");
        let bytes = |name: &str| export["operations"][name]["bytes"].as_u64().unwrap();
        if bytes("read") == 64 << 20 && bytes("write") == 64 << 20 {
            return peak;
        }
    }
}

#[test]
fn top_tells_servers_apart() {
    let (one, other) = (Measured::start(), Measured::start());
    let both = [&*one.socket, &*other.socket];
    let once = run(["top", "--once"].into_iter().chain(both)).success();
    let once = once.stdout_text();
    assert_eq!(once.lines().count(), 2, "{once}");
    for socket in both {
        let of_server = |line: &str| line.starts_with(&format!("{socket} 00:"));
        assert!(once.lines().any(of_server), "{once}");
    }
    run(["top", "--json"].into_iter().chain(both)).exited_with(1);

    let Some(mut top) = top_on_a_terminal(&both.join("' '"), 60) else {
        return;
    };
    wait_until("both are drawn", || top.stdout_text().contains("@2 "));
    one.server.stop();
    wait_until("the one that ended is named", || top.stdout_text().contains("has ended   /"));
    assert!(top.wait(std::time::Duration::ZERO).is_none(), "the other one goes on");
    other.server.stop();
    assert_eq!(top.wait(READY).and_then(|status| status.code()), Some(4));
}

/// `top` on a terminal of its own, by script(1).
fn top_on_a_terminal(socket: &str, columns: u32) -> Option<BackgroundProgram> {
    let mut command = Command::new("script");
    let line = format!("stty rows 20 cols {columns}; '{}' top '{socket}'", env!("CARGO_BIN_EXE_cryptline"));
    command.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").stdin(Stdio::piped());
    let exists = Command::new("script").arg("--version").output().is_ok();
    if !exists {
        peer::skip("script is not installed (apt-get install bsdutils)");
        return None;
    }
    Some(BackgroundProgram::spawn(&mut command))
}

#[test]
fn top_draws_in_place_and_leaves_the_terminal_as_it_was() {
    let measured = Measured::start();
    let Some(mut top) = top_on_a_terminal(&measured.socket, 100) else {
        return;
    };
    wait_until("it draws again and again", || top.stdout_text().matches("\x1b[H").count() >= 3);
    let drawn = top.stdout_text();
    assert!(drawn.contains("\x1b[?1049h"), "{drawn:?}");
    assert!(drawn.contains("export \"ram:64M\"  64 MiB"), "{drawn:?}");
    // The server ends: the terminal comes back first, then the reason.
    measured.server.stop();
    assert_eq!(top.wait(READY).and_then(|status| status.code()), Some(4));
    let drawn = top.collect().stdout_text();
    let left = drawn.find("\x1b[?25h\x1b[?1049l").expect("the other screen is left");
    assert!(drawn[left..].contains("the server has ended"), "{drawn:?}");
}
