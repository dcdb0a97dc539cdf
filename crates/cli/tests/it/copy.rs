//! `copy` and `create --from`: the same bytes on the other side, or nothing that passes for them.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::*;
use cryptline_testkit::peer::{self, Background, Run, run};
use rustix::process::Signal;
use serde_json::Value;

const CHEAP: [&str; 2] = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];
const TIMEOUT: Duration = Duration::from_secs(120);
const MIB: usize = 1 << 20;

/// Bytes that do not repeat.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(len).collect()
}

/// Data, a hole, zeros that were written, data, a hole at the end; 512 bytes do not divide it.
fn mixed(path: &Path) -> Vec<u8> {
    let mut bytes = vec![0; 24 * MIB + 700];
    let data = noise(7 * MIB);
    bytes[..5 * MIB].copy_from_slice(&data[..5 * MIB]);
    bytes[12 * MIB + 4096..14 * MIB + 4096].copy_from_slice(&data[5 * MIB..]);
    bytes[24 * MIB + 690..].fill(7);
    let file = fs::File::create(path).expect("a file");
    file.set_len(bytes.len() as u64).expect("room");
    for range in [0..5 * MIB, 10 * MIB..15 * MIB, 24 * MIB..bytes.len()] {
        let at = range.start as u64;
        file.write_all_at(&bytes[range], at).expect("room");
    }
    bytes
}

fn allocated(path: &Path) -> u64 {
    fs::metadata(path).expect("it is there").blocks() * 512
}

/// `create NAME --from SOURCE --key-file KEY OPTIONS...`
fn create_from(folder: &Folder, name: &str, source: &str, options: &[&str]) -> Run {
    run(&mut create_command(folder, name, source, options), TIMEOUT)
}

fn create_command(folder: &Folder, name: &str, source: &str, options: &[&str]) -> Command {
    let mut command = command();
    command.arg("create").arg(folder.path(name)).args(["--from", source, "--key-file"]);
    command.arg(folder.key()).args(CHEAP).args(options);
    command
}

/// `copy SOURCE DESTINATION --key-file KEY OPTIONS...`
fn copy_out(folder: &Folder, source: &Path, name: &str, options: &[&str]) -> Run {
    let mut command = command();
    command.arg("copy").arg(source).arg(folder.path(name));
    run(command.arg("--key-file").arg(folder.key()).args(options), TIMEOUT)
}

fn text(path: &Path) -> String {
    path.to_str().expect("it is text").to_owned()
}

/// What is in the folder besides the key.
fn files(folder: &Folder) -> Vec<String> {
    let entries = fs::read_dir(folder.root()).expect("a folder");
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name != "key").collect();
    names.sort();
    names
}

#[test]
fn what_was_filled_is_copied_out_again_byte_for_byte() {
    let folder = Folder::new();
    let raw = folder.path("disk.raw");
    let bytes = mixed(&raw);
    for options in [&["--verify"][..], &["--luks1"], &["--sector-size=512"]] {
        let options = [options, &["--force"]].concat();
        let told = create_from(&folder, "disk.luks", &text(&raw), &options).success();
        let told = told.stdout_text();
        assert!(told.contains("24 MiB copied"), "{told}");
        assert!(!told.contains("holes"), "all of it was written: {told}");
        assert_eq!(told.contains("it is the same"), options.contains(&"--verify"));
        let luks = folder.path("disk.luks");
        assert_eq!(fs::metadata(&luks).unwrap().mode() & 0o777, 0o600);
        let told = copy_out(&folder, &luks, "out.raw", &["--verify", "--force"]).success();
        assert!(told.stdout_text().contains("of them holes"), "{told}");
        let out = fs::read(folder.path("out.raw")).unwrap();
        assert_eq!(out.len(), bytes.len().next_multiple_of(512));
        assert!(out[..bytes.len()] == bytes && out[bytes.len()..].iter().all(|&it| it == 0));
        assert!(allocated(&folder.path("out.raw")) < 10 << 20);
        assert_eq!(files(&folder), ["disk.luks", "disk.raw", "out.raw"]);
    }
}

