//! `open --check` and the ways a key can come in.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::*;
use crate::server::{READY, wait_until};
use cryptline_testkit::peer::{self, Background, Peer, Run, run};

/// `open --check IMAGE OPTIONS...` with `input` on standard input.
#[track_caller]
fn check(image: &Path, options: &[&str], input: &[u8]) -> Run {
    let mut command = command();
    command.args(["open", "--check"]).arg(image).args(options);
    peer::run_with_input(&mut command, Duration::from_secs(30), input)
}

#[test]
fn the_key_slot_that_opens_is_named() {
    let folder = Folder::new();
    for image in [folder.luks2(), folder.luks1()] {
        let run = folder.check(&image).success();
        assert_eq!(run.stdout_text(), "Key slot 0 unlocked.\n");
        assert_eq!(run.stderr_text(), "");
    }
}

#[test]
fn a_wrong_passphrase_is_exit_code_2_in_cryptsetups_words() {
    let folder = Folder::new();
    for image in [folder.luks2(), folder.luks1()] {
        let run = check(&image, &["--key-file=-"], b"wrong");
        refused(run, 2, "No key available with this passphrase.");
    }
}

#[test]
fn a_key_file_counts_to_its_last_byte() {
    let folder = Folder::new();
    let image = folder.luks2();
    let with_newline = format!("{PASSPHRASE}\n");
    check(&image, &["--key-file=-"], PASSPHRASE.as_bytes()).success();
    refused(check(&image, &["--key-file=-"], with_newline.as_bytes()), 2, "No key");
    fs::write(folder.key(), &with_newline).unwrap();
    refused(folder.check(&image), 2, "No key");
}

#[test]
fn a_descriptor_loses_one_newline_and_no_more() {
    let folder = Folder::new();
    let image = folder.luks2();
    check(&image, &["--passphrase-fd=0"], b"pass phrase").success();
    check(&image, &["--passphrase-fd=0"], b"pass phrase\n").success();
    refused(check(&image, &["--passphrase-fd=0"], b"pass phrase\n\n"), 2, "No key");
    refused(check(&image, &["--passphrase-fd=0"], b"pass phrase\r\n"), 2, "No key");
}

#[test]
fn any_open_descriptor_will_do_and_a_closed_one_is_named() {
    let folder = Folder::new();
    let image = folder.luks2();
    let program = env!("CARGO_BIN_EXE_cryptline");
    let from = |redirection: &str| {
        let script = format!("'{program}' open --check '{}' --passphrase-fd 7 {redirection}", image.display());
        run(Command::new("sh").args(["-c", &script]), Duration::from_secs(30))
    };
    from(&format!("7<'{}'", folder.key().display())).success();
    from("7<<END\npass phrase\nEND").success();
    refused(from("7<&-"), 1, "file descriptor 7");
}

#[test]
fn a_part_of_a_key_file_can_be_the_passphrase() {
    let folder = Folder::new();
    let image = folder.luks2();
    let padded = format!("......{PASSPHRASE}......");
    fs::write(folder.key(), &padded).unwrap();
    let part = ["--keyfile-offset=6", "--keyfile-size=11"];
    folder.run(&["open", "--check"], &image, &part).success();
    let options = ["--key-file=-", "--keyfile-offset=6", "--keyfile-size=11"];
    check(&image, &options, padded.as_bytes()).success();
    let too_long = ["--keyfile-offset=6", "--keyfile-size=100"];
    refused(folder.run(&["open", "--check"], &image, &too_long), 1, "only 17 of the 100 bytes");
    for size in ["0", "9M"] {
        let options = ["--keyfile-size", size];
        refused(folder.run(&["open", "--check"], &image, &options), 1, "--keyfile-size");
    }
}

#[test]
fn key_files_that_are_empty_huge_missing_or_folders_are_refused() {
    let folder = Folder::new();
    let image = folder.luks2();
    fs::write(folder.key(), "").unwrap();
    refused(folder.check(&image), 1, "is empty");
    resize(&folder.key(), (8 << 20) + 1);
    refused(folder.check(&image), 1, "longer than 8M");
    fs::remove_file(folder.key()).unwrap();
    refused(folder.check(&image), 4, "No such file");
    fs::create_dir(folder.key()).unwrap();
    refused(folder.check(&image), 4, "cannot read");
    // It never ends, but only so much is taken.
    refused(check(&image, &["--key-file=/dev/zero"], b""), 1, "longer than 8M");
}

#[test]
fn without_a_terminal_the_other_ways_are_named() {
    let folder = Folder::new();
    refused(check(&folder.luks2(), &[], b""), 1, "--key-file");
}

