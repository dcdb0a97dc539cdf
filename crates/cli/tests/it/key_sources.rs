//! Where passphrases come from when nobody types them: files with a newline at their end, pipes, and the key files that
//! targets name.

use std::fs;
use std::path::Path;

use crate::common::*;
use crate::lab::Lab;

fn path_text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn newline_at_the_end_of_a_key_file_is_told_and_can_be_left_out() {
    let Some(lab) = Lab::new() else { return };
    let file = format!("--key-file={}", lab.file("line", &format!("{PASSPHRASE}\n")));
    let check = ["open", "--check"];
    refused(lab.ours(&check, &[&file]), 2, "--key-file-newline strip");
    lab.theirs(&["open", "--test-passphrase", &file], &[]).exited_with(2);
    lab.ours(&check, &[&file, "--key-file-newline=strip"]).success();
    let exact = format!("--key-file={}", lab.folder.key().display());
    lab.ours(&check, &[&exact, "--key-file-newline=strip"]).success();
    let wrong = format!("--key-file={}", lab.file("wrong", "wrong"));
    let error = lab.ours(&check, &[&wrong]).exited_with(2).stderr_text();
    assert!(!error.contains("newline"), "{error}");
    let piped = format!("{PASSPHRASE}\n");
    let piped = lab.ours_reading(&check, &["--key-file=-"], &piped);
    refused(piped, 2, "standard input ends with a newline");
}

#[test]
fn passphrases_come_from_a_pipe_line_by_line() {
    let Some(lab) = Lab::new() else { return };
    let check = ["open", "--check"];
    for input in [format!("{PASSPHRASE}\nmore"), PASSPHRASE.to_owned()] {
        lab.ours_reading(&check, &[], &input).success();
    }
    refused(lab.ours_reading(&check, &[], "wrong\n"), 2, "No key available");
    refused(lab.ours_reading(&check, &[], ""), 1, "no terminal");
    let cost = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];
    let lines = format!("{PASSPHRASE}\nnew passphrase\n");
    lab.ours_reading(&["key", "add"], &cost, &lines).success();
    let new = format!("--key-file={}", lab.file("new", "new passphrase"));
    lab.theirs(&["open", "--test-passphrase", &new], &[]).success();
    lab.ours_reading(&["key", "change"], &cost, "new passphrase\nnewer\n").success();
    lab.ours_reading(&["key", "remove"], &[], "newer\n").success();
    refused(lab.ours(&check, &[&new]), 2, "No key available");
}

#[test]
fn each_target_may_name_its_own_key_file() {
    let Some(lab) = Lab::new() else { return };
    let other = lab.folder.create("other.img", &["--pbkdf-force-iterations=4", "--pbkdf-memory=32"]);
    let keyed = |disk: &Path, key: &str| {
        let key = lab.folder.root().join(key);
        format!("{}?key-file={}", disk.display(), key.display())
    };
    lab.add("second", 1);
    lab.ours(&["key", "kill"], &["0", "-q"]).success();
    fs::rename(lab.folder.path("new"), lab.folder.path("a&b")).unwrap();
    let (one, two) = (keyed(&lab.disk, "a%26b"), keyed(&other, "key"));
    for order in [[&*one, &*two], [&*two, &*one]] {
        let options = ["--run", "true"];
        cryptline([&["serve"][..], &order, &options].concat()).success();
    }
    // A key file that all others share gives way.
    let all = format!("--key-file={}", lab.folder.key().display());
    cryptline(["serve", &one, path_text(&other), &all, "--run", "true"]).success();
    cryptline(["open", "--check", &one]).success();
    cryptline(["open", "--check", &two]).success();
    cryptline(["key", "list", &one]).success();
    let crossed = keyed(&other, "a%26b");
    refused(cryptline(["open", "--check", &crossed]), 2, "No key");
    refused(cryptline(["serve", &one, "--token-only", "--run", "true"]), 1, "--token-only");
    let twice = format!("{two}&key-file=x");
    refused(cryptline(["open", "--check", &twice]), 1, "given twice");
    let missing = keyed(&other, "missing");
    let opened = cryptline(["open", "--check", &missing]);
    assert!(!opened.status.success());
    assert!(opened.stderr_text().contains("missing"), "{opened}");
    let new = keyed(&lab.folder.path("made.img"), "key");
    let cost = ["--pbkdf-force-iterations=4", "--pbkdf-memory=32"];
    cryptline([&["create", &*new, "--size=20M"][..], &cost].concat()).success();
    cryptline(["open", "--check", &new]).success();
    assert!(lab.folder.path("made.img").exists());
}

#[test]
fn key_slot_is_not_guessed_where_two_key_files_are_named() {
    let Some(lab) = Lab::new() else { return };
    let before = fs::read(&lab.disk).unwrap();
    let (own, other) = (lab.folder.key(), lab.file("other", "other"));
    let keyed = format!("{}?key-file={}", path_text(&lab.disk), own.display());
    let other = format!("--key-file={other}");
    for verb in ["add", "change", "remove"] {
        let both = cryptline(["key", verb, &keyed, &other]);
        refused(both, 1, "leave one of them out");
    }
    refused(cryptline(["key", "kill", &keyed, "0", &other]), 1, "leave one of them out");
    assert!(fs::read(&lab.disk).unwrap() == before);
}
