//! `dir:DIR`: the file system in the volume is the folder, as programs we did not write see it.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use crate::common::*;
use cryptline_testkit::peer;

fn filled(folder: &Folder) -> std::path::PathBuf {
    let root = folder.path("site");
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("a/text"), "some text\n").unwrap();
    fs::write(root.join("a/b/odd \u{fc} name"), vec![7; 100_000]).unwrap();
    fs::set_permissions(root.join("a/text"), Permissions::from_mode(0o640)).unwrap();
    fs::hard_link(root.join("a/text"), root.join("twin")).unwrap();
    symlink("a/text", root.join("link")).unwrap();
    let hole = File::create(root.join("hole")).unwrap();
    hole.set_len(64 << 20).unwrap();
    hole.write_all_at(b"end", (64 << 20) - 3).unwrap();
    root
}

/// What debugfs says of a path in the image.
fn stat(debugfs: &peer::Peer, image: &Path, path: &str) -> String {
    let request = format!("stat \"{path}\"");
    let run = debugfs.run(["-R", &request, image.to_str().unwrap()]);
    run.success().stdout_text()
}

#[test]
fn folder_becomes_a_sound_file_system_with_its_names_modes_holes_and_links() {
    let Some([e2fsck, debugfs, _]) = peer::require_all(["e2fsck", "debugfs", "mkfs.ext4"]) else {
        return;
    };
    let folder = Folder::new();
    let root = filled(&folder);
    let source = format!("dir:{}", root.display());
    let [luks, raw] = ["luks", "raw"].map(|name| folder.path(name));
    let key = format!("--key-file={}", folder.key().display());
    let cheap = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];
    let create = ["create", luks.to_str().unwrap(), "--from", &source, &key];
    cryptline([&create[..], &cheap].concat()).success();
    cryptline(["copy", luks.to_str().unwrap(), raw.to_str().unwrap(), &key]).success();
    let clear = folder.path("clear");
    cryptline(["copy", &source, clear.to_str().unwrap()]).success();
    for image in [&raw, &clear] {
        e2fsck.run(["-f", "-n", image.to_str().unwrap()]).success();
        let text = stat(&debugfs, image, "/a/text");
        assert!(text.contains("Mode:  0640") && text.contains("Links: 2"), "{text}");
        assert!(stat(&debugfs, image, "/link").contains("Fast link dest: \"a/text\""));
        let hole = stat(&debugfs, image, "/hole");
        assert!(hole.contains("Size: 67108864"), "{hole}");
        let blocks = hole.split("Blockcount: ").nth(1).unwrap();
        let blocks: u64 = blocks.split_whitespace().next().unwrap().parse().unwrap();
        assert!(blocks < 64, "{hole}");
        let out = folder.path("dumped");
        let dump = format!("dump \"/a/b/odd \u{fc} name\" {}", out.display());
        debugfs.run(["-R", &dump, image.to_str().unwrap()]).success();
        assert_eq!(fs::read(&out).unwrap(), vec![7; 100_000]);
    }
    assert!(fs::metadata(&raw).unwrap().len() < 64 << 20);
}

#[test]
fn file_system_of_a_folder_has_the_size_that_was_asked_for_or_none_is_made() {
    let Some([debugfs, _]) = peer::require_all(["debugfs", "mkfs.ext4"]) else {
        return;
    };
    let folder = Folder::new();
    let root = filled(&folder);
    let source = format!("dir:{}", root.display());
    let [luks, raw] = ["luks", "raw"].map(|name| folder.path(name));
    let key = format!("--key-file={}", folder.key().display());
    let create = |size: &str| {
        cryptline([
            "create",
            luks.to_str().unwrap(),
            "--from",
            &source,
            &key,
            "--pbkdf=pbkdf2",
            "--pbkdf-force-iterations=1000",
            size,
        ])
    };
    create("--size=80M").success();
    cryptline(["copy", luks.to_str().unwrap(), raw.to_str().unwrap(), &key]).success();
    let stats = debugfs.run(["-R", "stats", raw.to_str().unwrap()]).success();
    let blocks = format!("Block count:              {}", (64 << 20) / 4096);
    assert!(stats.stdout_text().contains(&blocks), "{stats}");
    fs::remove_file(&luks).unwrap();
    // Data begins where it does, however small the place for key slots is.
    let small = ["create", luks.to_str().unwrap(), "--from", &source, &key];
    let small =
        [&small[..], &["--size=64M", "--luks2-keyslots-size=1M", "--pbkdf=pbkdf2"], &["--pbkdf-force-iterations=1000"]];
    cryptline(small.concat()).success();
    fs::remove_file(&luks).unwrap();
    refused(create("--size=16500K"), 4, "mke2fs cannot make a file system");
    assert!(!luks.exists());
    let missing = format!("dir:{}", folder.path("missing").display());
    let from = ["create", luks.to_str().unwrap(), "--from", &missing, &key];
    refused(cryptline(from), 4, "No such file");
    let resumed = ["create", luks.to_str().unwrap(), "--from", &source, &key, "--resume"];
    refused(cryptline(resumed), 1, "only a regular file");
    assert!(!luks.exists());
}

