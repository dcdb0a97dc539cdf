//! What `copy` and `create --from` refuse, since somebody would lose data, a key, or a secret.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::*;
use cryptline_testkit::peer::{Background, Run, run, run_with_input};

const CHEAP: [&str; 2] = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];
const TIMEOUT: Duration = Duration::from_secs(120);
/// A disk whose first line would be a passphrase.
const DISK: &[u8] = b"first line\nsecond line\nthird line";

fn text(path: &Path) -> String {
    path.to_str().expect("it is text").to_owned()
}

fn of(words: &[&str]) -> Command {
    let mut command = command();
    command.args(words);
    command
}

/// With the disk in a pipe.
#[track_caller]
fn piped(words: &[&str]) -> Run {
    run_with_input(&mut of(words), TIMEOUT, DISK)
}

/// With the disk as standard input, and where that stands afterwards.
#[track_caller]
fn redirected(words: &[&str], disk: &Path) -> (Run, u64) {
    use std::io::Seek;
    let mut file = fs::File::open(disk).expect("a disk");
    let mut command = of(words);
    command.stdin(file.try_clone().expect("a descriptor"));
    let mut process = Background::spawn(&mut command);
    assert!(process.wait(TIMEOUT).is_some(), "it still runs");
    let ended = process.collect();
    (ended, file.stream_position().expect("a position"))
}

/// 4 MiB of disk: what is refused here is not refused for its size.
fn raw(folder: &Folder) -> String {
    let path = folder.path("disk.raw");
    let disk = DISK.iter().copied().cycle().take(4 << 20);
    fs::write(&path, disk.collect::<Vec<_>>()).expect("room");
    text(&path)
}

#[test]
fn new_volume_takes_no_passphrase_from_the_disk_that_fills_it() {
    let folder = Folder::new();
    let new = text(&folder.path("new.luks"));
    let disk = raw(&folder);
    for source in ["-", "/dev/stdin"] {
        let create = ["create", &new, "--from", source, CHEAP[0], CHEAP[1]];
        for options in [&[][..], &["--key-file=-"], &["--key-file=/dev/stdin"], &["--passphrase-fd=0"]] {
            let words = [&create[..], options].concat();
            let (ended, position) = redirected(&words, Path::new(&disk));
            refused(ended, 1, "the disk and the new passphrase; give the latter");
            assert_eq!(position, 0, "something was read");
            if source == "-" {
                refused(piped(&words), 1, "--key-file FILE");
            }
        }
    }
    let keyed = format!("{new}?key-file=-");
    refused(piped(&["create", &keyed, "--from", "-"]), 1, "--key-file");
    assert!(!folder.path("new.luks").exists());
    let key = text(&folder.key());
    let create = ["create", &new, "--from", "-", CHEAP[0], CHEAP[1]];
    piped(&[&create[..], &["--key-file", &key]].concat()).success();
    folder.check(Path::new(&new)).success();
}

#[test]
fn volume_that_is_there_takes_no_key_from_the_disk_that_fills_it() {
    let folder = Folder::new();
    let luks = text(&folder.luks2());
    let before = fs::read(&luks).expect("it is there");
    for options in [&[][..], &["--to-key-file=-"], &["--to-passphrase-fd=0"], &["--to-volume-key-file=/dev/stdin"]] {
        let copy = piped(&[&["copy", "-", &luks], options].concat());
        refused(copy, 1, "the disk and the key of the destination; give");
    }
    let keyed = format!("{luks}?key-file=-");
    refused(piped(&["copy", "-", &keyed]), 1, "--to-key-file FILE");
    assert!(fs::read(&luks).expect("it is there") == before);
    let key = text(&folder.key());
    piped(&["copy", "-", &luks, "--to-key-file", &key]).success();
}

