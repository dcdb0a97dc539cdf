//! Foreign input at a control socket, and where there is none.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use cryptline_testkit::peer::{self, Peer};
use serde_json::Value;

use crate::control::Controlled;
use crate::server::{Disk, SIZE, run, text};

/// Opens, reads and passes what `cryptline ctl add` passes, and says what the server answers.
const FOREIGN_ADD: &str = r#"
import json, os, socket, sys
control, image, target, flags = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4]
key = os.open(sys.argv[5], os.O_RDONLY) if len(sys.argv) > 5 else os.pipe()[0]
server = socket.socket(socket.AF_UNIX)
server.connect(control)
line = json.dumps({"execute": "add", "arguments": {"name": "foreign", "target": target}}) + "\n"
files = [os.open(image, getattr(os, flags)), key]
socket.send_fds(server, [line.encode()], files)
print(server.makefile().readline(), end="")
"#;

/// The file that cryptsetup writes a volume's key to.
fn dump_key(cryptsetup: &Peer, disk: &Disk) -> String {
    let volume_key = disk.path("volume-key");
    let dump =
        ["luksDump", "--dump-volume-key", "--volume-key-file", &volume_key, "-q", "--key-file", &disk.key, &disk.image];
    cryptsetup.run(dump).success();
    volume_key
}

#[test]
fn a_foreign_client_gives_wrong_descriptors_and_nothing_is_exported() {
    let (Some(python), Some(cryptsetup)) = (peer::require("python3"), peer::require("cryptsetup")) else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks2");
    let controlled = Controlled::in_memory();
    let volume_key = dump_key(&cryptsetup, &disk);
    let ask = |image: &str, flags: &str, key: Option<&str>| {
        let arguments = ["-c", FOREIGN_ADD, &controlled.socket, image, "disk.img", flags];
        let answer = python.run(arguments.into_iter().chain(key)).success().stdout_text();
        serde_json::from_str::<Value>(&answer).unwrap()
    };
    for (image, flags, key, text) in [
        ("/dev/null", "O_RDWR", Some(&*volume_key), "not a regular file"),
        (&*disk.image, "O_RDONLY", Some(&*volume_key), "not open for reading and writing"),
        (&*disk.image, "O_WRONLY", Some(&*volume_key), "not open for reading and writing"),
        (&*disk.image, "O_PATH", Some(&*volume_key), "disk.img"),
        (&*disk.clear, "O_RDWR", Some(&*volume_key), "LUKS"),
        (&*disk.image, "O_RDWR", Some(&*disk.clear), "cannot read the volume key"),
        (&*disk.image, "O_RDWR", Some(&*disk.key), "key"),
        // An empty pipe that is still open at its other end is not waited for.
        (&*disk.image, "O_RDWR", None, "cannot read the volume key"),
    ] {
        let answer = ask(image, flags, key);
        let said = answer["error"]["desc"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(said.contains(text), "{text:?} is not in {said}");
    }
    assert_eq!(ask(&disk.image, "O_RDWR", Some(&volume_key))["return"]["size"], SIZE);
    controlled.server.stop();
}

/// Keeps the image open, and gives it again and again.
const FOREIGN_ADD_AGAIN: &str = r#"
import json, os, socket, sys
control, image, key = sys.argv[1:]
server = socket.socket(socket.AF_UNIX)
server.connect(control)
answers = server.makefile()
image = os.open(image, os.O_RDWR)
def ask(command, files, **arguments):
    line = json.dumps({"execute": command, "arguments": arguments}) + "\n"
    socket.send_fds(server, [line.encode()], files)
    print(answers.readline(), end="")
def add(name, **more):
    ask("add", [image, os.open(key, os.O_RDONLY)], name=name, target="disk.img", **more)
add("first")
add("second")
add("second", read_only=True)
ask("remove", [], name="first")
add("second")
"#;

#[test]
fn an_open_image_is_added_once_at_a_time() {
    let (Some(python), Some(cryptsetup)) = (peer::require("python3"), peer::require("cryptsetup")) else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks2");
    let controlled = Controlled::in_memory();
    let volume_key = dump_key(&cryptsetup, &disk);
    let script = ["-c", FOREIGN_ADD_AGAIN, &controlled.socket, &disk.image, &volume_key];
    let answers = python.run(script).success().stdout_text();
    let answers: Vec<Value> = answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [first, again, read_only, removed, anew] = &answers[..] else {
        panic!("{answers:?}");
    };
    for refused in [again, read_only] {
        assert_eq!(refused["error"]["class"], "busy", "{refused}");
        let said = refused["error"]["desc"].as_str().unwrap();
        assert!(said.contains("has that image open already"), "{said}");
    }
    for added in [first, anew] {
        assert_eq!(added["return"]["size"], SIZE, "{added}");
    }
    assert_eq!(removed["return"]["closed"], true, "{removed}");
    controlled.server.stop();
}

#[test]
fn another_user_is_refused() {
    let Some(python) = peer::require("python3") else {
        return;
    };
    let controlled = Controlled::in_memory();
    if !rustix::process::geteuid().is_root() {
        peer::skip("only root can become another user");
        return;
    }
    // Whoever may open the socket still has to be the right one.
    for path in [&controlled.socket, &text(controlled.folder.path())] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let script = "import os, socket, sys\nos.setuid(65534)\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
                  print(s.makefile().readline())";
    let answer = python.run(["-c", script, &controlled.socket]);
    assert!(answer.stdout_text().contains("only root and the user 0"), "{answer}");
    controlled.ctl(&["list"]).success();
    controlled.server.stop();
}

#[test]
fn what_is_no_control_socket_is_named() {
    let controlled = Controlled::in_memory();
    run(["serve", "ram:1M", "--control", &controlled.socket]).exited_with(5);
    let nowhere = text(&controlled.folder.path().join("nowhere"));
    let nobody = run(["ctl", &nowhere, "list"]).exited_with(4);
    assert!(nobody.stderr_text().contains("cryptline serve --control SOCKET"), "{nobody}");
    let listener = UnixListener::bind(&nowhere).unwrap();
    for nonsense in [&b"hello\n"[..], b"{}\n", b"[1]\n", b"{\"return\""] {
        let answer = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 256]);
                stream.write_all(nonsense).unwrap();
            });
            run(["ctl", &nowhere, "list"])
        });
        let answer = answer.exited_with(4);
        assert!(answer.stderr_text().contains("is no control socket"), "{answer}");
    }
    controlled.server.stop();
}
