//! `create --from` where the header is elsewhere, or most of the file is holes: what is where, and what is lost when that fails.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::*;
use cryptline_testkit::peer::{self, Run, run};

const CHEAP: [&str; 2] = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];
const TIMEOUT: Duration = Duration::from_secs(120);

/// `create TARGET --from SOURCE OPTIONS...`, where names are those in the folder.
fn create(folder: &Folder, target: &str, source: &str, options: &[&str]) -> Run {
    let mut command = command();
    command.current_dir(folder.root()).args(["create", target, "--from", source, "--key-file", "key"]);
    run(command.args(CHEAP).args(options), TIMEOUT)
}

/// What is in the folder besides the key.
fn files(folder: &Folder) -> Vec<String> {
    let entries = fs::read_dir(folder.root()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name != "key").collect();
    names.sort();
    names
}

#[test]
fn header_has_no_name_of_the_data_though_neither_is_there_yet() {
    let folder = Folder::new();
    let [src, disk, sub] = ["src", "disk", "sub"].map(|name| folder.path(name));
    fs::write(&src, vec![7; 64 << 10]).unwrap();
    fs::write(&disk, vec![9; 8 << 20]).unwrap();
    fs::create_dir(&sub).unwrap();
    symlink("sub", folder.path("link")).unwrap();
    let before = files(&folder);
    for (target, header) in [
        ("same", "same"),
        ("same", "./same"),
        ("sub/same", "link/same"),
        ("disk", "./disk"),
        ("disk?offset=1M&length=4M", "disk"),
        ("pmem:disk?offset=1M&length=4M", "./disk"),
    ] {
        for force in [&["--force"][..], &[]] {
            let options = [&["--header", header], force].concat();
            let ended = create(&folder, target, "src", &options);
            refused(ended, 1, "would replace the data");
            assert_eq!(files(&folder), before, "{target} {header}");
            assert_eq!(fs::read_dir(&sub).unwrap().count(), 0, "{target} {header}");
            assert!(fs::read(&disk).unwrap() == vec![9; 8 << 20], "{target}");
        }
    }
    // Names alike in two folders are two.
    let options = ["--header", "sub/same"];
    create(&folder, "same", "src", &options).success();
}

#[test]
fn header_alone_does_not_replace_the_data_either() {
    let folder = Folder::new();
    let [disk, key] = [folder.path("disk"), folder.key()].map(|path| path.display().to_string());
    fs::write(&disk, vec![9; 8 << 20]).unwrap();
    symlink("disk", folder.path("link")).unwrap();
    let link = folder.path("link").display().to_string();
    let part = format!("{disk}?offset=1M&length=4M");
    let before = files(&folder);
    for (target, header) in [(&disk, &disk), (&disk, &link), (&part, &disk)] {
        for words in
            [&["create", target, "--header", header, "--force"][..], &["luksFormat", "-q", target, "--header", header]]
        {
            let ended = cryptline([words, &CHEAP, &["--key-file", &key]].concat());
            refused(ended, 1, "would replace the data");
            assert_eq!(files(&folder), before, "{words:?}");
            assert!(fs::read(&disk).unwrap() == vec![9; 8 << 20], "{words:?}");
        }
    }
}

/// The source may be gone soon, and nothing but the header has the key.
#[test]
fn data_whose_name_may_not_be_durable_keeps_its_header() {
    let Some(setpriv) = peer::require("setpriv") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    mode(folder.path(), 0o777).unwrap();
    // Where the program was built, nobody may look.
    fs::copy(env!("CARGO_BIN_EXE_cryptline"), path("c")).unwrap();
    for (name, contents) in [("key", &b"secret"[..]), ("src", &[7; 4096])] {
        fs::write(path(name), contents).unwrap();
        mode(&path(name), 0o644).unwrap();
    }
    // Files can be made and named there, but the folder cannot be opened, so its names cannot be made durable.
    let blind = path("blind");
    fs::create_dir(&blind).unwrap();
    let mut command: Command = setpriv.command();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&blind, Some(65534), Some(65534)).unwrap();
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    } else {
        command.arg("--no-new-privs");
    }
    mode(&blind, 0o300).unwrap();
    command.current_dir(folder.path()).arg("./c");
    command.args(["create", "blind/data", "--from", "src", "--header", "header"]);
    let made = run(command.args(["--key-file", "key"]).args(CHEAP), TIMEOUT);
    mode(&blind, 0o700).unwrap();
    assert_eq!(made.status.code(), Some(4), "{made}");
    assert!(made.stderr_text().contains("may still undo its name"), "{made}");
    let [data, header, key, out] = ["blind/data", "header", "key", "out"].map(path);
    let copy = ["copy".as_ref(), data.as_os_str(), out.as_os_str()];
    let with = ["--header".as_ref(), header.as_os_str()];
    let key = ["--key-file".as_ref(), key.as_os_str()];
    cryptline([&copy[..], &with, &key].concat()).success();
    assert_eq!(fs::read(out).unwrap(), [7; 4096]);
}

