//! What a header may cost: `--kdf-time-limit`, and the word before a long wait. Nothing here is timed and
//! nothing costly is paid: what is allowed ends before the passphrase is there.

use std::path::{Path, PathBuf};

use crate::common::*;
use cryptline_testkit::peer::Run;
use serde_json::{Value, json};

/// Days of Argon2 on any machine.
const DAYS: u32 = 4_000_000_000;
/// Of PBKDF2 with SHA-512: more than a second on any machine, and less than a minute or two.
const MODERATE: u32 = 40_000_000;

fn pbkdf2(iterations: u32) -> Value {
    json!({"type": "pbkdf2", "hash": "sha512", "iterations": iterations, "salt": "A".repeat(43) + "="})
}

/// A volume whose only key slot has this key derivation function.
#[track_caller]
fn with_kdf(folder: &Folder, kdf: &Value) -> PathBuf {
    let image = folder.luks2();
    edit_metadata(&image, |json| json["keyslots"]["0"]["kdf"] = kdf.clone());
    image
}

#[track_caller]
fn check(folder: &Folder, image: &Path, options: &[&str]) -> Run {
    folder.run(&["open", "--check"], image, options)
}

/// As [`check`], but there is no passphrase to try.
#[track_caller]
fn check_without_a_key(folder: &Folder, image: &Path, options: &[&str]) -> Run {
    let mut arguments = vec!["open".into(), "--check".into(), image.to_owned()];
    arguments.extend(["--key-file".into(), folder.path("no key")]);
    arguments.extend(options.iter().map(PathBuf::from));
    cryptline(arguments).exited_with(4)
}

#[test]
fn a_cost_beyond_the_default_limit_is_refused_with_the_estimate_and_the_option() {
    let folder = Folder::new();
    let image = folder.luks2();
    edit_metadata(&image, |json| {
        json["keyslots"]["0"]["kdf"]["time"] = json!(DAYS);
    });
    for verb in [&["open", "--check"][..], &["serve"]] {
        let options: &[&str] = if verb == ["serve"] { &["--run", "true"] } else { &[] };
        for text in [
            "4000000000 passes of argon2id over 32 KiB would take about ",
            ", the limit is 300 seconds;",
            "the header may be hostile",
            "give --kdf-time-limit SECONDS, or another slot with --key-slot",
        ] {
            refused(folder.run(verb, &image, options), 4, text);
        }
    }
}

#[test]
fn a_lower_limit_refuses_a_moderate_cost_and_lets_a_small_one_pass() {
    let folder = Folder::new();
    let image = with_kdf(&folder, &pbkdf2(MODERATE));
    for text in [
        "40000000 iterations of PBKDF2 with 'sha512' would take about ",
        ", the limit is 1 second;",
        "--kdf-time-limit",
    ] {
        refused(check(&folder, &image, &["--kdf-time-limit=1"]), 4, text);
    }
    let image = folder.create("cheap", &["--pbkdf-force-iterations=4", "--pbkdf-memory=32"]);
    let run = check(&folder, &image, &["--kdf-time-limit=1"]).success();
    assert_eq!(run.stderr_text(), "");
}

#[test]
fn the_limit_holds_for_the_digest_of_a_given_volume_key_too() {
    let folder = Folder::new();
    let image = folder.luks2();
    edit_metadata(&image, |json| {
        json["digests"]["0"]["iterations"] = json!(u32::MAX);
    });
    let key = folder.path("volume key");
    std::fs::write(&key, [7; 64]).unwrap();
    let mut arguments = vec!["open".into(), "--check".into(), image];
    arguments.extend(["--volume-key-file".into(), key]);
    arguments.push("--kdf-time-limit=1".into());
    refused(cryptline(arguments), 4, "--kdf-time-limit");
}

#[test]
fn a_limit_of_nothing_is_none() {
    let folder = Folder::new();
    let image = folder.luks2();
    for limit in ["0", "-1", "soon"] {
        let limit = format!("--kdf-time-limit={limit}");
        let run = check(&folder, &image, &[&limit]).exited_with(1);
        assert!(run.stderr_text().contains("--kdf-time-limit"), "{run}");
    }
}

/// The slot that is refused has an area of its own, with noise in it.
#[test]
fn a_slot_that_is_refused_does_not_hide_one_that_opens() {
    let folder = Folder::new();
    let image = folder.luks2();
    edit_metadata(&image, |json| {
        let sound = json["keyslots"]["0"].clone();
        let costly = &mut json["keyslots"]["0"];
        let number = |value: &Value| value.as_str().unwrap().parse::<u64>().unwrap();
        let area = &mut costly["area"];
        area["offset"] = json!((number(&area["offset"]) + number(&area["size"])).to_string());
        costly["kdf"]["time"] = json!(DAYS);
        json["keyslots"]["1"] = sound;
        json["digests"]["0"]["keyslots"] = json!(["0", "1"]);
    });
    let run = check(&folder, &image, &[]).success();
    assert_eq!(run.stdout_text(), "Key slot 1 unlocked.\n");
    assert_eq!(run.stderr_text(), "");
    let only = check(&folder, &image, &["--key-slot=0"]);
    refused(only, 4, "--kdf-time-limit");
    // It is not known to be wrong for that slot.
    let wrong = cryptline_with_input(["open".into(), "--check".into(), image, "--key-file=-".into()], b"wrong");
    refused(wrong, 4, "--kdf-time-limit");
}

#[test]
fn who_waits_long_is_told_before_the_passphrase_is_asked_for() {
    let folder = Folder::new();
    let image = with_kdf(&folder, &pbkdf2(u32::MAX));
    let allowed = ["--kdf-time-limit=1000000000"];
    let run = check_without_a_key(&folder, &image, &allowed);
    let message = run.stderr_text();
    let lines: Vec<_> = message.lines().collect();
    let told = format!("cryptline: trying the key slots of {} takes up to ", image.display());
    assert_eq!(lines.len(), 2, "{run}");
    assert!(lines[0].starts_with(&told), "{run}");
    let time = &lines[0][told.len()..];
    assert!(time.starts_with(|digit: char| digit.is_ascii_digit()));
    let units = ["seconds", "minutes", "hours", "days"];
    assert!(units.iter().any(|unit| time.ends_with(unit)), "{run}");
    assert!(lines[1].contains("cannot open key file"), "{run}");
    // What is refused takes no time, and what is cheap is not worth a word.
    let refused_one = check_without_a_key(&folder, &image, &["--kdf-time-limit=1"]);
    let cheap = folder.luks1();
    for run in [refused_one, check_without_a_key(&folder, &cheap, &allowed)] {
        let message = run.stderr_text();
        assert_eq!(message.lines().count(), 1, "{run}");
        assert!(message.contains("cannot open key file"), "{run}");
    }
}
