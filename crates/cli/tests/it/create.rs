//! `create`: a whole volume or nothing.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::*;
use cryptline_testkit::peer::{self, Background, Run, run};

const CHEAP: [&str; 2] = ["--pbkdf-force-iterations=4", "--pbkdf-memory=32"];

fn create(folder: &Folder, name: &str, options: &[&str]) -> Run {
    let mut command = command();
    command.arg("create").arg(folder.path(name)).arg("--key-file").arg(folder.key());
    run(command.args(options), Duration::from_secs(60))
}

/// What is in the folder besides the key.
fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name != "key").collect();
    names.sort();
    names
}

#[test]
fn what_is_made_is_whole_private_and_sparse() {
    let folder = Folder::new();
    let options = [&CHEAP[..], &["--size=1G"]].concat();
    let made = create(&folder, "a.img", &options).success().stdout_text();
    assert!(made.contains("LUKS2, 1008 MiB of clear disk, aes-xts-plain64"), "{made}");
    assert!(made.contains("cryptline serve"), "{made}");
    let metadata = fs::metadata(folder.path("a.img")).unwrap();
    assert_eq!(metadata.len(), 1 << 30);
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert!(metadata.blocks() * 512 < 32 << 20, "{} blocks", metadata.blocks());
    assert_eq!(files(folder.root()), ["a.img"]);
    folder.serve(&folder.path("a.img")).success();
}

#[test]
fn space_can_be_reserved() {
    let folder = Folder::new();
    let image = folder.create("a.img", &[&CHEAP[..], &["--preallocate"]].concat());
    let metadata = fs::metadata(image).unwrap();
    assert!(metadata.blocks() * 512 >= SIZE, "{} blocks", metadata.blocks());
}

#[test]
fn the_defaults_are_measured_and_argon2id() {
    let folder = Folder::new();
    // The measurement itself, with little to measure.
    let image = folder.create("a.img", &["--iter-time=100", "--pbkdf-memory=4096"]);
    let shown = cryptline(["info".as_ref(), image.as_path()]).success().stdout_text();
    assert!(shown.contains("argon2id, time "), "{shown}");
    folder.check(&image).success();
}

#[test]
fn one_seed_makes_the_same_image_each_time() {
    let folder = Folder::new();
    let [seed, other, raw, short] = ["seed", "other", "raw", "short"].map(|name| folder.path(name));
    for (path, contents) in [(&seed, [1; 32]), (&other, [2; 32])] {
        fs::write(path, contents).unwrap();
    }
    fs::write(&raw, vec![7; 3 << 20]).unwrap();
    fs::write(&short, [1; 15]).unwrap();
    let made = |name: &str, seed: &Path, options: &[&str]| {
        let (seed, raw) = (seed.to_str().unwrap(), raw.to_str().unwrap());
        let options = [&CHEAP[..], &["--seed-file", seed, "--from", raw], options];
        let made = create(&folder, name, &options.concat()).success();
        let text = made.stdout_text();
        let gives_key = !options.concat().contains(&"--volume-key-file");
        let told = text.contains("The seed gives the volume key");
        assert_eq!(told, gives_key, "{text}");
        fs::read(folder.path(name)).unwrap()
    };
    let first = made("a.img", &seed, &[]);
    assert!(first == made("b.img", &seed, &[]));
    assert!(first == made("c.img", &seed, &["--resume"]));
    assert!(first != made("d.img", &other, &[]));
    // The data, too: the label takes part in the key.
    let labelled = made("e.img", &seed, &["--label=e"]);
    assert!(first[16 << 20..] != labelled[16 << 20..]);
    folder.check(&folder.path("b.img")).success();
    let volume_key = folder.path("volume-key");
    fs::write(&volume_key, [5; 64]).unwrap();
    let volume_key = ["--volume-key-file", volume_key.to_str().unwrap()];
    assert!(first != made("g.img", &seed, &volume_key));
    let refused_with = |name: &str, seed: &Path, option: &str, why: &str| {
        let seed = seed.to_str().unwrap();
        let options = ["--size=32M", "--seed-file", seed, option];
        refused(create(&folder, name, &options), 1, why);
    };
    refused_with("f.img", &short, "--force", "15 bytes can be guessed");
    let stream = ["--size=32M", "--cipher=aes-ctr-plain64", "--key-size=256"];
    let stream = [&stream[..], &["--seed-file", seed.to_str().unwrap()]].concat();
    refused(create(&folder, "f.img", &stream), 1, "one keystream");
    // The words of the argument parser, with its usage.
    let options = ["--size=32M", "--iter-time=10", "--seed-file"];
    let options = [&options[..], &[seed.to_str().unwrap()]].concat();
    let run = create(&folder, "f.img", &options).exited_with(1);
    let why = run.stderr_text();
    assert!(why.contains("--iter-time") && why.contains("cannot be used with"), "{why}");
    refused_with("seed", &seed, "--force", "the seed");
    assert_eq!(fs::read(&seed).unwrap(), [1; 32]);
}

