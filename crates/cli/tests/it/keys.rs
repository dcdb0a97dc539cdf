//! `key`, `header` and `erase`: after every change, cryptsetup and this program agree on what opens the volume.

mod full;
mod meanwhile;

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::common::*;
use cryptline_testkit::peer::{self, Peer, Run, TIMEOUT_DEFAULT, run};
use serde_json::Value;

const PBKDF2: &[&str] = &["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];
const ARGON2: &[&str] = &["--pbkdf=argon2id", "--pbkdf-force-iterations=4", "--pbkdf-memory=32", "--pbkdf-parallel=1"];
const UUIDS: [&str; 2] = ["01234567-89ab-cdef-0123-456789abcdef", "fedcba98-7654-3210-fedc-ba9876543210"];

/// A volume, keys in files, and both programs.
struct Lab {
    folder: Folder,
    cryptsetup: Peer,
    /// Where the volume is, and its header if that is elsewhere.
    place: Vec<String>,
    cost: &'static [&'static str],
}

impl Lab {
    /// A volume made by cryptsetup, which key 0 opens.
    fn new(kind: &str, cost: &'static [&'static str], detached: bool) -> Option<Self> {
        let cryptsetup = peer::require("cryptsetup")?;
        let folder = Folder::new();
        for number in 0..6 {
            fs::write(folder.path(&format!("k{number}")), format!("key {number}\n")).unwrap();
        }
        let disk = folder.path("disk");
        File::create(&disk).unwrap().set_len(SIZE).unwrap();
        let mut place = vec![disk.to_str().unwrap().to_owned()];
        if detached {
            let header = folder.path("header");
            place.push(format!("--header={}", header.display()));
        }
        let lab = Self { folder, cryptsetup, place, cost };
        let kind = format!("--type={kind}");
        lab.cryptsetup(&["luksFormat", &kind, &lab.with("--key-file=", 0)], true).success();
        Some(lab)
    }

    /// An option with the path of a key.
    fn with(&self, option: &str, key: u32) -> String {
        format!("{option}{}", self.key(key))
    }

    fn key(&self, number: u32) -> String {
        let path = self.folder.path(&format!("k{number}"));
        path.to_str().unwrap().to_owned()
    }

    /// `cryptsetup VERB PLACE ARGUMENTS`.
    fn cryptsetup(&self, arguments: &[&str], with_cost: bool) -> Run {
        let mut command = self.cryptsetup.command();
        command.arg("--batch-mode").arg(arguments[0]);
        command.args(&self.place).args(&arguments[1..]);
        if with_cost {
            command.args(self.cost);
        }
        run(&mut command, TIMEOUT_DEFAULT)
    }

    /// `cryptline VERBS PLACE ARGUMENTS`.
    fn cryptline(&self, verbs: &[&str], arguments: &[&str]) -> Run {
        let place = self.place.iter().map(String::as_str);
        let line = verbs.iter().copied().chain(place);
        cryptline(line.chain(arguments.iter().copied()))
    }

    fn add(&self, old: u32, new: u32, options: &[&str]) -> Run {
        let (old, new) = (self.with("--key-file=", old), self.with("--new-key-file=", new));
        let options = [&[&*old, &*new], self.cost, options].concat();
        self.cryptline(&["key", "add"], &options)
    }

    fn change(&self, old: u32, new: u32) -> Run {
        let (old, new) = (self.with("--key-file=", old), self.with("--new-key-file=", new));
        let options = [&[&*old, &*new], self.cost].concat();
        self.cryptline(&["key", "change"], &options)
    }

    /// Both programs open the volume with these keys and with no others, and cryptsetup finds no fault.
    #[track_caller]
    fn opens_with(&self, keys: &[u32]) {
        for number in 0..6 {
            let key = self.with("--key-file=", number);
            let code = if keys.contains(&number) { 0 } else { 2 };
            let theirs = self.cryptsetup(&["open", "--test-passphrase", &key], false);
            let ours = self.cryptline(&["open", "--check"], &[&key]);
            let codes = [theirs.status.code(), ours.status.code()];
            // Without a key slot there is nothing to try.
            let is_right = match keys {
                [] => codes == [Some(1), Some(1)],
                _ => codes == [Some(code); 2],
            };
            assert!(is_right, "key {number}: {theirs}\n{ours}");
        }
        let dump = self.cryptsetup(&["luksDump", "--debug"], false).success();
        let debug = dump.stdout_text().to_lowercase();
        for word in ["failed", "invalid", "damaged", "corrupt"] {
            assert!(!debug.contains(word), "{word}: {dump}");
        }
    }

    fn slots(&self) -> Vec<u64> {
        let listed = self.cryptline(&["key", "list"], &["--json"]).success();
        let json: Value = serde_json::from_slice(&listed.stdout).unwrap();
        let slots = json["keyslots"].as_array().unwrap().iter();
        slots.map(|slot| slot["id"].as_u64().unwrap()).collect()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path(name)
    }

    /// What holds the header.
    fn bytes(&self) -> Vec<u8> {
        let name = if self.place.len() == 2 { "header" } else { "disk" };
        fs::read(self.path(name)).unwrap()
    }
}

