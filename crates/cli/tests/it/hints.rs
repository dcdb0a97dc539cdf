//! The commands that the banner offers, run as they are printed, and what --run's command finds.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::server::{READY, SIZE, Server, noise, run, text};
use cryptline_testkit::peer::{self, Run};
use cryptline_testkit::pki::Pki;

const CRYPTLINE: &str = env!("CARGO_BIN_EXE_cryptline");

/// The commands of a server's banner.
fn commands(server: &Server) -> Vec<String> {
    let report = server.process.stdout_text();
    let (_, commands) = report.split_once("Try, in another terminal:\n").unwrap();
    commands.lines().map(|line| line.trim().to_owned()).collect()
}

/// Gives a line to a shell in a folder, with our program where the line looks for it.
fn paste(line: &str, folder: &Path, input: &str) -> Run {
    let path = std::env::var("PATH").unwrap();
    let ours = Path::new(CRYPTLINE).parent().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(folder).env("LC_ALL", "C");
    shell.env("PATH", format!("{}:{path}", ours.display()));
    peer::run_with_input(&mut shell, READY, input.as_bytes())
}

/// Runs every command against a disk that holds `clear`, and looks at what came of it.
fn try_commands(server: &Server, clear: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let lines = commands(server);
    let starts = ["nbdinfo ", "nbdcopy ", "qemu-img ", "qemu-system-", "mkdir "];
    assert_eq!(lines.len(), starts.len(), "{lines:?}");
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}");
        if start == "qemu-system-" {
            // It would run until somebody closes it.
            let quiet = format!("{line} -S -display none -monitor stdio");
            let said = paste(&quiet, folder.path(), "info block\nquit\n").success();
            assert!(said.stdout_text().contains("virtio0"), "{said}");
        } else {
            paste(line, folder.path(), "").success();
        }
    }
    let bytes = fs::read(clear).unwrap();
    assert!(fs::read(path("copy.img")).unwrap() == bytes, "nbdcopy");
    let compare = format!("qemu-img compare -f raw -F qcow2 '{}' copy.qcow2", clear.display());
    paste(&compare, folder.path(), "").success();
    assert!(fs::read(path("clear/disk")).unwrap() == bytes, "mount");
    paste("cryptline umount clear", folder.path(), "").success();
}

#[test]
fn commands_of_the_banner_run_as_they_are_printed() {
    let peers = ["openssl", "nbdinfo", "nbdcopy", "qemu-img", "qemu-system-x86_64", "fusermount3"];
    let Some([openssl, _, nbdcopy, ..]) = peer::require_all(peers) else {
        return;
    };
    let pki = Pki::new(&openssl);
    let (disk, clear) = (format!("ram:{SIZE}"), pki.folder().join("clear"));
    fs::write(&clear, noise(SIZE)).unwrap();
    let (socket, certificates) = (pki.file("a, b's.sock"), pki.option());
    let tls = ["--tls=require", &certificates];
    for (options, tls) in [
        (&["--unix", &socket, "--export-name=a b, c's"][..], &[][..]),
        (&["--unix", &socket, "--export-name=a b, c's"], &tls),
        (&["--port=0"], &tls),
    ] {
        let server = Server::start([&*disk].iter().chain(options).chain(tls).copied());
        nbdcopy.run([&*text(&clear), &server.uri]).success();
        try_commands(&server, &clear);
        server.stop();
    }
}

#[test]
fn command_of_run_gives_qemu_the_disk_with_tls_and_without() {
    let Some([openssl, _]) = peer::require_all(["openssl", "qemu-img"]) else {
        return;
    };
    let pki = Pki::new(&openssl);
    let certificates = pki.option();
    let script = "qemu-img info ${tlsobject:+--object \"$tlsobject\"} --image-opts \"$imageopts\"";
    for tls in [&[][..], &["--tls=require", &certificates]] {
        for place in ["--unix=-", "--port=0"] {
            let serve = ["serve", "ram:3M", place, "--run", script];
            let said = run(serve.iter().chain(tls).copied()).success();
            assert!(said.stdout_text().contains("3145728 bytes"), "{said}");
        }
    }
}