#[test]
fn two_keys_come_from_standard_input_only_line_by_line() {
    let folder = Folder::new();
    let (one, two) = (text(&folder.luks1()), text(&folder.luks2()));
    let lines = format!("{PASSPHRASE}\n{PASSPHRASE}\n");
    let fed = |words: &[&str]| run_with_input(&mut of(words), TIMEOUT, lines.as_bytes());
    for options in [
        &["--key-file=-", "--to-key-file=-"][..],
        &["--key-file=-", "--to-passphrase-fd=0"],
        &["--key-file=/dev/stdin", "--to-key-file=-"],
        &["--to-key-file=-"],
        &["--key-file=-"],
    ] {
        let copy = fed(&[&["copy", &two, &one], options].concat());
        refused(copy, 1, "the key of the source and the key of the destination");
    }
    let new = text(&folder.path("new.luks"));
    let create = ["create", &new, "--from", &two, CHEAP[0], CHEAP[1]];
    let options = ["--key-file=-", "--from-key-file=-"];
    let both = fed(&[&create[..], &options].concat());
    refused(both, 1, "the key of the source and the new passphrase");
    assert!(!folder.path("new.luks").exists());
    fed(&create).success();
    folder.check(Path::new(&new)).success();
}

#[test]
fn key_for_what_is_no_volume_is_refused_rather_than_left_out() {
    let folder = Folder::new();
    let (disk, key) = (raw(&folder), text(&folder.key()));
    let out = text(&folder.path("typo"));
    for options in
        [["--to-key-file", &key], ["--to-volume-key-file", &key], ["--to-key-slot", "0"], ["--to-passphrase-fd", "0"]]
    {
        let copy = cryptline([&["copy", &disk, &out][..], &options].concat());
        refused(copy, 1, "would not be encrypted; make it a volume with --encrypt");
    }
    let keyed = format!("{out}?key-file={key}");
    refused(cryptline(["copy", &disk, &keyed]), 1, "no LUKS header");
    assert!(!folder.path("typo").exists());
    // Also where a file is there, and for a source.
    fs::write(&out, "before").expect("room");
    let forced = ["copy", &disk, &out, "--force", "--to-key-file", &key];
    refused(cryptline(forced), 1, "no LUKS header");
    let keyed = format!("{disk}?key-file={key}");
    refused(cryptline(["copy", &keyed, &out, "--force"]), 1, "needs no key");
    assert_eq!(fs::read(&out).expect("it is there"), b"before");
}

#[test]
fn header_and_keys_of_the_command_are_not_overwritten() {
    let folder = Folder::new();
    let luks = folder.luks2();
    let (luks, key) = (text(&luks), text(&folder.key()));
    let disk = raw(&folder);
    let header = folder.path("header");
    let all = fs::read(&luks).expect("it is there");
    fs::write(&header, &all[..16 << 20]).expect("room");
    let (link, hard) = (folder.path("link"), folder.path("hard"));
    std::os::unix::fs::symlink("header", &link).expect("a link");
    fs::hard_link(&header, &hard).expect("a link");
    let header = text(&header);
    for out in [&header, &text(&link), &text(&hard)] {
        let copy = ["copy", &luks, out, "--force", "--header", &header];
        let copy = cryptline([&copy[..], &["--key-file", &key]].concat());
        refused(copy, 1, "it is the header of the source");
        let create = ["create", out, "--force", "--from", &luks, "--key-file", &key];
        let options = ["--from-key-file", &key, "--from-header", &header];
        let create = cryptline([&create[..], &options, &CHEAP].concat());
        refused(create, 1, "it is the header of the source");
        let to = ["copy", &disk, out, "--force", "--to-header", &header];
        let copy = cryptline([&to[..], &["--to-key-file", &key]].concat());
        refused(copy, 1, "it is the header of the destination");
    }
    let to_key = ["copy", &luks, &key, "--force", "--key-file", &key];
    refused(cryptline(to_key), 1, "it is a key file");
    let keyed = format!("{luks}?key-file={key}");
    let to_key = ["copy", &keyed, &key, "--force"];
    refused(cryptline(to_key), 1, "it is a key file");
    let create = ["create", &key, "--size=20M", "--force", "--key-file", &key];
    refused(cryptline(create), 1, "it is a key file");
    assert!(fs::read(&header).expect("it is there") == all[..16 << 20]);
    assert_eq!(fs::read(&key).expect("it is there"), PASSPHRASE.as_bytes());
    let out = text(&folder.path("out"));
    let copy = ["copy", &luks, &out, "--header", &header, "--key-file", &key];
    run(&mut of(&copy), TIMEOUT).success();
}