/// As a fresh checkout is: other inodes, made in another order, changed and read at other times.
fn copied(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    let mut names: Vec<_> = fs::read_dir(from).unwrap().map(|it| it.unwrap().file_name()).collect();
    names.reverse();
    let mut copy = std::process::Command::new("cp");
    // One command, which keeps the hard link.
    copy.args(["-a", "--sparse=always"]);
    copy.args(names.iter().map(|name| from.join(name)));
    peer::run(copy.arg(to), Duration::from_secs(60)).success();
    for path in [to, from] {
        let mut touch = std::process::Command::new("touch");
        touch.args(["-r"]).arg(from.join("a/text")).arg("-m");
        peer::run(touch.arg(path), Duration::from_secs(60)).success();
    }
}

#[test]
fn folder_or_a_copy_of_it_and_a_seed_make_the_same_image_each_time() {
    let Some([e2fsck, _, _]) = peer::require_all(["e2fsck", "debugfs", "mkfs.ext4"]) else {
        return;
    };
    let folder = Folder::new();
    let root = filled(&folder);
    let copy = folder.path("copy");
    copied(&root, &copy);
    let [seed, raw] = ["seed", "raw"].map(|name| folder.path(name));
    fs::write(&seed, [1; 32]).unwrap();
    let made = |root: &Path, name: &str, epoch: &str| {
        let path = folder.path(name);
        let mut command = command();
        command.arg("create").arg(&path).arg("--from");
        command.arg(format!("dir:{}", root.display()));
        command.arg("--key-file").arg(folder.key());
        command.arg("--seed-file").arg(&seed);
        command.args(["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"]);
        command.env("SOURCE_DATE_EPOCH", epoch);
        peer::run(&mut command, Duration::from_secs(60)).success();
        fs::read(path).unwrap()
    };
    let first = made(&root, "first", "");
    let mut touch = std::process::Command::new("touch");
    touch.args(["-a", "-d", "@1"]).arg(root.join("a/text"));
    peer::run(&mut touch, Duration::from_secs(60)).success();
    assert!(first == made(&root, "second", ""), "after a file was read");
    assert!(first == made(&copy, "copied", ""), "of a copy");
    // Which shows that the time of the build is nowhere else.
    assert!(first != made(&root, "third", "1000000000"));
    let key = format!("--key-file={}", folder.key().display());
    let second = folder.path("second");
    cryptline(["copy", second.to_str().unwrap(), raw.to_str().unwrap(), &key]).success();
    e2fsck.run(["-f", "-n", raw.to_str().unwrap()]).success();
}

/// It gets nothing that a passphrase could be read from, and is not asked again where more room does not help.
#[test]
fn program_that_makes_the_file_system_has_no_descriptor_of_ours_and_fails_once() {
    let folder = Folder::new();
    let root = filled(&folder);
    let [bin, log, luks] = ["bin", "log", "luks"].map(|name| folder.path(name));
    fs::create_dir(&bin).unwrap();
    let program = bin.join("mke2fs");
    let script = "#!/bin/sh\nfor fd in /proc/$$/fd/*; do readlink $fd; done >>$LOG\nexit 1\n";
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let shell = std::process::Command::new("sh")
        .args(["-c", "exec 7<$KEY; \"$0\" \"$@\" --passphrase-fd 7"])
        .arg(command().get_program())
        .arg("create")
        .arg(&luks)
        .arg("--from")
        .arg(format!("dir:{}", root.display()))
        .env("PATH", format!("{}:{path}", bin.display()))
        .env("KEY", folder.key())
        .env("LOG", &log)
        .output()
        .unwrap();
    assert_eq!(shell.status.code(), Some(4), "{shell:?}");
    let had = fs::read_to_string(&log).unwrap();
    assert!(!had.contains(folder.key().to_str().unwrap()), "{had}");
    assert_eq!(had.matches("memfd:cryptline-dir").count(), 1, "{had}");
    assert!(!luks.exists());
}
