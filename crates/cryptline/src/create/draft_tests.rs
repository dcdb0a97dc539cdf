//! Names of drafts that others take meanwhile.

use super::*;

/// Before, it failed only when all data had been written.
#[test]
fn place_that_cannot_be_looked_at_is_not_taken_for_free() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x".repeat(256));
    for force in [false, true] {
        let refused = place_of(&path, force, "place").err().map(|error| error.to_string());
        assert!(refused.is_some_and(|why| why.contains("look at")), "{force}");
    }
    assert!(place_of(&folder.path().join("new"), false, "place").is_ok_and(|(_, old)| old.is_none()));
}

#[test]
fn part_that_gets_its_name_before_it_is_locked_is_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    let (part, place) = (folder.path().join("part"), folder.path().join("place"));
    let mut opened = 0;
    let file = locked_part(&part, "place", || {
        let file = open_part(&part)?;
        opened += 1;
        if opened == 1 {
            // As whoever held the lock does once its copy is whole.
            std::fs::write(&part, "whole")?;
            std::fs::rename(&part, &place)?;
        }
        Ok(file)
    });
    let file = file.unwrap();
    assert!(opened == 2 && is_at(&file, &part));
    assert_eq!(std::fs::read(&place).unwrap(), b"whole");
    let removed = locked_part(&part, "place", || {
        let file = open_part(&part)?;
        std::fs::remove_file(&part)?;
        Ok(file)
    });
    assert!(removed.is_err(), "it is never there");
}

#[test]
fn header_of_data_that_is_there_stays_where_its_other_name_is_taken_too() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("header");
    let draft = Draft::new(&place, false).unwrap();
    std::fs::write(draft.path(), "header").unwrap();
    std::fs::write(beside(&place, NEW), "another").unwrap();
    let refused = draft.found_by_its_data().err().unwrap();
    let Problem::HeaderKept(at, _) = refused.problem() else { panic!("{refused}") };
    assert_eq!(std::fs::read(at).unwrap(), b"header");
    assert_eq!(std::fs::read(beside(&place, NEW)).unwrap(), b"another");
    // What is found to be wrong later must not open.
    std::fs::remove_file(beside(&place, NEW)).unwrap();
    std::fs::remove_file(at).unwrap();
    let found = Draft::new(&place, false).unwrap().found_by_its_data().unwrap();
    assert!(beside(&place, NEW).exists());
    drop(found);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn part_that_somebody_has_moved_gets_no_name() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("place");
    let draft = Draft::kept(&place, false).unwrap();
    let part = draft.path().to_owned();
    std::fs::rename(&part, folder.path().join("elsewhere")).unwrap();
    std::fs::write(&part, "another").unwrap();
    assert!(draft.publish().is_err());
    assert!(!place.exists() && part.exists());
}

/// A name that was free, or that of a file that was locked.
#[test]
fn only_the_file_that_was_there_when_it_began_is_replaced() {
    for was_there in [false, true] {
        for is_kept in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let [place, away] = ["place", "away"].map(|name| folder.path().join(name));
            let begin = || if is_kept { Draft::kept(&place, true) } else { Draft::new(&place, true) };
            if was_there {
                std::fs::write(&place, "old").unwrap();
            }
            let draft = begin().unwrap();
            if was_there {
                std::fs::rename(&place, &away).unwrap();
            }
            std::fs::write(&place, "another").unwrap();
            let refused = draft.publish().unwrap_err();
            assert!(matches!(refused.problem(), Problem::Exists { .. }), "{refused}");
            assert_eq!(std::fs::read(&place).unwrap(), b"another", "{was_there} {is_kept}");
            // By now it is known.
            let draft = begin().unwrap();
            std::fs::write(draft.path(), "new").unwrap();
            draft.publish().unwrap();
            assert_eq!(std::fs::read(&place).unwrap(), b"new");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1 + usize::from(was_there));
        }
    }
}

#[test]
fn file_that_nobody_has_looked_at_is_not_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let [place, away] = ["place", "away"].map(|name| folder.path().join(name));
    std::fs::write(&place, "old").unwrap();
    let draft = Draft::new(&place, true).unwrap();
    std::fs::rename(&place, &away).unwrap();
    std::fs::write(&place, "another").unwrap();
    let refused = draft.set_aside().err().unwrap();
    assert!(matches!(refused.problem(), Problem::Exists { .. }), "{refused}");
    // Nor is one removed that has taken its name.
    std::fs::rename(&away, &place).unwrap();
    let aside = draft.set_aside().unwrap().unwrap();
    let at = beside(&place, ".cryptline-old");
    std::fs::write(&place, "another").unwrap();
    std::fs::rename(&place, &at).unwrap();
    aside.remove();
    assert_eq!(std::fs::read(&at).unwrap(), b"another");
}
