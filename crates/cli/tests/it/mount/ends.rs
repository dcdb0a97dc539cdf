//! How a mount ends: by whoever unmounts, by its server, and by accidents.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cryptline_serve::fuse::{LastFlush, Waiter};
use cryptline_testkit::peer::{self, BackgroundProgram};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use super::{Disk, can_mount};
use crate::common::Folder;
use crate::server::{READY, cryptline, run, text, wait_until};

#[test]
fn server_in_the_background_is_there_when_the_command_ends() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (point, pid) = (folder.path().join("mnt"), folder.path().join("pid"));
    fs::create_dir(&point).expect("a mount point");
    // Its paths are those of whoever starts it, whose folder it leaves.
    let mut command = cryptline(["mount", "ram:1M", "mnt", "-P", "pid"]);
    command.current_dir(folder.path());
    let started = peer::run(&mut command, READY).success();
    let server = fs::read_to_string(&pid).expect("a pid file");
    let of_server = |what| fs::read_link(format!("/proc/{}/{what}", server.trim()));
    assert_eq!(of_server("cwd").expect("proc"), Path::new("/"));
    assert_eq!(of_server("fd/0").expect("proc"), Path::new("/dev/null"));
    assert!(started.stdout_text().contains("\nready:"), "{started}");
    let disk = point.join("disk");
    fs::OpenOptions::new()
        .write(true)
        .open(&disk)
        .and_then(|file| file.write_all_at(b"there", 3))
        .expect("it is served");
    run(["umount", &text(&point)]).success();
    assert_eq!(fs::read_dir(&point).expect("a folder").count(), 0);
    assert!(!pid.exists(), "the server has ended");
    let refused = run(["mount", "no such file", &text(&point)]);
    let code = refused.status.code();
    assert!(code.is_some_and(|code| code > 0) && refused.stderr_text().contains("no such file"));
    run(["umount", &text(&point)]).exited_with(4);
}

#[test]
fn program_that_is_replaced_while_it_starts_mounts_and_unmounts_all_the_same() {
    if !can_mount() {
        return;
    }
    // Where the program can have another name.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let (program, table, point) = (path("program"), path("table"), path("mnt"));
    fs::hard_link(env!("CARGO_BIN_EXE_cryptline"), &program).expect("a link");
    fs::create_dir(&point).expect("a mount point");
    let made = Command::new("mkfifo").arg(&table).status();
    assert!(made.expect("mkfifo runs").success());
    let mut command = Command::new(&program);
    command.args(["mount", "--foreground", "--table", &format!("@{}", text(&table))]);
    let server = BackgroundProgram::spawn(command.arg(&point));
    let mut lines = None;
    wait_until("it reads its table", || {
        let mut options = OpenOptions::new();
        let options = options.write(true).custom_flags(libc::O_NONBLOCK);
        lines = options.open(&table).ok();
        lines.is_some()
    });
    // It waits for the table until this is closed.
    fs::remove_file(&program).expect("it was there");
    writeln!(lines.take().expect("a pipe"), "0 2048 zero").expect("it reads");
    let server = server.wait_for_path(&point.join("disk"), READY);
    server.stop().success();
    assert_eq!(fs::read_dir(&point).expect("a folder").count(), 0);
}

/// The process that unmounts for it.
fn janitor_of(server: u32) -> Pid {
    let children = fs::read_to_string(format!("/proc/{server}/task/{server}/children"));
    let first = children.expect("proc").split_whitespace().next().map(str::to_owned);
    let pid = first.expect("a child").parse().expect("a number");
    Pid::from_raw(pid).expect("a process")
}

#[test]
fn killed_server_leaves_no_mount_behind_even_after_signals_to_all_its_processes() {
    killed(&[]);
}

pub(super) fn killed(options: &[&str]) {
    let Some(mut disk) = Disk::in_memory(options) else {
        return;
    };
    let janitor = janitor_of(disk.server.as_ref().expect("it runs").id());
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        kill_process(janitor, signal).expect("ours");
    }
    disk.server.take().expect("it runs").kill();
    let is_gone = || fs::read_dir(disk.point()).is_ok_and(|left| left.count() == 0);
    wait_until("it is unmounted", is_gone);
}

#[test]
fn mount_without_a_server_is_named_and_removed() {
    without_a_server(&[]);
}