/// Every change by either program, which the other understands.
fn both_programs_agree(kind: &str, cost: &'static [&'static str], detached: bool) {
    let Some(lab) = Lab::new(kind, cost, detached) else {
        return;
    };
    let file = |key| lab.with("--key-file=", key);
    lab.add(0, 1, &[]).success();
    lab.opens_with(&[0, 1]);
    lab.cryptsetup(&["luksAddKey", &file(1), &lab.key(2)], true).success();
    lab.opens_with(&[0, 1, 2]);
    lab.change(1, 3).success();
    lab.opens_with(&[0, 2, 3]);
    let slots = if kind == "luks1" { [0, 2, 3] } else { [0, 1, 2] };
    assert_eq!(lab.slots(), slots);
    lab.cryptsetup(&["luksChangeKey", &file(2), &lab.key(4)], true).success();
    lab.opens_with(&[0, 3, 4]);
    lab.cryptline(&["key", "kill"], &["0", &file(3)]).success();
    lab.opens_with(&[3, 4]);
    lab.cryptsetup(&["luksRemoveKey", &file(4)], false).success();
    lab.opens_with(&[3]);
    uuids(&lab);
    if kind == "luks2" {
        costs_and_labels(&lab);
    }
    backups(&lab);
    lab.add(3, 5, &["--new-key-slot=6"]).success();
    assert_eq!(lab.slots().last(), Some(&6));
    lab.cryptline(&["key", "remove"], &[&file(3)]).success();
    lab.opens_with(&[5]);
    lab.cryptline(&["header", "repair"], &["--wipe-unused"]).success();
    lab.opens_with(&[5]);
    let last = lab.cryptline(&["key", "remove"], &[&file(5)]);
    refused(last, 1, "key slot");
    lab.cryptline(&["erase"], &["-q"]).success();
    lab.opens_with(&[]);
    assert!(lab.slots().is_empty());
}

fn uuids(lab: &Lab) {
    let option = format!("--uuid={}", UUIDS[0]);
    lab.cryptline(&["header", "uuid"], &[&option]).success();
    let shown = lab.cryptsetup(&["luksUUID"], false).success();
    assert_eq!(shown.stdout_text().trim(), UUIDS[0]);
    let option = format!("--uuid={}", UUIDS[1]);
    lab.cryptsetup(&["luksUUID", &option], false).success();
    let shown = lab.cryptline(&["header", "uuid"], &[]).success();
    assert_eq!(shown.stdout_text().trim(), UUIDS[1]);
    lab.opens_with(&[3]);
}

