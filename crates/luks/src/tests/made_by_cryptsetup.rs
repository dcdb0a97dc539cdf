//! Volumes that cryptsetup makes open here, with the very same volume key.

use super::common::{Cryptsetup, Image, PASSPHRASE};
use crate::{Error, ErrorKind, KdfLimits, SegmentPolicy, UnlockOptions};

const MIB: u64 = 1 << 20;
const CHEAP_PBKDF2: &str = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";

/// Formats with `arguments`, opens here, compares keys and geometry.
#[track_caller]
fn opens_here(cryptsetup: &Cryptsetup, arguments: &str, key_len: usize, sector_size: u32) {
    let image = Image::sparse(18 * MIB);
    cryptsetup.format(arguments, &image.path);
    let unlocked = image.unlock(PASSPHRASE).unwrap_or_else(|error| panic!("{arguments}: {error}"));
    assert_eq!(*unlocked.key, *cryptsetup.volume_key(&image.path), "{arguments}");
    assert_eq!(unlocked.key.len(), key_len, "{arguments}");

    let header = image.header().unwrap();
    assert_eq!(header.warnings(), [] as [String; 0], "{arguments}");
    assert_eq!(header.key_len(), Some(key_len), "{arguments}");
    header.verify_volume_key(&unlocked.key, KdfLimits::default()).unwrap();
    let segment = &header.segments(SegmentPolicy::default()).unwrap()[0];
    assert_eq!(segment.sector_size, sector_size, "{arguments}");
    let wrong = image.unlock(b"wrong").err().expect("a wrong passphrase must not open");
    assert_eq!(wrong.kind(), ErrorKind::NoKey, "{arguments}");
}

#[test]
fn luks2_with_every_hash() {
    let Some(cryptsetup) = Cryptsetup::require() else { return };
    for hash in [
        "sha1",
        "sha224",
        "sha256",
        "sha384",
        "sha512",
        "sha512-224",
        "sha512-256",
        "sha3-224",
        "sha3-256",
        "sha3-384",
        "sha3-512",
        "ripemd160",
        "rmd160",
        "whirlpool",
        "blake2b-512",
        "blake2s-256",
        "sm3",
        "md5",
    ] {
        let arguments = format!("--type luks2 {CHEAP_PBKDF2} --hash {hash}");
        opens_here(&cryptsetup, &arguments, 64, 4096);
    }
}

#[test]
fn luks2_with_every_kdf() {
    let Some(cryptsetup) = Cryptsetup::require() else { return };
    opens_here(&cryptsetup, &format!("--type luks2 {CHEAP_PBKDF2}"), 64, 4096);
    for kdf in ["argon2i", "argon2id"] {
        for costs in [
            "--pbkdf-memory 32 --pbkdf-parallel 1 --pbkdf-force-iterations 4",
            "--pbkdf-memory 1000 --pbkdf-parallel 2 --pbkdf-force-iterations 5",
            "--pbkdf-memory 16384 --pbkdf-parallel 4 --pbkdf-force-iterations 4",
        ] {
            opens_here(&cryptsetup, &format!("--type luks2 --pbkdf {kdf} {costs}"), 64, 4096);
        }
    }
}

#[test]
fn luks2_with_every_sector_and_key_size() {
    let Some(cryptsetup) = Cryptsetup::require() else { return };
    for sector_size in [512, 1024, 2048, 4096] {
        for key_bits in [256, 512] {
            let arguments = format!("--type luks2 {CHEAP_PBKDF2} --sector-size {sector_size} --key-size {key_bits}");
            opens_here(&cryptsetup, &arguments, key_bits / 8, sector_size);
        }
    }
}

#[test]
fn luks2_with_large_metadata_copies() {
    let Some(cryptsetup) = Cryptsetup::require() else { return };
    for size in ["32k", "256k", "4096k"] {
        let arguments = format!("--type luks2 {CHEAP_PBKDF2} --luks2-metadata-size {size}");
        opens_here(&cryptsetup, &arguments, 64, 4096);
    }
}