#[test]
fn header_without_room_is_found_before_the_device_is_written() {
    let folder = Folder::new();
    let [src, disk, mount] = ["src", "disk", "mount"].map(|name| folder.path(name));
    fs::write(&src, vec![7; 64 << 10]).unwrap();
    fs::write(&disk, vec![9; 1 << 20]).unwrap();
    fs::create_dir(&mount).unwrap();
    let script = "mount -t tmpfs -o size=1M none mount || exit 99
        \"$1\" create 'disk?offset=0' --from src --header mount/header --force --key-file key $2
        code=$?
        test -z \"$(ls -A mount)\" || exit 98
        exit $code";
    let mut shell = Command::new("unshare");
    shell.current_dir(folder.root());
    shell.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
    shell.args(["sh", env!("CARGO_BIN_EXE_cryptline"), &CHEAP.join(" ")]);
    let ended = run(&mut shell, TIMEOUT);
    if matches!(ended.status.code(), Some(1 | 99)) && !ended.stderr_text().contains("cryptline:") {
        return peer::skip("no file system can be mounted here");
    }
    refused(ended, 4, "No space left on device");
    assert!(fs::read(&disk).unwrap() == vec![9; 1 << 20]);
}

#[test]
fn data_without_its_header_is_as_large_as_its_source() {
    let folder = Folder::new();
    for len in [(1 << 20) + 512, 1 << 20] {
        fs::write(folder.path("src"), vec![7; len]).unwrap();
        let options = ["--header", "header", "--force", "--verify"];
        create(&folder, "data", "src", &options).success();
        assert_eq!(fs::read(folder.path("data")).unwrap().len(), len);
    }
}

#[test]
fn volume_that_keeps_holes_takes_little_more_than_its_data() {
    let folder = Folder::new();
    let [src, luks] = ["src", "luks"].map(|name| folder.path(name));
    let source = fs::File::create(&src).unwrap();
    source.set_len(1 << 30).unwrap();
    source.write_all_at(&vec![7; 4 << 20], 512 << 20).unwrap();
    let allocated = |path: &Path| fs::metadata(path).unwrap().blocks() * 512;
    create(&folder, "luks", "src", &["--holes=keep"]).success();
    assert!(allocated(&luks) < 6 << 20, "{}", allocated(&luks));
    // Behind the first key slot, up to the data.
    let file = fs::File::open(&luks).unwrap();
    let mut free = vec![1; 15 << 20];
    file.read_exact_at(&mut free, 1 << 20).unwrap();
    assert!(free.iter().all(|&byte| byte == 0));
    if let Some(cryptsetup) = peer::require("cryptsetup") {
        let (luks, key) = (luks.to_str().unwrap(), folder.key());
        let key = ["--key-file", key.to_str().unwrap()];
        let test = ["open", "--test-passphrase", luks];
        cryptsetup.run(test.iter().chain(&key)).success();
        // Another key slot goes where nothing was.
        let new = folder.path("new");
        fs::write(&new, "another").unwrap();
        let add = ["luksAddKey", luks, new.to_str().unwrap()];
        cryptsetup.run(add.iter().chain(&key).chain(&CHEAP)).success();
    }
    folder.check(&luks).success();
}
