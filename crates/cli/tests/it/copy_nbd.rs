//! Copies from and to NBD servers that nobody here wrote.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common::*;
use cryptline_testkit::peer::{self, Background, Peer, Run, run};

const CHEAP: [&str; 2] = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];
const TIMEOUT: Duration = Duration::from_secs(120);
const MIB: usize = 1 << 20;

/// nbdkit at a socket.
struct Server {
    process: Background,
    uri: String,
}

impl Server {
    fn start(nbdkit: &Peer, folder: &Folder, name: &str, words: &[&str]) -> Self {
        let socket: PathBuf = folder.path(name);
        let mut command = nbdkit.command();
        command.args(["--foreground", "--exit-with-parent", "--unix"]);
        let process = Background::spawn(command.arg(&socket).args(words));
        Self {
            process: process.wait_for_socket(&socket, TIMEOUT),
            uri: format!("nbd+unix:///?socket={}", socket.display()),
        }
    }
}

fn cryptline_with_key(folder: &Folder, words: &[&str]) -> Run {
    let mut command = command();
    command.args(words).arg("--key-file").arg(folder.key());
    run(&mut command, TIMEOUT)
}

fn text(path: &Path) -> String {
    path.to_str().expect("it is text").to_owned()
}

fn allocated(path: &Path) -> u64 {
    fs::metadata(path).expect("it is there").blocks() * 512
}

/// 40 MiB with 3 MiB of data in them.
fn sparse(path: &Path) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let data: Vec<u8> = (1..=251).cycle().take(3 * MIB).collect();
    let mut bytes = vec![0; 40 * MIB];
    let file = fs::File::create(path).expect("a file");
    file.set_len(bytes.len() as u64).expect("room");
    for (number, piece) in data.chunks(MIB).enumerate() {
        let at = number * 17 * MIB;
        file.write_all_at(piece, at as u64).expect("room");
        bytes[at..at + MIB].copy_from_slice(piece);
    }
    bytes
}

#[test]
fn holes_of_an_export_stay_holes() {
    let Some(nbdkit) = peer::require("nbdkit") else {
        return;
    };
    let folder = Folder::new();
    let raw = folder.path("disk.raw");
    let bytes = sparse(&raw);
    let server = Server::start(&nbdkit, &folder, "s", &["--readonly", "file", &text(&raw)]);
    let luks = text(&folder.path("disk.luks"));
    let create = ["create", &luks, "--from", &server.uri, "--holes=keep", "--verify"];
    cryptline_with_key(&folder, &[&create[..], &CHEAP].concat()).success();
    assert!(allocated(Path::new(&luks)) < 22 << 20);
    let out = folder.path("out.raw");
    cryptline_with_key(&folder, &["copy", &luks, &text(&out)]).success();
    assert!(fs::read(&out).unwrap() == bytes);
    assert!(allocated(&out) < 4 << 20);
    let clear = folder.path("clear.raw");
    cryptline(["copy", &server.uri, &text(&clear)]).success();
    assert!(fs::read(&clear).unwrap() == bytes);
    assert!(allocated(&clear) < 4 << 20);
    drop(server.process);
}

#[test]
fn export_is_filled_and_encrypted_by_one_connection_or_several() {
    let Some([nbdkit, qemu_img]) = peer::require_all(["nbdkit", "qemu-img"]) else {
        return;
    };
    let folder = Folder::new();
    let raw = folder.path("disk.raw");
    let bytes = sparse(&raw);
    let raw = text(&raw);
    let one = ["--filter=multi-conn", "memory", "64M", "multi-conn-mode=disable"];
    for (number, words) in [&one[..], &["memory", "64M"]].into_iter().enumerate() {
        let server = Server::start(&nbdkit, &folder, &format!("s{number}"), words);
        let create = ["create", &server.uri, "--from", &raw, "--verify"];
        cryptline_with_key(&folder, &[&create[..], &CHEAP].concat()).success();
        let out = folder.path("out.raw");
        let copy = ["copy", &server.uri, &text(&out), "--force"];
        cryptline_with_key(&folder, &copy).success();
        let out = fs::read(&out).unwrap();
        assert!(out.len() == 48 * MIB && out[..bytes.len()] == bytes);
        // It holds a volume now, which is asked for its key.
        let wrong = ["copy", &raw, &server.uri, "--to-key-file", &raw];
        cryptline(wrong).exited_with(1);

        let server = Server::start(&nbdkit, &folder, &format!("c{number}"), words);
        cryptline(["copy", &raw, &server.uri, "--verify"]).success();
        let compare = ["compare", "-f", "raw", "-F", "raw", &raw, &server.uri];
        let same = qemu_img.run(compare).success().stdout_text();
        assert!(same.contains("identical"), "{same}");
        refused(cryptline(["copy", &raw, &server.uri]), 5, "--force");
        cryptline(["copy", &raw, &server.uri, "--force"]).success();
        drop(server.process);
    }
    let server = Server::start(&nbdkit, &folder, "small", &["memory", "39M"]);
    refused(cryptline(["copy", &raw, &server.uri]), 4, "room for 40894464");
}