#[test]
fn luks2_with_another_cipher_for_its_key_slots_area() {
    let Some(cryptsetup) = Cryptsetup::require() else { return };
    let arguments = format!("--type luks2 {CHEAP_PBKDF2} --keyslot-cipher aes-xts-plain64 --keyslot-key-size 256");
    opens_here(&cryptsetup, &arguments, 64, 4096);
}

#[test]
fn luks1_with_every_hash_and_key_size() {
    let Some(cryptsetup) = Cryptsetup::require() else { return };
    for hash in ["sha1", "sha256", "sha512", "ripemd160", "whirlpool"] {
        for key_bits in [256, 512] {
            let arguments = format!("--type luks1 --pbkdf-force-iterations 1000 --hash {hash} --key-size {key_bits}");
            opens_here(&cryptsetup, &arguments, key_bits / 8, 512);
        }
    }
}

#[test]
fn label_subsystem_and_uuid_are_read() {
    let Some(cryptsetup) = Cryptsetup::require() else { return };
    let image = Image::sparse(18 * MIB);
    let uuid = "970e17de-0750-443f-b6ca-2a739c5ff999";
    let arguments = format!("--type luks2 {CHEAP_PBKDF2} --label here --subsystem there --uuid {uuid}");
    cryptsetup.format(&arguments, &image.path);
    let info = image.header().unwrap().info();
    assert_eq!(info.label.as_deref(), Some("here"));
    assert_eq!(info.subsystem.as_deref(), Some("there"));
    assert_eq!(info.uuid, uuid);
    assert_eq!(info.keyslots[0].kdf.as_ref().unwrap().iterations, Some(1000));
}

#[test]
fn detached_headers_open_for_data_at_offset_0() {
    let Some(cryptsetup) = Cryptsetup::require() else { return };
    for arguments in [format!("--type luks2 {CHEAP_PBKDF2}"), "--type luks1 --pbkdf-force-iterations 1000".to_owned()] {
        let mut image = Image::sparse(4 * MIB);
        let header = image.file("header");
        let arguments = format!("{arguments} --header {}", header.display());
        cryptsetup.format(&arguments, &image.path);
        let key = cryptsetup.volume_key(&header);
        image.path = header;
        assert_eq!(*image.unlock(PASSPHRASE).unwrap().key, *key);
        let attached = image.header().unwrap().segments(SegmentPolicy::default());
        assert!(matches!(attached, Err(Error::DetachedHeader)));
        let policy = SegmentPolicy { detached: true, ..SegmentPolicy::default() };
        let segment = &image.header().unwrap().segments(policy).unwrap()[0];
        assert_eq!(segment.offset, 0);
        assert_eq!(segment.data_size(4 * MIB).unwrap(), 4 * MIB);
    }
}

#[test]
fn slots_of_every_priority_are_tried_as_cryptsetup_tries_them() {
    let Some(cryptsetup) = Cryptsetup::require() else { return };
    let image = Image::sparse(18 * MIB);
    cryptsetup.format(&format!("--type luks2 {CHEAP_PBKDF2}"), &image.path);
    // The same passphrase in slots 0 to 2: which one opens tells the order.
    let keyfile = image.file("key");
    std::fs::write(&keyfile, PASSPHRASE).unwrap();
    for slot in 1..=2 {
        let mut arguments = format!("luksAddKey {CHEAP_PBKDF2} --key-slot {slot} --key-file ");
        arguments += keyfile.to_str().unwrap();
        add_key(&cryptsetup, &arguments, &image, &keyfile);
    }
    assert_eq!(image.unlock(PASSPHRASE).unwrap().slot, 0);
    let prefer = "config --key-slot 2 --priority prefer";
    cryptsetup.run(prefer, &image.path, b"").success();
    assert_eq!(image.unlock(PASSPHRASE).unwrap().slot, 2);
    for slot in [0, 2] {
        let ignore = format!("config --key-slot {slot} --priority ignore");
        cryptsetup.run(&ignore, &image.path, b"").success();
    }
    assert_eq!(image.unlock(PASSPHRASE).unwrap().slot, 1);
    let named = UnlockOptions { slot: Some(2), ..UnlockOptions::default() };
    assert_eq!(image.unlock_with(PASSPHRASE, &named).unwrap().slot, 2);
}