#[test]
fn cryptsetup_accepts_what_is_made() {
    let Some(cryptsetup) = peer::require("cryptsetup") else {
        return;
    };
    let folder = Folder::new();
    let pbkdf2 = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];
    let key = folder.key();
    let key = key.to_str().unwrap();
    for (options, dumped) in [
        ([&CHEAP[..], &[]].concat(), "argon2id"),
        ([&CHEAP[..], &["--pbkdf=argon2i"]].concat(), "argon2i"),
        ([&pbkdf2[..], &["--hash=sha512"]].concat(), "sha512"),
        ([&CHEAP[..], &["--sector-size=512"]].concat(), "512 [bytes]"),
        ([&CHEAP[..], &["--key-size=256"]].concat(), "256 bits"),
        ([&CHEAP[..], &["--label=my disk"]].concat(), "my disk"),
        ([&pbkdf2[1..], &["--luks1"]].concat(), "Version:       \t1"),
        ([&pbkdf2[..], &["--type=luks1", "--hash=ripemd160"]].concat(), "ripemd160"),
    ] {
        let image = folder.create("a.img", &[&options[..], &["--force"]].concat());
        let image = image.to_str().unwrap();
        let dump = cryptsetup.run(["luksDump", image]).success();
        assert!(dump.stdout_text().contains(dumped), "{dump}");
        let test = ["open", "--test-passphrase", image, "--key-file", key];
        cryptsetup.run(test).success();
    }
}

#[test]
fn an_existing_file_is_kept_unless_forced() {
    let folder = Folder::new();
    let image = folder.luks2();
    let before = fs::read(&image).unwrap();
    let options = [&CHEAP[..], &["--size=24M"]].concat();
    refused(create(&folder, "luks2.img", &options), 5, "--force");
    assert!(fs::read(&image).unwrap() == before);
    create(&folder, "luks2.img", &[&options[..], &["--force"]].concat()).success();
    assert_eq!(fs::metadata(&image).unwrap().len(), 24 << 20);
    folder.check(&image).success();
    assert_eq!(files(folder.root()), ["luks2.img"]);
}

#[test]
fn a_forced_file_survives_a_failure() {
    let folder = Folder::new();
    let image = folder.luks2();
    let before = fs::read(&image).unwrap();
    let too_small = [&CHEAP[..], &["--size=1M", "--force"]].concat();
    refused(create(&folder, "luks2.img", &too_small), 4, "too small");
    assert!(fs::read(&image).unwrap() == before);
}

#[test]
fn a_link_is_followed_and_not_replaced() {
    let folder = Folder::new();
    let image = folder.luks2();
    std::os::unix::fs::symlink("luks2.img", folder.path("link")).unwrap();
    let options = [&CHEAP[..], &["--size=24M", "--force"]].concat();
    create(&folder, "link", &options).success();
    assert!(fs::symlink_metadata(folder.path("link")).unwrap().is_symlink());
    assert_eq!(fs::metadata(&image).unwrap().len(), 24 << 20);
}

#[test]
fn what_is_no_file_is_never_replaced() {
    let folder = Folder::new();
    fs::create_dir(folder.path("dir")).unwrap();
    let options = [&CHEAP[..], &["--size=24M", "--force"]].concat();
    refused(create(&folder, "dir", &options), 4, "not a regular file");
    refused(create(&folder, "none/a.img", &options), 4, "No such file or directory");
}

#[test]
fn a_limit_on_file_size_is_an_error_and_leaves_nothing() {
    let folder = Folder::new();
    for (limit, size) in [("--fsize=1000000", "--size=64M"), ("--fsize=67108863", "--size=64M")] {
        let mut limited = Command::new("prlimit");
        limited.args([limit, env!("CARGO_BIN_EXE_cryptline"), "create"]);
        limited.arg(folder.path("a.img")).arg("--key-file").arg(folder.key());
        let run = run(limited.args(CHEAP).arg(size), Duration::from_secs(30));
        refused(run, 4, "nothing was kept");
        assert!(files(folder.root()).is_empty(), "{:?}", files(folder.root()));
    }
}

#[test]
fn a_full_disk_is_an_error_and_leaves_nothing() {
    let folder = Folder::new();
    let mount = folder.path("mount");
    fs::create_dir(&mount).unwrap();
    let script = "mount -t tmpfs -o size=1M none \"$1\" || exit 99
        \"$2\" create \"$1/a.img\" --size 64M --key-file \"$3\" $4
        code=$?
        test -z \"$(ls -A \"$1\")\" || exit 98
        exit $code";
    let mut shell = Command::new("unshare");
    shell.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]);
    shell.arg(&mount).arg(env!("CARGO_BIN_EXE_cryptline")).arg(folder.key());
    for options in ["--pbkdf-force-iterations=4 --pbkdf-memory=32", "--preallocate"] {
        let run = run(Command::new("unshare").args(shell.get_args()).arg(options), Duration::from_secs(30));
        if matches!(run.status.code(), Some(1 | 99)) && !run.stderr_text().contains("cryptline:") {
            // Small containers allow no mounts; the limit on file size takes the same way.
            eprintln!("SKIP: no file system can be mounted here: {}", run.stderr_text());
            return;
        }
        refused(run, 4, "No space left on device");
    }
}