#[test]
fn clear_file_is_copied_to_its_last_byte_and_stays_sparse() {
    let folder = Folder::new();
    let raw = folder.path("disk.raw");
    let bytes = mixed(&raw);
    let mut copy = command();
    copy.arg("copy").arg(&raw).arg(folder.path("out.raw"));
    run(&mut copy, TIMEOUT).success();
    assert!(fs::read(folder.path("out.raw")).unwrap() == bytes);
    assert!(allocated(&folder.path("out.raw")) < 10 << 20);
}

#[test]
fn header_of_what_was_filled_can_be_elsewhere() {
    let Some(cryptsetup) = peer::require("cryptsetup") else {
        return;
    };
    let folder = Folder::new();
    let raw = folder.path("disk.raw");
    let bytes = mixed(&raw);
    let [data, header, key] = [&folder.path("data"), &folder.path("header"), &folder.key()].map(|it| text(it));
    for options in [&["--verify"][..], &["--luks1"], &["--holes=keep"]] {
        let options = [options, &["--header", &header, "--force"]].concat();
        let told = create_from(&folder, "data", &text(&raw), &options).success();
        let served = format!("cryptline serve {data} --header {header}");
        assert!(told.stdout_text().contains(&served), "{told}");
        let test = ["open", "--test-passphrase", &data, "--header", &header, "--key-file", &key];
        cryptsetup.run(test).success();
        // Nothing of the data's file is anything but data.
        let data_len = fs::metadata(&data).unwrap().len();
        assert!(data_len - (bytes.len() as u64) < 4096, "{data_len}");
        let out = ["--header", &header, "--force"];
        copy_out(&folder, &folder.path("data"), "out.raw", &out).success();
        let out = fs::read(folder.path("out.raw")).unwrap();
        assert!(out[..bytes.len()] == bytes && out[bytes.len()..].iter().all(|&it| it == 0));
        assert_eq!(files(&folder), ["data", "disk.raw", "header", "out.raw"]);
    }
    // Where either place is taken, nothing is done.
    let before = [&data, &header].map(|path| fs::read(path).unwrap());
    let other = text(&folder.path("other"));
    for (name, place) in [("data", &other), ("other", &header), ("other", &other)] {
        let options = ["--header", place];
        let run = create_from(&folder, name, &text(&raw), &options);
        assert!([1, 5].contains(&run.status.code().unwrap()), "{run}");
        assert_eq!(files(&folder), ["data", "disk.raw", "header", "out.raw"]);
    }
    assert!(before == [&data, &header].map(|path| fs::read(path).unwrap()));
    // A device, which keeps its size.
    let device = text(&folder.path("device"));
    fs::write(&device, vec![7; 32 << 20]).expect("room");
    let target = format!("{device}?offset=0");
    let options = ["--header", &header, "--force", "--verify"];
    let run = create_from(&folder, &target, &text(&raw), &options);
    run.success();
}

