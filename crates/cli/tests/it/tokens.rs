//! `token`, unlocking by tokens, and recovery keys: cryptsetup and systemd read what is written here, and the other
//! way round.

use std::fs;
use std::time::Duration;

use crate::common::{self, *};
use crate::lab::Lab;
use cryptline_testkit::peer::{self, Background, Peer, TIMEOUT_DEFAULT, run};
use linux_keyutils::{Key, KeyRing, KeyRingIdentifier};
use serde_json::{Value, json};

/// How long anything may take to get ready.
const READY: Duration = Duration::from_secs(60);
/// Strange, and kept as it is.
const OTHER: &str = r#"{"type":"of-others","keyslots":["0"],"nested":{"a":[1,2.5,"x/y"],"b":null}}"#;

/// A key in the session's keyring, which programs started from here share; gone when dropped.
struct UserKey {
    description: String,
    ring: KeyRing,
    key: Key,
}

impl UserKey {
    fn new(name: &str, passphrase: &str) -> Option<Self> {
        let description = format!("cryptline-test:{}:{name}", std::process::id());
        let ring = KeyRing::from_special_id(KeyRingIdentifier::Session, false);
        let added = ring.and_then(|ring| Ok((ring, ring.add_key(&description, passphrase)?)));
        match added {
            Ok((ring, key)) => Some(Self { description, ring, key }),
            Err(error) => {
                peer::skip(&format!("no keyring can be used here: {error}"));
                None
            }
        }
    }

    fn option(&self) -> String {
        format!("--key-description={}", self.description)
    }
}

impl Drop for UserKey {
    fn drop(&mut self) {
        let _ = self.ring.unlink_key(self.key);
    }
}

#[test]
fn tokens_of_either_program_are_the_others() {
    let Some(lab) = Lab::new() else { return };
    lab.add("second", 4);
    let added = lab.ours(&["token", "add"], &["--key-description=a:b"]);
    assert_eq!(added.success().stdout_text(), "Token 0 added.\n");
    let other = format!("--json-file={}", lab.file("other", OTHER));
    lab.ours(&["token", "import"], &[&other, "--key-slot=4"]).success();
    lab.ours_reading(&["token", "import"], &["--token-id=9"], OTHER).success();
    lab.theirs(&["token", "import"], &[&other, "--token-id=7"]).success();
    lab.theirs(&["token", "add"], &["--key-description=c", "--key-slot=4", "--token-id=3"]).success();
    let strange: Value = serde_json::from_str(OTHER).unwrap();
    let mut of_both = strange.clone();
    of_both["keyslots"] = json!(["0", "4"]);
    let expected = json!({
        "0": {"type": "luks2-keyring", "keyslots": ["0", "4"], "key_description": "a:b"},
        "1": of_both,
        "9": strange,
        "7": strange,
        "3": {"type": "luks2-keyring", "keyslots": ["4"], "key_description": "c"},
    });
    assert_eq!(lab.tokens(), expected);
    for id in [0, 1, 3, 7, 9] {
        let option = format!("--token-id={id}");
        let ours = lab.ours(&["token", "export"], &[&option]).success();
        let theirs = lab.theirs(&["token", "export"], &[&option]).success();
        assert_eq!(ours.stdout, theirs.stdout, "{id}");
    }
    lab.ours(&["token", "unassign"], &["--token-id=1", "--key-slot=0"]).success();
    lab.ours(&["token", "remove"], &["--token-id=0"]).success();
    lab.theirs(&["token", "remove"], &["--token-id=7"]).success();
    let replaced = ["--key-description=d", "--token-id=9", "--token-replace"];
    lab.ours(&["token", "add"], &[&replaced[..], &["--unbound"]].concat()).success();
    let tokens = lab.tokens();
    let numbers: Vec<_> = tokens.as_object().unwrap().keys().collect();
    assert_eq!(numbers, ["1", "9", "3"]);
    assert_eq!(tokens["1"]["keyslots"], json!(["4"]));
    let keyring = json!({"type": "luks2-keyring", "keyslots": [], "key_description": "d"});
    assert_eq!(tokens["9"], keyring);
    lists_say_what_there_is(&lab);
}

