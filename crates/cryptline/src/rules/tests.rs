//! Files of counters, and policies that make no sense.

use std::fs;

use cryptline_testkit::cache::{Left, Temper};
use tempfile::TempDir;

use super::*;
use crate::testing::{LosingFolder, cuts};

const ID: &str = "00112233445566778899aabbccddeeff";

#[test]
fn counters_only_rise() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("state");
    for (counter, is_right) in [(3, true), (3, true), (2, false), (4, true), (3, false), (u64::MAX, true), (0, false)] {
        assert_eq!(state::note(&path, ID, counter).is_ok(), is_right, "{counter}");
    }
    // By a link, too.
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    state::check(&link, ID, u64::MAX).unwrap();
    assert!(state::check(&link, ID, 1).unwrap_err().to_string().contains("older"));
    fs::remove_file(&link).unwrap();
    // Of another key, others count.
    state::note(&path, &ID.replace('0', "1"), 1).unwrap();
    state::note(&path, ID, u64::MAX).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn state_file_that_is_none_is_left_alone() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("state");
    for text in [
        "",
        "{}",
        "[]",
        r#"{"version":2,"counters":{}}"#,
        r#"{"version":1,"counters":{"a":1}}"#,
        r#"{"version":1,"counters":{},"x":1}"#,
    ] {
        fs::write(&path, text).unwrap();
        let error = state::note(&path, ID, 1).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Device, "{text}: {error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    let error = state::note(&folder.path().join("none/state"), ID, 1).unwrap_err();
    assert!(error.to_string().contains("written"), "{error}");
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    let error = state::note(&link, ID, 1).unwrap_err();
    assert!(error.to_string().contains("written") && link.is_symlink(), "{error}");
    let error = state::note(folder.path(), ID, 1).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Device, "{error}");
}

/// Two processes at once: neither loses what the other has noted.
#[test]
fn counters_of_many_at_once_are_all_kept() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("state");
    std::thread::scope(|scope| {
        for number in 0..8_u64 {
            let path = &path;
            scope.spawn(move || state::note(path, &format!("{number:032x}"), number + 1).unwrap());
        }
    });
    for number in 1..8_u64 {
        state::note(&path, &format!("{number:032x}"), number).unwrap_err();
    }
}

#[test]
fn policies_that_make_no_sense_are_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("policy");
    for (text, what) in [
        ("", "EOF"),
        ("{}", "version 0"),
        (r#"{"version":2}"#, "version 2"),
        (r#"{"version":1,"sector":[512]}"#, "unknown field `sector`"),
        (r#"{"version":1,"luks":[2],"luks":[1]}"#, "duplicate field `luks`"),
        (r#"{"version":1,"offset":16}"#, "expected a string"),
        (r#"{"version":1,"offset":"016"}"#, "decimal"),
        (r#"{"version":1,"size":"all"}"#, "decimal"),
        (r#"{"version":1,"signed":"tpm"}"#, "signed is"),
        (r#"{"version":1,"covers":["label"]}"#, "covers has"),
        (r#"{"version":1,"measure":["00"]}"#, "hexadecimal"),
        (r#"{"version":1} x"#, "trailing"),
    ] {
        fs::write(&path, text).unwrap();
        let error = HeaderPolicy::read(&path).err().unwrap();
        assert!(error.to_string().contains(what), "{text}: {error}");
        assert_eq!(error.kind(), crate::ErrorKind::Device);
    }
}

#[test]
fn more_exact_demand_on_seals_counts() {
    let rules = |signed: Option<Signed>, key: Option<&str>| HeaderRules {
        signed,
        seal_key: key.map(PathBuf::from),
        ..HeaderRules::default()
    };
    let (file, volume_key) = (Signed::By(SealKind::File), Signed::By(SealKind::VolumeKey));
    for (rules, expected) in [
        (rules(None, None), None),
        (rules(Some(Signed::Any), None), Some(Signed::Any)),
        (rules(Some(volume_key), Some("k")), Some(volume_key)),
        (rules(Some(Signed::Any), Some("k")), Some(file)),
        (rules(None, Some("k")), Some(file)),
        (HeaderRules { state: Some("s".into()), ..HeaderRules::default() }, Some(Signed::Any)),
        (HeaderRules { not_older_than: Some(1), ..HeaderRules::default() }, Some(Signed::Any)),
        (HeaderRules { measure: Some(Vec::new()), ..HeaderRules::default() }, None),
    ] {
        assert_eq!(rules.demanded(None), expected, "{rules:?}");
    }
}

fn state_in(left: &Left) -> Option<&Vec<u8>> {
    left.get(OsStr::new("state"))
}

#[test]
fn state_file_is_the_old_one_or_the_new_one_whatever_cuts_it_off() {
    let new = format!("{{\"version\":1,\"counters\":{{\"{ID}\":\"4\"}}}}\n").into_bytes();
    for exists in [false, true] {
        let mut seen = [false; 2];
        for at in 0..3 {
            let place = LosingFolder::new();
            if exists {
                state::note(&place.path("state"), ID, 3).unwrap();
            }
            let old = fs::read(place.path("state")).ok();
            place.begin(1 << 16);
            place.machine.cut_at(at, &cuts());
            state::note(&place.path("state"), ID, 4).unwrap();
            for left in place.machine.take_cuts() {
                let found = state_in(&left);
                assert!(found == Some(&new) || found == old.as_ref(), "{exists}, {at}: {found:?}");
                seen[usize::from(found == Some(&new))] = true;
            }
            for cut in cuts() {
                assert_eq!(state_in(&place.machine.folder_after(cut)), Some(&new), "{exists}, {at}: {cut:?}");
            }
        }
        assert_eq!(seen, [true; 2]);
    }
}

#[test]
fn counter_that_may_be_lost_again_opens_nothing() {
    let place = LosingFolder::new();
    state::note(&place.path("state"), ID, 3).unwrap();
    let old = fs::read(place.path("state")).unwrap();
    place.begin(1 << 16);
    place.machine.change_temper(Temper { unsynced: 1, ..Temper::default() });
    place.machine.step(Some(0));
    let error = state::note(&place.path("state"), ID, 4).unwrap_err();
    assert!(error.to_string().contains("cannot be written"), "{error}");
    for cut in cuts() {
        assert_eq!(state_in(&place.machine.folder_after(cut)), Some(&old), "{cut:?}");
    }
}
