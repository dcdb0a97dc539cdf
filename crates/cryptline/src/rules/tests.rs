//! Files of counters, and policies that make no sense.

use std::fs;

use tempfile::TempDir;

use super::*;

const ID: &str = "00112233445566778899aabbccddeeff";

#[test]
fn counters_only_rise() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("state");
    for (counter, is_right) in [(3, true), (3, true), (2, false), (4, true), (3, false), (u64::MAX, true), (0, false)] {
        assert_eq!(state::note(&path, ID, counter).is_ok(), is_right, "{counter}");
    }
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
        let error = Policy::read(&path).err().unwrap();
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