#[test]
fn zeros_are_made_by_the_server_however_many_there_are() {
    let Some([nbdkit, qemu_img]) = peer::require_all(["nbdkit", "qemu-img"]) else {
        return;
    };
    let folder = Folder::new();
    let raw = folder.path("disk.raw");
    let file = fs::File::create(&raw).expect("a file");
    std::os::unix::fs::FileExt::write_all_at(&file, &[7; 5000], 3 << 30).expect("room");
    file.set_len(4 << 30).expect("room");
    let server = Server::start(&nbdkit, &folder, "s", &["memory", "4G"]);
    let copied = cryptline(["copy", &text(&raw), &server.uri, "--force"]).success();
    assert!(copied.stdout_text().contains("holes"), "{copied}");
    let compare = ["compare", "-f", "raw", "-F", "raw", &text(&raw), &server.uri];
    qemu_img.run(compare).success();
    drop(server.process);
}

#[test]
fn source_whose_server_dies_is_one_line_and_leaves_nothing() {
    let Some(nbdkit) = peer::require("nbdkit") else {
        return;
    };
    let folder = Folder::new();
    // Without an end that anybody would wait for.
    let words = ["--filter=rate", "pattern", "64G", "rate=64M"];
    let mut server = Server::start(&nbdkit, &folder, "s", &words);
    let out = folder.path("out.luks");
    let mut create = command();
    create.args(["create", &text(&out), "--from", &server.uri]).args(CHEAP);
    let mut running = Background::spawn(create.arg("--key-file").arg(folder.key()));
    let begin = Instant::now();
    let drafts = || {
        let entries = fs::read_dir(folder.root()).expect("a folder");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        paths.filter(|path| text(path).contains("/.cryptline-"))
    };
    while !drafts().any(|draft| allocated(&draft) >= 1 << 20) {
        assert!(begin.elapsed() < TIMEOUT, "nothing is written");
        std::thread::sleep(Duration::from_millis(10));
    }
    server.process.kill();
    assert!(running.wait(TIMEOUT).is_some(), "it still runs");
    refused(running.collect(), 4, "nothing was kept");
    assert!(!out.exists() && drafts().next().is_none());
}

#[test]
fn parts_of_one_export_are_copied_onto_each_other_only_where_they_do_not_overlap() {
    let (Some(nbdkit), Some(sfdisk)) = (peer::require("nbdkit"), peer::require("sfdisk")) else {
        return;
    };
    let folder = Folder::new();
    let raw = folder.path("disk.raw");
    let file = fs::File::create(&raw).expect("a file");
    file.set_len(8 << 20).expect("room");
    let table = "label: gpt\nstart=2048, size=2048, name=one\nstart=4096, size=2048, name=two\n";
    let mut partition = sfdisk.command();
    partition.arg("--quiet").arg(&raw);
    peer::run_with_input(&mut partition, TIMEOUT, table.as_bytes()).success();
    let server = Server::start(&nbdkit, &folder, "s", &["file", &text(&raw)]);
    let part = |which: &str| format!("{}&{which}", server.uri);
    let copy = |from: &str, to: &str| {
        let mut command = command();
        run(command.args(["copy", "--force", from, to]), TIMEOUT)
    };
    let before = fs::read(&raw).expect("it is there");
    for (from, to) in [
        (part("partition=1"), server.uri.clone()),
        (server.uri.clone(), part("offset=1M")),
        (part("offset=0&length=2M"), part("offset=1M&length=2M")),
        (part("partition=1"), part("partition=one")),
        (part("partition=two"), part("offset=2M&length=512")),
    ] {
        let refused = copy(&from, &to).exited_with(1);
        assert!(refused.stderr_text().contains("source"), "{refused}");
    }
    assert!(fs::read(&raw).expect("it is there") == before);
    copy(&part("partition=one"), &part("partition=2")).success();
    copy(&part("partition=two"), &part("offset=4M&length=1M")).success();
}

#[test]
fn export_that_ends_within_a_sector_is_not_copied_without_its_end() {
    let Some(nbdkit) = peer::require("nbdkit") else {
        return;
    };
    let folder = Folder::new();
    let raw = folder.path("disk.raw");
    fs::write(&raw, vec![7; 1_000_000]).expect("a file");
    let server = Server::start(&nbdkit, &folder, "s", &["file", &text(&raw)]);
    let copied = folder.path("copy");
    let copy = |from: &str| {
        let mut command = command();
        run(command.args(["copy", from]).arg(&copied), TIMEOUT)
    };
    let part = format!("{}?offset=1024", text(&raw));
    for (from, size) in [(&server.uri, 999_936), (&part, 998_912)] {
        let refused = copy(from).exited_with(4);
        let next = format!("length={size}");
        assert!(refused.stderr_text().contains(&next), "{refused}");
        assert!(!copied.exists());
    }
    copy(&format!("{}&length=999936", server.uri)).success();
    assert_eq!(fs::metadata(&copied).expect("a copy").len(), 999_936);
    fs::remove_file(&copied).expect("a copy");
    copy(&text(&raw)).success();
    assert_eq!(fs::metadata(&copied).expect("a copy").len(), 1_000_000);
}
