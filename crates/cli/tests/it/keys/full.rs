//! Headers that have no room for another key slot.

use super::*;

/// A volume on which both programs have put a key wherever there is room: key 1 in one slot, key 0 in the others.
fn full_lab(kind: &str, more: &[&str]) -> Option<Lab> {
    let lab = Lab::new(kind, PBKDF2, false)?;
    let options = [&["luksFormat", &format!("--type={kind}"), &lab.with("--key-file=", 0)], more];
    lab.cryptsetup(&options.concat(), true).success();
    lab.add(0, 1, &[]).success();
    loop {
        let added = lab.add(0, 0, &[]);
        if added.status.code() != Some(0) {
            added.exited_with(1);
            return Some(lab);
        }
    }
}

#[test]
fn key_of_a_full_header_is_changed_in_place_only_if_that_was_said() {
    for (kind, more) in [("luks1", &["--key-size=512"][..]), ("luks2", &["--luks2-keyslots-size=512k"])] {
        let Some(lab) = full_lab(kind, more) else {
            return;
        };
        let (before, slots) = (lab.bytes(), lab.slots());
        refused(lab.change(1, 2), 1, "give -q if that is intended");
        assert!(lab.bytes() == before);
        let (old, new) = (lab.with("--key-file=", 1), lab.with("--new-key-file=", 2));
        let options = [&[&*old, &*new, "-q"], PBKDF2].concat();
        lab.cryptline(&["key", "change"], &options).success();
        lab.opens_with(&[0, 2]);
        lab.cryptline(&["key", "convert"], &[&[&*lab.with("--key-file=", 2), "-q"], PBKDF2].concat()).success();
        lab.opens_with(&[0, 2]);
        assert_eq!(lab.slots(), slots);
    }
}

/// A header of LUKS1 with a 256-bit key has an empty place behind its eight slots.
#[test]
fn key_of_a_full_luks1_header_moves_and_comes_back() {
    let Some(lab) = full_lab("luks1", &["--key-size=256"]) else {
        return;
    };
    let slots = lab.slots();
    for (old, new) in [(1, 2), (2, 3)] {
        lab.change(old, new).success();
        lab.opens_with(&[0, new]);
        assert_eq!(lab.slots(), slots);
    }
    lab.change(3, 1).success();
    backups_of_moved(&lab);
}

/// Its backup ends later, and both programs make the same of it.
fn backups_of_moved(lab: &Lab) {
    let (ours, theirs) = (lab.path("ours"), lab.path("theirs"));
    let option = |path: &Path| format!("--header-backup-file={}", path.display());
    lab.cryptline(&["header", "backup"], &[&option(&ours)]).success();
    lab.cryptsetup(&["luksHeaderBackup", &option(&theirs)], false).success();
    assert!(fs::read(&ours).unwrap() == fs::read(&theirs).unwrap());
    lab.change(1, 2).success();
    lab.cryptsetup(&["luksHeaderRestore", &option(&ours)], false).success();
    lab.opens_with(&[0, 1]);
}

#[test]
fn key_slots_end_with_the_last_number() {
    for (kind, more, number) in [("luks1", &[][..], 8), ("luks2", &["--key-size=256"], 32)] {
        let Some(lab) = full_lab(kind, more) else {
            return;
        };
        assert_eq!(lab.slots().len(), number);
        let before = lab.bytes();
        refused(lab.add(0, 2, &[]), 1, &format!("all {number} key slots"));
        assert!(lab.bytes() == before);
        lab.opens_with(&[0, 1]);
    }
}