fn costs_and_labels(lab: &Lab) {
    let (slot, file) = (lab.slots()[0].to_string(), lab.with("--key-file=", 3));
    let other = if lab.cost == PBKDF2 { ARGON2 } else { PBKDF2 };
    let options = [&[&*file][..], other, &["--hash=sha512"]].concat();
    lab.cryptline(&["key", "convert"], &options).success();
    lab.opens_with(&[3]);
    lab.cryptsetup(&["luksConvertKey", &file], true).success();
    lab.opens_with(&[3]);
    lab.cryptline(&["key", "priority"], &[&slot, "prefer"]).success();
    let dump = || lab.cryptsetup(&["luksDump"], false).success().stdout_text();
    assert!(dump().contains("Priority:   preferred"), "{}", dump());
    let slot = format!("--key-slot={slot}");
    lab.cryptsetup(&["config", &slot, "--priority=normal", "--label=theirs"], false).success();
    let label = ["header", "label"];
    let shown = lab.cryptline(&label, &[]).success().stdout_text();
    assert!(shown.contains("theirs"), "{shown}");
    lab.cryptline(&label, &["--label=ours", "--subsystem=sub"]).success();
    assert!(dump().contains("ours") && dump().contains("sub"), "{}", dump());
    lab.opens_with(&[3]);
}

fn backups(lab: &Lab) {
    let (ours, theirs) = (lab.path("ours"), lab.path("theirs"));
    let ours_option = format!("--header-backup-file={}", ours.display());
    let theirs_option = format!("--header-backup-file={}", theirs.display());
    lab.cryptline(&["header", "backup"], &[&ours_option]).success();
    lab.cryptsetup(&["luksHeaderBackup", &theirs_option], false).success();
    assert!(fs::read(&ours).unwrap() == fs::read(&theirs).unwrap());
    let mode = fs::metadata(&ours).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o400);
    lab.change(3, 2).success();
    lab.opens_with(&[2]);
    let restore = ["header", "restore"];
    let unasked = lab.cryptline(&restore, &[&theirs_option]);
    refused(unasked, 1, "give -q if that is intended");
    lab.cryptline(&restore, &[&theirs_option, "-q"]).success();
    lab.opens_with(&[3]);
    lab.change(3, 2).success();
    lab.cryptsetup(&["luksHeaderRestore", &ours_option], false).success();
    lab.opens_with(&[3]);
    let again = lab.cryptline(&["header", "backup"], &[&ours_option]);
    refused(again, 5, "exists already");
    fs::remove_file(ours).unwrap();
    fs::remove_file(theirs).unwrap();
}

#[test]
fn luks2_with_argon2id_is_the_same_for_both_programs() {
    both_programs_agree("luks2", ARGON2, false);
}

#[test]
fn luks2_with_pbkdf2_is_the_same_for_both_programs() {
    both_programs_agree("luks2", PBKDF2, false);
}

#[test]
fn luks1_is_the_same_for_both_programs() {
    both_programs_agree("luks1", PBKDF2, false);
}

#[test]
fn detached_luks2_header_is_the_same_for_both_programs() {
    both_programs_agree("luks2", ARGON2, true);
}

#[test]
fn detached_luks1_header_is_the_same_for_both_programs() {
    both_programs_agree("luks1", PBKDF2, true);
}

#[test]
fn volume_key_makes_a_new_key_slot_where_no_passphrase_is_left() {
    let Some(lab) = Lab::new("luks2", ARGON2, false) else {
        return;
    };
    let key = lab.path("vk");
    let file = lab.with("--key-file=", 0);
    let dumped = format!("--volume-key-file={}", key.display());
    lab.cryptsetup(&["luksDump", "--dump-volume-key", &file, &dumped], false).success();
    lab.cryptline(&["erase"], &["-q"]).success();
    let new = lab.with("--new-key-file=", 1);
    let options = [&[&*dumped, &*new][..], ARGON2].concat();
    lab.cryptline(&["key", "add"], &options).success();
    lab.opens_with(&[1]);
    fs::write(&key, [0; 64]).unwrap();
    let wrong = lab.cryptline(&["key", "add"], &options);
    refused(wrong, 2, "Volume key does not match");
}