pub(super) fn without_a_server(options: &[&str]) {
    let Some(mut disk) = Disk::in_memory(options) else {
        return;
    };
    let point = text(&disk.point());
    let mut server = disk.server.take().expect("it runs");
    kill_process(janitor_of(server.id()), Signal::KILL).expect("ours");
    server.kill();
    wait_until("nobody answers", || {
        let asked = fs::metadata(&point);
        asked.is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::NOTCONN))
    });
    let again = run(["mount", "ram:1M", &point]).exited_with(5);
    assert!(again.stderr_text().contains("cryptline detach"), "{again}");
    let told = run(["umount", &point]).exited_with(4);
    assert!(told.stderr_text().contains("server had died"), "{told}");
    assert_eq!(fs::read_dir(&point).expect("a folder").count(), 0);
}

#[test]
fn failed_flush_is_told_by_umount_and_by_the_server() {
    if !can_mount() {
        return;
    }
    let folder = Folder::new();
    let [image, key] = [folder.luks2(), folder.key()].map(|path| text(&path));
    let mut disk = Disk::mount(&image, &["--key-file", &key]).expect("as above");
    let cut = OpenOptions::new().write(true).open(&image);
    cut.and_then(|image| image.set_len(1 << 20)).expect("a shorter image");
    disk.open().read_at(&mut [0; 4096], 2 << 20).expect_err("cut off");
    let told = run(["umount", &text(&disk.point())]).exited_with(4);
    assert!(told.stderr_text().contains("may be lost"), "{told}");
    assert_eq!(fs::read_dir(disk.point()).expect("a folder").count(), 0);
    let mut server = disk.server.take().expect("it runs");
    wait_until("the server ends by itself", || server.wait(Duration::ZERO).is_some());
    server.collect().exited_with(4);
}

#[test]
fn image_is_free_and_durable_when_umount_ends() {
    if !can_mount() {
        return;
    }
    let folder = Folder::new();
    let [image, key, point] = [folder.luks2(), folder.key(), folder.path("mnt")].map(|path| text(&path));
    fs::create_dir(&point).expect("a mount point");
    for round in 1..=5_u8 {
        // While another server has it, the image is locked.
        run(["mount", &image, &point, "--key-file", &key]).success();
        let options = OpenOptions::new().read(true).write(true).open(format!("{point}/luks2.img"));
        let disk = options.expect("the disk can be opened");
        let mut before = [0; 9];
        disk.read_exact_at(&mut before, 4099).expect("read");
        // What was never written is noise.
        assert!(round == 1 || before == [round - 1; 9], "{before:?}");
        disk.write_all_at(&[round; 9], 4099).expect("written");
        drop(disk);
        run(["umount", &point]).success();
    }
}

#[test]
fn last_flush_of_a_server_that_is_killed_meanwhile_is_not_known() {
    let Some(mut disk) = Disk::in_memory(&[]) else {
        return;
    };
    let mut server = disk.server.take().expect("it runs");
    let pid = Pid::from_raw(server.id().cast_signed()).expect("a process");
    let waiter = Waiter::new(&disk.open()).expect("it answers");
    kill_process(pid, Signal::KILL).expect("ours");
    let heard = waiter.wait(READY);
    assert!(matches!(heard, LastFlush::Unknown(_)), "{heard:?}");
    server.wait(READY);
}

#[test]
fn mount_in_use_is_kept_until_the_server_ends() {
    in_use(&[]);
}

pub(super) fn in_use(options: &[&str]) {
    let Some(disk) = Disk::in_memory(options) else {
        return;
    };
    let file = disk.open();
    let busy = run(["umount", &text(&disk.point())]).exited_with(5);
    assert!(busy.stderr_text().contains("--lazy"), "{busy}");
    file.write_all_at(&[1; 4096], 0).expect("it is still served");
    disk.end();
    // What an entry of io_uring had just been found for fails otherwise, once.
    wait_until("no server is known to be there", || {
        let error = file.read_at(&mut [0; 10], 0).expect_err("no server");
        Errno::from_io_error(&error) == Some(Errno::NOTCONN)
    });
}

#[test]
fn lazy_unmount_serves_those_who_have_it_open() {
    lazily(&[]);
}

pub(super) fn lazily(options: &[&str]) {
    let Some(mut disk) = Disk::in_memory(options) else {
        return;
    };
    let file = disk.open();
    run(["umount", "--lazy", &text(&disk.point())]).success();
    assert_eq!(fs::read_dir(disk.point()).expect("a folder").count(), 0);
    file.write_all_at(b"still here", 99).expect("it is served");
    let mut server = disk.server.take().expect("it runs");
    assert!(server.wait(Duration::ZERO).is_none());
    drop(file);
    wait_until("the server ends by itself", || server.wait(Duration::ZERO).is_some());
    server.collect().success();
}
