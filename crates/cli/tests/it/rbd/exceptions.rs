//! Ceph's libraries throw where they cannot start a thread, and where one is in them while the process ends. Nobody here can
//! catch that, so it must not come to it. In their place a library that does so whenever it can.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;

use super::TIMEOUT;
use crate::common::{Folder, refused};
use crate::server::{noise, text};
use cryptline_testkit::peer::{self, Run, run};

/// More than `copy` itself needs before it asks for the library's 19.
const FEW_THREADS: &str = "--nproc=15";
/// Nobody else's, since threads are counted by the user.
const FIRST_UID: u32 = 1_000_000;

/// A folder with the library under both names; `None` where no compiler is.
fn with_library() -> Option<Folder> {
    let cc = peer::require("cc")?;
    let folder = Folder::new();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/rbd/library.c");
    let (rados, rbd) = (folder.path("librados.so.2"), folder.path("librbd.so.1"));
    let options = ["-shared", "-fPIC", "-fexceptions", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"];
    run(cc.command().args(options).arg(&rados).arg(source), TIMEOUT).success();
    symlink(&rados, &rbd).expect("room");
    fs::write(folder.path("clear"), noise(1 << 20)).expect("room");
    // Where the program was built, another user may not look.
    fs::copy(env!("CARGO_BIN_EXE_cryptline"), folder.path("program")).expect("room");
    Some(folder)
}

/// Copies into an image, by words before the program.
fn copy(folder: &Folder, before: &[&str], hold_ms: &str) -> Run {
    let words = before.iter().map(|word| (*word).to_owned());
    let mut words = words.chain([text(&folder.path("program")), "copy".to_owned()]);
    let mut command = Command::new(words.next().expect("the program"));
    command.args(words).arg(folder.path("clear")).arg("rbd:rbd/disk");
    command.env("LC_ALL", "C").env("LD_LIBRARY_PATH", folder.root()).env("HOLD_MS", hold_ms);
    run(&mut command, TIMEOUT)
}

#[test]
fn finished_copy_is_finished_though_a_thread_asks_the_library_at_its_end() {
    let Some(folder) = with_library() else { return };
    // The first is waited for, and the image is closed behind it; the other does not come back in time, unless the end was
    // there before it could ask.
    for (hold_ms, said) in [("300", &["closed\n"][..]), ("600000", &["", "closed\n"])] {
        let ended = copy(&folder, &[], hold_ms).success();
        assert!(ended.stdout_text().contains("1 MiB copied"), "{ended}");
        assert!(said.contains(&&*ended.stderr_text()), "{ended}");
    }
}

#[test]
fn image_is_refused_where_the_library_could_not_start_its_threads() {
    let is_root = rustix::process::geteuid().is_root();
    let peers = peer::require_all(["prlimit", if is_root { "setpriv" } else { "unshare" }]);
    let (Some(_), Some(folder)) = (peers, with_library()) else {
        return;
    };
    for name in [".", "clear", "librados.so.2", "program"] {
        fs::set_permissions(folder.path(name), fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    let user = FIRST_UID + std::process::id();
    let as_other = [format!("--reuid={user}"), format!("--regid={user}")];
    let as_other = if is_root {
        ["setpriv", &as_other[0], &as_other[1], "--clear-groups"]
    } else {
        ["unshare", "--user", "--map-root-user", "--"]
    };
    let run = copy(&folder, &[&as_other[..], &["prlimit", FEW_THREADS]].concat(), "0");
    if run.stderr_text().contains("unshare failed") {
        return peer::skip("users may make no namespaces here");
    }
    refused(run, 4, "raise `ulimit -u`");
}