fn lists_say_what_there_is(lab: &Lab) {
    let listed = lab.ours(&["token", "list"], &[]).success().stdout_text();
    let lines: Vec<_> = listed.lines().skip(1).collect();
    let expected = [
        "   1  of-others, key slot 4, for other programs",
        "   3  luks2-keyring, key slot 4, user key c",
        "   9  luks2-keyring, no key slot, user key d",
    ];
    assert_eq!(lines, expected);
    let listed = lab.ours(&["token", "list"], &["--json"]).success();
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let expected = json!([
        {"id": 1, "type": "of-others", "keyslots": [4]},
        {"id": 3, "type": "luks2-keyring", "keyslots": [4], "key_description": "c"},
        {"id": 9, "type": "luks2-keyring", "keyslots": [], "key_description": "d"},
    ]);
    assert_eq!(listed["tokens"], expected);
    let info = lab.ours(&["info"], &[]).success().stdout_text();
    for words in ["Token 1: of-others", "Token 3: luks2-keyring", "User key      c"] {
        assert!(info.contains(words), "{words} is not in: {info}");
    }
}

/// cryptsetup takes trailing bytes after a token; otherwise both refuse the same.
#[test]
fn what_is_no_token_is_refused_by_both_and_changes_nothing() {
    let Some(lab) = Lab::new() else { return };
    lab.ours(&["token", "add"], &["--key-description=a"]).success();
    let before = fs::read(&lab.disk).unwrap();
    for token in [
        "",
        "x",
        "[]",
        r#"{"type":"foo"}"#,
        r#"{"keyslots":[]}"#,
        r#"{"type":"","keyslots":[]}"#,
        r#"{"type":"foo","keyslots":["7"]}"#,
        r#"{"type":"foo","keyslots":["00"]}"#,
        r#"{"type":"luks2-foo","keyslots":[]}"#,
        r#"{"type":"luks2-keyring","keyslots":[]}"#,
        r#"{"type":"luks2-keyring","keyslots":[],"key_description":""}"#,
        r#"{"type":"luks2-keyring","keyslots":[],"key_description":"a","x":1}"#,
    ] {
        let option = format!("--json-file={}", lab.file("token", token));
        lab.theirs(&["token", "import"], &[&option]).exited_with(1);
        let ours = lab.ours(&["token", "import"], &[&option]);
        refused(ours, 1, "this is no token");
    }
    // These it would take, and find no header then.
    for token in [
        r#"{"type":"\u0000","keyslots":["0"]}"#,
        r#"{"type":"x","keyslots":["0"],"type\u0000":5}"#,
        r#"{"type":"x","keyslots":["0"],"y":[{"z\u0000":{}}]}"#,
    ] {
        let option = format!("--json-file={}", lab.file("token", token));
        let ours = lab.ours(&["token", "import"], &[&option]);
        refused(ours, 1, "U+0000");
    }
    let add = |options: &[&str]| {
        let options = [&["--key-description=b"][..], options].concat();
        let theirs = lab.theirs(&["token", "add"], &options);
        assert_eq!(theirs.status.code(), Some(1), "{theirs}");
        lab.ours(&["token", "add"], &options)
    };
    refused(add(&["--token-id=0"]), 1, "--token-replace");
    refused(add(&["--token-id=32"]), 1, "0 to 31");
    refused(add(&["--key-slot=5"]), 1, "key slot 5 is not in use");
    for verb in ["remove", "export"] {
        let ours = lab.ours(&["token", verb], &["--token-id=5"]);
        refused(ours, 1, "`cryptline token list`");
        lab.theirs(&["token", verb], &["--token-id=5"]).exited_with(1);
    }
    let there = format!("--json-file={}", lab.file("there", ""));
    let exported = lab.ours(&["token", "export"], &["--token-id=0", &there]);
    refused(exported, 5, "give another name");
    let missing = lab.ours(&["token", "import"], &["--json-file=/no/such/file"]);
    refused(missing, 4, "/no/such/file");
    let luks1 = lab.folder.luks1();
    let luks1 = cryptline(["token", "add", luks1.to_str().unwrap(), "--key-description=a"]);
    refused(luks1, 1, "LUKS1 has no tokens");
    assert!(fs::read(&lab.disk).unwrap() == before);
}