#[test]
fn cryptsetup_and_qemu_read_what_was_filled() {
    let Some([cryptsetup, qemu_img]) = peer::require_all(["cryptsetup", "qemu-img"]) else {
        return;
    };
    let folder = Folder::new();
    let raw = folder.path("disk.raw");
    fs::write(&raw, noise(9 * MIB)).expect("room");
    create_from(&folder, "two.luks", &text(&raw), &[]).success();
    let two = text(&folder.path("two.luks"));
    let key = text(&folder.key());
    cryptsetup.run(["open", "--test-passphrase", &two, "--key-file", &key]).success();
    create_from(&folder, "one.luks", &text(&raw), &["--luks1"]).success();
    let one = text(&folder.path("one.luks"));
    let info = qemu_img.run(["info", &one]).success().stdout_text();
    assert!(info.contains("file format: luks"), "{info}");
    let secret = format!("secret,id=key,file={key}");
    let options = format!("driver=luks,key-secret=key,file.filename={one}");
    let clear = format!("driver=raw,file.filename={}", text(&raw));
    let compare = ["compare", "--object", &secret, "--image-opts", &options, &clear];
    qemu_img.run(compare).success();
    // And back: what qemu has encrypted is copied out here.
    let theirs = text(&folder.path("theirs.luks"));
    let convert = ["convert", "-O", "luks", "--object", &secret];
    let convert = [&convert[..], &["-o", "key-secret=key,iter-time=10"]].concat();
    let clear = text(&raw);
    let convert = [&convert[..], &[&clear, &theirs]].concat();
    let mut converted = qemu_img.run(&convert);
    for _ in 0..8 {
        // It measures the machine first, and gives up where that is busy.
        if converted.stderr_text().contains("accurate CPU usage") {
            converted = qemu_img.run(&convert);
        }
    }
    converted.success();
    copy_out(&folder, Path::new(&theirs), "out.raw", &[]).success();
    assert!(fs::read(folder.path("out.raw")).unwrap() == fs::read(&raw).unwrap());
}

#[test]
fn holes_stay_holes_where_they_are_asked_to() {
    let folder = Folder::new();
    let raw = folder.path("disk.raw");
    let bytes = mixed(&raw);
    create_from(&folder, "full.luks", &text(&raw), &[]).success();
    let told = create_from(&folder, "keep.luks", &text(&raw), &["--holes=keep", "--verify"]);
    assert!(told.success().stdout_text().contains("of them holes"));
    let (full, keep) = (folder.path("full.luks"), folder.path("keep.luks"));
    assert!(allocated(&full) > 24 << 20);
    // The header's 16 MiB, and the data.
    assert!(allocated(&keep) < 26 << 20, "{}", allocated(&keep));
    copy_out(&folder, &keep, "out.raw", &[]).success();
    assert!(fs::read(folder.path("out.raw")).unwrap()[..bytes.len()] == bytes);
    copy_out(&folder, &keep, "noise.raw", &["--zeroes=decrypt"]).success();
    let noise = fs::read(folder.path("noise.raw")).unwrap();
    assert!(noise[..5 * MIB] == bytes[..5 * MIB] && noise[6 * MIB..7 * MIB] != bytes[6 * MIB..7 * MIB]);
}

#[test]
fn stream_that_ends_inside_a_block_is_verified() {
    let folder = Folder::new();
    let bytes = noise(5000);
    let options = ["--luks1", "--verify"];
    let mut create = create_command(&folder, "disk.luks", "-", &options);
    peer::run_with_input(&mut create, TIMEOUT, &bytes).success();
    let mut copy = command();
    copy.args(["copy", "-"]).arg(folder.path("plain.raw"));
    peer::run_with_input(copy.arg("--verify"), TIMEOUT, &bytes).success();
    assert!(fs::read(folder.path("plain.raw")).unwrap() == bytes);
}

#[test]
fn standard_input_grows_the_file_as_it_comes() {
    let folder = Folder::new();
    for len in [1, 4096, 3 * MIB + 5, 70 * MIB] {
        let bytes = noise(len);
        let mut create = create_command(&folder, "disk.luks", "-", &["--verify", "--force"]);
        peer::run_with_input(&mut create, TIMEOUT, &bytes).success();
        let luks = folder.path("disk.luks");
        let size = (16 * MIB + len.next_multiple_of(4096)) as u64;
        assert_eq!(fs::metadata(&luks).unwrap().len(), size);
        copy_out(&folder, &luks, "out.raw", &["--force"]).success();
        let out = fs::read(folder.path("out.raw")).unwrap();
        assert!(out[..len] == bytes && out[len..].iter().all(|&byte| byte == 0));
    }
    let mut create = create_command(&folder, "empty.luks", "-", &[]);
    let empty = peer::run_with_input(&mut create, TIMEOUT, b"");
    refused(empty, 4, "standard input: it is empty");
    assert!(!folder.path("empty.luks").exists());
    let mut copy = command();
    copy.args(["copy", "-"]).arg(folder.path("plain.raw"));
    let bytes = noise(33 * MIB + 3);
    peer::run_with_input(&mut copy, TIMEOUT, &bytes).success();
    assert!(fs::read(folder.path("plain.raw")).unwrap() == bytes);
}

