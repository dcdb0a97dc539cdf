//! `serve --control` and `cryptline ctl`: exports that come and go under programs that others wrote.

mod foreign;
mod logged;
mod losses;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::server::{READY, Server, run, text, wait_until};
use cryptline_testkit::peer::{self, BackgroundProgram, Peer, Run};
use serde_json::{Value, json};

/// A server that takes commands, with two exports in memory.
struct Controlled {
    server: Server,
    socket: String,
    folder: tempfile::TempDir,
}

impl Controlled {
    fn start(arguments: &[&str]) -> Self {
        let mut private = tempfile::Builder::new();
        private.permissions(std::fs::Permissions::from_mode(0o700));
        let folder = private.tempdir().unwrap();
        let socket = text(&folder.path().join("control"));
        let named = ["--export-name", "a", "--control", &socket];
        let server = Server::start(named.into_iter().chain(arguments.iter().copied()));
        Self { server, socket, folder }
    }

    fn in_memory() -> Self {
        Self::start(&["ram:8M", "ram:1M", "--export-name", "b"])
    }

    /// A client that speaks the protocol itself.
    fn connect(&self) -> Foreign {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(READY)).unwrap();
        Foreign(BufReader::new(stream))
    }

    #[track_caller]
    fn ctl(&self, arguments: &[&str]) -> Run {
        run(["ctl", &self.socket].into_iter().chain(arguments.iter().copied()))
    }

    /// Waits until no client uses any export: a server notices a little later that one has left.
    #[track_caller]
    fn is_left_by_all(&self) {
        wait_until("all clients have left", || {
            let listed = self.ctl(&["list"]).success().stdout_text();
            listed.lines().all(|line| line.contains(" 0 connections "))
        });
    }

    /// The URI of an export.
    fn uri(&self, export: &str) -> String {
        let listed = self.ctl(&["--json", "list"]).success();
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
        let exports = listed["exports"].as_array().unwrap();
        let found = exports.iter().find(|found| found["name"] == export);
        found.unwrap()["uris"][0].as_str().unwrap().to_owned()
    }
}

struct Foreign(BufReader<UnixStream>);

