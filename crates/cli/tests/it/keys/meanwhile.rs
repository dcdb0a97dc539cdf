//! What must be left alone: requirements, other programs at work, sizes, and what is gone.

use std::io::Write as _;

use rustix::fs::{FlockOperation, flock};

use super::*;

#[test]
fn data_of_a_fixed_size_keeps_it() {
    let Some(lab) = Lab::new("luks2", PBKDF2, false) else {
        return;
    };
    edit_metadata(&lab.path("disk"), |json| {
        json["segments"]["0"]["size"] = "1048576".into();
    });
    lab.add(0, 1, &[]).success();
    lab.opens_with(&[0, 1]);
    lab.change(0, 2).success();
    lab.cryptline(&["key", "kill"], &["1", "-q"]).success();
    lab.cryptline(&["header", "label"], &["--label=x"]).success();
    lab.opens_with(&[2]);
    let dump = lab.cryptsetup(&["luksDump"], false).success();
    assert!(dump.stdout_text().contains("length: 1048576"), "{dump}");
}

/// What a header demands that nobody here knows may forbid any change.
#[test]
fn header_with_a_requirement_is_left_alone_by_every_verb() {
    let Some(lab) = Lab::new("luks2", PBKDF2, false) else {
        return;
    };
    lab.add(0, 1, &[]).success();
    let saved = format!("--file={}", lab.path("saved").display());
    lab.cryptline(&["header", "backup"], &[&saved]).success();
    edit_metadata(&lab.path("disk"), |json| {
        json["config"]["requirements"] = serde_json::json!({"mandatory": ["time-travel"]});
    });
    let before = lab.bytes();
    let (file, new) = (lab.with("--key-file=", 0), lab.with("--new-key-file=", 2));
    for (verbs, options) in [
        (["key", "add"], &[&*file, &*new][..]),
        (["key", "change"], &[&*file, &*new]),
        (["key", "convert"], &[&*file]),
        (["key", "remove"], &[&*file]),
        (["key", "kill"], &["1", "-q"]),
        (["key", "priority"], &["1", "prefer"]),
        (["token", "add"], &["--key-description=a"]),
        (["header", "label"], &["--label=x"]),
        (["header", "uuid"], &["--uuid=01234567-89ab-cdef-0123-456789abcdef"]),
        (["header", "repair"], &["--wipe-unused"]),
        (["header", "restore"], &[&*saved, "-q"]),
        (["header", "convert"], &["--to=luks1"]),
    ] {
        let run = lab.cryptline(&verbs, options);
        assert!(!run.status.success(), "{verbs:?}: {run}");
        assert!(run.stderr_text().contains("time-travel"), "{verbs:?}: {run}");
    }
    let erased = lab.cryptline(&["erase"], &["-q"]);
    assert!(erased.stderr_text().contains("time-travel"), "{erased}");
    assert!(lab.bytes() == before);
    let theirs = lab.cryptsetup(&["luksAddKey", &file, &lab.key(2)], true);
    assert!(!theirs.status.success(), "{theirs}");
}