/// `luksAddKey DEVICE NEWKEY`: the new passphrase is the content of `new`.
#[track_caller]
fn add_key(cryptsetup: &Cryptsetup, arguments: &str, image: &Image, new: &std::path::Path) {
    let arguments = format!("{arguments} {}", image.path.display());
    cryptsetup.run(&arguments, new, b"").success();
}

#[test]
fn damaged_primary_is_read_from_the_secondary_as_cryptsetup_does() {
    let Some(cryptsetup) = Cryptsetup::require() else { return };
    use std::os::unix::fs::FileExt;
    let image = Image::sparse(18 * MIB);
    cryptsetup.format(&format!("--type luks2 {CHEAP_PBKDF2}"), &image.path);
    let key = cryptsetup.volume_key(&image.path);
    image.open().0.write_all_at(&[0; 4096], 0).unwrap();
    assert_eq!(*image.unlock(PASSPHRASE).unwrap().key, *key);
    let warnings = image.header().unwrap().warnings().join("\n");
    assert!(warnings.contains("using the secondary"), "{warnings}");

    // What cryptsetup repairs is again without a warning.
    cryptsetup.run("repair", &image.path, b"").success();
    assert_eq!(image.header().unwrap().warnings(), [] as [String; 0]);
}

#[test]
fn tokens_are_listed() {
    let Some(cryptsetup) = Cryptsetup::require() else { return };
    let image = Image::sparse(18 * MIB);
    cryptsetup.format(&format!("--type luks2 {CHEAP_PBKDF2}"), &image.path);
    let add = "token add --key-slot 0 --key-description here";
    cryptsetup.run(add, &image.path, b"").success();
    let info = image.header().unwrap().info();
    assert_eq!(info.tokens[0].kind, "luks2-keyring");
    assert_eq!(info.tokens[0].keyslots, [0]);
    image.unlock(PASSPHRASE).unwrap();
}

#[test]
fn unbound_key_does_not_open_the_volume() {
    let Some(cryptsetup) = Cryptsetup::require() else { return };
    let image = Image::sparse(18 * MIB);
    cryptsetup.format(&format!("--type luks2 {CHEAP_PBKDF2}"), &image.path);
    let other = image.file("other");
    std::fs::write(&other, b"unbound").unwrap();
    let arguments = format!("luksAddKey {CHEAP_PBKDF2} --unbound --key-size 256 --key-slot 5");
    add_key(&cryptsetup, &arguments, &image, &other);
    assert_eq!(image.unlock(b"unbound").err().unwrap().kind(), ErrorKind::NoKey);
    let named = UnlockOptions { slot: Some(5), ..UnlockOptions::default() };
    let error = image.unlock_with(b"unbound", &named).err().unwrap();
    assert_eq!(error.to_string(), "key slot 5 is not in use for this volume");
    image.unlock(PASSPHRASE).unwrap();
}

#[test]
fn reencryption_in_progress_is_refused_by_name() {
    let Some(cryptsetup) = Cryptsetup::require() else { return };
    let image = Image::sparse(18 * MIB);
    cryptsetup.format(&format!("--type luks2 {CHEAP_PBKDF2}"), &image.path);
    let arguments = format!("reencrypt --init-only {CHEAP_PBKDF2} --key-file -");
    let run = cryptsetup.run(&arguments, &image.path, PASSPHRASE);
    run.success();
    for error in [
        image.unlock(PASSPHRASE).err().unwrap(),
        image.header().unwrap().segments(SegmentPolicy::default()).unwrap_err(),
    ] {
        assert!(error.to_string().starts_with("reencryption in progress"), "{error}");
        assert_eq!(error.kind(), ErrorKind::Device);
    }
}
