//! `info`: what it shows, and that its JSON is what docs/info-json.md promises.

use std::collections::BTreeSet;
use std::path::Path;

use crate::common::*;
use cryptline_testkit::peer;
use serde_json::{Value, json};

fn json_of(image: &Path) -> Value {
    let run = cryptline(["info".as_ref(), "--json".as_ref(), image.as_os_str()]);
    serde_json::from_str(&run.success().stdout_text()).expect("JSON")
}

#[test]
fn luks2_is_shown_whole_without_a_passphrase() {
    let folder = Folder::new();
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    let options = ["--pbkdf-force-iterations=4", "--pbkdf-memory=64", "--pbkdf-parallel=2"];
    let image = folder.create("a.img", &[&options[..], &["--label=mine", "--uuid", uuid]].concat());
    let text = cryptline(["info".as_ref(), image.as_path()]).success().stdout_text();
    for line in [
        "  UUID          01234567-89ab-cdef-0123-456789abcdef",
        "  Label         mine",
        "  Header copy   primary: good, epoch 1, in use",
        "  Header copy   secondary: good, epoch 1",
        "  Clear disk    4 MiB (4194304 bytes)",
        "Segment 0: crypt",
        "  Cipher        aes-xts-plain64, 512-bit key",
        "  Sector size   4096 bytes",
        "Key slot 0: luks2",
        "  KDF           argon2id, time 4, memory 64 KiB, lanes 2",
        "Digest 0: pbkdf2",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} is not in:\n{text}");
    }
    let json = json_of(&image);
    assert_eq!(json["uuid"], uuid);
    assert_eq!(json["data_size"], 4 << 20);
    assert_eq!(json["refused"], Value::Null);
    assert_eq!(json["keyslots"][0]["kdf"]["memory_kib"], 64);
}

#[test]
fn luks1_is_shown_with_its_one_hash_everywhere() {
    let folder = Folder::new();
    let json = json_of(&folder.luks1());
    assert_eq!(json["kind"], "LUKS1");
    assert_eq!(
        json["keyslots"][0]["kdf"],
        json!({
            "type": "pbkdf2", "hash": "sha256", "iterations": 1000
        })
    );
    assert_eq!(json["segments"][0]["offset"], 2 << 20);
    assert_eq!(json["data_size"], 18 << 20);
}

#[test]
fn every_member_of_the_json_is_documented_and_the_other_way_round() {
    let folder = Folder::new();
    let image = folder.luks2();
    edit_metadata(&image, |json| {
        let (kind, description) = ("luks2-keyring", "a:b");
        let token = json!({"type": kind, "keyslots": ["0"], "key_description": description});
        json["tokens"]["0"] = token;
    });
    let mut members = BTreeSet::new();
    collect(&json_of(&image), &mut members);
    collect(&json_of(&folder.luks1()), &mut members);
    let page = include_str!("../../../../docs/info-json.md");
    let (header, disk) = page.split_once("\n## A disk with partitions").expect("two tables");
    assert_eq!(members, documented(header));
    // An MBR with one partition, of 1 MiB from sector 2048 on.
    let image = folder.path("disk.img");
    std::fs::write(&image, []).unwrap();
    resize(&image, SIZE);
    let entry = b"\0\0\0\0\x83\0\0\0\0\x08\0\0\0\x08\0\0";
    poke(&image, 446, entry);
    poke(&image, 510, b"\x55\xaa");
    let mut members = BTreeSet::new();
    collect(&json_of(&image), &mut members);
    assert_eq!(members, documented(disk));
}

fn documented(page: &str) -> BTreeSet<String> {
    page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).map(|(name, _)| name.to_owned()).collect()
}

/// The names of all members, with the path that the documentation gives them.
fn collect(value: &Value, members: &mut BTreeSet<String>) {
    fn walk(value: &Value, path: &str, members: &mut BTreeSet<String>) {
        match value {
            Value::Object(object) => {
                for (name, value) in object {
                    let path = format!("{path}{name}");
                    walk(value, &format!("{path}."), members);
                    members.insert(path);
                }
            }
            Value::Array(items) => {
                let path = path.trim_end_matches('.');
                items.iter().for_each(|item| walk(item, &format!("{path}[]."), members));
            }
            _ => {}
        }
    }
    walk(value, "", members);
}

#[test]
fn cryptsetups_headers_are_shown_as_cryptsetup_shows_them() {
    let Some(cryptsetup) = peer::require("cryptsetup") else {
        return;
    };
    let folder = Folder::new();
    let image = folder.path("c.img");
    std::fs::write(&image, []).unwrap();
    resize(&image, SIZE);
    let (path, key) = (image.to_str().unwrap(), folder.key());
    let key = key.to_str().unwrap();
    let format = ["luksFormat", "-q", "--type", "luks2", "--label", "abc", path, key];
    let cheap = ["--pbkdf", "argon2i", "--pbkdf-force-iterations", "4", "--pbkdf-memory", "32"];
    cryptsetup.run([&format[..], &cheap, &["--sector-size", "2048"]].concat()).success();
    cryptsetup.run(["config", "--priority", "prefer", "--key-slot", "0", path]).success();
    let json = json_of(&image);
    let uuid = cryptsetup.run(["luksUUID", path]).success().stdout_text();
    assert_eq!(json["uuid"], uuid.trim());
    assert_eq!(json["label"], "abc");
    assert_eq!(json["segments"][0]["sector_size"], 2048);
    assert_eq!(json["keyslots"][0]["priority"], "prefer");
    assert_eq!(json["keyslots"][0]["kdf"]["type"], "argon2i");
    assert_eq!(json["warnings"], json!([]));
}

#[test]
fn a_closed_pipe_is_no_failure_and_a_full_disk_is() {
    let folder = Folder::new();
    let image = folder.luks2();
    let program = env!("CARGO_BIN_EXE_cryptline");
    let script = format!("'{program}' info '{}' | head -c 1", image.display());
    let run = peer::run(std::process::Command::new("sh").args(["-c", &script]), std::time::Duration::from_secs(20));
    assert_eq!(run.success().stderr_text(), "");
    let mut full = command();
    full.arg("info").arg(&image);
    let full = full.stdout(std::fs::File::options().write(true).open("/dev/full").unwrap()).output().unwrap();
    assert_eq!(full.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&full.stderr).contains("cannot write to standard output"));
}