#[test]
fn a_volume_without_room_for_data_is_not_made() {
    let folder = Folder::new();
    for size in ["--size=512", "--size=16M"] {
        refused(create(&folder, "a.img", &[&CHEAP[..], &[size]].concat()), 4, "too small");
    }
    assert!(files(folder.root()).is_empty());
}

#[test]
fn impossible_parameters_are_exit_code_1_and_leave_nothing() {
    let folder = Folder::new();
    for (options, text) in [
        (&["--luks1", "--pbkdf=argon2id"][..], "PBKDF2 only"),
        (&["--luks1", "--sector-size=4096"], "512-byte sectors only"),
        (&["--luks1", "--label=x"], "no label"),
        (&["--cipher=anubis-cbc-plain64"], "not supported yet"),
        (&["--cipher=nonsense"], "nonsense"),
        (&["--key-size=100"], "--key-size"),
        (&["--key-size=0"], "--key-size"),
        (&["--key-size=104"], "32, 48 or 64 bytes"),
        (&["--key-size=4294967288"], "key"),
        (&["--hash=md4"], "hash 'md4'"),
        (&["--hash=md5"], "hash 'md5' is too short"),
        (&["--sector-size=500"], "sector"),
        (&["--uuid=mine"], "UUID"),
        (&["--integrity=hmac-sha256"], "--integrity hmac-sha256"),
        (&["--pbkdf-memory=4294967295"], "at most 4194304 KiB"),
        (&["--pbkdf-parallel=1000"], "lanes"),
        (&["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1"], "iterations"),
    ] {
        refused(create(&folder, "a.img", &[options, &["--size=64M"]].concat()), 1, text);
    }
    assert!(files(folder.root()).is_empty(), "{:?}", files(folder.root()));
}

/// Neither is opened by anything any more once it is overwritten.
#[test]
fn key_that_the_new_volume_needs_is_not_overwritten() {
    let folder = Folder::new();
    let [key, volume_key, disk] = ["k", "vk", "disk"].map(|name| folder.path(name));
    fs::write(&key, "secret").unwrap();
    fs::write(&volume_key, [7; 64]).unwrap();
    fs::write(&disk, vec![0; 20 << 20]).unwrap();
    let [key, volume_key, disk] = [&key, &volume_key, &disk].map(|path| path.to_str().unwrap());
    let with_key = ["--key-file", key];
    let with_both = [&with_key[..], &["--volume-key-file", volume_key]].concat();
    let cases: [(&[&str], &[&str]); 6] = [
        (&["create", disk, "--header", key, "--force"], &with_key),
        (&["create", disk, "--header", volume_key, "--force"], &with_both),
        (&["create", volume_key, "--size=20M", "--force"], &with_both),
        (&["luksFormat", "-q", key], &with_key),
        (&["luksFormat", "-q", disk, key, "--header", key], &[]),
        (&["luksFormat", "-q", volume_key], &with_both),
    ];
    for (place, keys) in cases {
        let run = cryptline([place, keys].concat());
        refused(run, 1, "would be overwritten");
        assert_eq!(fs::read(key).unwrap(), b"secret");
        assert_eq!(fs::read(volume_key).unwrap(), [7; 64]);
    }
}

#[test]
fn ctrl_c_takes_the_unfinished_file_along() {
    let folder = Folder::new();
    // Where the system allows core dumps, the program starts with them allowed.
    let dumps_allowed = "ulimit -S -c \"$(ulimit -H -c)\"; exec \"$@\"";
    let mut command = Command::new("sh");
    command
        .args(["-c", dumps_allowed, "sh", env!("CARGO_BIN_EXE_cryptline")])
        .arg("create")
        .arg(folder.path("a.img"))
        .arg("--key-file")
        .arg(folder.key());
    // Ten minutes of measuring, if nobody stops it.
    command.args(["--size=64M", "--iter-time=600000", "--pbkdf=pbkdf2"]);
    let mut running = Background::spawn(&mut command);
    let deadline = Instant::now() + Duration::from_secs(20);
    while files(folder.root()).is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(files(folder.root()).len(), 1, "one temporary file");
    let limits = fs::read_to_string(format!("/proc/{}/limits", running.id())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size"));
    let soft = core.and_then(|line| line.split_whitespace().nth(4));
    assert_eq!(soft, Some("0"), "a core dump would hold the key");
    running.signal(rustix::process::Signal::INT);
    let ended = running.wait(Duration::from_secs(10)).expect("it ends");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(2), "{ended}");
    assert!(files(folder.root()).is_empty(), "{:?}", files(folder.root()));
}