#[test]
fn key_in_the_keyring_unlocks_without_a_question() {
    let Some(lab) = Lab::new() else { return };
    let Some(key) = UserKey::new("unlocks", PASSPHRASE) else {
        return;
    };
    lab.ours(&["token", "add"], &[&key.option()]).success();
    let theirs = ["open", "--test-passphrase", "--token-only"];
    lab.theirs(&theirs, &[]).success();
    let opened = lab.ours(&["open", "--check"], &[]).success();
    assert_eq!(opened.stdout_text(), "Key slot 0 unlocked.\n");
    assert_eq!(opened.stderr_text(), "");
    lab.ours(&["serve"], &["--token-only", "--run", "true"]).success();
    for option in ["--token-id=0", "--token-type=luks2-keyring"] {
        lab.ours(&["open", "--check"], &["--token-only", option]).success();
    }
    let new = format!("--new-key-file={}", lab.file("new", "new"));
    let cost = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];
    lab.ours(&["key", "add", "--token-only"], &[&[&*new], &cost[..]].concat()).success();
    // What a passphrase is asked for takes none of a token, or the token's slot would go.
    let remove = lab.ours(&["key", "remove"], &[]);
    refused(remove, 1, "no terminal");
    drop(key);
    let opened = lab.ours(&["open", "--check"], &["--token-only"]);
    refused(opened, 2, "there is no user key");
    let opened = lab.ours_reading(&["open", "--check"], &[], &format!("{PASSPHRASE}\n"));
    assert_eq!(opened.success().stderr_text(), "");
}

/// Whatever gives the clear disk to others asks nobody.
#[test]
fn token_unlocks_for_a_mount_and_for_a_machine() {
    let Some(lab) = Lab::new() else { return };
    let Some(key) = UserKey::new("fronts", PASSPHRASE) else {
        return;
    };
    lab.ours(&["token", "add"], &[&key.option()]).success();
    let (disk, socket) = (lab.disk.to_str().unwrap(), lab.folder.path("socket"));
    let mut command = command();
    command.args(["vhost-user", disk, "--token-only", "--socket-path"]);
    let server = Background::spawn(command.arg(&socket)).wait_for_socket(&socket, READY);
    server.stop().success();
    let fuse = fs::File::options().read(true).write(true).open("/dev/fuse");
    if fuse.is_err() || !rustix::process::geteuid().is_root() {
        return peer::skip("/dev/fuse cannot be used");
    }
    let (point, log) = (lab.folder.path("mnt"), lab.folder.path("log"));
    fs::create_dir(&point).unwrap();
    let mut command = common::command();
    command.args(["mount", disk, point.to_str().unwrap(), "--token-only"]);
    command.env("XDG_RUNTIME_DIR", lab.folder.root());
    command.stdout(fs::File::create(&log).unwrap());
    let mounted = run(&mut command, READY);
    let name = fs::read_dir(&point).unwrap().next();
    let size = name.map(|entry| entry.unwrap().metadata().unwrap().len());
    let ended = cryptline(["umount", point.to_str().unwrap()]);
    mounted.success();
    ended.success();
    assert_eq!(size, Some(SIZE - (16 << 20)));
}