/// Between reading the header and writing it, somebody types.
#[test]
fn header_that_another_program_changes_meanwhile_is_left_alone() {
    for kind in ["luks2", "luks1"] {
        let Some(lab) = Lab::new(kind, PBKDF2, false) else {
            return;
        };
        let pipe = lab.path("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
        let new = format!("--new-key-file={}", pipe.display());
        let file = lab.with("--key-file=", 0);
        let options = [&[&*file, &*new], PBKDF2].concat();
        let adding = std::thread::scope(|scope| {
            let adding = scope.spawn(|| lab.cryptline(&["key", "add"], &options));
            // It has read the header when it opens the pipe.
            let mut typed = File::options().write(true).open(&pipe).unwrap();
            lab.cryptsetup(&["luksAddKey", &file, &lab.key(1)], true).success();
            typed.write_all(b"late").unwrap();
            drop(typed);
            adding.join().unwrap()
        });
        refused(adding, 5, "changed the header meanwhile");
        lab.opens_with(&[0, 1]);
        assert_eq!(lab.slots(), [0, 1]);
    }
}

#[test]
fn header_that_another_program_locks_is_waited_for_and_then_left_alone() {
    let Some(lab) = Lab::new("luks2", ARGON2, false) else {
        return;
    };
    let held = File::open(lab.path("disk")).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    let before = lab.bytes();
    let locked = lab.cryptline(&["header", "label"], &["--label=x"]);
    refused(locked, 5, "another program is reading or writing the header");
    assert!(lab.bytes() == before);
}

/// The lock that cryptsetup keeps from the beginning of reencryption to its end.
fn lock_of(lab: &Lab) -> PathBuf {
    let shown = lab.cryptline(&["header", "uuid"], &[]).success();
    let uuid = shown.stdout_text().trim().to_owned();
    PathBuf::from(format!("/run/cryptsetup/LN_LUKS2-reencryption-{uuid}"))
}

/// cryptsetup has noted by then that it began; the data is as it was.
#[test]
fn volume_that_is_served_is_not_reencrypted() {
    let Some(lab) = Lab::new("luks2", PBKDF2, false) else {
        return;
    };
    let path = lock_of(&lab);
    let file = lab.with("--key-file=", 0);
    let ended = lab.path("ended");
    let reencrypt = [
        "cryptsetup",
        "--batch-mode",
        "reencrypt",
        &lab.place[0],
        &file,
        "--force-offline-reencrypt",
        "--resilience=none",
    ];
    let line = [&reencrypt[..], PBKDF2].concat().join(" ");
    let script = format!(
        "cd {} && test -e {} && {{ {line} 2> said; test $? = 5 && mv said {}; }}",
        lab.folder.root().display(),
        path.display(),
        ended.display()
    );
    lab.cryptline(&["serve"], &[&file, "--run", &script]);
    if !ended.exists() {
        return peer::skip("only root has a folder of locks");
    }
    // In its sandbox, a server cannot remove the file.
    let left = File::create(&path).unwrap();
    flock(&left, FlockOperation::NonBlockingLockExclusive).expect("nobody has the lock any more");
    fs::remove_file(&path).unwrap();
}

#[test]
fn volume_is_not_used_while_it_is_reencrypted() {
    let Some(lab) = Lab::new("luks2", PBKDF2, false) else {
        return;
    };
    let path = lock_of(&lab);
    let file = lab.with("--key-file=", 0);
    let serve = || lab.cryptline(&["serve"], &[&file, "--run", "true"]);
    // The first who uses a volume makes the folder.
    serve().success();
    let saved = format!("--file={}", lab.path("saved").display());
    let restore = || lab.cryptline(&["header", "restore"], &[&saved, "-q"]);
    lab.cryptline(&["header", "backup"], &[&saved]).success();
    let Ok(held) = File::create(&path) else {
        return peer::skip("only root has a folder of locks");
    };
    flock(&held, FlockOperation::LockExclusive).unwrap();
    let before = lab.bytes();
    refused(serve(), 5, "is reencrypting the volume");
    refused(lab.add(0, 1, &[]), 5, "is reencrypting the volume");
    refused(restore(), 5, "is reencrypting the volume");
    assert!(lab.bytes() == before);
    drop(held);
    fs::remove_file(&path).unwrap();
    restore().success();
    lab.add(0, 1, &[]).success();
    lab.opens_with(&[0, 1]);
}

/// What is overwritten does not keep its place in the file.
#[test]
fn key_material_that_is_gone_takes_no_room() {
    let Some(lab) = Lab::new("luks2", PBKDF2, false) else {
        return;
    };
    lab.add(0, 1, &[]).success();
    let disk = File::open(lab.path("disk")).unwrap();
    let area = &metadata(&lab.path("disk"))["keyslots"]["1"]["area"];
    let number = |name: &str| area[name].as_str().unwrap().parse::<u64>().unwrap();
    let (offset, size) = (number("offset"), number("size"));
    let hole = |from| rustix::fs::seek(&disk, rustix::fs::SeekFrom::Hole(from)).unwrap();
    assert!(hole(offset) >= offset + size / 2, "it is full");
    lab.cryptline(&["key", "kill"], &["1", "-q"]).success();
    let [start, end] = [offset, offset + size].map(|at| usize::try_from(at).unwrap());
    if lab.bytes()[start..end].iter().any(|&byte| byte != 0) {
        return peer::skip("this file system makes no holes");
    }
    assert_eq!(hole(offset), offset);
    let data = rustix::fs::seek(&disk, rustix::fs::SeekFrom::Data(offset));
    assert!(data.is_err() || data.unwrap() >= offset + size);
    lab.opens_with(&[0]);
    lab.add(0, 2, &[]).success();
    lab.opens_with(&[0, 2]);
}
