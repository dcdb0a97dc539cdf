//! `create` while it runs: what a signal leaves, and what others may do with the volume that it replaces.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::*;
use cryptline_testkit::peer::{BackgroundProgram, run};

/// Returns what is in the folder besides the key.
fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name != "key").collect();
    names.sort();
    names
}

#[test]
fn ctrl_c_takes_the_unfinished_file_along() {
    let folder = Folder::new();
    // Where the system allows core dumps, the program starts with them allowed.
    let dumps_allowed = "ulimit -S -c \"$(ulimit -H -c)\"; exec \"$@\"";
    let mut command = Command::new("sh");
    command
        .args(["-c", dumps_allowed, "sh", env!("CARGO_BIN_EXE_cryptline")])
        .arg("create")
        .arg(folder.path("a.img"))
        .arg("--key-file")
        .arg(folder.key());
    // Ten minutes of measuring, if nobody stops it.
    command.args(["--size=64M", "--iter-time=600000", "--pbkdf=pbkdf2"]);
    let mut running = BackgroundProgram::spawn(&mut command);
    let deadline = Instant::now() + Duration::from_secs(20);
    while files(folder.root()).is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(files(folder.root()).len(), 1, "one temporary file");
    let limits = fs::read_to_string(format!("/proc/{}/limits", running.id())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size"));
    let soft = core.and_then(|line| line.split_whitespace().nth(4));
    assert_eq!(soft, Some("0"), "a core dump would hold the key");
    running.signal(rustix::process::Signal::INT);
    let ended = running.wait(Duration::from_secs(10)).expect("it ends");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(2), "{ended}");
    assert!(files(folder.root()).is_empty(), "{:?}", files(folder.root()));
}

#[test]
fn a_volume_that_will_be_replaced_is_not_served_meanwhile() {
    let folder = Folder::new();
    let image = folder.luks2();
    let fifo = folder.path("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let mut replace = command();
    replace.arg("create").arg(&image).args(["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"]);
    replace.args(["--size=32M", "--force", "--key-file"]).arg(&fifo);
    let mut replacing = BackgroundProgram::spawn(&mut replace);
    let begun = || {
        let names = fs::read_dir(image.parent().unwrap()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name());
        names.into_iter().any(|name| name.to_string_lossy().starts_with(".cryptline-"))
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !begun() {
        assert!(Instant::now() < deadline, "no draft of the new volume");
        std::thread::sleep(Duration::from_millis(10));
    }
    // It waits for its passphrase now, or soon.
    let serve = || {
        let mut serve = command();
        serve.arg("serve").arg(&image).arg("--key-file").arg(folder.key());
        run(serve.args(["--run", "true"]), Duration::from_secs(60))
    };
    refused(serve(), 5, "in use");
    fs::write(&fifo, "another passphrase").unwrap();
    assert!(replacing.wait(Duration::from_secs(60)).is_some());
    replacing.collect().success();
    refused(serve(), 2, "");
}
