//! Whose an image of a Ceph cluster is: what another client writes to is not taken from it, and what a client has left
//! behind is taken over.

use std::fs;
use std::path::PathBuf;

use crate::below::TIMEOUT;
use crate::common::{CHEAP, Folder, command, refused};
use crate::server::{READY, text};
use cryptline_testkit::ceph::Ceph;
use cryptline_testkit::peer::{self, BackgroundProgram, Peer, Run, run};

/// A client such as QEMU is one: writes, and once more when it is told, and says whether it had to fetch the lock.
/// `CONF IMAGE READY AGAIN`
const CLIENT: &str = "
import os, rados, rbd, sys, time
conf, image, ready, again = sys.argv[1:]
cluster = rados.Rados(conffile=conf)
cluster.connect()
image = rbd.Image(cluster.open_ioctx('rbd'), image)
image.write(b'1' * 4096, 24 << 20)
image.flush()
open(ready, 'w').close()
while not os.path.exists(again):
    time.sleep(0.05)
print('owner' if image.is_exclusive_lock_owner() else 'robbed')
image.write(b'2' * 4096, 24 << 20)
image.flush()
print('written')
image.close()
";

struct Client {
    process: BackgroundProgram,
    again: PathBuf,
}

impl Client {
    /// One that has written and stays.
    fn start(python: &Peer, ceph: &Ceph, folder: &Folder, name: &str) -> Self {
        let (ready, again) = (folder.path(&format!("{name}-ready")), folder.path(name));
        let mut command = python.command();
        command.args(["-c", CLIENT]).arg(ceph.conf()).arg("locked");
        let process = BackgroundProgram::spawn(command.arg(&ready).arg(&again));
        Self { process: process.wait_for_path(&ready, READY), again }
    }

    fn write_again(mut self) -> Run {
        fs::write(&self.again, "").expect("room");
        self.process.wait(TIMEOUT).expect("it does not end");
        self.process.collect()
    }
}

pub fn image_that_another_client_writes_to_is_left_to_it_until_it_is_gone(ceph: &Ceph) {
    let Some(python) = peer::require("python3-rbd") else {
        return;
    };
    let folder = Folder::new();
    ceph.rbd(["create", "--size", "32M", "rbd/locked"]).success();
    let (key, conf) = (text(&folder.key()), text(&ceph.conf()));
    let disk = format!("rbd:rbd/locked?conf={conf}");
    let on_disk = |verb: &[&str], options: &[&str]| {
        let mut command = command();
        command.args(verb).arg(&disk).args(options);
        run(command.args(["--key-file", &key]), TIMEOUT)
    };
    on_disk(&["create"], &CHEAP).success();

    let client = Client::start(&python, ceph, &folder, "stays");
    let new_key = ["--new-key-file", &key, CHEAP[0], CHEAP[1]];
    for (verb, options) in [(&["serve"][..], &["--run=true"][..]), (&["key", "add"], &new_key), (&["create"], &CHEAP)] {
        refused(on_disk(verb, options), 5, "is in use by client.");
    }
    // Who only reads needs no lock.
    on_disk(&["serve"], &["--read-only", "--run=true"]).success();
    let said = client.write_again().success().stdout_text();
    assert_eq!(said, "owner\nwritten\n");
    on_disk(&["serve"], &["--run=true"]).success();

    // The cluster shall not wait so long for a client that is killed. Those that live say so every five seconds.
    for osd in ["osd.0", "osd.1", "osd.2"] {
        let timeout = "osd_client_watch_timeout";
        ceph.ceph(["tell", osd, "config", "set", timeout, "12"]).success();
    }
    let mut client = Client::start(&python, ceph, &folder, "goes");
    client.process.kill();
    let run = on_disk(&["serve"], &["--run=true"]).success();
    let said = run.stderr_text();
    assert!(said.contains("locked by a client that is gone"), "{said}");

    // A lock that somebody has put on it by hand.
    let lock = ["lock", "add", "rbd/locked", "mine"];
    ceph.rbd(lock).success();
    refused(on_disk(&["serve"], &["--run=true"]), 5, "`rbd lock ls rbd/locked`");
}
