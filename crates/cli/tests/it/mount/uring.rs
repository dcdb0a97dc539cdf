//! Requests that come through io_uring: the same as those that come as messages, for whoever uses the disk.

use cryptline_testkit::fuse_uring::{Disabled, Enabled};
use cryptline_testkit::peer;

use super::*;
use crate::server::{READY, run};

const URING: &[&str] = &["--fuse-uring"];

#[test]
fn disk_through_io_uring_keeps_what_is_written_to_it() {
    let Some(_enabled) = Enabled::here() else {
        return;
    };
    check_bytes(URING);
    verify(URING);
    verify(&["--fuse-uring", "--cache", "--lanes=1"]);
    map(URING);
    check_images(URING);
    write_side_by_side(URING);
    // Each processor has a queue of its own.
    let (Some(fio), Some(disk)) = (peer::require("fio"), Disk::in_memory(URING)) else {
        return;
    };
    for processor in 0..std::thread::available_parallelism().map_or(1, |it| it.get()) {
        let there = format!("--cpus_allowed={processor}");
        let job = ["--ioengine=libaio", "--iodepth=32", "--direct=1", "--bs=4k"];
        fio_verifies(&fio, &disk, &[&job[..], &["--size=4M", &there]].concat());
    }
    disk.end();
}

#[test]
fn fsx_finds_no_byte_out_of_place_through_io_uring() {
    if let Some(_enabled) = Enabled::here() {
        exercise(URING);
    }
}

#[test]
fn mount_through_io_uring_ends_as_any_other() {
    let Some(_enabled) = Enabled::here() else {
        return;
    };
    for _ in 0..3 {
        ends::killed(URING);
        ends::without_a_server(URING);
        ends::in_use(URING);
        ends::lazily(URING);
    }
}

#[test]
fn where_requests_cannot_come_through_io_uring_that_is_told_with_what_helps() {
    if !can_mount() {
        return;
    }
    refused(&["--io=preadv"]);
    // The mount is there already when the kernel says no.
    if let Some(_disabled) = Disabled::here() {
        refused(&[]);
    }
}

#[track_caller]
fn refused(more: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let point = text(folder.path());
    let arguments = ["mount", "ram:1M", &point, "--fuse-uring"];
    let refused = run([&arguments[..], more].concat()).exited_with(1);
    let said = refused.stderr_text();
    assert_eq!(said.lines().count(), 1, "{refused}");
    assert!(said.contains("enable_uring"), "{refused}");
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("what is mounted");
    assert!(!mounts.contains(&point), "{mounts}");
    let left = peer::run(&mut cryptline(["umount", &point]), READY).exited_with(4);
    assert!(left.stderr_text().contains("no volume"), "{left}");
}
