//! `encrypt`: a disk in the clear as a new volume.

use std::fs;

use crate::common::*;

#[test]
fn disk_is_encrypted_into_a_new_file_and_stays() {
    let folder = Folder::new();
    let (raw, luks, back) = (folder.path("raw"), folder.path("luks"), folder.path("back"));
    let bytes: Vec<u8> = (0..1_u32 << 18).flat_map(u32::to_le_bytes).collect();
    fs::write(&raw, &bytes).unwrap();
    let key = format!("--key-file={}", folder.key().display());
    let [raw_name, luks_name, back_name] = [&raw, &luks, &back].map(|path| path.to_str().unwrap());
    let encrypt = |more: &[&str]| {
        let cheap = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];
        cryptline([&["encrypt", raw_name, luks_name, &key][..], &cheap, more].concat())
    };
    encrypt(&["--verify"]).success();
    cryptline(["copy", luks_name, back_name, &key]).success();
    assert!(fs::read(&back).unwrap() == bytes && fs::read(&raw).unwrap() == bytes);
    refused(encrypt(&[]), 5, "--force");
    encrypt(&["--force"]).success();
    folder.check(&luks).success();
}

#[test]
fn encrypting_in_place_or_twice_is_refused() {
    let folder = Folder::new();
    let raw = folder.path("raw");
    fs::write(&raw, [7; 8192]).unwrap();
    let name = raw.to_str().unwrap();
    for arguments in [&["encrypt", name][..], &["encrypt", name, name, "--force"]] {
        refused(cryptline(arguments), 1, "in place is not supported");
    }
    let image = folder.luks2();
    let other = folder.path("other");
    let twice = ["encrypt", image.to_str().unwrap(), other.to_str().unwrap()];
    refused(cryptline(twice), 1, "encrypted already");
    assert!(!other.exists() && fs::read(&raw).unwrap() == [7; 8192]);
}
