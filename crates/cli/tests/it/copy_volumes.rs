//! `copy` and `create --from` where volumes are on either side: new ones, other kinds, tokens that open them.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use crate::common::*;
use crate::lab::Lab;
use cryptline_testkit::peer::{self, Run};
use linux_keyutils::{Key, KeyRing, KeyRingIdentifier};

const CHEAP: [&str; 2] = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];
const MIB: u64 = 1 << 20;

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

#[test]
fn copy_is_encrypted_in_a_new_volume_where_that_is_asked_for() {
    let folder = Folder::new();
    let (raw, luks) = (folder.path("raw"), folder.path("new.luks"));
    let bytes = numbers(2);
    fs::write(&raw, &bytes).expect("room");
    let (raw_name, name) = (text(&raw), text(&luks));
    let copy = |options: &[&str]| {
        let key = format!("--to-key-file={}", folder.key().display());
        cryptline([&["copy", &raw_name, &name, &key][..], options].concat())
    };
    // Without it, what has a key is never written in clear.
    refused(copy(&[]), 1, "make it a volume with --encrypt");
    copy(&["--encrypt", "--to-key-slot=1"]).exited_with(1);
    assert!(!luks.exists());
    let told = copy(&["--encrypt", "--verify", "--resume"]).success();
    assert!(told.stdout_text().contains("it is the same"), "{told}");
    assert!(clear(&folder, &luks, &[])[..] == bytes);
    assert!(fs::read(&luks).expect("it").starts_with(b"LUKS\xba\xbe"));
    refused(copy(&["--encrypt"]), 5, "--force");
}

#[test]
fn no_clear_copy_has_the_name_of_an_encrypted_volume() {
    let folder = Folder::new();
    let (raw, image) = (folder.path("raw"), folder.luks2());
    fs::write(&raw, [7; 4096]).expect("room");
    for name in ["a.luks", "a.LUKS", "a.luks2"] {
        let out = folder.path(name);
        let copy = ["copy", &text(&raw), &text(&out)];
        refused(cryptline(copy), 1, "in clear under the name");
        assert!(!out.exists(), "{name}");
    }
    // What is taken as it is stays encrypted.
    let out = folder.path("same.luks");
    cryptline(["copy", &text(&image), &text(&out), "--from-raw"]).success();
    assert!(fs::read(out).expect("it") == fs::read(image).expect("it"));
}

#[test]
fn holes_are_kept_in_a_volume_that_is_there() {
    let folder = Folder::new();
    let raw = folder.path("raw");
    let file = File::create(&raw).expect("a file");
    file.set_len(32 * MIB).expect("room");
    let data = numbers(2);
    file.write_all_at(&data, 8 * MIB).expect("room");
    let bytes = fs::read(&raw).expect("it");
    let luks = folder.path("full");
    let (raw_name, name) = (text(&raw), text(&luks));
    let key = format!("--key-file={}", folder.key().display());
    let create = ["create", &name, "--size=48M", &key];
    cryptline([&create[..], &CHEAP].concat()).success();
    let key = format!("--to-key-file={}", folder.key().display());
    let fill = |options: &[&str]| {
        let copy = ["copy", &raw_name, &name, &key, "--verify"];
        cryptline([&copy[..], options].concat()).success()
    };
    let allocated = || fs::metadata(&luks).expect("it is there").blocks() * 512;
    fill(&[]);
    assert!(allocated() > 32 * MIB, "zeros were encrypted");
    assert!(clear(&folder, &luks, &["--zeroes=decrypt"]) == bytes);
    // What was there is gone, and takes no more room.
    fill(&["--holes=keep", "--force"]);
    assert!(allocated() < 24 * MIB, "{}", allocated());
    assert!(clear(&folder, &luks, &[]) == bytes);
}

#[test]
fn luks1_becomes_luks2_under_another_cipher() {
    let folder = Folder::new();
    let (raw, old) = (folder.path("raw"), folder.path("old"));
    let bytes = numbers(3);
    fs::write(&raw, &bytes).expect("room");
    let key = format!("--key-file={}", folder.key().display());
    let from_key = format!("--from-key-file={}", folder.key().display());
    let create = |name: &Path, source: &Path, options: &[&str]| {
        let create = ["create", &text(name), "--from", &text(source), &key].map(str::to_owned);
        let options = options.iter().chain(&CHEAP).map(|it| (*it).to_owned());
        cryptline(create.into_iter().chain(options)).success()
    };
    let cbc = ["--type=luks1", "--cipher=aes-cbc-essiv:sha256", "--key-size=256"];
    create(&old, &raw, &cbc);
    for (cipher, size) in [("serpent-xts-plain64", "512"), ("aes-xts-plain64", "256")] {
        let new = folder.path(cipher);
        let (cipher_option, size) = (format!("--cipher={cipher}"), format!("--key-size={size}"));
        create(&new, &old, &[&from_key, &cipher_option, &size, "--verify"]);
        assert!(clear(&folder, &new, &[]) == bytes, "{cipher}");
        let info = cryptline(["info", &text(&new)]).success().stdout_text();
        assert!(info.contains("LUKS2") && info.contains(cipher), "{info}");
    }
    assert!(clear(&folder, &old, &[]) == bytes);
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