#[test]
fn words_of_cryptsetup_work() {
    let Some(lab) = Lab::new("luks2", ARGON2, false) else {
        return;
    };
    let file = |key| lab.with("--key-file=", key);
    let word = |word: &str, options: &[&str], with_cost: bool| {
        let cost = if with_cost { ARGON2 } else { &[] };
        lab.cryptline(&[word], &[options, cost].concat()).success()
    };
    let (backup, uuid) = (lab.path("b"), format!("--uuid={}", UUIDS[0]));
    let backup = format!("--header-backup-file={}", backup.display());
    word("luksAddKey", &[&lab.key(1), &file(0), "--key-slot=4"], true);
    assert_eq!(lab.slots(), [0, 4]);
    word("luksChangeKey", &[&lab.key(2), &file(1)], true);
    word("luksConvertKey", &[&file(2)], true);
    word("luksHeaderBackup", &[&backup], false);
    word("luksKillSlot", &["0", &file(2)], false);
    lab.opens_with(&[2]);
    word("luksHeaderRestore", &[&backup, "-q"], false);
    lab.opens_with(&[0, 2]);
    word("luksRemoveKey", &[&lab.key(2)], false);
    word("config", &["--priority=ignore", "--key-slot=0", "--label=x"], false);
    word("config", &["--priority=normal", "--key-slot=0"], false);
    word("luksUUID", &[&uuid, "-q"], false);
    let dumped = word("luksDump", &[], false).stdout_text();
    assert!(dumped.contains(UUIDS[0]) && dumped.contains("Label:         \tx\n"), "{dumped}");
    word("repair", &["-q"], false);
    lab.opens_with(&[0]);
    word("luksErase", &["-q"], false);
    lab.opens_with(&[]);
}

/// What is not known is in the header afterwards as it was before.
#[test]
fn tokens_and_unknown_members_are_kept() {
    let Some(lab) = Lab::new("luks2", ARGON2, false) else {
        return;
    };
    let token = r#"{"type":"of-others","keyslots":["0"],"nested":{"a":[1,2.5,"x/y"]}}"#;
    fs::write(lab.path("token"), token).unwrap();
    let option = format!("--json-file={}", lab.path("token").display());
    let token = |verb: &str, option: &str| {
        let mut command = lab.cryptsetup.command();
        command.args(["token", verb, &lab.place[0], option]);
        run(&mut command, TIMEOUT_DEFAULT).success().stdout_text()
    };
    token("import", &option);
    let before = token("export", "--token-id=0");
    assert!(before.contains("of-others"), "{before}");
    lab.add(0, 1, &[]).success();
    lab.change(0, 2).success();
    assert_eq!(token("export", "--token-id=0"), before);
}

#[test]
fn damaged_copy_is_repaired() {
    let Some(lab) = Lab::new("luks2", ARGON2, false) else {
        return;
    };
    for offset in [100, 0x4000 + 100] {
        poke(&lab.path("disk"), offset, b"x");
        let repaired = lab.cryptline(&["header", "repair"], &[]).success();
        assert!(repaired.stdout_text().contains("is repaired"), "{repaired}");
        lab.opens_with(&[0]);
    }
    let again = lab.cryptline(&["header", "repair"], &[]).success();
    assert!(again.stdout_text().contains("nothing to repair"), "{again}");
}

#[test]
fn bad_input_changes_nothing() {
    for (kind, cost) in [("luks2", ARGON2), ("luks1", PBKDF2)] {
        let Some(lab) = Lab::new(kind, cost, false) else {
            return;
        };
        lab.add(0, 1, &[]).success();
        let before = lab.bytes();
        let file = |key| lab.with("--key-file=", key);
        refused(lab.add(3, 4, &[]), 2, "No key available");
        refused(lab.change(3, 4), 2, "No key available");
        let line = |verbs: &[&str], options: &[&str]| lab.cryptline(verbs, options);
        refused(line(&["key", "remove"], &[&file(3)]), 2, "No key available");
        // The passphrase of the slot that is to go shows nothing.
        refused(line(&["key", "kill"], &["0", &file(0)]), 2, "No key available");
        refused(line(&["key", "kill"], &["5", "-q"]), 1, "key slot 5 is not in use");
        refused(lab.add(0, 4, &["--new-key-slot=1"]), 1, "key slot 1 is in use");
        refused(lab.add(0, 4, &["--new-key-slot=32"]), 1, "there is no key slot 32");
        refused(line(&["key", "add"], &[&file(0)]), 1, "no terminal");
        refused(line(&["erase"], &[]), 1, "give -q");
        refused(line(&["header", "uuid"], &["--uuid=x"]), 1, "is not a UUID");
        fs::write(lab.path("short"), &before[..1 << 20]).unwrap();
        let short = format!("--file={}", lab.path("short").display());
        refused(line(&["header", "restore"], &[&short, "-q"]), 1, "no backup of a LUKS header");
        if kind == "luks1" {
            refused(line(&["key", "priority"], &["0", "prefer"]), 1, "LUKS1");
            refused(line(&["header", "label"], &["--label=x"]), 1, "LUKS1");
        }
        assert!(lab.bytes() == before);
    }
}