#[test]
fn more_than_there_is_room_for_is_refused_and_nothing_is_kept() {
    let folder = Folder::new();
    let raw = folder.path("disk.raw");
    fs::write(&raw, noise(4 * MIB)).expect("room");
    let small = create_from(&folder, "disk.luks", &text(&raw), &["--size=18M"]);
    refused(small, 4, "room for 2097152 bytes");
    let mut create = create_command(&folder, "disk.luks", "-", &["--size=18M"]);
    let long = peer::run_with_input(&mut create, TIMEOUT, &noise(2 * MIB + 1));
    refused(long, 4, "nothing was kept");
    let mut create = create_command(&folder, "disk.luks", "-", &["--size=18M"]);
    peer::run_with_input(&mut create, TIMEOUT, &noise(2 * MIB)).success();
    assert_eq!(files(&folder), ["disk.luks", "disk.raw"]);
    // A cipher sector is never cut.
    fs::write(&raw, noise(2 * MIB + 512)).expect("room");
    let options = ["--force", "--sector-size=4096", "--cipher=aes-cbc-essiv:sha256", "--key-size=256"];
    create_from(&folder, "disk.luks", &text(&raw), &[&options[..], &["--verify"]].concat()).success();
    assert_eq!(fs::metadata(folder.path("disk.luks")).unwrap().len(), (18 << 20) + 4096);
    copy_out(&folder, &folder.path("disk.luks"), "out.raw", &[]).success();
    let out = fs::read(folder.path("out.raw")).unwrap();
    assert!(out[..2 * MIB + 512] == fs::read(&raw).unwrap() && out[2 * MIB + 512..] == [0; 3584]);
}

#[test]
fn what_is_there_is_kept_unless_forced() {
    let folder = Folder::new();
    let raw = folder.path("disk.raw");
    fs::write(&raw, noise(2 * MIB)).expect("room");
    let luks = folder.luks2();
    let before = fs::read(&luks).unwrap();
    let again = create_from(&folder, "luks2.img", &text(&raw), &[]);
    refused(again, 5, "holds a LUKS header; give another name, or");
    refused(copy_out(&folder, &luks, "disk.raw", &[]), 5, "--force");
    let same = copy_out(&folder, &luks, "luks2.img", &["--force"]);
    refused(same, 1, "are the same");
    std::os::unix::fs::symlink("disk.raw", folder.path("link")).unwrap();
    let same = create_from(&folder, "link", &text(&raw), &["--force"]);
    refused(same, 1, "are the same");
    assert!(fs::read(&luks).unwrap() == before);
    copy_out(&folder, &luks, "link", &["--force"]).success();
    assert!(folder.path("link").is_symlink());
    assert_eq!(fs::metadata(&raw).unwrap().len(), SIZE - (16 << 20));
}

