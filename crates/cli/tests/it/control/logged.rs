//! Log of volumes that were added.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::process::Command;

use cryptline_testkit::peer::{self, BackgroundProgram};
use serde_json::Value;

use super::Controlled;
use crate::server::{Disk, READY, cryptline, text, wait_until};

/// A decrypted disk as a file, until its server is killed.
struct Mounted {
    process: BackgroundProgram,
    folder: tempfile::TempDir,
}

impl Mounted {
    fn new(image: &str, key: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = cryptline(["mount", "--foreground", image, "--key-file", key]);
        let process = BackgroundProgram::spawn(mount.arg(folder.path()));
        let file = folder.path().join("outer");
        Self { process: process.wait_for_path(&file, READY), folder }
    }

    fn file(&self) -> String {
        text(&self.folder.path().join("outer"))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.process.kill();
        let mut unmount = Command::new("fusermount3");
        // It may be gone already.
        let _ = unmount.arg("-uzq").arg(self.folder.path()).status();
    }
}

#[test]
fn opening_and_losing_an_added_volume_is_logged() {
    let peers = ["cryptsetup", "nbdcopy", "fusermount3"];
    let Some([cryptsetup, nbdcopy, _]) = peer::require_all(peers) else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks2");
    let (outer, key) = (disk.path("outer"), &*disk.key);
    let cheap = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];
    let mut create = cryptline(["create", &outer, "--size=64M", "--key-file", key]);
    peer::run(create.args(cheap), READY).success();
    let mut below = Mounted::new(&outer, key);
    let mut inside = OpenOptions::new().write(true).open(below.file()).unwrap();
    inside.write_all(&fs::read(&disk.image).unwrap()).unwrap();
    drop(inside);
    let controlled = Controlled::start(&["ram:1M", "--log=json", "--log-level=info"]);
    let file = below.file();
    let add = ["add", "--name", "added", &file, "--key-file", key];
    controlled.ctl(&add).success();
    let told = |event: &str| {
        let said = controlled.server.process.stderr_text();
        let whole = said.rsplit_once('\n').map_or("", |(whole, _)| whole).lines();
        let events = whole.map(|line| serde_json::from_str::<Value>(line).unwrap());
        let of_this = |it: &Value| it["event"] == event && it["source"] == *file;
        events.filter(of_this).count()
    };
    wait_until("the opening is told of", || told("opened") == 1);
    assert_eq!(told("latched"), 0);
    below.process.kill();
    let uri = controlled.uri("added");
    let lost = nbdcopy.run(["--flush", &disk.clear, &uri]);
    assert!(!lost.status.success(), "{lost}");
    wait_until("the loss is told of", || told("latched") == 1);
    controlled.server.process.stop().exited_with(4);
}

#[test]
fn commands_are_logged_with_their_user_whether_they_are_done_or_not() {
    let controlled = Controlled::start(&["ram:1M", "--log=json", "--log-level=info"]);
    controlled.ctl(&["list"]).success();
    controlled.ctl(&["flush"]).success();
    controlled.ctl(&["remove", "no\nsuch"]).exited_with(1);
    controlled.ctl(&["remove", "a"]).success();
    let said = controlled.server.stop().stderr_text();
    let events = said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let commands: Vec<_> = events.filter(|event| event["event"] == "control").collect();
    let told = |command: &Value| (command["command"].clone(), command["export"].clone(), command["why"].is_string());
    let expected = [
        ("flush".into(), Value::Null, false),
        ("remove".into(), "no\nsuch".into(), true),
        ("remove".into(), "a".into(), false),
    ];
    assert_eq!(commands.iter().map(told).collect::<Vec<_>>(), expected, "{said}");
    let user = rustix::process::getuid().as_raw();
    assert!(commands.iter().all(|command| command["user"] == user && command["level"] == "info"), "{said}");
}