/// What else a key slot or a header may say, of which cryptsetup may know less than we do: whoever knows both agrees.
#[test]
fn other_functions_and_hashes_are_the_same_for_both_programs() {
    const ARGON2I: &[&str] =
        &["--pbkdf=argon2i", "--pbkdf-force-iterations=4", "--pbkdf-memory=32", "--pbkdf-parallel=1"];
    for (kind, hash, cost) in [
        ("luks2", "--hash=sha256", ARGON2I),
        ("luks2", "--hash=whirlpool", PBKDF2),
        ("luks2", "--hash=blake2b-512", PBKDF2),
        ("luks1", "--hash=sha512", PBKDF2),
    ] {
        let Some(lab) = Lab::new("luks2", PBKDF2, false) else {
            return;
        };
        let lab = Lab { cost, ..lab };
        let (file, kind_option) = (lab.with("--key-file=", 0), format!("--type={kind}"));
        let made = lab.cryptsetup(&["luksFormat", &kind_option, &file, hash], true);
        if !made.status.success() {
            println!("cryptsetup makes no {kind} with {hash}: {made}");
            continue;
        }
        // A header of LUKS1 has one hash, which is its own.
        let hash = [hash].into_iter().filter(|_| kind == "luks2");
        let hash: Vec<_> = hash.collect();
        lab.add(0, 1, &hash).success();
        let (old, new) = (lab.with("--key-file=", 1), lab.with("--new-key-file=", 2));
        let options = [&[&*old, &*new], cost, &hash].concat();
        lab.cryptline(&["key", "change"], &options).success();
        let options = [&[&*file], cost, &hash].concat();
        lab.cryptline(&["key", "convert"], &options).success();
        lab.opens_with(&[0, 2]);
        let slot = lab.slots()[0].to_string();
        lab.cryptline(&["key", "kill"], &[&slot, "-q"]).success();
        lab.opens_with(&[2]);
    }
}

#[test]
fn backup_of_another_volume_is_restored_only_if_that_was_said() {
    for kind in ["luks2", "luks1"] {
        let Some(lab) = Lab::new(kind, PBKDF2, false) else {
            return;
        };
        let saved = format!("--file={}", lab.path("saved").display());
        lab.cryptline(&["header", "backup"], &[&saved]).success();
        let option = format!("--type={kind}");
        lab.cryptsetup(&["luksFormat", &option, &lab.with("--key-file=", 1)], true).success();
        let before = lab.bytes();
        let restored = lab.cryptline(&["header", "restore"], &[&saved]);
        refused(restored, 1, "of another volume");
        assert!(lab.bytes() == before);
        lab.opens_with(&[1]);
    }
}

#[test]
fn list_says_what_is_in_each_slot() {
    let Some(lab) = Lab::new("luks2", ARGON2, false) else {
        return;
    };
    lab.add(0, 1, &[]).success();
    lab.cryptline(&["key", "priority"], &["1", "ignore"]).success();
    let listed = lab.cryptline(&["key", "list"], &[]).success().stdout_text();
    assert!(listed.contains("0  luks2, priority normal, argon2id, 4 passes over 32 KiB, 1 lanes"), "{listed}");
    assert!(listed.contains("1  luks2, priority ignore"), "{listed}");
    let json = lab.cryptline(&["key", "list"], &["--json"]).success();
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["keyslots"][1]["priority"], "ignore");
    assert_eq!(json["keyslots"][1]["volume_key"], true);
}