#[test]
fn volume_that_is_there_is_filled_once_and_again_by_force() {
    let folder = Folder::new();
    let luks = folder.luks2();
    let raw = folder.path("disk.raw");
    let (first, second) = (noise(4 * MIB), noise(4 * MIB + 1)[1..].to_vec());
    fs::write(&raw, &first).expect("room");
    let key = text(&folder.key());
    let fill = |options: &[&str]| {
        let mut copy = command();
        copy.arg("copy").arg(&raw).arg(&luks);
        run(copy.args(["--to-key-file", &key]).args(options), TIMEOUT)
    };
    fill(&["--verify"]).success();
    fs::write(&raw, &second).expect("room");
    refused(fill(&[]), 5, "--force");
    copy_out(&folder, &luks, "out.raw", &[]).success();
    assert!(fs::read(folder.path("out.raw")).unwrap() == first);
    fill(&["--force", "--verify"]).success();
    copy_out(&folder, &luks, "out.raw", &["--force"]).success();
    assert!(fs::read(folder.path("out.raw")).unwrap() == second);
    fs::write(&raw, noise(4 * MIB + 1)).expect("room");
    refused(fill(&["--force"]), 4, "the source needs 4194816");
    let wrong = folder.path("wrong");
    fs::write(&wrong, "wrong").expect("room");
    let mut copy = command();
    copy.arg("copy").arg(&raw).arg(&luks).arg("--to-key-file");
    run(copy.arg(&wrong), TIMEOUT).exited_with(2);
}

#[test]
fn source_in_another_format_is_named_and_taken_as_it_is_on_request() {
    let folder = Folder::new();
    let qcow2 = folder.path("disk.qcow2");
    let mut bytes = noise(MIB);
    bytes[..4].copy_from_slice(b"QFI\xfb");
    fs::write(&qcow2, &bytes).expect("room");
    let named = create_from(&folder, "disk.luks", &text(&qcow2), &[]);
    refused(named, 4, "a qcow2 image");
    create_from(&folder, "disk.luks", &text(&qcow2), &["--from-raw"]).success();
    copy_out(&folder, &folder.path("disk.luks"), "out", &[]).success();
    assert!(fs::read(folder.path("out")).unwrap() == bytes);
    let useless = copy_out(&folder, &qcow2, "more", &["--from-raw"]);
    refused(useless, 1, "--from-raw");
    let out = cryptline(["copy", &text(&qcow2), "-", "--from-raw"]);
    refused(out, 1, "standard output");
    fs::write(folder.path("empty"), "").expect("room");
    let empty = create_from(&folder, "e.luks", &text(&folder.path("empty")), &[]);
    refused(empty, 4, "empty");
    let absent = create_from(&folder, "e.luks", &text(&folder.path("absent")), &[]);
    refused(absent, 4, "No such file");
    let mut alone = command();
    alone.arg("create").arg(folder.path("x")).args(["--size=20M", "--verify"]);
    refused(run(&mut alone, TIMEOUT), 1, "--from");
}

#[test]
fn result_is_told_as_json() {
    let folder = Folder::new();
    let raw = folder.path("disk.raw");
    let bytes = mixed(&raw);
    let told = create_from(&folder, "disk.luks", &text(&raw), &["--json", "--verify"]).success();
    let told: Value = serde_json::from_slice(&told.stdout).expect("JSON");
    assert_eq!(told["bytes"], bytes.len());
    assert_eq!(told["skipped"], 0);
    assert_eq!(told["verified"], true);
    assert_eq!(told["destination"], text(&folder.path("disk.luks")));
    let told = copy_out(&folder, &folder.path("disk.luks"), "out", &["--json"]).success();
    let told: Value = serde_json::from_slice(&told.stdout).expect("JSON");
    assert_eq!(told["verified"], false);
    assert!(told["skipped"].as_u64().expect("a number") > 10 << 20);
}

#[test]
fn file_size_limit_is_one_line_and_leaves_nothing() {
    let folder = Folder::new();
    let raw = folder.path("disk.raw");
    fs::write(&raw, noise(8 * MIB)).expect("room");
    let limited = |command: &Command| {
        let mut limited = Command::new("prlimit");
        limited
            .arg(format!("--fsize={}", 20 << 20))
            .arg(command.get_program())
            .args(command.get_args())
            .env("LC_ALL", "C");
        limited
    };
    let create = create_command(&folder, "disk.luks", &text(&raw), &[]);
    refused(run(&mut limited(&create), TIMEOUT), 4, "nothing was kept");
    // As the bytes come, with a pipe.
    let create = create_command(&folder, "disk.luks", "-", &[]);
    let long = peer::run_with_input(&mut limited(&create), TIMEOUT, &noise(8 * MIB));
    refused(long, 4, "nothing was kept");
    assert_eq!(files(&folder), ["disk.raw"]);
}

