//! Volumes made here are sound for cryptsetup, and what it does to them afterwards is
//! understood here.

use super::common::{Cryptsetup, Image, PASSPHRASE, open};
use crate::format::{FormatOptions, KdfCost, KdfKind, LuksVersion, format};
use crate::{ErrorKind, Seed, SegmentPolicy, UnlockOptions};
use cryptline_sys::SecretBuf;

const MIB: u64 = 1 << 20;
const CHEAP_PBKDF2: &str = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";

fn options(version: LuksVersion) -> FormatOptions {
    let (iterations, memory_kib) = match version {
        LuksVersion::Luks1 => (1000, None),
        LuksVersion::Luks2 => (4, Some(64)),
    };
    let cost = KdfCost { iterations: Some(iterations), memory_kib, ..KdfCost::default() };
    FormatOptions { version, cost, ..FormatOptions::default() }
}

/// Formats here and checks that both programs agree on the key and the geometry.
#[track_caller]
fn accepted(cryptsetup: &Cryptsetup, options: &FormatOptions) -> Image {
    let image = Image::sparse(18 * MIB);
    let (mut file, size) = image.open();
    let key = format(&mut file, size, PASSPHRASE, options).unwrap();
    assert_eq!(*image.unlock(PASSPHRASE).unwrap().key, *key, "{options:?}");
    assert_eq!(cryptsetup.volume_key(&image.path), *key, "{options:?}");
    assert!(cryptsetup.opens(&image.path, PASSPHRASE, Some(0)), "{options:?}");
    assert!(!cryptsetup.opens(&image.path, b"wrong", None), "{options:?}");
    // Nothing was found that needs repair.
    let run = cryptsetup.run("luksDump --debug", &image.path, b"").success();
    let debug = run.stdout_text().to_lowercase();
    for word in ["failed", "invalid", "damaged", "corrupt"] {
        assert!(!debug.contains(word), "{options:?}\n{run}");
    }
    image
}

#[test]
fn luks2_of_every_kind_is_accepted() {
    let Some(cryptsetup) = Cryptsetup::require() else { return };
    for kdf in [KdfKind::Argon2i, KdfKind::Argon2id] {
        accepted(&cryptsetup, &FormatOptions { kdf: Some(kdf), ..options(LuksVersion::Luks2) });
    }
    for hash in ["sha1", "sha512", "sha3-256", "whirlpool", "blake2b-512"] {
        let mut options = options(LuksVersion::Luks2);
        options.hash = hash.into();
        options.kdf = Some(KdfKind::Pbkdf2);
        options.cost.iterations = Some(1000);
        accepted(&cryptsetup, &options);
    }
    for (key_len, sector_size) in [(32, 512), (32, 4096), (64, 1024), (64, 2048)] {
        let mut options = options(LuksVersion::Luks2);
        options.key_len = key_len;
        options.sector_size = Some(sector_size);
        accepted(&cryptsetup, &options);
    }
}

#[test]
fn luks1_of_every_kind_is_accepted() {
    let Some(cryptsetup) = Cryptsetup::require() else { return };
    for key_len in [32, 64] {
        for hash in ["sha1", "sha256", "sha512", "ripemd160"] {
            let hash = hash.into();
            accepted(&cryptsetup, &FormatOptions { key_len, hash, ..options(LuksVersion::Luks1) });
        }
    }
}

#[test]
fn header_of_a_seed_is_accepted() {
    let Some(cryptsetup) = Cryptsetup::require() else { return };
    for version in [LuksVersion::Luks1, LuksVersion::Luks2] {
        let seed = SecretBuf::copy_of(b"a seed that is no secret").unwrap();
        accepted(&cryptsetup, &FormatOptions { seed: Some(Seed::new(seed).unwrap()), ..options(version) });
    }
}

/// Lines of `luksDump` that hold no salts, digests, UUIDs or epochs.
fn layout(cryptsetup: &Cryptsetup, image: &Image) -> Vec<String> {
    let dump = cryptsetup.run("luksDump", &image.path, b"").success().stdout_text();
    let kept = |line: &&str| {
        let random = ["Salt", "salt", "digest", "Digest:", "UUID", "Epoch", "dump", "header info"];
        let hex = line.split_whitespace().filter(|word| word.len() == 2).count() > 8;
        !hex && !random.iter().any(|word| line.contains(word))
    };
    dump.lines().filter(kept).map(|line| line.trim().to_owned()).collect()
}

#[test]
fn layout_is_the_one_cryptsetup_chooses() {
    let Some(cryptsetup) = Cryptsetup::require() else { return };
    for (version, arguments) in [
        (
            LuksVersion::Luks2,
            "--type luks2 --pbkdf argon2id --pbkdf-memory 64 --pbkdf-parallel 1 --pbkdf-force-iterations 4",
        ),
        (LuksVersion::Luks1, "--type luks1 --pbkdf-force-iterations 1000"),
    ] {
        let theirs = Image::sparse(18 * MIB);
        cryptsetup.format(arguments, &theirs.path);
        let mut options = options(version);
        options.cost.cpus = Some(1);
        let ours = accepted(&cryptsetup, &options);
        assert_eq!(layout(&cryptsetup, &ours), layout(&cryptsetup, &theirs));
    }
}

#[test]
fn label_subsystem_uuid_and_offset_are_written() {
    let Some(cryptsetup) = Cryptsetup::require() else { return };
    let uuid = "970e17de-0750-443f-b6ca-2a739c5ff999";
    let image = accepted(
        &cryptsetup,
        &FormatOptions {
            label: "here".into(),
            subsystem: "there".into(),
            uuid: Some(uuid.into()),
            data_offset: Some(4 * MIB),
            ..options(LuksVersion::Luks2)
        },
    );
    let dump = cryptsetup.run("luksDump", &image.path, b"").success().stdout_text();
    for part in ["here", "there", uuid, "offset: 4194304 [bytes]", "4161536 [bytes]"] {
        assert!(dump.contains(part), "{part} is not in\n{dump}");
    }
}