#[test]
fn token_that_cannot_be_used_is_passed_over() {
    let Some(lab) = Lab::new() else { return };
    let Some(wrong) = UserKey::new("wrong", "another passphrase") else {
        return;
    };
    let Some(right) = UserKey::new("right", PASSPHRASE) else {
        return;
    };
    let other = format!("--json-file={}", lab.file("other", OTHER));
    lab.ours(&["token", "import"], &[&other]).success();
    lab.ours(&["token", "add"], &[&wrong.option()]).success();
    let check = ["open", "--check"];
    let opened = lab.ours(&check, &["--token-only"]).exited_with(2);
    let said = opened.stderr_text();
    let unknown = "token 0: tokens of type 'of-others' are not used here";
    assert!(said.contains(unknown), "{opened}");
    let none = "token 1: its passphrase opens none of its key slots";
    assert!(said.contains(none), "{opened}");
    for (option, code) in [("--token-id=0", 2), ("--token-id=5", 1), ("--token-type=none", 1)] {
        let opened = lab.ours(&check, &["--token-only", option]);
        refused(opened, code, "token");
    }
    lab.ours(&["token", "add"], &[&right.option()]).success();
    let opened = lab.ours(&check, &[]).success();
    let said = opened.stderr_text();
    assert!(said.contains("token 1 is passed over") && said.lines().count() == 1, "{opened}");
    let served = lab.ours(&["serve"], &["--run", "true"]).success();
    assert!(served.stderr_text().contains("token 1 is passed over"));
    let added = lab.ours(&["key", "add"], &["--recovery", "--token-type=luks2-keyring"]).success();
    assert!(added.stderr_text().contains("token 1 is passed over"));
    for options in [&["--token-only", "--key-file=x"][..], &["--token-id=0", "--passphrase-fd=0"]] {
        lab.ours(&check, options).exited_with(1);
    }
    let plain = lab.ours(&["serve"], &["--type=plain", "--cipher=aes-xts-plain64", "--key-size=512", "--token-only"]);
    refused(plain, 1, "--token-only");
}

/// The key slot of a named token is tried whatever its priority is.
#[test]
fn ignored_key_slot_is_opened_by_a_token_that_is_named() {
    let Some(lab) = Lab::new() else { return };
    let Some(key) = UserKey::new("ignored", "second") else {
        return;
    };
    lab.add("second", 1);
    lab.ours(&["token", "add"], &[&key.option(), "--key-slot=1"]).success();
    lab.ours(&["key", "priority"], &["1", "ignore"]).success();
    let check = ["open", "--check", "--token-only"];
    refused(lab.ours(&check, &[]), 1, "no such token");
    let theirs = ["open", "--test-passphrase", "--token-only"];
    assert!(!lab.theirs(&theirs, &[]).status.success());
    let named = lab.ours(&check, &["--token-id=0"]).success();
    assert_eq!(named.stdout_text(), "Key slot 1 unlocked.\n");
    lab.theirs(&theirs, &["--token-id=0"]).success();
    lab.ours(&["key", "priority"], &["1", "prefer"]).success();
    lab.ours(&check, &[]).success();
}

/// A header can ask for any cost, and name a key that is there.
#[test]
fn token_of_a_key_slot_that_would_take_hours_is_passed_over() {
    let Some(lab) = Lab::new() else { return };
    let Some(key) = UserKey::new("costly", "second") else {
        return;
    };
    lab.add("second", 1);
    lab.ours(&["token", "add"], &[&key.option(), "--key-slot=1"]).success();
    edit_metadata(&lab.disk, |json| {
        json["keyslots"]["1"]["kdf"]["iterations"] = json!(u32::MAX);
        let token = json["tokens"]["0"].clone();
        for id in 1..32 {
            json["tokens"][id.to_string()] = token.clone();
        }
    });
    let input = format!("{PASSPHRASE}\n");
    let options = ["--kdf-time-limit=1"];
    let opened = lab.ours_reading(&["open", "--check"], &options, &input);
    let said = opened.success().stderr_text();
    assert!(said.contains("token 0 is passed over: refused"), "{said}");
    let opened = lab.ours(&["open", "--check"], &["--token-only", options[0]]);
    let said = opened.exited_with(2).stderr_text();
    assert!(said.contains("would take about"), "{said}");
}

/// The recovery key alone, in a file.
fn add_recovery(lab: &Lab) -> (String, String) {
    let added = lab.folder.run(&["key", "add"], &lab.disk, &["--recovery"]).success();
    let key = added.stdout_text();
    assert_eq!(key.len(), 72, "{added}");
    let said = added.stderr_text();
    assert!(said.contains("not shown again"), "{added}");
    let key = key.trim_end().to_owned();
    let file = lab.file("recovery", &key);
    (key, file)
}