#[test]
fn on_a_terminal_a_typo_can_be_corrected() {
    let folder = Folder::new();
    let image = folder.luks2();
    let typed = |lines: [&str; 3]| {
        let program = env!("CARGO_BIN_EXE_cryptline");
        let line = format!("'{program}' open --check '{}'", image.display());
        let (theirs, mut terminal) = std::io::pipe().expect("a pipe");
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).stdin(theirs);
        let mut script = Background::spawn(&mut script);
        for (count, line) in (1..).zip(lines) {
            // It asks when the echo is off and what was typed before is thrown away.
            wait_until("it asks", || script.stdout_text().matches("Enter passphrase").count() == count);
            writeln!(terminal, "{line}").expect("it reads");
        }
        assert!(script.wait(READY).is_some(), "it asks once more");
        drop(terminal);
        let output = script.collect();
        (output.status.code(), output.stdout_text())
    };
    let (code, shown) = typed(["typo", "another typo", PASSPHRASE]);
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("Key slot 0 unlocked."), "{shown}");
    assert!(!shown.contains(PASSPHRASE), "the passphrase was shown: {shown}");
    let (code, shown) = typed(["a", "b", "c"]);
    assert_eq!(code, Some(2), "{shown}");
}

#[test]
fn open_without_check_says_what_to_do_instead() {
    let folder = Folder::new();
    refused(cryptline(["open".into(), folder.luks2()]), 1, "cryptline serve");
}

#[test]
fn a_wrong_command_line_is_exit_code_1() {
    for line in [
        &["open"][..],
        &["opne"],
        &["open", "--chekc", "x"],
        &["open", "--check", "x", "--key-slot", "-1"],
        &["open", "--check", "x", "--key-file", "a", "--passphrase-fd", "0"],
        &["create", "x"],
        &["create", "x", "--size", "1Gb"],
        &[],
    ] {
        cryptline(line).exited_with(1);
    }
    cryptline(["--help"]).success();
    cryptline(["--version"]).success();
}

#[test]
fn type_must_be_what_the_header_says() {
    let folder = Folder::new();
    let (one, two) = (folder.luks1(), folder.luks2());
    let with = |image: &Path, kind: &str| folder.run(&["open", "--check"], image, &["--type", kind]);
    with(&one, "luks1").success();
    with(&one, "luks").success();
    with(&two, "luks2").success();
    refused(with(&one, "luks2"), 4, "is LUKS1");
    refused(with(&two, "luks1"), 4, "is LUKS2");
}

/// Makes `image` with cryptsetup at next to no cost, the test's key file in slot 0.
fn luks_format(cryptsetup: &Peer, folder: &Folder, image: &Path, options: &[&str]) {
    fs::write(image, []).unwrap();
    resize(image, SIZE);
    let (path, key) = (image.to_str().unwrap(), folder.key());
    let base = ["luksFormat", "-q", path, key.to_str().unwrap()];
    cryptsetup.run([&base[..], options].concat()).success();
}

#[test]
fn volumes_of_cryptsetup_open_over_the_matrix() {
    let Some(cryptsetup) = peer::require("cryptsetup") else {
        return;
    };
    let folder = Folder::new();
    let image = folder.path("c.img");
    let pbkdf2 = ["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"];
    let argon2 = ["--pbkdf-force-iterations", "4", "--pbkdf-memory", "32", "--pbkdf-parallel", "1"];
    let mut matrix = Vec::new();
    for hash in ["sha1", "sha256", "sha512", "ripemd160", "whirlpool"] {
        matrix.push([&pbkdf2[..], &["--type", "luks1", "--hash", hash]].concat());
        matrix.push([&pbkdf2[..], &["--type", "luks2", "--hash", hash]].concat());
    }
    for key_size in ["256", "512"] {
        matrix.push([&pbkdf2[..], &["--type", "luks1", "--key-size", key_size]].concat());
        matrix.push([&argon2[..], &["--type", "luks2", "--key-size", key_size]].concat());
    }
    for sector_size in ["512", "1024", "2048", "4096"] {
        matrix.push([&argon2[..], &["--sector-size", sector_size]].concat());
    }
    matrix.push([&argon2[..], &["--pbkdf", "argon2i"]].concat());
    for options in &matrix {
        luks_format(&cryptsetup, &folder, &image, options);
        let run = folder.check(&image).success();
        assert_eq!(run.stdout_text(), "Key slot 0 unlocked.\n", "{options:?}");
        folder.serve(&image).success();
    }
}

