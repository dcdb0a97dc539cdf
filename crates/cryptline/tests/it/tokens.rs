//! Tokens, recovery keys and key files of targets, as a program that uses the library has them.

use std::fs;
use std::path::{Path, PathBuf};

use cryptline::luks::edit::{NewSlot, TokenPlace, TokenSlots};
use cryptline::luks::format::{FormatOptions, LuksVersion};
use cryptline::{Create, ErrorKind, Header, Open, Problem, Tokens};

use crate::common::cheap;

const TOKEN: &str = r#"{"type":"of-others","keyslots":["0"],"x":[]}"#;

/// A volume that "secret" opens.
fn volume(folder: &Path, version: LuksVersion) -> PathBuf {
    let path = folder.join("disk");
    let create = Create::new(&path).size(20 << 20).format(FormatOptions { version, ..cheap() });
    create.passphrase("secret").create().unwrap();
    path
}

#[test]
fn token_that_is_of_no_use_here_leaves_it_to_the_passphrase() {
    let folder = tempfile::tempdir().unwrap();
    let disk = volume(folder.path(), LuksVersion::Luks2);
    let (place, slots) = (TokenPlace::default(), TokenSlots::AsGiven);
    let edited = Header::new(&disk).set_token(TOKEN, place, slots).unwrap();
    assert_eq!((edited.token, edited.slot), (Some(0), None));
    let open = |only| {
        let tokens = Tokens { only, ..Tokens::default() };
        Open::new(&disk).passphrase("secret").tokens(tokens)
    };
    let volume = open(false).open().unwrap();
    assert!(volume.warnings().is_empty(), "{:?}", volume.warnings());
    drop(volume);
    let error = open(true).open().err().unwrap();
    assert!(matches!(error.problem(), Problem::NoToken(_)), "{error}");
    assert_eq!(error.kind(), ErrorKind::NoKey);
    assert!(!error.to_string().contains("--"), "{error}");
    Header::new(&disk).remove_token(0).unwrap();
    let error = open(true).open().err().unwrap();
    assert!(matches!(error.problem(), Problem::NoSuchToken(_)));
    assert_eq!(error.kind(), ErrorKind::Parameters);
}

#[test]
fn recovery_key_opens_the_volume_however_it_is_typed() {
    let folder = tempfile::tempdir().unwrap();
    let disk = volume(folder.path(), LuksVersion::Luks2);
    let header = Header::new(&disk).passphrase("secret");
    let (edited, key) = header.add_recovery_key(Some(3)).unwrap();
    assert_eq!((edited.slot, edited.token), (Some(3), Some(0)));
    for typed in [key.to_ascii_uppercase(), key.to_vec()] {
        let unlocked = Open::new(&disk).passphrase(&typed).unlock().unwrap();
        assert_eq!(unlocked.slot, Some(3));
    }
    let new = NewSlot { kdf: cheap().kdf, cost: cheap().cost, ..NewSlot::default() };
    let header = Header::new(&disk).passphrase(key.to_ascii_uppercase());
    header.new_passphrase("new").add_key(&new).unwrap();
    assert!(Open::new(&disk).passphrase("new").unlock().is_ok());
    let wrong = Header::new(&disk).passphrase("wrong");
    assert_eq!(wrong.add_recovery_key(None).err().unwrap().kind(), ErrorKind::NoKey);
}

#[test]
fn luks1_has_neither_tokens_nor_recovery_keys() {
    let folder = tempfile::tempdir().unwrap();
    let disk = volume(folder.path(), LuksVersion::Luks1);
    let before = fs::read(&disk).unwrap();
    let header = || Header::new(&disk).passphrase("secret");
    let set = header().set_token(TOKEN, TokenPlace::default(), TokenSlots::All);
    let added = header().add_recovery_key(None).map(|(edited, _)| edited);
    for refused in [set, added] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Parameters);
    }
    assert!(Open::new(&disk).passphrase("secret").tokens(Tokens::default()).unlock().is_ok());
    assert!(fs::read(&disk).unwrap() == before);
}

#[test]
fn key_file_of_a_target_opens_it_unless_another_key_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let disk = volume(folder.path(), LuksVersion::Luks2);
    let key = folder.path().join("key");
    fs::write(&key, "secret").unwrap();
    let target = format!("{}?key-file={}", disk.display(), key.display());
    let volume = Open::new(&target).open().unwrap();
    assert_eq!(volume.info().source, disk.to_str().unwrap());
    drop(volume);
    let parsed = target.parse().unwrap();
    assert!(Open::target(parsed).unlock().is_ok());
    let other = Open::new(&target).passphrase("wrong").unlock();
    assert_eq!(other.err().unwrap().kind(), ErrorKind::NoKey);
    assert!(Open::new("ram:1M?key-file=k").open().is_err());
}