/// In any case, with and without dashes; and nothing less.
fn opens_by_recovery_key(lab: &Lab, key: &str) {
    let check = ["open", "--check"];
    for typed in [
        key.to_owned(),
        key.to_uppercase(),
        key.replace('-', ""),
        key.replace('-', "").to_uppercase(),
        format!("{key}\n"),
    ] {
        let file = format!("--key-file={}", lab.file("typed", &typed));
        let opened = lab.ours(&check, &[&file]).success();
        assert_eq!(opened.stdout_text(), "Key slot 1 unlocked.\n", "{typed}: {opened}");
        lab.ours(&check, &[&file, "--key-slot=1"]).success();
        refused(lab.ours(&check, &[&file, "--key-slot=0"]), 2, "No key available");
    }
    let short = format!("--key-file={}", lab.file("typed", &key[1..]));
    refused(lab.ours(&check, &[&short]), 2, "No key available");
}

#[test]
fn recovery_key_made_here_opens_everywhere() {
    let Some(lab) = Lab::new() else { return };
    let (key, file) = add_recovery(&lab);
    opens_by_recovery_key(&lab, &key);
    lab.theirs(&["open", "--test-passphrase", "--key-file", &file], &[]).success();
    let tokens = lab.tokens();
    assert_eq!(tokens, json!({"0": {"type": "systemd-recovery", "keyslots": ["1"]}}));
    let Some(enroll) = peer::require("systemd-cryptenroll") else {
        return;
    };
    let listed = enroll.run([&lab.disk]).success().stdout_text();
    let is_known = |line: &str| line.split_whitespace().eq(["1", "recovery"]);
    assert!(listed.lines().any(is_known), "{listed}");
    enroll_wipes(&lab, &enroll, &file);
    // Without the token it is a passphrase like any other.
    lab.ours(&["token", "remove"], &["--token-id=0"]).success();
    lab.ours(&["open", "--check"], &["--key-file", &file]).success();
    let upper = lab.file("upper", &key.to_uppercase());
    let upper = lab.ours(&["open", "--check"], &["--key-file", &upper]);
    refused(upper, 2, "No key available");
    let luks1 = lab.folder.luks1();
    let luks1 = lab.folder.run(&["key", "add"], &luks1, &["--recovery"]);
    refused(luks1, 1, "LUKS1 has no recovery keys");
}

/// systemd opens the volume by our key, and its password slot goes.
fn enroll_wipes(lab: &Lab, enroll: &Peer, file: &str) {
    let copy = lab.folder.path("copy");
    fs::copy(&lab.disk, &copy).unwrap();
    let mut command = enroll.command();
    command.arg("--recovery-key").arg("--wipe-slot=password").arg(format!("--unlock-key-file={file}")).arg(&copy);
    let enrolled = run(&mut command, TIMEOUT_DEFAULT).success();
    let theirs = enrolled.stdout_text().trim().to_owned();
    let theirs = format!("--key-file={}", lab.file("theirs", &theirs.to_uppercase()));
    let copy = copy.to_str().unwrap();
    cryptline(["open", "--check", copy, &theirs]).success();
    let password = format!("--key-file={}", lab.folder.key().display());
    cryptline(["open", "--check", copy, &password]).exited_with(2);
}

#[test]
fn recovery_key_of_systemd_opens_here() {
    let Some(lab) = Lab::new() else { return };
    let Some(enroll) = peer::require("systemd-cryptenroll") else {
        return;
    };
    let mut command = enroll.command();
    command.env("PASSWORD", PASSPHRASE).arg("--recovery-key");
    let enrolled = run(command.arg(&lab.disk), TIMEOUT_DEFAULT).success();
    let key = enrolled.stdout_text().trim().to_owned();
    opens_by_recovery_key(&lab, &key);
    // What is stored anew is the key as it was, not as it was typed.
    let typed = format!("--key-file={}", lab.file("typed", &key.to_uppercase()));
    let convert = [&*typed, "--pbkdf=pbkdf2", "--pbkdf-force-iterations=1001"];
    lab.ours(&["key", "convert"], &convert).success();
    opens_by_recovery_key(&lab, &key);
    let file = lab.file("exact", &key);
    lab.theirs(&["open", "--test-passphrase", "--key-file", &file], &[]).success();
}