#[test]
fn slots_that_cryptsetup_adds_changes_and_removes_are_followed() {
    let Some(cryptsetup) = Cryptsetup::require() else { return };
    for version in [LuksVersion::Luks1, LuksVersion::Luks2] {
        let image = accepted(&cryptsetup, &options(version));
        let key = image.unlock(PASSPHRASE).unwrap().key;
        let (old, new) = (image.file("old"), image.file("new"));
        std::fs::write(&old, PASSPHRASE).unwrap();
        std::fs::write(&new, b"added").unwrap();
        let disk = image.path.display();

        let add = format!("luksAddKey {CHEAP_PBKDF2} --key-slot 3 --key-file {} {disk}", old.display());
        cryptsetup.run(&add, &new, b"").success();
        let added = image.unlock(b"added").unwrap();
        assert_eq!((added.slot, &*added.key), (3, &*key));

        std::fs::write(&old, b"changed").unwrap();
        let change = format!("luksChangeKey {CHEAP_PBKDF2} --key-slot 3 --key-file {} {disk}", new.display());
        cryptsetup.run(&change, &old, b"").success();
        assert_eq!(image.unlock(b"added").err().unwrap().kind(), ErrorKind::NoKey);
        assert_eq!(*image.unlock(b"changed").unwrap().key, *key);

        let kill = format!("luksKillSlot {disk}");
        cryptsetup.run(&kill, "0".as_ref(), b"").success();
        assert_eq!(image.unlock(PASSPHRASE).err().unwrap().kind(), ErrorKind::NoKey);
        assert_eq!(*image.unlock(b"changed").unwrap().key, *key);
        assert_eq!(image.header().unwrap().info().keyslots.len(), 1);
    }
}

#[test]
fn priorities_and_flags_that_cryptsetup_sets_are_followed() {
    let Some(cryptsetup) = Cryptsetup::require() else { return };
    let image = accepted(&cryptsetup, &options(LuksVersion::Luks2));
    let ignore = "config --key-slot 0 --priority ignore";
    cryptsetup.run(ignore, &image.path, b"").success();
    assert!(image.unlock(PASSPHRASE).is_err());
    let named = UnlockOptions { slot: Some(0), ..UnlockOptions::default() };
    image.unlock_with(PASSPHRASE, &named).unwrap();
    let prefer = "config --key-slot 0 --priority prefer --label renamed";
    cryptsetup.run(prefer, &image.path, b"").success();
    image.unlock(PASSPHRASE).unwrap();
    assert_eq!(image.header().unwrap().info().keyslots[0].priority, "prefer");
}

#[test]
fn damaged_copies_are_repaired_by_cryptsetup() {
    use std::os::unix::fs::FileExt;
    let Some(cryptsetup) = Cryptsetup::require() else { return };
    for offset in [100, 0x4000 + 100] {
        let image = accepted(&cryptsetup, &options(LuksVersion::Luks2));
        image.open().0.write_all_at(b"x", offset).unwrap();
        assert_eq!(image.header().unwrap().warnings().len(), 1);
        image.unlock(PASSPHRASE).unwrap();
        cryptsetup.run("repair", &image.path, b"").success();
        assert_eq!(image.header().unwrap().warnings().len(), 0);
        image.unlock(PASSPHRASE).unwrap();
    }
}

#[test]
fn detached_header_is_accepted() {
    let Some(cryptsetup) = Cryptsetup::require() else { return };
    for version in [LuksVersion::Luks1, LuksVersion::Luks2] {
        let image = Image::sparse(0);
        let (mut file, size) = image.open();
        let options = FormatOptions { detached: true, ..options(version) };
        let key = format(&mut file, size, PASSPHRASE, &options).unwrap();
        assert_eq!(cryptsetup.volume_key(&image.path), *key);
        let policy = SegmentPolicy { detached: true, ..SegmentPolicy::default() };
        assert_eq!(image.header().unwrap().segments(policy).unwrap()[0].offset, 0);
        assert_eq!(*image.unlock(PASSPHRASE).unwrap().key, *key);
    }
}

#[test]
fn volume_with_a_measured_cost_opens() {
    let image = Image::sparse(18 * MIB);
    let (mut file, size) = open(&image.path);
    let cost =
        KdfCost { target: std::time::Duration::from_millis(300), memory_kib: Some(32 << 10), ..KdfCost::default() };
    let options = FormatOptions { cost, ..FormatOptions::default() };
    let key = format(&mut file, size, PASSPHRASE, &options).unwrap();
    assert_eq!(*image.unlock(PASSPHRASE).unwrap().key, *key);
    let kdf = image.header().unwrap().info().keyslots[0].kdf.clone().unwrap();
    assert!(kdf.time.unwrap() >= 4, "{kdf:?}");
    assert_eq!(kdf.kind, "argon2id");
}

#[test]
fn device_too_small_for_any_data_is_refused_and_left_alone() {
    for (version, size) in [(LuksVersion::Luks2, 16 * MIB), (LuksVersion::Luks1, 2 * MIB), (LuksVersion::Luks2, 0)] {
        let image = Image::sparse(size);
        let (mut file, size) = image.open();
        let error = format(&mut file, size, PASSPHRASE, &options(version)).err().unwrap();
        assert!(error.to_string().starts_with("device too small"), "{error}");
        assert_eq!(error.kind(), ErrorKind::Device);
        assert!(std::fs::read(&image.path).unwrap().iter().all(|&byte| byte == 0));
    }
}