impl Foreign {
    fn says(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    fn hears(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn asks(&mut self, command: Value) -> Value {
        self.says(format!("{command}\n").as_bytes());
        self.hears()
    }

    /// Tells if the server has closed the connection.
    fn is_over(&mut self) -> bool {
        let ended = self.0.read(&mut [0; 64]);
        let reset = std::io::ErrorKind::ConnectionReset;
        ended.map_or_else(|error| error.kind() == reset, |length| length == 0)
    }
}

#[test]
fn exports_are_listed_counted_flushed_and_removed() {
    let (Some(nbdinfo), Some(nbdcopy)) = (peer::require("nbdinfo"), peer::require("nbdcopy")) else {
        return;
    };
    let controlled = Controlled::in_memory();
    assert_eq!(std::fs::metadata(&controlled.socket).unwrap().permissions().mode() & 0o777, 0o600);
    let listed = controlled.ctl(&["list"]).success().stdout_text();
    assert_eq!(listed.lines().count(), 2, "{listed}");
    assert!(listed.starts_with("\"a\"  8 MiB  read-write  0 connections  ram:8M ("), "{listed}");
    let (a, b) = (controlled.uri("a"), controlled.uri("b"));
    nbdcopy.run([&*a, "null:"]).success();

    // Counted without --stats; each session has an interval of its own.
    let mut foreign = controlled.connect();
    let mut stats = Value::Null;
    wait_until("everything is counted", || {
        stats = foreign.asks(json!({"execute": "stats", "id": "s"}));
        stats["return"]["exports"][0]["operations"]["read"]["bytes"] == 8 << 20
    });
    assert_eq!((&stats["id"], &stats["return"]["version"]), (&json!("s"), &json!(1)));
    let shown = controlled.ctl(&["stats"]).success().stdout_text();
    assert!(shown.contains("export \"a\"  8 MiB"), "{shown}");

    let flushed = foreign.asks(json!({"execute": "flush", "arguments": {"name": "b"}}));
    assert_eq!(flushed, json!({"return": {"flushed": ["b"]}}));
    let all = controlled.ctl(&["flush"]).success().stdout_text();
    assert_eq!(all.matches("is durable").count(), 2, "{all}");

    let removed = controlled.ctl(&["remove", "b"]).success().stdout_text();
    assert!(removed.starts_with("\"b\": closed"), "{removed}");
    let refused = nbdinfo.run(["--size", &b]);
    assert!(!refused.status.success(), "{refused}");
    nbdinfo.run(["--size", &a]).success();
    let stats = foreign.asks(json!({"execute": "stats"}));
    assert_eq!(stats["return"]["exports"].as_array().unwrap().len(), 1);
    controlled.server.stop();
    assert!(!Path::new(&controlled.socket).exists());
}

/// Connects to an export, waits until somebody writes to a pipe, and goes on as its third argument says.
const CLIENT: &str = r#"
import nbd, os, sys
h = nbd.NBD()
h.connect_uri(sys.argv[1])
# The handshake's last word comes before the server counts the client in.
h.pread(512, 0)
os.mkfifo(sys.argv[2])
print("ready", flush=True)
open(sys.argv[2]).read()
exec(sys.argv[3])
"#;

/// A client of libnbd that is connected.
struct Client {
    process: BackgroundProgram,
    pipe: std::path::PathBuf,
}

impl Client {
    fn connect(libnbd: &Peer, controlled: &Controlled, export: &str, script: &str) -> Self {
        let pipe = controlled.folder.path().join(format!("go-{export}"));
        let mut command = libnbd.command();
        let uri = controlled.uri(export);
        command.args(["-c", CLIENT, &uri, &text(&pipe), script]);
        let process = BackgroundProgram::spawn(&mut command);
        wait_until("the client is connected", || process.stdout_text().contains("ready"));
        Self { process, pipe }
    }

    /// Lets it go on, to its end.
    fn goes_on(mut self) -> Run {
        std::fs::write(self.pipe, "").unwrap();
        assert!(self.process.wait(READY).is_some(), "it is still there");
        self.process.collect()
    }
}

#[test]
fn a_removed_export_stays_until_its_last_client_has_left() {
    let (Some(libnbd), Some(nbdinfo)) = (peer::require("python3-libnbd"), peer::require("nbdinfo")) else {
        return;
    };
    let controlled = Controlled::in_memory();
    let b = controlled.uri("b");
    let script = "h.pwrite(b'x' * 512, 0)\nh.flush()\nprint(h.pread(512, 0)[:1])";
    let client = Client::connect(&libnbd, &controlled, "b", script);
    let later = controlled.ctl(&["remove", "b"]).success().stdout_text();
    assert!(later.contains("after 1 connection"), "{later}");
    assert!(!nbdinfo.run(["--size", &b]).status.success(), "no new clients");
    let listed = controlled.ctl(&["list"]).success().stdout_text();
    assert!(listed.contains("\"b\"  1 MiB  leaving  1 connection "), "{listed}");
    // Its client is served on.
    let served = client.goes_on().success();
    assert!(served.stdout_text().contains("b'x'"), "{served}");
    wait_until("it is gone", || controlled.ctl(&["list"]).success().stdout_text().lines().count() == 1);
    controlled.ctl(&["remove", "b"]).exited_with(1);
    controlled.server.stop();
}

#[test]
fn force_makes_clients_leave_and_spares_those_of_others() {
    let Some(libnbd) = peer::require("python3-libnbd") else {
        return;
    };
    let controlled = Controlled::in_memory();
    let script = "try:\n  h.pread(512, 0)\n  print('served')\nexcept nbd.Error:\n  print('cut')";
    let clients = ["b", "a"].map(|name| Client::connect(&libnbd, &controlled, name, script));
    let removed = controlled.ctl(&["remove", "b", "--force"]).success().stdout_text();
    assert!(removed.starts_with("\"b\": closed"), "{removed}");
    for (client, expected) in clients.into_iter().zip(["cut", "served"]) {
        let ended = client.goes_on().success();
        assert!(ended.stdout_text().contains(expected), "{ended}");
    }
    controlled.server.stop();
}

#[test]
fn nonsense_is_answered_and_ends_no_session() {
    let controlled = Controlled::in_memory();
    let mut foreign = controlled.connect();
    for (line, text) in [
        (&b"garbage"[..], "not a command"),
        (b"", "not a command"),
        (b"\xff\xfe", "not a command"),
        (b"[\"list\"]", "not a command"),
        (b"{\"execute\": \"list\"", "not a command"),
        (b"{\"execute\": \"explode\"}", "there are add, flush, list"),
        (b"{\"execute\": \"list\", \"arguments\": {\"x\": 1}}", "the arguments of list"),
        (b"{\"execute\": \"remove\"}", "the arguments of remove"),
        (b"{\"execute\": \"flush\", \"arguments\": {\"name\": 1}}", "the arguments of flush"),
        (b"{\"execute\": \"flush\", \"arguments\": {\"name\": \"x\"}}", "there are: \"a\", \"b\""),
        (b"{\"execute\": \"add\", \"arguments\": {\"name\": \"x\", \"target\": \"/etc/passwd\"}}", "two descriptors"),
    ] {
        foreign.says(&[line, b"\n"].concat());
        let answer = foreign.hears();
        assert_eq!(answer["error"]["class"], "parameters", "{answer}");
        let said = answer["error"]["desc"].as_str().unwrap();
        assert!(said.contains(text), "{text:?} is not in {said}");
    }
    // Several lines at once are answered in their order.
    foreign.says(b"{\"execute\": \"list\", \"id\": 1}\n{\"execute\": \"stats\", \"id\": 2}\n");
    assert_eq!([foreign.hears(), foreign.hears()].map(|answer| answer["id"].clone()), [json!(1), json!(2)]);
    controlled.server.stop();
}

#[test]
fn a_line_of_a_mebibyte_is_refused_and_silent_clients_keep_no_place() {
    let controlled = Controlled::in_memory();
    let mut long = controlled.connect();
    // The server reads no further; what it says may be lost with what it did not read.
    let _ = long.0.get_mut().write_all(&vec![b'x'; 1 << 20]);
    let mut said = Vec::new();
    let _ = long.0.read_to_end(&mut said);
    assert!(said.is_empty() || said.windows(12).any(|words| words == b"65536 bytes;"));

    let mut silent: Vec<_> = (0..40).map(|_| controlled.connect()).collect();
    for client in &mut silent {
        // The oldest give way.
        let _ = client.0.get_mut().write_all(b"{\"execute\"");
    }
    controlled.ctl(&["flush"]).success();
    assert!(silent[0].is_over());
    if let Some(nbdinfo) = peer::require("nbdinfo") {
        nbdinfo.run(["--size", &controlled.server.uri]).success();
    }
    controlled.server.stop();
}

/// Tells if a client is told what is documented, where `…` says that it may be anything.
fn is_as_documented(told: &Value, documented: &Value) -> bool {
    match (told, documented) {
        (_, Value::String(any)) if any == "…" => true,
        (Value::Object(told), Value::Object(documented)) => {
            let same = |(name, value)| documented.get(name).is_some_and(|other| is_as_documented(value, other));
            told.len() == documented.len() && told.iter().all(same)
        }
        (Value::Array(told), Value::Array(documented)) => {
            let mut pairs = told.iter().zip(documented);
            told.len() == documented.len() && pairs.all(|(told, other)| is_as_documented(told, other))
        }
        _ => told == documented,
    }
}

#[test]
fn the_session_in_the_documentation_is_what_happens() {
    let controlled = Controlled::in_memory();
    let mut foreign = controlled.connect();
    let document = include_str!("../../../../docs/control.md");
    let mut lines = 0;
    for line in document.lines() {
        if let Some(command) = line.strip_prefix("-> ") {
            foreign.says(format!("{command}\n").as_bytes());
        } else if let Some(documented) = line.strip_prefix("<- ") {
            let told = foreign.hears();
            let documented = serde_json::from_str(documented).unwrap();
            assert!(is_as_documented(&told, &documented), "{told}\n{documented}");
            lines += 1;
        }
    }
    assert!(lines > 5);
    controlled.server.stop();
}

#[test]
fn sessions_end_with_the_server() {
    let controlled = Controlled::in_memory();
    let mut foreign = controlled.connect();
    foreign.asks(json!({"execute": "list"}));
    controlled.server.stop();
    assert!(foreign.is_over());
}
