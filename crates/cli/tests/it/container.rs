//! The static program of `cargo xtask static`, in containers from nothing but `Containerfile`, serving a volume of
//! cryptsetup's to a client outside.

mod image;

use crate::server;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use crate::server::{Disk, READY, Server, value};
use cryptline_testkit::peer;
use image::{Container, Image, Limits, workspace};

/// User that a container runs as.
const NOBODY: u32 = 65534;

/// Tells if the static program has been made.
fn is_made() -> bool {
    let made = workspace().join("target/static/cryptline").is_file();
    if !made {
        peer::skip("there is no static program: cargo xtask static");
    }
    made
}

/// Serves an encrypted disk in a container, copies a clear text in and out, and has `look` at the server's process and
/// banner meanwhile.
#[track_caller]
fn serves(limits: Limits, look: impl FnOnce(&Path, &str)) {
    let programs = ["unshare", "crun", "cryptsetup", "nbdcopy", "nbdinfo"];
    let Some([unshare, crun, cryptsetup, nbdcopy, nbdinfo]) = peer::require_all(programs) else {
        return;
    };
    if !is_made() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return peer::skip("only root can start such a container here");
    }
    let bundle = tempfile::tempdir().unwrap();
    fs::set_permissions(bundle.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let image = Image::build(bundle.path().join("root"));
    let disk = Disk::new(&cryptsetup, "luks2");
    let shared = disk.folder.path();
    for path in [shared, Path::new(&disk.image), Path::new(&disk.key)] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let container = Container { image: &image, shared, limits };
    let socket = disk.path("socket");
    let serve = [&["serve"], &disk.arguments()[..], &["--unix", &socket]].concat();
    let server = Server::spawn(&mut container.command([&unshare, &crun], &serve));
    let size = nbdinfo.run(["--size", &server.uri]).success().stdout_text();
    assert_eq!(size.trim(), server::SIZE.to_string());
    let copy = disk.path("copy");
    for [from, to] in [[&disk.clear, &server.uri], [&server.uri, &copy]] {
        nbdcopy.run(["--flush", from, to]).success();
    }
    assert!(fs::read(&copy).unwrap() == fs::read(&disk.clear).unwrap());
    let children = format!("/proc/{0}/task/{0}/children", server.process.id());
    let child = fs::read_to_string(children).unwrap();
    let process = Path::new("/proc").join(child.trim());
    look(&process, &server.process.stdout_text());
    let said = server.stop().stderr_text();
    if limits.without_locked_memory {
        assert!(said.contains("(ulimit -l)"), "{said}");
    } else {
        assert_eq!(said, "");
    }
}

/// A line of `/proc/PID/status` or `limits`.
#[track_caller]
fn said_of(process: &Path, file: &str, key: &str) -> String {
    let text = fs::read_to_string(process.join(file)).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let words: Vec<_> = line.unwrap().split_whitespace().collect();
    words.join(" ")
}

#[test]
fn container_serves_as_nobody_and_without_capabilities() {
    serves(Limits::default(), |process, banner| {
        assert_eq!(said_of(process, "status", "Uid:"), [NOBODY; 4].map(|id| id.to_string()).join(" "));
        assert_eq!(said_of(process, "status", "CapBnd:"), "0000000000000000");
        assert!(value(banner, "ready").starts_with("io_uring"), "{banner}");
    });
}

#[test]
fn container_serves_without_io_uring() {
    let limits = Limits { without_io_uring: true, ..Limits::default() };
    serves(limits, |_, banner| {
        assert!(value(banner, "ready").starts_with("preadv"), "{banner}");
    });
}

#[test]
fn container_serves_without_memory_that_may_be_locked() {
    let limits = Limits { without_locked_memory: true, ..Limits::default() };
    serves(limits, |process, _| {
        assert_eq!(said_of(process, "limits", "Max locked memory"), "0 0 bytes");
        assert_eq!(said_of(process, "status", "VmLck:"), "0 kB");
    });
}

#[test]
fn container_serves_with_a_root_that_cannot_be_written() {
    let limits = Limits { read_only: true, ..Limits::default() };
    serves(limits, |process, _| {
        let root = rustix::fs::statvfs(process.join("root")).unwrap();
        assert!(root.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY));
    });
}

#[test]
fn container_serves_without_any_of_it() {
    let limits = Limits { without_io_uring: true, without_locked_memory: true, read_only: true };
    serves(limits, |_, banner| {
        assert!(value(banner, "ready").starts_with("preadv"), "{banner}");
    });
}

#[test]
fn image_of_ceph_is_refused_by_name_where_its_library_cannot_be_loaded() {
    if !is_made() {
        return;
    }
    let mut command = Command::new(workspace().join("target/static/cryptline"));
    let run = peer::run(command.args(["info", "rbd:pool/image"]), READY);
    let said = run.exited_with(4).stderr_text();
    assert!(said.contains("linked statically and cannot load librbd"), "{said}");
    assert!(said.contains("nbd://") && said.lines().count() == 1, "{said}");
}