#[test]
fn key_slots_that_cryptsetup_adds_and_removes_are_followed() {
    let Some(cryptsetup) = peer::require("cryptsetup") else {
        return;
    };
    let folder = Folder::new();
    let second = folder.path("second");
    fs::write(&second, "another one").unwrap();
    let (first, second) = (folder.key(), second);
    for image in [folder.luks2(), folder.luks1()] {
        let arg = |path: &Path| path.to_str().unwrap().to_owned();
        let cheap = ["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"].map(String::from);
        let add = ["luksAddKey".into(), arg(&image), arg(&second), "--key-file".into(), arg(&first)];
        cryptsetup.run([&add[..], &cheap].concat()).success();
        let with =
            |options: &[&str]| check(&image, &[&["--key-file", second.to_str().unwrap()], options].concat(), b"");
        assert_eq!(with(&[]).success().stdout_text(), "Key slot 1 unlocked.\n");
        with(&["--key-slot=1"]).success();
        refused(with(&["--key-slot=0"]), 2, "No key");
        refused(with(&["--key-slot=5"]), 1, "key slot 5");
        cryptsetup.run(["luksRemoveKey", &arg(&image), &arg(&first)]).success();
        refused(folder.check(&image), 2, "No key");
        with(&[]).success();
    }
}

#[test]
fn a_slot_to_be_ignored_opens_only_when_named() {
    let Some(cryptsetup) = peer::require("cryptsetup") else {
        return;
    };
    let folder = Folder::new();
    let image = folder.luks2();
    let path = image.to_str().unwrap();
    cryptsetup.run(["config", "--priority", "ignore", "--key-slot", "0", path]).success();
    let refused = folder.check(&image).exited_with(1);
    assert!(refused.stderr_text().contains("--key-slot"), "{refused}");
    folder.run(&["open", "--check"], &image, &["--key-slot=0"]).success();
}

#[test]
fn the_volume_key_that_cryptsetup_dumps_is_checked_against_the_header() {
    let Some(cryptsetup) = peer::require("cryptsetup") else {
        return;
    };
    let folder = Folder::new();
    let image = folder.luks2();
    let (path, key, volume_key) = (image.to_str().unwrap(), folder.key(), folder.path("vk"));
    let (key, volume_key) = (key.to_str().unwrap(), volume_key.to_str().unwrap());
    let dump = ["luksDump", "-q", "--dump-volume-key", "--volume-key-file", volume_key];
    cryptsetup.run([&dump[..], &["--key-file", key, path]].concat()).success();
    let with = || check(&image, &["--volume-key-file", volume_key], b"");
    assert_eq!(with().success().stdout_text(), "The volume key fits.\n");
    let mut bytes = fs::read(volume_key).unwrap();
    fs::remove_file(volume_key).unwrap();
    bytes[0] ^= 1;
    fs::write(volume_key, &bytes).unwrap();
    refused(with(), 2, "Volume key does not match");
    fs::write(volume_key, &bytes[..63]).unwrap();
    refused(with(), 2, "Volume key does not match");
    fs::write(volume_key, []).unwrap();
    refused(with(), 1, "1 to 512 bytes");
    fs::write(volume_key, [0; 513]).unwrap();
    refused(with(), 1, "1 to 512 bytes");
}

#[test]
fn a_detached_header_opens_and_is_not_looked_for_in_the_data() {
    let Some(cryptsetup) = peer::require("cryptsetup") else {
        return;
    };
    let folder = Folder::new();
    let (data, header) = (folder.path("data"), folder.path("header"));
    fs::write(&data, []).unwrap();
    resize(&data, 1 << 20);
    let cheap = ["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"];
    for kind in ["luks1", "luks2"] {
        let _none = fs::remove_file(&header);
        let (data, header) = (data.to_str().unwrap(), header.to_str().unwrap());
        let base = ["luksFormat", "-q", "--type", kind, "--header", header, data];
        let key = folder.key();
        cryptsetup.run([&base[..], &[key.to_str().unwrap()], &cheap].concat()).success();
        let (data, header) = (Path::new(data), ["--header", header]);
        folder.run(&["open", "--check"], data, &header).success();
        let served = folder.run(&["serve"], data, &[&header[..], &["--run", "true"]].concat());
        served.success();
        let mut info = command();
        info.arg("info").arg(data).args(header);
        let shown = run(&mut info, Duration::from_secs(10)).success().stdout_text();
        assert!(shown.contains("Clear disk    1 MiB"), "{shown}");
        refused(folder.check(data), 4, "not a LUKS device");
        let header = Path::new(header[1]);
        let same = header.to_str().unwrap();
        let same = folder.run(&["serve"], header, &["--run", "true", "--header", same]);
        refused(same, 1, "the same file");
        let alone = folder.serve(header).status.code();
        assert!(matches!(alone, Some(1 | 4)), "{alone:?}");
    }
}
