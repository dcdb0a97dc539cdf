//! `copy` and `create --from` where tokens open the volumes on either side.

use std::fs;
use std::path::Path;

use crate::common::*;
use crate::lab::Lab;
use cryptline_testkit::peer::{self, Run};
use linux_keyutils::{Key, KeyRing, KeyRingIdentifier};

const CHEAP: [&str; 2] = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];

fn text(path: &Path) -> String {
    path.to_str().expect("it is text").to_owned()
}

/// Numbers, which never repeat.
fn numbers(mib: u32) -> Vec<u8> {
    (0..mib << 18).flat_map(u32::to_le_bytes).collect()
}

/// Bytes of the clear disk.
fn clear(folder: &Folder, volume: &Path, options: &[&str]) -> Vec<u8> {
    let out = folder.path("clear");
    let (volume, out_name) = (text(volume), text(&out));
    let copy = ["copy", &volume, &out_name, "--force"];
    let key = format!("--key-file={}", folder.key().display());
    cryptline([&copy[..], &[&*key], options].concat()).success();
    let bytes = fs::read(&out).expect("the copy");
    fs::remove_file(out).expect("it was there");
    bytes
}

/// A key in the session's keyring; gone when dropped.
struct UserKey(KeyRing, Key);

impl UserKey {
    fn new(description: &str, passphrase: &str) -> Option<Self> {
        let ring = KeyRing::from_special_id(KeyRingIdentifier::Session, false);
        let added = ring.and_then(|ring| Ok(Self(ring, ring.add_key(description, passphrase)?)));
        if let Err(error) = &added {
            peer::skip(&format!("no keyring can be used here: {error}"));
        }
        added.ok()
    }
}

impl Drop for UserKey {
    fn drop(&mut self) {
        let _ = self.0.unlink_key(self.1);
    }
}

#[test]
fn tokens_open_either_side_and_nobody_is_asked() {
    let Some(lab) = Lab::new() else { return };
    let description = format!("cryptline-test:{}:copy", std::process::id());
    let Some(_key) = UserKey::new(&description, "second") else {
        return;
    };
    lab.add("second", 1);
    let option = format!("--key-description={description}");
    lab.ours(&["token", "add"], &[&option, "--key-slot=1"]).success();
    let raw = lab.folder.path("raw");
    let bytes = numbers(2);
    fs::write(&raw, &bytes).expect("room");
    let (raw_name, disk) = (text(&raw), text(&lab.disk));
    let key = format!("--key-file={}", lab.folder.key().display());
    cryptline(["copy", &raw_name, &disk, "--verify"]).success();
    let [out, new] = ["out", "made"].map(|name| lab.folder.path(name));
    let copy =
        |options: &[&str]| -> Run { cryptline([&["copy", &disk, &text(&out), "--force"][..], options].concat()) };
    copy(&[]).success();
    assert!(fs::read(&out).expect("it")[..bytes.len()] == bytes);
    let create = ["create", &text(&new), "--from", &disk, &key];
    cryptline([&create[..], &CHEAP].concat()).success();
    assert!(clear(&lab.folder, &new, &[])[..bytes.len()] == bytes);
    // Those that are named, and no others.
    refused(copy(&["--token-only", "--token-type=none"]), 1, "token");
    let forced = ["copy", &raw_name, &disk, "--force"];
    let other = ["--to-token-id=7", "--to-token-only"];
    refused(cryptline([&forced[..], &other].concat()), 1, "token");
    let other = ["--from-token-type=none", "--from-token-only", "--force"];
    refused(cryptline([&create[..], &CHEAP, &other].concat()), 1, "token");
    // What has none is told so.
    let named = ["copy", &raw_name, &text(&out), "--force", "--token-only"];
    refused(cryptline(named), 1, "no LUKS header");
}