#[test]
fn full_file_system_is_one_line_and_leaves_nothing() {
    let folder = Folder::new();
    let raw = folder.path("disk.raw");
    fs::write(&raw, noise(24 * MIB)).expect("room");
    // A file system of its own, for which the test needs a namespace of its own.
    let script = format!(
        "mount -t tmpfs -o size=20m tmpfs /mnt && {} create /mnt/disk.luks --from {} --key-file {} {} {}; code=$?; ls -A /mnt; exit $code",
        env!("CARGO_BIN_EXE_cryptline"),
        text(&raw),
        text(&folder.key()),
        CHEAP[0],
        CHEAP[1]
    );
    let Some(unshare) = peer::require("unshare") else {
        return;
    };
    let mut own = unshare.command();
    own.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
    let full = run(&mut own, TIMEOUT);
    if full.stderr_text().contains("unshare failed") || full.stderr_text().contains("mount:") {
        peer::skip("no namespaces for users here");
        return;
    }
    refused(full, 4, "no space left");
}

/// A copy of standard input, which goes on until its other end is closed.
fn endless(command: &mut Command, bytes: &[u8]) -> (Background, fs::File) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    command.stdin(Stdio::from(reader));
    let process = Background::spawn(command);
    let mut writer = fs::File::from(std::os::fd::OwnedFd::from(writer));
    writer.write_all(bytes).expect("it is read");
    (process, writer)
}

/// Waits for an end that is on its way.
fn end(mut process: Background) -> Run {
    assert!(process.wait(TIMEOUT).is_some(), "it still runs");
    process.collect()
}

/// The temporary file of a copy under way, once it has so many bytes of data.
fn unfinished(folder: &Folder, least: u64) -> PathBuf {
    let begin = Instant::now();
    loop {
        let found = files(folder).into_iter().find(|name| name.starts_with(".cryptline-"));
        if let Some(path) = found.map(|name| folder.path(&name))
            && fs::metadata(&path).is_ok_and(|found| found.blocks() * 512 >= least)
        {
            return path;
        }
        assert!(begin.elapsed() < TIMEOUT, "nothing is written");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn signal_ends_it_with_one_line_and_leaves_nothing() {
    let folder = Folder::new();
    for signal in [Signal::INT, Signal::TERM] {
        let mut create = create_command(&folder, "disk.luks", "-", &[]);
        let (process, writer) = endless(&mut create, &noise(6 * MIB));
        unfinished(&folder, 4 << 20);
        process.signal(signal);
        let ended = end(process);
        drop(writer);
        refused(ended, 4, "stopped; nothing was kept");
        assert_eq!(files(&folder), [""; 0]);
    }
    // What is there already keeps a part.
    let luks = folder.luks2();
    let mut copy = command();
    copy.args(["copy", "-"]).arg(&luks).arg("--to-key-file").arg(folder.key());
    let (process, writer) = endless(&mut copy, &noise(2 * MIB));
    let begin = Instant::now();
    while allocated(&luks) < (17 << 20) {
        assert!(begin.elapsed() < TIMEOUT, "nothing is written");
        std::thread::sleep(Duration::from_millis(10));
    }
    process.signal(Signal::TERM);
    let ended = end(process);
    drop(writer);
    refused(ended, 4, "luks2.img is incomplete");
}

#[test]
fn killed_copy_leaves_no_volume() {
    let folder = Folder::new();
    let mut create = create_command(&folder, "disk.luks", "-", &[]);
    let (mut process, writer) = endless(&mut create, &noise(6 * MIB));
    let left = unfinished(&folder, 4 << 20);
    process.kill();
    drop(writer);
    assert!(!folder.path("disk.luks").exists());
    refused(cryptline(["info".as_ref(), left.as_path()]), 4, "not a LUKS");
}
